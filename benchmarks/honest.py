"""Does any rule reject a correct implementation? Honest backends run case after case, and no alarm is allowed.

    python benchmarks/honest.py [--source check|widths|drawn] [--seeds 3] [--backend NAME] [--op NAME] [--jobs 2]

The backends are torch on a CPU, with the differences that ``torch/expectations.yaml`` names, and those of
``honest_kernels.py``: NumPy in float32, rounded once, also with sums in other orders. The sources of cases, each
repeated with every seed:

- ``check``: the cases of ``optest check``.
- ``widths``: calls of every operator that takes floats in widths of 1, 17, 4,096 and 65,536 (``width_calls.py``).
- ``drawn``: twenty random calls of twelve operators (``drawn_calls.py``).

Prints a Markdown table, the expected differences, and each alarm with its reproduction command. Exits with 1 if there
was an alarm.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby

import honest_kernels
import kit
import numpy as np
from drawn_calls import DRAWN, drawn_case
from width_calls import DTYPES, WIDTHS, cases_of_width, float_operators

from optest.api import bootstrap
from optest.api.checking import check_request
from optest.backends import BackendDriver, backend_manager
from optest.core.runner import execute, why_not_run
from optest.operators import operators
from optest.plan.expectations import Expectations, read_expectations
from optest.plan.repro import case_plan, command_line
from optest.spec import Status, TestCase, Verdict

__all__ = ["BACKENDS", "SOURCES", "Count", "Task", "count_of", "report", "tasks_of"]

BACKENDS = ("torch", *honest_kernels.BACKENDS)
SOURCES = ("check", "widths", "drawn")
DRAWS = 20
_HARMLESS = (Status.PASSED, Status.XFAILED, Status.SKIPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The cases of one operator from one source, for one backend and seed."""

    source: str
    backend: str
    op: str
    seed: int


@dataclass(slots=True, kw_only=True)
class Count:
    """Verdicts of one task."""

    task: Task
    statuses: Counter[Status] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)
    expected: Counter[str] = field(default_factory=Counter)
    """Expected differences, by operator and dtype."""
    largest: float = 0.0
    """Largest statistic of the cases that passed, as a share of its limit."""

    @property
    def verdicts(self) -> int:
        return sum(self.statuses.values()) - self.statuses[Status.SKIPPED]

    def add(self, case: TestCase, verdict: Verdict) -> None:
        self.statuses[verdict.status] += 1
        if verdict.status is Status.PASSED:
            shares = [x.statistic / x.statistic_limit for x in verdict.measures if x.statistic and x.statistic_limit]
            self.largest = max([self.largest, *shares])
        elif verdict.status is Status.XFAILED:
            self.expected[f"{case.descriptor.name} {case.dtypes[0].name}"] += 1
        elif verdict.status is not Status.SKIPPED:
            reason = verdict.reason.value if verdict.reason else ""
            text = f"{case.name} {verdict.status.value} {reason}: {verdict.message}"
            self.alarms.append(f"{text}\n  again: {_reproduction_command(case)}")


def count_of(task: Task) -> Count:
    """Run the cases of a task in this process, and count their verdicts."""
    driver, expectations = _prepared(task.backend)
    count = Count(task=task)
    for case in _cases_of(task, driver):
        verdict = why_not_run(case, driver) or execute([case], driver).verdicts[0]
        count.add(case, expectations.waive(case, verdict))
    return count


def _cases_of(task: Task, driver: BackendDriver) -> Iterable[TestCase]:
    if task.source == "check":
        return check_request({"backend": task.backend, "op": (task.op,), "seed": task.seed}).run.cases
    target = backend_manager.target(driver, None)
    if task.source == "drawn":
        return [drawn_case(task.op, np.random.default_rng((task.seed, k)), target) for k in range(DRAWS)]
    cases = (
        case
        for dtype in DTYPES
        for width in WIDTHS
        for case in cases_of_width(operators.get(task.op), dtype, width, target)
    )
    return (dataclasses.replace(case, seed=task.seed) for case in cases)


