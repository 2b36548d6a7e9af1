"""The samples of the poolings have nothing against kernels that compute in float32."""

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
    """(…, positions, elements of a window), with ``outside`` where there is no input."""
    walk = windows_of(spec_of(x), attributes)
    seen = working(x)
    rank = seen.ndim - 2
    for axis in (0, 1):
        steps = np.arange(walk.out[axis]) * walk.stride[axis]
        places = np.add.outer(steps, np.arange(walk.kernel[axis]) * walk.dilation[axis]) - walk.padding[axis][0]
        where = rank + 2 * axis
        size = seen.shape[where]
        inside = ((places >= 0) & (places < size)).reshape(*places.shape, *(1,) * (1 - axis))
        seen = np.where(inside, np.take(seen, np.clip(places, 0, size - 1), axis=where), outside)
    seen = seen.swapaxes(-2, -3)
    return seen.reshape(*seen.shape[:-2], seen.shape[-1] * seen.shape[-2])


def max_pool(inputs: Inputs, attributes: Attributes) -> Any:
    kind = working(inputs[0]).dtype
    return windows_over(inputs[0], attributes, np.iinfo(kind).min if kind.kind in "iu" else -np.inf).max(-1)


def test_max_pool() -> None:
    assert wrong_answers("max_pool2d", max_pool) == []


def avg_pool(inputs: Inputs, attributes: Attributes, way: str) -> Any:
    seen = windows_over(inputs[0], attributes, 0)
    walk = windows_of(spec_of(inputs[0]), attributes)
    counts = [np.array(walk.counts(axis, with_padding=attributes["count_include_pad"])) for axis in (0, 1)]
    divisor: Any = np.multiply.outer(*counts).astype(seen.dtype)
    if attributes["divisor_override"] is not None:
        divisor = seen.dtype.type(attributes["divisor_override"])
    if way == "by the reciprocal":
        return seen.sum(-1) * (seen.dtype.type(1) / divisor)
    if way == "elements divided one by one":
        return (seen / np.broadcast_to(divisor, seen.shape[:-1])[..., None]).sum(-1)
    return seen.sum(-1) / divisor


@pytest.mark.parametrize("way", ["the sum divided", "by the reciprocal", "elements divided one by one"])
def test_avg_pool(way: str) -> None:
    assert wrong_answers("avg_pool2d", lambda inputs, attributes: avg_pool(inputs, attributes, way)) == []


def adaptive(inputs: Inputs, attributes: Attributes) -> Any:
    walk = adaptive_windows_of(spec_of(inputs[0]), attributes)
    x = working(inputs[0])
    out = np.zeros((*x.shape[:-2], *walk.out), x.dtype)
    for i, (top, bottom) in enumerate(zip(walk.starts[0], walk.ends[0], strict=True)):
        for j, (left, right) in enumerate(zip(walk.starts[1], walk.ends[1], strict=True)):
            out[..., i, j] = x[..., top:bottom, left:right].sum((-1, -2)) / x.dtype.type(
                (bottom - top) * (right - left)
            )
    return out


def test_adaptive_avg_pool() -> None:
    assert wrong_answers("adaptive_avg_pool2d", adaptive) == []
