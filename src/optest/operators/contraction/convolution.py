"""Convolutions: conv1d, conv2d and conv3d."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import prod
from typing import Any

from optest.operators.calls import MAIN_FLOATS, Call, call
from optest.operators.contraction.helpers import (
    ACCUMULATING,
    OUT_DTYPE,
    accumulator,
    beyond_16_bits,
    operations_of,
    require_dtype,
    result_dtype,
    special_operands,
    zeros_times_special,
)
from optest.operators.describe import FLOATS, INTEGERS, NUMBERS, accumulate, attribute, in_module
from optest.operators.samples import (
    error_samples,
    integer_exact,
    of_one_element,
    standard_samples,
    variations,
    zero_mean,
)
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Shape,
    Specs,
    dense,
    optional_spec,
    require_same_dtype,
    require_shape,
    require_spec,
)
from optest.spec import OperatorDescriptor, Sample, TensorSpec, Tier, UnfitArguments, format_shape

_ATTRIBUTES = (
    attribute("stride|strides: ints = (1,)", "Steps between positions, one number or one for each dimension."),
    attribute(
        "padding: ints|str = (0,)",
        "Number of zeros on both sides of each dimension; 'same' keeps the sizes with stride 1, an odd zero at the "
        "end; 'valid' is 0. Twice as many numbers: before each dimension, then after (torch has no such padding).",
    ),
    attribute("dilation|dilations: ints = (1,)", "Steps between the input elements under the kernel."),
    attribute(
        "groups|group: int = 1", "Number of groups into which channels are split; each sees its own inputs only."
    ),
    OUT_DTYPE,
)


def _conv_descriptor(rank: int, text: str) -> OperatorDescriptor:
    name = f"conv{rank}d"
    return OperatorDescriptor(
        name=name,
        signature="input, weight, bias? -> out",
        attributes=_ATTRIBUTES,
        dtype_variants=(*FLOATS, *INTEGERS, *ACCUMULATING),
        sum_length=f"{name}_length",
        operations=f"{name}_operations",
        rule=accumulate("terms are the products under the kernel; + 1 for the bias"),
        description=text,
    )


DESCRIPTORS = in_module(
    __name__,
    _conv_descriptor(
        1, "Cross-correlation of (batch, channels, length) with (output channels, channels / groups, taps)."
    ),
    _conv_descriptor(2, "Cross-correlation of (batch, channels, height, width) with a kernel that is not flipped."),
    _conv_descriptor(
        3, "Cross-correlation of (batch, channels, depth, height, width) with a kernel that is not flipped."
    ),
    twin="contraction_reference",
)


def _infer_conv(specs: Specs, attributes: Attributes, rank: int) -> Outputs:
    """Return the output of a convolution over ``rank`` spatial dimensions, with or without a batch."""
    spec, weight = require_spec(specs, 0, "input"), require_spec(specs, 1, "weight")
    bias = optional_spec(specs, 2)
    require_same_dtype(spec, weight, "weight")
    window = window_of(spec, weight, attributes, rank)
    result = result_dtype(spec.dtype, attributes)
    channels = weight.shape[0]
    if bias is not None:
        require_dtype(bias, result, "bias")
        require_shape(bias, "bias", (channels,))
    return (dense(result, (*spec.shape[: spec.rank - rank - 1], channels, *window.out)),)


def _conv_length(specs: Specs, attributes: Attributes, rank: int) -> int:
    """Return the number of products in an output element, those with padding included."""
    weight = require_spec(specs, 1, "weight")
    return weight.shape[1] * window_of(require_spec(specs, 0, "input"), weight, attributes, rank).taps


infer_conv1d, infer_conv2d, infer_conv3d = (partial(_infer_conv, rank=rank) for rank in (1, 2, 3))
conv1d_length, conv2d_length, conv3d_length = (partial(_conv_length, rank=rank) for rank in (1, 2, 3))
# Those of the direct algorithm, in conv2d 2·N·Cout·H·W·(Cin / groups)·kh·kw, whichever algorithm the kernel uses.
conv1d_operations = operations_of(infer_conv1d, conv1d_length)
conv2d_operations = operations_of(infer_conv2d, conv2d_length)
conv3d_operations = operations_of(infer_conv3d, conv3d_length)


def conv1d_samples() -> Iterator[Sample]:
    plain = call(input=(2, 3, 13), weight=(4, 3, 3), bias=(4,))
    calls = [
        plain,
        call({"padding": 1, "stride": 2}, input=(2, 3, 14), weight=(5, 3, 4), bias=(5,)),
        call({"padding": 2, "dilation": 2, "groups": 2}, input=(1, 4, 17), weight=(6, 2, 3)),
    ]
    yield from standard_samples(
        calls,
        NUMBERS,
        sized=lambda n: call({"padding": 1}, input=(1, 2, n), weight=(3, 2, 3), bias=(3,)),
        sizes=(1, 2, 7, 15, 16, 17, 31, 33, 65, 129, 1025),
        special=False,
    )
    yield from _special(calls)
    yield from beyond_16_bits(
        call(input=(1, 2, 33_000), weight=(2, 2, 3), bias=(2,)), call(input=(65_537, 1, 3), weight=(1, 1, 3))
    )
    attributes = [
        *_combinations([(1,), (3,)], [(0,), (2,)], [(1,), (3,)], [1, 2, 4], input=(2, 4, 19), weight=(8, 4, 3)),
        call({"groups": 2}, input=(2, 4, 9), weight=(6, 2, 3), bias=(6,)),
        call({"stride": 2, "padding": 1}, input=(2, 4, 9), weight=(5, 4, 1), bias=(5,)),
        call({"padding": "same"}, input=(1, 2, 9), weight=(3, 2, 4)),  # the odd zero comes last
        call({"padding": "same", "dilation": 2}, input=(1, 2, 9), weight=(3, 2, 3)),
        call({"padding": "valid"}, input=(1, 2, 9), weight=(3, 2, 3)),
        call({"padding": 5}, input=(1, 2, 3), weight=(3, 2, 3), bias=(3,)),
        call({"padding": (2, 0)}, input=(1, 2, 9), weight=(3, 2, 3), bias=(3,)),  # before, then after
        call({"padding": (1, 4), "stride": 2, "dilation": 2}, input=(1, 2, 9), weight=(3, 2, 3)),
        call(input=(2, 9), weight=(3, 2, 3), bias=(3,)),
        call(input=(0, 2, 9), weight=(3, 2, 3)),
        call(input=(2, 5, 5), weight=(5, 5, 1), bias=(5,)),
        call(input=(2, 3, 7), weight=(4, 3, 7)),
        call(input=(1, 2, 9), weight=(67, 2, 3), bias=(67,)),
    ]
    yield from variations("attributes", attributes, dtypes=("float32",))
    yield from accumulator([call({"padding": 1}, input=(1, 9, 12), weight=(3, 9, 5), bias=(3,))])
    yield from integer_exact([*calls, call(input=(1, 129, 12), weight=(3, 129, 8), bias=(3,))])
    yield from of_one_element(call(input=(1, 1, 1), weight=(1, 1, 1), bias=(1,)))
    yield from zero_mean([call(input=(1, 129, 30), weight=(33, 129, 8))])
    yield from error_samples(
        call(input=(1, 4, 9), weight=(3, 2, 3)),
        call({"groups": 2}, input=(1, 4, 9), weight=(3, 2, 3)),
        call(input=(1, 4, 2), weight=(3, 4, 3)),
        call(input=(1, 4, 9), weight=(3, 4, 3), bias=(4,)),
        call({"stride": 0}, input=(1, 4, 9), weight=(3, 4, 3)),
    )
    yield from variations("long", [call(input=(1, 2048, 20), weight=(4, 2048, 8))], dtypes=("float32", "float16"))
    yield from variations("attributes", [call(input=(1, 2, 50), weight=(2, 2, 37))], dtypes=("float32",))


def _special(calls: Sequence[Call]) -> Iterator[Sample]:
    """Yield samples with special values in the input, and, of the first call, which has no padding, in the weight."""
    # With padding, kernels differ in whether they multiply the zeros that are not stored. bfloat16 is in the full set
    # only: oneDNN multiplies elements beyond the window by zero weights, so that infinities become NaN.
    for dtypes, tier in ((("float32", "float16"), Tier.PARITY), (("bfloat16",), Tier.FULL)):
        yield from special_operands(calls, "input", dtypes=dtypes, tier=tier)
        yield from special_operands(calls[:1], "weight", dtypes=dtypes, tier=tier)
    yield from zeros_times_special(calls[0], "input", "weight", dtypes=("float32", "float16"))


def conv2d_samples() -> Iterator[Sample]:
    plain = call(input=(2, 3, 7, 9), weight=(4, 3, 3, 2), bias=(4,))
    calls = [
        plain,
        call({"padding": (2, 1), "stride": (1, 2)}, input=(2, 3, 8, 11), weight=(5, 3, 3, 4), bias=(5,)),
        call({"padding": 1, "dilation": (2, 1), "groups": 2}, input=(1, 4, 9, 8), weight=(6, 2, 3, 3)),
    ]
    yield from standard_samples(
        calls,
        NUMBERS,
        sized=lambda n: call({"padding": 1}, input=(1, 2, 5, n), weight=(3, 2, 3, 3), bias=(3,)),
        sizes=(1, 2, 7, 15, 16, 17, 33, 65, 129),
        special=False,
    )
    yield from _special(calls)
    for channels in (1, 15, 16, 17, 33, 65):
        of_input = call(input=(1, channels, 4, 5), weight=(2, channels, 3, 3))
        of_output = call(input=(1, 2, 4, 5), weight=(channels, 2, 3, 3), bias=(channels,))
        yield from variations("sizes", [of_input, of_output], dtypes=("float32",))
    wide = call({"padding": 1}, input=(1, 2, 5, 257), weight=(3, 2, 3, 3), bias=(3,))
    yield from variations("sizes", [wide], dtypes=("float32", "float16"))
    yield from of_one_element(call(input=(1, 1, 1, 1), weight=(1, 1, 1, 1), bias=(1,)))
    yield from beyond_16_bits(
        call({"padding": 1}, input=(1, 2, 130, 260), weight=(2, 2, 3, 3)),
        call(input=(65_537, 1, 2, 2), weight=(1, 1, 2, 2), bias=(1,)),
    )
    yield from variations("attributes", _conv2d_attributes(), dtypes=("float32",))
    combined = {"padding": (1, 0), "stride": (2, 1), "dilation": (1, 2), "groups": 2}
    yield from variations(
        "attributes", [call(combined, input=(1, 4, 8, 9), weight=(4, 2, 3, 2), bias=(4,))], dtypes=("float16", "int32")
    )
    narrow = [
        call({"groups": 3}, input=(2, 3, 6, 7), weight=(6, 1, 3, 2), bias=(6,)),  # two results of each channel
        call({"stride": (2, 3)}, input=(2, 3, 7, 8), weight=(4, 3, 1, 1), bias=(4,)),  # more than a matrix product
        call({"padding": (1, 2)}, input=(2, 3, 4, 5), weight=(4, 3, 1, 1), bias=(4,)),
    ]
    yield from variations("attributes", narrow, dtypes=("float32", "float16"))
    yield from accumulator([call({"padding": 1}, input=(1, 9, 6, 5), weight=(3, 9, 3, 3), bias=(3,))])
    yield from integer_exact([*calls, call(input=(1, 65, 5, 6), weight=(3, 65, 4, 4), bias=(3,))])
    yield from zero_mean([call({"padding": 1}, input=(1, 65, 9, 9), weight=(17, 65, 4, 4))])
    yield from error_samples(
        call(input=(1, 4, 9, 9), weight=(3, 2, 3, 3)),
        call({"groups": 2}, input=(1, 4, 9, 9), weight=(3, 2, 3, 3)),
        call(input=(1, 4, 9, 2), weight=(3, 4, 3, 3)),
        call(input=(1, 4, 9, 9), weight=(3, 4, 3, 3), bias=(1, 3)),
        call({"padding": "same", "stride": 2}, input=(1, 4, 9, 9), weight=(3, 4, 3, 3)),
        call({"dilation": 0}, input=(1, 4, 9, 9), weight=(3, 4, 3, 3)),
    )
    resnet = call({"padding": 1}, input=(1, 64, 56, 56), weight=(64, 64, 3, 3))
    yield from variations("long", [resnet], dtypes=MAIN_FLOATS, tier=Tier.FULL)
    yield from variations("long", [call(input=(1, 512, 7, 7), weight=(8, 512, 4, 4))], dtypes=("float32", "float16"))
    last = {"shape": [2, 4, 5, 6], "strides": [120, 1, 24, 4]}
    # Libraries have separate kernels for these.
    special_forms = [
        call({"groups": 4, "dilation": 2, "padding": 2}, input=(1, 4, 7, 8), weight=(4, 1, 3, 3), bias=(4,)),
        call({"groups": 4, "padding": (0, 1)}, input=(2, 4, 1, 9), weight=(4, 1, 1, 3), bias=(4,)),
        call({"stride": 2, "padding": 3}, input=(1, 3, 12, 13), weight=(4, 3, 7, 7), bias=(4,)),
        call({"stride": 2, "padding": 2}, input=(1, 3, 9, 8), weight=(4, 3, 5, 5)),
        call({"dilation": 2, "padding": 2}, input=(1, 3, 7, 8), weight=(4, 3, 3, 3)),
        call(input=(1, 2, 3, 21), weight=(2, 2, 2, 19)),
        call({"groups": 2, "padding": 1}, input=last, weight=(6, 2, 3, 3), bias=(6,)),
    ]
    yield from variations("attributes", special_forms, dtypes=("float32", "float16"))


def conv3d_samples() -> Iterator[Sample]:
    # Fewer than for conv2d: a third dimension adds only a stride, a padding and a dilation.
    plain = call(input=(2, 3, 5, 4, 6), weight=(4, 3, 2, 3, 2), bias=(4,))
    calls = [
        plain,
        call({"padding": (1, 0, 2), "stride": (2, 1, 2)}, input=(1, 3, 6, 5, 7), weight=(4, 3, 3, 2, 4), bias=(4,)),
        call({"padding": 1, "dilation": (1, 2, 1), "groups": 2}, input=(1, 4, 4, 6, 5), weight=(6, 2, 2, 3, 3)),
    ]
    yield from standard_samples(
        calls,
        NUMBERS,
        sized=lambda n: call({"padding": 1}, input=(1, 2, 3, 4, n), weight=(3, 2, 2, 3, 3), bias=(3,)),
        sizes=(1, 2, 7, 16, 17, 33, 65),
        special=False,
    )
    yield from _special(calls)
    wide = call({"padding": 1}, input=(1, 2, 3, 4, 257), weight=(3, 2, 2, 3, 3), bias=(3,))
    yield from variations("sizes", [wide], dtypes=("float32", "float16"))
    yield from of_one_element(call(input=(1, 1, 1, 1, 1), weight=(1, 1, 1, 1, 1), bias=(1,)))
    unequal = {"padding": (0, 1, 2), "stride": (1, 2, 3), "dilation": (3, 1, 2)}
    attributes = [
        call({"padding": (1, 0, 0)}, input=(1, 2, 4, 4, 4), weight=(3, 2, 3, 3, 3)),
        call({"padding": (0, 1, 0)}, input=(1, 2, 4, 4, 4), weight=(3, 2, 3, 3, 3)),
        call({"padding": (0, 0, 1)}, input=(1, 2, 4, 4, 4), weight=(3, 2, 3, 3, 3)),
        call({"stride": (2, 1, 3)}, input=(1, 2, 7, 7, 7), weight=(3, 2, 2, 2, 2), bias=(3,)),
        call({"dilation": (1, 2, 3)}, input=(1, 2, 7, 7, 7), weight=(3, 2, 2, 2, 2)),
        call(unequal, input=(1, 4, 7, 6, 8), weight=(4, 4, 2, 3, 2), bias=(4,)),
        call({"groups": 2}, input=(1, 4, 4, 4, 4), weight=(6, 2, 2, 2, 2), bias=(6,)),
        call({"padding": "same"}, input=(1, 2, 4, 5, 6), weight=(3, 2, 2, 3, 4)),
        call({"padding": "valid"}, input=(1, 2, 4, 5, 6), weight=(3, 2, 2, 3, 4)),
        call({"padding": (1, 0, 2, 0, 1, 3)}, input=(1, 2, 4, 5, 6), weight=(3, 2, 2, 3, 4)),  # before, then after
        call(input=(3, 5, 4, 6), weight=(4, 3, 2, 3, 2), bias=(4,)),  # without a batch
        call(input=(0, 3, 5, 4, 6), weight=(4, 3, 2, 3, 2), bias=(4,)),
        call(input=(1, 3, 4, 5, 6), weight=(2, 3, 4, 5, 6)),
        call({"groups": 6, "padding": 1}, input=(2, 6, 4, 5, 3), weight=(6, 1, 3, 3, 2), bias=(6,)),  # one for each
        call({"groups": 3}, input=(3, 6, 2, 3, 4), weight=(9, 2, 1, 1, 1), bias=(9,)),
        call({"stride": (2, 3, 1)}, input=(5, 3, 4, 5, 3), weight=(4, 3, 1, 1, 1), bias=(4,)),
        call({"padding": "same", "dilation": (1, 2, 1)}, input=(1, 2, 4, 5, 6), weight=(3, 2, 2, 3, 3)),
        call({"groups": 3, "dilation": 2, "padding": 2}, input=(1, 3, 4, 5, 6), weight=(3, 1, 2, 3, 3), bias=(3,)),
        call({"groups": 3}, input=(2, 3, 4, 5, 3), weight=(6, 1, 2, 3, 2), bias=(6,)),  # two results of each channel
        call({"padding": (1, 2, 0)}, input=(1, 3, 2, 3, 4), weight=(4, 3, 1, 1, 1), bias=(4,)),
    ]
    yield from variations("attributes", attributes, dtypes=("float32",))
    yield from variations("sizes", _volumes(), dtypes=("float32",))
    yield from accumulator([call({"padding": 1}, input=(1, 5, 3, 4, 5), weight=(3, 5, 3, 2, 3), bias=(3,))])
    yield from integer_exact([*calls, call(input=(1, 65, 3, 3, 4), weight=(3, 65, 2, 2, 3), bias=(3,))])
    yield from zero_mean([call({"padding": 1}, input=(1, 33, 4, 5, 5), weight=(9, 33, 2, 3, 3))])
    yield from error_samples(
        call(input=(1, 4, 5, 5, 5), weight=(3, 2, 3, 3, 3)),
        call(input=(1, 4, 5, 5, 2), weight=(3, 4, 3, 3, 3)),
        call(input=(1, 4, 5, 5, 5), weight=(3, 4, 3, 3, 3), bias=(4,)),
        call({"stride": 0}, input=(1, 4, 5, 5, 5), weight=(3, 4, 3, 3, 3)),
    )
    yield from variations(
        "long", [call(input=(1, 257, 3, 4, 4), weight=(4, 257, 2, 2, 4))], dtypes=("float32", "float16")
    )


def _volumes() -> Iterator[dict[str, Any]]:
    """Yield calls of conv3d with depth, height and channels around tiles, and beyond the range of 16 bits."""
    for size in (15, 17, 33):
        yield call({"padding": 1}, input=(1, 2, size, 3, 4), weight=(2, 2, 3, 2, 3), bias=(2,))
        yield call({"padding": 1}, input=(1, 2, 3, size, 4), weight=(2, 2, 2, 3, 3), bias=(2,))
        yield call(input=(1, 2, 3, 3, 3), weight=(size, 2, 2, 2, 2), bias=(size,))
        yield call(input=(1, size, 3, 3, 3), weight=(2, size, 2, 2, 2))
    yield call(input=(1, 2, 2, 3, 3), weight=(67, 2, 2, 2, 2), bias=(67,))
    yield call({"padding": 1}, input=(1, 1, 18, 41, 47), weight=(2, 1, 3, 3, 3))
    yield call(input=(65_537, 1, 1, 2, 2), weight=(1, 1, 1, 2, 2), bias=(1,))


def _conv2d_attributes() -> Iterator[dict[str, Any]]:
    yield from _combinations(
        [(1, 1), (1, 2), (3, 1)],
        [(0, 0), (1, 0), (0, 2)],
        [(1, 1), (2, 1)],
        [1, 2],
        input=(1, 4, 9, 8),
        weight=(4, 4, 2, 3),
    )
    yield call({"padding": "same"}, input=(1, 2, 7, 7), weight=(3, 2, 4, 2))  # the odd zero comes last
    yield call({"padding": "same", "dilation": (2, 1)}, input=(1, 2, 7, 7), weight=(3, 2, 4, 3), bias=(3,))
    yield call({"padding": "valid"}, input=(1, 2, 7, 7), weight=(3, 2, 3, 3))
    yield call({"padding": (2, 1, 0, 3)}, input=(1, 2, 7, 7), weight=(3, 2, 4, 3), bias=(3,))  # before, then after
    yield call({"padding": (0, 1, 1, 2), "stride": (2, 1)}, input=(1, 2, 7, 6), weight=(3, 2, 3, 2))
    yield call({"padding": 3}, input=(1, 2, 2, 3), weight=(3, 2, 3, 3), bias=(3,))  # some positions see only zeros
    yield call({"groups": 6, "padding": 1}, input=(2, 6, 7, 8), weight=(6, 1, 3, 3), bias=(6,))  # one for each channel
    yield call({"groups": 3}, input=(1, 6, 5, 5), weight=(9, 2, 1, 1), bias=(9,))
    yield call(input=(3, 7, 9), weight=(4, 3, 3, 2), bias=(4,))  # without a batch
    yield call(input=(0, 3, 7, 9), weight=(4, 3, 3, 2), bias=(4,))
    yield call(input=(4, 4, 4, 4), weight=(4, 4, 1, 1), bias=(4,))  # the bias would fit every dimension
    yield call({"stride": 4}, input=(1, 3, 9, 9), weight=(2, 3, 4, 4))
    yield call(input=(1, 3, 5, 5), weight=(2, 3, 5, 5))


def _combinations(
    strides: list[tuple[int, ...]],
    paddings: list[tuple[int, ...]],
    dilations: list[tuple[int, ...]],
    groups: list[int],
    *,
    input: tuple[int, ...],  # noqa: A002
    weight: tuple[int, ...],
) -> Iterator[dict[str, Any]]:
    """Yield a call for each combination of stride, padding and dilation, cycling through ``groups``."""
    for stride, padding, dilation in product(strides, paddings, dilations):
        count = groups[(len(stride) + sum(stride) + sum(padding) + sum(dilation)) % len(groups)]
        attributes = {"stride": stride, "padding": padding, "dilation": dilation, "groups": count}
        yield call(attributes, input=input, weight=(weight[0], input[1] // count, *weight[2:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The window that moves over the input: sizes for each spatial dimension.

    ``padding`` are the zeros before and after, ``out`` is the number of positions, that is the output's size.
    """

    kernel: Shape
    stride: Shape
    dilation: Shape
    padding: tuple[tuple[int, int], ...]
    out: Shape
    groups: int

    @property
    def taps(self) -> int:
        """Number of elements in the kernel."""
        return prod(self.kernel)