@cache
def _prepared(backend: str) -> tuple[BackendDriver, Expectations]:
    """Return a backend and its known differences; torch gets one thread."""
    bootstrap()
    honest_kernels.register()
    driver = backend_manager.get(backend)
    if backend != "torch":
        return driver, Expectations()
    import torch

    torch.set_num_threads(1)
    return driver, read_expectations(driver.expectations(), operators=operators, versions=driver.versions())


def _reproduction_command(case: TestCase) -> str:
    """Return the command that runs a case, or a plan of it if no command can."""
    words = command_line(case)
    return f"optest {shlex.join(words)}" if words is not None else f"plan:\n{case_plan(case)}"


def tasks_of(
    sources: Sequence[str], backends: Sequence[str], names: Sequence[str], seeds: Iterable[int]
) -> Iterator[Task]:
    """Yield the tasks of every source, backend and seed for the operators with these names, or for all."""
    of_source = {
        "check": [x.name for x in operators],
        "widths": [x.name for x in float_operators()],
        "drawn": list(DRAWN),
    }
    for source in sources:
        for backend in backends:
            kernels = honest_kernels.BACKENDS.get(backend, of_source[source])
            chosen = [x for x in of_source[source] if x in kernels and (not names or x in names)]
            yield from (Task(source=source, backend=backend, op=op, seed=seed) for seed in seeds for op in chosen)


def report(counts: Sequence[Count], seconds: float) -> str:
    """Return the number of alarms, a table by source, backend and class of rule, and the alarms."""
    alarms = [(count.task, alarm) for count in counts for alarm in count.alarms]
    expected: Counter[str] = sum((count.expected for count in counts), Counter())
    verdicts = sum(count.verdicts for count in counts)
    chosen = len({count.task.op for count in counts})
    lines = [
        f"{verdicts:,} cases of {chosen} operators in {seconds:.0f} s: {len(alarms)} alarms.",
        "",
        kit.table(_COLUMNS, _rows(counts)),
        "",
        f"Expected differences: {', '.join(f'{name} {number:,}' for name, number in expected.items()) or 'none'}.",
    ]
    return "\n".join([*lines, *(f"\n- {task.backend} seed {task.seed}: {alarm}" for task, alarm in alarms)])


_COLUMNS = (
    "source", "backend", "class", "operators", "seeds", "verdicts", "passed", "expected", "unsupported", "alarms",
    "largest z / limit",
)  # fmt: skip


def _rows(counts: Sequence[Count]) -> Iterator[tuple[str | int, ...]]:
    kinds = {x.name: x.rule.kind.value if x.rule is not None else "none" for x in operators}

    def group_of(count: Count) -> tuple[str, str, str]:
        return count.task.source, count.task.backend, kinds[count.task.op]

    for group, members in groupby(sorted(counts, key=group_of), group_of):
        group_counts = list(members)
        statuses: Counter[Status] = sum((x.statuses for x in group_counts), Counter())
        largest = max(x.largest for x in group_counts)
        yield (
            *group,
            len({x.task.op for x in group_counts}),
            len({x.task.seed for x in group_counts}),
            sum(x.verdicts for x in group_counts),
            statuses[Status.PASSED],
            statuses[Status.XFAILED],
            statuses[Status.SKIPPED],
            sum(len(x.alarms) for x in group_counts),
            f"{largest:.2f}" if largest else "",
        )


def main() -> int:
    parser = kit.parser(__doc__)
    parser.add_argument("--source", action="append", choices=SOURCES, help="source of cases. Repeatable. [all]")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="only this backend. Repeatable.")
    parser.add_argument("--op", action="append", help="only this operator. Repeatable.")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    bootstrap()
    names = [operators.get(name).name for name in options.op or []]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    tasks = list(tasks_of(options.source or SOURCES, options.backend or BACKENDS, names, seeds))
    began = time.perf_counter()
    counts: list[Count] = []
    for count in kit.parallel(count_of, tasks, options.jobs):
        counts.append(count)
        if count.alarms or len(counts) % 50 == 0:
            print(f"{len(counts)} of {len(tasks)}: {count.task}, {len(count.alarms)} alarms", file=sys.stderr)
    print(report(counts, time.perf_counter() - began))
    return 1 if any(count.alarms for count in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
