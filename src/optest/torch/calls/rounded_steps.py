"""A call of torch whose every step is off by a rounding: what an honest arithmetic may make of it, tried in float64.

What a call computes on its way has to be rounded, too. Where terms cancel, that is all that is left of them, though no
input is far off: ``x - tanh(x)`` of a small x. A step is what torch itself takes apart: an operator, or the operators
that its decomposition has; gradients that torch leaves whole may be those of an operator that it takes apart. Of a sum
of products the terms are rounded as well, in float32 at least, and they may cancel; what LAPACK makes of a matrix is
off by roundings of its largest element; a recurrence rounds once a step. Below the normal numbers of a dtype there are
no relative roundings: a step there is off by half of the smallest number, or by all that it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from optest.numerics import Array, dtype_of
from optest.torch.calls.call import TorchCall, with_rounded_scalars
from optest.torch.calls.gradients import Draw, in_float64, roundings, upstream_gradients
from optest.torch.calls.refusals import REFUSALS
from optest.torch.dispatch_modes import DispatchMode
from optest.torch.fact_sheet import facts_of
from optest.torch.facts import Facts
from optest.torch.tensors import WIDE, as_array, is_inexact, widened

__all__ = ["RoundedCall", "RoundedSteps", "gradients_of", "results_of", "smallest_rounding"]

_ACCUMULATED = 2.0**-24
"""Unit roundoff of the coarsest arithmetic that may add up products: float32, for 16 bits too."""

_DOUBLE = 2.0**-52
_LEAST = 2.0**-150
"""Half of the smallest number of that arithmetic."""

_BLOCK = 1 << 14
"""Elements that are looked at in one go: what fits a cache, and no thread has to be waited for."""


@lru_cache(maxsize=4096)
def _facts(func: Any) -> Facts:
    """What is known of an operator as torch's dispatcher hands it on."""
    return facts_of(f"torch.ops.{func.namespace}.{func.overloadpacket.__name__}")


@lru_cache(maxsize=8)
def _gradients_of(forward: str) -> Callable[..., list[torch.Tensor | None]] | None:
    """What makes the gradients of an operator in the steps back through its decomposition; called as torch calls it.

    None where nobody takes the operator apart.
    """
    steps = torch._decomp.decomposition_table.get(getattr(torch.ops.aten, forward).default, _STEPS.get(forward))
    if steps is None:
        return None

    def gradients(above: torch.Tensor, *given: Any) -> list[torch.Tensor | None]:
        *arguments, needed = given
        operands = [each.detach().requires_grad_() for each in arguments[: len(needed)]]
        with _seen_by_autograd(), torch.enable_grad():
            result = steps(*operands, *arguments[len(needed) :])
        sources = [each for each, is_needed in zip(operands, needed, strict=True) if is_needed]
        found = iter(torch.autograd.grad(result, sources, above, materialize_grads=True))
        return [next(found) if is_needed else None for is_needed in needed]

    return gradients


def _sampled_in_3d(
    picture: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """``grid_sampler_3d`` out of sums and products, as torch documents ``grid_sample``.

    ``picture`` has the shape (N, C, D, H, W), ``grid`` (N, d, h, w, 3) with the last axis of the picture first; the
    result has (N, C, d, h, w). Two neighbours along each axis, or the nearest one (``interpolation`` 1).
    """
    elements = picture.movedim(1, -1)
    batch = torch.arange(len(picture), device=picture.device).reshape(-1, 1, 1, 1)
    axes = []
    for size, position in zip(elements.shape[1:4], grid.flip(-1).unbind(-1), strict=True):
        place = _place_of(position, size, padding, align_corners)
        low = place.floor()
        axes.append(
            [(place.round(), torch.ones_like(place))]
            if interpolation == _NEAREST
            else [(low, low + 1.0 - place), (low + 1.0, place - low)]
        )
    total = elements.new_zeros(())
    for neighbours in product(*axes):
        inside = [
            (index >= 0) & (index < size) for (index, _), size in zip(neighbours, elements.shape[1:4], strict=True)
        ]
        exists = inside[0] & inside[1] & inside[2]
        indices = [torch.where(exists, index, 0.0).to(torch.int64) for index, _ in neighbours]
        weight = neighbours[0][1] * neighbours[1][1] * neighbours[2][1]
        total = (
            total + torch.where(exists, weight, 0.0)[..., None] * elements[batch, indices[0], indices[1], indices[2]]
        )
    return total.movedim(-1, 1)


_NEAREST = 1
_BORDER, _REFLECTION = 1, 2


def _place_of(position: torch.Tensor, size: int, padding: int, align_corners: bool) -> torch.Tensor:
    """A position from -1 to 1 in elements of an axis, as the padding moves it."""
    place = (position + 1.0) * (size * 0.5 - 0.5 if align_corners else size * 0.5)
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    place = place if align_corners else place - 0.5
    if padding == _REFLECTION:
        distance = (place - low).abs()
        turns = (distance / span).floor() if span else torch.zeros_like(distance)
        rest = distance - turns * span
        place = torch.where(turns.remainder(2.0) == 1.0, span - rest, rest) + low if span else torch.zeros_like(place)
    return place.clamp(0.0, size - 1.0) if padding in (_BORDER, _REFLECTION) else place


_STEPS: Mapping[str, Callable[..., torch.Tensor]] = {"grid_sampler_3d": _sampled_in_3d}
"""Operators that torch 2.13 has no decomposition of, in steps of torch."""


@contextmanager
def _seen_by_autograd() -> Iterator[None]:
    """While inside, torch can differentiate, as it does not below the operators of a way back."""
    key = torch._C.DispatchKey.AutogradFunctionality
    was_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(key)
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, was_excluded)


