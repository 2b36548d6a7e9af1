"""Which results are as right as the reference's where no rule knows the condition of a function.

Every input, every gradient from above and every step on the way (:mod:`rounded_steps`) is moved by about one rounding
of the case's dtype, up or down, some times over. What that changes in float64, no arithmetic of that dtype can be asked
to know better: an implementation that is stable gives the exact result of roundings that differ so little. Each element
is asked by itself: that others are larger, or more sensitive, says nothing of this one.

A result may jump or swing within one rounding: the fraction of a whole number, the cosine of 1e9. Then what lies beside
one of those results is as right as it is, and whatever else lies between them shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from optest.backends.torch_calls.arrays import as_array
from optest.backends.torch_calls.calling import TorchCall, torch_call
from optest.backends.torch_calls.cpu_tensors import WIDE, widened
from optest.backends.torch_calls.expected_gradients import gradients_from_above, in_float64
from optest.backends.torch_calls.gradients import Draw
from optest.backends.torch_calls.rounded_steps import RoundedSteps
from optest.backends.torch_calls.scalars import with_rounded_scalars
from optest.backends.torch_calls.upstream import roundings
from optest.numerics import Array, dtype_of, widen
from optest.spec import AsRight, Fault

__all__ = ["as_close_as_inputs_allow"]

_CPU = torch.device("cpu")
_TIMES = ((0, 1.0), (0, -1.0), *((time, 1.0) for time in range(1, 8)))
"""Which roundings are drawn, and their sign: every number is moved up once and down once at least."""

_FACTOR = 8.0
"""As many roundings as torch.testing's own tolerance for bfloat16 has room for."""

_FINE = 1.0 / 64.0
"""Of a rounding: what is smooth changes by so much less, in the same direction."""

_NOT_SMOOTH = 4.0
_DOUBLE, _AROUND_ZERO, _MOST_NOISE = 2.0**-52, 2.0**-40, 2.0**-10
_FAILS = (RuntimeError, NotImplementedError, TypeError, ValueError, Fault)


