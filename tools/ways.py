"""Count the files and calls of optest in six ways to use it: the code that a reader of one of them has to follow.

    python tools/ways.py NAME    (prints "FILES CALLS" of one way)

A way runs twice in one process. The second run is counted, with ``sys.setprofile``: imports and caches are warm then.
Calls that the cyclic garbage collector makes are left out, because it runs at any time.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = str(ROOT / "src" / "optest") + os.sep
PLAN = ROOT / "examples" / "quickstart" / "plan.yaml"
CASE = "matmul half"
IN_PROCESS = ("--isolate", "none")
"""Only frames of this process can be counted, not those of workers."""

FUNCTIONS = """\
import numpy

def f(x, dim=-1):
    wide = x.astype(numpy.float64)
    exponentials = numpy.exp(wide - wide.max(axis=dim, keepdims=True))
    return (exponentials / exponentials.sum(axis=dim, keepdims=True)).astype(x.dtype)
"""
C_HEADER = "#include <stddef.h>\nvoid sample_relu(size_t n, const float *x, float *y);\n"
C_SOURCE = """\
#include <stddef.h>
void sample_relu(size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; i++) y[i] = x[i] < 0 ? 0 : x[i];
}
"""
C_MAPPING = """\
version: 1
name: sample
library: [sample]
dtypes: {float32: float}
operators:
  relu:
    - functions: {float32: sample_relu}
      dims: {input: [n], out: [n]}
      call: ["size:n", "input:input", "output:out"]
"""
C_PLAN = """\
version: 1
backend: ffi
defaults: {backend_config: {ffi: {library: [./libsample.so], headers: sample.h, mapping: sample.yaml}}}
cases: [{op: relu, dtypes: float32, shapes: {input0: [8]}}]
"""


def command_line(*arguments: str) -> Callable[[], None]:
    """Return a function that runs ``optest`` with these arguments in this process, and raises unless it succeeds."""
    from optest.cli import cli

    def run() -> None:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status = cli.main([*arguments, *IN_PROCESS], "optest", standalone_mode=False)
        if status != 0:
            raise RuntimeError(f"optest {' '.join(arguments)} ended with {status}:\n{printed.getvalue()}")

    return run


def quickstart_case() -> Callable[[], Any]:
    return command_line("run", "--plan", str(PLAN), "--case", CASE, "--backend", "torch")


def engine() -> Callable[[], Any]:
    """Build the case of the quick start, and return a function that executes it without a command line."""
    from optest.api import cases
    from optest.backends import backend_manager
    from optest.core.runner import execute

    built = cases(PLAN, case=CASE, backend="torch")
    driver = backend_manager.get("torch")

    def run() -> None:
        (verdict,) = execute(built, driver).verdicts
        if verdict.status.value != "passed":
            raise RuntimeError(f"the case {verdict.status.value}: {verdict.message}")

    return run


def check() -> Callable[[], Any]:
    """Write a correct softmax, and return a function that checks five cases of it."""
    Path("functions_of_way.py").write_text(FUNCTIONS)
    function = "softmax=functions_of_way:f"
    return command_line("check", "--function", function, "--op", "softmax", "--case", "softmax/ordinary/[1-5][[]*")


def assertion() -> Callable[[], Any]:
    """Return a function that asserts that a softmax of 64 rows is correct."""
    import numpy

    from optest.testing import assert_right

    Path("functions_of_way.py").write_text(FUNCTIONS)
    function = import_module("functions_of_way").f
    values = numpy.random.default_rng(0).standard_normal((64, 100)).astype(numpy.float32)
    return lambda: assert_right(function(values), op="softmax", inputs=[values], dim=-1)


def c_call() -> Callable[[], Any]:
    """Compile a relu, and return a function that runs one case of it."""
    for name, text in (
        ("sample.c", C_SOURCE),
        ("sample.h", C_HEADER),
        ("sample.yaml", C_MAPPING),
        ("plan.yaml", C_PLAN),
    ):
        Path(name).write_text(text)
    subprocess.run(["g++", "-x", "c", "-O1", "-shared", "-fPIC", "-o", "libsample.so", "sample.c"], check=True)
    return command_line("run", "--plan", "plan.yaml")


def scene() -> Callable[[], Any]:
    shutil.copytree(ROOT / "examples" / "scenes" / "vector_add", "vector_add")
    return command_line("run", "--source", "scene:vector_add", "--platform", "cpusim", "--device", "0")


@dataclass(frozen=True)
class Way:
    """A way to use optest: how its function is prepared, and the modules and programs that it needs."""

    prepare: Callable[[], Callable[[], Any]]
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Return the components that this machine lacks."""
        modules = [name for name in self.modules if find_spec(name) is None]
        return modules + [name for name in self.programs if shutil.which(name) is None]


WAYS = {
    "quickstart case": Way(quickstart_case, modules=("torch",)),
    "engine": Way(engine, modules=("torch",)),
    "check": Way(check),
    "assert_right": Way(assertion),
    "C call": Way(c_call, modules=("pycparser",), programs=("g++",)),
    "scene": Way(scene, programs=("g++",)),
}


def counted(run: Callable[[], Any]) -> tuple[int, int]:
    """Return how many files of optest have a call while ``run`` runs, and how many calls there are."""
    calls: dict[str, int] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(SOURCE):
            calls[file] = calls.get(file, 0) + 1

    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
    return len(calls), sum(calls.values())


def measure(name: str) -> tuple[int, int]:
    """Return the files and calls of a way, counted in a separate process and folder.

    Raises:
        RuntimeError: if the way fails.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("OPTEST_", "PYTEST_"))}
    with tempfile.TemporaryDirectory(prefix="optest-way-") as folder:
        environment = {**kept, "PYTHONHASHSEED": "0", "PYTHONPATH": folder, "XDG_CACHE_HOME": folder, "NO_COLOR": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), name]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the way {name!r} failed:\n{done.stdout}{done.stderr}")
    files, calls = done.stdout.split()[-2:]
    return int(files), int(calls)


def measure_all() -> dict[str, tuple[int, int] | str]:
    """Return the files and calls of every way, two ways at a time; text where a component is missing."""
    absent = {name: f"{', '.join(way.missing())} is missing" for name, way in WAYS.items() if way.missing()}
    present = [name for name in WAYS if name not in absent]
    with ThreadPoolExecutor(2) as pool:
        return {**absent, **dict(zip(present, pool.map(measure, present), strict=True))}


def main(name: str) -> None:
    sys.path.insert(0, str(ROOT / "src"))
    run = WAYS[name].prepare()
    run()
    print(*counted(run))


if __name__ == "__main__":
    main(*sys.argv[1:])
