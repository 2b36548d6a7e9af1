"""Layers: functions of operators. One function says what a layer computes, whoever computes its parts: the references
in float64, a backend, or references whose results are off by what the parts may lose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np

from optest.numerics import dtype_of, round_to
from optest.operators import operators
from optest.operators.arrays import Array, Attributes, Inputs
from optest.operators.budgets import unit_roundoff
from optest.registry import load_object
from optest.spec import ErrorBudget, OperatorDescriptor, RuleClass, Terms, Unrounded


class Calls(Protocol):
    """Whoever computes the parts of a layer."""

    def __call__(self, operator: str, *tensors: Any, **attributes: Any) -> Any:
        """The first output of an operator; None stands for an optional tensor that is left out."""
        ...

    def constant(self, values: Any) -> Any:
        """A tensor of these values in the dtype of the layer."""
        ...


Composition = Callable[[Calls, Inputs, Attributes], Sequence[Any]]
Hook = Callable[[Inputs, Attributes], Any]


def reference_of(layer: Composition) -> Hook:
    """The reference of a layer: its parts in float64, with no rounding between them."""

    def reference(inputs: Inputs, attributes: Attributes) -> tuple[Any, ...]:
        return tuple(layer(_Exact(), inputs, attributes))

    return reference


def budget_of(layer: Composition) -> Hook:
    """The error terms of a layer.

    What a part may lose by its own rule is known; what that does to the outputs is sampled: the layer is computed
    again with every part off by its largest error with random signs, 16 times, and with equal signs, twice. The bound
    is 3 times the root mean square of the first, or the largest of the others. The variance is that of 16 runs in
    which parts are off by their standard deviation. Errors are of first order, so that the size of u does not matter.
    """

    def terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
        measured = _Measured(next(each for each in inputs if each is not None))
        exact = [np.asarray(each) for each in layer(measured, inputs, attributes)]
        worst, variance, cut, cut_variance = zip(*measured.losses, strict=True)

        def deviations(losses: Sequence[Any], signs: Iterator[_Signs]) -> Iterator[list[Array]]:
            for each in signs:
                off = layer(_Perturbed(losses, each), inputs, attributes)
                yield [(np.asarray(one) - other) / _STEP for one, other in zip(off, exact, strict=True)]

        def squares(losses: Sequence[Any]) -> list[Array]:
            runs = zip(*deviations(losses, islice(_random_signs(), _RUNS)), strict=True)
            return [np.mean(np.square(np.stack(each)), 0) for each in runs]

        def largest(losses: Sequence[Any]) -> list[Array]:
            coherent = zip(*deviations(losses, iter(_COHERENT)), strict=True)
            pairs = zip(squares(losses), coherent, strict=True)
            return [np.maximum(3.0 * np.sqrt(each), np.max(np.abs(np.stack(runs)), 0)) for each, runs in pairs]

        spread = squares([np.sqrt(each) for each in variance])
        of_operands: Sequence[Any] = [None] * len(exact)
        if np.asarray(inputs[0]).dtype == np.float32:
            of_operands = list(zip(largest(cut), squares([np.sqrt(each) for each in cut_variance]), strict=True))
        return tuple(map(ErrorBudget, largest(worst), spread, of_operands))

    return terms


_RUNS = 16
_STEP = 2.0**-24
"""The size of u in the runs that are off: beyond it float64 has as many bits to show what becomes of it."""

_Signs = Callable[[int, Array], Any]
"""The sign of each element's error, by the number of the part and its result."""
_COHERENT: tuple[_Signs, ...] = (lambda _, values: np.ones(values.shape), lambda _, values: np.sign(values))


def _random_signs() -> Iterator[_Signs]:
    run = 0
    while True:
        run += 1
        yield lambda part, values, run=run: _mixed(values.size, 1024 * run + part).reshape(values.shape)  # type: ignore[misc]


def _mixed(count: int, stream: int) -> Array:
    """1 and -1 by the highest bit of the finalizer of MurmurHash3 over place and stream."""
    bits = np.arange(count, dtype=np.uint32) + np.uint32(stream * 0x9E3779B9 & 0xFFFFFFFF)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        bits = (bits ^ (bits >> np.uint32(shift))) * np.uint32(factor)
    return np.where(bits >> np.uint32(31), 1.0, -1.0)