def as_close_as_inputs_allow(inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> list[Any]:
    """One mask for each output, results first and then gradients; None where there is nothing to say."""
    call = torch_call(attributes["call"])
    units = [_unit(array) for array in inputs]
    asked = _Asked(
        call,
        inputs,
        partial(_gradients if attributes.get("grad") else _results, with_rounded_scalars(call, inputs)),
        units,
        step=max([unit for unit in units if unit] or [_unit(each) for each in actual], default=0.0),
    )
    try:
        true = asked.made(widened(inputs), gradients_from_above(call, inputs))
        apart = _agree(asked.moved(0, 0.0, takes_apart=True), true, _FINE * asked.step)
        coarse = [asked.moved(time, sign, takes_apart=apart) for time, sign in _TIMES]
        fine = [asked.moved(time, sign * _FINE, takes_apart=apart) for time, sign in _TIMES]
        is_asked = attributes.get("grad") and asked.step and any(map(_may_be_zero, true))
        slightest = _DOUBLE / asked.step if is_asked else 0.0
        double = [asked.moved(time, sign * slightest, takes_apart=apart) for time, sign in _TIMES * bool(slightest)]
    except _FAILS:
        if attributes.get("grad"):  # nothing is differentiated, and there are results alone
            return as_close_as_inputs_allow(inputs, {**attributes, "grad": None}, actual)
        return [None] * len(actual)
    if len(true) != len(actual):
        return [None] * len(actual)
    return [
        _beside_zero(np.asarray(got), true[place], [each[place] for each in double])
        or _mask(np.asarray(got), true[place], [each[place] for each in coarse], [each[place] for each in fine])
        for place, got in enumerate(actual)
    ]


def _unit(array: Array) -> float:
    entry = dtype_of(array.dtype)
    return entry.unit_roundoff if entry.is_inexact else 0.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call in float64, the unit roundoff of each of its inputs, and the coarsest of them for what comes after."""

    call: TorchCall
    inputs: Sequence[Any]
    made: Callable[[Sequence[torch.Tensor], Draw], list[Array]]
    units: Sequence[float]
    step: float

    def moved(self, time: int, share: float, *, takes_apart: bool) -> list[Array]:
        """What the call yields with inputs, gradients from above and steps that are off by a share of a rounding."""
        draw = gradients_from_above(self.call, self.inputs)
        tensors = [
            each if not unit else each * (1.0 + share * unit * roundings(f"{time}/{index}", each.shape))
            for index, (each, unit) in enumerate(zip(widened(self.inputs), self.units, strict=True))
        ]

        def above(number: int, output: torch.Tensor) -> torch.Tensor:
            return draw(number, output) * (1.0 + share * self.step * roundings(f"{time}/above{number}", output.shape))

        with RoundedSteps(self.step, str(time), share=share, takes_apart=takes_apart):
            return self.made(tensors, above)


def _agree(one: Sequence[Array], other: Sequence[Array], share: float) -> bool:
    """Whether a call that was taken apart is the same call still."""
    if [each.shape for each in one] != [each.shape for each in other]:
        return False
    return all(
        np.allclose(each, true, rtol=share, atol=share * _largest(true), equal_nan=True)
        for each, true in zip(one, other, strict=True)
        if true.dtype.kind in "fc"
    )


def _largest(values: Array) -> float:
    magnitude = np.abs(values)
    return float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0))


def _results(call: TorchCall, tensors: Sequence[torch.Tensor], _: Draw) -> list[Array]:
    with torch.no_grad():
        return [as_array(each) for each in call.on(tensors, _CPU, dtypes=WIDE)()]


def _gradients(call: TorchCall, tensors: Sequence[torch.Tensor], draw: Draw) -> list[Array]:
    found = in_float64(call, tensors, draw)
    leaves: list[Any] = [*found.leaves, torch.tensor(found.has_gradient(), dtype=torch.bool), *found.dense(tensors)]
    return [as_array(each) for each in leaves]


def _mask(got: Array, true: Array, coarse: Sequence[Array], fine: Sequence[Array]) -> AsRight | None:
    entry = dtype_of(got.dtype)
    if not entry.is_inexact or true.dtype not in (np.float64, np.complex128) or got.shape != true.shape:
        return None
    if any(each.shape != true.shape for each in (*coarse, *fine)):
        return None
    wide = widen(got)
    with np.errstate(all="ignore"):
        last = entry.unit_roundoff * np.abs(true)
        spread, slight = _spread(coarse, true), _spread(fine, true) / _FINE
        radius = _FACTOR * np.minimum(spread, _NOT_SMOOTH * slight)
        is_smooth = slight <= _NOT_SMOOTH * spread
        error = np.abs(wide - true)
        is_near = is_smooth & (error <= radius + last)
        beside = np.where(is_smooth, radius, 0.0) + _FACTOR * entry.unit_roundoff * np.abs(wide)
        for each in (*coarse, *fine):
            is_near |= np.abs(wide - each) <= beside
        is_within = is_near | (error <= _FACTOR * spread + last)
    return AsRight(is_within, _doubt(is_within & ~is_near, is_within, true, radius))


def _may_be_zero(values: Array) -> bool:
    return values.dtype.kind in "fc" and 0.0 < _largest(values) <= _FACTOR * _AROUND_ZERO


def _beside_zero(got: Array, true: Array, others: Sequence[Array]) -> AsRight | None:
    """Gradients that should be zero, of which float64 has its own noise: those of a norm over one element.

    ``others`` are off by one rounding of float64. Where that changes some element by 2⁻⁴⁰ at most, but by an eighth of
    the largest and more, ``true`` is noise around zero. The same steps in a dtype with the unit roundoff u leave u/2⁻⁵²
    times as much. What comes from above is 2 at most, so that 8 roundings of it, and never less than 2⁻¹⁰, are the most
    that is taken for noise.
    """
    entry = dtype_of(got.dtype)
    if (
        not others
        or not entry.is_inexact
        or got.shape != true.shape
        or any(each.shape != true.shape for each in others)
    ):
        return None
    with np.errstate(all="ignore"):
        noise = float(np.max(_spread(others, true), initial=0.0))
        if not 0.0 < noise <= _AROUND_ZERO or not bool((np.abs(true) <= _FACTOR * noise).all()):
            return None
        most = min(_FACTOR * noise * entry.unit_roundoff / _DOUBLE, max(_MOST_NOISE, 16.0 * entry.unit_roundoff))
        return AsRight(np.asarray(np.abs(widen(got) - true) <= most), "")


def _spread(others: Sequence[Array], true: Array) -> Array:
    return np.asarray(np.sqrt(np.mean([np.abs(each - true) ** 2 for each in others], axis=0)))


def _doubt(shows_nothing: Array, is_within: Array, true: Array, radius: Array) -> str:
    """Why results that are accepted so prove little, "" if they prove enough."""
    count = int(np.count_nonzero(shows_nothing))
    if count:
        return (
            f"{count} of {true.size} elements jump or swing within one rounding of the inputs, so that any answer "
            "between passes there; choose inputs whose results are known better"
        )
    nonzero = np.abs(true) > 0
    if nonzero.any() and bool((np.abs(true) <= radius)[nonzero].all()) and is_within.all():
        return (
            "one rounding of the inputs changes the results by so much that an output of nothing but zeros passes too; "
            "choose inputs whose results are known better"
        )
    return ""
