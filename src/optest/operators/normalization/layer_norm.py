"""Operators that normalise rows: layer_norm, rms_norm, add_rms_norm and normalize."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, MILLION, Call, call, normal, without
from optest.operators.describe import FLOAT32_PARAMETERS, FLOATS, attribute, composed, in_module
from optest.operators.normalization.helpers import EPS, filled, of_rows, of_weight_and_bias
from optest.operators.reduction.statistics import infer_norm
from optest.operators.samples import error_samples, in_every_layout, of_one_element, standard_samples, variations
from optest.operators.shapes import Attributes, Outputs, Shape, Specs, dense, normalize_dim, require_spec
from optest.spec import OperatorDescriptor, Sample, TensorSpec, UnfitArguments, format_shape
from optest.spec.declared_shapes import match_declaration

NORMALIZED_SHAPE = replace(
    attribute("normalized_shape: ints", "The last sizes of input."), implied=lambda spec: spec.shape[-1:]
)
MEAN_SQUARE_EPS = replace(
    attribute(
        "eps|epsilon: float = None",
        "Number added to the mean square; None is 2⁻²³ (also for 16-bit inputs, as in torch), 2⁻⁵² for float64.",
    ),
    implied=lambda spec: 2.0 ** (-52 if spec.dtype.name == "float64" else -23),
)
_STATISTICS = attribute("statistics: bool = False", "Return standardization and std, too.")

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="layer_norm",
        signature="input, weight?, bias? -> out, standardization?, std?",
        aliases=("layer_normalization",),
        attributes=(NORMALIZED_SHAPE, EPS, _STATISTICS),
        dtype_variants=(*FLOATS, *FLOAT32_PARAMETERS),
        rule=composed(
            "|w|·((4√n·mean|x| + |x| + 2|mean|)·r + |z|·(2√n + 2κ + 9)) + |y|; std·(s·(2√n + 2) + 2κ·s + 10)"
        ),
        description="(x − mean) / √(variance + eps) · weight + bias over the last dimensions. With `statistics` also "
        "standardization, (x − mean) / std, and std, √(variance + eps), which has the dimensions before them.",
    ),
    OperatorDescriptor(
        name="rms_norm",
        signature="input, weight? -> out",
        dtype_variants=(*FLOATS, ("float16", "float32"), ("bfloat16", "float32")),
        rule=composed("|y|·(s·(2√n + 2) + 7), s = mean x²/(mean x² + eps)"),
        description="x / √(mean x² + eps) · weight over the last dimensions.",
    ),
    OperatorDescriptor(
        name="add_rms_norm",
        signature="input, other, weight? -> out, residual",
        aliases=("fused_add_rms_norm",),
        dtype_variants=(*FLOATS, *((half, half, "float32") for half in ("float16", "bfloat16"))),
        rule=composed("as rms_norm, plus 2·|y| and the change by rounding x to the dtype; 0 for residual"),
        description="rms_norm of x = input + other, and x itself. x may be rounded to the dtype before it is "
        "normalised, or only before it is scaled.",
    ),
    OperatorDescriptor(
        name="normalize",
        aliases=("lp_norm",),
        attributes=(
            attribute("p: float = 2.0", "Order of the norm, as in the operator norm."),
            attribute("dim|axis: int = 1", "Dimension of the vectors."),
            attribute("eps: float = 1e-12", "Minimum divisor."),
        ),
        dtype_variants=FLOATS,
        sum_length="..shapes:length_of_dim",
        rule=composed("|y|·(error of norm / norm + 6)"),
        description="x / max(norm of x over dim, eps).",
    ),
    twin="norms_reference",
    sum_length="terms_of_normalized_shape",
    attributes=(NORMALIZED_SHAPE, MEAN_SQUARE_EPS),
)


def infer_layer_norm(specs: Specs, attributes: Attributes) -> Outputs:
    shape = normalized_shape(require_spec(specs, 0, "input"), attributes)
    declared = f"input: T[*shape], weight?: {_PARAMETER}, bias?: {_PARAMETER} -> T[*shape], T[*shape]"
    n, outputs = match_declaration(specs, declared, normalized_shape=shape)
    if not attributes.get("statistics"):
        return outputs[:1]
    return (*outputs, dense(n.T, n.shape[: len(n.shape) - len(shape)]))


def infer_rms_norm(specs: Specs, attributes: Attributes) -> Outputs:
    shape = normalized_shape(require_spec(specs, 0, "input"), attributes)
    return match_declaration(specs, f"input: T[*shape], weight?: {_PARAMETER} -> T[*shape]", normalized_shape=shape)[1]


def infer_add_rms_norm(specs: Specs, attributes: Attributes) -> Outputs:
    shape = normalized_shape(require_spec(specs, 0, "input"), attributes)
    declared = f"input: T[*shape], other: T[*shape], weight?: {_PARAMETER} -> T[*shape], T[*shape]"
    return match_declaration(specs, declared, normalized_shape=shape)[1]


_PARAMETER = "T|float32[*normalized_shape]"


def infer_normalize(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    normalize_dim(attributes.get("dim", 1), spec.rank)
    # Raises for attributes that the norm itself refuses.
    infer_norm(specs, {**attributes, "keepdim": True})
    return (dense(spec.dtype, spec.shape),)


def terms_of_normalized_shape(_specs: Specs, attributes: Attributes) -> int:
    """Return the number of values of a row, which the mean sums."""
    return prod(attributes["normalized_shape"])


def normalized_shape(spec: TensorSpec, attributes: Attributes) -> Shape:
    """Return the attribute as a shape; raise UnfitArguments unless it is the last sizes of input."""
    normalized = tuple(attributes["normalized_shape"])
    if not normalized:
        raise UnfitArguments("normalized_shape is empty, expected 1 size or more")
    if spec.shape[max(0, spec.rank - len(normalized)) :] != normalized:
        raise UnfitArguments(
            f"normalized_shape is {format_shape(normalized)}, expected the last sizes of input, "
            f"{format_shape(spec.shape)}"
        )
    return normalized


def layer_norm_samples() -> Iterator[Sample]:
    def norm(rows: Sequence[int], *shape: int, **attributes: Any) -> Call:
        all_attributes = {"normalized_shape": list(shape), **attributes}
        return call(all_attributes, input=(*rows, *shape), weight=shape, bias=shape)

    calls = [norm((4,), 37), norm((3,), 5, 7), norm((2, 3), 16)]
    yield from standard_samples(calls, FLOATS, sized=lambda n: norm((3,), n), special=False)
    yield from of_weight_and_bias(calls)
    yield from variations("attributes", [norm((), 3, 5), norm((2,), 3, 1, 5), norm((4, 3), 1)])
    yield from of_rows(norm)
    # With three outputs, kernels take another path; errors of statistics are not visible in out.
    with_statistics = [norm(*sizes, statistics=True) for sizes in (((4,), 37), ((3,), 5, 7), ((2, 3), 16))]
    yield from variations("statistics", with_statistics, dtypes=(*MAIN_FLOATS, "float64"))
    yield from variations(
        "statistics", [without(with_statistics[0], "bias"), without(with_statistics[0], "weight", "bias")]
    )
    yield from in_every_layout(with_statistics[:1])
    for half in ("float16", "bfloat16"):
        yield from variations("statistics", [{**with_statistics[0], "dtypes": [half, "float32", "float32"]}])
    yield from variations("statistics", [norm((3,), n, statistics=True) for n in (1, 2, 17, 129, 1025, 65536)])
    for eps, fill in ((1e-5, normal(0.0, 1e-3)), (0.125, normal(0.0, 0.5)), (1e-5, {"fill": "full", "value": 7.25})):
        rows = filled(norm((4,), 65, eps=eps, statistics=True), fill)
        yield from variations("statistics", [rows], dtypes=MAIN_FLOATS)
    far = filled(norm((4,), 257, statistics=True), normal(30.0, 0.5))
    yield from variations("statistics", [far, norm((64,), 33, statistics=True)], dtypes=MAIN_FLOATS)
    yield from variations("statistics", [norm((0,), 4, statistics=True), norm((), 5, statistics=True)])
    yield from variations("empty", [norm((0,), 4), norm((2, 0), 3)])
    yield from of_one_element(norm((1,), 1), dtypes=("float32",))
    yield from error_samples(
        call({"normalized_shape": [5]}, input=(3, 4)),
        call({"normalized_shape": [3]}, input=(3, 4)),
        call({"normalized_shape": [4]}, input=(3, 4), weight=(3,)),
        call({"normalized_shape": [4]}, input=(3, 4), weight=(4,), bias=(1,)),
        call({"normalized_shape": []}, input=(3, 4)),
    )


def add_rms_norm_samples() -> Iterator[Sample]:
    def norm(rows: Sequence[int], *shape: int, **attributes: Any) -> Call:
        sizes = (*rows, *shape)
        return call({"normalized_shape": list(shape), **attributes}, input=sizes, other=sizes, weight=shape)

    yield from _rms_samples(norm)
    yield from variations("long", [norm((LARGE_SIZE,), 17)], dtypes=("float32",))
    opposed = norm((4,), 65)  # the sum of 300 and -300 is exact
    opposed["generator"] = {"input": normal(300.0, 1.0), "other": normal(-300.0, 1.0)}
    yield from variations("cancellation", [opposed], dtypes=(*MAIN_FLOATS, "float64"))
    yield from error_samples(
        call({"normalized_shape": [4]}, input=(3, 4), other=(4,)),
        call({"normalized_shape": [4]}, input=(3, 4), other=(3, 4), weight=(3,)),
        call({"normalized_shape": [4]}, input=(3, 4), other=(3, 4), dtypes=("float32", "float16")),
    )


def normalize_samples() -> Iterator[Sample]:
    calls = [call(input=(4, 37)), call({"dim": 0}, input=(9, 5)), call({"dim": -1, "p": 1.0}, input=(3, 5, 7))]
    yield from standard_samples(calls, FLOATS, sized=lambda n: call(input=(3, n)))
    for dim in (0, 1, 2, -1, -2, -3):
        yield from variations("attributes", [call({"dim": dim}, input=(2, 3, 5))], dtypes=("float32", "float16"))
    orders = [call({"p": p}, input=(4, 65)) for p in (0.0, 1.0, 3.0, 0.5, float("inf"))]
    yield from variations("attributes", orders, dtypes=(*MAIN_FLOATS, "float64"))
    small = [filled(call({"eps": eps}, input=(4, 65)), normal(0.0, 1e-3)) for eps in (1e-12, 1e-2, 0.5)]
    zeros = filled(call(input=(3, 33)), {"fill": "zeros"})
    yield from variations("epsilon", [*small, zeros], dtypes=MAIN_FLOATS)
    large = filled(call(input=(3, 65)), normal(1500.0, 300.0))  # squares beyond float16
    yield from variations(
        "long", [large, call(input=(2, 65536)), call({"dim": 0}, input=(4097, 3))], dtypes=MAIN_FLOATS
    )
    middle, many = call({"dim": 1}, input=(2, 1025, 3)), call(input=MILLION)
    yield from variations("long", [middle, many], dtypes=("float32",))
    yield from variations("empty", [call(input=(0, 3)), call(input=(3, 0))])
    yield from error_samples(call({"dim": 2}, input=(3, 4)), call(input=(3,)), call(input=(3, 4), dtypes=("int32",)))


def rms_norm_samples() -> Iterator[Sample]:
    def norm(rows: Sequence[int], *shape: int, **attributes: Any) -> Call:
        return call({"normalized_shape": list(shape), **attributes}, input=(*rows, *shape), weight=shape)

    yield from _rms_samples(norm)
    tiny = [filled(norm((4,), 65), normal(0.0, std)) for std in (1e-3, 3e-4)]
    yield from variations("epsilon", tiny, dtypes=MAIN_FLOATS)  # with the default eps
    yield from error_samples(
        call({"normalized_shape": [5]}, input=(3, 4)),
        call({"normalized_shape": [4]}, input=(3, 4), weight=(3,)),
        call({"normalized_shape": []}, input=(3, 4)),
    )


def _rms_samples(norm: Callable[..., Call]) -> Iterator[Sample]:
    """Yield the case sets that rms_norm and add_rms_norm share; `whole` builds their calls."""
    calls = [norm((4,), 37), norm((3,), 5, 7), norm((2, 3), 16, eps=1e-6)]
    yield from standard_samples(calls, FLOATS, sized=lambda n: norm((3,), n), special=False)
    for half in MAIN_FLOATS[1:]:
        halves = [half] * (len(calls[0]["shapes"]) - 1)
        yield from variations("dtypes", [{**calls[0], "dtypes": [*halves, "float32"]}])
    yield from variations("attributes", [without(calls[0], "weight"), without(calls[1], "weight")], dtypes=MAIN_FLOATS)
    yield from variations("attributes", [norm((), 3, 5), norm((2,), 3, 1, 5), norm((4, 3), 1)])
    yield from of_rows(norm, has_mean=False)
    yield from variations("empty", [norm((0,), 4), norm((2, 0), 3)])
    yield from of_one_element(norm((1,), 1), dtypes=("float32",))
