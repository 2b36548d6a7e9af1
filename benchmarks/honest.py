"""Honest backends asked what ``optest check`` asks, with one seed after the other: no alarm is allowed.

    python benchmarks/honest.py [--cases 10000] [--first-seed 0] [--backend NAME] [--op NAME] [--jobs 2]

The backends are torch on a CPU, with the differences that ``torch/expectations.yaml`` names, and ``numpy-single``
(``single_backend.py``): NumPy in float32, rounded once. Each is asked with as many seeds as it takes to judge
``--cases``. Prints a Markdown table and each alarm with the line that runs it again; exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import single_backend
from widths import repro

from optest.api import bootstrap
from optest.api.checking import check_request
from optest.core.runner import execute, why_not_run
from optest.operators import operators
from optest.spec import Status

__all__ = ["BACKENDS", "Asked", "ask", "table"]

BACKENDS = ("torch", single_backend.NAME)
_HARMLESS = (Status.PASSED, Status.XFAILED, Status.SKIPPED)


@dataclass(slots=True, kw_only=True)
class Asked:
    """One operator asked of one backend with one seed."""

    backend: str
    op: str
    seed: int
    statuses: Counter[Status] = field(default_factory=Counter)
    alarms: list[str] = field(default_factory=list)

    @property
    def judged(self) -> int:
        """Cases that came to a verdict: not those that the backend does not have."""
        return sum(self.statuses.values()) - self.statuses[Status.SKIPPED]


def ask(backend: str, op: str, seed: int) -> Asked:
    """Ask the default tier of an operator, in this process."""
    _prepare(backend)
    request = check_request({"backend": backend, "op": (op,), "seed": seed})
    found = Asked(backend=backend, op=op, seed=seed)
    for case in request.run.cases:
        driver = request.run.driver
        verdict = why_not_run(case, driver) or execute([case], driver).verdicts[0]
        verdict = request.run.expectations.excused(case, verdict)
        found.statuses[verdict.status] += 1
        if verdict.status not in _HARMLESS:
            reason = verdict.reason.value if verdict.reason else ""
            found.alarms.append(
                f"{case.name} {verdict.status.value} {reason}: {verdict.message}\n  again: {repro(case)}"
            )
    return found


def _prepare(backend: str) -> None:
    bootstrap()
    single_backend.register()
    if backend == "torch":
        import torch

        torch.set_num_threads(1)


def asked_until(
    pool: ProcessPoolExecutor, backend: str, names: Sequence[str], first_seed: int, cases: int
) -> Iterator[Asked]:
    """Ask whole catalogues, a seed at a time, until so many cases are judged."""
    judged, seed = 0, first_seed
    while judged < cases:
        before = judged
        for each in pool.map(ask, [backend] * len(names), names, [seed] * len(names)):
            judged += each.judged
            yield each
        if judged == before:
            return
        seed += 1


def table(found: Sequence[Asked], seconds: float) -> str:
    judged, alarms = sum(each.judged for each in found), sum(len(each.alarms) for each in found)
    lines = [
        f"{judged:,} cases judged in {seconds:.0f} s: {alarms} alarms.",
        "",
        "| backend | seeds | operators | judged | passed | expected differences | declared gaps | alarms |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for backend in dict.fromkeys(each.backend for each in found):
        these = [each for each in found if each.backend == backend]
        statuses: Counter[Status] = sum((each.statuses for each in these), Counter())
        seeds = sorted({each.seed for each in these})
        cells = [
            backend,
            f"{seeds[0]} to {seeds[-1]}",
            str(len({each.op for each in these if each.judged})),
            f"{sum(each.judged for each in these):,}",
            f"{statuses[Status.PASSED]:,}",
            f"{statuses[Status.XFAILED]:,}",
            f"{statuses[Status.SKIPPED]:,}",
            str(sum(len(each.alarms) for each in these)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"\n- {each.backend} seed {each.seed}: {alarm}" for each in found for alarm in each.alarms]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000, help="to be judged of each backend")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="this backend. Repeatable.")
    parser.add_argument("--op", action="append", help="this operator. Repeatable.")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    bootstrap()
    chosen = {operators.get(name).name for name in given.op or []}
    began = time.perf_counter()
    found: list[Asked] = []
    with ProcessPoolExecutor(given.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for backend in given.backend or BACKENDS:
            has = single_backend.KERNELS if backend == single_backend.NAME else {each.name for each in operators}
            names = [each.name for each in operators if each.name in has and (not chosen or each.name in chosen)]
            for each in asked_until(pool, backend, names, given.first_seed, given.cases):
                found.append(each)
                if each.alarms or each.op == names[-1]:
                    took = time.perf_counter() - began
                    print(
                        f"{took:.0f} s: {backend} seed {each.seed} {each.op}, {len(each.alarms)} alarms",
                        file=sys.stderr,
                    )
    print(table(found, time.perf_counter() - began))
    return 1 if any(each.alarms for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
