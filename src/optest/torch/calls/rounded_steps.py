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

import torch
from torch.utils import _pytree as pytree

from optest.core.rounded_calls import Rounding, off_by_a_rounding, roundings
from optest.numerics import Array
from optest.torch.calls.call import TorchCall, with_rounded_scalars
from optest.torch.calls.gradients import Draw, in_float64, upstream_gradients
from optest.torch.calls.refusals import REFUSALS
from optest.torch.dispatch_modes import DispatchMode
from optest.torch.fact_sheet import facts_of
from optest.torch.facts import Facts
from optest.torch.tensors import WIDE, as_array, is_inexact, widened

_ACCUMULATED = 2.0**-24
"""Unit roundoff of the coarsest arithmetic that may add up products: float32, for 16 bits too."""

_LEAST = 2.0**-150
"""Half of the smallest number of that arithmetic."""


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
            # what the roundings of its terms leave does not cancel as the terms do
            scattered = func(*(each.abs().square() for each in args)).sqrt()
            found = found + min(self._unit, _ACCUMULATED) * torch.from_numpy(self._drawn(found)) * scattered
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
            off = times * self._unit * torch.from_numpy(self._drawn(value))
            return value + off * value.abs().amax((-2, -1), keepdim=True)
        # Multiply by a factor that makes each value off by a rounding in the drawn direction.
        wide = value.detach().resolve_conj().resolve_neg()
        components = (wide.real, wide.imag) if wide.is_complex() else (wide,)
        parts = [each.to(torch.float64).reshape(-1).numpy() for each in components]
        drawn = self._drawn(value)
        factor = torch.from_numpy(off_by_a_rounding(parts, drawn, times * self._unit, self._unit, self._least))
        return value * factor if shared is None else value.mul_(factor)

    def _drawn(self, value: torch.Tensor) -> Array:
        self._step += 1
        drawn = roundings(f"{self._name}/step{self._step}", value.shape)
        drawn *= self._share
        return drawn


def _in_a_row(facts: Facts, args: Sequence[Any]) -> int:
    """How many roundings each result of an operator has behind it, one after the other."""
    if facts.is_backward_stable:
        return max(1, *map(int, args[0].shape[-2:]))
    return max(1, int(args[0].shape[0])) if facts.rounds_at_every_step else 1


# The call as the sampler of :mod:`optest.core.rounded_calls` evaluates it.


@dataclass(frozen=True, slots=True)
class TorchEvaluation:
    """A call of torch, with the function that evaluates it: to results, or to gradients for upstream gradients."""

    call: TorchCall
    inputs: Sequence[Any]
    make: Callable[[TorchCall, Sequence[torch.Tensor], Draw], list[Array]]

    def __call__(self, arrays: Sequence[Array], rounding: Rounding | None) -> list[Array]:
        tensors = widened(arrays)
        call, draw = with_rounded_scalars(self.call, self.inputs), upstream_gradients(self.call, self.inputs)
        if rounding is None:
            return self.make(call, tensors, draw)

        def above(output_number: int, output: torch.Tensor) -> torch.Tensor:
            off = torch.from_numpy(roundings(f"{rounding.name}/above{output_number}", output.shape))
            return draw(output_number, output) * (1.0 + rounding.share * rounding.unit * off)

        with RoundedSteps(
            rounding.unit, rounding.name, share=rounding.share, takes_apart=rounding.takes_apart, least=rounding.least
        ):
            return self.make(call, tensors, above)


def results_of(call: TorchCall, tensors: Sequence[torch.Tensor], _: Draw) -> list[Array]:
    with torch.no_grad():
        return [as_array(each) for each in call.on(tensors, dtypes=WIDE)()]


def gradients_of(call: TorchCall, tensors: Sequence[torch.Tensor], draw: Draw) -> list[Array]:
    return [as_array(each) for each in in_float64(call, tensors, draw).outputs(tensors)]
