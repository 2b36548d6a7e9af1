"""Shared by the elementwise operators: inference of two operands, and case sets of one and of two inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from optest.operators.calls import MAIN_FLOATS, MILLION, Call, call, reshaped, with_values
from optest.operators.samples import error_samples, million_element_samples, standard_samples, variations
from optest.operators.shapes import Attributes, Outputs, Specs, broadcast_shapes, dense, promote_tensors, require_spec
from optest.spec import DType, Kind, Sample, TensorSpec, UnfitArguments, dtype

# More than a block of 1,024 threads, and so much more that drawn values of the second block are not all 0.
_LONG = 1500
_SHAPES: tuple[tuple[int, ...], ...] = ((4, 37), (3, 5, 7), (), (2, 1, 3, 2, 2, 3))
_BROADCAST: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((4, 1), (37,)),
    ((37,), (4, 37)),
    ((4, 37), (4, 1)),
    ((3, 1, 5), (7, 1)),
    ((2, 3, 4, 5), (3, 1, 5)),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((), (4, 37)),
    ((4, 37), ()),
    ((1, 1), (129,)),
    ((4, 5, 6), (4, 1, 6)),
    ((4, 1, 6), (4, 5, 1)),
    ((1,), ()),
    ((0, 3), (1, 3)),
)
# Kernels receive scalars as arguments, often in a narrower type: float32 and int32 hold neither of these.
_WIDE_SCALARS = (("float64", 0.1), ("int64", 2**40 + 1))
# A 0-d operand of the wider dtype does not widen a tensor that has dimensions.
_SCALARS_OF_ANOTHER_DTYPE = (
    ("float32", "float64"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("int32", "int64"),
)
# Paired with one another, because random special values seldom meet: 0 times infinity, infinity less infinity.
_PAIRED = (0.0, -0.0, 1.0, -0.5, "inf", "-inf", "nan")
_SPECIAL_ENDS = ("nan", "inf", "-inf", -0.0, "nan")
# Domains keep random integers small, so that a narrower type would hold them; float32 holds all of these.
_INTEGERS_BEYOND_NARROWER_TYPES = (
    ("uint8", (0, 1, 127, 128, 200, 255)),
    ("int16", (-300, 0, 3, 300)),
    ("int32", (-70000, -300, 0, 3, 300, 70000)),
    ("int64", (-(2**33), -70000, 0, 3, 70000, 2**33)),
)
_UNFIT: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (((3, 4), (3,)), ((2, 3), (3, 2)))
SMALL_INTEGERS = (-128, -127, -9, -8, -7, -2, -1, 0, 1, 2, 6, 7, 8, 9, 126, 127)
# A third of these values are equal, a third 0: random floats never are, and a kernel that writes a constant would pass.
FEW_VALUES = {"fill": "randint", "low": -1, "high": 2}
Samples = Callable[[], Iterator[Sample]]


def infer_binary(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return an output of the common dtype and the broadcast shape of two operands."""
    return promote_operands(specs)[1]


