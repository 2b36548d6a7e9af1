"""``optest minimise`` and ``--shrink``: a greedy search for the smallest case that fails with the same reason.

Each attempt draws its inputs by its own key and is compared as in a run. A step after which the case passes, is refused
or fails with another reason is not taken.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optest.api.run_request import RunRequest
from optest.api.worker_slots import worker_slots
from optest.core.interruption import Interruption
from optest.core.runner import why_not_run
from optest.core.trusted_files import configuration_watched
from optest.errors import OptestError, UsageError
from optest.generators.fills import check_fill
from optest.operators import operators
from optest.plan import CaseRequest, PlanHost, build_cases
from optest.plan.from_samples import plan_of_entries
from optest.plan.reductions import REDUCTIONS, reducible_entry
from optest.reporting.failure_groups import skeleton
from optest.spec import BAD_STATUSES, BackendTarget, CaseResult, Reason, Status, TestCase
from optest.store import RunDirectory

_MOST_ATTEMPTS = 400
# The messages of these reasons contain values, which differ between cases of one fault.
_VALUE_REASONS = (Reason.VALUE, Reason.NAN)
_SHRINK_S = 20.0
"""Time limit of ``--shrink`` for each failure."""


def smallest_line(
    request: RunRequest, result: CaseResult, interruption: Interruption, command_of: Callable[[TestCase], str]
) -> str:
    """Return the command of the smallest case that fails as ``result`` does, or why it was not reduced.

    ``command_of`` returns the command that runs a case, "" if there is none; the case is then described. Raise
    ``KeyboardInterrupt`` if the run was interrupted.
    """
    if interruption.is_cancelled:
        raise KeyboardInterrupt
    cases = [case for case in request.cases if (case.id, case.key) == (result.id, result.key)]
    try:
        smallest = smallest_failure(dataclasses.replace(request, cases=cases), _SHRINK_S, interruption)
    except OptestError as error:
        return "not reduced: " + str(error).partition("\n")[0]
    return f"smallest: {command_of(smallest.case) or case_in_words(smallest.case)}"


@dataclass(slots=True, kw_only=True)
class Smallest:
    """The result of a search: the case, the kinds of steps taken, and how the search was cut off, if it was."""

    case: TestCase
    reduced: dict[str, None] = field(default_factory=dict)
    attempts: int = 1
    ended: str = ""


def smallest_failure(request: RunRequest, most_s: float, interruption: Interruption) -> Smallest:
    """Reduce the first case until no step succeeds, or a limit is reached.

    Raise ``UsageError`` if it does not fail now, cannot be reduced, or its backend schedules cases on devices.
    """
    first = request.cases[0]
    with ExitStack() as stack:
        stack.enter_context(configuration_watched())
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="optest-"))
        slots = worker_slots(request, RunDirectory.begin(Path(folder)), interruption)
        stack.callback(slots.close)
        if slots.dispatcher is not None:
            raise UsageError("cases of this backend are scheduled on devices, so they cannot be minimised")
        executor = slots.make(0)
        stack.callback(executor.close)

        def failure_of(case: TestCase) -> tuple[Status, object, object]:
            """Return status, reason and, unless it contains values, the message: a smaller case must have the same."""
            verdict = why_not_run(case, request.driver) or executor.execute([case]).verdicts[0]
            message = () if verdict.reason in _VALUE_REASONS else skeleton(verdict.message.partition("\n")[0])
            return (verdict.status, verdict.reason, message)

        case = _build_case(reducible_entry(first), first, request.target)
        if case is None:
            why = "expects an error because of its values" if first.expects_error else "cannot be written as a plan"
            raise UsageError(f"{first.id} {why}, so it cannot be reduced")
        failure = failure_of(case)
        if failure[0] not in BAD_STATUSES:
            raise UsageError(
                f"{first.id} does not fail this time: it {failure[0].value}\n  to see how often it fails: --rounds N"
            )
        smallest, known, until = Smallest(case=case), {case.key}, time.monotonic() + most_s
        stack.enter_context(interruption.watched())
        try:
            steps = _smaller_entries(case)
            while (step := next(steps, None)) is not None:
                kind, entry = step
                case = _build_case(entry, first, request.target)
                if case is None or case.key in known:
                    continue
                if smallest.attempts >= _MOST_ATTEMPTS or time.monotonic() > until:
                    smallest.ended = ", then the limit was reached"
                    break
                known.add(case.key)
                smallest.attempts += 1
                if failure_of(case) == failure:
                    smallest.case, smallest.reduced[kind], steps = case, None, _smaller_entries(case)
        except KeyboardInterrupt:
            smallest.ended = ", interrupted"
    return smallest


def _smaller_entries(case: TestCase) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the plan entries that are one step smaller than a case, each with the kind of the step."""
    entry = reducible_entry(case)
    return ((kind, smaller) for kind, reduce in REDUCTIONS.items() for smaller in reduce(entry, case.descriptor))


def _build_case(entry: Mapping[str, Any], first: TestCase, target: BackendTarget) -> TestCase | None:
    """Build the case of a plan entry; None if it is invalid, or valid although ``first`` expects an error."""
    host = PlanHost(operators=operators, target=target, check_fill=check_fill)
    try:
        (case,) = build_cases(plan_of_entries([entry], "a smaller case"), CaseRequest(), host)
    except OptestError:
        return None
    if any(x.path not in entry["shapes"] for x in case.inputs):
        return None  # an omitted input took the shape of another one
    if case.expects_error and _build_case({key: entry[key] for key in entry if key != "expects_error"}, first, target):
        return None
    kept = ("backend", "tolerances", "timeout_s", "mode", "base_dir", "allowed_folders")
    return dataclasses.replace(case, where="", **{name: getattr(first, name) for name in kept})


def case_in_words(case: TestCase) -> str:
    """Return the identifier of a case, with the layout and the fills of its inputs."""
    layout = ["not dense"] if any(not x.spec.is_plain for x in case.inputs) else []
    fills = list(dict.fromkeys(str(x.fill) for x in case.inputs)) if case.generator is None else [case.generator]
    return ", ".join([case.identifier(), *layout, *(fill for fill in fills if len(fill) < 40)])
