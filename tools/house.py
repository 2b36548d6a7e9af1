"""Compare figures of the source with their budgets in tools/budgets.yaml, and list its largest pieces.

    python tools/house.py [--largest N]     each figure with its budget and its goal, sizes, largest pieces
    python tools/house.py --check           exit with 1 if a figure is worse than its budget; store better ones
    python tools/house.py --words [PATH…]   each word that WORDS.md replaces, with its line
    python tools/house.py --list KIND       the things that another figure counts: short, names, circles or docstrings
    python tools/house.py --run COMMAND…    run a command and compare its processor time with its budget

Lines are those of `wc -l`. CONTRIBUTING.md says how a budget is raised.
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import code_figures
import ways
import yaml
from code_figures import Source, lines_of

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "Python that calls are counted with"
PROCESSOR_TIME = "processor time of make test, in calibration loops"
PROCESSOR_MARGIN = 0.25
"""Machines that others use, too, and other processors, give ratios that differ by so much."""
CALLS_MARGIN = 0.01
"""Calls differ a little from run to run: with the length of temporary paths, and with the clock."""


@dataclass(frozen=True)
class Figure:
    """A measured figure; None with the missing component if it was not measured."""

    name: str
    now: float | None
    hint: str
    """Advice for a figure over its budget."""
    missing: str = ""
    margin: float = 0.0


@dataclass(frozen=True)
class Budget:
    """The figure that the source may have at most, or at least, and the goal of an issue."""

    limit: float
    is_least: bool = False
    goal: float | None = None

    def broken_by(self, figure: Figure) -> bool:
        return self._excess(figure) > self.limit * figure.margin

    def outdone_by(self, figure: Figure) -> bool:
        return -self._excess(figure) > self.limit * figure.margin

    def _excess(self, figure: Figure) -> float:
        if figure.now is None:
            return 0.0
        return self.limit - figure.now if self.is_least else figure.now - self.limit


class BudgetFile:
    """The committed file of budgets: ``name: {most: N}`` or ``{least: N}`` with an optional goal, one line each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        self.python = str(content.pop(PYTHON, ""))
        self.budgets = {
            name: Budget(given["least" if "least" in given else "most"], "least" in given, given.get("goal"))
            for name, given in content.items()
        }

    def problems(self, figures: Iterable[Figure]) -> Iterator[str]:
        """Yield a line for each figure that is worse than its budget, or has none, and for budgets without a figure."""
        figures = list(figures)
        for figure in figures:
            budget = self.budgets.get(figure.name)
            if budget is None:
                yield f"{figure.name}: now {shown(figure.now)}, without a budget; add a line to {self.path.name}"
            elif budget.broken_by(figure):
                side = "least" if budget.is_least else "most"
                yield f"{figure.name}: now {shown(figure.now)}, at {side} {shown(budget.limit)}; {figure.hint}"
        for name in self.budgets.keys() - {figure.name for figure in figures} - {PROCESSOR_TIME}:
            yield f"{name}: a budget in {self.path.name} of no figure; remove the line"

    def store_better(self, figures: Iterable[Figure]) -> Iterator[str]:
        """Write figures that are better than their budgets to the file, and yield a line for each."""
        text = self.path.read_text(encoding="utf-8")
        for figure in figures:
            budget = self.budgets.get(figure.name)
            if budget is None or figure.now is None or not budget.outdone_by(figure):
                continue
            line = re.compile(rf"^({re.escape(figure.name)}: *\{{ *(?:most|least): *)[\d.]+", re.MULTILINE)
            text, count = line.subn(rf"\g<1>{figure.now}", text)
            if count != 1:
                raise SystemExit(f"{self.path}: {figure.name} has no line of the form NAME: {{most: N}}")
            yield f"{figure.name}: {shown(budget.limit)} → {shown(figure.now)}, stored in {self.path.name}"
        self.path.write_text(text, encoding="utf-8")