def window_of(spec: TensorSpec, weight: TensorSpec, attributes: Attributes, rank: int) -> Window:
    """Return the window of a convolution over ``rank`` spatial dimensions, with or without a batch.

    Raises:
        UnfitArguments: for arguments that torch.nn.functional.conv1d, conv2d and conv3d refuse.
    """
    groups = attributes.get("groups", 1)
    if weight.rank != rank + 2:
        raise UnfitArguments(f"weight is {format_shape(weight.shape)}, expected {rank + 2} dimensions")
    if spec.rank not in (rank + 1, rank + 2):
        raise UnfitArguments(f"input is {format_shape(spec.shape)}, expected {rank + 1} or {rank + 2} dimensions")
    if groups < 1:
        raise UnfitArguments(f"groups is {groups}, expected 1 or more")
    if min(weight.shape) < 1 or weight.shape[0] % groups:
        raise UnfitArguments(
            f"weight is {format_shape(weight.shape)}, expected no size 0 and a multiple of {groups} rows"
        )
    channels = spec.shape[-rank - 1]
    if channels != weight.shape[1] * groups:
        raise UnfitArguments(
            f"input {format_shape(spec.shape)} has {channels} channels, expected {weight.shape[1] * groups}, "
            f"as weight is {format_shape(weight.shape)} with {groups} groups"
        )
    sizes, kernel = spec.shape[-rank:], weight.shape[-rank:]
    stride = _per_dimension("stride", attributes.get("stride", (1,)), rank, least=1)
    dilation = _per_dimension("dilation", attributes.get("dilation", (1,)), rank, least=1)
    spans = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
    padding = _conv_padding(attributes.get("padding", (0,)), spans, stride, rank)
    padded = tuple(size + sum(pad) for size, pad in zip(sizes, padding, strict=True))
    if any(size < span for size, span in zip(padded, spans, strict=True)):
        raise UnfitArguments(
            f"weight spans {format_shape(spans)}, expected at most the padded input {format_shape(padded)}"
        )
    out = tuple((size - span) // step + 1 for size, span, step in zip(padded, spans, stride, strict=True))
    return Window(kernel=kernel, stride=stride, dilation=dilation, padding=padding, out=out, groups=groups)


def _conv_padding(padding: Sequence[int] | str, spans: Shape, stride: Shape, rank: int) -> tuple[tuple[int, int], ...]:
    """Return the zeros before and after each spatial dimension.

    ``padding`` is "valid", "same", one number, one per dimension, or all numbers before, then all after. ``spans`` are
    the sizes of the dilated kernel.
    """
    if padding == "valid":
        return ((0, 0),) * rank
    if padding == "same":
        if any(step != 1 for step in stride):
            raise UnfitArguments(
                f"padding is 'same' with stride {list(stride)}, expected stride 1; write padding as numbers"
            )
        # As in torch, an odd zero is at the end.
        return tuple(((span - 1) // 2, span - 1 - (span - 1) // 2) for span in spans)
    if isinstance(padding, str):
        raise UnfitArguments(f"padding is {padding!r}, expected 'same', 'valid' or numbers")
    if len(padding) == 2 * rank and min(padding) >= 0:
        return tuple(zip(padding[:rank], padding[rank:], strict=True))
    return tuple((pad, pad) for pad in _per_dimension("padding", padding, rank, least=0))


def _per_dimension(name: str, values: Sequence[int], rank: int, *, least: int) -> Shape:
    """Return a value for each spatial dimension from one or ``rank`` of them, all ``least`` or more."""
    if len(values) not in (1, rank) or min(values) < least:
        expected = "one number" if rank == 1 else f"one number or {rank}"
        raise UnfitArguments(f"{name} is {list(values)}, expected {expected} of {least} or more")
    return tuple(values) * (rank // len(values))
