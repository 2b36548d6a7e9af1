"""What does one trivial case cost: in process, through a warm worker, in a fresh fork, and in pytest?

    python benchmarks/overhead.py [--quick]

Both optest and pytest add four float32 numbers, compare, and record the result. optest draws the inputs from the case
key, runs the float64 reference and the backend, judges by the class rule, and writes a journal line; pytest runs one
parametrised test with torch.testing.assert_close. The cost of a case is the slope between two numbers of cases, so
that start-up does not count. The backend only adds; the numpy backend, which evaluates the reference a second time,
has a row of its own. Ratios carry over to other machines, microseconds do not.

As a plug-in, this module registers the trivial backend.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import kit

from optest.backends import BackendDriver, backend_manager
from optest.core.executors import Executor, InProcess
from optest.core.session import Policy, Session
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.operators import operators
from optest.reporting import ReportManager
from optest.reporting.terminal import TerminalReporter
from optest.settings import environment
from optest.spec import Argument, BackendTarget, Fill, RunInfo, TensorSpec, TestCase, dtype
from optest.store import JournalWriter

__all__ = ["Kept", "TrivialBackend", "add_case", "run_session"]

PYTEST = """
import numpy as np, pytest, torch
@pytest.mark.parametrize("seed", range({count}))
def test_add(seed):
    rng = np.random.default_rng(seed)
    a, b = (torch.from_numpy(rng.standard_normal(4, dtype=np.float32)) for _ in range(2))
    torch.testing.assert_close(a + b, (a.double() + b.double()).float())
"""
PEER = "pytest + torch.testing.assert_close"
PLUGINS = ("overhead",)


class TrivialBackend(BackendDriver):
    """The cheapest backend: it adds its two inputs."""

    name = "trivial"
    kind = "trivial"
    isolated = False

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002
        return (inputs[0] + inputs[1],)


backend_manager.register(TrivialBackend(), replace=True)


def add_case(shape: Sequence[int], backend: str, seed: int, config: dict[str, Any] | None = None) -> TestCase:
    """Return a case of ``add`` in float32; ``config`` is that of the backend."""
    descriptor = operators.get("add")
    spec = TensorSpec(dtype=dtype("float32"), shape=tuple(shape))
    fill = Fill(kind="randn")
    inputs = tuple(
        Argument(name=name, path=f"input{i}", spec=spec, fill=fill) for i, name in enumerate(("input", "other"))
    )
    return TestCase(
        descriptor=descriptor,
        inputs=inputs,
        outputs=(spec,),
        attributes=descriptor.bind({}),
        backend=BackendTarget(name=backend),
        backend_config={backend: config} if config else {},
        seed=seed,
        timeout_s=300.0,
    )


def _add_cases(count: int, backend: str) -> list[TestCase]:
    return [add_case((4,), backend, seed) for seed in range(count)]


class Kept:
    """An executor that several sessions use: closing it does nothing."""

    def __init__(self, executor: Executor) -> None:
        self.execute = executor.execute
        self.looks_ahead = executor.looks_ahead

    def close(self) -> None:
        return None


def run_session(cases: Sequence[TestCase], backend: str, executor: Kept, folder: Path) -> None:
    """Run cases in a session with a journal and a silent terminal reporter.

    Raises:
        AssertionError: if a case did not pass.
    """
    info = RunInfo(run_id="bench", started_at="now", total=len(cases), target=backend, seed=0)
    with JournalWriter(folder / f"{time.monotonic_ns()}.jsonl") as writer:
        session = Session(
            info=info,
            cases=cases,
            driver=backend_manager.get(backend),
            make_executor=lambda _: executor,
            journal=writer,
            listener=ReportManager([TerminalReporter(io.StringIO(), verbosity=-2)]),
            policy=Policy(),
        )
        summary = session.run()
    assert summary.by_status == {"passed": len(cases)}, summary


def _run_pytest(count: int, folder: Path) -> None:
    path = folder / f"test_bench_{count}.py"
    path.write_text(PYTEST.format(count=count))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", str(path)]
    kit.run_program(command, folder)


def _slopes_s(sides: dict[str, tuple[Callable[[int], object], int, int]], repeats: int) -> dict[str, float]:
    """Return the seconds of one case of each side, from the least times of its small and its large number of cases."""
    calls = {(name, count): partial(run, count) for name, (run, *counts) in sides.items() for count in counts}
    wall = {key: seconds.wall for key, seconds in kit.least(calls, repeats).items()}
    return {name: (wall[name, many] - wall[name, few]) / (many - few) for name, (_, few, many) in sides.items()}


def main() -> None:
    options = kit.parser(__doc__, quick="fewer cases and repeats").parse_args()
    repeats, many = (2, 1000) if options.quick else (6, 4000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def side(backend: str, executor: Executor, few: int, many: int) -> tuple[Callable[[int], object], int, int]:
            kept = Kept(executor)
            # New cases for each repeat, because a case remembers its key.
            planned = {n: [_add_cases(n, backend) for _ in range(repeats)] for n in (few, many)}
            return (lambda count: run_session(planned[count].pop(), backend, kept, folder)), few, many

        def worker(*, fresh: bool) -> WorkerProcess:
            options = WorkerOptions(
                driver="trivial", scratch=folder, environment=environment(), plugins=PLUGINS, fresh=fresh
            )
            return WorkerProcess(options, "fresh" if fresh else "warm")

        warm, fresh = worker(fresh=False), worker(fresh=True)
        try:
            figures = _slopes_s(
                {
                    "in process": side("trivial", InProcess(backend_manager.get("trivial")), 200, many),
                    "in process, numpy backend": side("numpy", InProcess(backend_manager.get("numpy")), 200, many),
                    "warm worker": side("trivial", warm, 200, many),
                    "fresh fork of a warm worker": side("trivial", fresh, 20, 220),
                    PEER: (lambda count: _run_pytest(count, folder), 100, 100 + many),
                },
                repeats,
            )
        finally:
            warm.close()
            fresh.close()
    rows = [(name, f"{x * 1e6:.0f}", f"{figures[PEER] / x:.1f}") for name, x in figures.items()]
    print(kit.table(("one trivial case", "µs", f"{PEER} costs … times as much"), rows))


if __name__ == "__main__":
    main()
