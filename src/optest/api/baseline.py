"""What a check found, as a file of expectations to commit: a line for each failing case, with its reason and figure."""

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
from optest.backends.command_abilities import runs_programs
from optest.backends.function import FunctionBackend
from optest.core.operands import ELEMENTWISE
from optest.core.reference_functions import PREFIX
from optest.errors import UsageError, plural
from optest.plan.expectations import EXCUSABLE, case_dtype
from optest.plan.from_samples import SET_TAG, TIER_TAG
from optest.reporting.explain import gist, texts
from optest.reporting.failure_groups import by_operator, plain
from optest.spec import BAD_STATUSES, CaseResult, Reason, Status, TensorSpec, TestCase, dtype
from optest.store import check_writable, write_atomically

_ULP = 64.0
"""An operator that is farther off is wrong rather than less exact than its rule."""
_MOST_OFFERS = 3
_OF_SUPPORT = (Reason.RAISED, Reason.EXIT_CODE, Reason.COMPILE, Reason.DTYPE)
"""Reasons with which a call may fail in a dtype that a function is not meant for; bool and float64 may have others."""
_CLEAR_FAILURES = 0.8
"""Smallest share of failures among the calls that a promise excludes."""
_PLAIN_FAILURES = 0.1
"""Largest share of failures among the calls that a promise includes: above it, plain calls are wrong as well."""


def require_new(path: str) -> None:
    """
    Raises:
        UsageError: if the file is there, whose reasons somebody may have written, or cannot be written.
    """
    if Path(path).exists():
        raise UsageError(f"{path} is there already and may have been edited; name another file, or remove it")
    check_writable(Path(path))


