"""Which cases share an execution, and in which order executions are asked for. Pure: no clocks, no processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optest.core.results import reference_name
from optest.spec import TestCase

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
    grouped: dict[object, list[TestCase]] = {}
    for case in cases:
        grouped.setdefault(_shared(case) if dedupe else id(case), []).append(case)
    return [Execution(tuple(group), index) for index in range(rounds) for group in grouped.values()]


def _shared(case: TestCase) -> object:
    """Cases share an execution if everything that a backend or reference can see of them is the same.

    A skipped case shares nothing, since it is not run.
    """
    if case.skip is not None:
        return id(case)
    config = repr(case.backend_config.get(case.backend.name)) if case.backend_config else None
    return (case.key, case.backend, reference_name(case), case.reference, config, case.timeout_s, case.base_dir)
