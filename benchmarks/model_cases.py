"""What do model cases cost: collected, run by pytest, and run as a whole against a bare loop?

    python benchmarks/model_cases.py [--quick] [--part collected pytest files] [--models FILE...]

- collected: 10,000 cases in ten files against the C loader of YAML over the same files: listed, which imports no
  torch, and built.
- pytest: the time of a case while ``pytest`` runs it: seconds from one hundredth item to the next, of pytest and of all
  its child processes, in several runs; the median of all such windows except the first of a run, and the quartiles. It
  excludes start, end and collection, which has its own budget, and includes all else: pytest itself, reports, worker,
  inputs, verdict, journal. The same calls on existing tensors, once in their dtype and once in float64, are subtracted.
  Two more rows: the time that optest gives to the call and the reference, with private copies and memory checks;
  and an empty test in pytest while torch is loaded. Needs Linux.
- files: ``optest run`` of the files given (else of generated ones) against a loop that fills tensors of the same
  shapes, strides and dtypes with torch's own generator and makes the same calls in their dtype and in float64; once
  more with the terms of the rule for sums, Σ|terms| and Σterms², which are two further calls in float64.

Wall and processor seconds, children included; on a busy machine compare the processor's.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import kit
from kit import Seconds

HEAD = "model: {model}\ndefaults: {{dtype: fp16, seed: 123, rtol: 0.005, atol: 0.005}}\ncases:\n"
CASE = """\
  - name: torch.add.{number}
    op: torch.add
    inputs:
      - tensor: {{shape: [{size}, 8], stride: [8, 1], storage_offset: 0, dtype: torch.float16, init: rand}}
      - tensor: {{shape: [{size}, 8], stride: [8, 1], storage_offset: 0, dtype: torch.float16, init: rand}}
    attrs: {{}}
    description: |
      File: modeling.py:{number}
      Code: x = x + y
    marks: constant
"""
LAYERS = """\
  - {{name: linear.{number}, op: torch.nn.functional.linear, inputs: [{{tensor: {{shape: [64, {size}]}}}}, {{tensor: {{shape: [{size}, {size}], init: xavier}}}}]}}
  - {{name: silu.{number}, op: torch.nn.functional.silu, inputs: [{{tensor: {{shape: [64, {size}], init: randn}}}}]}}
  - {{name: mul.{number}, op: torch.mul, inputs: [{{tensor: {{shape: [64, {size}], init: randn}}}}, {{tensor: {{shape: [64, {size}], init: randn}}}}]}}
"""  # noqa: E501 - one case a line
EMPTY = """\
import pytest
import torch

@pytest.mark.parametrize("number", range({count}))
def test_nothing(number):
    pass
"""
PARTS = ("collected", "pytest", "files")
TERMS = "optest.torch.calls.reference:terms"


def main() -> int:
    parser = kit.parser(__doc__, quick="fewer cases")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="parts to measure [all]")
    parser.add_argument("--models", nargs="*", type=Path, default=[], help="files of model cases for the last rows")
    parser.add_argument("--bare", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--calls", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--terms", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare_loop(*options.bare, with_terms=options.terms)
        return 0
    if options.calls:
        print_call_times(options.calls)
        return 0
    print(f"{kit.machine()}\n")
    print("| measured | wall s | processor s | ratio (processor) | goal |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        if "collected" in options.part:
            collected(Path(folder, "many"), 1000 if options.quick else 10_000)
        if "pytest" in options.part:
            in_pytest(Path(folder, "pytest"), QUICK if options.quick else FULL)
        if "files" in options.part:
            layers = 20 if options.quick else 200
            whole_files(Path(folder, "whole"), [path.resolve() for path in options.models], layers)
    return 0


def row(name: str, seconds: Seconds, ratio: str = "", goal: str = "") -> None:
    print(f"| {name} | {seconds.wall:.3f} | {seconds.processor:.3f} | {ratio} | {goal} |", flush=True)


def least(call: Callable[[], Any], repeats: int = 3) -> Seconds:
    return kit.least({"call": call}, repeats)["call"]


def timed_program(command: Sequence[str], folder: Path, **variables: str) -> Seconds:
    """Return the time of a program, which may exit with 1 for cases that fail."""
    return kit.timed(partial(kit.run_program, command, folder, statuses=(0, 1), variables=variables))


def collected(folder: Path, count: int) -> None:
    import yaml

    from optest.api import collecting

    folder.mkdir()
    files = [folder / f"m{index}.yaml" for index in range(10)]
    for index, file in enumerate(files):
        numbers = range(index * count // 10 + 1, (index + 1) * count // 10 + 1)
        cases = "".join(CASE.format(number=number, size=number) for number in numbers)
        file.write_text(HEAD.format(model=f"m{index}") + cases)
    loaded = least(lambda: [yaml.load(file.read_bytes(), yaml.CSafeLoader) for file in files])
    row(f"YAML of {count:,} cases, C loader", loaded)
    listed = least(lambda: [list(collecting.listed_cases(file)) for file in files])
    if "torch" in sys.modules:
        raise RuntimeError("listing imported torch")
    row("listed, torch not imported", listed, f"{listed.processor / loaded.processor:.2f}", "≤ 2")
    import torch  # noqa: F401 - its import is not measured

    built = least(lambda: [collecting.file_request(file, {"compile_backend": "eager"}) for file in files])
    row("built", built, f"{built.processor / loaded.processor:.2f}", "≤ 2")


WINDOW = 100
WATCH = f"""\
import json, os, time
from pathlib import Path

