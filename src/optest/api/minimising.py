"""``optest minimise``: the smallest and plainest case that still fails with the same reason, by greedy steps.

Each attempt is drawn by its own key and judged as in a run. A step after which the case passes, is refused, or fails
otherwise is not taken.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from optest.api import bootstrap
from optest.api.lanes import lanes_of
from optest.api.replaying import replay_request, selected_results
from optest.api.report import Report
from optest.api.run_request import RunRequest
from optest.api.running import run_cases
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
from optest.spec import BAD_STATUSES, Reason, TestCase, Verdict
from optest.store import RunDirectory, check_writable, write_atomically

__all__ = ["minimise"]

_MOST_ATTEMPTS = 400
_OF_VALUES = (Reason.VALUE, Reason.NAN)


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
        UsageError: if nothing that was selected failed, it does not fail again, or its cases run on devices that are
            scheduled.
    """
    bootstrap()
    out = stream or sys.stdout
    if write is not None:
        check_writable(Path(write))
    results, before, notes = selected_results(Path(resolve(given)["runs_dir"]), run, selections)
    failed = next((each for each in results if each.status in BAD_STATUSES), None)
    if failed is None:
        raise UsageError(f"{results[0].id} did not fail: it {results[0].status.value}")
    request = replay_request([failed], given, before)
    with tempfile.TemporaryDirectory(prefix="optest-") as folder:
        search = _search(request, Path(folder), most_s)
    first = request.cases[0]
    smallest, reduced = search.smallest, ", ".join(search.reduced)
    facts = {**request.facts, "command": "minimise"}
    outcome = run_cases(dataclasses.replace(request, cases=[smallest], notes=notes, facts=facts), stream=out)
    change = f"{_in_words(first)} to {_in_words(smallest)}"
    tried = f"{plural(search.attempts, 'attempt')}{search.why_ended}"
    print(f"reduced from {change}: {reduced}; {tried}" if reduced else f"nothing of it can go: {tried}", file=out)
    if write is not None:
        is_usual = not request.settings.stated("timeout") and smallest.timeout_s == request.settings["timeout"]
        plan = case_plan(dataclasses.replace(smallest, timeout_s=None) if is_usual else smallest)
        write_atomically(Path(write), plan.encode())
        print(f"plan: {write}", file=out)
    return outcome


def _search(request: RunRequest, folder: Path, most_s: float) -> _Search:
    """The search, done.

    Raises:
        UsageError: if the case does not fail now, or cannot be run one attempt after the other.
    """
    interruption = Interruption()
    lanes = lanes_of(request, RunDirectory.begin(folder), interruption)
    try:
        if lanes.dispatcher is not None:
            raise UsageError("attempts run in one process, but the cases of this backend are scheduled on its devices")
        executor = lanes.make(0)
        try:
            search = _Search(request=request, executor=executor, smallest=_nameless(request.cases[0]))
            search.begin()
            with interruption.watched():
                search.run(time.monotonic() + most_s)
        finally:
            executor.close()
    finally:
        lanes.close()
    return search


@dataclass(slots=True, kw_only=True)
class _Search:
    """``reduced`` are the kinds of steps that were taken, in their order."""

    request: RunRequest
    executor: Executor
    smallest: TestCase
    reduced: dict[str, None] = field(default_factory=dict)
    attempts: int = 0
    why_ended: str = ""
    _failure: object = None
    _known: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Let the case fail once more.

        Raises:
            UsageError: if it does not, or has to be refused for its values.
        """
        case = self.smallest
        verdict = self._verdict(case)
        if verdict.status not in BAD_STATUSES:
            raise UsageError(f"{case.id} does not fail this time: it {verdict.status.value}; --rounds tells how often")
        if case.expects_error is not None and self._built(_unrefused(reducible_entry(case))) is not None:
            raise UsageError(f"{case.id} has to be refused for its values, which smaller ones need not be")
        self._failure = _failure(verdict)
        self._known.add(case.key)

    def run(self, until: float) -> None:
        """Take steps of each kind for as long as one of any kind is left, or a limit is reached."""
        try:
            is_smaller = True
            while is_smaller:
                is_smaller = False
                for kind in REDUCTIONS:
                    while (case := next(self._failing(kind, until), None)) is not None:
                        self.smallest, is_smaller = case, True
                        self.reduced[kind] = None
        except KeyboardInterrupt:
            self.why_ended = ", interrupted"

    def _failing(self, kind: str, until: float) -> Iterator[TestCase]:
        """The proposals of one kind that fail as the case does."""
        for entry in REDUCTIONS[kind](reducible_entry(self.smallest), self.smallest.descriptor):
            case = self._built(entry)
            if case is None or case.key in self._known:
                continue
            if case.expects_error is not None and self._built(_unrefused(entry)) is not None:
                continue
            if self.attempts >= _MOST_ATTEMPTS or time.monotonic() > until:
                self.why_ended = ", then the limit was reached"
                return
            self._known.add(case.key)
            if _failure(self._verdict(case)) == self._failure:
                yield case

    def _built(self, entry: Mapping[str, Any]) -> TestCase | None:
        """The case of an entry, None if its operator does not take it."""
        host = PlanHost(operators=operators, target=self.request.target, check_fill=check_fill)
        try:
            (case,) = build_cases(document_of([entry], "a smaller case"), CaseRequest(), host)
        except OptestError:
            return None
        if any(each.path not in entry["shapes"] for each in case.inputs):
            return None  # an input that was left out has taken the shape of another
        was = self.smallest
        kept = ("backend", "tolerances", "timeout_s", "mode", "base_dir", "allowed_folders")
        return dataclasses.replace(case, where="", **{name: getattr(was, name) for name in kept})

    def _verdict(self, case: TestCase) -> Verdict:
        self.attempts += 1
        return why_not_run(case, self.request.driver) or self.executor.execute([case]).verdicts[0]


def _nameless(case: TestCase) -> TestCase:
    return dataclasses.replace(case, name="", tags=(), description="", where="", xfail=None)


def _unrefused(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key != "expects_error"}


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
