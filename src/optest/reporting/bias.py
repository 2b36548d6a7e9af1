"""Detection of biased results: more of them on one side of the true values than correct rounding would leave there.

A bias is reported and fails nothing: only the rules decide. docs/verdicts.md, "On which side", explains the thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optest.spec import CaseResult, Measure, Rounding, Status, dtype

# Share of the results by which a side is fuller than rounding to the nearest would fill it.
_LEAST_EXCESS = 0.1
# By chance, 1 of 16,000 unbiased groups has such a z: fewer than one in a check of all operators.
_LEAST_Z = 4.0
# Limit of the weight of one case, in standard deviations: the errors within a case may have one common cause.
_LARGEST_WEIGHT = 3.0
# Directed rounding, as by truncation, leaves nearly all results on one side.
_ONE_SIDED = 0.9
# Rule of elementwise functions.
_ULP_RULE = "ulp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """Bias of ``inexact`` results; ``z`` is its significance in standard deviations.

    ``above`` is the share of the results above the true value, ``nearest_above`` the share after correct rounding.
    ``above`` is None if the results are not biased upwards or downwards. ``away`` and ``nearest_away`` are the same for
    results farther from zero than the true value.
    """

    inexact: int
    rms_ulp: float
    z: float
    above: float | None = None
    nearest_above: float = 0.5
    away: float | None = None
    nearest_away: float = 0.5


def bias_of(rounding: Rounding) -> Bias | None:
    """Return the bias of the results of one case; None if it is slight or chance may explain it."""
    z_above, z_away = (
        # Sign test of paired results (McNemar, 1947): without a bias, results that are not the nearest value are as
        # often on one side as on the other. `draws` of the results count as independent.
        _excess(rounding, above=above)
        * math.sqrt(min(1.0, rounding.draws / rounding.inexact) / max(1, rounding.astray))
        for above in (True, False)
    )
    return _significant_bias([rounding], z_above, z_away)


def bias_of_measure(measure: Measure) -> Bias | None:
    """Return the bias of an output; None also if its errors are too large to be roundings.

    The limit is 16 ulp, or less for narrow dtypes, in which an error of that many ulp is as large as the value.
    """
    if measure.rounding is None:
        return None
    limit_ulp = min(16.0, 2.0 ** (dtype(measure.dtype).precision - 3))
    return bias_of(measure.rounding) if measure.rounding.rms_ulp < limit_ulp else None


def operator_biases(results: Iterable[CaseResult]) -> list[tuple[str, Bias]]:
    """Return each biased ``operator dtype`` (``operator.output dtype`` for several outputs) with its bias.

    The bias is that over all passed cases; a shared execution counts once.
    """
    groups: dict[tuple[str, str, str], list[Measure]] = {}
    outputs: dict[str, set[str]] = {}
    for result in results:
        if result.status is not Status.PASSED or result.duplicate_of:
            continue
        for measure in result.verdict.measures:
            outputs.setdefault(result.operator, set()).add(measure.output)
            if measure.rounding is not None:
                groups.setdefault((result.operator, measure.output, measure.dtype), []).append(measure)
    biases = []
    for (operator, output, dtype_name), measures in groups.items():
        roundings = [measure.rounding for measure in measures if measure.rounding is not None]
        # The errors of one case may have a common cause, such as the sum of a row, so only cases are independent.
        # An elementwise function computes each element on its own: there, elements are independent as well.
        is_elementwise = all(measure.rule is not None and measure.rule.name == _ULP_RULE for measure in measures)
        z_above, z_away = (
            max(
                _z_over_cases(roundings, above=above),
                _z_over_elements(roundings, above=above) if is_elementwise else 0.0,
                key=abs,
            )
            for above in (True, False)
        )
        bias = _significant_bias(roundings, z_above, z_away)
        if bias is not None:
            name = f"{operator}.{output}" if len(outputs[operator]) > 1 else operator
            biases.append((f"{name} {dtype_name}", bias))
    return biases


def _significant_bias(roundings: Sequence[Rounding], z_above: float, z_away: float) -> Bias | None:
    """Return the bias of all roundings together; None if it is below the thresholds of size and significance."""
    count = sum(rounding.inexact for rounding in roundings)
    above = sum(rounding.above for rounding in roundings)
    away = sum(rounding.away for rounding in roundings)
    nearest_above = sum(rounding.nearest_above for rounding in roundings)
    nearest_away = sum(rounding.nearest_away for rounding in roundings)
    is_above = abs(z_above) >= _LEAST_Z and _is_fuller(above / count, nearest_above / count)
    is_away = abs(z_away) >= _LEAST_Z and _is_fuller(away / count, nearest_away / count)
    if is_above and is_away:  # values of both signs in unequal numbers: the fuller side is the cause
        is_above = abs(above - nearest_above) >= abs(away - nearest_away)
        is_away = abs(away - nearest_away) >= abs(above - nearest_above)
    if not is_above and not is_away:
        return None
    return Bias(
        inexact=count,
        rms_ulp=math.sqrt(sum(rounding.rms_ulp**2 * rounding.inexact for rounding in roundings) / count),
        z=max(z_above if is_above else 0.0, z_away if is_away else 0.0, key=abs),
        above=above / count if is_above else None,
        nearest_above=nearest_above / count,
        away=away / count if is_away else None,
        nearest_away=nearest_away / count,
    )


def _is_fuller(share: float, nearest: float) -> bool:
    """Return whether a side has clearly more results than after correct rounding, and than one half."""
    # If true values are just beyond numbers of the dtype (softplus of 8), the nearest values are on one side, and
    # unbiased errors bring the share back to one half: that is no bias, hence the second condition.
    is_up = share > nearest
    return abs(share - nearest) >= _LEAST_EXCESS and (share if is_up else 1.0 - share) >= 0.5 + _LEAST_EXCESS


def _excess(rounding: Rounding, *, above: bool) -> int:
    return rounding.above - rounding.nearest_above if above else rounding.away - rounding.nearest_away


def _z_over_elements(roundings: Sequence[Rounding], *, above: bool) -> float:
    """Return the z of the sign test over the independent elements of all cases."""
    shares = [min(1.0, rounding.draws / rounding.inexact) for rounding in roundings]
    pairs = list(zip(roundings, shares, strict=True))
    excess = math.fsum(_excess(rounding, above=above) * share for rounding, share in pairs)
    astray = math.fsum(rounding.astray * share for rounding, share in pairs)
    return excess / math.sqrt(max(1.0, astray))


def _z_over_cases(roundings: Sequence[Rounding], *, above: bool) -> float:
    """Return Σt/√Σt², where t is the z of one case, limited in size: at most √n for n cases."""
    z_of_cases = [_excess(rounding, above=above) / math.sqrt(max(1, rounding.astray)) for rounding in roundings]
    weights = [max(-_LARGEST_WEIGHT, min(_LARGEST_WEIGHT, z)) for z in z_of_cases]
    squares = math.fsum(t * t for t in weights)
    return math.fsum(weights) / math.sqrt(squares) if squares else 0.0


def bias_text(bias: Bias) -> str:
    """Return ``98% of 4,096 inexact results are below the true value, instead of 50% if correctly rounded``.

    If nearly all results are on one side and the errors are small, a guess follows: ``(rounds down?)``.
    """
    sides, shares, nearest = [], [], []
    guess = ""
    if bias.above is not None:
        is_up = bias.above > bias.nearest_above
        sides.append("above the true value" if is_up else "below the true value")
        shares.append(bias.above if is_up else 1.0 - bias.above)
        nearest.append(bias.nearest_above if is_up else 1.0 - bias.nearest_above)
        guess = f" (rounds {'up' if is_up else 'down'}?)"
    if bias.away is not None:
        is_away = bias.away > bias.nearest_away
        word = "farther from zero" if is_away else "nearer to zero"
        sides.append(word if sides else f"{word} than the true value")
        shares.append(bias.away if is_away else 1.0 - bias.away)
        nearest.append(bias.nearest_away if is_away else 1.0 - bias.nearest_away)
        guess = f" (rounds {'away from' if is_away else 'toward'} zero?)"
    # Errors above 1 ulp have another cause than the rounding of the result.
    if shares[0] < _ONE_SIDED or not bias.rms_ulp <= 1.0:
        guess = ""
    return (
        f"{_percent(shares[0])} of {bias.inexact:,} inexact results are {', '.join(sides)}, instead of "
        f"{_percent(nearest[0])} if correctly rounded{guess}"
    )


def _percent(share: float) -> str:
    """Return a share in whole per cent; ``over 99%`` and ``under 1%`` if not quite all or none."""
    rounded = f"{share:.0%}"
    if rounded == "100%" and share < 1.0:
        return "over 99%"
    return "under 1%" if rounded == "0%" and share > 0.0 else rounded
