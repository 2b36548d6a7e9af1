"""Shapes of the outputs of operators that join, cut and extend tensors; standard library only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from optest.operators.movement.inference import distinct_dims
from optest.operators.shapes import Attributes, Shape, Specs, dense, normalize_dim, promote_tensors
from optest.operators.shapes import given as given_input
from optest.spec import DType, Kind, TensorSpec, UnfitArguments, format_shape

__all__ = [
    "infer_concat",
    "infer_pad",
    "infer_slice",
    "infer_split",
    "is_legacy_empty",
    "pads_by_dim",
    "section_sizes",
    "slice_ranges",
]


def infer_concat(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """A 1-d tensor without elements goes with any shape and is skipped, as in torch; its dtype counts all the same."""
    tensors = [given_input(specs, index, f"tensors{index}") for index in range(len(specs))]
    if not tensors:
        raise UnfitArguments("there are no tensors, but should be one or more")
    for index, spec in enumerate(tensors):
        if not spec.rank:
            raise UnfitArguments(f"tensors{index} is a scalar, but should have a dimension to be joined along")
    result = promote_tensors(tensors)
    shapes = [(index, spec.shape) for index, spec in enumerate(tensors) if not is_legacy_empty(spec.shape)]
    if not shapes:
        return (dense(result, (0,)),)
    first = shapes[0][1]
    dim = normalize_dim(attributes.get("dim", 0), len(first))
    for index, shape in shapes:
        if len(shape) != len(first) or _without(shape, dim) != _without(first, dim):
            raise UnfitArguments(
                f"tensors{index} is {format_shape(shape)}, but should agree with {format_shape(first)} "
                f"in every dimension but {dim}"
            )
    total = sum(shape[dim] for _, shape in shapes)
    return (dense(result, (*first[:dim], total, *first[dim + 1 :])),)


def is_legacy_empty(shape: Shape) -> bool:
    return shape == (0,)


def _without(shape: Shape, dim: int) -> Shape:
    return shape[:dim] + shape[dim + 1 :]


def infer_split(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given_input(specs, 0, "input")
    dim, sizes = section_sizes(spec.shape, attributes)
    return tuple(dense(spec.dtype, (*spec.shape[:dim], size, *spec.shape[dim + 1 :])) for size in sizes)


def section_sizes(shape: Shape, attributes: Attributes) -> tuple[int, tuple[int, ...]]:
    """The dimension that is split, and the size of each part along it.

    Raises:
        UnfitArguments: where torch.split refuses.
    """
    if not shape:
        raise UnfitArguments("input is a scalar, but should have a dimension to be split along")
    dim = normalize_dim(attributes.get("dim", 0), len(shape))
    size, stated = shape[dim], attributes["split_size_or_sections"]
    if not isinstance(stated, int):
        if sum(stated) != size or any(section < 0 for section in stated):
            raise UnfitArguments(
                f"split_size_or_sections is {list(stated)}, but should hold sizes that add up to {size}, "
                f"that of dimension {dim}"
            )
        return dim, tuple(stated)
    if stated < 0 or (stated == 0 and size):
        raise UnfitArguments(f"split_size_or_sections is {stated}, but should be 1 or more")
    if size == 0:
        return dim, (0,)
    return dim, tuple(min(stated, size - begin) for begin in range(0, size, stated))


def infer_slice(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given_input(specs, 0, "input")
    shape = list(spec.shape)
    for dim, picked in slice_ranges(spec.shape, attributes):
        shape[dim] = len(picked)
    return (dense(spec.dtype, tuple(shape)),)


def slice_ranges(shape: Shape, attributes: Attributes) -> Iterator[tuple[int, range]]:
    """Each dimension that is sliced, with the indices that are taken of it.

    Bounds count from the end where they are negative and are clamped to the dimension, as in Python and torch. With a
    negative step, which torch does not have, start is clamped to the last and the first element, as in ONNX.

    Raises:
        UnfitArguments: for lists of different lengths, a dimension named twice or out of range, and a step of 0.
    """
    stated = {name: attributes.get(name) for name in ("dim", "start", "end", "step")}
    lengths = {len(values) for values in stated.values() if values is not None}
    if len(lengths) > 1:
        raise UnfitArguments(f"dim, start, end and step have {sorted(lengths)} entries, but should have as many each")
    if not shape:
        raise UnfitArguments("input is a scalar, but should have a dimension to be sliced")
    count = lengths.pop() if lengths else 1
    starts, ends, steps = ((stated[name] or (None,) * count) for name in ("start", "end", "step"))
    dims = distinct_dims(stated["dim"] or range(count), len(shape), "dim")
    for dim, start, end, step in zip(dims, starts, ends, steps, strict=True):
        yield dim, _picked(shape[dim], start, end, 1 if step is None else step)


def _picked(size: int, start: int | None, end: int | None, step: int) -> range:
    if step == 0:
        raise UnfitArguments("step is 0, but should be 1 or more, or negative to walk backwards")
    if step < 0 and start is not None and start < -size:
        start = 0
    return range(*slice(start, end, step).indices(size))


def infer_pad(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given_input(specs, 0, "input")
    pads = pads_by_dim(spec.shape, attributes["pad"])
    mode = attributes.get("mode", "constant")
    if mode == "constant":
        _require_value(attributes.get("value", 0.0), spec.dtype)
    else:
        _require_extendable(spec.shape, attributes["pad"], mode)
    shape = tuple(before + size + after for size, (before, after) in zip(spec.shape, pads, strict=True))
    if _crops_too_much(spec.shape, pads, mode) or (mode in _MIRRORS and not any(shape[-len(attributes["pad"]) // 2 :])):
        raise UnfitArguments(f"pad is {list(attributes['pad'])}, but should not crop all of {format_shape(spec.shape)}")
    return (dense(spec.dtype, shape),)


_MIRRORS = ("reflect", "replicate")
"""Modes in which torch wants something left of a padded dimension."""


def _crops_too_much(shape: Shape, pads: Sequence[tuple[int, int]], mode: str) -> bool:
    """Whether a size is negative; with a value, torch crops both sides before it pads."""
    if mode == "constant":
        pads = [(min(before, 0), min(after, 0)) for before, after in pads]
    return any(before + size + after < 0 for size, (before, after) in zip(shape, pads, strict=True))


def pads_by_dim(shape: Shape, pad: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Elements added before and after each dimension; ``pad`` begins with the last dimension, as in torch.

    Raises:
        UnfitArguments: for an odd number of entries, or more than two for each dimension.
    """
    if len(pad) % 2 or len(pad) > 2 * len(shape):
        raise UnfitArguments(
            f"pad is {list(pad)}, but should have two entries for each padded dimension, at most {2 * len(shape)}"
        )
    pairs = [(pad[index], pad[index + 1]) for index in range(0, len(pad), 2)]
    return (*((0, 0),) * (len(shape) - len(pairs)), *reversed(pairs))


