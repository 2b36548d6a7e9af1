"""Shapes of the outputs of operators that rearrange one tensor as a whole; standard library only."""

from __future__ import annotations

import math
from collections.abc import Sequence

from optest.operators.shapes import Attributes, Shape, Specs, dense, given, normalize_dim
from optest.spec import TensorSpec, UnfitArguments, format_shape

__all__ = [
    "distinct_dims",
    "infer_broadcast_to",
    "infer_flip",
    "infer_permute",
    "infer_reshape",
    "infer_roll",
    "infer_same",
    "infer_tile",
    "infer_transpose",
    "infer_tril",
    "infer_triu",
    "tiled",
]


def infer_same(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    return (dense(spec.dtype, spec.shape),)


def infer_transpose(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    first = normalize_dim(attributes["dim0"], spec.rank, "dim0")
    second = normalize_dim(attributes["dim1"], spec.rank, "dim1")
    shape = list(spec.shape)
    if shape:
        shape[first], shape[second] = shape[second], shape[first]
    return (dense(spec.dtype, tuple(shape)),)


def infer_permute(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    dims = attributes["dims"]
    if len(dims) != spec.rank:
        raise UnfitArguments(f"dims is {list(dims)}, but should name each of {spec.rank} dimensions")
    order = distinct_dims(dims, spec.rank)
    return (dense(spec.dtype, tuple(spec.shape[dim] for dim in order)),)


def distinct_dims(dims: Sequence[int], rank: int, name: str = "dims") -> tuple[int, ...]:
    """Dimensions counted from the front, in the order in which they are named.

    Raises:
        UnfitArguments: for one out of range, or named twice.
    """
    found = tuple(normalize_dim(dim, rank, name) for dim in dims)
    if len(set(found)) < len(found):
        raise UnfitArguments(f"{name} is {list(dims)}, but should name a dimension once")
    return found


def infer_reshape(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """One size may be -1 and follows from the others, unless these hold no elements and leave it open."""
    spec = given(specs, 0, "input")
    shape: Shape = attributes["shape"]
    if any(size < -1 for size in shape) or shape.count(-1) > 1:
        raise UnfitArguments(f"shape is {list(shape)}, but should hold sizes of 0 or more, and -1 at most once")
    known = math.prod(size for size in shape if size != -1)
    if -1 in shape:
        if known == 0 or spec.elements % known:
            raise _not_reshaped(spec, shape)
        shape = tuple(spec.elements // known if size == -1 else size for size in shape)
    elif known != spec.elements:
        raise _not_reshaped(spec, shape)
    return (dense(spec.dtype, shape),)


def _not_reshaped(spec: TensorSpec, shape: Shape) -> UnfitArguments:
    return UnfitArguments(
        f"shape is {list(shape)}, but should hold the {spec.elements} elements of {format_shape(spec.shape)}"
    )


def infer_broadcast_to(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Sizes are aligned at the end; -1 keeps the input's own, which a new leading dimension does not have."""
    spec = given(specs, 0, "input")
    size: Shape = attributes["size"]
    added = len(size) - spec.rank
    if added < 0:
        raise UnfitArguments(f"size is {list(size)}, but should have {spec.rank} entries or more, as input has")
    shape = []
    for position, wanted in enumerate(size):
        own = spec.shape[position - added] if position >= added else None
        if own is not None and wanted in (-1, own):
            shape.append(own)
        elif wanted < 0 or own not in (None, 1):
            kept = "0 or more" if own is None else f"{own} or -1" if own != 1 else "0 or more, or -1"
            raise UnfitArguments(f"size at dimension {position} is {wanted}, but should be {kept}")
        else:
            shape.append(wanted)
    return (dense(spec.dtype, tuple(shape)),)


def infer_tile(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    own, repeats = tiled(spec.shape, attributes["dims"])
    return (dense(spec.dtype, tuple(size * count for size, count in zip(own, repeats, strict=True))),)


def tiled(shape: Shape, dims: Sequence[int]) -> tuple[Shape, tuple[int, ...]]:
    """Shape and repeats, the shorter of them preceded by ones, as torch.tile has it.

    Raises:
        UnfitArguments: for a negative count.
    """
    if any(count < 0 for count in dims):
        raise UnfitArguments(f"dims is {list(dims)}, but should hold counts of 0 or more")
    rank = max(len(shape), len(dims))
    return (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(dims)) + tuple(dims)


def infer_flip(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    distinct_dims(attributes["dims"], spec.rank)
    return (dense(spec.dtype, spec.shape),)


def infer_roll(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Without dims one shift rolls the elements in row-major order; a dimension may be named again and adds up."""
    spec = given(specs, 0, "input")
    shifts, dims = attributes["shifts"], attributes.get("dims") or ()
    if not shifts:
        raise UnfitArguments("shifts is [], but should hold a shift")
    if len(shifts) != len(dims) and (dims or len(shifts) > 1):
        raise UnfitArguments(f"dims is {list(dims)}, but should have {len(shifts)} entries, one for each shift")
    if dims and not spec.rank:
        raise UnfitArguments(f"dims is {list(dims)}, but should be left out: input has no dimensions")
    for dim in dims:
        normalize_dim(dim, spec.rank, "dims")
    return (dense(spec.dtype, spec.shape),)


def infer_tril(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    if spec.rank < 2:
        raise UnfitArguments(f"input is {format_shape(spec.shape)}, but should have 2 dimensions or more")
    return (dense(spec.dtype, spec.shape),)


infer_triu = infer_tril
