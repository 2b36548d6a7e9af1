"""Choices between operands: maximum, minimum, where and clip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.calls import (
    EVERY_FLOAT,
    LARGE_SIZE,
    MAIN_FLOATS,
    MILLION,
    SIZES,
    call,
    reshaped,
    with_values,
)
from optest.operators.describe import EVERYTHING, FLOATS, INTEGERS, UNSIGNED, attribute, exact, in_module, movement
from optest.operators.elementwise.helpers import binary, grid, refuse_bool, unary
from optest.operators.samples import error_samples, in_every_layout, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Specs,
    broadcast_shapes,
    dense,
    promote_tensors,
    require_scalar,
    require_spec,
)
from optest.spec import Kind, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype

_CHOICE = exact("a choice between operands; nothing is computed")


def _extremum(name: str, alias: str, description: str) -> OperatorDescriptor:
    return OperatorDescriptor(
        name=name,
        signature="input, other -> out",
        aliases=(alias,),
        dtype_variants=EVERYTHING,
        infer="helpers:infer_binary",
        rule=_CHOICE,
        samples="extremum_samples",
        description=f"{description} of both, with broadcasting; NaN where either is NaN.",
    )


DESCRIPTORS = in_module(
    __name__,
    _extremum("maximum", "Max: data_0, data_1 -> max", "The larger"),
    _extremum("minimum", "Min: data_0, data_1 -> min", "The smaller"),
    OperatorDescriptor(
        name="where",
        signature="condition, input, other -> out",
        aliases=("Where: condition, X, Y -> output",),
        dtype_variants=tuple(("bool", *(pair * 2)[:2]) for pair in EVERYTHING),
        rule=movement("elements are chosen and copied; only mixed dtypes are converted"),
        description="input where condition is true, else other, with broadcasting of all three.",
    ),
    OperatorDescriptor(
        name="clip",
        aliases=("clamp",),
        attributes=(
            attribute("min: float = None", "Lower bound; None means no bound."),
            attribute("max: float = None", "Upper bound; None means no bound. It wins if it is below min."),
        ),
        dtype_variants=(*FLOATS, *INTEGERS, ("uint16",), ("uint32",), ("uint64",)),
        rule=_CHOICE,
        description="input limited to min and max; max everywhere if min is above it; NaN stays NaN. A bound that is "
        "no integer gives float32 for an integer input.",
    ),
    twin="comparison_reference",
)


def infer_clip(specs: Specs, attributes: Attributes) -> Outputs:
    """Return an output of the input's dtype, but of float32 for integers with a fractional bound.

    Raises:
        UnfitArguments: without bounds, for bool, and for a bound that the dtype does not hold.
    """
    spec = require_spec(specs, 0, "input")
    bounds = {name: attributes[name] for name in ("min", "max") if attributes.get(name) is not None}
    if not bounds:
        raise UnfitArguments("min and max are both None, expected at least one of them")
    refuse_bool(spec.dtype, "input")
    if not spec.dtype.is_inexact and any(value != value // 1 for value in bounds.values()):
        return (dense(dtype("float32"), spec.shape),)
    for name, value in bounds.items():
        require_scalar(name, value, spec.dtype)
    return (dense(spec.dtype, spec.shape),)


def infer_where(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return the broadcast output of the operands' common dtype; raise UnfitArguments unless the condition is bool."""
    condition, left, right = (
        require_spec(specs, 0, "condition"),
        require_spec(specs, 1, "input"),
        require_spec(specs, 2, "other"),
    )
    if condition.dtype.kind is not Kind.BOOL:
        raise UnfitArguments(f"condition is {condition.dtype}, expected bool")
    return (dense(promote_tensors((left, right)), broadcast_shapes(condition.shape, left.shape, right.shape)),)


def extremum_samples() -> Iterator[Sample]:
    yield from binary(EVERYTHING)
    few = [0.0, 1.0, -1.0, "inf", "-inf", "nan"]
    yield from variations("ties", [grid(few, few)], dtypes=EVERY_FLOAT)
    special = call(input=(4, 37), other=(4, 37), generator="special")
    yield from variations("special", [special], dtypes=[name for (name,) in INTEGERS])


