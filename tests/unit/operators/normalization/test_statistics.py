"""layer_norm's further outputs and what causal_softmax may leave where a row does not see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optest.operators import operators
from optest.operators.normalization.layer_norm_reference import layer_norm_reference, layer_norm_terms
from optest.operators.normalization.softmax_reference import causal_softmax_alternatives, causal_softmax_reference
from optest.registry import load_object
from optest.spec import TensorSpec, dtype

LAYER_NORM = operators.get("layer_norm")


def attributes(**stated: Any) -> dict[str, Any]:
    return LAYER_NORM.bind({"normalized_shape": [6], **stated})


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (6,), (0, 6)])
def test_three_outputs_with_statistics_and_one_without(shape: tuple[int, ...]) -> None:
    infer = load_object(str(LAYER_NORM.infer))
    specs = [TensorSpec(dtype=dtype("float16"), shape=shape), None, None]
    assert [each.shape for each in infer(specs, attributes())] == [shape]
    found = infer(specs, attributes(statistics=True))
    assert [(each.shape, each.dtype.name) for each in found] == [
        (shape, "float16"),
        (shape, "float16"),
        (shape[:-1], "float16"),
    ]
    x = np.ones(shape, np.float16)
    assert [each.shape for each in layer_norm_reference((x,), attributes(statistics=True))] == [
        each.shape for each in found
    ]
    assert [np.shape(each.worst) for each in layer_norm_terms((x,), attributes(statistics=True))] == [
        each.shape for each in found
    ]


def test_statistics_are_those_of_the_rows() -> None:
    x = np.random.default_rng(0).normal(3.0, 2.0, (5, 6)).astype(np.float32)
    weight, bias = np.arange(6, dtype=np.float32), np.full(6, 2.0, np.float32)
    out, standardization, std = layer_norm_reference((x, weight, bias), attributes(eps=0.5, statistics=True))
    wide = x.astype(np.float64)
    deviation = np.sqrt(wide.var(-1) + 0.5)
    assert np.allclose(std, deviation, rtol=1e-14)
    assert np.allclose(standardization, (wide - wide.mean(-1, keepdims=True)) / deviation[:, None], rtol=1e-12)
    assert np.allclose(out, standardization * weight + bias, rtol=1e-12)


def test_a_wrong_divisor_is_far_outside_of_the_budget_and_float32_within() -> None:
    x = np.random.default_rng(1).normal(0.0, 1.0, (50, 37)).astype(np.float32)
    stated = LAYER_NORM.bind({"normalized_shape": [37], "statistics": True})
    _, _, std = layer_norm_reference((x,), stated)
    budget = layer_norm_terms((x,), stated)[2]
    unit = 2.0**-24
    assert (np.abs(np.sqrt(x.astype(np.float64).var(-1, ddof=1) + 1e-5) - std) > 20 * unit * budget.worst).all()
    single = np.sqrt(x.var(-1) + np.float32(1e-5))
    assert single.dtype == np.float32
    error = np.abs(single.astype(np.float64) - std)
    assert (error <= unit * budget.worst).all()
    assert np.sqrt((error**2).mean() / ((unit * unit) * np.asarray(budget.variance)).mean()) < 1.0


def test_what_a_row_does_not_see_is_0_or_nan_beside_nan() -> None:
    x = np.array([[np.nan, 1.0, 2.0], [0.5, 1.0, np.nan], [0.0, 1.0, 2.0]], np.float32)
    (right,) = causal_softmax_reference((x,), {})
    assert np.isnan(right[0, 0])
    assert right[0, 1:].tolist() == [0.0, 0.0]
    assert right[1, 2] == 0.0
    spread = right.copy()
    spread[0] = np.nan
    (mask,) = causal_softmax_alternatives((x,), {}, (spread,))
    assert mask.tolist() == [[False, True, True], [False] * 3, [False] * 3]
    spread[1] = np.nan
    (mask,) = causal_softmax_alternatives((x,), {}, (spread,))
    assert not mask[1].any()
