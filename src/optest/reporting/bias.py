"""Whether results lean to one side of the true values, in one case and over all cases of an operator; and the words.

A lean is told, never failed: the rules judge. Thresholds and what they rest on: docs/verdicts.md, "On which side".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optest.spec import CaseResult, Measure, Rounding, Status, dtype

_LEAST_EXCESS = 0.1
"""Share of the results by which a side is fuller than rounding to the nearest would fill it."""
_LEAST_Z = 4.0
_LARGEST_WEIGHT = 3.0
"""What one case can say at most, in standard deviations: errors within a case may have one common cause."""
_ONE_SIDED = 0.9
_ULP_RULE = "ulp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lean:
    """Results that lean to one side. Shares are of ``inexact`` results; ``z`` are standard deviations from none.

    ``above`` is the share above the true value and ``nearest_above`` that of correct rounding; None where that side
    shows nothing. The same for ``away``, farther from zero than the true value.
    """

    inexact: int
    rms_ulp: float
    z: float
    above: float | None = None
    nearest_above: float = 0.5
    away: float | None = None
    nearest_away: float = 0.5


def lean_of(rounding: Rounding) -> Lean | None:
    """The lean of one case, None if chance may explain it or it is slight."""
    z_above, z_away = _z(rounding, above=True), _z(rounding, above=False)
    return _lean([rounding], z_above, z_away)


def lean_of_measure(measure: Measure) -> Lean | None:
    """As :func:`lean_of`, but None too where errors are no roundings: as large as the values, or 16 ulp and more."""
    if measure.rounding is None:
        return None
    most = min(16.0, 2.0 ** (dtype(measure.dtype).precision - 3))
    return lean_of(measure.rounding) if measure.rounding.rms_ulp < most else None


def leans(results: Iterable[CaseResult]) -> list[tuple[str, Lean]]:
    """``operator dtype`` (with the output, where there are several) and its lean over all cases that passed.

    A case that shares its execution counts once. Cases are the draws: errors of one case may have a common cause,
    such as the sum of a row. Under a rule for single elements those are draws as well.
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
    lines = []
    for (operator, output, name), measures in groups.items():
        roundings = [measure.rounding for measure in measures if measure.rounding is not None]
        by_elements = all(measure.rule is not None and measure.rule.name == _ULP_RULE for measure in measures)
        z_above, z_away = (
            _larger(_z_of_cases(roundings, above=above), _z_of_elements(roundings, above=above) if by_elements else 0.0)
            for above in (True, False)
        )
        lean = _lean(roundings, z_above, z_away)
        if lean is not None:
            which = f"{operator}.{output}" if len(outputs[operator]) > 1 else operator
            lines.append((f"{which} {name}", lean))
    return lines


def _lean(roundings: Sequence[Rounding], z_above: float, z_away: float) -> Lean | None:
    count = sum(each.inexact for each in roundings)
    above, nearest_above = (sum(each.above for each in roundings), sum(each.nearest_above for each in roundings))
    away, nearest_away = (sum(each.away for each in roundings), sum(each.nearest_away for each in roundings))
    leans_above = abs(z_above) >= _LEAST_Z and _is_fuller(above / count, nearest_above / count)
    leans_away = abs(z_away) >= _LEAST_Z and _is_fuller(away / count, nearest_away / count)
    if leans_above and leans_away:  # values of both signs in unequal numbers: the fuller side is the cause
        leans_above = abs(above - nearest_above) >= abs(away - nearest_away)
        leans_away = abs(away - nearest_away) >= abs(above - nearest_above)
    if not leans_above and not leans_away:
        return None
    return Lean(
        inexact=count,
        rms_ulp=math.sqrt(sum(each.rms_ulp**2 * each.inexact for each in roundings) / count),
        z=_larger(z_above if leans_above else 0.0, z_away if leans_away else 0.0),
        above=above / count if leans_above else None,
        nearest_above=nearest_above / count,
        away=away / count if leans_away else None,
        nearest_away=nearest_away / count,
    )


def _is_fuller(share: float, nearest: float) -> bool:
    """Fuller than rounding to the nearest would fill it, and than one half.

    Where true values lie just beyond numbers of the dtype (softplus of 8), the nearest lies on one side, and errors
    without a side bring the share back to one half.
    """
    up = share > nearest
    return abs(share - nearest) >= _LEAST_EXCESS and (share if up else 1.0 - share) >= 0.5 + _LEAST_EXCESS


def _excess(rounding: Rounding, *, above: bool) -> int:
    return rounding.above - rounding.nearest_above if above else rounding.away - rounding.nearest_away


def _z(rounding: Rounding, *, above: bool) -> float:
    """The sign test of paired results (McNemar, 1947): those on the other side than the nearest go either way alike."""
    share = min(1.0, rounding.draws / rounding.inexact)
    return _excess(rounding, above=above) * math.sqrt(share / max(1, rounding.astray))


def _z_of_elements(roundings: Sequence[Rounding], *, above: bool) -> float:
    shares = [min(1.0, each.draws / each.inexact) for each in roundings]
    excess = math.fsum(_excess(each, above=above) * share for each, share in zip(roundings, shares, strict=True))
    astray = math.fsum(each.astray * share for each, share in zip(roundings, shares, strict=True))
    return excess / math.sqrt(max(1.0, astray))


def _z_of_cases(roundings: Sequence[Rounding], *, above: bool) -> float:
    """Σt/√Σt², t the z of each case; at most √n for n cases, whatever is common to the errors within one."""
    each = [_excess(rounding, above=above) / math.sqrt(max(1, rounding.astray)) for rounding in roundings]
    weights = [max(-_LARGEST_WEIGHT, min(_LARGEST_WEIGHT, t)) for t in each]
    squares = math.fsum(t * t for t in weights)
    return math.fsum(weights) / math.sqrt(squares) if squares else 0.0


def _larger(first: float, second: float) -> float:
    return first if abs(first) >= abs(second) else second


def sentence(lean: Lean) -> str:
    """``98% of 4,096 inexact results lie below the true value; correctly rounded it would be 50% (rounds down?)``."""
    places, shares, nearest = [], [], []
    if lean.above is not None:
        up = lean.above > lean.nearest_above
        places.append("above the true value" if up else "below the true value")
        shares.append(lean.above if up else 1.0 - lean.above)
        nearest.append(lean.nearest_above if up else 1.0 - lean.nearest_above)
    if lean.away is not None:
        out = lean.away > lean.nearest_away
        word = "farther from zero" if out else "nearer to zero"
        places.append(word if places else f"{word} than the true value")
        shares.append(lean.away if out else 1.0 - lean.away)
        nearest.append(lean.nearest_away if out else 1.0 - lean.nearest_away)
    share = _percent(shares[0])
    return (
        f"{share} of {lean.inexact:,} inexact results lie {', '.join(places)}; correctly rounded it would be "
        f"{_percent(nearest[0])}{_guess(lean, shares[0])}"
    )


def _guess(lean: Lean, share: float) -> str:
    """What explains so full a side, where errors are not larger than one rounding may leave."""
    if share < _ONE_SIDED or not lean.rms_ulp <= 1.0:
        return ""
    if lean.away is not None:
        return f" (rounds {'toward' if lean.away < lean.nearest_away else 'away from'} zero?)"
    return f" (rounds {'up' if (lean.above or 0.0) > lean.nearest_above else 'down'}?)"


def _percent(share: float) -> str:
    """Whole per cent; all and none only where it is so."""
    whole = f"{share:.0%}"
    if whole == "100%" and share < 1.0:
        return "over 99%"
    return "under 1%" if whole == "0%" and share > 0.0 else whole
