"""Files of expectations and promises that a check suggests from its failures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime, timezone
from operator import itemgetter
from pathlib import Path
from typing import Any

from optest.backends import BackendDriver, Capability
from optest.backends.capabilities import layout_of
from optest.backends.function import FunctionBackend
from optest.core.operands import ELEMENTWISE
from optest.core.reference_functions import PREFIX
from optest.errors import UsageError, plural
from optest.plan.expectations import EXPECTABLE_REASONS, case_dtype
from optest.plan.from_samples import SET_TAG, TIER_TAG
from optest.reporting.explain import detail_texts, gist
from optest.reporting.failure_groups import by_operator, without_colours
from optest.spec import BAD_STATUSES, CaseResult, Reason, Status, TensorSpec, TestCase, dtype
from optest.store import check_writable, write_atomically

# An error above this is a wrong result, not a less exact one.
_MOST_ULP = 64.0
_MOST_OFFERS = 3
# A call in a dtype that a function is not meant for fails for one of these reasons; bool and float64 may have others.
_SUPPORT_REASONS = (Reason.RAISED, Reason.EXIT_CODE, Reason.COMPILE, Reason.DTYPE)
_LEAST_FAILED_SHARE = 0.8
"""Least share of failures among the calls that a promise excludes."""
# Above this share of failures among the calls that a promise includes, plain calls are wrong as well.
_MOST_PLAIN_FAILED_SHARE = 0.1


def require_new(path: str) -> None:
    """Raise ``UsageError`` if the file exists, because a user may have edited it, or cannot be written."""
    if Path(path).exists():
        raise UsageError(f"{path} exists and may have been edited; name another file, or remove it")
    check_writable(Path(path))


def write_expectations(path: str, results: Sequence[CaseResult], *, group: str | None = None) -> tuple[str, int]:
    """Write a line for every failure that may be expected; return a sentence and the number of other failures.

    A line is about one case and accepts its present error.
    """
    # One line per case, so that each case that passes again is reported.
    bad = [result for result in results if result.status in BAD_STATUSES]
    compared = (Status.FAILED, Status.ERROR)
    lines = [_expectation_line(x, group) for x in bad if x.status in compared and x.reason in EXPECTABLE_REASONS]
    today = datetime.now(timezone.utc).date()
    head = f"# Failures of {today}, written by `optest check --write-expectations`; write their causes into `why`.\n"
    texts = "".join(f"- {json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    expected = f"\n{texts}" if lines else " []\n"
    write_atomically(Path(path), f"{head}version: 1\nexpected:{expected}".encode())
    rest = len(bad) - len(lines)
    others = f"; {plural(rest, 'other failure')} cannot be expected (crashes, time limits, wrong cases)" if rest else ""
    return f"{plural(len(lines), 'expectation')} written; to use: optest check --expectations {path}{others}", rest


def _expectation_line(result: CaseResult, group: str | None) -> dict[str, Any]:
    assert result.reason is not None
    tier = next((tag.removeprefix(TIER_TAG) for tag in result.tags if tag.startswith(TIER_TAG)), None)
    where = {name: value for name, value in (("tier", tier), ("group", group)) if value}
    case = {"case": result.id, "op": result.operator, "dtype": _main_dtype(result), "reason": result.reason.value}
    line = {**case, **_limit(result), "why": gist(without_colours(result)), "where": where}
    return {name: value for name, value in line.items() if value}


def _limit(result: CaseResult) -> dict[str, float]:
    """Return the result's largest error as ``at_most_ulp``; {} if it is not finite or the reason is not VALUE."""
    wrong = [measure for measure in result.verdict.measures if measure.mismatched]
    errors = [math.inf if x.max_ulp_error is None else x.max_ulp_error for x in wrong]
    if result.reason is not Reason.VALUE or not errors or not math.isfinite(max(errors)):
        return {}
    is_finite = not any(x.nonfinite_mismatched for x in wrong)
    return {"at_most_ulp": math.ceil(max(errors) * 100) / 100} if is_finite else {}


def _main_dtype(result: CaseResult) -> str:
    return case_dtype([dtype(name) for name in result.dtypes])


