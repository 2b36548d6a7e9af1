"""How large the house is: lines of every part beside its budget, the largest pieces, the files that one case enters.

    make house        (or: python tools/house.py [--largest N] [--without-cases])

A part without a budget is listed for its size. Lines are those of `wc -l`.
Exits with 1 if a part is over its budget.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "optest"
SMALL = 60
"""Lines below which a file is listed as small, `__init__` and `__main__` apart."""


@dataclass(frozen=True)
class Part:
    """A part of the tree, the files that it counts, and the most lines (files, words) that it may have."""

    name: str
    now: int
    most: int | None = None

    def __str__(self) -> str:
        state = "" if self.most is None else "over" if self.now > self.most else "ok"
        return f"{self.name:<44}{self.now:>9,}{'' if self.most is None else f'{self.most:,}':>9}  {state}".rstrip()


def python_files(*folders: str) -> list[Path]:
    return sorted(file for folder in folders for file in (SOURCE / folder).rglob("*.py"))


def lines(files: Iterable[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


def words(files: Iterable[Path]) -> int:
    return sum(len(file.read_text(encoding="utf-8").split()) for file in files)


def small_files() -> list[Path]:
    return [each for each in python_files("") if not each.stem.startswith("__") and lines([each]) < SMALL]


def parts() -> Iterator[Part]:
    yield Part("whole source", lines(python_files("")), 69_000)
    yield Part("torch guest", lines(python_files("torch")), 10_000)
    yield Part("operators", lines(python_files("operators")), 12_500)
    yield Part("plan", lines(python_files("plan")), 5_000)
    yield Part("api, cli and pytest_plugin", lines(python_files("api", "cli", "pytest_plugin")), 5_000)
    yield Part("compare", lines(python_files("compare")), 2_500)
    yield Part("clib and infiniop", lines(python_files("clib", "infiniop")))
    yield Part("core", lines(python_files("core")))
    yield Part("backends", lines(python_files("backends")))
    yield Part(f"files below {SMALL} lines", len(small_files()), 25)
    yield Part("tests", lines((ROOT / "tests").rglob("*.py")), 52_000)
    yield Part("docs, in words", words((ROOT / "docs").rglob("*.md")), 50_000)


CASES: dict[str, tuple[dict[str, Any], int | None]] = {
    "add": ({"backend": "numpy", "op": "add", "dtype": "float32", "shape": ("input0=4x4", "input1=4x4")}, None),
    "torch.add": ({"backend": "torch", "plan": "PLAN"}, 35),
}
PLAN = """\
version: 1
backend: torch
cases:
  - op: torch.add
    attributes: {call: "torch.add(input0, input1)"}
    dtypes: [float32]
    shapes: {input0: [4, 4], input1: [4, 4]}
"""


def files_entered(options: dict[str, Any]) -> set[str]:
    """The files of optest in which a function is called while one case is executed, after one that warms up."""
    from optest.api import cases
    from optest.backends import backend_manager
    from optest.core.runner import execute

    asked = cases(**options)
    driver = backend_manager.get(options["backend"])
    execute(asked, driver)
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and str(SOURCE) in frame.f_code.co_filename:
            entered.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        (verdict,) = execute(asked, driver).verdicts
    finally:
        sys.setprofile(None)
    if verdict.status.value != "passed":
        raise RuntimeError(f"the case that is counted {verdict.status.value}: {verdict.message}")
    return entered


@dataclass(frozen=True)
class Function:
    where: str
    lines: int
    parameters: int


def functions() -> list[Function]:
    """Every function of the source; its lines are those from ``def`` to its end, without decorators."""
    found = []
    for file in python_files(""):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                where = f"{file.relative_to(SOURCE)}:{node.lineno} {node.name}"
                found.append(Function(where, (node.end_lineno or node.lineno) - node.lineno + 1, _parameters(node)))
    return found


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many there are, self and cls left out."""
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    starred = [each for each in (node.args.vararg, node.args.kwarg) if each]
    return len([each for each in (*given, *starred) if each.arg not in ("self", "cls")])


def largest(title: str, sizes: Iterable[tuple[int, str]], count: int) -> None:
    print(f"\n{title}")
    for size, where in sorted(sizes, reverse=True)[:count]:
        print(f"{size:>7}  {where}")


def entered_parts(print_missing: Callable[[str], None]) -> Iterator[Part]:
    import tempfile

    sys.path.insert(0, str(ROOT / "src"))
    with tempfile.TemporaryDirectory(prefix="optest-house-") as folder:
        plan = Path(folder) / "plan.yaml"
        plan.write_text(PLAN)
        for name, (options, most) in CASES.items():
            given = {key: str(plan) if value == "PLAN" else value for key, value in options.items()}
            try:
                yield Part(f"files entered by one {name} case", len(files_entered(given)), most)
            except ImportError as error:
                print_missing(f"files entered by one {name} case: not counted, {error}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--largest", type=int, default=10, metavar="N", help="so many of the largest pieces")
    parser.add_argument("--without-cases", action="store_true", help="do not run the cases that are counted")
    given = parser.parse_args()
    missing: list[str] = []
    found = [*parts(), *([] if given.without_cases else entered_parts(missing.append))]
    print(f"{'part':<44}{'now':>9}{'budget':>9}")
    print(*found, *missing, sep="\n")
    every = functions()
    largest(
        "longest files", ((lines([file]), str(file.relative_to(SOURCE))) for file in python_files("")), given.largest
    )
    largest("longest functions", ((each.lines, each.where) for each in every), given.largest)
    largest("functions with most parameters", ((each.parameters, each.where) for each in every), given.largest)
    return 1 if any(part.most is not None and part.now > part.most for part in found) else 0


if __name__ == "__main__":
    sys.exit(main())
