"""Layers, composed of operators. One function defines a layer for every way to compute its parts.

The parts are computed by references in float64, by a backend, or by references with simulated errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from optest.numerics import dtype_of, round_to
from optest.operators import operators
from optest.operators.arrays import Array, Attributes, Inputs
from optest.operators.budgets import unit_roundoff
from optest.registry import load_object
from optest.spec import ErrorBudget, OperatorDescriptor, RuleClass, Terms, Unrounded


class Calls(Protocol):
    """Evaluator of a layer's parts: the references, a backend, or references with simulated errors."""

    def __call__(self, operator: str, *tensors: Any, **attributes: Any) -> Any:
        """Run an operator and return its first output; pass None for an optional tensor that is left out."""
        ...

    def constant(self, values: Any) -> Any:
        """Return a tensor with these values in the dtype of the layer."""
        ...


Composition = Callable[[Calls, Inputs, Attributes], Sequence[Any]]
Hook = Callable[[Inputs, Attributes], Any]


def reference_of(layer: Composition) -> Hook:
    """Return the reference of a layer: it computes the parts in float64, with no rounding between them."""

    def reference(inputs: Inputs, attributes: Attributes) -> tuple[Any, ...]:
        return tuple(layer(_Exact(), inputs, attributes))

    return reference


def budget_of(layer: Composition) -> Hook:
    """Return the error terms of a layer, which sample the effect of the parts' errors on the outputs.

    The layer runs with every part off by the largest error that its rule allows: 16 times with random signs and twice
    with coherent ones. The bound is 3 times the root mean square of the random runs, or the largest deviation of the
    coherent ones. The variance comes from 16 runs in which parts are off by their standard deviation.
    """

    def terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
        measured = _Measured(next(tensor for tensor in inputs if tensor is not None))
        exact = [np.asarray(output) for output in layer(measured, inputs, attributes)]
        worst, variance, cut, cut_variance = zip(*measured.losses, strict=True)

        def deviations(losses: Sequence[Any], runs: Iterable[_Signs]) -> Iterator[list[Array]]:
            for signs in runs:
                outputs = layer(_Perturbed(losses, signs), inputs, attributes)
                yield [(np.asarray(output) - right) / _STEP for output, right in zip(outputs, exact, strict=True)]

        # Random errors of many parts cancel, as those of a kernel do; three standard deviations are its largest error.
        def squares(losses: Sequence[Any]) -> list[Array]:
            by_output = zip(*deviations(losses, (partial(_hashed_signs, run) for run in range(_RUNS))), strict=True)
            return [np.mean(np.square(np.stack(runs)), 0) for runs in by_output]

        # Errors of one sign, or that enlarge every result, do not cancel: a kernel that truncates has them.
        def largest(losses: Sequence[Any]) -> list[Array]:
            coherent = zip(*deviations(losses, _COHERENT), strict=True)
            pairs = zip(squares(losses), coherent, strict=True)
            return [np.maximum(3.0 * np.sqrt(square), np.max(np.abs(np.stack(runs)), 0)) for square, runs in pairs]

        spread = squares([np.sqrt(of_part) for of_part in variance])
        # Only float32 products are computed with operands cut to fewer bits (TF32, bfloat16 passes).
        of_operands: Sequence[Any] = [None] * len(exact)
        if np.asarray(inputs[0]).dtype == np.float32:
            of_operands = list(zip(largest(cut), squares([np.sqrt(of_part) for of_part in cut_variance]), strict=True))
        return tuple(map(ErrorBudget, largest(worst), spread, of_operands))

    return terms


_RUNS = 16
# The size of u in the simulated runs. Errors are of first order, so that it does not matter; this one leaves float64
# as many bits below it as above.
_STEP = 2.0**-24

# Signs of the errors of one part's elements, from the part's number and its result.
_Signs = Callable[[int, Array], Any]
_COHERENT: tuple[_Signs, ...] = (lambda _, values: np.ones(values.shape), lambda _, values: np.sign(values))


def _hashed_signs(run: int, part: int, values: Array) -> Array:
    """Return 1 or -1 for each element: the highest bit of MurmurHash3's finalizer over index, run and part."""
    stream = 1024 * (run + 1) + part
    bits = np.arange(values.size, dtype=np.uint32) + np.uint32(stream * 0x9E3779B9 & 0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)
    return np.asarray(np.where(bits >> np.uint32(31), 1.0, -1.0).reshape(values.shape))


