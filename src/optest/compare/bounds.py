"""The class rules as numbers: from an operator's rule, its terms and declared numerics to bound and variance.

It judges nothing. Every formula stands here once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import Array
from optest.spec import DType, ErrorBudget, Numerics, Rule, Terms, dtype

Number = Any
"""A float, or a float64 array: the formulas take both."""

FEW = 16
"""Operands with fewer distinct values make roundings that repeat, so that errors add up instead of averaging."""

NEGLIGIBLE = 0.05
"""Share of an ulp of the output below which the arithmetic cannot change a rounding that is not near a tie."""

_MUCH = 1.0 / 64.0
"""Roundings of partial sums, beside a typical term: float32 reaches it with a quarter of a million terms."""

_FLOAT32, _FLOAT64 = dtype("float32"), dtype("float64")
_INDIRECT = 16.0
"""Allowance for Winograd and FFT in place of the direct sum (F(4x4, 3x3) amplifies about tenfold)."""


class Statistic(str, Enum):
    """What the tensor-wide z is made of.

    SUM expects independent roundings of partial sums and the final one; with few values it has to allow more.
    ROUNDING expects the final rounding alone and looks at elements that the arithmetic cannot have changed: there,
    whatever is within the bound and rounds to the nearest has an error of at most (½ + b)/(½ - b) times the least
    one, 1.22 for b = 0.05 ulp, so that 1.25 holds for any number of values and any correlation.
    """

    NONE = "none"
    SUM = "sum"
    ROUNDING = "rounding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """A class rule for one output dtype and one arithmetic.

    ::

        arithmetic = ulps·ulp_arithmetic(y) + per_term·T
        bound      = arithmetic + final·ulp_out(|y| + arithmetic)
        variance   = w·(per_square·y² + per_variance·V) + max(ulp_out(y)²/12, (round(y) - y)²)

    T is Σ|terms| or the budget's worst error, V is Σterms² or the budget's variance; where k differs by element, w
    is k and T is multiplied by √k, else w is 1. The final rounding is taken at |y| + arithmetic, because it rounds
    what the arithmetic left, which may lie in the next binade.
    """

    text: str
    output: DType
    arithmetic: DType
    ulps: float = 0.0
    per_term: float = 0.0
    final: float = 0.5
    per_square: float = 0.0
    per_variance: float = 0.0
    statistic: Statistic = Statistic.NONE
    narrow: bool = False
    """The output has fewer bits than the arithmetic, so that its rounding can be told from everything else."""
    correlated: bool = False
    """Errors of one operand element reach a whole row: only the square root of the values counts as draws."""
    expected_rounded: bool = False
    """The expected values are in the output's dtype or a narrower one, so that none of them shows a residue."""

    def arithmetic_error(self, magnitude: Number, total: Number, ulp_arithmetic: Callable[[Number], Number]) -> Number:
        if self.ulps == 0.0:
            return self.per_term * total
        ceiling = self.ulps * ulp_arithmetic(magnitude)
        return ceiling if self.per_term == 0.0 else ceiling + self.per_term * total

    def bound(self, magnitude: Number, arithmetic: Number, ulp_output: Callable[[Number], Number]) -> Number:
        if self.final == 0.0:
            return arithmetic
        return arithmetic + self.final * ulp_output(magnitude + arithmetic)

    def sum_variance(self, reference: Number, squares: Number, weight: Number) -> Number:
        """The expected squared error of the arithmetic."""
        variance = self.per_variance * squares
        if self.per_square != 0.0:
            variance = variance + self.per_square * (reference * reference)
        return variance * weight


class Budget(NamedTuple):
    """What a law multiplies, one number for all elements or one for each: T, V and w of :class:`Law`."""

    total: Any = 0.0
    squares: Any = 0.0
    weight: Any = 1.0


def arithmetic_of(inputs: Sequence[DType], output: DType, numerics: Numerics, *, sums: bool) -> DType:
    """The dtype whose unit roundoff the rule counts in.

    float64 if an operand or the output is that wide, else what the backend declares for sums, but never narrower
    than the widest operand, else float32.
    """
    inexact = [entry for entry in (*inputs, output) if entry.is_inexact]
    if any(entry.precision == _FLOAT64.precision for entry in inexact):
        return _FLOAT64
    if not sums or numerics.accumulator is None:
        return _FLOAT32
    declared = dtype(numerics.accumulator)
    operands = [entry for entry in inputs if entry.is_inexact]
    return max((declared, *operands), key=lambda entry: entry.precision)


