"""What one trivial case costs, all in: in process, through a warm worker, in a fresh fork; against pytest.

Both sides add four float32 numbers, compare, and record the result. optest draws the inputs from the case key, asks
the float64 reference and the backend, judges by the class rule, and writes a journal line; pytest runs one
parametrised test with torch.testing.assert_close. Cost a case is the slope between two numbers of cases, so start-up
does not count. All sides are asked in turns and the least time of each counts, so that a busy machine is unfair to
none. Prints microseconds of one run and their ratio; the ratio is what carries over to other machines.

The backend is a trivial one of its own (``trivial_backend.py``); the numpy backend, which evaluates the reference a
second time, has a row of its own.
"""

from __future__ import annotations

import argparse
import gc
import io
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from optest.backends import backend_manager
from optest.core.executors import Executor, InProcess
from optest.core.session import Policy, Session
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.operators import operators
from optest.registry import load_plugins
from optest.reporting import ReportManager
from optest.reporting.terminal import TerminalReporter
from optest.settings import environment
from optest.spec import Argument, BackendTarget, Fill, RunInfo, TensorSpec, TestCase, dtype
from optest.store import JournalWriter

PYTEST = """
import numpy as np, pytest, torch
@pytest.mark.parametrize("seed", range({count}))
def test_add(seed):
    rng = np.random.default_rng(seed)
    a, b = (torch.from_numpy(rng.standard_normal(4, dtype=np.float32)) for _ in range(2))
    torch.testing.assert_close(a + b, (a.double() + b.double()).float())
"""


PLUGINS = ("trivial_backend",)
Side = Callable[[int], float]
"""Runs so many cases and returns the seconds that they took."""


def cases(count: int, backend: str) -> list[TestCase]:
    descriptor = operators.get("add")
    spec = TensorSpec(dtype=dtype("float32"), shape=(4,))
    fill = Fill(kind="randn")
    inputs = tuple(
        Argument(name=name, path=f"input{i}", spec=spec, fill=fill) for i, name in enumerate(("input", "other"))
    )
    attributes = descriptor.bind({})
    target = BackendTarget(name=backend)
    return [
        TestCase(
            descriptor=descriptor,
            inputs=inputs,
            outputs=(spec,),
            attributes=attributes,
            backend=target,
            seed=seed,
            timeout_s=300.0,
        )
        for seed in range(count)
    ]


def run_seconds(count: int, backend: str, executor: Executor, folder: Path) -> float:
    planned = cases(count, backend)
    info = RunInfo(run_id="bench", started_at="now", total=count, target=backend, seed=0)
    gc.collect()
    with JournalWriter(folder / f"{time.monotonic_ns()}.jsonl") as writer:
        session = Session(
            info=info,
            cases=planned,
            driver=backend_manager.get(backend),
            make_executor=lambda _: executor,
            journal=writer,
            listener=ReportManager([TerminalReporter(io.StringIO(), verbosity=-2)]),
            policy=Policy(),
        )
        began = time.perf_counter()
        summary = session.run()
        took = time.perf_counter() - began
    assert summary.by_status == {"passed": count}, summary
    return took


class Kept:
    """An executor that outlives a session."""

    def __init__(self, executor: Executor) -> None:
        self.execute = executor.execute
        self.looks_ahead = executor.looks_ahead

    def close(self) -> None:
        return None


def pytest_seconds(count: int, folder: Path) -> float:
    path = folder / f"test_bench_{count}.py"
    path.write_text(PYTEST.format(count=count))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", str(path)]
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return time.perf_counter() - began


def slopes_s(sides: dict[str, tuple[Side, int, int]], repeats: int) -> dict[str, float]:
    """Seconds a case of every side: between its small and its large number of cases, the least time of each."""
    least = {word: [float("inf"), float("inf")] for word in sides}
    for _ in range(repeats):
        for word, (ask, *counts) in sides.items():
            for place, count in enumerate(counts):
                least[word][place] = min(least[word][place], ask(count))
    return {word: (least[word][1] - least[word][0]) / (many - few) for word, (_, few, many) in sides.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer cases and repeats")
    given = parser.parse_args()
    repeats, many = (2, 1000) if given.quick else (6, 4000)
    load_plugins(PLUGINS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def side(backend: str, executor: Executor) -> Side:
            kept = Kept(executor)
            return lambda count: run_seconds(count, backend, kept, folder)

        def worker(*, fresh: bool) -> WorkerProcess:
            options = WorkerOptions(
                driver="trivial", scratch=folder, environment=environment(), plugins=PLUGINS, fresh=fresh
            )
            return WorkerProcess(options, "fresh" if fresh else "warm")

        warm, fresh = worker(fresh=False), worker(fresh=True)
        try:
            figures = slopes_s(
                {
                    "in process": (side("trivial", InProcess(backend_manager.get("trivial"))), 200, many),
                    "in process, numpy backend": (side("numpy", InProcess(backend_manager.get("numpy"))), 200, many),
                    "warm worker": (side("trivial", warm), 200, many),
                    "fresh fork of a warm worker": (side("trivial", fresh), 20, 220),
                    PEER: (lambda count: pytest_seconds(count, folder), 100, 1100 if given.quick else 4100),
                },
                repeats,
            )
        finally:
            warm.close()
            fresh.close()
    print(f"| one trivial case | µs | {PEER} costs … times as much |")
    print("|---|--:|--:|")
    for word, each in figures.items():
        print(f"| {word} | {each * 1e6:.0f} | {figures[PEER] / each:.1f} |")


PEER = "pytest + torch.testing.assert_close"


if __name__ == "__main__":
    main()
