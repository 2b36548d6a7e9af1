"""Class rules as numbers: the bound and variance of an error from an operator's rule, its terms and declared numerics.

Every formula is here once; the comparison itself is in :mod:`optest.compare.elements`.
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

# A float or a float64 array: the formulas take both.
Number = Any

# Operands with fewer distinct values make roundings that repeat, so that errors add up instead of averaging.
FEW = 16

# Share of an ulp of the output below which the arithmetic cannot change a rounding that is not near a tie.
NEGLIGIBLE = 0.05

# Roundings of partial sums, relative to a typical term: float32 reaches it with a quarter of a million terms.
_MUCH = 1.0 / 64.0

_FLOAT32, _FLOAT64 = dtype("float32"), dtype("float64")

# Allowance for Winograd and FFT in place of the direct sum (F(4x4, 3x3) amplifies about tenfold).
_INDIRECT = 16.0


class Statistic(str, Enum):
    """Statistic over the whole tensor that a law has.

    SUM expects independent roundings of partial sums and the final one; with few values it has to allow more. ROUNDING
    expects the final rounding only, and uses elements that the arithmetic cannot have changed.
    """

    NONE = "none"
    SUM = "sum"
    # Results within the bound that round to the nearest have an error of at most (½ + b)/(½ - b) times the least one,
    # 1.22 for b = NEGLIGIBLE, so that 1.25 holds for any number of values and any correlation.
    ROUNDING = "rounding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Law:
    """Class rule for one output dtype and one arithmetic.

    ::

        arithmetic = ulps·ulp_arithmetic(y) + per_term·T
        bound      = arithmetic + final·ulp_out(|y| + arithmetic)
        variance   = w·(per_square·y² + per_variance·V) + max(ulp_out(y)²/12, (round(y) - y)²)

    T is Σ|terms| or the budget's worst error, V is Σterms² or the budget's variance; where k differs by element, w
    is k and T is multiplied by √k, else w is 1. The final rounding is taken at |y| + arithmetic, because it rounds
    the result of the arithmetic, which may be in the next binade.
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
    # The output has fewer bits than the arithmetic, so that its rounding can be told from everything else.
    narrow: bool = False
    # Errors of one operand element reach a whole row: only the square root of the values counts as draws.
    correlated: bool = False
    # The expected values are in the output's dtype or a narrower one, so that none of them shows a residue.
    expected_rounded: bool = False

    def arithmetic_error(self, magnitude: Number, total: Number, ulp_arithmetic: Callable[[Number], Number]) -> Number:
        """Return the largest error of the arithmetic at a magnitude |y|, for T = ``total``."""
        if self.ulps == 0.0:
            return self.per_term * total
        ceiling = self.ulps * ulp_arithmetic(magnitude)
        return ceiling if self.per_term == 0.0 else ceiling + self.per_term * total

    def bound(self, magnitude: Number, arithmetic: Number, ulp_output: Callable[[Number], Number]) -> Number:
        """Return the bound of the error: that of the arithmetic and the final rounding."""
        if self.final == 0.0:
            return arithmetic
        return arithmetic + self.final * ulp_output(magnitude + arithmetic)

    def sum_variance(self, reference: Number, squares: Number, weight: Number) -> Number:
        """Return the expected squared error of the arithmetic, for V = ``squares`` and w = ``weight``."""
        variance = self.per_variance * squares
        if self.per_square != 0.0:
            variance = variance + self.per_square * (reference * reference)
        return variance * weight


class Budget(NamedTuple):
    """Multipliers of a law, one number for all elements or one for each: T, V and w of :class:`Law`."""

    total: Any = 0.0
    squares: Any = 0.0
    weight: Any = 1.0


