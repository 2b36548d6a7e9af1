"""Execute a torch call in float64 with a rounding error in every step, to sample the results of correct arithmetic.

Intermediate results are rounded, too; if terms cancel, only these errors are left, as in ``x - tanh(x)`` of a small x.
A step is an operator, or an operator of torch's decomposition; a gradient without decomposition may be that of a
decomposed operator. In a sum of products the terms are rounded as well, in float32 at least; a result of LAPACK is off
by roundings of the matrix's largest element; a recurrence rounds once per step. Below the normal numbers of a dtype, a
step is off by half of the smallest number, or by its whole value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from math import sqrt
from typing import Any

import torch
from torch.utils import _pytree as pytree

from optest.core.closeness import as_close_as_roundings_allow
from optest.core.rounded_calls import RoundedCall, Rounding, off_by_a_rounding, roundings
from optest.numerics import Array, dtype_of
from optest.spec import Fault
from optest.torch.calls.call import TorchCall, torch_call, with_rounded_scalars
from optest.torch.calls.gradients import Draw, has_floating_input, in_float64, upstream_gradients
from optest.torch.calls.refusals import NO_KERNEL, REFUSALS
from optest.torch.dispatch_modes import DispatchMode
from optest.torch.fact_sheet import facts_of
from optest.torch.facts import Facts
from optest.torch.tensors import WIDE, as_array, is_inexact, wide_copies

# Unit roundoff of the coarsest arithmetic that may add products: float32, for 16 bits, too.
_ACCUMULATED = 2.0**-24
# Half of the smallest float32.
_LEAST = 2.0**-150
# torch's codes of interpolation and padding modes of grid_sample.
_NEAREST = 1
_BORDER, _REFLECTION = 1, 2


@lru_cache(maxsize=4096)
def _facts(func: Any) -> Facts:
    return facts_of(f"torch.ops.{func.namespace}.{func.overloadpacket.__name__}")


@lru_cache(maxsize=8)
def _gradients_of(forward: str) -> Callable[..., list[torch.Tensor | None]] | None:
    """Return a function with the signature of the operator's backward that differentiates its decomposition.

    None if there is no decomposition.
    """
    steps = torch._decomp.decomposition_table.get(getattr(torch.ops.aten, forward).default, _STEPS.get(forward))
    if steps is None:
        return None

    def gradients(upstream: torch.Tensor, *args: Any) -> list[torch.Tensor | None]:
        *arguments, needed = args
        operands = [operand.detach().requires_grad_() for operand in arguments[: len(needed)]]
        with _autograd_enabled(), torch.enable_grad():
            result = steps(*operands, *arguments[len(needed) :])
        sources = [operand for operand, is_needed in zip(operands, needed, strict=True) if is_needed]
        computed = iter(torch.autograd.grad(result, sources, upstream, materialize_grads=True))
        return [next(computed) if is_needed else None for is_needed in needed]

    return gradients


def _sampled_in_3d(
    picture: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """Compute ``grid_sampler_3d`` from sums and products, as torch documents ``grid_sample``.

    ``picture`` has the shape (N, C, D, H, W), ``grid`` (N, d, h, w, 3) with the last axis of the picture first; the
    result has (N, C, d, h, w). Uses two neighbours along each axis, or the nearest one (``interpolation`` 1).
    """
    elements = picture.movedim(1, -1)
    batch = torch.arange(len(picture), device=picture.device).reshape(-1, 1, 1, 1)
    axes = []
    for size, position in zip(elements.shape[1:4], grid.flip(-1).unbind(-1), strict=True):
        at = _element_position(position, size, padding, align_corners)
        low = at.floor()
        axes.append(
            [(at.round(), torch.ones_like(at))]
            if interpolation == _NEAREST
            else [(low, low + 1.0 - at), (low + 1.0, at - low)]
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


def _element_position(position: torch.Tensor, size: int, padding: int, align_corners: bool) -> torch.Tensor:
    """Convert positions from -1 to 1 to element coordinates of an axis.

    ``padding`` is that of grid_sample: 0 leaves positions outside as they are, 1 clamps, 2 reflects and clamps.
    """
    at = (position + 1.0) * (size * 0.5 - 0.5 if align_corners else size * 0.5)
    low, span = (0.0, size - 1.0) if align_corners else (-0.5, float(size))
    at = at if align_corners else at - 0.5
    if padding == _REFLECTION:
        distance = (at - low).abs()
        reflections = (distance / span).floor() if span else torch.zeros_like(distance)
        rest = distance - reflections * span
        at = torch.where(reflections.remainder(2.0) == 1.0, span - rest, rest) + low if span else torch.zeros_like(at)
    return at.clamp(0.0, size - 1.0) if padding in (_BORDER, _REFLECTION) else at


# Operators without a decomposition in torch 2.13.
_STEPS: Mapping[str, Callable[..., torch.Tensor]] = {"grid_sampler_3d": _sampled_in_3d}


# torch excludes autograd below the operators of a backward pass.
@contextmanager
def _autograd_enabled() -> Iterator[None]:
    key = torch._C.DispatchKey.AutogradFunctionality
    was_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded(key)
    torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        yield
    finally:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, was_excluded)


class RoundedSteps(DispatchMode):
    """Mode that changes every inexact result within the block by up to three halves of the ``unit`` roundoff.

    ``least`` is half of the dtype's smallest number, or 0 to ignore underflow; steps of a decomposition use at most
    that of float32. ``name`` seeds the directions, ``share`` scales all errors. With ``takes_apart`` False every
    operator is one step, for operators whose decomposition omits what their gradient needs.
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
                    self._step = step  # some decompositions work only for compilers
                finally:
                    self._least = least
        result = func(*args, **kwargs)
        is_creation = not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves((args, kwargs)))
        if facts.has_exact_result or is_creation:
            return result
        if facts.is_sum_of_products and func._overloadname == "default" and result.is_floating_point():
            # The roundings of terms do not cancel as the terms do.
            scattered = func(*(operand.abs().square() for operand in args)).sqrt()
            result = result + min(self._unit, _ACCUMULATED) * torch.from_numpy(self._drawn(result)) * scattered
        # Successive roundings of a result: the matrix size for LAPACK, the steps of a recurrence.
        shape = args[0].shape if facts.is_backward_stable or facts.rounds_at_every_step else ()
        times = sqrt(max(1, *shape[-2:] if facts.is_backward_stable else shape[:1], 1))
        perturb = partial(self._perturb, times=times, is_of_matrix=facts.is_backward_stable)
        returns = func._schema.returns
        if not isinstance(result, (tuple, list)):
            return perturb(result, returns[0] if returns else None)
        schemas = returns if len(returns) == len(result) else [returns[0] if returns else None] * len(result)
        return type(result)(map(perturb, result, schemas))

    def _perturb(self, value: Any, schema: Any, *, times: float, is_of_matrix: bool) -> Any:
        """Return a result with ``times`` the rounding error, written results in place; views and exact values as is."""
        if not isinstance(value, torch.Tensor) or not is_inexact(value):
            return value
        shared = None if schema is None else schema.alias_info
        if shared is not None and not shared.is_write:
            return value  # a view
        if is_of_matrix and value.dim() > 1 and value.numel() and shared is None:
            off = times * self._unit * torch.from_numpy(self._drawn(value))
            return value + off * value.abs().amax((-2, -1), keepdim=True)
        wide = value.detach().resolve_conj().resolve_neg()
        components = (wide.real, wide.imag) if wide.is_complex() else (wide,)
        parts = [component.to(torch.float64).reshape(-1).numpy() for component in components]
        drawn = self._drawn(value)
        factor = torch.from_numpy(off_by_a_rounding(parts, drawn, times * self._unit, self._unit, self._least))
        return value * factor if shared is None else value.mul_(factor)

    def _drawn(self, value: torch.Tensor) -> Array:
        self._step += 1
        drawn = roundings(f"{self._name}/step{self._step}", value.shape)
        drawn *= self._share
        return drawn


