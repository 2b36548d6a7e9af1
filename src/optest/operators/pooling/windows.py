"""Where the windows of a pooling begin and end, and over how many elements: standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optest.operators.shapes import Attributes, Shape
from optest.spec import TensorSpec, UnfitArguments, format_shape

__all__ = ["AdaptiveWindows", "Windows", "adaptive_windows_of", "windows_of"]

_RANK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """One entry for height and width each; ``sizes`` is the input's own, ``padding`` is before and after."""

    sizes: Shape
    kernel: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]
    dilation: Shape
    out: Shape

    @property
    def elements(self) -> int:
        return self.kernel[0] * self.kernel[1]

    def filling(self) -> tuple[tuple[int, int], ...]:
        """What has to lie before and after the input so that every window is whole."""
        rows = zip(self.sizes, self.kernel, self.stride, self.padding, self.dilation, self.out, strict=True)
        return tuple(
            (before, max(0, (out - 1) * stride + dilation * (kernel - 1) + 1 - size - before))
            for size, kernel, stride, (before, _), dilation, out in rows
        )

    def counts(self, axis: int, *, with_padding: bool) -> tuple[int, ...]:
        """How many elements of one dimension each window averages over.

        Padding counts only with ``with_padding``; what lies beyond it, where ``ceil_mode`` puts a window, never does.
        """
        size, kernel, (before, after) = self.sizes[axis], self.kernel[axis], self.padding[axis]
        starts = [index * self.stride[axis] - before for index in range(self.out[axis])]
        if with_padding:
            return tuple(min(start + kernel, size + after) - start for start in starts)
        return tuple(min(start + kernel, size) - max(start, 0) for start in starts)


def windows_of(spec: TensorSpec, attributes: Attributes) -> Windows:
    """The windows of max_pool2d and avg_pool2d.

    Raises:
        UnfitArguments: for what torch.nn.functional refuses.
    """
    _require_planes(spec)
    kernel = _pair("kernel_size", attributes["kernel_size"], least=1)
    stated = attributes.get("stride")
    stride = _pair("stride", stated, least=1) if stated else kernel
    stated_padding = tuple(attributes.get("padding", (0,)))
    padding = _padding(stated_padding)
    dilation = _pair("dilation", attributes.get("dilation", (1,)), least=1)
    spans = tuple(step * (size - 1) + 1 for size, step in zip(kernel, dilation, strict=True))
    _require_seen(stated_padding, padding, kernel)
    sizes = spec.shape[-_RANK:]
    ceil = bool(attributes.get("ceil_mode", False))
    out = tuple(
        _positions(size, span, step, pads, ceil)
        for size, span, step, pads in zip(sizes, spans, stride, padding, strict=True)
    )
    if min(out) < 1:
        raise UnfitArguments(f"kernel_size spans {format_shape(spans)}, but should fit into {format_shape(sizes)}")
    return Windows(sizes=sizes, kernel=kernel, stride=stride, padding=padding, dilation=dilation, out=out)


def _padding(stated: Shape) -> tuple[tuple[int, int], ...]:
    """Before and after: the same on both sides, or stated as beginnings, then ends."""
    if len(stated) == 2 * _RANK and min(stated) >= 0:
        return tuple(zip(stated[:_RANK], stated[_RANK:], strict=True))
    return tuple((pad, pad) for pad in _pair("padding", stated, least=0))


def _require_seen(stated: Shape, padding: Sequence[tuple[int, int]], kernel: Shape) -> None:
    """No window lies in the padding alone; of padding that is the same on both sides torch takes half of a window."""
    if len(stated) == 2 * _RANK:
        if any(max(pads) >= size for pads, size in zip(padding, kernel, strict=True)):
            raise UnfitArguments(f"padding is {list(stated)}, but should be below kernel_size {list(kernel)}")
    elif any(max(pads) > size // 2 for pads, size in zip(padding, kernel, strict=True)):
        shown = [before for before, _ in padding]
        raise UnfitArguments(f"padding is {shown}, but should be half of kernel_size {list(kernel)} at most")


def _positions(size: int, span: int, stride: int, pads: tuple[int, int], ceil: bool) -> int:
    """With ``ceil`` a last window may reach beyond the padding, if it begins before the padding after the input."""
    before, after = pads
    count = (size + before + after - span + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= size + before else count


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveWindows:
    """First and last-but-one index of each window, for height and for width; windows overlap or touch."""

    starts: tuple[tuple[int, ...], ...]
    ends: tuple[tuple[int, ...], ...]

    @property
    def out(self) -> Shape:
        return tuple(map(len, self.starts))

    @property
    def elements(self) -> int:
        """Of the largest window."""
        height, width = (
            max((end - start for start, end in zip(starts, ends, strict=True)), default=0)
            for starts, ends in zip(self.starts, self.ends, strict=True)
        )
        return height * width


def adaptive_windows_of(spec: TensorSpec, attributes: Attributes) -> AdaptiveWindows:
    """Window i of n over a size s goes from ⌊i·s/n⌋ to ⌈(i + 1)·s/n⌉.

    Raises:
        UnfitArguments: for what torch.nn.functional refuses.
    """
    _require_planes(spec)
    wanted = _pair("output_size", attributes["output_size"], least=0)
    pairs = list(zip(spec.shape[-_RANK:], wanted, strict=True))
    return AdaptiveWindows(
        starts=tuple(tuple(index * size // count for index in range(count)) for size, count in pairs),
        ends=tuple(tuple(-(-(index + 1) * size // count) for index in range(count)) for size, count in pairs),
    )


def _require_planes(spec: TensorSpec) -> None:
    if spec.rank not in (_RANK + 1, _RANK + 2):
        raise UnfitArguments(f"input is {format_shape(spec.shape)}, but should have 3 or 4 dimensions")
    if min(spec.shape[spec.rank - _RANK - 1 :]) < 1:
        raise UnfitArguments(f"input is {format_shape(spec.shape)}, but should have no size 0 besides its batch")


def _pair(name: str, stated: Sequence[int], *, least: int) -> Shape:
    if len(stated) not in (1, _RANK) or min(stated) < least:
        raise UnfitArguments(f"{name} is {list(stated)}, but should be one number or two of {least} or more")
    return tuple(stated) * (_RANK // len(stated))