def ulp_law(rule: Rule, output: DType, arithmetic: DType, processor: str | None, *, budgeted: bool) -> Law:
    """``ulp`` rule: a ceiling in units of the arithmetic's last place, plus the final rounding of a narrower output.

    A float64 result gets one unit more, because the reference is float64 too and may itself be off by one.
    """
    wide = output.precision >= arithmetic.precision
    double = output.precision >= _FLOAT64.precision
    budget = " + u·(budget of the operator)" if budgeted else ""
    final = "" if wide else " + ½ulp, rms <= 1.25 x that of correct rounding"
    slack = " + 1 (the reference is float64 too)" if double else ""
    ceiling = rule.ceiling(processor)
    other_ceiling = ""
    if rule.cpu_ulp is not None:  # the one of two that is not used
        other_ceiling = f" on a CPU ({rule.ulp:g} elsewhere)" if processor == "cpu" else f" ({rule.cpu_ulp:g} on a CPU)"
    units = f"{ceiling:g}{slack} ulp of {arithmetic}{other_ceiling}"
    return Law(
        text=f"{arithmetic} arithmetic: |err| <= {units}{budget}{final}" + (f" ({rule.source})" if rule.source else ""),
        output=output,
        arithmetic=arithmetic,
        ulps=ceiling + (1.0 if double else 0.0),
        per_term=arithmetic.unit_roundoff * (2.0 if double else 1.0) if budgeted else 0.0,
        final=0.0 if wide else 0.5,
        narrow=not wide,
        statistic=Statistic.NONE if wide else Statistic.ROUNDING,
    )


def accumulate_law(
    inputs: str,
    output: DType,
    arithmetic: DType,
    numerics: Numerics,
    *,
    terms: int | None,
    few: bool,
    cut: DType | None,
) -> Law:
    """``accumulate`` rule for a sum of ``terms`` products (None: k differs by element and is part of T and V).

    Per element 4·√k·u·Σ|terms| + ½ulp; over the tensor z <= 1.25 against u²·k·(y²/3 + Σterms²/2), the variance of
    independent roundings of partial sums. With operands of ``few`` values the certain bound k·u·Σ|terms| takes the
    place of both: (1+u)^k - 1, whatever the order. ``cut`` is the precision to which operands are cut before they
    are multiplied. A float64 result allows for a reference with errors of the same size: √2 in the bound and twice
    the variance where errors are independent, twice the bound where they are certain.

    An accumulator that truncates loses up to 2u on one side each time, so its errors add up as k does, not as √k.
    """
    u = arithmetic.unit_roundoff
    count = float(terms) if terms is not None else 1.0
    doubled = 2.0 if output.precision >= _FLOAT64.precision else 1.0
    width = _INDIRECT if not numerics.direct else 1.0
    label = f"k={terms}" if terms is not None else "k terms"
    phrase = f"{inputs} in, {arithmetic} accumulate{_declared(numerics, cut)}, {label}: |err| <= "
    operand = 2.0 * cut.unit_roundoff if cut is not None else 0.0
    operand_text = f" + 2·u({numerics.operands})·Σ|terms|" if cut is not None else ""
    truncates = numerics.accumulator_truncates
    narrow = output.precision < arithmetic.precision
    if few:
        sure = math.expm1(min(600.0, count * u * (2.0 if truncates else 1.0)))
        return Law(
            text=f"{phrase}k·u·Σ|terms|{operand_text} + ½ulp (operands of few distinct values)"
            + (", rms <= 1.25 x that of correct rounding" if narrow else ""),
            output=output,
            arithmetic=arithmetic,
            narrow=narrow,
            statistic=Statistic.ROUNDING if narrow else Statistic.NONE,
            per_term=(sure * doubled + operand * (2.0 if truncates else 1.0)) * width,
        )
    growth = count if truncates else math.sqrt(count)
    factor = (max(2.0 * count, 4.0 * growth) if truncates else 4.0 * growth) * u
    grown = "2·k·u" if truncates else "4·√k·u"
    biased = cut is not None and truncates
    return Law(
        text=f"{phrase}{'' if numerics.direct else f'{width:g}·'}{grown}·Σ|terms|{operand_text} + ½ulp"
        + ("" if biased else f", z <= {1.25:g}"),
        output=output,
        arithmetic=arithmetic,
        per_term=(factor * math.sqrt(doubled) + operand * (2.0 if truncates else 1.0)) * width,
        per_square=(growth * u) ** 2 * doubled / 3.0 * width**2,
        per_variance=((growth * u) ** 2 * doubled / 2.0 + 0.5 * operand**2) * width**2,
        statistic=Statistic.SUM if not biased else Statistic.ROUNDING if narrow else Statistic.NONE,
        narrow=narrow,
        correlated=cut is not None,
    )


