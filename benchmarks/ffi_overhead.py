"""What does a call of a C library on watched memory cost: one call, 64 MB, a thousand cases against a bare loop?

    python benchmarks/ffi_overhead.py [--quick] [--only call|large|cases|programs]

The library is the one of examples/c_library, built into a temporary folder. Four questions, each a ratio or a
difference on the same work in one run. It is processor time, which other work on the machine disturbs less; only work
in a worker or in a program is measured by the clock on the wall, as is the side that it is compared with.

one call      the buffers are filled with poison and values, C is called through the mapping, all memory that is not
              the output's is examined, the outputs are copied; less the C call itself. Descriptors belong to the case.
64 MB         a case of 64 MB from its inputs to its verdict, as a multiple of the pure call and the same verdict.
1,000 cases   drawn, described, called, judged and journaled by optest, with `probes: guards` and with all of them, in a
              warm worker and in process, and the driver's part of it by itself;
              the other side is a loop of ctypes calls on torch tensors that compares with torch.allclose, or with
              torch.testing.assert_close, and examines nothing else.
programs      the same as a user waits for it: `optest run` of a plan of those cases, from its start to its end, and
              the loop as a program, bare_add_loop.py.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import kit
import numpy as np
import torch
from bare_add_loop import SHAPES, BareLoop, by_allclose, by_assert_close
from kit import Seconds
from library_faults import build
from overhead import Kept, add_case, run_session

from optest.backends import BackendDriver, backend_manager
from optest.clib.library.config import read_ffi_config
from optest.clib.library.driver import FfiBackend
from optest.compare.verdict import compare_outputs
from optest.core.actual import outputs_in_order
from optest.core.executors import InProcess
from optest.core.expected import expected_outputs, make_inputs
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.memory.buffer_sets import BufferPlacement, Filling
from optest.settings import environment
from optest.spec import Status, TestCase
from optest.timing import Subject, measure

ONE_CALL_SHAPES = ((4,), (13, 4), (64, 16))
PROBES = ("guards", "all")
PLAIN, STRICT = "loop, torch.allclose", "loop, torch.testing.assert_close"
LOOP = "the loop, bare_add_loop.py"


def ffi_case(library: Path, shape: Sequence[int], seed: int = 0, probes: str = "all") -> TestCase:
    """Return a case of ``add`` for the library."""
    config = {"library": str(library), "headers": str(library / "include"), "mapping": "infiniop", "probes": probes}
    return add_case(shape, "ffi", seed, config)


def one_call(library: Path, target_s: float) -> Iterator[tuple[str, ...]]:
    """Yield rows of microseconds: a guarded call, the C call, and a run of the driver with each kind of probes."""
    for shape in ONE_CALL_SHAPES:
        guarded, pure, guards, everything = _times_us(ffi_case(library, shape), target_s)
        name = f"add float32 {'x'.join(map(str, shape))}"
        yield (
            name, f"{guarded:.1f}", f"{pure:.1f}", f"{guarded - pure:.1f}", f"{guards:.0f}", f"{everything:.0f}",
        )  # fmt: skip


def _times_us(case: TestCase, target_s: float) -> list[float]:
    driver = FfiBackend()
    inputs, _ = make_inputs(case)
    brief = replace(case, backend_config={"ffi": {**case.backend_config["ffi"], "probes": "guards"}})
    config, _ = read_ffi_config(case)
    assert config is not None
    session, _ = driver._session_and_probe(config)
    with ExitStack() as stack:
        _, memory, subject = stack.enter_context(driver._bound_call(case, config, session, inputs))
        place = memory.place(BufferPlacement())
        pointers = memory.pointers(place)

        def guarded() -> None:
            place.fill(Filling(), memory.values)
            subject.run(pointers)
            place.collect()

        times = measure(
            [
                Subject(who="guarded", call=guarded),
                Subject(who="pure", call=subject.ready(pointers)),
                Subject(who="guards", call=lambda: driver.run(brief, inputs)),
                Subject(who="all", call=lambda: driver.run(case, inputs)),
            ],
            target_s=target_s,
            clock=time.process_time,
        )
    return [x.median_s * 1e6 for x in times]


def large(library: Path, megabytes: int, repeats: int) -> tuple[float, float, float]:
    """Return the seconds of the watched call, of the pure call and of the verdict, for tensors of so many MB."""
    case = ffi_case(library, (megabytes << 18,))
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
            verdict = compare_outputs(
                case, outputs_in_order(case, outputs), expected, numerics=driver.numerics, inputs=inputs
            )
            judged = time.process_time()
            prepared.call()
            called = time.process_time()
            assert verdict.status is Status.PASSED, verdict
            times.append((watched - began, called - judged, judged - watched))
    watched_s, pure_s, verdict_s = map(min, zip(*times, strict=True))
    return watched_s, pure_s, verdict_s


def thousand(library: Path, count: int, repeats: int, folder: Path) -> dict[str, Seconds]:
    """Return the least seconds for ``count`` cases of each side."""
    bare = BareLoop(library)
    driver = backend_manager.get("ffi")
    here = Kept(InProcess(driver))
    worker = WorkerProcess(WorkerOptions(driver="ffi", scratch=folder, environment=environment()), "warm")
    sides: dict[str, Callable[[], object]] = {}
    for probes in PROBES:
        cases = [ffi_case(library, SHAPES[seed % len(SHAPES)], seed, probes) for seed in range(count)]
        inputs = [make_inputs(case)[0] for case in cases]
        sides |= {
            f"optest, warm worker, {probes}": partial(run_session, cases, "ffi", Kept(worker), folder),
            f"optest, in process, {probes}": partial(run_session, cases, "ffi", here, folder),
            f"only the driver, {probes}": partial(_run_driver, driver, cases, inputs),
        }
    sides |= {PLAIN: lambda: bare.run(count, by_allclose), STRICT: lambda: bare.run(count, by_assert_close)}
    try:
        for call in sides.values():
            call()
        return kit.least(sides, repeats)
    finally:
        worker.close()


def _run_driver(driver: BackendDriver, cases: Sequence[TestCase], inputs: Sequence[Any]) -> None:
    for case, arrays in zip(cases, inputs, strict=True):
        driver.run(case, arrays)


def programs(library: Path, count: int, repeats: int, folder: Path) -> dict[str, Seconds]:
    """Return the least seconds of whole programs."""
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
    run = [sys.executable, "-m", "optest", "run", "--plan", str(plan), "-q"]
    commands = {
        "optest run": run,
        "optest run --jobs 2": [*run, "--jobs", "2"],
        "optest run --isolate none": [*run, "--isolate", "none"],
        LOOP: [sys.executable, str(Path(__file__).with_name("bare_add_loop.py")), str(library), str(count)],
    }
    return kit.least({name: partial(kit.run_program, command, folder) for name, command in commands.items()}, repeats)


def print_one_call(library: Path, *, quick: bool) -> None:
    columns = ("one call", "guarded µs", "only C µs", "overhead µs", "a run, `probes: guards`, µs", "all probes, µs")
    print(kit.table(columns, one_call(library, 0.1 if quick else 0.5)))


def print_large(library: Path, repeats: int) -> None:
    watched, pure, verdict = large(library, 64, repeats)
    rows = [(name, f"{x * 1e3:.0f}") for name, x in (("watched call", watched), ("only C", pure), ("verdict", verdict))]
    ratio = f"{(watched + verdict) / (pure + verdict):.2f}"
    print("", kit.table(("tensors of 64 MB", "ms"), [*rows, ("(watched + verdict) / (C + verdict)", ratio)]), sep="\n")


def print_thousand(library: Path, count: int, repeats: int, folder: Path) -> None:
    times = thousand(library, count, repeats, folder)
    rows = []
    for name, seconds in times.items():
        clock = 0 if "worker" in name else 1
        ratios = [f"{seconds[clock] / times[loop][clock]:.2f}" for loop in (PLAIN, STRICT)]
        rows.append((name, f"{seconds[clock] / count * 1e6:.0f}", *ratios))
    columns = (f"{count:,} cases of add", "µs a case", "times torch.allclose", "times assert_close")
    print("", kit.table(columns, rows), sep="\n")


def print_programs(library: Path, count: int, repeats: int, folder: Path) -> None:
    times = programs(library, count, repeats, folder)
    loop = times[LOOP].wall
    rows = [(name, f"{x.wall:.2f}", f"{x.wall / loop:.2f}", f"{x.processor:.2f}") for name, x in times.items()]
    columns = (f"{count:,} cases of add, the whole program", "s on the wall", "times the loop", "s of processors")
    print("", kit.table(columns, rows), sep="\n")


def main() -> None:
    parser = kit.parser(__doc__, quick="fewer repeats")
    parser.add_argument("--only", choices=("call", "large", "cases", "programs"), help="only this question")
    options = parser.parse_args()
    torch.set_num_threads(1)
    np.seterr(all="ignore")
    repeats = 3 if options.quick else 7
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build(folder, "all")
        if options.only in (None, "call"):
            print_one_call(library, quick=options.quick)
        if options.only in (None, "large"):
            print_large(library, repeats)
        if options.only in (None, "cases"):
            print_thousand(library, 1000, repeats, folder)
        if options.only in (None, "programs"):
            print_programs(library, 1000, repeats, folder)


if __name__ == "__main__":
    main()
