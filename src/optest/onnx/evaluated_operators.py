"""Operators that ONNX's evaluator 1.23 gets wrong, or in float32 where float64 is given; these stand in for its own.

Source of the formulas: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from optest.operators.real_functions import erf

__all__ = ["OPERATORS"]


class Erf(OpRun):  # its own yields float32
    op_domain = ""

    def _run(self, x: Any) -> tuple[Any]:
        return (_erf(x),)


class Gelu(OpRun):  # its own has constants of float32
    op_domain = ""

    def _run(self, x: Any, approximate: str | None = None) -> tuple[Any]:
        half, one, cubic = (x.dtype.type(each) for each in (0.5, 1, 0.044715))
        if approximate == "tanh":
            return (half * x * (one + np.tanh(x.dtype.type(np.sqrt(2 / np.pi)) * (x + cubic * x * x * x))),)
        return (half * x * (one + _erf(x / x.dtype.type(np.sqrt(2)))),)


class GatherElements(OpRun):  # its own takes 64 rows at most
    op_domain = ""

    def _run(self, data: Any, indices: Any, axis: int = 0) -> tuple[Any]:
        sizes = [*indices.shape]
        sizes[axis] = data.shape[axis]
        inside = tuple(slice(size) for size in sizes)
        return (np.take_along_axis(data[inside], indices, axis),)


class LRN(OpRun):  # its own sums over as many channels as there are samples
    op_domain = ""

    def _run(self, x: Any, alpha: float, beta: float, bias: float, size: int) -> tuple[Any]:
        before, channels = (size - 1) // 2, x.shape[1]
        spans = (slice(max(0, each - before), each - before + size) for each in range(channels))
        sums = np.stack([np.sum(np.square(x[:, each]), axis=1) for each in spans], axis=1)
        return ((x / (bias + alpha / size * sums) ** beta).astype(x.dtype),)


def _erf(x: Any) -> Any:
    return erf(x).astype(x.dtype)


OPERATORS: list[Any] = [Erf, Gelu, GatherElements, LRN]