class _Exact:
    """Parts by their references."""

    def __call__(self, operator: str, *tensors: Any, **attributes: Any) -> Any:
        descriptor = operators.get(operator)
        bound = descriptor.bind(attributes)
        outputs = load_object(descriptor.reference)(tensors, bound)
        first = outputs[0] if isinstance(outputs, (tuple, list)) and not isinstance(outputs, Unrounded) else outputs
        return self.off(np.asarray(first.values if isinstance(first, Unrounded) else first), descriptor, tensors, bound)

    def constant(self, values: Any) -> Any:
        return self.off(np.asarray(values, np.float64), None, (), {})

    def off(self, result: Array, _of: OperatorDescriptor | None, _tensors: Sequence[Any], _bound: Attributes) -> Array:
        return result


class _Losses(NamedTuple):
    """Of one part: its largest error and the variance of it, in units of u; and what cut operands cost in theirs."""

    worst: Any
    variance: Any
    cut: Any = 0.0
    cut_variance: Any = 0.0


class _Measured(_Exact):
    """Parts by their references, with what each may lose when the layer is computed in the dtype of ``first``."""

    def __init__(self, first: Array) -> None:
        self._dtype = dtype_of(np.asarray(first).dtype)
        self._final = self._dtype.unit_roundoff / unit_roundoff(np.asarray(first))
        self.losses: list[_Losses] = []

    def off(self, result: Array, of: OperatorDescriptor | None, tensors: Sequence[Any], bound: Attributes) -> Array:
        own = _Losses(0.0, 0.0) if of is None else self._own(result, of, tensors, bound)
        rounding = np.abs(result) * self._final
        if of is not None and of.rule is not None and of.rule.kind in (RuleClass.MOVEMENT, RuleClass.EXACT):
            rounding = np.zeros(result.shape)
        self.losses.append(own._replace(worst=own.worst + rounding, variance=own.variance + rounding * rounding / 3.0))
        return result

    def _own(self, result: Array, of: OperatorDescriptor, tensors: Sequence[Any], bound: Attributes) -> _Losses:
        assert of.rule is not None
        ceiling = 2.0 * of.rule.ulp * np.abs(result) if of.rule.kind is RuleClass.ULP else 0.0
        terms = load_object(of.terms)([self._stored(each) for each in tensors], bound) if of.terms else None
        if isinstance(terms, (tuple, list)) and not hasattr(terms, "_fields"):
            (terms,) = terms
        if terms is None:
            return _Losses(ceiling, np.square(ceiling) / 3.0)
        if isinstance(terms, ErrorBudget):
            variance = np.square(terms.worst) / 9.0 if terms.variance is None else terms.variance
            return _Losses(terms.worst + ceiling, variance + np.square(ceiling) / 3.0, *(terms.of_operands or ()))
        assert isinstance(terms, Terms)
        count = np.asarray(terms.count, np.float64)
        own = _Losses(
            4.0 * np.sqrt(count) * terms.absolute, count * (result * result / 3.0 + np.asarray(terms.squared) / 2.0)
        )
        is_product = of.category == "contraction"
        return own._replace(cut=2.0 * terms.absolute, cut_variance=2.0 * terms.squared) if is_product else own

    def _stored(self, tensor: Any) -> Any:
        """As a backend has it, for terms that ask for the dtype, but finite where it overflows: errors of an infinity
        have no size. Indices stay as they are."""
        if tensor is None or np.asarray(tensor).dtype.kind in "biu":
            return tensor
        return round_to(np.clip(tensor, -self._dtype.max_finite, self._dtype.max_finite), self._dtype)


class _Perturbed(_Exact):
    """Parts that are off by their losses times u, with signs."""

    def __init__(self, losses: Sequence[Any], signs: _Signs) -> None:
        self._losses = iter(enumerate(losses))
        self._signs = signs

    def off(self, result: Array, _of: OperatorDescriptor | None, _tensors: Sequence[Any], _bound: Attributes) -> Array:
        part, loss = next(self._losses)
        return np.asarray(result + _STEP * loss * self._signs(part, result)) if np.any(loss) else result
