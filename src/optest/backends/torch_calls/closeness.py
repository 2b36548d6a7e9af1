"""Which results are as right as the reference's where no rule knows the condition of a function.

Every input, and every gradient from above, is moved by one rounding of its dtype, up or down, some times over. What
that changes in float64, no arithmetic of that dtype can be asked to know better: an implementation that is stable gives
the exact result of inputs that differ so little.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from optest.backends.torch_calls.arrays import as_array
from optest.backends.torch_calls.calling import TorchCall, torch_call
from optest.backends.torch_calls.cpu_tensors import WIDE, widened
from optest.backends.torch_calls.expected_gradients import gradients_from_above, in_float64
from optest.backends.torch_calls.gradients import Draw
from optest.backends.torch_calls.scalars import with_rounded_scalars
from optest.backends.torch_calls.upstream import signs
from optest.numerics import Array, dtype_of, widen
from optest.spec import Fault

__all__ = ["as_close_as_inputs_allow"]

_CPU = torch.device("cpu")
_TIMES = 8
_FACTOR = 8.0
"""As many roundings as torch.testing's own tolerance for bfloat16 has room for."""
_FAILS = (RuntimeError, NotImplementedError, TypeError, ValueError, Fault)


def as_close_as_inputs_allow(inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> list[Any]:
    """One mask for each output, results first and then gradients; None where there is nothing to say."""
    call = torch_call(attributes["call"])
    made = partial(_gradients if attributes.get("grad") else _results, with_rounded_scalars(call, inputs))
    wide, units = widened(inputs), [_unit(array) for array in inputs]
    try:
        true = made(wide, gradients_from_above(call, inputs))
        others = [made(*_moved(call, inputs, units, time)) for time in range(_TIMES)]
    except _FAILS:
        return [None] * len(actual)
    if len(true) != len(actual):
        return [None] * len(actual)
    return [_mask(np.asarray(got), true[place], [each[place] for each in others]) for place, got in enumerate(actual)]


def _unit(array: Array) -> float:
    entry = dtype_of(array.dtype)
    return entry.unit_roundoff if entry.is_inexact else 0.0


def _moved(
    call: TorchCall, inputs: Sequence[Any], units: Sequence[float], time: int
) -> tuple[list[torch.Tensor], Draw]:
    """The inputs and gradients from above, each element off by one rounding."""
    draw = gradients_from_above(call, inputs)
    tensors = [
        each if not unit else each * (1.0 + unit * signs(f"{time}/{index}", each.shape))
        for index, (each, unit) in enumerate(zip(widened(inputs), units, strict=True))
    ]
    coarsest = max(units, default=0.0)

    def above(number: int, output: torch.Tensor) -> torch.Tensor:
        return draw(number, output) * (1.0 + coarsest * signs(f"{time}/above{number}", output.shape))

    return tensors, above


def _results(call: TorchCall, tensors: Sequence[torch.Tensor], _: Draw) -> list[Array]:
    with torch.no_grad():
        return [as_array(each) for each in call.on(tensors, _CPU, dtypes=WIDE)()]


def _gradients(call: TorchCall, tensors: Sequence[torch.Tensor], draw: Draw) -> list[Array]:
    found = in_float64(call, tensors, draw)
    leaves: list[Any] = [*found.leaves, torch.tensor(found.has_gradient()), *found.dense(tensors)]
    return [as_array(each) for each in leaves]


def _mask(got: Array, true: Array, others: Sequence[Array]) -> Array | None:
    entry = dtype_of(got.dtype)
    if not entry.is_inexact or true.dtype not in (np.float64, np.complex128) or got.shape != true.shape:
        return None
    if any(each.shape != true.shape for each in others):
        return None
    with np.errstate(all="ignore"):
        spread = np.sqrt(np.mean([np.abs(each - true) ** 2 for each in others], axis=0))
        spread = np.maximum(spread, _usual(spread))
        error = np.abs(widen(got) - true)
        return np.asarray(error <= _FACTOR * spread + entry.unit_roundoff * np.abs(true))


def _usual(spread: Array) -> float:
    """The median: what rounding leaves of terms that cancel is as large as elsewhere, though no input moves it."""
    finite = spread[np.isfinite(spread)]
    return float(np.median(finite)) if finite.size else 0.0
