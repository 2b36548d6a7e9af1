"""What one trivial case costs, all in: in process, through a warm worker, in a fresh fork; against pytest.

Both sides add four float32 numbers, compare, and record the result. optest draws the inputs from the case key, asks
the float64 reference and the backend, judges by the class rule, and writes a journal line; pytest runs one
parametrised test with torch.testing.assert_close. Cost a case is the slope between two numbers of cases, so start-up
does not count. Prints microseconds of one run and their ratio; the ratio is what carries over to other machines.
"""

from __future__ import annotations

import argparse
import gc
import io
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from optest.backends import backend_manager
from optest.core.executors import Executor, InProcess, WorkerOptions, WorkerProcess
from optest.core.session import Policy, Session
from optest.operators import operators
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


def cases(count: int) -> list[TestCase]:
    descriptor = operators.get("add")
    spec = TensorSpec(dtype=dtype("float32"), shape=(4,))
    fill = Fill(kind="randn")
    inputs = tuple(
        Argument(name=name, path=f"input{i}", spec=spec, fill=fill) for i, name in enumerate(("input", "other"))
    )
    attributes = descriptor.bind({})
    target = BackendTarget(name="numpy")
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


def seconds(count: int, executor: Executor, folder: Path) -> float:
    planned = cases(count)
    info = RunInfo(run_id="bench", started_at="now", total=count, target="numpy", seed=0)
    journal = folder / f"{time.monotonic_ns()}.jsonl"
    gc.collect()
    with JournalWriter(journal) as writer:
        session = Session(
            info=info,
            cases=planned,
            driver=backend_manager.get("numpy"),
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

    def close(self) -> None:
        return None


def slope(executor: Executor, folder: Path, few: int, many: int, repeats: int) -> float:
    kept = Kept(executor)
    seconds(few, kept, folder)
    return min((seconds(many, kept, folder) - seconds(few, kept, folder)) / (many - few) for _ in range(repeats))


def pytest_seconds(count: int, folder: Path) -> float:
    path = folder / f"test_bench_{count}.py"
    path.write_text(PYTEST.format(count=count))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", str(path)]
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        driver = backend_manager.get("numpy")
        rows = {"in process": slope(InProcess(driver), folder, 200, 200 + given.cases, given.repeats)}
        for word, fresh, few, many in (("warm worker", False, 100, given.cases), ("fresh fork", True, 20, 220)):
            options = WorkerOptions(driver="numpy", scratch=folder, environment=environment(), fresh=fresh)
            worker = WorkerProcess(options, word.replace(" ", "-"))
            rows[word] = slope(worker, folder, few, many, given.repeats)
            worker.close()
        few, many = 100, 1100
        peer = min((pytest_seconds(many, folder) - pytest_seconds(few, folder)) / (many - few) for _ in range(2))
    print("| one trivial case | µs | pytest + torch.testing.assert_close is … times as dear |")
    print("|---|--:|--:|")
    for word, each in rows.items():
        print(f"| {word} | {each * 1e6:.0f} | {peer / each:.1f} |")
    print(f"| pytest + torch.testing.assert_close | {peer * 1e6:.0f} | 1.0 |")


if __name__ == "__main__":
    main()
