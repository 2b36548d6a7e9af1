"""Memory layouts of tensors for layout tests, as strides and offset in elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, permutations
from math import factorial

from optest.spec import contiguous_strides

_MOST_PERMUTATIONS = 6


@dataclass(frozen=True, slots=True)
class Pattern:
    """Memory layout for a shape; ``name`` describes it."""

    name: str
    strides: tuple[int, ...]
    offset: int = 0


def patterns(shape: Sequence[int]) -> Iterator[Pattern]:
    """Yield layouts in which no elements share memory; none for a 0-d tensor.

    Most are not dense; dimensions of size 1 get unusual strides, with which a tensor counts as dense.
    """
    sizes = tuple(shape)
    rank = len(sizes)
    if rank == 0:
        return
    dense = contiguous_strides(sizes)
    yield Pattern("offset", dense, 3)
    yield Pattern("gaps", tuple(2 * stride for stride in dense))
    yield Pattern("gaps and an offset", tuple(3 * stride for stride in dense), 5)
    if rank > 1:
        yield Pattern("padded rows", _padded_strides(sizes, rank - 1, 3))
        yield Pattern("padded rows and an offset", _padded_strides(sizes, rank - 1, 5), 7)
        yield Pattern("transposed", _permuted(sizes, range(rank)[::-1]))
        yield Pattern("transposed, padded", _permuted(sizes, range(rank)[::-1], gap=3))
    if rank > 2:
        yield Pattern("matrices apart, rows dense", _padded_strides(sizes, 1, 7))
        for order in _orders(rank):
            yield Pattern(f"order {','.join(map(str, order))}", _permuted(sizes, order))
        channels_last = (0, *range(2, rank), 1)
        yield Pattern("channels last, padded", _permuted(sizes, channels_last, gap=2))
    for axis in range(rank):
        yield _backwards(f"backwards in dimension {axis}", sizes, dense, (axis,))
    yield _backwards("gaps, backwards", sizes, tuple(2 * stride for stride in dense), (rank - 1,))
    if rank > 1:
        yield _backwards("backwards in every dimension", sizes, dense, range(rank))
        padded = _padded_strides(sizes, rank - 1, 2)
        yield _backwards("padded rows, backwards", sizes, padded, (rank - 1,))
        yield _backwards("transposed, backwards", sizes, _permuted(sizes, range(rank)[::-1]), (0,))
    if 1 in sizes:
        for odd in (13, 0, -3):
            strides = tuple(odd if size == 1 else stride for size, stride in zip(sizes, dense, strict=True))
            yield Pattern(f"stride {odd} where the size is 1", strides)


@cache
def _orders(rank: int) -> tuple[tuple[int, ...], ...]:
    """Return about six orders of the dimensions, evenly chosen from all except the dense one and its reverse."""
    # These two are the first and the last permutation; the reverse is yielded as "transposed".
    count = factorial(rank)
    step = max(1, (count - 2) // _MOST_PERMUTATIONS)
    return tuple(islice(permutations(range(rank)), 1, count - 1, step))


def overlapping_patterns(shape: Sequence[int]) -> Iterator[Pattern]:
    """Yield layouts in which elements share memory, which only inputs may have."""
    sizes = tuple(shape)
    rank = len(sizes)
    dense = contiguous_strides(sizes)
    for axis in range(rank):
        rest = contiguous_strides((*sizes[:axis], 1, *sizes[axis + 1 :]))
        yield Pattern(f"stride 0 in dimension {axis}", (*rest[:axis], 0, *rest[axis + 1 :]))
    if rank > 1:
        yield Pattern("stride 0 everywhere", (0,) * rank)
        yield Pattern("a window that slides by one", (*dense[:-2], 1, 1))


def _padded_strides(sizes: tuple[int, ...], axis: int, gap: int) -> tuple[int, ...]:
    """Return dense strides, except for ``gap`` elements behind each block of the dimensions from ``axis`` on."""
    strides = list(contiguous_strides(sizes))
    step = max(sizes[axis], 1) * strides[axis] + gap
    for index in range(axis - 1, -1, -1):
        strides[index] = step
        step *= max(sizes[index], 1)
    return tuple(strides)


def _permuted(sizes: tuple[int, ...], order: Sequence[int], *, gap: int = 0) -> tuple[int, ...]:
    """Return strides with the dimensions in ``order``, the innermost last, and ``gap`` elements behind each row."""
    packed = _padded_strides(tuple(sizes[axis] for axis in order), len(sizes) - 1, gap)
    strides = [0] * len(sizes)
    for axis, stride in zip(order, packed, strict=True):
        strides[axis] = stride
    return tuple(strides)


def _backwards(name: str, sizes: tuple[int, ...], strides: tuple[int, ...], axes: Sequence[int]) -> Pattern:
    """Return the layout with ``strides`` negated along ``axes``, and the offset of its first element."""
    offset = sum((sizes[axis] - 1) * strides[axis] for axis in axes if sizes[axis] > 0)
    negated = tuple(-stride if axis in axes else stride for axis, stride in enumerate(strides))
    return Pattern(name, negated, offset)
