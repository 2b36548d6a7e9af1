"""What it costs to call a C library on watched memory: one call, 64 MB, a thousand cases against a bare loop.

The library is the one of examples/c_library, built into a temporary folder. Four questions, each a ratio or a
difference on the same work in one run. Sides are asked in turns, and the least time of each counts (one call: the
median of batches). It is processor time, which other work on the machine disturbs less; only what runs in a worker is
measured by the clock on the wall, as is what it is compared with then.

one call      the buffers are filled with poison and values, C is called through the mapping, everything that is not
              the output's is examined, the outputs are copied; less the C call itself. Descriptors belong to the case.
64 MB         a case of 64 MB from its inputs to its verdict, as a multiple of the pure call and the same verdict.
1,000 cases   drawn, described, called, judged and journaled by optest, with `probes: guards` and with all of them, in a
              warm worker and in process, and the driver's part of it by itself;
              the other side is a loop of ctypes calls on torch tensors that compares with torch.allclose, or with
              torch.testing.assert_close, and looks at nothing else.
programs      the same as a person waits for it: `optest run` of a plan of those cases, from its start to its end, and
              the loop as a program, bare_add_loop.py.
"""

from __future__ import annotations

import argparse
import gc
import io
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bare_add_loop import SHAPES, BareLoop, by_allclose, by_assert_close

from optest.backends import BackendDriver, backend_manager
from optest.clib.library.config import read_ffi_config
from optest.clib.library.driver import FfiBackend
from optest.clib.library.places import Filling, Where
from optest.compare.verdict import judge
from optest.core.actual import in_order
from optest.core.executors import Executor, InProcess
from optest.core.expected import expected_outputs
from optest.core.inputs import make_inputs
from optest.core.session import Policy, Session
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.operators import operators
from optest.reporting import ReportManager
from optest.reporting.terminal import TerminalReporter
from optest.settings import environment
from optest.spec import Argument, BackendTarget, Fill, RunInfo, Status, TensorSpec, TestCase, dtype
from optest.store import JournalWriter
from optest.timing import Subject, measure

EXAMPLE = Path(__file__).parents[1] / "examples" / "c_library"
ONE_CALL_SHAPES = ((4,), (13, 4), (64, 16))


def build(folder: Path) -> Path:
    copy = folder / "c_library"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("build", "lib", "broken", "asan"))
    subprocess.run(["make", "-s", "all"], cwd=copy, check=True)
    return copy


def add_case(
    library: Path, shape: tuple[int, ...], seed: int = 0, dtype_name: str = "float32", probes: str = "all"
) -> TestCase:
    descriptor = operators.get("add")
    spec = TensorSpec(dtype=dtype(dtype_name), shape=shape)
    inputs = tuple(
        Argument(name=name, path=f"input{i}", spec=spec, fill=Fill(kind="randn"))
        for i, name in enumerate(("input", "other"))
    )
    return TestCase(
        descriptor=descriptor,
        inputs=inputs,
        outputs=(spec,),
        attributes=descriptor.bind({}),
        backend=BackendTarget(name="ffi"),
        backend_config={
            "ffi": {
                "library": str(library),
                "headers": str(library / "include"),
                "mapping": "infiniop",
                "probes": probes,
            }
        },
        seed=seed,
        timeout_s=300.0,
    )


def one_call(library: Path, target_s: float) -> list[tuple[str, float, float, float, float]]:
    """Microseconds of a guarded call, of the C call alone, and of a whole `run` of the driver between guards and with
    all probes, by shape."""
    return [(spec_text(shape), *_times_us(add_case(library, shape), target_s)) for shape in ONE_CALL_SHAPES]


def _times_us(case: TestCase, target_s: float) -> tuple[float, float, float, float]:
    driver = FfiBackend()
    inputs, _ = make_inputs(case)
    brief = replace(case, backend_config={"ffi": {**case.backend_config["ffi"], "probes": "guards"}})
    config, _ = read_ffi_config(case)
    assert config is not None
    session, _ = driver._library(config)
    with ExitStack() as stack:
        _, memory, subject = stack.enter_context(driver._called(case, config, session, inputs))
        place = memory.place(Where())
        pointers = memory.pointers(place)

        def guarded() -> None:
            place.fill(Filling(), memory.values)
            subject.run(pointers)
            place.collect()

        guarded_call, pure, once, run = measure(
            [
                Subject(who="guarded", call=guarded),
                Subject(who="pure", call=subject.ready(pointers)),
                Subject(who="once", call=lambda: driver.run(brief, inputs)),
                Subject(who="run", call=lambda: driver.run(case, inputs)),
            ],
            target_s=target_s,
            clock=time.process_time,
        )
    return guarded_call.median_s * 1e6, pure.median_s * 1e6, once.median_s * 1e6, run.median_s * 1e6


