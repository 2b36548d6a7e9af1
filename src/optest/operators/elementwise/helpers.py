"""What elementwise operators share: inference of two operands, and calls that each is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from optest.operators.calls import MAIN_FLOATS, MILLION, call, reshaped, table
from optest.operators.samples import of_a_million, refused, standard, variations
from optest.operators.shapes import Attributes, Outputs, Specs, broadcast_shapes, dense, given, promote_tensors
from optest.spec import DType, Kind, Sample, TensorSpec, UnfitArguments, dtype

_LONG = 1500
"""More than a block of a thousand, with so much behind it that some of it is not 0."""
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
_WIDE_SCALARS = (("float64", 0.1), ("int64", 2**40 + 1))
"""Scalars reach kernels as arguments, often in a narrower type: neither is the same in 32 bits."""
_SCALARS_OF_ANOTHER_DTYPE = (
    ("float32", "float64"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("int32", "int64"),
)
"""They do not widen a tensor that has dimensions."""
_PAIRED = (0.0, -0.0, 1.0, -0.5, "inf", "-inf", "nan")
"""Drawn special values seldom meet: 0 times infinity, infinity less infinity."""
_ENDS = ("nan", "inf", "-inf", -0.0, "nan")
_WHOLE = (
    ("uint8", (0, 1, 127, 128, 200, 255)),
    ("int16", (-300, 0, 3, 300)),
    ("int32", (-70000, -300, 0, 3, 300, 70000)),
    ("int64", (-(2**33), -70000, 0, 3, 70000, 2**33)),
)
"""Domains keep random integers small, so that a narrower type would hold them; float32 holds all of these."""
_UNFIT: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (((3, 4), (3,)), ((2, 3), (3, 2)))
WHOLE = (-128, -127, -9, -8, -7, -2, -1, 0, 1, 2, 6, 7, 8, 9, 126, 127)
FEW = {"fill": "randint", "low": -1, "high": 2}
"""Values of which a third are equal, or 0: random floats never are, and a kernel that answers nothing would pass."""
Samples = Callable[[], Iterator[Sample]]


def infer_binary(specs: Specs, _attributes: Attributes) -> Outputs:
    """The common dtype of both."""
    return both(specs)[1]


def infer_number(specs: Specs, _attributes: Attributes) -> Outputs:
    """The common dtype of both, which should not be bool."""
    result, inferred = both(specs)
    refuse_bool(result, "the common dtype")
    return inferred


def infer_comparison(specs: Specs, _attributes: Attributes) -> Outputs:
    """bool, of operands that have a common dtype."""
    return (dense(dtype("bool"), both(specs)[1][0].shape),)


def both(specs: Specs) -> tuple[DType, Outputs]:
    left, right = given(specs, 0, "input"), given(specs, 1, "other")
    result = promote_tensors((left, right))
    return result, (dense(result, broadcast_shapes(left.shape, right.shape)),)


def refuse_bool(entry: DType, name: str) -> None:
    if entry.kind is Kind.BOOL:
        raise UnfitArguments(f"{name} is bool, but should be a number; use a logical operator, or cast")


def is_integer(spec: TensorSpec | None) -> bool:
    return spec is not None and not spec.dtype.is_inexact


def unary(
    variants: Iterable[Sequence[str]], attributes: dict[str, Any] | None = None, *, generator: Any = None
) -> Iterator[Sample]:
    """Every dtype, layout, size and special value of an operator with one input."""
    variants = [tuple(each) for each in variants]

    def of(*shape: int) -> dict[str, Any]:
        return call(attributes, input=shape, generator=generator)

    calls = [of(*shape) for shape in _SHAPES]
    yield from standard(calls, variants, sized=of)
    yield from variations("sizes", [of(_LONG), of(0, 3), of(37, 1)])
    for name, whole in _WHOLE:
        if (name,) in variants:
            yield from variations("dtypes", [table(whole, attributes)], dtypes=(name,))
    if ("float32",) in variants:
        tail = table([*_ENDS, *(0.5 + k / 8 for k in range(9)), *_ENDS], attributes)
        yield from variations("special", [tail], dtypes=("float32",))  # vectors and what is left of them
    else:
        yield from variations("special", [{**calls[0], "generator": "special"}], dtypes=[each[0] for each in variants])


def binary(variants: Iterable[Sequence[str]], *, second: str = "other", generator: Any = None) -> Iterator[Sample]:
    """The same with two inputs, which also broadcast, and shapes that do not."""
    variants = [tuple(each) for each in variants]

    def pair(left: Sequence[int], right: Sequence[int]) -> dict[str, Any]:
        shapes: dict[str, Any] = {"input": left, second: right}
        return call(generator=generator, **shapes)

    calls = [pair(shape, shape) for shape in _SHAPES]
    yield from standard(calls, variants, sized=lambda n: pair((n,), (n,)))
    yield from variations("sizes", [pair((_LONG,), (_LONG,)), pair((37, 1), (37, 1))])
    if ("bool",) in variants:
        yield from of_a_million(pair(MILLION, MILLION), dtype="bool")
    names = [name for name in ("float32", "int32") if (name,) in variants]
    yield from variations("broadcast", [pair(*shapes) for shapes in _BROADCAST], dtypes=names)
    others = [each[0] for each in variants if len(each) == 1 and each[0] not in names]
    yield from variations("broadcast", [pair(*_BROADCAST[0])], dtypes=others)
    # Five dimensions, a bias of channels that are as many as columns, and three dimensions that are not dense.
    channels = pair((2, 5, 3, 5), (5, 1, 1))
    swapped = {"shape": [3, 5, 7], "strides": [35, 1, 5]}
    yield from variations("broadcast", [pair((2, 1, 3, 1, 2), (4, 1, 2, 1)), channels], dtypes=names[:1])
    deep = pair((3, 5, 7), (3, 5, 7))
    laid = [reshaped(deep, **each) for each in ({"input": swapped}, {second: swapped})]
    yield from variations("layouts", laid, dtypes=names[:1])
    if ("int32", "float32") in variants:
        for value in (1.5, -1.5):  # which widen integers
            fills = {"input": {"fill": "randint", "low": -3, "high": 4}, second: {"fill": "full", "value": value}}
            fractional = {**pair((3, 5), ()), "dtypes": ["int32", "float32"], "generator": fills}
            yield from variations("broadcast", [fractional])
    for narrow, wider in _SCALARS_OF_ANOTHER_DTYPE:
        if (narrow, wider) in variants:
            two: dict[str, Any] = {"fill": "full", "value": 2}  # in either dtype the same
            scalars = [
                {**pair((3, 5), ()), "dtypes": [narrow, wider], "generator": {second: two}},
                {**pair((), (3, 5)), "dtypes": [wider, narrow], "generator": {"input": two}},
            ]
            yield from variations("broadcast", scalars)
    for name, value in _WIDE_SCALARS:
        if (name,) in variants:
            wide = {"fill": "full", "value": value}
            alike = [{**pair(left, right), "generator": wide} for left, right in (((), (3,)), ((3,), ()))]
            yield from variations("broadcast", alike, dtypes=(name,))
    floats = [name for name in (*MAIN_FLOATS, "float64") if (name,) in variants]
    if floats:
        yield from variations("special", [grid(_PAIRED, _PAIRED, second=second)], dtypes=floats)
    yield from refused(*[pair(*shapes) for shapes in _UNFIT])


def grid(
    rows: Sequence[Any], columns: Sequence[Any], attributes: dict[str, Any] | None = None, *, second: str = "other"
) -> dict[str, Any]:
    """A call of every pair of the values, by broadcasting."""
    shapes: dict[str, Any] = {"input": (len(rows), 1), second: (len(columns),)}
    fills = {
        "input": {"fill": "data", "values": [[value] for value in rows]},
        second: {"fill": "data", "values": list(columns)},
    }
    return call(attributes, generator=fills, **shapes)


def pair(attributes: dict[str, Any] | None = None, **stated: Any) -> dict[str, Any]:
    return call(attributes, input=(4, 37), other=(4, 37), **stated)
