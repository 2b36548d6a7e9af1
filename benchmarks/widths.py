"""Torch on a CPU in float32, float16 and bfloat16 at widths 1, 17, 4,096 and 65,536: does any rule raise a false alarm?

    python benchmarks/widths.py [--seeds 100] [--first-seed 0] [--dtype DTYPE] [--width N] [--op NAME] [--jobs 2]

Every operator that takes floats is asked the calls of ``width_calls.py`` with every seed, through the engine that
``optest run`` uses. A difference that ``torch/expectations.yaml`` names counts as expected, any other is an alarm.
Prints a Markdown table, each alarm with the line that runs it again, and exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from width_calls import DTYPES, WIDTHS, cases_of_width, float_operators

from optest.api import bootstrap
from optest.backends import BackendDriver, backend_manager
from optest.core.runner import execute, why_not_run
from optest.operators import operators
from optest.plan.expectations import Expectations, read_expectations
from optest.plan.repro import case_plan, command_line
from optest.spec import OperatorDescriptor, Status, TestCase, Verdict

__all__ = ["Count", "Task", "count_of", "honest_backend", "repro"]

_BACKEND = "torch"
ALARMS_KEPT = 5
"""For each task; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One operator in one dtype and width, with a run of seeds."""

    op: str
    dtype: str
    width: int
    seeds: tuple[int, int]


@dataclass(slots=True, kw_only=True)
class Count:
    """What came of the cases of one task."""

    task: Task
    statuses: Counter[Status] = field(default_factory=Counter)
    alarms: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    largest: float = 0.0
    """The largest statistic as a share of its limit, of the cases that passed."""

    def add(self, case: TestCase, verdict: Verdict) -> None:
        self.statuses[verdict.status] += 1
        if verdict.status is Status.PASSED:
            self.largest = max([self.largest, *_shares(verdict)])
        elif verdict.status not in _HARMLESS and len(self.alarms) < ALARMS_KEPT:
            self.alarms.append((f"{verdict.status.value} {verdict.reason}: {verdict.message}", repro(case)))

    @property
    def alarm_count(self) -> int:
        return sum(count for status, count in self.statuses.items() if status not in _HARMLESS)


_HARMLESS = (Status.PASSED, Status.XFAILED, Status.SKIPPED)


def _shares(verdict: Verdict) -> Iterator[float]:
    for measure in verdict.measures:
        if measure.statistic is not None and measure.statistic_limit:
            yield measure.statistic / measure.statistic_limit


def repro(case: TestCase) -> str:
    """The command that runs a case again, or a plan of it where flags cannot say it."""
    words = command_line(case)
    return f"optest {shlex.join(words)}" if words is not None else f"plan:\n{case_plan(case)}"


def honest_backend() -> tuple[BackendDriver, Expectations]:
    """Torch with one thread, and what is known of it."""
    import torch

    torch.set_num_threads(1)
    driver = backend_manager.get(_BACKEND)
    shipped = driver.expectations()
    if shipped is None:
        return driver, Expectations()
    return driver, read_expectations(shipped, operators=operators, versions=driver.versions())


_known: dict[int, Any] = {}


def count_of(task: Task) -> Count:
    """Ask the cases of a task, in this process."""
    if os.getpid() not in _known:
        bootstrap()
        _known[os.getpid()] = honest_backend()
    driver, expectations = _known[os.getpid()]
    began = time.perf_counter()
    count = Count(task=task)
    target = backend_manager.target(driver, None)
    for case in cases_of_width(operators.get(task.op), task.dtype, task.width, target):
        lack = why_not_run(case, driver)
        for seed in range(*task.seeds):
            asked = dataclasses.replace(case, seed=seed)
            verdict = lack or execute([asked], driver).verdicts[0]
            count.add(asked, expectations.excused(asked, verdict))
    count.seconds = time.perf_counter() - began
    return count


# the run


def counted(tasks: Sequence[Task], jobs: int) -> Iterator[Count]:
    """The counts of tasks as they come, the longest asked first; progress goes to standard error."""
    ordered = sorted(tasks, key=lambda task: -task.width)
    if jobs == 1:
        yield from map(count_of, ordered)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in as_completed([pool.submit(count_of, task) for task in ordered]):
            yield done.result()


def tasks_of(
    chosen: Iterable[OperatorDescriptor], dtypes: Iterable[str], widths: Iterable[int], seeds: tuple[int, int]
) -> list[Task]:
    return [
        Task(op=each.name, dtype=dtype, width=width, seeds=seeds)
        for each in chosen
        for dtype in dtypes
        for width in widths
    ]


def run(tasks: Sequence[Task], jobs: int) -> int:
    began = time.perf_counter()
    counts: list[Count] = []
    for count in counted(tasks, jobs):
        counts.append(count)
        if count.alarms or len(counts) % 50 == 0 or len(counts) == len(tasks):
            took = time.perf_counter() - began
            what = f"{count.task.op} {count.task.dtype} {count.task.width}"
            print(f"{len(counts)} of {len(tasks)} in {took:.0f} s: {what}, {count.alarm_count} alarms", file=sys.stderr)
    print(report(counts, time.perf_counter() - began))
    return 1 if any(count.alarm_count for count in counts) else 0


def report(counts: Sequence[Count], seconds: float) -> str:
    total = sum(sum(count.statuses.values()) for count in counts)
    alarms = sum(count.alarm_count for count in counts)
    seeds = max((count.task.seeds[1] - count.task.seeds[0] for count in counts), default=0)
    chosen = len({count.task.op for count in counts})
    widths = ", ".join(f"{width:,}" for width in sorted({count.task.width for count in counts}))
    asked = f"{total:,} cases of {chosen} operators at widths {widths} with {seeds} seeds"
    lines = [
        f"{asked} in {seconds:.0f} s: {alarms} alarms.",
        "",
        "| class | dtype | operators | verdicts | passed | expected differences | gaps | alarms | largest z / limit |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    kinds = {each.name: each.rule.kind.value if each.rule is not None else "none" for each in operators}
    for kind in dict.fromkeys(kinds.values()):
        for dtype in DTYPES:
            these = [count for count in counts if kinds[count.task.op] == kind and count.task.dtype == dtype]
            if these:
                lines.append(_row(kind, dtype, these))
    lines += [*_expected(counts), *_alarms(counts)]
    return "\n".join(lines)


def _row(kind: str, dtype: str, counts: Sequence[Count]) -> str:
    statuses: Counter[Status] = sum((count.statuses for count in counts), Counter())
    cells = [
        kind,
        dtype,
        str(len({count.task.op for count in counts})),
        f"{sum(statuses.values()):,}",
        f"{statuses[Status.PASSED]:,}",
        f"{statuses[Status.XFAILED]:,}",
        f"{statuses[Status.SKIPPED]:,}",
        str(sum(count.alarm_count for count in counts)),
        f"{largest:.2f}" if (largest := max(count.largest for count in counts)) else "",
    ]
    return f"| {' | '.join(cells)} |"


def _expected(counts: Sequence[Count]) -> list[str]:
    found: Counter[tuple[str, str]] = Counter()
    for count in counts:
        found[count.task.op, count.task.dtype] += count.statuses[Status.XFAILED]
    listed = [f"{op} {dtype} {number:,}" for (op, dtype), number in found.items() if number]
    return ["", f"Expected differences by operator and dtype: {', '.join(listed) or 'none'}."]


def _alarms(counts: Sequence[Count]) -> list[str]:
    lines: list[str] = []
    for count in counts:
        if count.alarms:
            task = count.task
            lines += ["", f"{task.op} {task.dtype} at {task.width:,}: {count.alarm_count} alarms"]
            lines += [f"- {message}\n  again: {again}" for message, again in count.alarms]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="this dtype. Repeatable.")
    parser.add_argument("--width", action="append", type=int, help="this width. Repeatable.")
    parser.add_argument("--op", action="append", help="this operator. Repeatable.")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    bootstrap()
    names = {operators.get(name).name for name in given.op or []}
    chosen = [each for each in float_operators() if not names or each.name in names]
    seeds = (given.first_seed, given.first_seed + given.seeds)
    return run(tasks_of(chosen, given.dtype or DTYPES, given.width or WIDTHS, seeds), given.jobs)


if __name__ == "__main__":
    sys.exit(main())