seen, times = 0, []

def pytest_runtest_logstart():
    global seen
    if seen % {WINDOW} == 0:
        times.append((time.perf_counter(), used(os.getpid()) / 1e9))
    seen += 1

def pytest_sessionfinish():
    Path("windows.json").write_text(json.dumps(times))

def used(process):
    total = 0
    for task in Path("/proc", str(process), "task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
        total += sum(used(child) for child in (task / "children").read_text().split())
    return total
"""


class Repeats(NamedTuple):
    """Number of cases in a run of pytest, and number of runs."""

    cases: int
    runs: int


FULL, QUICK = Repeats(1501, 4), Repeats(701, 2)


def in_pytest(folder: Path, repeats: Repeats) -> None:
    folder.mkdir()
    sizes = [number % 97 + number // 97 + 1 for number in range(repeats.cases)]
    text = "".join(CASE.format(number=number, size=size) for number, size in enumerate(sizes))
    (folder / "m.yaml").write_text(HEAD.format(model="m") + text)
    (folder / "test_empty.py").write_text(EMPTY.format(count=repeats.cases))
    (folder / "watch.py").write_text(WATCH)
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "watch")
    commands = {
        "case": (*pytest, "-p", "optest.pytest_plugin", "--compile-backend", "eager", "--no-dedupe", "m.yaml"),
        "empty": (*pytest, "test_empty.py"),
    }
    windows: dict[str, list[Seconds]] = {name: [] for name in commands}
    for number in range(repeats.runs):
        for name in sorted(commands, reverse=bool(number % 2)):  # the first may find caches cold
            windows[name] += windows_of(commands[name], folder)
    own = (sys.executable, str(Path(__file__).resolve()), "--calls", str(folder / "m.yaml"))
    bare, phases = map(float, kit.run_program(own, folder).split())
    print_windows("an empty test of pytest with torch loaded, ms", windows["empty"])
    print_windows("a case in pytest, ms", windows["case"])
    row("of it the bare call and its reference, ms", Seconds(bare * 1e3, bare * 1e3))
    row("of it these in optest, with copies and memory checks, ms", Seconds(phases * 1e3, phases * 1e3))
    print_windows("overhead beyond these in optest, ms", windows["case"], phases)
    print_windows("overhead beyond the bare call and its reference, ms", windows["case"], bare, "≤ 1 ms")


def windows_of(command: Sequence[str], folder: Path) -> list[Seconds]:
    """Run pytest, and return the seconds of one item for each window except the first."""
    kit.run_program(
        command, folder, variables={"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    )
    times = json.loads((folder / "windows.json").read_text())
    pairs = list(itertools.pairwise(times))[1:]
    return [Seconds((late[0] - early[0]) / WINDOW, (late[1] - early[1]) / WINDOW) for early, late in pairs]


def print_windows(name: str, windows: Sequence[Seconds], less: float = 0.0, goal: str = "") -> None:
    """Print the median in milliseconds, and the quartiles of the processor's."""
    wall, processor = (statistics.median(x[clock] for x in windows) - less for clock in (0, 1))
    low, _, high = (1e3 * (x - less) for x in statistics.quantiles([x.processor for x in windows]))
    row(name, Seconds(wall * 1e3, processor * 1e3), f"{low:.2f} to {high:.2f}", goal)


def print_call_times(plan: Path) -> None:
    """Print the mean processor seconds of a bare call with its reference, and of both in optest."""
    import torch

    from optest.api import cases
    from optest.backends import backend_manager
    from optest.core import runner
    from optest.torch.calls.call import torch_call

    chosen = cases(plan=str(plan))
    calls: list[Callable[[], Any]] = []
    for case in chosen:
        tensors = [filled(argument) for argument in case.inputs]
        call = torch_call(case.attributes["call"])
        calls += [call.on(x, torch.device("cpu")) for x in (tensors, [tensor.double() for tensor in tensors])]
    bare_s = least(lambda: [x() for x in calls]).processor
    setattr(runner, "perf_counter", time.process_time)  # noqa: B010 - unknown to mypy
    driver = backend_manager.get("torch")
    driver.configure({})
    done = [runner.execute([case], driver).timings for case in chosen][100:]  # torch imports at first
    phases_s = sum((x.run_s or 0.0) + (x.reference_s or 0.0) for x in done) / len(done)
    print(bare_s / len(chosen), phases_s)


def whole_files(folder: Path, models: list[Path], layers: int) -> None:
    folder.mkdir()
    if not models:
        models = [folder / "generated.yaml"]
        cases = "".join(LAYERS.format(number=number, size=256 + 8 * number) for number in range(layers))
        models[0].write_text(HEAD.format(model="generated") + cases)
    plan = folder / "all.yaml"
    plan.write_text(f"include: [{', '.join(map(str, models))}]\n")
    command = (sys.executable, "-m", "optest", "run", "--plan", str(plan), "-qq")
    whole = timed_program(command, folder)
    journal = sorted(folder.glob(".optest/runs/*/journal.jsonl"))[-1]
    loop = (sys.executable, str(Path(__file__).resolve()), "--bare", str(plan), str(journal))
    sides = {"the bare loop": timed_program(loop, folder), "with the terms": timed_program((*loop, "--terms"), folder)}
    row(f"bare loop over {', '.join(path.stem for path in models)}", sides["the bare loop"])
    row("the same with the terms of sums", sides["with the terms"])
    for name, goal in (("with the terms", ""), ("the bare loop", "≤ 1.5")):
        ratio = f"{whole.processor / sides[name].processor:.2f} ({whole.wall / sides[name].wall:.2f} wall)"
        row(f"optest run, against {name}", whole, ratio, goal)
    report(journal)


def report(journal: Path) -> None:
    """Print the seconds of each phase."""
    from optest.store import read_journal

    results = [x for x in read_journal(journal).results if x.duplicate_of is None]
    parts = {
        name: sum(getattr(x.timings, name) or 0.0 for x in results)
        for name in ("generate_s", "reference_s", "run_s", "compare_s")
    }
    print("\n" + ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items()))