def infer_number(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return an output of the common dtype and the broadcast shape of two operands; raise UnfitArguments for bool."""
    result, outputs = promote_operands(specs)
    refuse_bool(result, "the common dtype")
    return outputs


def infer_comparison(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return a bool output of the broadcast shape of two operands, which need a common dtype."""
    return (dense(dtype("bool"), promote_operands(specs)[1][0].shape),)


def promote_operands(specs: Specs) -> tuple[DType, Outputs]:
    """Return the common dtype of the first two inputs, and one output of it with their broadcast shape."""
    left, right = require_spec(specs, 0, "input"), require_spec(specs, 1, "other")
    result = promote_tensors((left, right))
    return result, (dense(result, broadcast_shapes(left.shape, right.shape)),)


def refuse_bool(entry: DType, name: str) -> None:
    """Raise UnfitArguments if the dtype of ``name`` is bool."""
    if entry.kind is Kind.BOOL:
        raise UnfitArguments(f"{name} is bool, expected a number; use a logical operator, or cast")


def is_integer(spec: TensorSpec | None) -> bool:
    """Return whether the tensor is given and is an integer or bool."""
    return spec is not None and not spec.dtype.is_inexact


def unary(
    variants: Iterable[Sequence[str]], attributes: dict[str, Any] | None = None, *, generator: Any = None
) -> Iterator[Sample]:
    """Yield samples of an operator with one input: every dtype, layout, size and special value."""
    variants = [tuple(variant) for variant in variants]

    def one_input(*shape: int) -> dict[str, Any]:
        return call(attributes, input=shape, generator=generator)

    calls = [one_input(*shape) for shape in _SHAPES]
    yield from standard_samples(calls, variants, sized=one_input)
    yield from variations("sizes", [one_input(_LONG), one_input(0, 3), one_input(37, 1)])
    for name, integers in _INTEGERS_BEYOND_NARROWER_TYPES:
        if (name,) in variants:
            yield from variations("dtypes", [with_values(integers, attributes)], dtypes=(name,))
    if ("float32",) in variants:
        # Special values in whole vectors and in the elements that remain behind them.
        tail = with_values([*_SPECIAL_ENDS, *(0.5 + k / 8 for k in range(9)), *_SPECIAL_ENDS], attributes)
        yield from variations("special", [tail], dtypes=("float32",))
    else:
        names = [variant[0] for variant in variants]
        yield from variations("special", [{**calls[0], "generator": "special"}], dtypes=names)


def binary(variants: Iterable[Sequence[str]], *, second: str = "other", generator: Any = None) -> Iterator[Sample]:
    """Yield samples of an operator with the inputs ``input`` and ``second``.

    Every dtype, layout, size and special value, shapes and scalars that broadcast, and shapes that do not.
    """
    variants = [tuple(variant) for variant in variants]

    def two_inputs(left: Sequence[int], right: Sequence[int]) -> dict[str, Any]:
        shapes: dict[str, Any] = {"input": left, second: right}
        return call(generator=generator, **shapes)

    calls = [two_inputs(shape, shape) for shape in _SHAPES]
    yield from standard_samples(calls, variants, sized=lambda n: two_inputs((n,), (n,)))
    yield from variations("sizes", [two_inputs((_LONG,), (_LONG,)), two_inputs((37, 1), (37, 1))])
    if ("bool",) in variants:
        yield from million_element_samples(two_inputs(MILLION, MILLION), dtype="bool")
    names = [name for name in ("float32", "int32") if (name,) in variants]
    yield from variations("broadcast", [two_inputs(*shapes) for shapes in _BROADCAST], dtypes=names)
    singles = [variant[0] for variant in variants if len(variant) == 1 and variant[0] not in names]
    yield from variations("broadcast", [two_inputs(*_BROADCAST[0])], dtypes=singles)
    # Five dimensions, a bias of channels that are as many as columns, and three dimensions that are not dense.
    channels = two_inputs((2, 5, 3, 5), (5, 1, 1))
    swapped = {"shape": [3, 5, 7], "strides": [35, 1, 5]}
    yield from variations("broadcast", [two_inputs((2, 1, 3, 1, 2), (4, 1, 2, 1)), channels], dtypes=names[:1])
    deep = two_inputs((3, 5, 7), (3, 5, 7))
    laid = [reshaped(deep, **layout) for layout in ({"input": swapped}, {second: swapped})]
    yield from variations("layouts", laid, dtypes=names[:1])
    yield from _scalars(variants, two_inputs, second)
    floats = [name for name in (*MAIN_FLOATS, "float64") if (name,) in variants]
    if floats:
        yield from variations("special", [grid(_PAIRED, _PAIRED, second=second)], dtypes=floats)
    yield from error_samples(*[two_inputs(*shapes) for shapes in _UNFIT])


def _scalars(
    variants: Sequence[Sequence[str]], two_inputs: Callable[[Sequence[int], Sequence[int]], Call], second: str
) -> Iterator[Sample]:
    """Yield samples of a 0-d operand of another dtype, or with a value that a narrower type does not hold."""
    if ("int32", "float32") in variants:
        # A float scalar widens integers.
        for value in (1.5, -1.5):
            fills = {"input": {"fill": "randint", "low": -3, "high": 4}, second: {"fill": "full", "value": value}}
            fractional = {**two_inputs((3, 5), ()), "dtypes": ["int32", "float32"], "generator": fills}
            yield from variations("broadcast", [fractional])
    for narrow, wider in _SCALARS_OF_ANOTHER_DTYPE:
        if (narrow, wider) in variants:
            two: dict[str, Any] = {"fill": "full", "value": 2}  # exact in either dtype
            scalars = [
                {**two_inputs((3, 5), ()), "dtypes": [narrow, wider], "generator": {second: two}},
                {**two_inputs((), (3, 5)), "dtypes": [wider, narrow], "generator": {"input": two}},
            ]
            yield from variations("broadcast", scalars)
    for name, value in _WIDE_SCALARS:
        if (name,) in variants:
            wide = {"fill": "full", "value": value}
            alike = [{**two_inputs(left, right), "generator": wide} for left, right in (((), (3,)), ((3,), ()))]
            yield from variations("broadcast", alike, dtypes=(name,))


def grid(
    rows: Sequence[Any], columns: Sequence[Any], attributes: dict[str, Any] | None = None, *, second: str = "other"
) -> dict[str, Any]:
    """Return a call that pairs each value of ``rows`` with each of ``columns``, by broadcasting a column and a row."""
    shapes: dict[str, Any] = {"input": (len(rows), 1), second: (len(columns),)}
    fills = {
        "input": {"fill": "data", "values": [[value] for value in rows]},
        second: {"fill": "data", "values": list(columns)},
    }
    return call(attributes, generator=fills, **shapes)


def two_matrices(attributes: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """Return a call with the inputs ``input`` and ``other`` of shape 4x37; ``fields`` are dtypes and generator."""
    return call(attributes, input=(4, 37), other=(4, 37), **fields)
