"""How the kernel of a convolution walks over its input: sizes alone, standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from optest.operators.shapes import Attributes, Shape
from optest.spec import TensorSpec, UnfitArguments, format_shape

__all__ = ["Walk", "walk_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """One entry for each spatial dimension; ``padding`` is what is added before and after, ``out`` the positions."""

    kernel: Shape
    stride: Shape
    dilation: Shape
    padding: tuple[tuple[int, int], ...]
    out: Shape
    groups: int

    @property
    def taps(self) -> int:
        return prod(self.kernel)


def walk_of(spec: TensorSpec, weight: TensorSpec, attributes: Attributes, rank: int) -> Walk:
    """The walk over an input of ``rank`` spatial dimensions, with or without a batch.

    Raises:
        UnfitArguments: for what torch.nn.functional.conv1d, conv2d and conv3d refuse.
    """
    groups = attributes.get("groups", 1)
    _require_shapes(spec, weight, groups, rank)
    sizes, kernel = spec.shape[-rank:], weight.shape[-rank:]
    stride = _each("stride", attributes.get("stride", (1,)), rank, least=1)
    dilation = _each("dilation", attributes.get("dilation", (1,)), rank, least=1)
    spans = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    padding = _padding(attributes.get("padding", (0,)), spans, stride, rank)
    padded = tuple(size + sum(pad) for size, pad in zip(sizes, padding, strict=True))
    if any(size < span for size, span in zip(padded, spans, strict=True)):
        raise UnfitArguments(
            f"weight spans {format_shape(spans)}, but should fit into the padded input {format_shape(padded)}"
        )
    out = tuple((size - span) // step + 1 for size, span, step in zip(padded, spans, stride, strict=True))
    return Walk(kernel=kernel, stride=stride, dilation=dilation, padding=padding, out=out, groups=groups)


def _require_shapes(spec: TensorSpec, weight: TensorSpec, groups: int, rank: int) -> None:
    if weight.rank != rank + 2:
        raise UnfitArguments(f"weight is {format_shape(weight.shape)}, but should have {rank + 2} dimensions")
    if spec.rank not in (rank + 1, rank + 2):
        raise UnfitArguments(
            f"input is {format_shape(spec.shape)}, but should have {rank + 1} or {rank + 2} dimensions"
        )
    if groups < 1:
        raise UnfitArguments(f"groups is {groups}, but should be 1 or more")
    if min(weight.shape) < 1 or weight.shape[0] % groups:
        raise UnfitArguments(
            f"weight is {format_shape(weight.shape)}, but should have no size 0 and a multiple of {groups} rows"
        )
    channels = spec.shape[-rank - 1]
    if channels != weight.shape[1] * groups:
        raise UnfitArguments(
            f"input {format_shape(spec.shape)} has {channels} channels, but should have {weight.shape[1] * groups}, "
            f"as weight is {format_shape(weight.shape)} with {groups} groups"
        )


def _padding(stated: Sequence[int] | str, spans: Shape, stride: Shape, rank: int) -> tuple[tuple[int, int], ...]:
    """Before and after; ``same`` puts the odd one after, as torch does. Both are stated as beginnings, then ends."""
    if stated == "valid":
        return ((0, 0),) * rank
    if stated == "same":
        if any(step != 1 for step in stride):
            raise UnfitArguments(f"padding is 'same', but should be numbers with stride {list(stride)}")
        return tuple(((span - 1) // 2, span - 1 - (span - 1) // 2) for span in spans)
    if isinstance(stated, str):
        raise UnfitArguments(f"padding is {stated!r}, but should be 'same', 'valid' or numbers")
    if len(stated) == 2 * rank and min(stated) >= 0:
        return tuple(zip(stated[:rank], stated[rank:], strict=True))
    return tuple((pad, pad) for pad in _each("padding", stated, rank, least=0))


def _each(name: str, stated: Sequence[int], rank: int, *, least: int) -> Shape:
    if len(stated) not in (1, rank) or min(stated) < least:
        some = "one number" if rank == 1 else f"one number or {rank}"
        raise UnfitArguments(f"{name} is {list(stated)}, but should be {some} of {least} or more")
    return tuple(stated) * (rank // len(stated))