def bare_loop(plan: Path, journal: Path, *, with_terms: bool) -> None:
    """Repeat the executed calls, once in their dtype and once in float64, on tensors that torch fills."""
    import torch

    from optest.api import cases
    from optest.store import read_journal
    from optest.torch.calls.call import torch_call

    done = read_journal(journal).results
    executed = {x.id for x in done if x.duplicate_of is None and x.status.value != "skipped"}
    failed = 0
    for case in cases(plan=str(plan)):
        if case.id not in executed:
            continue
        call = torch_call(case.attributes["call"])
        tensors = [filled(argument) for argument in case.inputs]
        wide = [x.double() if x.is_floating_point() else x for x in tensors]
        operands = [tensors, wide]
        if with_terms and case.descriptor.terms == TERMS:
            operands += [[x.abs() for x in wide], [x.abs().square() for x in wide]]
        for inputs in operands:
            try:
                call.on(inputs, torch.device("cpu"))()
            except (RuntimeError, TypeError, IndexError):  # noqa: PERF203 - one call may fail
                failed += 1  # a refusal that is expected, or no such kernel in float64
    print(f"{len(executed)} calls, {failed} refused", file=sys.stderr)


def filled(argument: Any) -> Any:
    import torch

    spec = argument.spec
    dtype = getattr(torch, spec.dtype.name)
    strides = spec.strides or torch.empty(spec.shape, device="meta").stride()
    reach = 1 + spec.offset + sum((size - 1) * step for size, step in zip(spec.shape, strides, strict=True) if size)
    if dtype.is_floating_point:
        storage = torch.rand(reach, dtype=dtype)
    elif dtype is torch.bool:
        storage = torch.randint(0, 2, (reach,), dtype=dtype)
    else:
        storage = torch.zeros(reach, dtype=dtype)  # a valid index of any tensor
    return storage.as_strided(spec.shape, strides, spec.offset)


if __name__ == "__main__":
    sys.exit(main())
