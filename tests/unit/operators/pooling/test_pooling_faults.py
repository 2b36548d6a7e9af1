"""The samples of the poolings find faults of every kind, and nothing in kernels that are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import wrong_answers

from optest.numerics import dtype_of, round_to, widen
from optest.operators.arrays import spec_of
from optest.operators.pooling.pooling import adaptive_windows_of, windows_of

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]


def working(array: Any) -> Any:
    wide = widen(np.asarray(array))
    return wide if wide.dtype.kind in "iu" or np.asarray(array).dtype == np.float64 else wide.astype(np.float32)


def windows_over(x: Any, attributes: Attributes, fault: str, outside: Any) -> Any:
    """(…, positions, elements of a window), with ``outside`` where there is no input; the shape is right."""
    walk = windows_of(spec_of(x), attributes)
    stride, dilation, kernel = walk.stride, walk.dilation, walk.kernel
    padding = tuple(before for before, _ in walk.padding)
    if fault == "stride is 1":
        stride = (1, 1)
    if fault == "stride swapped":
        stride = stride[::-1]
    if fault == "padding swapped":
        padding = padding[::-1]
    if fault == "padding on one side":
        padding = (0, 0)
    if fault == "dilation ignored":
        dilation = (1, 1)
    if fault == "kernel swapped":
        kernel = kernel[::-1]
    if fault == "last row of the window is lost" and kernel[0] > 1:
        kernel = (kernel[0] - 1, kernel[1])
    seen = working(x)
    rank = seen.ndim - 2
    for axis in (0, 1):
        steps = np.arange(walk.out[axis]) * stride[axis]
        places = np.add.outer(steps, np.arange(kernel[axis]) * dilation[axis]) - padding[axis]
        where = rank + 2 * axis
        size = seen.shape[where]
        inside = ((places >= 0) & (places < size)).reshape(*places.shape, *(1,) * (1 - axis))
        seen = np.where(inside, np.take(seen, np.clip(places, 0, size - 1), axis=where), outside)
    seen = seen.swapaxes(-2, -3)
    return seen.reshape(*seen.shape[:-2], seen.shape[-1] * seen.shape[-2])


def max_pool(inputs: Sequence[Any], attributes: Attributes, fault: str = "") -> Any:
    x = np.asarray(inputs[0])
    wide = working(x)
    lowest: Any = np.iinfo(wide.dtype).min if wide.dtype.kind in "iu" else -np.inf
    if fault == "padding is 0":
        lowest = 0
    if fault == "padding is the largest negative" and wide.dtype.kind == "f":
        lowest = -1.0
    if fault == "ceil_mode only in the shape":
        out = windows_of(spec_of(x), {**attributes, "ceil_mode": False}).out
        total = windows_over(x, attributes, fault, lowest).max(-1)
        total[..., out[0] :, :], total[..., out[1] :] = 0, 0
        return total
    seen = windows_over(x, attributes, fault, lowest)
    if fault == "NaN is passed over":
        return np.fmax.reduce(seen, axis=-1)
    if fault == "smallest":
        return np.where(seen == lowest, seen.max(-1, keepdims=True), seen).min(-1)
    if fault == "largest magnitude":
        return np.take_along_axis(seen, np.abs(seen).argmax(-1)[..., None], -1)[..., 0]
    return seen.max(-1)


POOLS = (
    "stride is 1",
    "stride swapped",
    "padding swapped",
    "padding on one side",
    "kernel swapped",
    "last row of the window is lost",
)
MAXIMA = (
    *POOLS,
    "dilation ignored",
    "padding is 0",
    "padding is the largest negative",
    "ceil_mode only in the shape",
    "NaN is passed over",
    "smallest",
    "largest magnitude",
)


def test_an_honest_max_pool_raises_no_alarm() -> None:
    assert wrong_answers("max_pool2d", max_pool) == []


@pytest.mark.parametrize("fault", MAXIMA)
def test_faulty_max_pools_are_found(fault: str) -> None:
    assert wrong_answers("max_pool2d", lambda inputs, attributes: max_pool(inputs, attributes, fault), first=True)


def in_half(values: Any, x: Any) -> Any:
    """One element after another, each partial sum in the dtype of the input."""
    total = np.zeros(values.shape[:-1])
    for index in range(values.shape[-1]):
        total = widen(round_to((total + values[..., index]).astype(np.float64), dtype_of(np.asarray(x).dtype)))
    return total


def avg_pool(inputs: Sequence[Any], attributes: Attributes, fault: str = "") -> Any:
    x = np.asarray(inputs[0])
    walk = windows_of(spec_of(x), attributes)
    seen = windows_over(x, attributes, fault, 0)
    total = in_half(seen, x) if fault == "16-bit sums" and x.dtype.itemsize == 2 else seen.sum(-1)
    include = attributes["count_include_pad"]
    if fault == "count_include_pad ignored":
        include = True
    if fault == "padding never counts":
        include = False
    counts = [np.array(walk.counts(axis, with_padding=include)) for axis in (0, 1)]
    divisor: Any = np.multiply.outer(*counts).astype(total.dtype)
    if fault == "what lies beyond the padding counts" and include:
        divisor = total.dtype.type(walk.elements)
    if attributes["divisor_override"] is not None and fault != "divisor_override ignored":
        divisor = total.dtype.type(attributes["divisor_override"])
    if fault == "rounded before the division":
        total = widen(round_to(total.astype(np.float64), dtype_of(x.dtype)))
    if fault == "by the reciprocal":
        return total * (total.dtype.type(1) / divisor)
    if fault == "elements divided one by one":
        return (seen / np.broadcast_to(divisor, total.shape)[..., None]).sum(-1)
    return total / divisor


AVERAGES = (
    *POOLS,
    "16-bit sums",
    "count_include_pad ignored",
    "padding never counts",
    "what lies beyond the padding counts",
    "divisor_override ignored",
    "rounded before the division",
)


@pytest.mark.parametrize("way", ["", "by the reciprocal", "elements divided one by one"])
def test_an_honest_avg_pool_raises_no_alarm(way: str) -> None:
    assert wrong_answers("avg_pool2d", lambda inputs, attributes: avg_pool(inputs, attributes, way)) == []


@pytest.mark.parametrize("fault", AVERAGES)
def test_faulty_avg_pools_are_found(fault: str) -> None:
    assert wrong_answers("avg_pool2d", lambda inputs, attributes: avg_pool(inputs, attributes, fault), first=True)


def adaptive(inputs: Sequence[Any], attributes: Attributes, fault: str = "") -> Any:
    x = np.asarray(inputs[0])
    walk = adaptive_windows_of(spec_of(x), attributes)
    wide, starts, ends = working(x), list(walk.starts), list(walk.ends)
    if fault == "sizes swapped" and len(starts[0]) != len(starts[1]):
        return np.resize(adaptive(inputs, {"output_size": walk.out[::-1]}), (*x.shape[:-2], *walk.out))
    for axis in (0, 1):
        size, count = x.shape[x.ndim - 2 + axis], len(starts[axis])
        if fault == "windows of one size" and count:
            length = -(-size // count)
            starts[axis] = tuple(min(i * length, size - 1) for i in range(count))
            ends[axis] = tuple(min(start + length, size) for start in starts[axis])
        if fault == "ends rounded down":
            pairs = zip(starts[axis], range(count), strict=True)
            ends[axis] = tuple(max(start + 1, (i + 1) * size // count) for start, i in pairs)
    out = np.zeros((*x.shape[:-2], *walk.out), wide.dtype)
    for i, (top, bottom) in enumerate(zip(starts[0], ends[0], strict=True)):
        for j, (left, right) in enumerate(zip(starts[1], ends[1], strict=True)):
            seen = wide[..., top:bottom, left:right].reshape(*x.shape[:-2], (bottom - top) * (right - left))
            total = in_half(seen, x) if fault == "16-bit sums" and x.dtype.itemsize == 2 else seen.sum(-1)
            divisor = seen.shape[-1]
            if fault == "one divisor for all":
                divisor = x.shape[-1] * x.shape[-2] // max(1, out.shape[-1] * out.shape[-2]) or 1
            out[..., i, j] = total / wide.dtype.type(divisor)
    return out


def test_an_honest_adaptive_pool_raises_no_alarm() -> None:
    assert wrong_answers("adaptive_avg_pool2d", adaptive) == []


@pytest.mark.parametrize(
    "fault", ["windows of one size", "ends rounded down", "one divisor for all", "16-bit sums", "sizes swapped"]
)
def test_faulty_adaptive_pools_are_found(fault: str) -> None:
    def kernel(inputs: Sequence[Any], attributes: Attributes) -> Any:
        return adaptive(inputs, attributes, fault)

    assert wrong_answers("adaptive_avg_pool2d", kernel, first=True)
