"""Cases of a source that is no plan, such as torch's own samples, on the way that the cases of a plan take."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from optest.backends import BackendDriver
from optest.backends.command_abilities import KnowsExpectationsOfSamples
from optest.errors import NothingSelected, UsageError
from optest.operators import operators
from optest.plan import PlanDocument
from optest.plan.expectations import Expectations, read_expectations
from optest.plan.from_samples import document_of
from optest.plan.request import parse_dtypes
from optest.plan.sources import Collected, collected
from optest.settings import Settings
from optest.spec import BAD_STATUSES, TestCase, Verdict
from optest.spec.call_names import canonical

_OF_PLANS = ("plan", "shape", "attr", "generator")
"""Options that say what a source says itself."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceDocument:
    """Cases of one source as a plan, and the result of the source."""

    plan: PlanDocument
    collected: Collected


def source_documents(settings: Settings) -> Sequence[SourceDocument]:
    """What ``--source`` asks for; ``--dtype`` narrows it.

    Raises:
        UsageError, UnknownName: for what is no source, and for options that contradict one.
        Unavailable: if a source needs what is not installed.
        NothingSelected: if it has no case of that.
    """
    for name in _OF_PLANS:
        if settings[name]:
            raise UsageError(f"--{name} is given beside --source, which makes its cases whole; drop one of them")
    stated = settings["dtype"]
    documents = collected(
        settings["source"],
        dtypes=tuple(each.name for each in parse_dtypes(stated)) if stated else (),
        device=(settings["torch_device"] or "cpu").partition(":")[0],
        seed=settings["seed"] or 0,
        options=settings,
    )
    empty = [note for each in documents if not each.entries for note in each.notes]
    if empty:
        raise NothingSelected(f"--source {' '.join(settings['source'])} has no case: {'; '.join(empty)}")
    return [SourceDocument(plan=document_of(each.entries, each.origin), collected=each) for each in documents]


def with_origin(cases: Sequence[TestCase], source: Collected) -> list[TestCase]:
    """Return the cases with their origin instead of a line of the plan, which no user wrote."""

    def placed(case: TestCase) -> TestCase:
        origin, written = source.origins.get(case.name, source.origin), f"{source.origin}:"
        layers = [
            dataclasses.replace(each, where=origin) if each.where.startswith(written) else each
            for each in case.tolerances
        ]
        return dataclasses.replace(case, where=origin, base_dir="", tolerances=tuple(layers))

    return list(map(placed, cases))


def known_differences(driver: BackendDriver) -> Callable[[TestCase, Verdict], Verdict]:
    """What becomes of verdicts of samples: a failure that the driver is known for is an expected one, with the reason.

    A line about ``torch.softmax`` is about all forms of it, ``torch.Tensor.softmax`` and ``torch.softmax_`` too. What
    is known of results excuses no gradient, and what is known of gradients no result.
    """
    path = driver.expectations_of_samples() if isinstance(driver, KnowsExpectationsOfSamples) else None
    if path is None:
        return lambda _, verdict: verdict
    known = read_expectations(path, operators=operators, versions=driver.versions())
    functions = {canonical(line.op).operator: line.op for line in known.lines if line.op.count(".") == 1}
    of_results, of_gradients = (
        Expectations(lines=tuple(line for line in known.lines if line.is_of_gradients == is_wanted))
        for is_wanted in (False, True)
    )

    def revised(case: TestCase, verdict: Verdict) -> Verdict:
        if verdict.status not in BAD_STATUSES:
            return verdict
        gradients = [each for each in verdict.measures if each.is_gradient]
        lacks_right_ones = not gradients or any(each.is_off for each in gradients)
        expectations = of_gradients if case.attributes.get("grad") and lacks_right_ones else of_results
        excused = expectations.excused(case, verdict)
        return expectations.excused(_plain(case, functions), verdict) if excused is verdict else excused

    return revised


def _plain(case: TestCase, functions: Mapping[str, str]) -> TestCase:
    """The case as one of the function itself that lines are about, ``torch.softmax`` of all its forms."""
    function = functions.get(canonical(case.descriptor.name).operator)
    return case if function is None else dataclasses.replace(case, descriptor=operators.get(function))