def arithmetic_of(inputs: Sequence[DType], output: DType, numerics: Numerics, *, sums: bool) -> DType:
    """Return the dtype whose unit roundoff a rule counts in.

    It is float64 if an operand or the output is that wide; else float32, or for ``sums`` the accumulator that the
    backend declares, but never narrower than the widest operand.
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
    """Return the law of an ``ulp`` rule: a ceiling in ulp of the arithmetic, plus the final rounding if narrower.

    ``budgeted`` adds the operator's error budget.
    """
    wide = output.precision >= arithmetic.precision
    double = output.precision >= _FLOAT64.precision
    budget = " + u·(budget of the operator)" if budgeted else ""
    final = "" if wide else " + ½ulp, rms <= 1.25 x that of correct rounding"
    slack = " + 1 (the reference is float64 too)" if double else ""
    ceiling = rule.ceiling(processor)
    other_ceiling = ""
    if rule.cpu_ulp is not None:  # name the ceiling of the other processor, too
        other_ceiling = f" on a CPU ({rule.ulp:g} elsewhere)" if processor == "cpu" else f" ({rule.cpu_ulp:g} on a CPU)"
    units = f"{ceiling:g}{slack} ulp of {arithmetic}{other_ceiling}"
    return Law(
        text=f"{arithmetic} arithmetic: |err| <= {units}{budget}{final}" + (f" ({rule.source})" if rule.source else ""),
        output=output,
        arithmetic=arithmetic,
        # The reference of a float64 result is float64 too and may itself be off by one.
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
    """Return the law of an ``accumulate`` rule for a sum of k = ``terms`` products (None: k differs by element).

    Per element 4·√k·u·Σ|terms| + ½ulp; over the tensor z <= 1.25 against u²·k·(y²/3 + Σterms²/2), the variance of
    independent roundings of partial sums. With operands of ``few`` values the certain bound k·u·Σ|terms| replaces both:
    (1+u)^k - 1, in every order. ``cut`` is the precision to which operands are cut before they are multiplied.
    """
    u = arithmetic.unit_roundoff
    count = float(terms) if terms is not None else 1.0
    # The reference of a float64 result has errors of the same size: √2 in the bound and twice the variance if errors
    # are independent, twice the bound if they are certain.
    doubled = 2.0 if output.precision >= _FLOAT64.precision else 1.0
    width = _INDIRECT if not numerics.direct else 1.0
    label = f"k={terms}" if terms is not None else "k terms"
    prefix = f"{inputs} in, {arithmetic} accumulate{_numerics_text(numerics, cut)}, {label}: |err| <= "
    operand = 2.0 * cut.unit_roundoff if cut is not None else 0.0
    operand_text = f" + 2·u({numerics.operands})·Σ|terms|" if cut is not None else ""
    truncates = numerics.accumulator_truncates
    narrow = output.precision < arithmetic.precision
    if few:
        certain = math.expm1(min(600.0, count * u * (2.0 if truncates else 1.0)))
        return Law(
            text=f"{prefix}k·u·Σ|terms|{operand_text} + ½ulp (operands of few distinct values)"
            + (", rms <= 1.25 x that of correct rounding" if narrow else ""),
            output=output,
            arithmetic=arithmetic,
            narrow=narrow,
            statistic=Statistic.ROUNDING if narrow else Statistic.NONE,
            per_term=(certain * doubled + operand * (2.0 if truncates else 1.0)) * width,
        )
    # An accumulator that truncates loses up to 2u on one side each time, so its errors add up as k does, not as √k.
    growth = count if truncates else math.sqrt(count)
    factor = (max(2.0 * count, 4.0 * growth) if truncates else 4.0 * growth) * u
    growth_text = "2·k·u" if truncates else "4·√k·u"
    biased = cut is not None and truncates
    return Law(
        text=f"{prefix}{'' if numerics.direct else f'{width:g}·'}{growth_text}·Σ|terms|{operand_text} + ½ulp"
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
    """Return the law of a ``composed`` rule: the operator's error budget in units of u, plus the final rounding.

    ``cut`` is the precision to which operands of its contractions are cut; the budget contains the cost of that.
    """
    u = arithmetic.unit_roundoff
    double = output.precision >= _FLOAT64.precision
    narrow = output.precision < arithmetic.precision
    coarse = arithmetic.precision < _FLOAT32.precision  # its subnormal numbers are large steps
    statistic = Statistic.SUM if has_variance else Statistic.ROUNDING if narrow else Statistic.NONE
    limits = {Statistic.SUM: ", z <= 1.25", Statistic.ROUNDING: ", rms <= 1.25 x that of correct rounding"}
    return Law(
        text=("" if not inputs else f"{inputs} in, ")
        + f"{arithmetic} arithmetic{_numerics_text(Numerics(operands=numerics.operands), cut)}: "
        f"|err| <= u·({rule.formula or 'budget of the operator'})"
        + (f" + what cutting operands to {numerics.operands} costs" if cut is not None else "")
        + (f" + 1 ulp of {arithmetic}" if coarse else "")
        + " + ½ulp"
        + limits.get(statistic, ""),
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
    """Return the law for expected values rounded to ``stored``: from a golden file, a generator or a float32 reference.

    It adds half a unit of theirs, since the true value may be that far away.
    """
    # Two right results differ by one unit if the true value is near a tie, which adds ulp²/12 to the variance of a sum.
    # The final rounding only, at most 0.05 ulp of arithmetic before it, differs for one element in ten at most, by one
    # ulp: z = √(0.1·12) = 1.1 against ulp²/12, so that 1.25 still holds; truncation has 2.4.
    coarser = law.output.precision - stored.precision
    text = f"{law.text}; expected values rounded to {stored}: + ½ulp"
    if coarser > 0:  # roundings finer than the expected values cannot be measured
        return replace(law, text=text, final=law.final + 0.5 * 2.0**coarser, statistic=Statistic.NONE)
    if coarser == 0:
        return replace(law, text=text, final=law.final + 0.5, expected_rounded=True)
    if stored.precision <= law.arithmetic.precision:
        return replace(law, text=text, ulps=law.ulps + 0.5 * 2.0 ** (law.arithmetic.precision - stored.precision))
    return law


def _numerics_text(numerics: Numerics, cut: DType | None) -> str:
    """Return the declared numerics that differ from the usual ones, in parentheses; "" if none does."""
    parts = [f"{numerics.operands} operands"] if cut is not None else []
    parts += ["truncating"] if numerics.accumulator_truncates else []
    parts += ["not direct"] if not numerics.direct else []
    return f" ({', '.join(parts)})" if parts else ""


def budget_of(terms: Any, numerics: Numerics, *, adds_up: bool, coarser: float = 0.0) -> Budget:
    """Return T, V and w of a law from an operator's Terms or ErrorBudget; zeros for anything else.

    Errors that ``adds_up`` grow as k, not √k. ``coarser`` is the unit roundoff to which operands of an ErrorBudget are
    cut, in units of the arithmetic's.
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
    # Winograd and FFT mix the terms of many elements, so each may have the error of the largest.
    if not numerics.direct:
        total, squares = float(np.max(total, initial=0.0)), float(np.max(squares, initial=0.0))
    return Budget(total=total, squares=squares, weight=weight)


