"""``optest minimise`` and ``--shrink``: the smallest and plainest case that fails with the same reason.

The search takes greedy steps. Each attempt is drawn by its own key and judged as in a run; a step after which the case
passes, is refused, or fails otherwise is not taken.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from optest.api import bootstrap
from optest.api.lanes import lanes_of
from optest.api.replaying import replay_request, selected_results
from optest.api.report import Report
from optest.api.run_request import RunRequest, without_usual_deadline
from optest.api.running import repro_line, run_cases
from optest.core.interruption import Interruption
from optest.core.runner import why_not_run
from optest.core.trusted_files import configuration_watched
from optest.errors import OptestError, UsageError, plural
from optest.generators.fills import check_fill
from optest.operators import operators
from optest.plan import CaseRequest, PlanHost, build_cases, case_plan
from optest.plan.from_samples import document_of
from optest.plan.reductions import REDUCTIONS, reducible_entry
from optest.reporting.failure_groups import skeleton
from optest.settings import resolve
from optest.spec import BAD_STATUSES, BackendTarget, CaseResult, Reason, Status, TestCase
from optest.store import RunDirectory, check_writable, write_atomically

_MOST_ATTEMPTS = 400
_OF_VALUES = (Reason.VALUE, Reason.NAN)
_SHRINK_S = 20.0
"""As long is searched for each failure that a run shows."""


def minimise(
    selections: Sequence[str],
    run: str,
    given: Mapping[str, Any],
    *,
    most_s: float,
    write: str | None = None,
    stream: TextIO | None = None,
) -> Report:
    """Minimise the first failure among these results, and run what is left of it; ``write`` is a file for its plan.

    No attempt begins after ``most_s`` seconds.

    Raises:
        UsageError: if nothing that was selected failed, it does not fail again, or it cannot be reduced.
    """
    bootstrap()
    if write is not None:
        check_writable(Path(write))
    results, before, notes = selected_results(Path(resolve(given)["runs_dir"]), run, selections)
    failed = next((each for each in results if each.status in BAD_STATUSES), None)
    if failed is None:
        raise UsageError(f"{results[0].id} did not fail: it {results[0].status.value}")
    request = replay_request([failed], given, before)
    found = _search(request, most_s, Interruption())
    facts = {**request.facts, "command": "minimise"}
    outcome = run_cases(dataclasses.replace(request, cases=[found.case], notes=notes, facts=facts), stream=stream)
    change = f"reduced from {_in_words(request.cases[0])} to {_in_words(found.case)}: {', '.join(found.reduced)}; "
    lines = [f"{change if found.reduced else 'nothing of it can go: '}{plural(found.attempts, 'attempt')}{found.ended}"]
    if write is not None:
        write_atomically(Path(write), case_plan(without_usual_deadline(found.case, request.settings)).encode())
        lines.append(f"plan: {write}")
    print(*lines, sep="\n", file=stream or sys.stdout)
    return outcome


def smallest_line(request: RunRequest, directory: RunDirectory, interruption: Interruption, result: CaseResult) -> str:
    """For the failure block of a run that came to its end: the smallest call that fails as this one does.

    Raises:
        KeyboardInterrupt: if the user wants no more, or did not in the run.
    """
    if interruption.happened:
        raise KeyboardInterrupt
    cases = [each for each in request.cases if (each.id, each.key) == (result.id, result.key)]
    try:
        found = _search(dataclasses.replace(request, cases=cases), _SHRINK_S, interruption)
    except OptestError as error:
        return f"not reduced: {error}"
    return f"smallest: {repro_line(found.case, directory, request) or _in_words(found.case)}"


@dataclass(slots=True, kw_only=True)
class _Smallest:
    """``reduced`` are the kinds of steps that were taken, in their order; ``ended`` says why, if not by itself."""

    case: TestCase
    reduced: dict[str, None] = field(default_factory=dict)
    attempts: int = 1
    ended: str = ""


def _search(request: RunRequest, most_s: float, interruption: Interruption) -> _Smallest:
    """Reduce the first case for as long as a step of any kind is left, or a limit is reached.

    Raises:
        UsageError: if it does not fail now, cannot be reduced, or cannot be run one attempt after the other.
    """
    first = request.cases[0]
    with ExitStack() as stack:
        stack.enter_context(configuration_watched())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="optest-"))
        lanes = lanes_of(request, RunDirectory.begin(Path(folder)), interruption)
        stack.callback(lanes.close)
        if lanes.dispatcher is not None:
            raise UsageError("attempts run in one process, but the cases of this backend are scheduled on its devices")
        executor = lanes.make(0)
        stack.callback(executor.close)

        def failure_of(case: TestCase) -> tuple[Status, object, object]:
            """Return status, reason and, unless it only reports values, message: a smaller case must have the same."""
            verdict = why_not_run(case, request.driver) or executor.execute([case]).verdicts[0]
            message = () if verdict.reason in _OF_VALUES else skeleton(verdict.message.partition("\n")[0])
            return (verdict.status, verdict.reason, message)

        case = _built(reducible_entry(first), first, request.target)
        if case is None:
            why = "has to be refused for its values" if first.expects_error else "is no case of a plan"
            raise UsageError(f"{first.id} {why}, so nothing is known to be a smaller form of it")
        failure = failure_of(case)
        if failure[0] not in BAD_STATUSES:
            raise UsageError(f"{first.id} does not fail this time: it {failure[0].value}; --rounds tells how often")
        found, known, until = _Smallest(case=case), {case.key}, time.monotonic() + most_s
        stack.enter_context(interruption.watched())
        try:
            steps = _steps(case)
            while (step := next(steps, None)) is not None:
                kind, entry = step
                case = _built(entry, first, request.target)
                if case is None or case.key in known:
                    continue
                if found.attempts >= _MOST_ATTEMPTS or time.monotonic() > until:
                    found.ended = ", then the limit was reached"
                    break
                known.add(case.key)
                found.attempts += 1
                if failure_of(case) == failure:
                    found.case, found.reduced[kind], steps = case, None, _steps(case)
        except KeyboardInterrupt:
            found.ended = ", interrupted"
    return found


def _steps(case: TestCase) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What may be made smaller of a case, with its kind."""
    entry = reducible_entry(case)
    return ((kind, smaller) for kind, reduce in REDUCTIONS.items() for smaller in reduce(entry, case.descriptor))


def _built(entry: Mapping[str, Any], first: TestCase, target: BackendTarget) -> TestCase | None:
    """The case of an entry; None if its operator does not take it, or takes what it should refuse."""
    host = PlanHost(operators=operators, target=target, check_fill=check_fill)
    try:
        (case,) = build_cases(document_of([entry], "a smaller case"), CaseRequest(), host)
    except OptestError:
        return None
    if any(each.path not in entry["shapes"] for each in case.inputs):
        return None  # an input that was left out has taken the shape of another
    if case.expects_error and _built({key: entry[key] for key in entry if key != "expects_error"}, first, target):
        return None
    kept = ("backend", "tolerances", "timeout_s", "mode", "base_dir", "allowed_folders")
    return dataclasses.replace(case, where="", **{name: getattr(first, name) for name in kept})


def _in_words(case: TestCase) -> str:
    """The identifier, with what it leaves out: inputs that are not dense, and how they are filled."""
    laid = ["not dense"] if any(not each.spec.is_plain for each in case.inputs) else []
    fills = list(dict.fromkeys(str(each.fill) for each in case.inputs)) if case.generator is None else [case.generator]
    return ", ".join([case.identifier(), *laid, *(each for each in fills if len(each) < 40)])
