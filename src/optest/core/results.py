"""Conversion of a case and its verdict to the result that journals and reports hold."""

from __future__ import annotations

from optest.core.wire import case_to_wire
from optest.spec import Benchmark, CaseResult, TestCase, Timings, Verdict
from optest.spec.construct import constructor

new_result = constructor(CaseResult)


def reference_name(case: TestCase) -> str:
    """Return the reference of the case in one word: "none", "torch", its import path, or "numpy"."""
    reference = case.reference or case.descriptor.reference
    if reference is None:
        return "none"
    if str(reference).startswith("optest.torch."):
        return "torch"
    return case.reference or "numpy"


def result_of(
    case: TestCase,
    verdict: Verdict,
    *,
    timings: Timings | None = None,
    benchmark: Benchmark | None = None,
    attempts: int = 1,
    round_index: int = 0,
    isolation: str = "none",
    duplicate_of: str | None = None,
    repro: str = "",
    began_s: float | None = None,
    devices: tuple[int, ...] = (),
) -> CaseResult:
    """Build the result of a case from its verdict and the facts of its execution."""
    target, inputs = case.backend, case.inputs
    identifier = case.identifier()
    return new_result(
        id=case.name or identifier,
        key=case.key,
        operator=case.descriptor.name,
        target=target.label(),
        reference=reference_name(case),
        mode=case.mode,
        verdict=verdict,
        seed=case.seed,
        dtypes=tuple([argument.spec.dtype.name for argument in inputs]),
        shapes={argument.path: argument.spec.shape for argument in inputs},
        attributes=case.attributes,
        backend=target.name,
        kind=target.kind,
        chip=target.chip,
        device=target.device,
        timings=timings or Timings(),
        benchmark=benchmark,
        attempts=attempts,
        round=round_index,
        isolation=isolation,
        duplicate_of=duplicate_of,
        repro=repro,
        tags=case.tags,
        description=case.description,
        where=case.where,
        identifier=identifier if case.name else "",
        case=case_to_wire(case),
        began_s=began_s,
        devices=devices,
    )