def write_expectations(path: str, results: Sequence[CaseResult], *, group: str | None = None) -> tuple[str, int]:
    """Write a line for every failure that may be expected; returns a sentence about it, and how many may not be.

    A line is about one case, so that each that passes again is told. With it the case may be as far off as it is now.
    """
    bad = [result for result in results if result.status in BAD_STATUSES]
    judged = (Status.FAILED, Status.ERROR)
    lines = [_line(each, group) for each in bad if each.status in judged and each.reason in EXCUSABLE]
    today = datetime.now(timezone.utc).date()
    head = f"# What failed on {today}, by `optest check --write-expectations`; say in `why` what is known of it.\n"
    texts = "".join(f"- {json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    expected = f"\n{texts}" if lines else " []\n"
    write_atomically(Path(path), f"{head}version: 1\nexpected:{expected}".encode())
    rest = len(bad) - len(lines)
    others = f"; {plural(rest, 'other failure')} cannot be expected (crashes, deadlines, wrong cases)" if rest else ""
    return f"{plural(len(lines), 'expectation')} written; read by: optest check --expectations {path}{others}", rest


def _line(result: CaseResult, group: str | None) -> dict[str, Any]:
    assert result.reason is not None
    tier = next((tag.removeprefix(TIER_TAG) for tag in result.tags if tag.startswith(TIER_TAG)), None)
    where = {name: value for name, value in (("tier", tier), ("group", group)) if value}
    line = {"case": result.id, "op": result.operator, "dtype": _dtype_of(result), "reason": result.reason.value}
    stated = {**line, **_limit(result), "why": gist(plain(result)), "where": where}
    return {name: value for name, value in stated.items() if value}


def _limit(result: CaseResult) -> dict[str, float]:
    """How far off it is, none where that is no finite number."""
    wrong = [each for each in result.verdict.measures if each.mismatched]
    errors = [math.inf if each.max_ulp_error is None else each.max_ulp_error for each in wrong]
    if result.reason is not Reason.VALUE or not errors or not math.isfinite(max(errors)):
        return {}
    is_finite = not any(each.nonfinite_mismatched for each in wrong)
    return {"at_most_ulp": math.ceil(max(errors) * 100) / 100} if is_finite else {}


def _dtype_of(result: CaseResult) -> str:
    return case_dtype([dtype(name) for name in result.dtypes])


def offers(results: Iterable[CaseResult], backend: str) -> Iterator[str]:
    """Yield a line for ``--expectations`` for each operator whose only failures are errors of a few ulp."""
    failed: dict[tuple[str, str], list[float]] = {}
    for result in results:
        if result.status in BAD_STATUSES:
            limit = _limit(result).get("at_most_ulp", math.inf)
            failed.setdefault((result.operator, _dtype_of(result)), []).append(limit)
    far = {operator for (operator, _), limits in failed.items() if max(limits) > _ULP}
    near = {pair: max(limits) for pair, limits in failed.items() if pair[0] not in far}
    for (operator, name), most in list(near.items())[:_MOST_OFFERS]:
        line = {"op": operator, "dtype": name, "reason": Reason.VALUE.value, "at_most_ulp": most, "why": "..."}
        text = ", ".join(f"{key}: {value}" for key, value in line.items())
        yield f"{operator}: {most:g} ulp on {backend}; if that is known, a line for --expectations: - {{{text}}}"


def offered_promises(
    results: Iterable[CaseResult], cases: Mapping[str, TestCase], driver: BackendDriver
) -> Iterator[str]:
    """Yield, for each operator whose plain calls pass, the promise to paste that excludes its failing calls: those with
    broadcasting, other layouts, ranks, dtypes or mixed dtypes. Built-in backends without promises have none."""
    is_function = isinstance(driver, FunctionBackend)
    if type(driver).__module__.startswith("optest.") and not is_function and not runs_programs(driver):
        return
    for operator, members in by_operator(results).items():
        compared = [each for each in members if each.id in cases and each.status in (Status.PASSED, *BAD_STATUSES)]
        calls = [(cases[each.id], each.status is not Status.PASSED) for each in compared]
        calls = [(case, is_bad) for case, is_bad in calls if case.expects_error is None]
        if not any(is_bad for _, is_bad in calls):
            continue
        sets = {tag.removeprefix(SET_TAG) for case, _ in calls for tag in case.tags if tag.startswith(SET_TAG)}
        is_special = [f"{SET_TAG}special" in case.tags for case, is_bad in calls if is_bad]
        if operator.startswith(PREFIX) and all(is_special) and len(sets) > 1:  # its author says what NaN means to it
            rest = ",".join(sorted(sets - {"special"}))
            yield f"{operator}: only calls with NaN, infinity or extreme values fail; without these: --set {rest}"
        every = [cases[each.id] for each in members if each.id in cases and cases[each.id].expects_error is None]
        wrong = {each.id for each in compared if each.status in BAD_STATUSES and each.reason not in _OF_SUPPORT}
        promised: dict[str, Any] = {}
        counts: list[str] = []
        while clearest := max(_outside(calls, every, wrong), key=itemgetter(0), default=None):
            _, words, promise, calls = clearest
            promised |= promise
            counts.append(words)
        failed = [f"{SET_TAG}ordinary" in case.tags for case, is_bad in calls if is_bad]
        if not promised or any(failed) or len(failed) > _PLAIN_FAILURES * len(calls):
            continue
        lacking = Capability(**promised).lacks
        if _is_slight([each for each in compared if each.status in BAD_STATUSES and lacking(cases[each.id])]):
            continue
        arguments = ", ".join(f"{name}={value!r}" for name, value in promised.items()).replace("'", '"')
        if runs_programs(driver):
            arguments = ", ".join(f"{name}: {json.dumps(value)}" for name, value in promised.items())
            paste = f"to the config of {operator}: promises: {{{arguments}}}"
        elif not is_function:
            lacks = f'Capability({arguments}).lacks(case) if case.descriptor.name == "{operator}" else None'
            paste = f"to the backend: def unsupported(self, case): return {lacks}"
        else:
            paste = f'@optest.kernel("{operator}", {arguments})'
        yield f"{operator}: {', '.join(counts)} fail; if it is not meant for these, add {paste}"


def _is_slight(failed: Sequence[CaseResult]) -> bool:
    """Return whether failures are too slight for calls that a function is not meant for: most are wrong in less than
    half of the elements, or one is a multiple of the right result."""
    off = [measure for each in failed for measure in each.verdict.measures if measure.is_off]
    shares = sorted((each.mismatched + each.nonfinite_mismatched) / max(1, each.compared) for each in off)
    said = " ".join(text for each in failed for text in texts(each.verdict.details.get("diagnosis")))
    return "is one ratio" in said or bool(shares and shares[len(shares) // 2] < 0.5)


def _outside(
    rest: Sequence[tuple[TestCase, bool]], every: Sequence[TestCase], wrong: Set[str]
) -> Iterator[tuple[int, str, dict[str, Any], list[Any]]]:
    """Yield promises outside of which calls fail, each with how many more of these fail than pass, a description of
    the calls outside, the promise, and the calls inside; ``every`` are also the cases that were skipped, ``wrong`` the
    ids of those that were neither refused nor of another dtype. Calls without elements, which may fail as such, do not
    count."""
    counted = [(case, bad) for case, bad in rest if all(each.spec.elements for each in case.inputs)]

    def outside(promise: Mapping[str, Any]) -> list[bool]:
        """Return for each call outside of the promise whether it fails, without passes that need no support."""
        capability, (name,) = Capability(**promise), promise
        return [bad for case, bad in counted if capability.lacks(case) and (bad or not _needs_no_support(case, name))]

    def kept(name: str, of: Callable[[TensorSpec], Any], cases: Sequence[TestCase], least: float = 0.5) -> Any:
        """Return the values that main inputs of the cases have, without those with which the share ``least`` fails."""
        values = sorted({of(each.spec) for case in cases for each in case.inputs})
        others: Any = {value: {name: tuple(each for each in values if each != value)} for value in values}
        fails = {each: outside(others[each]) for each in values if any(map(Capability(**others[each]).lacks, cases))}
        return tuple(value for value, bad in fails.items() if not bad or sum(bad) < least * len(bad))

    compared = [case for case, _ in counted]
    ranks = kept("ranks", lambda spec: spec.rank, compared)
    if ranks != tuple(range(ranks[0], ranks[-1] + 1) if ranks else ()):
        ranks = ()  # a list with gaps says which calls happen to fail, not what a function is for
    dtypes = kept("dtypes", lambda spec: spec.dtype.name, every, _CLEAR_FAILURES)
    widest = max((dtype(name).bits for name in dtypes if dtype(name).is_float), default=0)
    floats = {each.spec.dtype for case in every for each in case.inputs if each.spec.dtype.is_float}
    # Losing the precision of a narrower float is a fault (few kernels take 8 bits), and so are wrong results, but for
    # float64, which kernels may compute in float32, and for bool.
    stays = {each.spec.dtype.name for case, _ in rest if case.id in wrong for each in case.inputs} - {"float64", "bool"}
    dtypes = tuple(sorted({*dtypes, *stays, *(each.name for each in floats if 16 <= each.bits < widest)}))
    for promise, which in (
        ({"broadcasts": False}, "with inputs that are broadcast"),
        ({"layouts": kept("layouts", layout_of, compared)}, "with inputs in other layouts"),
        ({"promotes": False}, "of mixed dtypes"),
        ({"ranks": ranks}, f"of other than {' to '.join(map(str, sorted({*ranks[:1], *ranks[-1:]})))} dimensions"),
        ({"dtypes": dtypes}, "of other dtypes"),
    ):
        fails = outside(promise)
        inside = [each for each in rest if not Capability(**promise).lacks(each[0])]
        plain, kept_plain = (sum(f"{SET_TAG}ordinary" in case.tags for case, _ in calls) for calls in (rest, inside))
        if not plain:  # it takes no ordinary call: a packed one is another form of the operator
            plain, kept_plain = len(rest), len(inside)
        is_rest = "dtypes" in promise and not any(bad for _, bad in inside)  # a dtype may have one case
        is_clear = sum(fails) >= max(1 if is_rest else 2, _CLEAR_FAILURES * len(fails))
        least = 1 if "dtypes" in promise else plain / 2  # a kernel may be for one dtype of many
        if plain and kept_plain >= least and () not in promise.values() and is_clear:
            yield 2 * sum(fails) - len(fails), f"{plural(sum(fails), 'call')} {which}", dict(promise), inside


def _needs_no_support(case: TestCase, promise: str) -> bool:
    """Return whether a function that lacks support passes the call as well: one that returns the dtype of its first
    input, steps through rows by 1, or takes operands of one layout without gaps for dense."""
    specs = [each.spec for each in case.inputs]
    if promise == "promotes":
        return bool(case.outputs) and case.outputs[0].dtype == specs[0].dtype
    is_strided = promise == "layouts" and any(layout_of(each) != "dense" for each in specs)
    is_alike = len({each.strides for each in specs}) == 1 and specs[0].storage_elements == specs[0].elements
    is_by_rows = all((each.strides or (1,))[-1] == 1 for each in specs)
    return is_strided and (is_by_rows or (is_alike and case.descriptor.category in ELEMENTWISE))