def offers(results: Iterable[CaseResult], backend: str) -> Iterator[str]:
    """Yield a line for ``--expectations`` for the first three operators and dtypes that fail by a few ulp only."""
    failed: dict[tuple[str, str], list[float]] = {}
    for result in results:
        if result.status in BAD_STATUSES:
            limit = _limit(result).get("at_most_ulp", math.inf)
            failed.setdefault((result.operator, _main_dtype(result)), []).append(limit)
    far = {operator for (operator, _), limits in failed.items() if max(limits) > _MOST_ULP}
    near = {pair: max(limits) for pair, limits in failed.items() if pair[0] not in far}
    for (operator, name), most in list(near.items())[:_MOST_OFFERS]:
        line = {"op": operator, "dtype": name, "reason": Reason.VALUE.value, "at_most_ulp": most, "why": "..."}
        text = ", ".join(f"{key}: {value}" for key, value in line.items())
        yield f"{operator}: {most:g} ulp on {backend}; to accept it, add to a file of --expectations: - {{{text}}}"


def offered_promises(
    results: Iterable[CaseResult], cases: Mapping[str, TestCase], driver: BackendDriver
) -> Iterator[str]:
    """Yield, for each operator whose plain calls pass, the promise to paste that excludes its failing calls.

    It excludes broadcasting, layouts, ranks, dtypes or mixed dtypes. Built-in backends get none.
    """
    is_function = isinstance(driver, FunctionBackend)
    if type(driver).__module__.startswith("optest.") and not is_function and not driver.runs_programs:
        return
    for operator, members in by_operator(results).items():
        compared = [x for x in members if x.id in cases and x.status in (Status.PASSED, *BAD_STATUSES)]
        calls = [(cases[result.id], result.status is not Status.PASSED) for result in compared]
        calls = [(case, is_bad) for case, is_bad in calls if case.expects_error is None]
        if not any(is_bad for _, is_bad in calls):
            continue
        sets = {tag.removeprefix(SET_TAG) for case, _ in calls for tag in case.tags if tag.startswith(SET_TAG)}
        is_special = [f"{SET_TAG}special" in case.tags for case, is_bad in calls if is_bad]
        # Only the author of a reference function knows how it should treat NaN.
        if operator.startswith(PREFIX) and all(is_special) and len(sets) > 1:
            rest = ",".join(sorted(sets - {"special"}))
            yield f"{operator}: only calls with NaN, infinity or extreme values fail; to skip them: --set {rest}"
        every = [cases[x.id] for x in members if x.id in cases and cases[x.id].expects_error is None]
        wrong = {x.id for x in compared if x.status in BAD_STATUSES and x.reason not in _SUPPORT_REASONS}
        promised: dict[str, Any] = {}
        counts: list[str] = []
        while clearest := max(_outside(calls, every, wrong), key=itemgetter(0), default=None):
            _, words, promise, calls = clearest
            promised |= promise
            counts.append(words)
        failed = [f"{SET_TAG}ordinary" in case.tags for case, is_bad in calls if is_bad]
        if not promised or any(failed) or len(failed) > _MOST_PLAIN_FAILED_SHARE * len(calls):
            continue
        lacking = Capability(**promised).lacks
        if _is_slight([result for result in compared if result.status in BAD_STATUSES and lacking(cases[result.id])]):
            continue
        arguments = ", ".join(f"{name}={value!r}" for name, value in promised.items()).replace("'", '"')
        if driver.runs_programs:
            arguments = ", ".join(f"{name}: {json.dumps(value)}" for name, value in promised.items())
            paste = f"to the config of {operator}: promises: {{{arguments}}}"
        elif not is_function:
            lacks = f'Capability({arguments}).lacks(case) if case.descriptor.name == "{operator}" else None'
            paste = f"to the backend: def unsupported(self, case): return {lacks}"
        else:
            paste = f'@optest.kernel("{operator}", {arguments})'
        yield f"{operator}: {', '.join(counts)} fail; if it is not meant for these, add {paste}"


