"""The calls by which the operators that rearrange one tensor are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from optest.operators.samples import (
    LARGE_SIZE,
    MILLION,
    SIZES,
    Call,
    call,
    in_every_layout,
    in_layouts_at_once,
    of_a_million,
    of_every_size,
    of_one_element,
    refused,
    standard,
    variations,
    with_further_layouts,
)
from optest.operators.variants import EVERY
from optest.spec import Sample, Tier

__all__ = [
    "broadcast_to_samples",
    "clone_samples",
    "flip_samples",
    "like_samples",
    "moved",
    "permute_samples",
    "reshape_samples",
    "roll_samples",
    "tile_samples",
    "transpose_samples",
    "tril_samples",
    "triu_samples",
]

_SOME = ("float32", "int8")
"""A 4-byte and a 1-byte type: kernels move words, and tails come where bytes do not fill one."""
_SPECIAL = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2")


def moved(
    calls: Sequence[Call],
    sized: Callable[[int], Call],
    attributes: Iterable[Call],
    wrong: Iterable[Call],
    *,
    large: Iterable[Call] = (),
) -> Iterator[Sample]:
    """The case sets of one movement operator. The first call is laid out in every way, and asked in every dtype."""
    yield from standard(calls, EVERY)
    yield from of_every_size(sized, (*SIZES, LARGE_SIZE), dtypes=_SOME)
    mostly_special = {**calls[0], "generator": {"fill": "special", "rate": 0.9}}
    yield from variations("special", [mostly_special], dtypes=_SPECIAL)
    yield from variations("attributes", attributes, dtypes=("float32",))
    yield from refused(wrong)
    yield from variations("sizes", [sized(4099)], dtypes=("float16", "int64"))
    yield from of_a_million(*large, dtype="float32")
    yield from variations("sizes", [sized(4099)], dtypes=("float32", "int8"), tier=Tier.FULL)


@with_further_layouts
def clone_samples() -> Iterator[Sample]:
    yield from like_samples()
    ranks = [call(input=(2, 3, 2, 4, 3)), call(input=(2, 1, 3, 1, 2, 2)), call(input=(33, 65))]
    yield from variations("ordinary", ranks, dtypes=_SOME)
    ends = [0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]  # random integers have 63 bits
    yield from variations("special", [call(input=(7,), generator={"fill": "data", "values": ends})], dtypes=("uint64",))
    yield from in_every_layout([call(input=(2, 3, 9, 7), dtypes=("int8",))])
    repeated = {"shape": [3, 5, 17], "strides": [17, 0, 1]}
    deep = {"shape": [2, 3, 2, 4, 3], "strides": [1, 2, 24, 6, 48]}
    yield from variations("layouts", [call(input=repeated), call(input=deep)], dtypes=_SOME)


@with_further_layouts
def like_samples() -> Iterator[Sample]:
    """Of operators that give a tensor like their input, and have no attributes."""
    calls = [call(input=(3, 5, 17)), call(input=(2, 3, 9, 7)), call(input=(1, 7))]
    yield from moved(calls, lambda n: call(input=(3, n)), (), (), large=[call(input=MILLION)])
    ranks = [call(input=()), call(input=(0,)), call(input=(2, 0, 3)), call(input=(2, 3, 2, 1, 4, 3))]
    yield from variations("sizes", ranks, dtypes=_SOME)


@with_further_layouts
def transpose_samples() -> Iterator[Sample]:
    yield from moved(
        [call({"dim0": 0, "dim1": 1}, input=(5, 37)), call({"dim0": 1, "dim1": 2}, input=(2, 17, 33))],
        lambda n: call({"dim0": 0, "dim1": 1}, input=(n, 3)),
        [
            *(call({"dim0": 0, "dim1": 1}, input=(3, n)) for n in SIZES),
            *(call({"dim0": a, "dim1": b}, input=(2, 3, 5, 4)) for a in (0, 1, -1, -2) for b in (0, 2, 3, -3)),
            call({"dim0": 0, "dim1": -1}, input=(33, 65)),
            *(call({"dim0": a, "dim1": b}, input=(3, 5, 7)) for a, b in ((0, 2), (-3, -2))),
            *(call({"dim0": -2, "dim1": -1}, input=shape) for shape in ((5, 5), (33, 33), (2, 16, 16))),  # in place?
            call({"dim0": 0, "dim1": -1}, input=()),
            call({"dim0": 0, "dim1": 1}, input=(0, 3)),
            call({"dim0": 1, "dim1": -2}, input=(2, 3, 2, 4, 3)),
        ],
        [call({"dim0": 0, "dim1": 2}, input=(3, 4)), call({"dim0": -3, "dim1": 0}, input=(3, 4))],
        large=[call({"dim0": 0, "dim1": 1}, input=MILLION)],
    )


@with_further_layouts
def permute_samples() -> Iterator[Sample]:
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0), (-1, 0, 1), (1, -1, -3))
    yield from moved(
        [call({"dims": [2, 0, 1]}, input=(3, 5, 17)), call({"dims": [0, 2, 3, 1]}, input=(2, 3, 9, 7))],
        lambda n: call({"dims": [1, 2, 0]}, input=(n, 2, 3)),
        [
            *(call({"dims": [2, 0, 1]}, input=(2, 3, n)) for n in SIZES),
            *(call({"dims": list(order)}, input=(2, 3, 4)) for order in orders),
            call({"dims": [3, 1, 4, 0, 2]}, input=(2, 3, 4, 5, 2)),
            call({"dims": [0, 1, 3, 2, 4, 5]}, input=(2, 2, 3, 2, 3, 5)),  # windows of an image
            call({"dims": [1, 0]}, input=(17, 17)),
            call({"dims": [2, 0, 1]}, input=(5, 5, 5)),
            call({"dims": []}, input=()),
            call({"dims": [1, 0]}, input=(0, 3)),
            call({"dims": [1, 0]}, input=(33, 65)),
            call({"dims": [3, 1, 4, 0, 2]}, input=(2, 3, 4, 5, 2), dtypes=("int8",)),
            call({"dims": [0, 3, 1, 2]}, input=(2, 5, 4, 3)),  # channels first, three of them
            call({"dims": [0, 2, 1, 3]}, input=(2, 1, 3, 4)),
        ],
        [
            call({"dims": [0]}, input=(3, 4)),
            call({"dims": [0, 0]}, input=(3, 4)),
            call({"dims": [0, 2]}, input=(3, 4)),
        ],
    )


@with_further_layouts
def reshape_samples() -> Iterator[Sample]:
    shapes = ([24], [2, 12], [-1, 4], [4, -1], [2, -1, 3], [2, 1, 12, 1], [1, 24], [2, 3, 4])
    yield from moved(
        [call({"shape": [15, -1]}, input=(3, 5, 17)), call({"shape": [-1]}, input=(7, 31))],
        lambda n: call({"shape": [6, n]}, input=(2, 3, n)),
        [
            *(call({"shape": [n, 6]}, input=(6, n)) for n in SIZES),
            *(call({"shape": shape}, input=(2, 3, 4)) for shape in shapes),
            call({"shape": []}, input=(1, 1)),
            call({"shape": [1, 1]}, input=()),
            call({"shape": [-1, 3]}, input=(0, 3)),
            call({"shape": [0, 5]}, input=(5, 0, 2)),
            call({"shape": [6, -1]}, input=(2, 3, 5, 3)),
            call({"shape": [4, 3, -1]}, input=(2, 3, 2, 5, 3)),
            call({"shape": [-1]}, input={"shape": [6, 6], "strides": [1, 6]}),
        ],
        [
            call({"shape": [5, 5]}, input=(4, 6)),
            call({"shape": [-1, 5]}, input=(4, 6)),
            call({"shape": [-1, -1]}, input=(4, 6)),
            call({"shape": [-2, 12]}, input=(4, 6)),
            call({"shape": [-1, 0]}, input=(0, 3)),
        ],
    )


@with_further_layouts
def broadcast_to_samples() -> Iterator[Sample]:
    pairs: list[tuple[tuple[int, ...], list[int]]] = [
        ((1, 5), [3, 5]),
        ((3, 1), [3, 5]),
        ((1, 1), [3, 5]),
        ((5,), [3, 5]),
        ((3, 1), [2, 3, 5]),
        ((1, 3, 1, 5), [2, 3, 4, 5]),
        ((1, 5, 1), [3, 5, 4]),
        ((3, 1), [-1, 4]),
        ((3, 5), [2, -1, -1]),
        ((), [2, 3]),
        ((), []),
        ((1,), [0]),
        ((1, 3), [0, 3]),
        ((3, 1), [3, 1]),
        ((5,), [5, 5]),  # rows, not columns
        ((3, 3), [3, 3, 3]),
        ((2, 1, 3, 1, 5), [2, 3, 3, 4, 5]),
        ((2, 1, 3, 1), [2, 4, 3, 5]),
        ((2, 1, 3), [2, 1, 2, 2, 4, 3]),
        ((1,), [5000]),
    ]
    yield from moved(
        [call({"size": [4, 3, 37]}, input=(3, 37)), call({"size": [5, 17]}, input=(5, 1))],
        lambda n: call({"size": [3, n]}, input=(1, n)),
        [*(call({"size": size}, input=shape) for shape, size in pairs), call({"size": [3, 129]}, input=(3, 1))],
        [
            call({"size": [3, 4]}, input=(3, 2)),
            call({"size": [4]}, input=(3, 4)),
            call({"size": [-1, 3, 4]}, input=(3, 4)),
        ],
        large=[call({"size": list(MILLION)}, input=(17,))],
    )


@with_further_layouts
def tile_samples() -> Iterator[Sample]:
    pairs: list[tuple[tuple[int, ...], list[int]]] = [
        ((3, 5), [1, 2]),
        ((3, 5), [2, 1]),
        ((3, 5), [2]),
        ((3, 5), []),
        ((5,), [2, 3]),
        ((2, 3, 4), [3, 1, 2]),
        ((), [3]),
        ((3, 5), [1, 0]),
        ((0, 3), [2, 2]),
        ((2, 1, 3), [2, 2, 1, 1]),
        ((2, 3, 2, 5, 2), [1, 2, 1, 2, 2]),
        ((5,), [3]),
        ((2, 3, 1, 4), [2, 3, 2, 2]),
    ]
    yield from moved(
        [call({"dims": [2, 3]}, input=(5, 17)), call({"dims": [2, 1, 2]}, input=(3, 4, 5))],
        lambda n: call({"dims": [2, 2]}, input=(2, n)),
        [call({"dims": dims}, input=shape) for shape, dims in pairs],
        [call({"dims": [-1]}, input=(3,)), call({"dims": [2, -2]}, input=(3, 4))],
        large=[call({"dims": [2, 1]}, input=(40_000, 17))],
    )


@with_further_layouts
def flip_samples() -> Iterator[Sample]:
    yield from moved(
        [call({"dims": [1]}, input=(5, 37)), call({"dims": [0, 2]}, input=(3, 4, 17))],
        lambda n: call({"dims": [-1]}, input=(3, n)),
        [
            *(call({"dims": dims}, input=(2, 3, 5)) for dims in ([0], [1], [-1], [-3], [1, 0], [0, -1], [0, 1, 2], [])),
            *(call({"dims": dims}, input=(2, 3, 2, 5, 3)) for dims in ([1, -1], [2], [0, 1, 2, 3, 4])),
            call({"dims": [0]}, input=()),
            call({"dims": [0]}, input=(0, 3)),
        ],
        [
            call({"dims": [2]}, input=(3, 4)),
            call({"dims": [0, 0]}, input=(3, 4)),
            call({"dims": [0, -2]}, input=(3, 4)),
        ],
        large=[call({"dims": [0]}, input=MILLION)],
    )


@with_further_layouts
def roll_samples() -> Iterator[Sample]:
    stated: list[dict[str, Any]] = [
        {"shifts": 1},
        {"shifts": -4},
        {"shifts": 7, "dims": 2},
        {"shifts": -7, "dims": 2},
        {"shifts": 0, "dims": 1},
        {"shifts": 3, "dims": 1},
        {"shifts": -17, "dims": 1},
        {"shifts": 65},
        {"shifts": 1, "dims": -3},
        {"shifts": [1, -2], "dims": [0, 2]},
        {"shifts": [1, 2], "dims": [2, 1]},
        {"shifts": [1, 1], "dims": [1, 1]},
        {"shifts": [1, 1, 3], "dims": [-1, -2, -3]},
    ]
    yield from moved(
        [call({"shifts": 3, "dims": 1}, input=(5, 37)), call({"shifts": -5}, input=(3, 17))],
        lambda n: call({"shifts": 2, "dims": 1}, input=(3, n)),
        [
            *(call(attributes, input=(2, 3, 5)) for attributes in stated),
            call({"shifts": [1, 2], "dims": [2, -1]}, input=(2, 3, 4, 2, 5)),
            call({"shifts": 1}, input=()),
            call({"shifts": 2, "dims": 1}, input=(0, 3)),
            call({"shifts": [1, 2], "dims": [1, 3]}, input=(2, 3, 4, 5)),
        ],
        [
            call({"shifts": 1, "dims": 2}, input=(3, 4)),
            call({"shifts": [1, 2], "dims": [0]}, input=(3, 4)),
            call({"shifts": [1, 2]}, input=(3, 4)),
            call({"shifts": []}, input=(3, 4)),
        ],
    )
    yield from _flat_in_other_layouts()


def _flat_in_other_layouts() -> Iterator[Sample]:
    """Elements are counted in rows, however they lie in memory."""
    yield from in_every_layout([call({"shifts": -5}, input=(3, 17))])
    yield from in_layouts_at_once([call({"shifts": 4}, input=(3, 5, 7))])


@with_further_layouts
def tril_samples() -> Iterator[Sample]:
    yield from _triangle_samples(lambda n: call({"diagonal": n - 2}, input=(3, n)))


@with_further_layouts
def triu_samples() -> Iterator[Sample]:
    yield from _triangle_samples(lambda n: call({"diagonal": -1}, input=(3, n)))


def _triangle_samples(sized: Callable[[int], Call]) -> Iterator[Sample]:
    """``sized`` keeps almost every element."""
    shapes = ((4, 4), (3, 6), (6, 3))
    yield from moved(
        [call(input=(17, 19)), call({"diagonal": 1}, input=(2, 5, 7))],
        sized,
        [
            *(call({"diagonal": diagonal}, input=shape) for shape in shapes for diagonal in (-7, -2, -1, 1, 2, 7)),
            call({"diagonal": 4}, input=(3, 6)),
            call({"diagonal": -4}, input=(6, 3)),
            call({"diagonal": 2}, input=(2, 3, 4, 5)),
            call({"diagonal": 1}, input=(33, 33)),
            call(input=(129, 129)),
            call(input=(129, 3)),
            call(input=(3, 0)),
            call(input=(0, 4, 4)),
            call(input=(2, 1, 2, 4, 5)),
        ],
        [call(input=(5,)), call(input=())],
        large=[call(input=(LARGE_SIZE, 3))],
    )
    yield from of_one_element(
        call(input=(1, 1)), call({"diagonal": 1}, input=(1, 1)), call({"diagonal": -1}, input=(1, 1))
    )
