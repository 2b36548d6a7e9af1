"""Running error analysis: numbers that carry the largest error that they may have, so that one formula is both the
reference of an operator and the derivation of its error terms.

Source: Higham, Accuracy and Stability of Numerical Algorithms (2002), §3.3. In units of the arithmetic's u, to first
order: a sum, a difference and a product are off by |y|, a quotient, a square root and what a constant is rounded to by
5·|y|, 5·|y| and |y| (OpenCL C 3.0 §7.4: 2.5 ulp), exp by (|x| + 6)·|y| (3 ulp, and the way to base 2), a sum of n terms
by 4√n·Σ|t|, or n·Σ|t| where they repeat few values; and all of it by what the operands are off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, is_double, widen
from optest.operators.budgets import growth_of_sum, half_subnormal, unit_roundoff
from optest.spec import ErrorBudget

Number = Any
"""An array of float64 or long double, or a :class:`Bounded`."""
Formula = Callable[[Sequence[Any], Attributes], Sequence[Number]]
"""From the inputs (None for one left out, integers as they are) and the attributes to the outputs."""
_FARTHEST = -86.9
"""exp(-x) is near its overflow in float32: see silu."""


class Bounded:
    """Values, and how far each may be off in units of u."""

    __array_ufunc__ = None

    def __init__(self, value: Any, worst: Any = 0.0, *, double: bool = False) -> None:
        self.value = np.asarray(value, np.float64)
        # Infinity and NaN are exact, whatever the operands are off: else 1 / infinity would be off by NaN.
        self.worst: Array = np.where(np.isfinite(self.value), worst, 0.0)
        self.double = double

    def _rounded(self, value: Any, worst: Any, units: float = 1.0, *, tiny: bool = True) -> Bounded:
        """``tiny``: the result may have been rounded to a subnormal number."""
        lost = half_subnormal(double=self.double) if tiny else 0.0
        return Bounded(value, worst + units * np.abs(value) + lost, double=self.double)

    def _of(self, other: Any) -> Bounded:
        return other if isinstance(other, Bounded) else Bounded(other, double=self.double)

    def __add__(self, other: Any) -> Bounded:
        that = self._of(other)
        return self._rounded(self.value + that.value, self.worst + that.worst, tiny=False)

    def __sub__(self, other: Any) -> Bounded:
        return self + -self._of(other)

    def __rsub__(self, other: Any) -> Bounded:
        return self._of(other) - self

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.worst, double=self.double)

    def __mul__(self, other: Any) -> Bounded:
        that = self._of(other)
        worst = _product(self.value, that.worst) + _product(that.value, self.worst)
        return self._rounded(self.value * that.value, worst)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other: Any) -> Bounded:
        that = self._of(other)
        value = self.value / that.value
        return self._rounded(value, (self.worst + _product(value, that.worst)) / np.abs(that.value), 5.0)

    def __rtruediv__(self, other: Any) -> Bounded:
        return self._of(other) / self

    def __getitem__(self, place: Any) -> Bounded:
        return self.moved(lambda array: array[place])

    @property
    def unit(self) -> float:
        return unit_roundoff(np.empty(0, np.float64 if self.double else np.float32))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def reshape(self, *shape: Any) -> Bounded:
        return self.moved(lambda array: array.reshape(*shape))

    def moved(self, move: Callable[[Array], Array]) -> Bounded:
        return Bounded(move(self.value), move(self.worst), double=self.double)

    def sum(self, axis: Any, keepdims: bool = False) -> Bounded:
        dims = tuple(each % self.value.ndim for each in (axis if isinstance(axis, tuple) else (axis,)))
        count = float(np.prod([self.shape[dim] for dim in dims]))
        growth, _ = growth_of_sum(self.value, count, dims)
        sizes = np.abs(self.value).sum(dims, keepdims=True)
        worst = self.worst.sum(dims, keepdims=True) + (growth * sizes if count > 1 else 0.0)
        out = Bounded(self.value.sum(dims, keepdims=True), worst, double=self.double)
        return out if keepdims else out.moved(lambda array: np.asarray(array.squeeze(dims)))


def _product(value: Array, worst: Array) -> Array:
    """0 where nothing is off, also beside infinity."""
    return np.where(worst == 0.0, 0.0, np.abs(value) * worst)


def moved(number: Number, move: Callable[[Array], Array]) -> Number:
    return number.moved(move) if isinstance(number, Bounded) else move(number)


def joined(numbers: Sequence[Number], join: Callable[[list[Array]], Array]) -> Number:
    """Concatenated or stacked."""
    if isinstance(numbers[0], Bounded):
        parts = [[each.value for each in numbers], [each.worst for each in numbers]]
        return Bounded(*map(join, parts), double=numbers[0].double)
    return join(list(numbers))


def either(number: Number, other: Number) -> Number:
    """Return a number that kernels compute by either of two formulas: the first value, and the larger error."""
    if not isinstance(number, Bounded):
        return number
    return Bounded(number.value, np.fmax(number.worst, other.worst), double=number.double)


def constant(value: float, like: Number) -> Number:
    """A number that is rounded to the arithmetic of ``like``."""
    return Bounded(value, abs(value), double=like.double) if isinstance(like, Bounded) else value


def sqrt(x: Number) -> Number:
    if not isinstance(x, Bounded):
        return np.sqrt(x)
    root, lost = np.sqrt(x.value), x.worst * x.unit
    # Not w·u / 2√x: the slope is infinite at 0, and too flat below an x that is hardly larger than its error.
    up = lost / (root + np.sqrt(x.value + lost))
    down = np.minimum(lost, x.value) / (root + np.sqrt(np.maximum(x.value - lost, 0.0)))
    return x._rounded(root, np.where(x.worst == 0.0, 0.0, np.fmax(up, down) / x.unit), 5.0)


def exp(x: Number) -> Number:
    if not isinstance(x, Bounded):
        return np.exp(x)
    y, size = np.exp(x.value), np.minimum(np.abs(x.value), 1000.0)
    return x._rounded(y, _product(y, x.worst + size), 6.0)


def log(x: Number) -> Number:
    """The natural logarithm, 3 ulp."""
    if not isinstance(x, Bounded):
        return np.log(x)
    return x._rounded(np.log(x.value), np.where(x.worst == 0.0, 0.0, x.worst / x.value), 6.0)


def silu(x: Number) -> Number:
    """x·sigmoid(x), 4 ulp; below -86.9, where exp(-x) nears its overflow, 0 is right, too."""
    if not isinstance(x, Bounded):
        return x / (1.0 + np.exp(-x))
    share = 1.0 / (1.0 + np.exp(-x.value))
    y = x.value * share
    lost = np.where(x.value < _FARTHEST, np.abs(y) / x.unit, 0.0)
    return x._rounded(y, _product(share * (1.0 + np.abs(x.value) * (1.0 - share)), x.worst) + lost, 8.0)


def softplus(x: Number) -> Number:
    """ln(1 + exp(x)), and x itself above 20, as torch and Mamba have it.

    4 ulp, and 1 more where kernels write log(exp(x) + 1), as Mamba's of Triton do, in place of log1p. The curve above
    20 is right, too, which float64 alone shows.
    """
    if not isinstance(x, Bounded):
        return np.where(x > 20.0, x, np.log1p(np.exp(np.minimum(x, 20.0))))
    y = softplus(x.value)
    curve = np.where(x.value > 20.0, np.exp(-x.value) / x.unit, 0.0)
    return x._rounded(y, x.worst / (1.0 + np.exp(-x.value)) + 1.0 + curve, 8.0)


def exactly(formula: Formula, inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The outputs in float64; computed in long double where an input is a float64."""
    wide = np.longdouble if any(is_double(each) for each in inputs if each is not None) else np.float64
    operands = [_operand(each, lambda array: widen(array).astype(wide, copy=False)) for each in inputs]
    return tuple(np.asarray(each).astype(np.float64, copy=False) for each in formula(_Padded(operands), attributes))


def budgets(formula: Formula, inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the error budget of each output; one that is not finite stays so, and the comparison reports it."""
    double = any(is_double(each) for each in inputs if each is not None)
    operands = [_operand(each, lambda array: Bounded(as_float64(array), double=double)) for each in inputs]
    return tuple(ErrorBudget(each.worst) for each in formula(_Padded(operands), attributes))


def _operand(stored: Any, read: Callable[[Array], Any]) -> Any:
    array = None if stored is None else np.asarray(stored)
    return array if array is None or array.dtype.kind in "biu" else read(array)


class _Padded(list[Any]):
    """Inputs, with None for those at the end that are left out."""

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(place) if isinstance(place, slice) or place < len(self) else None
