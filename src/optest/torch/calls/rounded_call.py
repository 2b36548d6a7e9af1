"""A call in float64 whose inputs, gradients from above and steps are moved by about one rounding, some times over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from optest.numerics import Array, dtype_of
from optest.torch.calls.call import TorchCall, with_rounded_scalars
from optest.torch.calls.expected_gradients import in_float64, upstream_gradients
from optest.torch.calls.gradients import Draw, roundings
from optest.torch.calls.rounded_steps import RoundedSteps
from optest.torch.tensors import WIDE, as_array, widened

__all__ = ["RoundedCall", "gradients_of", "results_of", "smallest_rounding"]

_CPU = torch.device("cpu")

# Which roundings are drawn, and their sign. For every element a number from 1/2 to 3/2 of a rounding is drawn; the
# first draw is taken with both signs, so that each is moved up once and down once at least. The root of the mean square
# of nine results is known to about a quarter (1/√18 where they are normal).
_DRAWS = ((0, 1.0), (0, -1.0), *((draw, 1.0) for draw in range(1, 8)))

_Make = Callable[[TorchCall, Sequence[torch.Tensor], Draw], list[Array]]


@dataclass(frozen=True, slots=True)
class RoundedCall:
    """A call in float64 whose numbers are moved by about one rounding.

    ``units`` are the unit roundoffs of its inputs, ``step`` is that of what comes after the coarsest of them, and
    ``least`` half of the smallest number that is rounded so.
    """

    call: TorchCall
    inputs: Sequence[Any]
    make: _Make
    units: Sequence[float]
    step: float
    least: float

    @classmethod
    def of(cls, call: TorchCall, inputs: Sequence[Any], actual: Sequence[Any], make: _Make) -> RoundedCall:
        units = _units(inputs, actual)
        step = max([unit for unit in units if unit] or [_unit(each) for each in actual], default=0.0)
        least = max((smallest_rounding(each) for each in (*inputs, *actual) if _unit(each) == step), default=0.0)
        return cls(call, inputs, make, units, step, least)

    def exact(self) -> list[Array]:
        """What the call yields without any rounding."""
        return self._made(widened(self.inputs), upstream_gradients(self.call, self.inputs))

    def _made(self, tensors: Sequence[torch.Tensor], draw: Draw) -> list[Array]:
        return self.make(with_rounded_scalars(self.call, self.inputs), tensors, draw)

    def moved(self, number: int, share: float, *, takes_apart: bool) -> list[Array]:
        """What the call yields with inputs, gradients from above and steps that are off by a share of a rounding."""
        draw = upstream_gradients(self.call, self.inputs)
        tensors = [
            each if not unit else each * (1.0 + share * unit * roundings(f"{number}/{index}", each.shape))
            for index, (each, unit) in enumerate(zip(widened(self.inputs), self.units, strict=True))
        ]

        def above(output_number: int, output: torch.Tensor) -> torch.Tensor:
            off = roundings(f"{number}/above{output_number}", output.shape)
            return draw(output_number, output) * (1.0 + share * self.step * off)

        with RoundedSteps(self.step, str(number), share=share, takes_apart=takes_apart, least=self.least):
            return self._made(tensors, above)

    def with_inputs_in_other_places(self, shift: int) -> list[Array]:
        """What the call yields where each floating input has its elements in other places, each input in its own."""
        tensors = [
            each.reshape(-1).roll(shift * (index + 1)).reshape(each.shape) if unit else each
            for index, (each, unit) in enumerate(zip(widened(self.inputs), self.units, strict=True))
        ]
        return self._made(tensors, upstream_gradients(self.call, self.inputs))

    def draws(self, *, share: float = 1.0, takes_apart: bool) -> list[list[Array]]:
        """What the call yields for each draw of roundings, all of them ``share`` as large."""
        return [self.moved(number, sign * share, takes_apart=takes_apart) for number, sign in _DRAWS]


def _units(inputs: Sequence[Any], actual: Sequence[Any]) -> list[float]:
    """The unit roundoff of each input, 0 for what is not rounded.

    Results that are coarser than every input are those of a call that states its dtype, to which torch brings what it
    is given first: ``softmax(x, dim, dtype=torch.float16)``, ``linspace(start, end, 50, dtype=torch.float16)``.
    """
    units = [_unit(array) for array in inputs]
    stated = max((_unit(each) for each in actual), default=0.0)
    return [unit and stated for unit in units] if stated > max(units, default=0.0) else units


def _unit(array: Array) -> float:
    entry = dtype_of(array.dtype)
    return entry.unit_roundoff if entry.is_inexact else 0.0


def smallest_rounding(array: Array) -> float:
    """Half of the smallest number of its dtype; 0 where float64 has none of these."""
    entry = dtype_of(array.dtype)
    return 2.0 ** (entry.emin - entry.precision) if entry.is_inexact else 0.0


def results_of(call: TorchCall, tensors: Sequence[torch.Tensor], _: Draw) -> list[Array]:
    with torch.no_grad():
        return [as_array(each) for each in call.on(tensors, _CPU, dtypes=WIDE)()]


def gradients_of(call: TorchCall, tensors: Sequence[torch.Tensor], draw: Draw) -> list[Array]:
    found = in_float64(call, tensors, draw)
    leaves: list[Any] = [*found.leaves, torch.tensor(found.has_gradient(), dtype=torch.bool), *found.dense(tensors)]
    return [as_array(each) for each in leaves]