def where_samples() -> Iterator[Sample]:
    calls = [_where(shape, shape, shape) for shape in ((4, 37), (3, 5, 7), (), (2, 1, 3, 2, 2, 3))]
    plain = calls[0]
    yield Sample(case_set="ordinary", case=plain, tier=Tier.SMOKE)
    yield from (_typed("ordinary", base_call, name) for name in MAIN_FLOATS for base_call in calls)
    for variant in EVERYTHING:
        yield _typed("dtypes", plain, *variant)
    yield from in_every_layout([plain])
    yield from in_every_layout([{**plain, "dtypes": ["bool", "float16", "float16"]}], names=("input", "other"))
    for size in SIZES:
        yield from (_typed("sizes", _where((size,), (size,), (size,)), name) for name in ("float32", "float16"))
    yield _typed("sizes", _where(*[(LARGE_SIZE,)] * 3), "float32")
    yield from (_typed("sizes", _where(*[(4_099,)] * 3), name) for name in ("float16", "int64", "bool"))
    for name in (*EVERY_FLOAT, "int8", "int64"):
        yield _typed("special", {**plain, "generator": "special"}, name)
    shapes: tuple[tuple[tuple[int, ...], ...], ...] = (
        ((4, 1), (37,), (4, 37)),
        ((4, 1), (4, 37), (4, 37)),
        ((37,), (4, 1), (4, 37)),
        ((4, 37), (), (4, 37)),
        ((4, 37), (4, 37), ()),
        ((), (4, 37), (4, 37)),
        ((2, 1, 3), (5, 1), (1,)),
        ((4, 5, 6), (4, 1, 6), (4, 5, 1)),
        ((0,), (1,), ()),
    )
    yield from (_typed("broadcast", _where(*operands), name) for operands in shapes for name in ("float32", "int32"))
    yield from (_typed("broadcast", _where(*shapes[0]), name) for name in ("float16", "bfloat16", "int64", "bool"))
    # A 0-d operand of a wider dtype does not widen the result.
    for name, wider in (("float16", "float32"), ("float32", "float64"), ("int32", "int64")):
        yield _typed("broadcast", _where((3, 5), (3, 5), ()), name, wider)
    # Scalars that 32 bits do not hold.
    for name, value in (("float64", 0.1), ("int64", 2**40 + 1)):
        scalars = {"input": {"fill": "full", "value": value}, "other": {"fill": "full", "value": -value}}
        yield _typed("broadcast", {**_where((3, 5), (), ()), "generator": scalars}, name)
    yield from (_typed("sizes", _where(*[shape] * 3), "float32") for shape in (MILLION, (37, 1)))
    yield _typed("sizes", _where(*[(5, 1)] * 3), "float16")
    yield from error_samples(_where((3,), (3, 4), (3, 4)), _where((3, 4), (4, 3), (3, 4)))
    yield _typed("broadcast", _where((1, 37), (4, 37), (4, 37)), "float32")
    swapped = {"shape": [3, 5, 7], "strides": [35, 1, 5]}
    for name in ("condition", "input"):
        yield _typed("layouts", reshaped(calls[1], **{name: swapped}), "float32")


def _where(condition: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...]) -> dict[str, Any]:
    return call(condition=condition, input=left, other=right, dtypes=["bool", "float32", "float32"])


def _typed(case_set: str, case: dict[str, Any], *dtypes: str) -> Sample:
    """Return a sample of where with one dtype for both operands, or one for each."""
    return Sample(case_set=case_set, case={**case, "dtypes": ["bool", *(dtypes * 2)[:2]]})


def clip_samples() -> Iterator[Sample]:
    yield from unary((*FLOATS, *INTEGERS, *UNSIGNED), {"min": 0.0, "max": 1.0})
    large = call({"min": 3.0, "max": 100.0}, input=(4, 37), generator="special")
    yield from variations("special", [large], dtypes=[name for (name,) in UNSIGNED])
    bounds = (
        {"min": -0.5, "max": 0.5},
        {"min": -0.5},
        {"max": 0.5},
        {"min": 0.7, "max": 0.1},
        {"min": 0.1, "max": 0.1},
        {"min": -0.3, "max": 1e-3},
        {"max": -1.0},
    )
    yield from variations("attributes", [call(limits, input=(4, 37)) for limits in bounds], dtypes=EVERY_FLOAT)
    open_ended = ({"min": -0.5}, {"max": 0.5}, {"min": 1.0, "max": -1.0})
    special = [call(limits, input=(4, 37), generator="special") for limits in open_ended]
    yield from variations("special", special, dtypes=MAIN_FLOATS)
    integral = ({"min": -5.0, "max": 7.0}, {"min": -5.0}, {"max": 7.0}, {"min": 3.0, "max": -3.0})
    small = ({"min": 100.0, "max": 200.0}, {"min": 200.0, "max": 100.0}, {"max": 130.0})
    for choices, dtypes in ((integral, ("int32", "int64", "int8")), (small, ("uint8", "int16"))):
        yield from variations("attributes", [call(limits, input=(4, 37)) for limits in choices], dtypes=dtypes)
    # float64 does not hold 2^53 + 1: a kernel that compares in it mistakes the neighbours of the bound.
    around = [2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**62, 0]
    vast = [with_values(around, limits) for limits in ({"max": 2.0**53}, {"min": 2.0**53})]
    yield from variations("attributes", vast, dtypes=("int64", "uint64"))
    # Bounds that a narrower or a signed type does not hold, within the range of the dtype.
    for name, low, high in (
        ("int16", -300, 300),
        ("uint16", 300, 40_000),
        ("int32", -70_000, 70_000),
        ("uint32", 70_000, 3 * 2**30),
        ("int64", -(2**40), 2**40),
        ("uint64", 2**40, 2**62),
    ):
        values = [dtype(name).min_int, low - 1, low, 0, 1, high, high + 1, dtype(name).max_int]
        yield from variations(
            "attributes", [with_values(values, {"min": float(low), "max": float(high)})], dtypes=[name]
        )
    yield from variations("attributes", [call({"min": 2.5, "max": 90.5}, input=(4, 37))], dtypes=("int32", "uint8"))
    yield from error_samples(call(input=(4, 37)))
