"""The calls by which sums, products and norms over dimensions are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from optest.operators.samples import (
    LARGE_SIZE,
    MAIN_FLOATS,
    MILLION,
    call,
    in_every_dtype,
    integer_exact,
    of_a_million,
    refused,
    standard,
    variations,
    with_further_layouts,
    with_special_values,
    zero_mean,
)
from optest.operators.variants import BOOL, FLOATS, NUMBERS
from optest.spec import Sample, Tier, dtype

__all__ = [
    "DIMS_OF_THREE",
    "cumsum_samples",
    "data",
    "dot_samples",
    "every_dim",
    "logsumexp_samples",
    "many_rows",
    "mean_samples",
    "norm_samples",
    "prod_samples",
    "sum_samples",
    "var_samples",
]

_SEVERAL = ([0, 1], [-1, 0], [2, 1], [0, 1, 2])
DIMS_OF_THREE = (0, 1, -1, -2, -3, [0, 1], [-1, 0], [2, 1], [0, 1, 2], None)


def every_dim(**attributes: Any) -> Iterator[dict[str, Any]]:
    """Each dimension from either end, several in either order, all, with and without keepdim."""
    for dim in DIMS_OF_THREE:
        for keepdim in (False, True):
            yield call({**attributes, "dim": dim, "keepdim": keepdim}, input=(2, 3, 5))


def data(
    rows: Sequence[Any], attributes: Mapping[str, Any] | None = None, *, dtype: str | None = None
) -> dict[str, Any]:
    """A call with the values of ``input`` written down, a matrix or a vector."""
    shape = (len(rows), len(rows[0])) if isinstance(rows[0], list) else (len(rows),)
    fill = {"fill": "data", "values": rows}
    return call(attributes, dtypes=(dtype,) if dtype else (), generator=fill, input=shape)


def written(attributes: Mapping[str, Any], *shape: int, dtype: str | None = None) -> dict[str, Any]:
    """A call with nothing, or with 1.5 everywhere, written down: NaN or infinity may be all that comes out."""
    values: Any = 1.5
    for size in reversed(shape):
        values = [values] * size
    fill = {"fill": "data", "values": values}
    return call(attributes, dtypes=(dtype,) if dtype else (), generator=fill, input=shape)


def _sized(attributes: Mapping[str, Any], rows: int = 3) -> Callable[[int], dict[str, Any]]:
    """A call for a length of the reduced dimension."""

    def of(size: int) -> dict[str, Any]:
        return call(attributes, input=(rows, size)) if size > 1 else written(attributes, rows, size)

    return of


def _offset(mean: float, std: float) -> dict[str, Any]:
    return {"fill": "randn", "mean": mean, "std": std}


def _rows_with_specials() -> list[list[Any]]:
    """NaN first and last, infinities alone and opposed, signed zeros, a row of plain numbers."""
    return [
        ["nan", 1.0, 2.0, 3.0],
        [1.0, 2.0, 3.0, "nan"],
        ["inf", 1.0, -2.0, 3.0],
        [1.0, "-inf", 2.0, 3.0],
        ["inf", 1.0, 2.0, "-inf"],
        ["inf", "inf", "inf", "inf"],
        ["-inf", "-inf", "-inf", "-inf"],
        [-0.0, -0.0, -0.0, -0.0],
        [0.5, -2.0, 4.0, 1.5],
    ]


def _specials(attributes: Mapping[str, Any]) -> Iterator[Sample]:
    yield from variations("special", [data(_rows_with_specials(), {**attributes, "dim": 1})], dtypes=MAIN_FLOATS)
    columns = [list(column) for column in zip(*_rows_with_specials(), strict=True)]
    yield from variations("special", [data(columns, {**attributes, "dim": 0})], dtypes=("float32",))
    sprinkled = [call({**attributes, "dim": 1}, input=(16, 37)), call({**attributes, "dim": 0}, input=(9, 35))]
    yield from with_special_values(sprinkled)


def _long(attributes: Mapping[str, Any], *, generator: Any = None) -> Iterator[Sample]:
    """Rows of which every length is beyond a tile, a warp, a thread block; the longest down a column in full checks."""
    rows = call({**attributes, "dim": -1}, generator=generator, input=(2, 65536))
    columns = call({**attributes, "dim": 0}, generator=generator, input=(4097, 3))
    yield from variations("long", [rows], dtypes=MAIN_FLOATS)
    yield from variations("long", [columns], dtypes=("float32", "float16"))
    middle = call({**attributes, "dim": 1}, generator=generator, input=(2, 1025, 3))
    yield from variations("long", [middle], dtypes=("float32",))
    yield from many_rows(attributes, generator=generator)
    longest = call({**attributes, "dim": 0}, generator=generator, input=(65537, 3))
    yield from variations("long", [longest], dtypes=("float32",), tier=Tier.FULL)


def many_rows(attributes: Mapping[str, Any], *, generator: Any = None) -> Iterator[Sample]:
    """More results than 16 bits count: a kernel with a block for each row loses those beyond its grid."""
    rows = call({**attributes, "dim": 1}, generator=generator, input=(LARGE_SIZE, 3))
    yield from variations("long", [rows], dtypes=("float32",))


def _all_of_many() -> Iterator[Sample]:
    """One result of a vector of one sign: a kernel of its own in many libraries, and partial sums do not cancel."""
    positive = {"fill": "uniform", "low": 1.0, "high": 1.7}
    yield from variations("long", [call(generator=positive, input=(4099,))], dtypes=MAIN_FLOATS)


def _of_nothing(attributes: Mapping[str, Any] | None = None) -> Iterator[Sample]:
    """Rows of no element have a result each; no rows have none; one element; a scalar."""
    stated = dict(attributes or {})
    calls = [
        written({**stated, "dim": 1}, 3, 0),
        written({**stated, "dim": 0}, 3, 0),
        written(stated, 0),
        written({**stated, "dim": [0, 1], "keepdim": True}, 2, 0, 3),
        written({**stated, "dim": 1}, 5, 1),
        written(stated),
        written({**stated, "dim": -1, "keepdim": True}),
    ]
    yield from variations("empty", calls)


_REFUSED = [call({"dim": 2}, input=(3, 4)), call({"dim": [0, 0]}, input=(3, 4)), call({"dim": -3}, input=(3, 4))]
_TWO_BY_ROWS = call({"dim": [1, 2]}, input=(2, 3, 37))
"""Two dimensions of which the inner one is no multiple of a vector."""
_ORDINARY = [
    call({"dim": 1}, input=(4, 37)),
    call(input=(3, 5, 7)),
    call({"dim": [0, 2], "keepdim": True}, input=(3, 5, 7)),
    call({"dim": [1, -1]}, input=(2, 3, 2, 5, 3)),
]


def _into_other_dtypes() -> Iterator[Sample]:
    for source, target in (
        ("int8", "int8"),
        ("int32", "int8"),
        ("int32", "float32"),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float32", "float64"),
        ("bool", "int32"),
        ("uint8", "int16"),
    ):
        each = call({"dim": 1, "dtype": target}, dtypes=(source,), input=(3, 65))
        yield from variations("attributes", [each])
    whole = call({"dim": 1, "dtype": "int32"}, dtypes=("float32",), input=(3, 65))
    yield from variations("attributes", [whole], tier=Tier.FULL)  # many a backend takes no integer here


@with_further_layouts
def sum_samples() -> Iterator[Sample]:
    variants = (*NUMBERS, *BOOL)
    yield from standard(_ORDINARY, variants, sized=_sized({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32", "int32"))
    yield from _specials({})
    yield from _long({})
    yield from _all_of_many()
    yield from integer_exact([*_ORDINARY, call({"dim": 1}, input=(3, 1025)), call(input=(4099,))])
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    for name, value in (("int8", 127), ("uint8", 255), ("int16", -(2**15)), ("int32", 2**31 - 1)):
        full = {"fill": "full", "value": value}  # beyond twice their bits
        yield from variations("long", [call({"dim": 1}, generator=full, input=(2, 65_541))], dtypes=(name,))
    yield from variations("long", [call({"dim": 1}, generator="ones", input=(2, 65_541))], dtypes=("bool",))
    tiny = [[1.5 * 2.0**-126, -1.25 * 2.0**-126], [2.0**-126, -(2.0**-130)]]  # their sums are subnormal
    yield from variations("special", [data(tiny, {"dim": 1})], dtypes=("float32", "bfloat16"))
    yield from variations("attributes", [call({"dim": 0, "keepdim": True}, input=(5,)), call({"dim": 1}, input=(1, 5))])
    yield from _into_other_dtypes()
    yield from _of_nothing()
    yield from refused(_REFUSED)
    yield from integer_exact([_TWO_BY_ROWS])
    yield from of_a_million(call({"dim": 1}, input=MILLION), call({"dim": 0}, input=MILLION[::-1]), dtype="float32")


@with_further_layouts
def mean_samples() -> Iterator[Sample]:
    yield from standard(_ORDINARY, FLOATS, sized=_sized({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32",))
    yield from _specials({})
    yield from _long({})
    yield from _all_of_many()
    # 65,504 is float16's largest: a sum or a count that is kept in it overflows, the mean does not.
    yield from variations("long", [call(generator=_offset(3.0, 1.0), input=(70_001,))], dtypes=("float16",))
    yield from variations("long", [call({"dim": 1}, generator=_offset(900.0, 100.0), input=(3, 257))], dtypes=MAIN_FLOATS)
    yield from integer_exact([*_ORDINARY, call({"dim": 1}, input=(3, 1025)), call(input=(4099,))])
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from _of_nothing()
    yield from refused([*_REFUSED, call(dtypes=("int32",), input=(3, 4))])
    yield from integer_exact([_TWO_BY_ROWS])


@with_further_layouts
def prod_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(4, 37)),
        call(input=(3, 5, 7)),
        call({"dim": 0, "keepdim": True}, input=(9, 4)),
        call({"dim": 2}, input=(2, 3, 5, 2, 2)),
    ]
    variants = (*NUMBERS, *BOOL)
    yield from standard(calls, variants, sized=_sized({"dim": 1}), special=False)
    for dim in (0, 1, -1, -2, -3, None):
        for keepdim in (False, True):
            each = call({"dim": dim, "keepdim": keepdim}, input=(2, 3, 5))
            yield from variations("attributes", [each], dtypes=("float32", "int32"))
    yield from _into_other_dtypes()
    rows = [
        *_rows_with_specials()[:4],
        [0.0, 1.0, "inf", 2.0],
        [0.0, 2.0, "nan", 1.0],
        [-0.0, 1.0, 2.0, 3.0],
        [-1.0, -1.0, -1.0, 1.0],
        [0.5, -2.0, 4.0, 1.5],
    ]
    yield from variations("special", [data(rows, {"dim": 1})], dtypes=MAIN_FLOATS)
    powers = [[1 << 31, 2, 1], [1 << 32, 1 << 31, 1], [1 << 32, 1 << 32, 3], [-(1 << 31), 1 << 32, 3], [3, 5, 7]]
    powers.append([(1 << 31) + 1, (1 << 29) - 1, 3])  # what float64 rounds
    yield from variations("special", [data(powers, {"dim": 1}, dtype="int64")])
    yield from variations("special", [data([[100, 100, 100], [-128, 2, 127]], {"dim": 1}, dtype="int8")])
    yield from variations("special", [data([[255, 255, 255, 255], [255, 0, 1, 2]], {"dim": 1}, dtype="uint8")])
    yield from variations("special", [data([[1, 1, 1], [1, 0, 1]], {"dim": 1}, dtype="bool")])
    for name, value in (("int16", 300), ("int32", 70_001), ("float32", -3.0)):  # of many random integers most give 0
        yield from variations("special", [data([[value, 3, 7], [value, -1, 1]], {"dim": 1}, dtype=name)])
    yield from variations("special", [data([[1, 1], [1, 0]], {}, dtype="bool"), data([[1, 1]], {}, dtype="bool")])
    near_one = {"fill": "uniform", "low": 0.97, "high": 1.03}
    yield from variations("long", [call({"dim": 0}, generator=near_one, input=(4097, 3))], dtypes=MAIN_FLOATS)
    longer = [call({"dim": -1}, generator=near_one, input=(3, 4097)), call({"dim": 1}, input=(2, 1025, 3))]
    yield from variations("long", [{**each, "generator": near_one} for each in longer], dtypes=("float32",))
    nearer = {"fill": "uniform", "low": 0.995, "high": 1.005}
    yield from variations("long", [call({"dim": -1}, generator=nearer, input=(2, 65536))], dtypes=("float32",))
    yield from many_rows({})
    several = [call({"dim": dim, "keepdim": keepdim}, input=(2, 3, 5)) for dim in _SEVERAL for keepdim in (False, True)]
    yield from variations("attributes", several, dtypes=("float32", "int32"), tier=Tier.FULL)  # not in torch's words
    yield from _of_nothing_by_one_dim()
    yield from variations("empty", [call({"dim": 1}, input=(3, 0))], dtypes=("int32",))
    yield from refused([call({"dim": 2}, input=(3, 4)), call({"dim": -3}, input=(3, 4))])


def _of_nothing_by_one_dim() -> Iterator[Sample]:
    calls = [({"dim": 1}, (3, 0)), ({"dim": 0}, (3, 0)), ({}, (0,)), ({"dim": 1}, (5, 1)), ({}, ()), ({"dim": -1}, ())]
    yield from variations("empty", [written(attributes, *shape) for attributes, shape in calls])


@with_further_layouts
def cumsum_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(4, 37)),
        call({"dim": 0}, input=(33, 5)),
        call({"dim": 1}, input=(3, 5, 7)),
        call({"dim": 2}, input=(2, 3, 5, 2, 2)),
    ]
    variants = (*NUMBERS, *BOOL)
    yield from standard(calls, variants, sized=_sized({"dim": 1}))
    dims = [call({"dim": dim}, input=(2, 3, 5)) for dim in (0, 1, 2, -1, -2, -3)]
    yield from variations("attributes", [*dims, call({"dim": 0}, input=()), call({"dim": -1}, input=())])
    yield from _ways_of_onnx()
    yield from _into_other_dtypes()
    for name in ("int8", "int16", "int32", "uint8", "int64"):  # beyond what they hold, and of int64 it wraps
        full = {"fill": "full", "value": dtype(name).max_int}
        yield from variations("long", [call({"dim": 1}, generator=full, input=(3, 5))], dtypes=(name,))
    yield from variations("long", [call({"dim": 1}, generator="ones", input=(2, 65_541))], dtypes=("bool",))
    yield from _specials({})
    yield from _long({})
    yield from variations("long", [call({"dim": -1}, input=(65536,))], dtypes=("float32",))
    yield from integer_exact([*calls, call({"dim": 1}, input=(3, 1025))])
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from variations("empty", [call({"dim": 1}, input=(3, 0)), call({"dim": 0}, input=(3, 0))])
    yield from refused([call({"dim": 2}, input=(3, 4)), call({"dim": -3}, input=(3, 4))])


def _ways_of_onnx() -> Iterator[Sample]:
    """Full checks alone: who makes torch's operator has no such attributes."""
    shapes = ((0, (33, 5)), (1, (3, 37)), (-1, (2, 3, 5)), (1, (2, 1025, 3)), (0, ()), (1, (3, 0)))
    for exclusive, reverse in ((True, False), (False, True), (True, True)):
        ways = {"exclusive": exclusive, "reverse": reverse}
        calls = [call({"dim": dim, **ways}, input=shape) for dim, shape in shapes]
        yield from variations("attributes", calls, dtypes=(*MAIN_FLOATS, "int32"), tier=Tier.FULL)
        specials = data(_rows_with_specials(), {"dim": 1, **ways})
        yield from variations("attributes", [specials], dtypes=("float32",), tier=Tier.FULL)


