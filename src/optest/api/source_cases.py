"""Cases of ``--source``, such as torch's own samples, converted to the cases of a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from optest.backends import BackendDriver
from optest.errors import NothingSelected, UsageError
from optest.operators import operators
from optest.plan import PlanDocument
from optest.plan.expectations import Expectations, read_expectations
from optest.plan.from_samples import plan_of_entries
from optest.plan.request import parse_dtypes
from optest.plan.sources import Collected, collect_sources
from optest.settings import Settings
from optest.spec import BAD_STATUSES, TestCase, Verdict
from optest.spec.call_names import canonical

# A source specifies these itself.
_PLAN_OPTIONS = ("plan", "shape", "attr", "generator")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceDocument:
    """The cases of one source as a plan, and as the source returned them."""

    plan: PlanDocument
    collected: Collected


def source_documents(settings: Settings) -> Sequence[SourceDocument]:
    """Collect the cases of ``--source``, limited by ``--dtype``.

    Raises:
        UsageError, UnknownName: for an unknown source, and for options that contradict a source.
        Unavailable: if a source needs a package that is not installed.
        NothingSelected: if a source has no such case.
    """
    for name in _PLAN_OPTIONS:
        if settings[name]:
            raise UsageError(f"--{name} and --source exclude each other, as a source has complete cases; drop one")
    dtypes = settings["dtype"]
    documents = collect_sources(
        settings["source"],
        dtypes=tuple(x.name for x in parse_dtypes(dtypes)) if dtypes else (),
        device=(settings["torch_device"] or "cpu").partition(":")[0],
        seed=settings["seed"] or 0,
        options=settings,
    )
    empty = [note for document in documents if not document.entries for note in document.notes]
    if empty:
        raise NothingSelected(f"--source {' '.join(settings['source'])} has no case: {'; '.join(empty)}")
    return [SourceDocument(plan=plan_of_entries(x.entries, x.origin), collected=x) for x in documents]


def with_origin(cases: Sequence[TestCase], source: Collected) -> list[TestCase]:
    """Return the cases with their origin in the source instead of a line of the generated plan."""
    with_origins = []
    for case in cases:
        origin, prefix = source.origins.get(case.name, source.origin), f"{source.origin}:"
        layers = [
            dataclasses.replace(layer, where=origin) if layer.where.startswith(prefix) else layer
            for layer in case.tolerances
        ]
        with_origins.append(dataclasses.replace(case, where=origin, base_dir="", tolerances=tuple(layers)))
    return with_origins


def known_differences(driver: BackendDriver) -> Callable[[TestCase, Verdict], Verdict]:
    """Return a function that marks failures of samples as expected if the driver's file lists them.

    A line about ``torch.softmax`` applies to all of its forms, such as ``torch.Tensor.softmax`` and ``torch.softmax_``.
    Lines about results do not apply to gradients, nor lines about gradients to results.
    """
    path = driver.expectations_of_samples()
    if path is None:
        return lambda _, verdict: verdict
    known = read_expectations(path, operators=operators, versions=driver.versions())
    functions = {canonical(line.op).operator: line.op for line in known.lines if line.op.count(".") == 1}
    of_results, of_gradients = (
        Expectations(lines=tuple(line for line in known.lines if line.is_of_gradients == is_wanted))
        for is_wanted in (False, True)
    )

    def revise(case: TestCase, verdict: Verdict) -> Verdict:
        if verdict.status not in BAD_STATUSES:
            return verdict
        gradients = [measure for measure in verdict.measures if measure.is_gradient]
        has_wrong = not gradients or any(measure.is_off for measure in gradients)
        expectations = of_gradients if case.attributes.get("grad") and has_wrong else of_results
        waived = expectations.waive(case, verdict)
        function = functions.get(canonical(case.descriptor.name).operator)
        if waived is not verdict or function is None:
            return waived
        return expectations.waive(dataclasses.replace(case, descriptor=operators.get(function)), verdict)

    return revise
