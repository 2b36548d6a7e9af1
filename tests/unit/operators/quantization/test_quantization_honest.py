"""Samples of quantization operators pass for correct kernels in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from sample_questions import wrong_answers

from optest.numerics import widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import dtype

Array = np.ndarray[Any, Any]
FLOAT = np.float32
NO_ZERO = np.zeros((), np.int64)


def along(parameter: Array, array: Array, axis: int) -> Array:
    if parameter.size == 1:
        return widen(parameter).reshape(())
    return widen(parameter).reshape([-1 if i == axis % array.ndim else 1 for i in range(array.ndim)])


@pytest.mark.parametrize("quotient", [lambda x, s: x / s, lambda x, s: x * (FLOAT(1) / s)], ids=["divided", "inverse"])
def test_quantize_variants_pass(quotient: Callable[[Array, Array], Array]) -> None:
    def kernel(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Array:
        array, scale, zero_point = (*inputs, None)[:3]
        x, s = widen(array).astype(FLOAT), along(scale, array, attributes["axis"]).astype(FLOAT)
        z = NO_ZERO if zero_point is None else along(zero_point, array, attributes["axis"])
        result = dtype(attributes["dtype"] or ("uint8" if zero_point is None else zero_point.dtype.name))
        least, most = attributes["quant_min"], attributes["quant_max"]
        least, most = result.min_int if least is None else least, result.max_int if most is None else most
        return np.clip(np.rint(quotient(x, s)).astype(np.float64) + z, least, most).astype(np.int64)

    assert wrong_answers("quantize", kernel) == []


@pytest.mark.parametrize(
    "difference",
    [lambda q, z: (q - z).astype(FLOAT), lambda q, z: q.astype(FLOAT) - z.astype(FLOAT)],
    ids=["of integers", "of floats"],
)
def test_dequantize_variants_pass(difference: Callable[[Array, Array], Array]) -> None:
    def kernel(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Array:
        array, scale, zero_point = (*inputs, None)[:3]
        s = along(scale, array, attributes["axis"]).astype(FLOAT)
        z = NO_ZERO if zero_point is None else along(zero_point, array, attributes["axis"])
        return difference(widen(array).astype(np.int64), z.astype(np.int64)) * s

    assert wrong_answers("dequantize", kernel) == []


def int8_rows(inputs: Sequence[Any], attributes: Mapping[str, Any], variant: str) -> tuple[Any, ...]:
    x = np.asarray(inputs[0]).astype(np.float32)
    largest = np.maximum(np.abs(x).max(-1, keepdims=True, initial=0), np.float32(attributes["eps"]))
    scale = largest / np.float32(127)
    divisor = np.where(scale == 0, np.float32(1), scale)
    if variant == "divided":
        return np.rint(x / divisor).astype(np.int8), scale
    if variant == "by the inverse of the scale":
        return np.rint(x * (np.float32(1) / divisor)).astype(np.int8), largest * np.float32(1 / 127)
    quotient = x * np.where(largest == 0, np.float32(0), np.float32(127) / largest)
    away = np.trunc(quotient + np.copysign(np.float32(0.5), quotient))  # ties away from 0, as libdevice's round
    return np.clip(away, -127, 127).astype(np.int8), scale


@pytest.mark.parametrize("variant", ["divided", "by the inverse of the scale", "ties away from 0"])
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.heavy)])
def test_int8_per_token_variants_pass(variant: str, seed: int) -> None:
    assert wrong_answers("per_token_quant_int8", lambda *call: int8_rows(*call, variant), seed) == []


@pytest.mark.parametrize(("shape", "raises"), [((3, 0), True), ((0, 3, 0), True), ((0, 5), False), ((3, 5), False)])
def test_int8_per_token_may_refuse_empty_rows(shape: tuple[int, ...], raises: bool) -> None:
    # amax of an empty row raises; a result is accepted as well, and no other shape may be refused.
    rows = np.zeros(shape, np.float32)
    with pytest.raises(ValueError, match="zero-size") if raises else nullcontext():
        np.abs(rows).max(-1)
    why = load_object(operators.get("per_token_quant_int8").may_refuse)([rows], {"eps": 1e-10})
    assert ("no largest magnitude" in why) is raises