def composed_law(
    rule: Rule,
    inputs: str,
    output: DType,
    arithmetic: DType,
    numerics: Numerics,
    *,
    has_variance: bool,
    cut: DType | None,
) -> Law:
    """``composed`` rule: the operator's own error budget in units of u, plus the final rounding.

    ``cut`` is the precision to which operands of its contractions are cut; the budget has what that costs.
    """
    u = arithmetic.unit_roundoff
    double = output.precision >= _FLOAT64.precision
    narrow = output.precision < arithmetic.precision
    coarse = arithmetic.precision < _FLOAT32.precision  # its subnormal numbers are steps of some size
    statistic = Statistic.SUM if has_variance else Statistic.ROUNDING if narrow else Statistic.NONE
    shown = {Statistic.SUM: ", z <= 1.25", Statistic.ROUNDING: ", rms <= 1.25 x that of correct rounding"}
    return Law(
        text=("" if not inputs else f"{inputs} in, ")
        + f"{arithmetic} arithmetic{_declared(Numerics(operands=numerics.operands), cut)}: "
        f"|err| <= u·({rule.formula or 'budget of the operator'})"
        + (f" + what cutting operands to {numerics.operands} costs" if cut is not None else "")
        + (f" + 1 ulp of {arithmetic}" if coarse else "")
        + " + ½ulp"
        + shown.get(statistic, ""),
        output=output,
        arithmetic=arithmetic,
        ulps=1.0 if coarse else 0.0,
        per_term=u * (2.0 if double else 1.0),
        per_variance=u * u * (2.0 if double else 1.0) if has_variance else 0.0,
        statistic=statistic,
        narrow=narrow,
        correlated=cut is not None,
    )


def against_rounded(law: Law, stored: DType) -> Law:
    """The same law for expected values that are rounded to ``stored``: a golden file, a generator's own, a float32
    reference. Half a unit of theirs is added, since the true value may lie that far away.

    Two right results then differ by one unit wherever the true value lies near a tie, which adds ulp²/12 to the
    variance of a sum. The final rounding alone, at most 0.05 ulp of arithmetic before it, differs for one element in
    ten at most, by one ulp: z = √(0.1·12) = 1.1 against ulp²/12, so that 1.25 still holds; truncation has 2.4.
    """
    coarser = law.output.precision - stored.precision
    text = f"{law.text}; expected values rounded to {stored}: + ½ulp"
    if coarser > 0:  # nothing can be told about roundings that are finer than what they are compared with
        return replace(law, text=text, final=law.final + 0.5 * 2.0**coarser, statistic=Statistic.NONE)
    if coarser == 0:
        return replace(law, text=text, final=law.final + 0.5, expected_rounded=True)
    if stored.precision <= law.arithmetic.precision:
        return replace(law, text=text, ulps=law.ulps + 0.5 * 2.0 ** (law.arithmetic.precision - stored.precision))
    return law


def _declared(numerics: Numerics, cut: DType | None) -> str:
    parts = [f"{numerics.operands} operands"] if cut is not None else []
    parts += ["truncating"] if numerics.accumulator_truncates else []
    parts += ["not direct"] if not numerics.direct else []
    return f" ({', '.join(parts)})" if parts else ""


def budget_of(terms: Any, numerics: Numerics, *, adds_up: bool, coarser: float = 0.0) -> Budget:
    """What the law multiplies, from the operator's Terms or ErrorBudget; errors that ``adds_up`` grow as k, not √k.

    ``coarser`` is the unit roundoff to which operands of an ErrorBudget are cut, in units of the arithmetic's.
    """
    if isinstance(terms, ErrorBudget):
        worst, variance = terms.worst, 0.0 if terms.variance is None else terms.variance
        if coarser and terms.of_operands is not None:
            worst = worst + coarser * terms.of_operands[0]
            variance = variance + coarser**2 * terms.of_operands[1]
        return Budget(total=worst, squares=variance)
    if not isinstance(terms, Terms):
        return Budget()
    total: Any = terms.absolute
    squares: Any = terms.squared
    weight: Any = 1.0
    if type(terms.count) is not int and np.ndim(terms.count):
        count = np.asarray(terms.count, dtype=np.float64)
        total, weight = total * (count if adds_up else np.sqrt(count)), count * count if adds_up else count
    if not adds_up and np.any(np.not_equal(terms.repeats, 1.0)):
        # All errors together are k·u·Σ|t| at most, which is √k/4 times the 4·√k·u·Σ|t| of different terms.
        most = np.maximum(1.0, np.sqrt(np.asarray(terms.count, np.float64)) / 4.0)
        total, weight = total * np.minimum(np.sqrt(terms.repeats), most), weight * terms.repeats
    if not numerics.direct:
        total, squares = float(np.max(total, initial=0.0)), float(np.max(squares, initial=0.0))
    return Budget(total=total, squares=squares, weight=weight)