def _is_slight(failed: Sequence[CaseResult]) -> bool:
    """Return whether most failures are wrong in less than half of the elements, or one is a multiple of the result.

    A function fails calls that it is not meant for more clearly than that.
    """
    off = [measure for result in failed for measure in result.verdict.measures if measure.is_off]
    shares = sorted((x.mismatched + x.nonfinite_mismatched) / max(1, x.compared) for x in off)
    diagnoses = " ".join(text for result in failed for text in detail_texts(result.verdict.details.get("diagnosis")))
    return "is one ratio" in diagnoses or bool(shares and shares[len(shares) // 2] < 0.5)


def _outside(
    rest: Sequence[tuple[TestCase, bool]], every: Sequence[TestCase], wrong: Set[str]
) -> Iterator[tuple[int, str, dict[str, Any], list[Any]]]:
    """Yield promises that exclude failing calls: surplus of failures, description, promise, and the calls within it.

    ``rest`` are calls with whether they failed; ``every`` includes skipped cases; ``wrong`` are ids of cases with wrong
    results.
    """
    # Calls without elements may fail for that alone.
    counted = [(case, bad) for case, bad in rest if all(x.spec.elements for x in case.inputs)]

    def outside(promise: Mapping[str, Any]) -> list[bool]:
        """Return for each call that the promise excludes whether it fails, without passes that need no support."""
        capability, (name,) = Capability(**promise), promise
        return [bad for case, bad in counted if capability.lacks(case) and (bad or not _needs_no_support(case, name))]

    def kept(name: str, of: Callable[[TensorSpec], Any], cases: Sequence[TestCase], least: float = 0.5) -> Any:
        """Return the values of property ``name`` of the inputs, except values with which the share ``least`` fails."""
        values = sorted({of(x.spec) for case in cases for x in case.inputs})
        others: Any = {value: {name: tuple(x for x in values if x != value)} for value in values}
        fails = {x: outside(others[x]) for x in values if any(map(Capability(**others[x]).lacks, cases))}
        return tuple(value for value, bad in fails.items() if not bad or sum(bad) < least * len(bad))

    compared = [case for case, _ in counted]
    ranks = kept("ranks", lambda spec: spec.rank, compared)
    if ranks != tuple(range(ranks[0], ranks[-1] + 1) if ranks else ()):
        ranks = ()  # ranks with gaps in between only list the calls that happen to fail
    dtypes = kept("dtypes", lambda spec: spec.dtype.name, every, _LEAST_FAILED_SHARE)
    widest = max((dtype(name).bits for name in dtypes if dtype(name).is_float), default=0)
    floats = {x.spec.dtype for case in every for x in case.inputs if x.spec.dtype.is_float}
    # Losing the precision of a narrower float is a fault (few kernels take 8 bits), and so are wrong results, except in
    # float64, which kernels may compute in float32, and in bool.
    stays = {x.spec.dtype.name for case, _ in rest if case.id in wrong for x in case.inputs} - {"float64", "bool"}
    dtypes = tuple(sorted({*dtypes, *stays, *(x.name for x in floats if 16 <= x.bits < widest)}))
    for promise, which in (
        ({"broadcasts": False}, "with inputs that are broadcast"),
        ({"layouts": kept("layouts", layout_of, compared)}, "with inputs in other layouts"),
        ({"promotes": False}, "of mixed dtypes"),
        ({"ranks": ranks}, f"of other than {' to '.join(map(str, sorted({*ranks[:1], *ranks[-1:]})))} dimensions"),
        ({"dtypes": dtypes}, "of other dtypes"),
    ):
        fails = outside(promise)
        inside = [x for x in rest if not Capability(**promise).lacks(x[0])]
        plain, kept_plain = (sum(f"{SET_TAG}ordinary" in case.tags for case, _ in calls) for calls in (rest, inside))
        if not plain:  # the function takes no ordinary call, such as a packed form of the operator
            plain, kept_plain = len(rest), len(inside)
        is_rest = "dtypes" in promise and not any(bad for _, bad in inside)  # a dtype may have one case
        is_clear = sum(fails) >= max(1 if is_rest else 2, _LEAST_FAILED_SHARE * len(fails))
        least = 1 if "dtypes" in promise else plain / 2  # a kernel may be for one dtype of many
        if plain and kept_plain >= least and () not in promise.values() and is_clear:
            yield 2 * sum(fails) - len(fails), f"{plural(sum(fails), 'call')} {which}", dict(promise), inside


def _needs_no_support(case: TestCase, promise: str) -> bool:
    """Return whether a function without the promised support may pass the call, too."""
    specs = [x.spec for x in case.inputs]
    if promise == "promotes":  # a function may return the dtype of its first input
        return bool(case.outputs) and case.outputs[0].dtype == specs[0].dtype
    is_strided = promise == "layouts" and any(layout_of(spec) != "dense" for spec in specs)
    # A function may step through rows by 1, or treat operands of one layout without gaps as dense.
    is_alike = len({spec.strides for spec in specs}) == 1 and specs[0].storage_elements == specs[0].elements
    is_by_rows = all((spec.strides or (1,))[-1] == 1 for spec in specs)
    return is_strided and (is_by_rows or (is_alike and case.descriptor.category in ELEMENTWISE))