@with_further_layouts
def dot_samples() -> Iterator[Sample]:
    def pair(n: int, *, generator: Any = None) -> dict[str, Any]:
        return call(generator=generator, input=(n,), tensor=(n,))

    variants = NUMBERS
    yield from standard([pair(37), pair(129)], variants, sized=pair, special=False)
    yield from in_every_dtype([pair(1025)], variants)
    written = {"fill": "data", "values": ["nan", 1.0, 2.0, 3.0]}
    zeros = {"fill": "zeros"}
    infinite = {"fill": "data", "values": ["inf", "-inf", 1.0, 2.0]}
    signs = {"fill": "data", "values": [1.0, -1.0, 1.0, 2.0]}
    for left, right in ((written, zeros), (infinite, zeros), (infinite, signs), (signs, infinite), (zeros, signs)):
        yield from variations("special", [pair(4, generator={"input": left, "tensor": right})], dtypes=MAIN_FLOATS)
    yield from variations("long", [pair(4097), pair(65536)], dtypes=MAIN_FLOATS)
    yield from variations("long", [pair(1 << 20)], dtypes=("float32",), tier=Tier.FULL)
    yield from integer_exact([pair(37), pair(1025), pair(4097)])
    yield from zero_mean([pair(4097)])
    yield from variations("empty", [pair(0), pair(1)], dtypes=("float32", "int32"))
    yield from refused(
        [
            call(input=(3,), tensor=(4,)),
            call(input=(3,), tensor=(1,)),
            call(input=(2, 3), tensor=(2, 3)),
            call(dtypes=("float32", "float64"), input=(3,), tensor=(3,)),
        ]
    )


