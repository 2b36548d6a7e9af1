"""Pooling kernels that compute in float32 pass all samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import wrong_answers

from optest.numerics import widen
from optest.operators.arrays import spec_of
from optest.operators.pooling.pooling import adaptive_windows_of, windows_of

Inputs = Sequence[Any]
Attributes = Mapping[str, Any]


def working(array: Any) -> Any:
    wide = widen(np.asarray(array))
    return wide if wide.dtype.kind in "iu" or np.asarray(array).dtype == np.float64 else wide.astype(np.float32)


def windows_over(x: Any, attributes: Attributes, outside: Any) -> Any:
    """Return an array (…, windows, elements of a window), with ``outside`` beyond the input."""
    windows = windows_of(spec_of(x), attributes)
    elements = working(x)
    rank = elements.ndim - 2
    for axis in (0, 1):
        steps = np.arange(windows.out[axis]) * windows.stride[axis]
        indices = (
            np.add.outer(steps, np.arange(windows.kernel[axis]) * windows.dilation[axis]) - windows.padding[axis][0]
        )
        where = rank + 2 * axis
        size = elements.shape[where]
        inside = ((indices >= 0) & (indices < size)).reshape(*indices.shape, *(1,) * (1 - axis))
        elements = np.where(inside, np.take(elements, np.clip(indices, 0, size - 1), axis=where), outside)
    elements = elements.swapaxes(-2, -3)
    return elements.reshape(*elements.shape[:-2], elements.shape[-1] * elements.shape[-2])


def max_pool(inputs: Inputs, attributes: Attributes) -> Any:
    kind = working(inputs[0]).dtype
    return windows_over(inputs[0], attributes, np.iinfo(kind).min if kind.kind in "iu" else -np.inf).max(-1)


def avg_pool(inputs: Inputs, attributes: Attributes, formula: str) -> Any:
    elements = windows_over(inputs[0], attributes, 0)
    windows = windows_of(spec_of(inputs[0]), attributes)
    counts = [np.array(windows.counts(axis, with_padding=attributes["count_include_pad"])) for axis in (0, 1)]
    divisor: Any = np.multiply.outer(*counts).astype(elements.dtype)
    if attributes["divisor_override"] is not None:
        divisor = elements.dtype.type(attributes["divisor_override"])
    if formula == "by the reciprocal":
        return elements.sum(-1) * (elements.dtype.type(1) / divisor)
    if formula == "elements divided one by one":
        return (elements / np.broadcast_to(divisor, elements.shape[:-1])[..., None]).sum(-1)
    return elements.sum(-1) / divisor


@pytest.mark.parametrize("formula", ["the sum divided", "by the reciprocal", "elements divided one by one"])
def test_avg_pool(formula: str) -> None:
    assert wrong_answers("avg_pool2d", lambda *call: avg_pool(*call, formula)) == []


def adaptive(inputs: Inputs, attributes: Attributes) -> Any:
    windows = adaptive_windows_of(spec_of(inputs[0]), attributes)
    x = working(inputs[0])
    out = np.zeros((*x.shape[:-2], *windows.out), x.dtype)
    for i, (top, bottom) in enumerate(zip(windows.starts[0], windows.ends[0], strict=True)):
        for j, (left, right) in enumerate(zip(windows.starts[1], windows.ends[1], strict=True)):
            out[..., i, j] = x[..., top:bottom, left:right].sum((-1, -2)) / x.dtype.type(
                (bottom - top) * (right - left)
            )
    return out


@pytest.mark.parametrize(("operator", "kernel"), [("max_pool2d", max_pool), ("adaptive_avg_pool2d", adaptive)])
def test_right_kernel_passes(operator: str, kernel: Any) -> None:
    assert wrong_answers(operator, kernel) == []