def _require_value(value: float, result: DType) -> None:
    """torch refuses a value that overflows the dtype, and drops the fraction of one for integers."""
    if result.kind is Kind.BOOL:
        return
    if result.is_inexact:
        fits = not math.isfinite(value) or abs(value) <= result.max_finite
    else:
        fits = math.isfinite(value) and result.min_int <= value <= result.max_int
    if not fits:
        raise UnfitArguments(f"value is {value:g}, but should be in the range of {result}")


def _require_extendable(shape: Shape, pad: Sequence[int], mode: str) -> None:
    """The modes that repeat elements take 1 to 3 dimensions at the end, with one or two before them, as in torch.

    A circular pad repeats what is left of a cropped dimension; one larger than that is refused here, while torch
    reads memory that it has not written.
    """
    padded = len(pad) // 2
    if not 1 <= padded <= 3 or len(shape) not in (padded + 1, padded + 2):
        raise UnfitArguments(
            f"pad has {len(pad)} entries for {format_shape(shape)} and mode {mode}, but should leave one or two "
            "leading dimensions, and pad one to three"
        )
    if mode != "circular" and 0 in shape[len(shape) - padded - 1 :]:
        raise UnfitArguments(f"input is {format_shape(shape)}, but should have elements to repeat in mode {mode}")
    for size, (before, after) in zip(shape, pads_by_dim(shape, pad), strict=True):
        most = {"reflect": size - 1, "circular": size + min(before, 0) + min(after, 0)}.get(mode)
        if most is not None and max(before, after) > max(most, 0):
            raise UnfitArguments(
                f"pad is {list(pad)}, but should be at most {most} for a size of {size} in mode {mode}"
            )