def spec_text(shape: Sequence[int]) -> str:
    return f"add float32 {'x'.join(map(str, shape))}"


def large(library: Path, megabytes: int, repeats: int) -> tuple[float, float, float]:
    """Seconds of the watched call, of the pure call and of the verdict, for tensors of so many MB."""
    case = add_case(library, (megabytes << 18,))
    driver = FfiBackend()
    inputs, known = make_inputs(case)
    expected, _ = expected_outputs([case], inputs, known, driver)
    times: list[tuple[float, float, float]] = []
    with ExitStack() as stack:
        prepared = stack.enter_context(driver.prepared(case, inputs))
        prepared.call()
        for _ in range(repeats):
            began = time.process_time()
            outputs = driver.run(case, inputs)
            watched = time.process_time()
            verdict = judge(case, in_order(case, outputs), expected, numerics=driver.numerics, inputs=inputs)
            judged = time.process_time()
            prepared.call()
            called = time.process_time()
            assert verdict.status is Status.PASSED, verdict
            times.append((watched - began, called - judged, judged - watched))
    watched_s, pure_s, verdict_s = (min(each) for each in zip(*times, strict=True))
    return watched_s, pure_s, verdict_s


def many_cases(library: Path, count: int, probes: str) -> list[TestCase]:
    return [add_case(library, SHAPES[seed % len(SHAPES)], seed, probes=probes) for seed in range(count)]


Taken = tuple[float, float]
"""Seconds of the processor in this process, and on the wall."""


def taken(work: Callable[[], None]) -> Taken:
    gc.collect()
    processor, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - processor, time.perf_counter() - wall


def run_session(cases: Sequence[TestCase], executor: Executor, folder: Path) -> None:
    info = RunInfo(run_id="bench", started_at="now", total=len(cases), target="ffi", seed=0)
    with JournalWriter(folder / f"{time.monotonic_ns()}.jsonl") as writer:
        session = Session(
            info=info,
            cases=cases,
            driver=backend_manager.get("ffi"),
            make_executor=lambda _: executor,
            journal=writer,
            listener=ReportManager([TerminalReporter(io.StringIO(), verbosity=-2)]),
            policy=Policy(),
        )
        summary = session.run()
    wrong = [(each.id, each.verdict.message) for each in session.results if each.status is not Status.PASSED]
    assert not wrong, wrong[:3]
    assert summary.finished == len(cases), summary


def run_all(driver: BackendDriver, cases: Sequence[TestCase], inputs: Sequence[Any]) -> None:
    """Ask the driver alone, with inputs that are there already and no verdict."""
    for case, given in zip(cases, inputs, strict=True):
        driver.run(case, given)


class Kept:
    """An executor that outlives a session."""

    def __init__(self, executor: Executor) -> None:
        self.execute = executor.execute
        self.looks_ahead = executor.looks_ahead

    def close(self) -> None:
        return None


IN_WORKER, HERE = "optest, warm worker, {}", "optest, in process, {}"
DRIVER = "the driver alone, {}"
LOOP = "the loop, bare_add_loop.py"
PROBES = ("guards", "all")
PLAIN, STRICT = "loop, torch.allclose", "loop, torch.testing.assert_close"


def thousand(library: Path, count: int, repeats: int, folder: Path) -> dict[str, Taken]:
    """The least seconds for ``count`` cases of each side."""
    bare = BareLoop(library)
    driver = backend_manager.get("ffi")
    here = Kept(InProcess(driver))
    options = WorkerOptions(driver="ffi", scratch=folder, environment=environment())
    worker = WorkerProcess(options, "warm")
    sides: dict[str, Callable[[], None]] = {}
    for probes in PROBES:
        cases = many_cases(library, count, probes)
        inputs = [make_inputs(case)[0] for case in cases]
        sides |= {
            IN_WORKER.format(probes): partial(run_session, cases, Kept(worker), folder),
            HERE.format(probes): partial(run_session, cases, here, folder),
            DRIVER.format(probes): partial(run_all, driver, cases, inputs),
        }
    sides |= {
        PLAIN: lambda: bare.run(count, by_allclose),
        STRICT: lambda: bare.run(count, by_assert_close),
    }
    found: dict[str, list[Taken]] = {word: [] for word in sides}
    try:
        for ask in sides.values():
            ask()
        for _ in range(repeats):
            for word, ask in sides.items():
                found[word].append(taken(ask))
    finally:
        worker.close()
    return {word: (min(each[0] for each in times), min(each[1] for each in times)) for word, times in found.items()}