def shown(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def figures_of_text(root: Path, sources: Sequence[Source]) -> Iterator[Figure]:
    """Yield the figures that are read from the files below ``root``."""
    reason = "write less, or raise the budget with the reason if an issue allows it"
    source_lines = sum(source.lines for source in sources)
    yield Figure("source lines", source_lines, reason)
    yield Figure("test lines", lines_of((root / "tests").rglob("*.py")), reason)
    yield Figure("benchmark lines", lines_of((root / "benchmarks").glob("*.py")), reason)
    short = code_figures.short_functions_used_once(sources)
    yield Figure("short private functions used once", len(short), "inline them: house.py --list short")
    repeated = code_figures.repeated_names(sources)
    yield Figure("function names in two or more files", len(repeated), "name the thing: house.py --list names")
    circles = code_figures.Imports(sources).circles()
    yield Figure("circles of files", len(circles), "move what both need: house.py --list circles")
    per_100_lines = round(100 * code_figures.comments(sources) / max(source_lines, 1), 1)
    yield Figure("comments per 100 lines", per_100_lines, "say why, in the line above the code")
    docstrings = code_figures.docstrings_without_verb(root, sources)
    yield Figure(
        "docstrings outside D401", len(docstrings), "begin with an imperative verb: house.py --list docstrings"
    )
    words = sum(1 for _ in code_figures.word_hits(sources))
    yield Figure("words of WORDS.md", words, "replace them: house.py --words")


def figures_of_ways(python: str) -> Iterator[Figure]:
    """Yield the files and calls of each way to use optest, where this Python and this machine can count them."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    measured: dict[str, tuple[int, int] | str]
    if python == running:
        measured = ways.measure_all()
    else:
        measured = dict.fromkeys(ways.WAYS, f"this is Python {running}, not {python}")
    for name, result in measured.items():
        files, calls, missing = (None, None, result) if isinstance(result, str) else (*result, "")
        yield Figure(f"files of {name}", files, "let it enter fewer files", missing)
        yield Figure(f"calls of {name}", calls, "let it make fewer calls", missing, CALLS_MARGIN)


def all_figures(root: Path, sources: Sequence[Source], python: str) -> list[Figure]:
    """Return all figures but the processor time; ways run while the texts are counted."""
    with ThreadPoolExecutor(1) as pool:
        counting = pool.submit(lambda: list(figures_of_ways(python)))
        return [*figures_of_text(root, sources), *counting.result()]


def check(file: BudgetFile, figures: Sequence[Figure]) -> int:
    """Print which figures are worse than their budgets, store better ones, and return the exit status."""
    for figure in figures:
        if figure.missing:
            print(f"{figure.name}: not counted, {figure.missing}")
    for line in file.store_better(figures):
        print(line)
    problems = list(file.problems(figures))
    for problem in problems:
        print(f"over budget: {problem}", file=sys.stderr)
    return 1 if problems else 0


def listed(kind: str, root: Path) -> Iterator[str]:
    """Yield a line for each thing that a figure counts."""
    sources = code_figures.read_sources(root)
    if kind == "short":
        yield from code_figures.short_functions_used_once(sources)
    elif kind == "names":
        for name, files in code_figures.repeated_names(sources).items():
            yield f"{name}: {', '.join(map(str, files))}"
    elif kind == "circles":
        for circle in code_figures.Imports(sources).circles():
            yield ", ".join(circle)
    else:
        for path, line, first in code_figures.docstrings_without_verb(root, sources):
            yield f"{path}:{line}: {first}"


def word_lines(root: Path, paths: Iterable[str]) -> Iterator[str]:
    """Yield each word with a replacement in the files of ``root/src``, or only in ``paths`` and below."""
    chosen = [Path(path).resolve() for path in paths]
    for source in code_figures.read_sources(root):
        file = (root / source.path).resolve()
        if not chosen or any(file.is_relative_to(path) for path in chosen):
            yield from map(str, code_figures.word_hits([source]))


def print_table(file: BudgetFile, figures: Iterable[Figure]) -> None:
    """Print each figure with its budget and its goal."""
    print(f"{'figure':<50}{'now':>10}{'budget':>10}{'goal':>10}")
    for figure in figures:
        budget = file.budgets.get(figure.name)
        limits = (shown(budget.limit), shown(budget.goal)) if budget else ("", "")
        state = f"not counted, {figure.missing}" if figure.missing else ""
        state = "over budget" if budget and budget.broken_by(figure) else state
        print(f"{figure.name:<50}{shown(figure.now):>10}{limits[0]:>10}{limits[1]:>10}  {state}".rstrip())


def print_sizes(sources: Sequence[Source], count: int) -> None:
    """Print the lines of every package, and the largest files and functions."""
    packages: defaultdict[str, int] = defaultdict(int)
    for source in sources:
        packages[source.path.parts[2].removesuffix(".py")] += source.lines
    print_largest("lines of packages", ((lines, name) for name, lines in packages.items()), len(packages))
    print_largest("longest files", ((source.lines, str(source.path)) for source in sources), count)
    functions = [
        (function, f"{source.path}:{function.lineno} {function.name}")
        for source in sources
        for function in source.functions
    ]
    sizes = (((function.end_lineno or 0) - function.lineno + 1, where) for function, where in functions)
    print_largest("longest functions", sizes, count)
    print_largest(
        "functions with most parameters", ((_parameters(function), where) for function, where in functions), count
    )


def print_largest(title: str, sizes: Iterable[tuple[int, str]], count: int) -> None:
    print(f"\n{title}")
    for size, where in sorted(sizes, reverse=True)[:count]:
        print(f"{size:>8,}  {where}")


def _parameters(function: code_figures.Function) -> int:
    """Count the parameters of a function, without self and cls."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [argument for argument in (arguments.vararg, arguments.kwarg) if argument]
    return sum(argument.arg not in ("self", "cls") for argument in (*named, *starred))


def calibrate() -> float:
    """Return the processor seconds of a fixed loop of dictionary, text and integer operations: the median of three."""
    taken = []
    for _ in range(3):
        began = time.process_time()
        counts: dict[str, int] = {}
        for number in range(2_500_000):
            key = str(number % 997)
            counts[key] = counts.get(key, 0) + number * number % 7
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def _seconds_of_children() -> float:
    """Return the user and system time of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_within_budget(file: BudgetFile, command: Sequence[str]) -> int:
    """Run a command, print its processor time in seconds and in calibration loops, and return its exit status.

    A command that succeeds, but takes more than its budget, gives 1. A lower time is not stored: it may be one of a
    machine where components are missing, so that tests are skipped.
    """
    loop = calibrate()
    began, used_before = time.monotonic(), _seconds_of_children()
    status = subprocess.run(command, check=False).returncode
    clock, seconds = time.monotonic() - began, _seconds_of_children() - used_before
    budget = file.budgets[PROCESSOR_TIME]
    figure = Figure(PROCESSOR_TIME, round(seconds / loop), "run fewer or faster tests", margin=PROCESSOR_MARGIN)
    print(
        f"took {clock:.0f} s on the clock and {seconds:.0f} s of processor time: {shown(figure.now)} calibration loops "
        f"of {loop:.2f} s, budget {shown(budget.limit)} and {PROCESSOR_MARGIN:.0%}"
    )
    if status == 0 and budget.broken_by(figure):
        print(f"over budget: {PROCESSOR_TIME}; {figure.hint}", file=sys.stderr)
        return 1
    if status == 0 and budget.outdone_by(figure):
        print(f"below budget: if every component is installed here, lower the figure in {file.path.name}")
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--largest", type=int, default=10, metavar="N", help="number of largest pieces to list [10]")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="compare with the budgets; store better figures")
    mode.add_argument("--words", nargs="*", metavar="PATH", help="list words that have a replacement")
    mode.add_argument("--list", choices=("short", "names", "circles", "docstrings"), help="list what a figure counts")
    mode.add_argument("--run", nargs=argparse.REMAINDER, metavar="COMMAND", help="run a command within its budget")
    given = parser.parse_args(arguments)
    file = BudgetFile(ROOT / "tools" / "budgets.yaml")
    if given.run:
        return run_within_budget(file, given.run)
    if given.words is not None:
        print(*word_lines(ROOT, given.words), sep="\n")
        return 0
    if given.list:
        print(*listed(given.list, ROOT), sep="\n")
        return 0
    sources = code_figures.read_sources(ROOT)
    figures = all_figures(ROOT, sources, file.python)
    if given.check:
        return check(file, figures)
    print_table(file, figures)
    print_sizes(sources, given.largest)
    return 0


if __name__ == "__main__":
    sys.exit(main())
