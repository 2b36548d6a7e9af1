"""Samples of reductions pass with correct kernels that compute in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import by_reference, wrong_answers

from optest.numerics import widen
from optest.operators.reduction.reduction_reference import input_in_dtype, rows_of, total_in_dtype

Array = np.ndarray[Any, Any]
Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
Kernel = Callable[[Inputs, Attributes], Any]
f4 = np.float32


def row_by_row(kernel: Callable[[Array], Any]) -> Kernel:
    """Return a kernel that applies ``kernel`` to rows (last axis), with dim, keepdim and dtype."""

    def call(inputs: Inputs, attributes: Attributes) -> Any:
        rows = rows_of(input_in_dtype(inputs[0], attributes), attributes)
        return rows.in_output_shape(total_in_dtype(np.asarray(kernel(rows.values)), attributes))

    return call


def in_float32(kernel: Callable[[Array], Any]) -> Kernel:
    """Return a kernel that computes in float32 (float64 for float64) and rounds once at the end."""

    def call(rows: Array) -> Any:
        wide = rows if rows.dtype == np.float64 or rows.dtype.kind in "biu" else widen(rows).astype(f4)
        return kernel(wide)

    return row_by_row(call)


def one_by_one(x: Array) -> Array:
    start = np.zeros((*x.shape[:-1], 1), x.dtype)
    return np.asarray(np.add.accumulate(np.concatenate([start, x], axis=-1), axis=-1, dtype=x.dtype)[..., -1])


def variance_in_two_passes(inputs: Inputs, attributes: Attributes) -> Any:
    def kernel(x: Array) -> Any:
        t = x.dtype.type
        centred = x - (one_by_one(x) / t(x.shape[-1]))[..., None]
        return one_by_one(centred * centred) / t(max(0.0, x.shape[-1] - attributes["correction"]))

    return in_float32(kernel)(inputs, attributes)


def variance_by_updates(inputs: Inputs, attributes: Attributes) -> Any:
    """Return the variance by Welford's algorithm; of long rows the reference."""

    def kernel(x: Array) -> Any:
        t = x.dtype.type
        mean, squares = np.zeros(x.shape[:-1], x.dtype), np.zeros(x.shape[:-1], x.dtype)
        for i in range(x.shape[-1]):
            step = x[..., i] - mean
            mean = mean + step / t(i + 1)
            squares = squares + step * (x[..., i] - mean)
        return squares / t(max(0.0, x.shape[-1] - attributes["correction"]))

    is_long = rows_of(np.asarray(inputs[0]), attributes).length > 5000
    return (by_reference("var") if is_long else in_float32(kernel))(inputs, attributes)


def is_vast(x: Array) -> bool:
    """Return whether squares exceed float32, so that a correct kernel has to scale."""
    finite = np.abs(widen(x)[np.isfinite(widen(x))])
    return x.dtype == f4 and bool((finite > 1e18).any())


def norm_in_float32(inputs: Inputs, attributes: Attributes) -> Any:
    p = attributes["p"]
    if p in (0.0, float("inf"), float("-inf")) or is_vast(inputs[0]):
        return by_reference("norm")(inputs, attributes)
    root = {1.0: lambda x: x, 2.0: np.sqrt}.get(p, lambda x: x ** x.dtype.type(1.0 / p))
    return in_float32(lambda x: root(one_by_one(np.abs(x) ** x.dtype.type(p))))(inputs, attributes)


def logarithm_of_sum(x: Array) -> Any:
    largest = x.max(-1, initial=-np.inf)
    shift = np.where(np.isinf(largest), x.dtype.type(0), largest)
    return shift + np.log(one_by_one(np.exp(x - shift[..., None])))


def running_sum(inputs: Inputs, attributes: Attributes) -> Any:
    x = np.asarray(inputs[0])
    wide = attributes["dtype"] == "float64" or x.dtype == np.float64
    if x.dtype.kind in "biu" or not x.ndim or attributes["dtype"] == "int32":
        return by_reference("cumsum")(inputs, attributes)
    return np.add.accumulate(widen(x).astype(np.float64 if wide else f4), axis=attributes["dim"])


def dot(inputs: Inputs, attributes: Attributes) -> Any:
    if inputs[0].dtype.kind in "iu":
        return by_reference("dot")(inputs, attributes)
    kind = np.float64 if inputs[0].dtype == np.float64 else f4
    return one_by_one(widen(inputs[0]).astype(kind) * widen(inputs[1]).astype(kind))


HONEST: dict[str, tuple[str, Kernel]] = {
    "var in two passes": ("var", variance_in_two_passes),
    "var by updates": ("var", variance_by_updates),
    "norm": ("norm", norm_in_float32),
    "logsumexp": ("logsumexp", in_float32(logarithm_of_sum)),
    "cumsum": ("cumsum", running_sum),
    "sum": ("sum", in_float32(lambda x: x.sum(-1))),
    "sum one by one": ("sum", in_float32(lambda x: one_by_one(x) if x.dtype.kind == "f" else x.sum(-1))),
    "mean one by one": ("mean", in_float32(lambda x: one_by_one(x) / x.dtype.type(x.shape[-1]))),
    "mean by the reciprocal": ("mean", in_float32(lambda x: x.sum(-1) * (x.dtype.type(1) / x.dtype.type(x.shape[-1])))),
    "prod": ("prod", in_float32(lambda x: x.prod(-1))),
    "dot": ("dot", dot),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kernel", HONEST)
def test_correct_kernels_pass(kernel: str) -> None:
    operator, function = HONEST[kernel]
    assert wrong_answers(operator, function) == []
