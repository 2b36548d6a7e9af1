"""Which cases share an execution, and in which order executions are asked for. Pure: no clocks, no processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optest.core.results import reference_name
from optest.spec import TestCase
from optest.spec.construct import collection_paused

__all__ = ["Execution", "executions"]


@dataclass(frozen=True, slots=True)
class Execution:
    """Cases that compute the same thing on the same target; the first stands for the others.

    ``round_index`` counts repeats of the whole plan.
    """

    cases: tuple[TestCase, ...]
    round_index: int = 0

    @property
    def first(self) -> TestCase:
        return self.cases[0]


def executions(cases: Iterable[TestCase], *, rounds: int = 1, dedupe: bool = True) -> Sequence[Execution]:
    """Group cases by what they compute, in the order of the plan, ``rounds`` times over."""
    planned = tuple(cases)
    with collection_paused():
        groups = _grouped(planned) if dedupe else [(case,) for case in planned]
        return [Execution(group, index) for index in range(rounds) for group in groups]


def _grouped(cases: Sequence[TestCase]) -> list[tuple[TestCase, ...]]:
    """Most plans repeat nothing, which their keys alone tell."""
    if len({case.key for case in cases}) == len(cases):
        return [(case,) for case in cases]
    grouped: dict[object, list[TestCase]] = {}
    for case in cases:
        grouped.setdefault(_shared(case), []).append(case)
    return [tuple(group) for group in grouped.values()]


def _shared(case: TestCase) -> object:
    """Cases share an execution if everything that a backend or reference can see of them is the same.

    That a refusal is expected, and which, decides what is asked. A skipped case shares nothing, since it is not run.
    """
    if case.skip is not None:
        return id(case)
    config = repr(case.backend_config.get(case.backend.name)) if case.backend_config else None
    return (
        case.key,
        case.expects_error,
        case.backend,
        reference_name(case),
        case.reference,
        config,
        case.timeout_s,
        case.base_dir,
    )