def growth_of_sums(terms: Terms, count: int, value: Any, unit: float) -> float:
    """Return the size of roundings of partial sums relative to a typical term: k·u, or less if terms cancel.

    ``unit`` is u, ``count`` is k. Beyond 1/64 it is a quarter of u·s / (Σ|t|/k), for the partial sums s.
    """
    if count * unit <= _MUCH:
        return count * unit
    # Partial sums reach |Σt|, and √Σt² in addition as a random walk does; that of nearly all elements counts. A quarter
    # of it, so that values have to differ by one unit of the partial sums, not by four.
    absolute, squared, total = (
        np.asarray(x, np.float64).reshape(-1) for x in (terms.absolute, terms.squared, np.abs(value))
    )
    known = (absolute > 0.0) & np.isfinite(absolute) & np.isfinite(total)
    if not known.any():
        return _MUCH
    reach = np.minimum((total[known] + np.sqrt(squared[known])) / absolute[known], 1.0)
    return max(_MUCH, 0.25 * count * unit * float(np.quantile(reach, 0.98)))


def few_values(inputs: Sequence[Array | None], growth: float = 0.0) -> bool:
    """Return whether roundings of a sum over these operands repeat: constants, one-hot, small integers, equal slices.

    Operands of fewer than 16 elements do not count. Values that differ by a smaller share than ``growth``, that of
    sums, are equal in partial sums.
    """
    large = [array for array in inputs if array is not None and array.size >= FEW]
    if not large:
        return False
    # A product varies if one of its factors does. With three operands, one may be a bias that is added.
    varying = sum(not _has_few_values(array, growth) for array in large)
    if varying < (1 if len(large) < 3 else 2):
        return True
    # Factors with any number of values make equal products if both are constant along axes of one size, which may be
    # the one that is summed over.
    return len(large) > 1 and bool(_constant_axes(large[0]) & _constant_axes(large[1]))


def _constant_axes(array: Array) -> set[int]:
    """Return the sizes, 16 and more, of the axes along which all slices are equal."""
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
    """Return whether some sum of 16 and more terms adds almost the same number each time.

    Terms that differ by a smaller share than the ``growth`` of sums count as equal. False if k differs by element.
    """
    if (type(terms.count) is not int and np.ndim(terms.count)) or terms.count < FEW:
        return False
    # Equal terms have k·Σt² = (Σ|t|)²; the three that k may count too many change that by 3/k.
    spread = 1.0 + (4.0 * growth) ** 2 + 3.0 / float(terms.count)
    absolute = np.asarray(terms.absolute, dtype=np.float64)
    with np.errstate(all="ignore"):
        equal = float(terms.count) * np.asarray(terms.squared) <= spread * (absolute * absolute)
    return bool((equal & (absolute > 0.0)).any())


def _has_few_values(array: Array, growth: float) -> bool:
    """Return whether an array has fewer than 16 distinct values, or values that differ by little next to ``growth``.

    Most arrays are decided by a sample of 64 elements.
    """
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