@with_further_layouts
def var_samples() -> Iterator[Sample]:
    yield from standard(_ORDINARY, FLOATS, sized=_sized({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32",))
    for correction in (0.0, 1.0, 2.0, 0.5, 4.0):
        stated = {"dim": 1, "correction": correction}
        yield from variations("attributes", [call(stated, input=(5, 7))], dtypes=MAIN_FLOATS)
    biased = [call({"correction": 0.0}, input=(3, 5, 7)), call({"dim": [0, 2], "correction": 0.0}, input=(3, 5, 7))]
    yield from variations("attributes", biased, dtypes=("float32",))
    # One element more than the correction, as many, fewer: a number, infinity or NaN, NaN.
    for width in (1, 2, 3):
        yield from variations(
            "attributes", [data([[1.0, 4.0, 2.5][:width]], {"dim": 1, "correction": c}) for c in (0.0, 2.0, 3.0)]
        )
    # E[x²] − E[x]² loses everything where the mean is large beside the deviation.
    for mean, std, dtypes in ((1000.0, 1.0, ("float32", "float64")), (-300.0, 2.0, MAIN_FLOATS), (30.0, 0.5, MAIN_FLOATS)):
        fill = _offset(mean, std)
        calls = [call({"dim": 1}, generator=fill, input=(4, 257)), call({"dim": 0}, generator=fill, input=(257, 3))]
        yield from variations("mean beside std", calls, dtypes=dtypes)
    yield from variations(
        "mean beside std", [call({"dim": 1}, generator={"fill": "full", "value": 7.3}, input=(3, 65))]
    )
    yield from _specials({})
    yield from _long({})
    yield from _all_of_many()
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from _of_nothing()
    yield from refused([*_REFUSED, call(dtypes=("int32",), input=(3, 4))])
    for fill in (_offset(1000.0, 1.0), _offset(-300.0, 2.0)):
        rows = call({"dim": 1, "correction": 0.0}, generator=fill, input=(4, 257))
        yield from variations("mean beside std", [rows], dtypes=("float32",))
    wide = call({"dim": 1}, generator=_offset(0.0, 200.0), input=(3, 129))  # 40,000, of 129 squares
    yield from variations("long", [wide], dtypes=("float16",))


@with_further_layouts
def norm_samples() -> Iterator[Sample]:
    yield from standard(_ORDINARY, FLOATS, sized=_sized({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32",))
    orders = (0.0, 1.0, 2.0, 3.0, 0.5, 2.5, -1.0, -2.0, float("inf"), float("-inf"))
    away = {"fill": "uniform", "low": 0.25, "high": 4.0}
    for p in orders:
        yield from variations("attributes", [call({"p": p, "dim": 1}, input=(4, 65))], dtypes=(*MAIN_FLOATS, "float64"))
        yield from variations("attributes", [call({"p": p, "dim": [2, 0], "keepdim": True}, input=(3, 5, 7))])
        yield from variations("attributes", [call({"p": p}, generator=away, input=(33,))])
        zeros = [[0.0, -0.0, 0.0, 0.0], [0.0, 1.0, -2.0, 0.0], [3.0, -4.0, 0.0, 12.0]]
        yield from variations("special", [data(zeros, {"p": p, "dim": 1})])
        yield from variations("special", [data(_rows_with_specials(), {"p": p, "dim": 1})])
    yield from variations("special", [data(_rows_with_specials(), {"p": 2.0, "dim": 1})], dtypes=("float16",))
    for p in (0.0, 1.0, 2.0, 3.0):
        yield from _of_nothing({"p": p})
    for p in (1.0, 2.0):
        yield from variations("attributes", [call({"p": p}, input=(37,)), call({"p": p}, input=(129,))])
    # Squares of these overflow float32, their root does not: a norm has to be scaled.
    vast = {"fill": "uniform", "low": -1.0e25, "high": 1.0e25}
    yield from variations("special", [call({"p": 2.0}, generator=vast, input=(37,))], dtypes=("float32",))
    # 70,000 is beyond float16: squares of 300 overflow there, their root does not.
    yield from variations("long", [call({"dim": 1}, generator=_offset(300.0, 30.0), input=(3, 129))], dtypes=MAIN_FLOATS)
    yield from _long({})
    yield from _all_of_many()
    yield from _long({"p": 1.0})
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from refused(
        [
            *_REFUSED,
            call({"p": float("inf")}, input=(0,)),
            call({"p": float("inf"), "dim": 1}, input=(3, 0)),
            call({"p": -1.0}, input=(0,)),
            call(dtypes=("int32",), input=(3, 4)),
        ]
    )
    small = data([[1e-4, -1e-4, 7e-5], [6.2e-5, 6.5e-5, 0.0]], {"p": 2.0, "dim": 1})  # whose squares float16 has not
    yield from variations("special", [small], dtypes=("float16",))


@with_further_layouts
def logsumexp_samples() -> Iterator[Sample]:
    yield from standard(_ORDINARY, FLOATS, sized=_sized({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32",))
    for low, high in ((-110.0, -95.0), (-1.0, 1.0), (-200.0, 200.0), (900.0, 1000.0)):
        fill = {"fill": "uniform", "low": low, "high": high}
        calls = [call({"dim": 1}, generator=fill, input=(4, 65)), call({"dim": 0}, generator=fill, input=(65, 3))]
        yield from variations("special", calls, dtypes=MAIN_FLOATS)
    rising = {"fill": "arange", "start": -200.0, "step": 0.5}
    yield from variations("long", [call({"dim": 1}, generator=rising, input=(1, 801))], dtypes=MAIN_FLOATS)
    cancelling = [[-0.6931472, -0.6931472], [-0.6931472, -0.6931471], [-1.0986123, -1.0986123], [0.0, -104.0]]
    yield from variations("special", [data(cancelling, {"dim": 1})])
    masked = [["-inf", 1.0, "-inf"], ["-inf", "-inf", -3.0], ["inf", "-inf", 0.0], ["nan", "-inf", "inf"]]
    yield from variations("special", [data(masked, {"dim": 1})], dtypes=MAIN_FLOATS)
    yield from _specials({})
    yield from _long({})
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from _of_nothing()
    yield from refused(_REFUSED)
