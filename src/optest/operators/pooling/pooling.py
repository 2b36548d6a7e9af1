"""Descriptors, inference and samples of max_pool2d, avg_pool2d and adaptive_avg_pool2d; windows of all three."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from optest.operators.calls import EVERY_FLOAT, MAIN_FLOATS, ROWS_OF_EVERY_SIGN, Call, call, data_fill, uniform
from optest.operators.describe import FLOATS, NUMBERS, accumulate, attribute, exact, in_module
from optest.operators.samples import error_samples, of_one_element, standard_samples, variations, zero_mean
from optest.operators.shapes import Attributes, Outputs, Shape, Specs, dense, require_rank, require_spec
from optest.spec import Attribute, OperatorDescriptor, Sample, TensorSpec, Tier, UnfitArguments, format_shape

_KERNEL = attribute("kernel_size: ints", "Height and width of the window, or both at once.")
_STRIDE = attribute("stride|strides: ints = None", "Steps between windows; kernel_size by default.")
_CEIL = attribute(
    "ceil_mode: bool = False",
    "The last window may reach beyond the padding if it begins in the input or in the padding before it.",
)


def _padding_with(values: str) -> Attribute:
    return attribute(
        "padding: ints = (0,)",
        f"{values} on both sides of height and width, half of kernel_size at most. Four numbers, each below "
        "kernel_size: before height and width, then after them (torch has no such padding).",
    )


DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="max_pool2d",
        attributes=(
            _KERNEL,
            _STRIDE,
            _padding_with("−∞"),
            attribute("dilation|dilations: ints = (1,)", "Steps between the elements of a window."),
            _CEIL,
        ),
        dtype_variants=NUMBERS,
        generator={**ROWS_OF_EVERY_SIGN, "dims": 2},
        rule=exact("an element; either zero of −0 and +0"),
        description="Largest element of each window; NaN if there is one. Integers are padded with their smallest.",
    ),
    OperatorDescriptor(
        name="avg_pool2d",
        attributes=(
            _KERNEL,
            _STRIDE,
            _padding_with("Zeros"),
            _CEIL,
            attribute(
                "count_include_pad: bool = True", "Padding counts in the divisor; positions beyond it never count."
            ),
            attribute("divisor_override: int = None", "Divisor of every sum in place of the number of elements."),
        ),
        sum_length="window_length",
        description="Mean of each window.",
    ),
    OperatorDescriptor(
        name="adaptive_avg_pool2d",
        attributes=(attribute("output_size: ints", "Height and width of the output, or both at once."),),
        sum_length="adaptive_window_length",
        description="Means of windows that cover the input evenly: window i of n spans ⌊i·s/n⌋ to ⌈(i+1)·s/n⌉.",
    ),
    dtype_variants=FLOATS,
    rule=accumulate("terms are the elements of the window, divided; + 1 for the division"),
)


def infer_max_pool2d(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    return (dense(spec.dtype, (*spec.shape[:-2], *windows_of(spec, attributes).out)),)


def infer_avg_pool2d(specs: Specs, attributes: Attributes) -> Outputs:
    if attributes.get("divisor_override") == 0:
        raise UnfitArguments("divisor_override is 0, expected another number")
    return infer_max_pool2d(specs, attributes)


def infer_adaptive_avg_pool2d(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    return (dense(spec.dtype, (*spec.shape[:-2], *adaptive_windows_of(spec, attributes).out)),)


def window_length(specs: Specs, attributes: Attributes) -> int:
    """Return the number of elements of a window of avg_pool2d."""
    return windows_of(require_spec(specs, 0, "input"), attributes).elements


def adaptive_window_length(specs: Specs, attributes: Attributes) -> int:
    """Return the number of elements of the largest window of adaptive_avg_pool2d."""
    return adaptive_windows_of(require_spec(specs, 0, "input"), attributes).elements


_SIZES = (2, 3, 7, 15, 16, 17, 31, 33, 65, 129)
_CALLS = [
    call({"kernel_size": 2}, input=(2, 3, 6, 8)),
    call({"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}, input=(1, 3, 9, 7)),
    call({"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, input=(2, 2, 8, 10)),
]


def _of_windows(variants: Sequence[Sequence[str]], dilations: list[tuple[int, int]] | None) -> Iterator[Sample]:
    """Yield the samples of operators with a kernel_size; None for ``dilations`` if they have no such attribute."""
    small: dict[str, Any] = {"kernel_size": 2, "stride": 1}
    yield from standard_samples(_CALLS, variants, sized=lambda n: call(small, input=(1, 2, 3, n)), sizes=_SIZES)
    # More results, then more planes, than 16 bits count.
    large: dict[str, Any] = {"kernel_size": 2, "stride": (1, 2)}
    calls = [call(large, input=(1, 2, 370, 366)), call(large, input=(65_537, 1, 2, 2))]
    yield from variations("sizes", calls, dtypes=("float32",))
    yield from variations("sizes", [call(small, input=(1, 2, 3, 257))], dtypes=("float16",))
    yield from of_one_element(call({"kernel_size": 1}, input=(1, 1, 1, 1)))
    column = call({"kernel_size": (3, 1), "stride": 1}, input=(2, 3, 9, 1))
    yield from variations("sizes", [column], dtypes=("float32",))
    # Height and width always differ, so that a kernel that swaps them fails.
    for stride in (None, (1, 1), (2, 3), (4, 1)):
        for padding in ((0, 0), (1, 0), (0, 1)):
            for ceil_mode in (False, True):
                attributes: dict[str, Any] = {"kernel_size": (2, 3), "padding": padding, "ceil_mode": ceil_mode}
                if stride is not None:
                    attributes["stride"] = stride
                if dilations is not None:
                    attributes["dilation"] = dilations[(sum(padding) + sum(stride or (0,)) + ceil_mode) % 3]
                yield from variations("attributes", [call(attributes, input=(1, 2, 8, 9))], dtypes=("float32",))
    forms = [
        call({"kernel_size": 1}, input=(1, 2, 3, 4)),
        call({"kernel_size": 1, "stride": 2}, input=(1, 2, 5, 4)),
        call({"kernel_size": (5, 7)}, input=(2, 3, 5, 7)),
        call({"kernel_size": 2}, input=(3, 6, 7)),
        call({"kernel_size": 2}, input=(0, 3, 6, 7)),
        call({"kernel_size": 3, "ceil_mode": True}, input=(1, 2, 2, 7)),
        call({"kernel_size": 3, "padding": 1}, input=(1, 2, 5, 7)),
        call({"kernel_size": 3, "stride": 2, "padding": 1}, input=(1, 2, 6, 7)),
        call({"kernel_size": (3, 4), "stride": (2, 1), "padding": (2, 1, 0, 3)}, input=(1, 2, 7, 8)),  # before, after
        call({"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True}, input=(1, 1, 3, 5)),
        call({"kernel_size": 3, "stride": 1, "padding": 1}, input=(2, 17, 5, 5)),
        call({"kernel_size": 2}, input=(2, 67, 4, 5)),
        call({"kernel_size": 1, "stride": 2, "ceil_mode": True}, input=(1, 2, 6, 7)),
    ]
    yield from variations("attributes", forms, dtypes=("float32",))


def max_pool2d_samples() -> Iterator[Sample]:
    yield from _of_windows(NUMBERS, dilations=[(1, 1), (2, 1), (1, 3)])
    combined = {"kernel_size": (2, 3), "stride": (2, 1), "padding": 1, "dilation": (2, 1), "ceil_mode": True}
    mixed = call(combined, input=(1, 2, 8, 9))
    yield from variations("attributes", [mixed], dtypes=("float16", "bfloat16", "int32", "uint8"))
    padded = [*_CALLS[1:], mixed, call({"kernel_size": 2, "stride": 3, "padding": 1}, input=(1, 1, 7, 7))]
    # Padding with 0 in place of −∞ is the maximum of negative elements.
    negative = [{**case, "generator": uniform(-9.0, -1.0)} for case in padded]
    yield from variations("negative", negative, dtypes=MAIN_FLOATS)
    # A running maximum that starts at the lowest finite number loses a window of −∞.
    corner = [[["-inf", "-inf", 1.0, 2.0], ["-inf", "-inf", 3.0, -1.0]]]
    lowest = call({"kernel_size": 2}, input=(1, 1, 2, 4), generator=data_fill([corner]))
    yield from variations("negative", [lowest], dtypes=EVERY_FLOAT)
    integers = [{**case, "generator": {"fill": "randint", "low": -100, "high": -10}} for case in padded]
    yield from variations("negative", integers, dtypes=("int8", "int16", "int32", "int64"))
    yield from error_samples(
        call({"kernel_size": 3, "padding": 2}, input=(1, 2, 6, 6)),
        call({"kernel_size": 4}, input=(1, 2, 3, 3)),
        call({"kernel_size": 2}, input=(1, 0, 6, 6)),
        call({"kernel_size": 2}, input=(6, 6)),
        call({"kernel_size": 2, "stride": 0}, input=(1, 2, 6, 6)),
    )
    stem = call({"kernel_size": 3, "stride": 2, "padding": 1}, input=(1, 64, 112, 112))  # of ResNet
    yield from variations("sizes", [stem], tier=Tier.FULL)


def avg_pool2d_samples() -> Iterator[Sample]:
    yield from _of_windows(FLOATS, dilations=None)
    walk: dict[str, Any] = {"kernel_size": (3, 4), "stride": (2, 3), "padding": (1, 2)}
    calls = [
        call({**walk, "ceil_mode": ceil_mode, "count_include_pad": include}, input=(1, 2, 8, 9))
        for include in (True, False)
        for ceil_mode in (True, False)
    ]
    square: dict[str, Any] = {"kernel_size": 3, "padding": 1}
    calls.append(call({**square, "count_include_pad": False}, input=(1, 2, 5, 7)))
    calls.append(call({**square, "divisor_override": 5}, input=(1, 2, 7, 7)))
    calls.append(call({**square, "divisor_override": -2, "count_include_pad": False}, input=(1, 2, 7, 7)))
    yield from variations("attributes", calls, dtypes=("float32", "float16"))
    yield from variations("long", [call({"kernel_size": 64}, input=(1, 3, 128, 64))], dtypes=("float32", "float16"))
    # A division by a power of two does not round.
    thirds = call({"kernel_size": (3, 5)}, input=(2, 3, 15, 40))
    yield from variations("ordinary", [thirds], dtypes=("float16", "bfloat16"))
    exact = {"fill": "integer-exact", "operands": 1}
    sums = [
        call({**case["attributes"], "divisor_override": 1}, input=tuple(case["shapes"]["input"]), generator=exact)
        for case in (*_CALLS, call({"kernel_size": (17, 33)}, input=(1, 2, 17, 66)))
    ]
    yield from variations("integer-exact", sums, dtypes=MAIN_FLOATS)
    yield from zero_mean([call({"kernel_size": 9, "stride": 3, "padding": 4}, input=(1, 9, 30, 33))])
    # Sums of four elements overflow float16, their means do not.
    large = {**_CALLS[0], "generator": uniform(30000.0, 40000.0)}
    yield from variations("ordinary", [large], dtypes=("float16",))
    yield from error_samples(
        call({"kernel_size": 3, "padding": 2}, input=(1, 2, 6, 6)),
        call({"kernel_size": 4}, input=(1, 2, 3, 3)),
        call({"kernel_size": 2, "divisor_override": 0}, input=(1, 2, 6, 6)),
        call({"kernel_size": 2}, input=(6, 6)),
    )


def adaptive_avg_pool2d_samples() -> Iterator[Sample]:
    calls = [
        call({"output_size": (3, 2)}, input=(2, 3, 7, 9)),
        call({"output_size": 1}, input=(2, 17, 7, 7)),
        call({"output_size": 4}, input=(1, 2, 8, 12)),
    ]
    sized: Callable[[int], Call] = lambda n: call({"output_size": (2, 3)}, input=(1, 2, 3, n))  # noqa: E731
    yield from standard_samples(calls, FLOATS, sized=sized, sizes=(1, *_SIZES))
    # More results, then more planes, than 16 bits count.
    large = [
        call({"output_size": (259, 254)}, input=(1, 1, 370, 366)),
        call({"output_size": 1}, input=(65_537, 1, 2, 2)),
    ]
    yield from variations("sizes", large, dtypes=("float32",))
    yield from variations("sizes", [sized(257)], dtypes=("float16",))
    yield from of_one_element(call({"output_size": 1}, input=(1, 1, 1, 1)))
    attributes = [
        call({"output_size": size}, input=(1, 2, 7, 10))
        for size in ((1, 1), (7, 10), (5, 3), (3, 5), (1, 10), (7, 1), (9, 13), (6, 9), (0, 2))
    ]
    attributes += [call({"output_size": 2}, input=(2, 67, 5, 4))]
    attributes += [call({"output_size": (2, 3)}, input=(3, 5, 7)), call({"output_size": (2, 3)}, input=(0, 3, 5, 7))]
    yield from variations("attributes", attributes, dtypes=("float32", "bfloat16"))
    yield from variations("long", [call({"output_size": (1, 2)}, input=(1, 3, 64, 129))], dtypes=("float32", "float16"))
    yield from zero_mean([call({"output_size": (2, 3)}, input=(2, 33, 33, 31))])
    # The sum of the plane overflows float16, its mean does not.
    plane = call({"output_size": 1}, input=(1, 2, 33, 37), generator=uniform(60.0, 100.0))
    yield from variations("long", [plane], dtypes=("float32", "float16"))
    yield from error_samples(
        call({"output_size": 2}, input=(6, 6)),
        call({"output_size": -1}, input=(1, 2, 6, 6)),
        call({"output_size": (2, 2, 2)}, input=(1, 2, 6, 6)),
    )


_RANK = 2  # height and width


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows of max_pool2d and avg_pool2d, with one entry for height and one for width in each field.

    ``sizes`` are the input's, ``padding`` is (before, after), ``out`` the number of windows.
    """

    sizes: Shape
    kernel: Shape
    stride: Shape
    padding: tuple[tuple[int, int], ...]
    dilation: Shape
    out: Shape

    @property
    def elements(self) -> int:
        """Number of elements of a window."""
        return self.kernel[0] * self.kernel[1]

    def filling(self) -> tuple[tuple[int, int], ...]:
        """Return the number of elements to add before and after each dimension so that every window is complete."""
        rows = zip(self.sizes, self.kernel, self.stride, self.padding, self.dilation, self.out, strict=True)
        return tuple(
            (before, max(0, (out - 1) * stride + dilation * (kernel - 1) + 1 - size - before))
            for size, kernel, stride, (before, _), dilation, out in rows
        )

    def counts(self, axis: int, *, with_padding: bool) -> tuple[int, ...]:
        """Return the number of elements of one dimension that each window averages over.

        Padding counts only with ``with_padding``. Positions beyond it, which ``ceil_mode`` can reach, never count.
        """
        size, kernel, (before, after) = self.sizes[axis], self.kernel[axis], self.padding[axis]
        starts = [index * self.stride[axis] - before for index in range(self.out[axis])]
        if with_padding:
            return tuple(min(start + kernel, size + after) - start for start in starts)
        return tuple(min(start + kernel, size) - max(start, 0) for start in starts)