@dataclass(frozen=True, slots=True)
class TorchEvaluation:
    """A call to evaluate for :mod:`optest.core.rounded_calls`; ``make`` is ``results_of`` or ``gradients_of``."""

    call: TorchCall
    inputs: Sequence[Any]
    make: Callable[[TorchCall, Sequence[torch.Tensor], Draw], list[Array]]

    def __call__(self, arrays: Sequence[Array], rounding: Rounding | None) -> list[Array]:
        """Evaluate the call on ``arrays`` in float64, with errors in its steps and upstream gradients if requested."""
        tensors = wide_copies(arrays)
        call, draw = with_rounded_scalars(self.call, self.inputs), upstream_gradients(self.call, self.inputs)
        if rounding is None:
            return self.make(call, tensors, draw)

        def upstream(number: int, output: torch.Tensor) -> torch.Tensor:
            errors = torch.from_numpy(roundings(f"{rounding.name}/above{number}", output.shape))
            return draw(number, output) * (1.0 + rounding.share * rounding.unit * errors)

        with RoundedSteps(
            rounding.unit, rounding.name, share=rounding.share, takes_apart=rounding.takes_apart, least=rounding.least
        ):
            return self.make(call, tensors, upstream)


def results_of(call: TorchCall, tensors: Sequence[torch.Tensor], _: Draw) -> list[Array]:
    """Execute the call in float64 and return its results as arrays."""
    with torch.no_grad():
        return [as_array(leaf) for leaf in call.on(tensors, dtypes=WIDE)()]


def gradients_of(call: TorchCall, tensors: Sequence[torch.Tensor], draw: Draw) -> list[Array]:
    """Return results, the mask of existing gradients and the gradients as arrays, in float64."""
    return [as_array(output) for output in in_float64(call, tensors, draw).outputs(tensors)]


_FAILS = (*NO_KERNEL, Fault)


def as_close_as_inputs_allow(inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> list[Any]:
    """Return a mask of correct elements for each output, results before gradients; None for an undecided output."""
    # torch only moves and converts floats of 8 bits, which has exact results.
    if any(dtype_of(array.dtype).is_float and array.dtype.itemsize == 1 for array in inputs):
        return [None] * len(actual)
    call = torch_call(attributes["call"])
    has_gradients = bool(attributes.get("grad")) and has_floating_input(call, inputs)
    for make in (gradients_of, results_of) if has_gradients else (results_of,):
        with suppress(*_FAILS):  # without gradients, compare only the results
            rounded = RoundedCall.of(TorchEvaluation(call, inputs, make), inputs, actual)
            return as_close_as_roundings_allow(rounded, actual, _FAILS, with_gradients=make is gradients_of)
    return [None] * len(actual)
