"""What it costs to call a C library on watched memory: one call, 64 MB, and a thousand cases against a bare loop.

The library is the one of examples/c_library, built into a temporary folder. Three questions, each a ratio or a
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
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import io
import shutil
import subprocess
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

from optest.backends import BackendDriver, backend_manager
from optest.backends.c_library.driver import FfiBackend
from optest.backends.c_library.places import Filling, Where
from optest.compare.verdict import judge
from optest.core.executors import Executor, InProcess, WorkerOptions, WorkerProcess
from optest.core.expected import expected_outputs
from optest.core.inputs import make_inputs
from optest.core.session import Policy, Session
from optest.operators import operators
from optest.reporting import ReportManager
from optest.reporting.terminal import TerminalReporter
from optest.settings import environment
from optest.spec import Argument, BackendTarget, Fill, RunInfo, Status, TensorSpec, TestCase, dtype
from optest.store import JournalWriter
from optest.timing import Subject, measure

EXAMPLE = Path(__file__).parents[1] / "examples" / "c_library"
ONE_CALL_SHAPES = ((4,), (13, 4), (64, 16))
SHAPES = ((13, 4), (13, 4, 4), (16, 64), (4, 4, 8))
"""Small shapes such as the predecessor's tests have: what is measured is what surrounds a call."""


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
    kind = driver._kinds.of(case)
    session = driver._session(case, kind.required())
    with ExitStack() as stack:
        memory, call, passed, subject = stack.enter_context(driver._described(case, kind, session, inputs))
        place = memory.place(Where())
        pointers = memory.pointers(place)

        def guarded() -> None:
            place.fill(Filling(), memory.values)
            subject.run(pointers)
            place.collect()

        guarded_call, pure, once, run = measure(
            [
                Subject(who="guarded", call=guarded),
                Subject(who="pure", call=call.ready({**passed, **pointers})),
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
            verdict = judge(case, list(outputs.values()), expected, numerics=driver.numerics, inputs=inputs)
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
        if isinstance(executor, InProcess):
            self.execute_together, self.takes_with_others = executor.execute_together, executor.takes_with_others
        self.looks_ahead = getattr(executor, "looks_ahead", False)

    def close(self) -> None:
        return None


class BareLoop:
    """The loop that people write: ctypes, torch tensors, the four calls, a comparison."""

    def __init__(self, library: Path) -> None:
        ctypes.CDLL(str(library / "lib" / "libinfinirt.so"), mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(str(library / "lib" / "libinfiniop.so"))
        self.handle = ctypes.c_void_p()
        self._require(self.lib.infiniopCreateHandle(ctypes.byref(self.handle)))

    def _require(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"status {status}")

    def _descriptor(self, tensor: torch.Tensor) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        rank = tensor.dim()
        shape = (ctypes.c_size_t * rank)(*tensor.shape)
        strides = (ctypes.c_ssize_t * rank)(*tensor.stride())
        self._require(
            self.lib.infiniopCreateTensorDescriptor(ctypes.byref(made), ctypes.c_size_t(rank), shape, strides, 13)
        )
        return made

    def case(self, shape: tuple[int, ...], compare: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        lib = self.lib
        a, b, c = torch.rand(shape), torch.rand(shape), torch.zeros(shape)
        descriptors = [self._descriptor(each) for each in (c, a, b)]
        operator = ctypes.c_void_p()
        self._require(lib.infiniopCreateAddDescriptor(self.handle, ctypes.byref(operator), *descriptors))
        size = ctypes.c_size_t()
        self._require(lib.infiniopGetAddWorkspaceSize(operator, ctypes.byref(size)))
        workspace = torch.zeros(size.value, dtype=torch.uint8) if size.value else None
        pointer = ctypes.c_void_p(workspace.data_ptr() if workspace is not None else None)
        data = [ctypes.c_void_p(each.data_ptr()) for each in (c, a, b)]
        self._require(lib.infiniopAdd(operator, pointer, size, *data, None))
        compare(c, torch.add(a, b))
        self._require(lib.infiniopDestroyAddDescriptor(operator))
        for each in descriptors:
            self._require(lib.infiniopDestroyTensorDescriptor(each))

    def run(self, count: int, compare: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        for number in range(count):
            self.case(SHAPES[number % len(SHAPES)], compare)


def by_allclose(actual: torch.Tensor, desired: torch.Tensor) -> None:
    assert torch.allclose(actual, desired, atol=0, rtol=1e-7)


def by_assert_close(actual: torch.Tensor, desired: torch.Tensor) -> None:
    torch.testing.assert_close(actual, desired)


IN_WORKER, HERE = "optest, warm worker, {}", "optest, in process, {}"
DRIVER = "the driver alone, {}"
PROBES = ("guards", "all")
PLAIN, STRICT = "loop, torch.allclose", "loop, torch.testing.assert_close"


def thousand(library: Path, count: int, repeats: int, folder: Path) -> dict[str, Taken]:
    """The least seconds for ``count`` cases of each side."""
    bare = BareLoop(library)
    driver = backend_manager.get("ffi")
    here = Kept(InProcess(driver))
    worker = WorkerProcess(WorkerOptions(driver="ffi", scratch=folder, environment=environment()), "warm")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--only", choices=("call", "large", "cases"), help="one of the three questions")
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


if __name__ == "__main__":
    main()