def print_one_call(library: Path, target_s: float) -> None:
    print(
        "| one call | guarded µs | C alone µs | overhead µs | a whole run, `probes: guards`, µs | `probes: all`, µs |"
    )
    print("|---|--:|--:|--:|--:|--:|")
    for name, guarded, pure, once, run in one_call(library, target_s):
        print(f"| {name} | {guarded:.1f} | {pure:.1f} | {guarded - pure:.1f} | {once:.0f} | {run:.0f} |")


def print_large(library: Path, repeats: int) -> None:
    print("\n| tensors of 64 MB | ms |")
    print("|---|--:|")
    watched, pure, verdict = large(library, 64, repeats)
    for name, value in (("watched call", watched), ("C alone", pure), ("verdict", verdict)):
        print(f"| {name} | {value * 1e3:.0f} |")
    print(f"| (watched call + verdict) / (C alone + verdict) | {(watched + verdict) / (pure + verdict):.2f} |")


def print_thousand(library: Path, count: int, repeats: int, folder: Path) -> None:
    found = thousand(library, count, repeats, folder)
    print(f"\n| {count:,} cases of add | µs a case | times torch.allclose | times assert_close |")
    print("|---|--:|--:|--:|")
    for word, times in found.items():
        clock = 1 if "worker" in word else 0
        seconds, plain, strict = times[clock], found[PLAIN][clock], found[STRICT][clock]
        print(f"| {word} | {seconds / count * 1e6:.0f} | {seconds / plain:.2f} | {seconds / strict:.2f} |")


def programs(library: Path, count: int, repeats: int, folder: Path) -> dict[str, Taken]:
    """The least seconds of the processor and on the wall of whole programs."""
    plan = folder / "add.yaml"
    plan.write_text(
        "version: 1\nbackend: ffi\ndefaults:\n  backend_config:\n"
        f"    ffi: {{library: {library}, headers: {library}/include, mapping: infiniop, probes: guards}}\ncases:\n"
        + "".join(
            f"- {{op: add, name: add{n}, seed: {n}, dtypes: [float32], shapes: {{input0: {shape}, input1: {shape}}}}}\n"
            for n in range(count)
            for shape in ["x".join(map(str, SHAPES[n % len(SHAPES)]))]
        )
    )
    ask = [sys.executable, "-m", "optest", "run", "--plan", str(plan), "-q"]
    sides = {
        "optest run": ask,
        "optest run --jobs 2": [*ask, "--jobs", "2"],
        "optest run --isolate none": [*ask, "--isolate", "none"],
        LOOP: [sys.executable, str(Path(__file__).with_name("bare_add_loop.py")), str(library), str(count)],
    }
    found: dict[str, list[Taken]] = {word: [] for word in sides}
    for _ in range(repeats):
        for word, command in sides.items():
            before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
            wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found[word].append((used, wall))
    return {word: (min(each[0] for each in times), min(each[1] for each in times)) for word, times in found.items()}


def print_programs(library: Path, count: int, repeats: int, folder: Path) -> None:
    found = programs(library, count, repeats, folder)
    print(f"\n| {count:,} cases of add, the whole program | s on the wall | times the loop | s of processors |")
    print("|---|--:|--:|--:|")
    for word, (used, wall) in found.items():
        print(f"| {word} | {wall:.2f} | {wall / found[LOOP][1]:.2f} | {used:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--only", choices=("call", "large", "cases", "programs"), help="one of the questions")
    given = parser.parse_args()
    torch.set_num_threads(1)
    np.seterr(all="ignore")
    repeats = 3 if given.quick else 7
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder)
        if given.only in (None, "call"):
            print_one_call(library, 0.1 if given.quick else 0.5)
        if given.only in (None, "large"):
            print_large(library, repeats)
        if given.only in (None, "cases"):
            print_thousand(library, 1000, repeats, folder)
        if given.only in (None, "programs"):
            print_programs(library, 1000, repeats, folder)


if __name__ == "__main__":
    main()