def windows_of(spec: TensorSpec, attributes: Attributes) -> Windows:
    """Return the windows of max_pool2d and avg_pool2d over an input.

    Padding may be all beginnings and then all ends, as in ONNX, each below kernel_size.

    Raises:
        UnfitArguments: for other arguments that torch.nn.functional refuses, such as more padding than half a window.
    """
    _require_planes(spec)
    kernel = _pair("kernel_size", attributes["kernel_size"], least=1)
    stride = _pair("stride", attributes["stride"], least=1) if attributes.get("stride") else kernel
    pads_by_side = tuple(attributes.get("padding", (0,)))
    if len(pads_by_side) == 2 * _RANK and min(pads_by_side) >= 0:  # beginnings, then ends
        padding = tuple(zip(pads_by_side[:_RANK], pads_by_side[_RANK:], strict=True))
    else:
        padding = tuple((pad, pad) for pad in _pair("padding", pads_by_side, least=0))
    dilation = _pair("dilation", attributes.get("dilation", (1,)), least=1)
    spans = tuple(step * (size - 1) + 1 for size, step in zip(kernel, dilation, strict=True))
    # A window in the padding has no element. torch, whose padding is symmetric, accepts half of a window at most.
    if len(pads_by_side) == 2 * _RANK:
        if any(max(pads) >= size for pads, size in zip(padding, kernel, strict=True)):
            raise UnfitArguments(f"padding is {list(pads_by_side)}, expected numbers below kernel_size {list(kernel)}")
    elif any(max(pads) > size // 2 for pads, size in zip(padding, kernel, strict=True)):
        shown = [before for before, _ in padding]
        raise UnfitArguments(f"padding is {shown}, expected at most half of kernel_size {list(kernel)}")
    sizes = spec.shape[-_RANK:]
    ceil = bool(attributes.get("ceil_mode", False))
    out = tuple(
        _positions(size, span, step, pads, ceil)
        for size, span, step, pads in zip(sizes, spans, stride, padding, strict=True)
    )
    if min(out) < 1:
        padded = format_shape(tuple(size + sum(pads) for size, pads in zip(sizes, padding, strict=True)))
        raise UnfitArguments(f"kernel_size spans {format_shape(spans)}, expected at most {padded}, the padded input")
    return Windows(sizes=sizes, kernel=kernel, stride=stride, padding=padding, dilation=dilation, out=out)


def _positions(size: int, span: int, stride: int, pads: tuple[int, int], ceil: bool) -> int:
    """Return the number of windows along one dimension.

    With ``ceil`` the last one may reach beyond the padding if it begins before the padding after the input.
    """
    before, after = pads
    count = (size + before + after - span + (stride - 1 if ceil else 0)) // stride + 1
    return count - 1 if ceil and (count - 1) * stride >= size + before else count


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveWindows:
    """Windows of adaptive pooling: first index and end of each one, for height and for width."""

    starts: tuple[tuple[int, ...], ...]
    ends: tuple[tuple[int, ...], ...]

    @property
    def out(self) -> Shape:
        """Number of windows, for height and for width."""
        return tuple(map(len, self.starts))

    @property
    def elements(self) -> int:
        """Number of elements of the largest window."""
        height, width = (
            max((end - start for start, end in zip(starts, ends, strict=True)), default=0)
            for starts, ends in zip(self.starts, self.ends, strict=True)
        )
        return height * width


def adaptive_windows_of(spec: TensorSpec, attributes: Attributes) -> AdaptiveWindows:
    """Return the windows of adaptive pooling: window i of n over a size s spans ⌊i·s/n⌋ to ⌈(i + 1)·s/n⌉.

    Raises:
        UnfitArguments: for arguments that torch.nn.functional refuses.
    """
    _require_planes(spec)
    counts = _pair("output_size", attributes["output_size"], least=0)
    pairs = list(zip(spec.shape[-_RANK:], counts, strict=True))
    return AdaptiveWindows(
        starts=tuple(tuple(index * size // count for index in range(count)) for size, count in pairs),
        ends=tuple(tuple(-(-(index + 1) * size // count) for index in range(count)) for size, count in pairs),
    )


def _require_planes(spec: TensorSpec) -> None:
    require_rank(spec, "input", _RANK + 1, _RANK + 2)
    if min(spec.shape[spec.rank - _RANK - 1 :]) < 1:
        raise UnfitArguments(f"input is {format_shape(spec.shape)}, expected no size 0 except the batch")


def _pair(name: str, numbers: Sequence[int], *, least: int) -> Shape:
    """Return one number for height and width each; raise UnfitArguments for another count or for smaller ones."""
    if len(numbers) not in (1, _RANK) or min(numbers) < least:
        raise UnfitArguments(f"{name} is {list(numbers)}, expected one number or two of {least} or more")
    return tuple(numbers) * (_RANK // len(numbers))
