"""Executions of a run, which equal cases share, and the results of their cases that journals and reports hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optest.core.wire import case_to_wire
from optest.spec import Benchmark, CaseResult, TestCase, Timings, Verdict
from optest.spec.construct import collection_paused, constructor

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


@dataclass(frozen=True, slots=True)
class Execution:
    """Cases that compute the same thing on the same target; only the first is run.

    ``round_index`` is the number of the repetition of the plan, from 0.
    """

    cases: tuple[TestCase, ...]
    round_index: int = 0

    @property
    def first(self) -> TestCase:
        return self.cases[0]


def resume_key(case: TestCase, round_index: int) -> object:
    """Return the identity by which an earlier result belongs to a case: id, key, target and repetition."""
    return (case.id, case.key, case.backend.label(), round_index)


def executions(cases: Iterable[TestCase], *, rounds: int = 1, dedupe: bool = True) -> Sequence[Execution]:
    """Group cases that compute the same thing, in the order of the plan, and repeat the groups ``rounds`` times.

    Without ``dedupe`` each case is a group.
    """
    planned = tuple(cases)
    with collection_paused():
        if not dedupe or len({case.key for case in planned}) == len(planned):  # most plans repeat no key
            groups: list[tuple[TestCase, ...]] = [(case,) for case in planned]
        else:
            grouped: dict[object, list[TestCase]] = {}
            for case in planned:
                grouped.setdefault(_sharing_key(case), []).append(case)
            groups = [tuple(group) for group in grouped.values()]
        return [Execution(group, index) for index in range(rounds) for group in groups]


def _sharing_key(case: TestCase) -> object:
    """Return a key of everything that a backend or reference can see of the case; cases with one key share a run."""
    if case.skip is not None:  # it is not run
        return id(case)
    config = repr(case.backend_config.get(case.backend.name)) if case.backend_config else None
    return (
        case.key,
        case.expects_error,
        case.invariants,
        case.mode,
        case.backend,
        reference_name(case),
        case.reference,
        config,
        case.timeout_s,
        case.base_dir,
    )
