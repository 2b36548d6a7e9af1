"""Sizes at which libraries change what they do: blocks of a matrix, whole pages and blocks of threads, millions."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from optest.clib.library.sample_calls import SampleCall
from optest.clib.library.stride_patterns import Pattern, patterns

__all__ = ["in_blocks", "large", "whole"]

_WHOLE = (256, 1024, 4096)
"""What widths of blocks divide, and pages hold."""

_ROWS, _COLUMNS = 61, 67
"""More than one block of 16, 32 or 64 in a dimension, and a remainder of each; fewer elements than threads want."""

_MOST_ELEMENTS = 4_096
_MILLIONS = (1 << 21) + 1
"""Elements: more than 16 bits, or one launch, count, and as float32 more than a stack holds."""


def whole(call: SampleCall) -> Iterator[SampleCall]:
    """Tensors of one dimension whose size is a power of two."""
    for flat in (call, *call.flattened()):
        if max(len(shape) for shape in flat.shapes.values()) == 1:
            for size in _WHOLE:
                yield from flat.resized(size)
            return


def in_blocks(call: SampleCall) -> Iterator[SampleCall]:
    """Matrices of several blocks and a remainder, transposed and permuted, each tensor in turn and all of them."""
    for one in (call, *call.flattened()):
        shape = max(one.shapes.values(), key=len)
        if len(shape) < 2 or shape[-1] == shape[-2]:
            continue
        for grown in one.with_sizes({shape[-2]: _ROWS, shape[-1]: _COLUMNS}):
            if max(map(prod, grown.shapes.values())) > _MOST_ELEMENTS:
                continue
            yield grown
            turned = {name: place for name, own in grown.shapes.items() if (place := _transposed(own)) is not None}
            for name, place in turned.items():
                yield grown.laid({name: place})
            yield grown.laid(turned)


def _transposed(shape: tuple[int, ...]) -> Pattern | None:
    return next((each for each in patterns(shape) if each.name == "transposed"), None)


def large(call: SampleCall) -> Iterator[SampleCall]:
    """Millions of elements, where every output element costs about the same: all tensors have one shape."""
    if len(set(call.shapes.values())) == 1:
        yield from call.grown(_MILLIONS)[:1]
