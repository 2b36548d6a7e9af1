"""Running error analysis: numbers that carry a bound on their error.

One formula is both the reference of an operator (on arrays) and the derivation of its error terms (on these numbers).

Source: Higham, Accuracy and Stability of Numerical Algorithms (2002), §3.3. To first order and in units of u, an
operation with the result y adds these errors to those of its operands: a sum, a difference, a product and a rounded
constant |y|; a quotient and a square root 5·|y| (OpenCL C 3.0 §7.4: 2.5 ulp); exp (|x| + 6)·|y| (3 ulp, and the
conversion to base 2); a sum of n terms 4√n·Σ|t|, or n·Σ|t| if they repeat few values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, is_double, widen
from optest.operators.budgets import growth_of_sum, half_subnormal, unit_roundoff
from optest.spec import ErrorBudget

# An array of float64 or long double, or a Bounded.
Number = Any
# From the inputs (None for one left out, integers as they are) and the attributes to the outputs.
Formula = Callable[[Sequence[Any], Attributes], Sequence[Number]]
# Below it, exp(-x) nears its overflow in float32, and kernels of silu return 0.
_LOWEST_SILU = -86.9


class Bounded:
    """Array of values with a bound on each one's error in units of u; arithmetic carries the bounds on."""

    # Without it, NumPy would apply `array + bounded` element by element instead of calling __radd__.
    __array_ufunc__ = None

    def __init__(self, value: Any, worst: Any = 0.0, *, double: bool = False) -> None:
        self.value = np.asarray(value, np.float64)
        # Infinity and NaN count as exact whatever the operands' errors: else the error of 1 / infinity would be NaN.
        self.worst: Array = np.where(np.isfinite(self.value), worst, 0.0)
        self.double = double

    def _rounded(self, value: Any, worst: Any, units: float = 1.0, *, tiny: bool = True) -> Bounded:
        """Return ``value`` with the error ``worst`` plus a rounding of ``units`` · u · |value|.

        With ``tiny`` the result may be subnormal, which adds the error of that rounding.
        """
        lost = half_subnormal(double=self.double) if tiny else 0.0
        return Bounded(value, worst + units * np.abs(value) + lost, double=self.double)

    def _as_bounded(self, operand: Any) -> Bounded:
        return operand if isinstance(operand, Bounded) else Bounded(operand, double=self.double)

    def __add__(self, operand: Any) -> Bounded:
        right = self._as_bounded(operand)
        # A sum of floats that is subnormal is exact.
        return self._rounded(self.value + right.value, self.worst + right.worst, tiny=False)

    def __sub__(self, operand: Any) -> Bounded:
        return self + -self._as_bounded(operand)

    def __rsub__(self, operand: Any) -> Bounded:
        return self._as_bounded(operand) - self

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.worst, double=self.double)

    def __mul__(self, operand: Any) -> Bounded:
        right = self._as_bounded(operand)
        worst = _scaled_error(self.value, right.worst) + _scaled_error(right.value, self.worst)
        return self._rounded(self.value * right.value, worst)

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, operand: Any) -> Bounded:
        right = self._as_bounded(operand)
        value = self.value / right.value
        return self._rounded(value, (self.worst + _scaled_error(value, right.worst)) / np.abs(right.value), 5.0)

    def __rtruediv__(self, operand: Any) -> Bounded:
        return self._as_bounded(operand) / self

    def __getitem__(self, index: Any) -> Bounded:
        return self.moved(lambda array: array[index])

    @property
    def unit(self) -> float:
        """Unit roundoff of the arithmetic."""
        return unit_roundoff(np.empty(0, np.float64 if self.double else np.float32))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def reshape(self, *shape: Any) -> Bounded:
        return self.moved(lambda array: array.reshape(*shape))

    def moved(self, move: Callable[[Array], Array]) -> Bounded:
        """Apply a movement of elements, such as a transposition, to values and errors."""
        return Bounded(move(self.value), move(self.worst), double=self.double)

    def sum(self, axis: Any, keepdims: bool = False) -> Bounded:
        """Sum over ``axis``, an index or a tuple of them; rounding adds 4√n·Σ|t|, or n·Σ|t| for repeated values."""
        dims = tuple(dim % self.value.ndim for dim in (axis if isinstance(axis, tuple) else (axis,)))
        count = float(np.prod([self.shape[dim] for dim in dims]))
        growth, _ = growth_of_sum(self.value, count, dims)
        sizes = np.abs(self.value).sum(dims, keepdims=True)
        worst = self.worst.sum(dims, keepdims=True) + (growth * sizes if count > 1 else 0.0)
        out = Bounded(self.value.sum(dims, keepdims=True), worst, double=self.double)
        return out if keepdims else out.moved(lambda array: np.asarray(array.squeeze(dims)))


def _scaled_error(value: Array, worst: Array) -> Array:
    # 0 · ∞ would be NaN, but an exact operand adds no error, whatever it is multiplied by.
    return np.where(worst == 0.0, 0.0, np.abs(value) * worst)


def move_elements(number: Number, move: Callable[[Array], Array]) -> Number:
    """Apply a movement of elements, such as a transposition, to a number."""
    return number.moved(move) if isinstance(number, Bounded) else move(number)


