"""Pooling over height and width: max_pool2d, avg_pool2d and adaptive_avg_pool2d."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from optest.operators.calls import MAIN_FLOATS, ROWS_OF_EVERY_SIGN, call
from optest.operators.describe import FLOATS, NUMBERS, accumulate, attribute, exact, in_module
from optest.operators.samples import of_one_element, refused, standard, variations, zero_mean
from optest.operators.shapes import Attributes, Outputs, Shape, Specs, dense, given, require_rank
from optest.spec import Attribute, OperatorDescriptor, Sample, TensorSpec, Tier, UnfitArguments, format_shape

_KERNEL = attribute("kernel_size: ints", "Height and width of the window, or both at once.")
_STRIDE = attribute("stride|strides: ints = None", "Steps between windows; none means kernel_size.")
_CEIL = attribute(
    "ceil_mode: bool = False",
    "A last window may reach beyond the padding, if it begins in the input or the padding before it.",
)


def _padding_of(what: str) -> Attribute:
    return attribute(
        "padding: ints = (0,)",
        f"{what} on both sides of height and width, half of kernel_size at most. Four "
        "numbers, below kernel_size: before both, then after (torch has no such padding).",
    )


DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="max_pool2d",
        attributes=(
            _KERNEL,
            _STRIDE,
            _padding_of("−∞"),
            attribute("dilation|dilations: ints = (1,)", "Steps between the elements of a window."),
            _CEIL,
        ),
        dtype_variants=NUMBERS,
        generator={**ROWS_OF_EVERY_SIGN, "dims": 2},
        rule=exact("one of the elements; of −0 and +0 either"),
        description="Largest element of each window; NaN if there is one. Integers are padded with their smallest.",
    ),
    OperatorDescriptor(
        name="avg_pool2d",
        attributes=(
            _KERNEL,
            _STRIDE,
            _padding_of("Zeros"),
            _CEIL,
            attribute(
                "count_include_pad: bool = True", "Padding counts in the divisor; what lies beyond it never does."
            ),
            attribute(
                "divisor_override: int = None", "What every sum is divided by, in place of the number of elements."
            ),
        ),
        sum_length="window_length",
        description="Mean of each window.",
    ),
    OperatorDescriptor(
        name="adaptive_avg_pool2d",
        attributes=(attribute("output_size: ints", "Height and width of the output, or both at once."),),
        sum_length="adaptive_window_length",
        description="Means of windows that cover the input evenly: window i of n goes from ⌊i·s/n⌋ to ⌈(i+1)·s/n⌉.",
    ),
    dtype_variants=FLOATS,
    rule=accumulate("terms are the elements of the window, divided; + 1 for the division"),
)


def infer_max_pool2d(specs: Specs, attributes: Attributes) -> Outputs:
    spec = given(specs, 0, "input")
    return (dense(spec.dtype, (*spec.shape[:-2], *windows_of(spec, attributes).out)),)


def infer_avg_pool2d(specs: Specs, attributes: Attributes) -> Outputs:
    if attributes.get("divisor_override") == 0:
        raise UnfitArguments("divisor_override is 0, but should be another number")
    return infer_max_pool2d(specs, attributes)


def infer_adaptive_avg_pool2d(specs: Specs, attributes: Attributes) -> Outputs:
    spec = given(specs, 0, "input")
    return (dense(spec.dtype, (*spec.shape[:-2], *adaptive_windows_of(spec, attributes).out)),)


def window_length(specs: Specs, attributes: Attributes) -> int:
    return windows_of(given(specs, 0, "input"), attributes).elements


def adaptive_window_length(specs: Specs, attributes: Attributes) -> int:
    return adaptive_windows_of(given(specs, 0, "input"), attributes).elements


_SIZES = (2, 3, 7, 15, 16, 17, 31, 33, 65, 129)
_NEGATIVE = {"fill": "uniform", "low": -9.0, "high": -1.0}


_CALLS = [
    call({"kernel_size": 2}, input=(2, 3, 6, 8)),
    call({"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}, input=(1, 3, 9, 7)),
    call({"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, input=(2, 2, 8, 10)),
]


def _of_windows(variants: Sequence[Sequence[str]], dilations: list[tuple[int, int]] | None) -> Iterator[Sample]:
    """What every operator with a kernel_size is asked."""
    yield from standard(
        _CALLS, variants, sized=lambda n: call({"kernel_size": 2, "stride": 1}, input=(1, 2, 3, n)), sizes=_SIZES
    )
    large: dict[str, Any] = {"kernel_size": 2, "stride": (1, 2)}  # more results, or more planes, than 16 bits count
    calls = [call(large, input=(1, 2, 370, 366)), call(large, input=(65_537, 1, 2, 2))]
    yield from variations("sizes", calls, dtypes=("float32",))
    yield from variations("sizes", [call({"kernel_size": 2, "stride": 1}, input=(1, 2, 3, 257))], dtypes=("float16",))
    yield from of_one_element(call({"kernel_size": 1}, input=(1, 1, 1, 1)))
    yield from variations(
        "sizes", [call({"kernel_size": (3, 1), "stride": 1}, input=(2, 3, 9, 1))], dtypes=("float32",)
    )
    # Height and width never alike, so that they cannot be swapped.
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
    whole = {"kernel_size": (2, 3), "stride": (2, 1), "padding": 1, "dilation": (2, 1), "ceil_mode": True}
    mixed = call(whole, input=(1, 2, 8, 9))
    yield from variations("attributes", [mixed], dtypes=("float16", "bfloat16", "int32", "uint8"))
    padded = [*_CALLS[1:], mixed, call({"kernel_size": 2, "stride": 3, "padding": 1}, input=(1, 1, 7, 7))]
    yield from variations("negative", ({**each, "generator": _NEGATIVE} for each in padded), dtypes=MAIN_FLOATS)
    corner = [[["-inf", "-inf", 1.0, 2.0], ["-inf", "-inf", 3.0, -1.0]]]
    lowest = call({"kernel_size": 2}, input=(1, 1, 2, 4), generator={"fill": "data", "values": [corner]})
    yield from variations("negative", [lowest], dtypes=("float32", "float16", "bfloat16", "float64"))
    below = {"fill": "randint", "low": -100, "high": -10}
    yield from variations(
        "negative", ({**each, "generator": below} for each in padded), dtypes=("int8", "int16", "int32", "int64")
    )
    yield from refused(
        call({"kernel_size": 3, "padding": 2}, input=(1, 2, 6, 6)),
        call({"kernel_size": 4}, input=(1, 2, 3, 3)),
        call({"kernel_size": 2}, input=(1, 0, 6, 6)),
        call({"kernel_size": 2}, input=(6, 6)),
        call({"kernel_size": 2, "stride": 0}, input=(1, 2, 6, 6)),
    )
    yield from variations(
        "sizes", [call({"kernel_size": 3, "stride": 2, "padding": 1}, input=(1, 64, 112, 112))], tier=Tier.FULL
    )


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
    thirds = call({"kernel_size": (3, 5)}, input=(2, 3, 15, 40))  # by a power of two no division rounds
    yield from variations("ordinary", [thirds], dtypes=("float16", "bfloat16"))
    exact = {"fill": "integer-exact", "operands": 1}
    sums = [
        call({**each["attributes"], "divisor_override": 1}, input=tuple(each["shapes"]["input"]), generator=exact)
        for each in (*_CALLS, call({"kernel_size": (17, 33)}, input=(1, 2, 17, 66)))
    ]
    yield from variations("integer-exact", sums, dtypes=MAIN_FLOATS)
    yield from zero_mean([call({"kernel_size": 9, "stride": 3, "padding": 4}, input=(1, 9, 30, 33))])
    large = {**_CALLS[0], "generator": {"fill": "uniform", "low": 30000.0, "high": 40000.0}}
    yield from variations("ordinary", [large], dtypes=("float16",))  # sums beyond what it holds, of four
    yield from refused(
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
    yield from standard(
        calls, FLOATS, sized=lambda n: call({"output_size": (2, 3)}, input=(1, 2, 3, n)), sizes=(1, *_SIZES)
    )
    large = [
        call({"output_size": (259, 254)}, input=(1, 1, 370, 366)),
        call({"output_size": 1}, input=(65_537, 1, 2, 2)),
    ]
    yield from variations("sizes", large, dtypes=("float32",))
    yield from variations("sizes", [call({"output_size": (2, 3)}, input=(1, 2, 3, 257))], dtypes=("float16",))
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
    whole = call({"output_size": 1}, input=(1, 2, 33, 37), generator={"fill": "uniform", "low": 60.0, "high": 100.0})
    yield from variations("long", [whole], dtypes=("float32", "float16"))  # sums beyond float16
    yield from refused(
        call({"output_size": 2}, input=(6, 6)),
        call({"output_size": -1}, input=(1, 2, 6, 6)),
        call({"output_size": (2, 2, 2)}, input=(1, 2, 6, 6)),
    )


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
    # No window lies in the padding alone; of padding that is the same on both sides torch takes half of a window.
    if len(stated_padding) == 2 * _RANK:
        if any(max(pads) >= size for pads, size in zip(padding, kernel, strict=True)):
            raise UnfitArguments(f"padding is {list(stated_padding)}, but should be below kernel_size {list(kernel)}")
    elif any(max(pads) > size // 2 for pads, size in zip(padding, kernel, strict=True)):
        shown = [before for before, _ in padding]
        raise UnfitArguments(f"padding is {shown}, but should be half of kernel_size {list(kernel)} at most")
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
    require_rank(spec, "input", _RANK + 1, _RANK + 2)
    if min(spec.shape[spec.rank - _RANK - 1 :]) < 1:
        raise UnfitArguments(f"input is {format_shape(spec.shape)}, but should have no size 0 besides its batch")


def _pair(name: str, stated: Sequence[int], *, least: int) -> Shape:
    if len(stated) not in (1, _RANK) or min(stated) < least:
        raise UnfitArguments(f"{name} is {list(stated)}, but should be one number or two of {least} or more")
    return tuple(stated) * (_RANK // len(stated))