class RoundedSteps(DispatchMode):
    """Within, every result that a dtype of this ``unit`` roundoff does not hold is off by up to three halves of it.

    ``least`` is half of the smallest number of that dtype, and 0 if nothing is ever so small. What an operator is taken
    apart into is computed in float32 at least, and has its smallest numbers. Up or down is drawn by ``name``; ``share``
    makes all of it less. Where an operator's decomposition leaves out what its gradient needs, ``takes_apart`` has to
    be False; then every operator is one step.
    """

    def __init__(
        self, unit: float, name: str, *, share: float = 1.0, takes_apart: bool = True, least: float = 0.0
    ) -> None:
        super().__init__()
        self._unit, self._name, self._share, self._takes_apart, self._step = unit, name, share, takes_apart, 0
        self._least = least

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        facts = _facts(func)
        if self._takes_apart and not facts.has_exact_result:
            parts = (
                _gradients_of(facts.gradients_of) if facts.gradients_of else torch._decomp.decomposition_table.get(func)
            )
            if parts is not None and not func._schema.is_mutable:
                step, least = self._step, self._least
                try:
                    self._least = min(least, _LEAST)
                    with self:
                        return parts(*args, **kwargs)
                except REFUSALS:
                    self._step = step  # torch takes it apart for compilers alone
                finally:
                    self._least = least
        found = func(*args, **kwargs)
        is_made = not any(isinstance(each, torch.Tensor) for each in pytree.tree_leaves((args, kwargs)))
        if facts.has_exact_result or is_made:
            return found
        if facts.is_sum_of_products and func._overloadname == "default" and found.is_floating_point():
            found = self._terms_off(func, args, found)
        off = partial(self._one_off, times=sqrt(_in_a_row(facts, args)), is_of_matrix=facts.is_backward_stable)
        returns = func._schema.returns
        if not isinstance(found, (tuple, list)):
            return off(found, returns[0] if returns else None)
        promised = returns if len(returns) == len(found) else [returns[0] if returns else None] * len(found)
        return type(found)(map(off, found, promised))

    def _one_off(self, value: Any, promised: Any, *, times: float, is_of_matrix: bool) -> Any:
        if not isinstance(value, torch.Tensor) or not is_inexact(value):
            return value
        shared = None if promised is None else promised.alias_info
        if shared is not None and not shared.is_write:
            return value  # a view
        if is_of_matrix and value.dim() > 1 and value.numel() and shared is None:
            off = times * self._unit * self._drawn(value)
            return value + off * value.abs().amax((-2, -1), keepdim=True)
        factor = _factor(value, self._drawn(value), times * self._unit, self._unit, self._least)
        return value * factor if shared is None else value.mul_(factor)

    def _terms_off(self, func: Any, operands: Sequence[Any], found: torch.Tensor) -> torch.Tensor:
        """A sum of products with what the roundings of its terms leave, which do not cancel as the terms do."""
        scattered = func(*(each.abs().square() for each in operands)).sqrt()
        return found + min(self._unit, _ACCUMULATED) * self._drawn(found) * scattered

    def _drawn(self, value: torch.Tensor) -> torch.Tensor:
        self._step += 1
        return roundings(f"{self._name}/step{self._step}", value.shape).mul_(self._share)


def _in_a_row(facts: Facts, args: Sequence[Any]) -> int:
    """How many roundings each result of an operator has behind it, one after the other."""
    if facts.is_backward_stable:
        return max(1, *map(int, args[0].shape[-2:]))
    return max(1, int(args[0].shape[0])) if facts.rounds_at_every_step else 1


def _factor(values: torch.Tensor, drawn: torch.Tensor, off: float, unit: float, least: float) -> torch.Tensor:
    """What makes each value off by a rounding where it needs one; ``drawn``, whose memory it takes, says up or down."""
    if not unit:
        return drawn.fill_(1.0)
    wide = values.detach().resolve_conj().resolve_neg()
    components = (wide.real, wide.imag) if wide.is_complex() else (wide,)
    parts = [each.to(torch.float64).reshape(-1).numpy() for each in components]
    factors: Any = drawn.view(-1).numpy()
    with np.errstate(all="ignore"):
        for start in range(0, len(factors), _BLOCK):
            some = [each[start : start + _BLOCK] for each in parts]
            factor = factors[start : start + _BLOCK]
            factor *= off
            sizes = np.abs(some[0]) if len(some) == 1 else np.hypot(*some)
            is_low = bool(np.any(sizes * unit < least))
            if is_low:
                factor *= np.clip(least / sizes, unit, 1.0) / unit
            factor[np.logical_and.reduce([_is_held(each, unit, least if is_low else 0.0) for each in some])] = 0.0
            factor += 1.0
    return drawn


def _is_held(values: Any, unit: float, least: float) -> Any:
    """Where a dtype of this unit roundoff has the very value, as it has small whole numbers: positions, counts."""
    shifted = values * (unit / _DOUBLE * 2.0 + 1.0)  # the digits that are too many fall off
    held = shifted - (shifted - values) == values
    if not least:
        return held
    is_low = np.abs(values) * unit < least
    return held & (~is_low | (np.remainder(values, 2.0 * least) == 0.0))


# A call in float64 whose inputs, gradients from above and steps are moved by about one rounding, some times over.

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
        return [as_array(each) for each in call.on(tensors, dtypes=WIDE)()]


def gradients_of(call: TorchCall, tensors: Sequence[torch.Tensor], draw: Draw) -> list[Array]:
    return [as_array(each) for each in in_float64(call, tensors, draw).outputs(tensors)]
