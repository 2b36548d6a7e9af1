"""Parts that benchmarks share: times of several sides in one run, Markdown tables, arguments, worker processes.

Importing it puts ``tests/plugins`` on the path, where the wrong kernels and the toy backends of the tests are.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

# At the end: a script and a plug-in may have the same name.
sys.path.append(str(Path(__file__).parents[1] / "tests" / "plugins"))

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
Task = TypeVar("Task")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)


class Seconds(NamedTuple):
    """Time on the wall, and processor time of this process and of its finished children."""

    wall: float
    processor: float


def timed(call: Callable[[], object]) -> Seconds:
    """Return the time that one call takes."""
    gc.collect()
    wall, processor = time.perf_counter(), _processor_time()
    call()
    return Seconds(time.perf_counter() - wall, _processor_time() - processor)


def _processor_time() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def in_turns(sides: Mapping[Key, Callable[[], object]], repeats: int) -> dict[Key, list[Seconds]]:
    """Call all sides in turns, and return their times by side."""
    # Turns, because a machine that is busy for a while would otherwise be unfair to one side.
    times: dict[Key, list[Seconds]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, call in sides.items():
            times[name].append(timed(call))
    return times


def least(sides: Mapping[Key, Callable[[], object]], repeats: int) -> dict[Key, Seconds]:
    """Call all sides in turns, and return the least time of each side, for each clock."""
    return {
        name: Seconds(min(x.wall for x in times), min(x.processor for x in times))
        for name, times in in_turns(sides, repeats).items()
    }


def run_program(
    command: Sequence[str], folder: Path, *, statuses: Sequence[int] = (0,), variables: Mapping[str, str] | None = None
) -> str:
    """Run a program with additional environment variables, and return its output.

    Raises:
        RuntimeError: if its exit status is not one of ``statuses``.
    """
    environment = {**os.environ, **(variables or {})}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode not in statuses:
        raise RuntimeError(f"{command}: exit status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; integers get thousands separators."""
    lines = [_row(columns), "|" + "---|" * len(columns)]
    return "\n".join([*lines, *(_row([f"{x:,}" if type(x) is int else str(x) for x in row]) for row in rows)])


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def parser(description: str | None, *, quick: str = "") -> argparse.ArgumentParser:
    """Return a parser described by the first line of a docstring, with ``--quick`` if a help text for it is given."""
    built = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    if quick:
        built.add_argument("--quick", action="store_true", help=quick)
    return built


def parallel(function: Callable[[Task], Result], tasks: Iterable[Task], jobs: int) -> Iterator[Result]:
    """Yield the results of tasks in order, from this process if ``jobs`` is 1, else from so many new processes."""
    if jobs == 1:
        yield from map(function, tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(function, tasks)


def machine() -> str:
    """Return the processor, its load and the versions of Python, NumPy, torch and pytest, in one line."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {_version(name)}" for name in ("numpy", "torch", "pytest"))
    load = f", load average {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    return f"{_processor_name()}, {cores} cores{load}; Python {platform.python_version()}, {versions}"


def _processor_name() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