class _Exact:
    """Evaluator that computes each part with its reference and returns the first output in float64."""

    def __call__(self, operator: str, *tensors: Any, **attributes: Any) -> Any:
        descriptor = operators.get(operator)
        bound = descriptor.bind(attributes)
        outputs = load_object(descriptor.reference)(tensors, bound)
        first = outputs[0] if isinstance(outputs, (tuple, list)) and not isinstance(outputs, Unrounded) else outputs
        values = np.asarray(first.values if isinstance(first, Unrounded) else first)
        return self.observe(values, descriptor, tensors, bound)

    def constant(self, values: Any) -> Any:
        return self.observe(np.asarray(values, np.float64), None, (), {})

    def observe(
        self, result: Array, _part: OperatorDescriptor | None, _tensors: Sequence[Any], _bound: Attributes
    ) -> Array:
        """Return the result of a part, or of a constant (None), to the layer; subclasses record or perturb it."""
        return result


class _Losses(NamedTuple):
    """Errors of one part: bound and variance in units of u, then those of cut operands in units of their u."""

    worst: Any
    variance: Any
    cut: Any = 0.0
    cut_variance: Any = 0.0


class _Measured(_Exact):
    """Evaluator that records the errors that each part may have when the layer runs in the dtype of ``first``."""

    def __init__(self, first: Array) -> None:
        self._dtype = dtype_of(np.asarray(first).dtype)
        self._final = self._dtype.unit_roundoff / unit_roundoff(np.asarray(first))
        self.losses: list[_Losses] = []

    def observe(
        self, result: Array, part: OperatorDescriptor | None, tensors: Sequence[Any], bound: Attributes
    ) -> Array:
        losses = _Losses(0.0, 0.0) if part is None else self._losses_of(result, part, tensors, bound)
        # A backend stores every part's result in the dtype of the layer; moved and exact ones are not rounded.
        rounding = np.abs(result) * self._final
        if part is not None and part.rule is not None and part.rule.kind in (RuleClass.MOVEMENT, RuleClass.EXACT):
            rounding = np.zeros(result.shape)
        worst, variance = losses.worst + rounding, losses.variance + rounding * rounding / 3.0
        self.losses.append(losses._replace(worst=worst, variance=variance))
        return result

    def _losses_of(self, result: Array, part: OperatorDescriptor, tensors: Sequence[Any], bound: Attributes) -> _Losses:
        """Return the errors that the part's rule allows: its ceiling in ulp, its budget, or its terms of a sum."""
        assert part.rule is not None
        ceiling = 2.0 * part.rule.ulp * np.abs(result) if part.rule.kind is RuleClass.ULP else 0.0
        terms = load_object(part.terms)([self._stored(tensor) for tensor in tensors], bound) if part.terms else None
        if isinstance(terms, (tuple, list)) and not hasattr(terms, "_fields"):
            (terms,) = terms
        if terms is None:
            return _Losses(ceiling, np.square(ceiling) / 3.0)
        if isinstance(terms, ErrorBudget):
            variance = np.square(terms.worst) / 9.0 if terms.variance is None else terms.variance
            return _Losses(terms.worst + ceiling, variance + np.square(ceiling) / 3.0, *(terms.of_operands or ()))
        assert isinstance(terms, Terms)
        count = np.asarray(terms.count, np.float64)
        losses = _Losses(
            4.0 * np.sqrt(count) * terms.absolute, count * (result * result / 3.0 + np.asarray(terms.squared) / 2.0)
        )
        # Kernels cut the operands of products only.
        is_product = part.category == "contraction"
        return losses._replace(cut=2.0 * terms.absolute, cut_variance=2.0 * terms.squared) if is_product else losses

    def _stored(self, tensor: Any) -> Any:
        """Round a tensor to the layer's dtype, clipped to its finite range; return integers, bool and None as is."""
        # Error terms look at the dtype of their inputs, so they need the dtype that a backend has. An infinity has no
        # error, so values that overflow are clipped.
        if tensor is None or np.asarray(tensor).dtype.kind in "biu":
            return tensor
        return round_to(np.clip(tensor, -self._dtype.max_finite, self._dtype.max_finite), self._dtype)


class _Perturbed(_Exact):
    """Evaluator that adds a signed error, u times its entry of ``losses``, to the result of each part."""

    def __init__(self, losses: Sequence[Any], signs: _Signs) -> None:
        self._losses = iter(enumerate(losses))
        self._signs = signs

    def observe(
        self, result: Array, _part: OperatorDescriptor | None, _tensors: Sequence[Any], _bound: Attributes
    ) -> Array:
        # The parts of a layer run in the same order each time, so that an iterator finds each one's losses.
        part, loss = next(self._losses)
        return np.asarray(result + _STEP * loss * self._signs(part, result)) if np.any(loss) else result
