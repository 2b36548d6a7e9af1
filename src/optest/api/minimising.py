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
from optest.api.run_request import RunRequest
from optest.api.running import repro_line, run_cases, without_usual_deadline
from optest.core.executors import Executor
from optest.core.runner import why_not_run
from optest.core.session import Interruption
from optest.errors import OptestError, UsageError
from optest.generators.fills import check_fill
from optest.operators import operators
from optest.plan import CaseRequest, PlanHost, build_cases, case_plan
from optest.plan.from_samples import document_of
from optest.plan.reductions import REDUCTIONS, reducible_entry
from optest.reporting.failure_groups import skeleton
from optest.reporting.typography import plural
from optest.settings import resolve
from optest.spec import BAD_STATUSES, CaseResult, Reason, TestCase, Verdict
from optest.store import RunDirectory, check_writable, write_atomically

__all__ = ["minimise", "smallest_line"]

_MOST_ATTEMPTS = 400
_INTERRUPTED = ", interrupted"
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
    search = _search(request, most_s)
    smallest, facts = search.smallest, {**request.facts, "command": "minimise"}
    outcome = run_cases(dataclasses.replace(request, cases=[smallest], notes=notes, facts=facts), stream=stream)
    tried = f"{plural(len(search.known), 'attempt')}{search.why_ended}"
    change = (
        f"reduced from {_in_words(request.cases[0])} to {_in_words(smallest)}: {', '.join(search.reduced)}; {tried}"
    )
    lines = [change if search.reduced else f"nothing of it can go: {tried}"]
    if write is not None:
        write_atomically(Path(write), case_plan(without_usual_deadline(smallest, request.settings)).encode())
        lines.append(f"plan: {write}")
    print(*lines, sep="\n", file=stream or sys.stdout)
    return outcome


def smallest_line(request: RunRequest, directory: RunDirectory, result: CaseResult) -> str:
    """For the failure block of a run that is over: the smallest call that fails as this one does.

    Raises:
        KeyboardInterrupt: if the user wants no more.
    """
    cases = [each for each in request.cases if (each.id, each.key) == (result.id, result.key)]
    try:
        search = _search(dataclasses.replace(request, cases=cases), _SHRINK_S)
    except OptestError as error:
        return f"not reduced: {error}"
    if search.why_ended == _INTERRUPTED:
        raise KeyboardInterrupt
    return f"smallest: {repro_line(search.smallest, directory, request) or _in_words(search.smallest)}"


def _search(request: RunRequest, most_s: float) -> _Search:
    """The search, done, for the first case of the request.

    Raises:
        UsageError: if it does not fail now, cannot be reduced, or cannot be run one attempt after the other.
    """
    interruption = Interruption()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="optest-"))
        lanes = lanes_of(request, RunDirectory.begin(Path(folder)), interruption)
        stack.callback(lanes.close)
        if lanes.dispatcher is not None:
            raise UsageError("attempts run in one process, but the cases of this backend are scheduled on its devices")
        executor = lanes.make(0)
        stack.callback(executor.close)
        search = _Search(request=request, executor=executor, smallest=request.cases[0])
        search.begin()
        with interruption.watched():
            search.run(time.monotonic() + most_s)
    return search


@dataclass(slots=True, kw_only=True)
class _Search:
    """``reduced`` are the kinds of steps that were taken, in their order; ``known`` the keys of what was tried."""

    request: RunRequest
    executor: Executor
    smallest: TestCase
    reduced: dict[str, None] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    why_ended: str = ""
    _failure: object = None

    def begin(self) -> None:
        """Let the case fail once more.

        Raises:
            UsageError: if it does not, or has no smaller forms.
        """
        was, case = self.smallest, self._built(reducible_entry(self.smallest))
        if case is None:
            why = "has to be refused for its values" if was.expects_error else "is no case of a plan"
            raise UsageError(f"{was.id} {why}, so nothing is known to be a smaller form of it")
        verdict = self._verdict(case)
        if verdict.status not in BAD_STATUSES:
            raise UsageError(f"{was.id} does not fail this time: it {verdict.status.value}; --rounds tells how often")
        self.smallest, self._failure = case, _failure(verdict)

    def run(self, until: float) -> None:
        """Take steps of each kind for as long as one of any kind is left, or a limit is reached."""
        try:
            before = None
            while before is not self.smallest:
                before = self.smallest
                for kind in REDUCTIONS:
                    while (case := next(self._failing(kind, until), None)) is not None:
                        self.smallest = case
                        self.reduced[kind] = None
        except KeyboardInterrupt:
            self.why_ended = _INTERRUPTED

    def _failing(self, kind: str, until: float) -> Iterator[TestCase]:
        """The proposals of one kind that fail as the case does."""
        for entry in REDUCTIONS[kind](reducible_entry(self.smallest), self.smallest.descriptor):
            case = self._built(entry)
            if case is None or case.key in self.known:
                continue
            if len(self.known) >= _MOST_ATTEMPTS or time.monotonic() > until:
                self.why_ended = ", then the limit was reached"
                return
            if _failure(self._verdict(case)) == self._failure:
                yield case

    def _built(self, entry: Mapping[str, Any]) -> TestCase | None:
        """The case of an entry; None if its operator does not take it, or takes what it should refuse."""
        host = PlanHost(operators=operators, target=self.request.target, check_fill=check_fill)
        try:
            (case,) = build_cases(document_of([entry], "a smaller case"), CaseRequest(), host)
        except OptestError:
            return None
        if any(each.path not in entry["shapes"] for each in case.inputs):
            return None  # an input that was left out has taken the shape of another
        if case.expects_error and self._built({key: each for key, each in entry.items() if key != "expects_error"}):
            return None
        kept = ("backend", "tolerances", "timeout_s", "mode", "base_dir", "allowed_folders")
        return dataclasses.replace(case, where="", **{name: getattr(self.smallest, name) for name in kept})

    def _verdict(self, case: TestCase) -> Verdict:
        self.known.add(case.key)
        return why_not_run(case, self.request.driver) or self.executor.execute([case]).verdicts[0]


def _failure(verdict: Verdict) -> object:
    """What a smaller case has to have in common: status and reason; the message, but for its values, where it is the
    backend's."""
    message = () if verdict.reason in _OF_VALUES else skeleton(verdict.message.partition("\n")[0])
    return (verdict.status, verdict.reason, message)


def _in_words(case: TestCase) -> str:
    """The identifier, with what it leaves out: inputs that are not dense, and how they are filled."""
    laid = ["not dense"] if any(not each.spec.is_plain for each in case.inputs) else []
    fills = list(dict.fromkeys(str(each.fill) for each in case.inputs)) if case.generator is None else [case.generator]
    return ", ".join([case.identifier(), *laid, *(each for each in fills if len(each) < 40)])
