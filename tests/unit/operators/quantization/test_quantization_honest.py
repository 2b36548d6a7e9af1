"""The samples of quantization have nothing against kernels that compute in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import wrong_answers

from optest.numerics import widen
from optest.spec import dtype

Array = np.ndarray[Any, Any]
FLOAT = np.float32
NO_ZERO = np.zeros((), np.int64)


def along(parameter: Array, array: Array, axis: int) -> Array:
    if parameter.size == 1:
        return widen(parameter).reshape(())
    return widen(parameter).reshape([-1 if each == axis % array.ndim else 1 for each in range(array.ndim)])


@pytest.mark.parametrize("quotient", [lambda x, s: x / s, lambda x, s: x * (FLOAT(1) / s)], ids=["divided", "inverse"])
def test_quantize(quotient: Callable[[Array, Array], Array]) -> None:
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
def test_dequantize(difference: Callable[[Array, Array], Array]) -> None:
    def kernel(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Array:
        array, scale, zero_point = (*inputs, None)[:3]
        s = along(scale, array, attributes["axis"]).astype(FLOAT)
        z = NO_ZERO if zero_point is None else along(zero_point, array, attributes["axis"])
        return difference(widen(array).astype(np.int64), z.astype(np.int64)) * s

    assert wrong_answers("dequantize", kernel) == []