def joined(numbers: Sequence[Number], join: Callable[[list[Array]], Array]) -> Number:
    """Join numbers with ``join``, which concatenates or stacks a list of arrays."""
    if isinstance(numbers[0], Bounded):
        parts = [[number.value for number in numbers], [number.worst for number in numbers]]
        return Bounded(*map(join, parts), double=numbers[0].double)
    return join(list(numbers))


def larger_error_of(number: Number, alternative: Number) -> Number:
    """Return the first of two equivalent results, with the larger error of both: kernels may use either formula."""
    if not isinstance(number, Bounded):
        return number
    return Bounded(number.value, np.fmax(number.worst, alternative.worst), double=number.double)


def constant(value: float, like: Number) -> Number:
    """Return a constant that kernels round to the arithmetic of ``like``: with an error of |value|."""
    return Bounded(value, abs(value), double=like.double) if isinstance(like, Bounded) else value


def sqrt(x: Number) -> Number:
    """Return the square root, with an error of 2.5 ulp."""
    if not isinstance(x, Bounded):
        return np.sqrt(x)
    root, lost = np.sqrt(x.value), x.worst * x.unit
    # Not w·u / 2√x: the slope is infinite at 0, and too flat below an x that is hardly larger than its error.
    up = lost / (root + np.sqrt(x.value + lost))
    down = np.minimum(lost, x.value) / (root + np.sqrt(np.maximum(x.value - lost, 0.0)))
    return x._rounded(root, np.where(x.worst == 0.0, 0.0, np.fmax(up, down) / x.unit), 5.0)


def exp(x: Number) -> Number:
    """Return eˣ, with an error of 3 ulp and |x|·u·eˣ for the conversion to base 2."""
    if not isinstance(x, Bounded):
        return np.exp(x)
    # Beyond 1000 the result is 0 or infinity.
    y, size = np.exp(x.value), np.minimum(np.abs(x.value), 1000.0)
    return x._rounded(y, _scaled_error(y, x.worst + size), 6.0)


def log(x: Number) -> Number:
    """Return the natural logarithm, with an error of 3 ulp."""
    if not isinstance(x, Bounded):
        return np.log(x)
    return x._rounded(np.log(x.value), np.where(x.worst == 0.0, 0.0, x.worst / x.value), 6.0)


def silu(x: Number) -> Number:
    """Return x·sigmoid(x), with an error of 4 ulp, and below -86.9, where exp(-x) nears its overflow, all of it."""
    if not isinstance(x, Bounded):
        return x / (1.0 + np.exp(-x))
    share = 1.0 / (1.0 + np.exp(-x.value))
    y = x.value * share
    lost = np.where(x.value < _LOWEST_SILU, np.abs(y) / x.unit, 0.0)
    return x._rounded(y, _scaled_error(share * (1.0 + np.abs(x.value) * (1.0 - share)), x.worst) + lost, 8.0)


def softplus(x: Number) -> Number:
    """Return ln(1 + exp(x)), and x itself above 20, as torch and Mamba compute it.

    It has an error of 4 ulp and 1 u, and above 20 the difference from the curve.
    """
    if not isinstance(x, Bounded):
        return np.where(x > 20.0, x, np.log1p(np.exp(np.minimum(x, 20.0))))
    y = softplus(x.value)
    # 1 u is for kernels with log(exp(x) + 1) in place of log1p, such as Mamba's in Triton. Above 20 the curve is right,
    # too; the difference is visible in float64 only.
    curve = np.where(x.value > 20.0, np.exp(-x.value) / x.unit, 0.0)
    return x._rounded(y, x.worst / (1.0 + np.exp(-x.value)) + 1.0 + curve, 8.0)


def evaluate(formula: Formula, inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Evaluate a formula on arrays and return float64: in long double if an input is a float64, else in float64."""
    wide = np.longdouble if any(is_double(value) for value in inputs if value is not None) else np.float64
    operands = [_operand(value, lambda array: widen(array).astype(wide, copy=False)) for value in inputs]
    return tuple(np.asarray(out).astype(np.float64, copy=False) for out in formula(_Padded(operands), attributes))


def budgets(formula: Formula, inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Evaluate a formula on :class:`Bounded` inputs and return the error budget of each output, finite or not."""
    # A budget that is not finite is an error of the formula; the comparison reports it.
    double = any(is_double(value) for value in inputs if value is not None)
    operands = [_operand(value, lambda array: Bounded(as_float64(array), double=double)) for value in inputs]
    return tuple(ErrorBudget(out.worst) for out in formula(_Padded(operands), attributes))


def _operand(stored: Any, convert: Callable[[Array], Any]) -> Any:
    """Return ``convert`` of a float or complex input; integers and bool as arrays, None as it is."""
    array = None if stored is None else np.asarray(stored)
    return array if array is None or array.dtype.kind in "biu" else convert(array)


class _Padded(list[Any]):
    """List of inputs with None for every index beyond its end: optional inputs that are left out."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index) if isinstance(index, slice) or index < len(self) else None
