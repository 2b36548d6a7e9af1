"""What model cases cost: collected, asked from pytest, and run as a whole against a bare loop.

    python benchmarks/model_cases.py [--quick] [--part collected pytest files] [--against TREE] [--models FILE...]

- collected: 10,000 cases in ten files against the C loader of YAML over the same files; listing them, which imports no
  torch, and making cases of them.
- pytest: what a case takes while ``pytest`` runs it: seconds from one hundredth item to the next, of pytest and of all
  processes below it, in several runs in turns; the median of all such windows but the first of a run, and beside it
  the quartiles. No start and no end of a process is in it, nor collecting, which has its own budget; all else is:
  pytest itself, reports, worker, inputs, verdict, journal. Nothing is subtracted but the same calls on tensors that
  are there, once in their dtype and once in float64. Two rows say what else is in the figure: what optest's clock gives
  to the call and to the reference with what surrounds them (private copies, looking at memory); and what pytest takes
  for an empty test while torch is loaded. Needs Linux.
- files: ``optest run`` of the files given (else of generated ones) against a loop that fills tensors of the same
  shapes, strides and dtypes with torch's own generator and makes the same calls in their dtype and in float64; once
  more with what the rule for sums needs beside these, Σ|terms| and Σterms², which are two further calls in float64.

``--against`` measures pytest with the sources of another tree as well, in the same turns. Wall and processor seconds,
children included; on a busy machine the processor's are the ones to compare.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
Seconds = tuple[float, float]
"""Wall and processor."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer cases")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="what is measured (all)")
    parser.add_argument("--against", type=Path, help="a tree of optest to measure in pytest beside this one")
    parser.add_argument("--models", nargs="*", type=Path, default=[], help="files of model cases for the last row")
    parser.add_argument("--bare", nargs=2, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--own", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--terms", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare_loop(*options.bare, with_terms=options.terms)
        return 0
    if options.own:
        print_own_parts(options.own)
        return 0
    print(f"load average {os.getloadavg()[0]:.1f} at the start, {len(os.sched_getaffinity(0))} cores\n")
    print("| what | wall s | processor s | ratio (processor) | to reach |\n|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        if "collected" in options.part:
            collected(Path(folder, "many"), 1000 if options.quick else 10_000)
        if "pytest" in options.part:
            in_pytest(Path(folder, "pytest"), QUICK if options.quick else FULL, options.against)
        if "files" in options.part:
            layers = 20 if options.quick else 200
            whole_files(Path(folder, "whole"), [path.resolve() for path in options.models], layers)
    return 0


def row(what: str, seconds: Seconds, ratio: str = "", wanted: str = "") -> None:
    print(f"| {what} | {seconds[0]:.3f} | {seconds[1]:.3f} | {ratio} | {wanted} |", flush=True)


def timed(call: Callable[[], Any]) -> Seconds:
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor


def least(call: Callable[[], Any], times: int = 3) -> Seconds:
    return min((timed(call) for _ in range(times)), key=lambda each: each[1])


def run(command: Sequence[str], folder: Path, variables: Mapping[str, str] | None = None) -> Seconds:
    """A process with all of its children, and these variables beside those of this one.

    Raises:
        RuntimeError: if it ended otherwise than with 0 or 1.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **(variables or {})})
    wall = time.perf_counter() - wall
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ended.returncode not in (0, 1):
        raise RuntimeError(f"{command}: {ended.returncode}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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
    row("listed, torch not imported", listed, f"{listed[1] / loaded[1]:.2f}", "≤ 2")
    import torch  # noqa: F401 - not what is measured

    made = least(lambda: [collecting.file_request(file, {"compile_backend": "eager"}) for file in files])
    row("made into cases", made, f"{made[1] / loaded[1]:.2f}", "≤ 2")


WINDOW = 100
WATCH = f"""\
import json, os, time
from pathlib import Path

seen, told = 0, []

def pytest_runtest_logstart():
    global seen
    if seen % {WINDOW} == 0:
        told.append((time.perf_counter(), used(os.getpid()) / 1e9))
    seen += 1

def pytest_sessionfinish():
    Path("windows.json").write_text(json.dumps(told))

def used(process):
    total = 0
    for task in Path("/proc", str(process), "task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
        total += sum(used(child) for child in (task / "children").read_text().split())
    return total
"""


class Turns(NamedTuple):
    """How often ``pytest`` is run, and with how many cases."""

    cases: int
    times: int


FULL, QUICK = Turns(1501, 4), Turns(701, 2)


def in_pytest(folder: Path, turns: Turns, against: Path | None) -> None:
    folder.mkdir()
    sizes = [number % 97 + number // 97 + 1 for number in range(turns.cases)]
    text = "".join(CASE.format(number=number, size=size) for number, size in enumerate(sizes))
    (folder / "m.yaml").write_text(HEAD.format(model="m") + text)
    (folder / "test_empty.py").write_text(EMPTY.format(count=turns.cases))
    (folder / "watch.py").write_text(WATCH)
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "watch")
    cases = (*pytest, "-p", "optest.pytest_plugin", "--compile-backend", "eager", "--no-dedupe", "m.yaml")
    asked = {"case": Asked(cases), "empty": Asked((*pytest, "test_empty.py"))}
    if against is not None:
        asked["other"] = Asked(cases, against.resolve() / "src")
    windows: dict[str, list[Seconds]] = {name: [] for name in asked}
    for turn in range(turns.times):
        for name in sorted(asked, reverse=bool(turn % 2)):  # who is first may find caches cold
            windows[name] += asked[name].windows(folder)
    bare, phases = own_parts(folder / "m.yaml")
    tell("an empty test of pytest beside torch, ms", windows["empty"])
    tell("a case in pytest, ms", windows["case"])
    row("of it the bare call and its reference, ms", (bare * 1e3, bare * 1e3))
    row("of it these as optest makes them, with copies and looks at memory, ms", (phases * 1e3, phases * 1e3))
    tell("overhead beyond these as optest makes them, ms", windows["case"], phases)
    tell("overhead beyond the bare call and its reference, ms", windows["case"], bare, "≤ 1 ms")
    if against is not None:
        tell(f"the same of {against}, ms", windows["other"], bare)
        here, there = (statistics.median(each[1] for each in windows[name]) for name in ("case", "other"))
        print(f"\na case against that tree, processor: {here / there:.2f}")


class Asked(NamedTuple):
    """A program, and the folder of the sources that it imports, if not those that are installed."""

    command: Sequence[str]
    sources: Path | None = None

    def windows(self, folder: Path) -> list[Seconds]:
        """Seconds of one item, by each window but the first."""
        stated = os.environ.get("PYTHONPATH", "") if self.sources is None else str(self.sources)
        run(self.command, folder, {"PYTHONPATH": os.pathsep.join([str(folder), stated])})
        told = json.loads((folder / "windows.json").read_text())
        windows = list(itertools.pairwise(told))[1:]
        return [((late[0] - early[0]) / WINDOW, (late[1] - early[1]) / WINDOW) for early, late in windows]


def tell(what: str, windows: Sequence[Seconds], less: float = 0.0, wanted: str = "") -> None:
    """The median, and the quartiles of the processor's seconds."""
    wall, processor = (statistics.median(each[clock] for each in windows) - less for clock in (0, 1))
    low, _, high = (1e3 * (each - less) for each in statistics.quantiles([each[1] for each in windows]))
    row(what, (wall * 1e3, processor * 1e3), f"{low:.2f} to {high:.2f}", wanted)


def own_parts(plan: Path) -> tuple[float, float]:
    """Processor seconds of a bare call with its reference, and of both as optest makes them."""
    command = (sys.executable, str(Path(__file__).resolve()), "--own", str(plan))
    bare, phases = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(bare), float(phases)


def print_own_parts(plan: Path) -> None:
    """Print :func:`own_parts`, in the mean of all but the first cases."""
    import torch

    from optest.api import cases
    from optest.backends import backend_manager
    from optest.core import runner
    from optest.torch.calls.call import torch_call

    chosen = cases(plan=str(plan))
    made: list[Callable[[], Any]] = []
    for case in chosen:
        tensors = [filled(argument) for argument in case.inputs]
        call = torch_call(case.attributes["call"])
        made += [call.on(given, torch.device("cpu")) for given in (tensors, [each.double() for each in tensors])]
    _, bare_s = least(lambda: [each() for each in made])
    setattr(runner, "perf_counter", time.process_time)  # noqa: B010 - of which mypy knows nothing
    driver = backend_manager.get("torch")
    driver.configure({})
    done = [runner.execute([case], driver).timings for case in chosen][100:]  # torch imports at first
    phases_s = sum((each.run_s or 0.0) + (each.reference_s or 0.0) for each in done) / len(done)
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
    whole = run(command, folder)
    journal = sorted(folder.glob(".optest/runs/*/journal.jsonl"))[-1]
    bare = run((sys.executable, str(Path(__file__).resolve()), "--bare", str(plan), str(journal)), folder)
    names = ", ".join(path.stem for path in models)
    row(f"bare loop over {names}", bare)
    with_terms = run(
        (sys.executable, str(Path(__file__).resolve()), "--terms", "--bare", str(plan), str(journal)), folder
    )
    row("the same with the terms of sums", with_terms)
    row("optest run, against that", whole, f"{whole[1] / with_terms[1]:.2f} ({whole[0] / with_terms[0]:.2f} wall)")
    row(
        "optest run, against the bare loop", whole, f"{whole[1] / bare[1]:.2f} ({whole[0] / bare[0]:.2f} wall)", "≤ 1.5"
    )
    report(journal)


def report(journal: Path) -> None:
    """Where the time went."""
    from optest.store import read_journal

    results = [each for each in read_journal(journal).results if each.duplicate_of is None]
    parts = {
        name: sum(getattr(each.timings, name) or 0.0 for each in results)
        for name in ("generate_s", "reference_s", "run_s", "compare_s")
    }
    print("\n" + ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items()))


def bare_loop(plan: Path, journal: Path, *, with_terms: bool) -> None:
    """The calls that were executed, once in their dtype and once in float64, on tensors that torch fills."""
    import torch

    from optest.api import cases
    from optest.store import read_journal
    from optest.torch.calls.call import torch_call

    done = read_journal(journal).results
    executed = {each.id for each in done if each.duplicate_of is None and each.status.value != "skipped"}
    failed = 0
    for case in cases(plan=str(plan)):
        if case.id not in executed:
            continue
        call = torch_call(case.attributes["call"])
        tensors = [filled(argument) for argument in case.inputs]
        wide = [each.double() if each.is_floating_point() else each for each in tensors]
        asked = [tensors, wide]
        if with_terms and case.descriptor.terms == TERMS:
            asked += [[each.abs() for each in wide], [each.abs().square() for each in wide]]
        for given in asked:
            try:
                call.on(given, torch.device("cpu"))()
            except (RuntimeError, TypeError, IndexError):  # noqa: PERF203 - each call for itself
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
        storage = torch.zeros(reach, dtype=dtype)  # a position in anything
    return storage.as_strided(spec.shape, strides, spec.offset)


if __name__ == "__main__":
    sys.exit(main())