def growth_of_sums(terms: Terms, count: int, value: Any, unit: float) -> float:
    """The roundings of partial sums beside a typical term: k·u at most, where all terms have one sign.

    Where that is much, it is a quarter of u·s / (Σ|t|/k), so that values have to differ by a unit of the partial sums s
    in place of four. These reach |Σt|, and √Σt² beside it as a random walk does; that of nearly all elements is taken.
    """
    if count * unit <= _MUCH:
        return count * unit
    absolute, squared, total = (
        np.asarray(each, np.float64).reshape(-1) for each in (terms.absolute, terms.squared, np.abs(value))
    )
    known = (absolute > 0.0) & np.isfinite(absolute) & np.isfinite(total)
    if not known.any():
        return _MUCH
    reach = np.minimum((total[known] + np.sqrt(squared[known])) / absolute[known], 1.0)
    return max(_MUCH, 0.25 * count * unit * float(np.quantile(reach, 0.98)))


def few_values(inputs: Sequence[Array | None], growth: float = 0.0) -> bool:
    """Whether roundings of a sum over these operands repeat: constants, one-hot, small integers, equal slices.

    A product varies if one of its factors does, so one varying operand is enough; with three and more operands (a
    bias that is added, not multiplied) two have to vary. Operands of fewer than 16 elements say nothing. Factors
    with any number of values still make equal products if both are constant along axes of one size, which may be
    the one that is summed over. ``growth`` is that of sums: values that differ by a smaller share of
    themselves vanish alike in the partial sums.
    """
    large = [each for each in inputs if each is not None and each.size >= FEW]
    if not large:
        return False
    varying = sum(not _has_few_values(each, growth) for each in large)
    if varying < (1 if len(large) < 3 else 2):
        return True
    return len(large) > 1 and bool(_constant_axes(large[0]) & _constant_axes(large[1]))


def _constant_axes(array: Array) -> set[int]:
    """Sizes, 16 and more, of the axes along which all slices are equal."""
    axes = set()
    for axis, size in enumerate(array.shape):
        if size < FEW or size in axes:
            continue
        first = array.take([0], axis=axis)
        if array.strides[axis] == 0 or (
            np.array_equal(first, array.take([size // 2], axis=axis)) and bool((array == first).all())
        ):
            axes.add(size)
    return axes


def terms_repeat(terms: Terms, growth: float) -> bool:
    """Whether some sum of 16 and more terms adds almost the same number again and again.

    Equal terms have k·Σt² = (Σ|t|)²; the three that k may count too many change that by 3/k. Terms that differ by a
    smaller share than the ``growth`` of sums are rounded by repeat as if they were equal.
    """
    if (type(terms.count) is not int and np.ndim(terms.count)) or terms.count < FEW:
        return False
    spread = 1.0 + (4.0 * growth) ** 2 + 3.0 / float(terms.count)
    absolute = np.asarray(terms.absolute, dtype=np.float64)
    with np.errstate(all="ignore"):
        equal = float(terms.count) * np.asarray(terms.squared) <= spread * (absolute * absolute)
    return bool((equal & (absolute > 0.0)).any())


def _has_few_values(array: Array, growth: float) -> bool:
    if array.dtype.kind == "c":
        return all(_has_few_values(part, growth) for part in (array.real, array.imag))
    flat: Any = array.reshape(-1) if array.flags.c_contiguous else array.flat
    size = array.size
    step = max(1, size // 64) | 1
    sample = flat[np.arange(64, dtype=np.int64) * step % size].astype(np.float64)
    values = set(sample.tolist())
    largest = float(np.abs(sample).max())
    if largest > 0.0 and float(sample.max() - sample.min()) <= 8.0 * growth * largest:
        return True
    if len(values) >= FEW:
        return False
    for start in range(0, size, 1 << 15):
        values |= set(np.unique(np.asarray(flat[start : start + (1 << 15)]).astype(np.float64)).tolist())
        if len(values) >= FEW:
            return False
    return True
