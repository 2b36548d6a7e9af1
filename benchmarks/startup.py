"""What `optest --help` and `optest list` cost before anything runs, against a bare click program; and the time from an
edit of a torch function to the verdict of its check, against the import of torch."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

CLICK = "import click\n@click.command()\ndef main(): pass\nmain(['--help'], standalone_mode=False)\n"

SOFTMAX = "import torch\ndef softmax(x, dim):\n    return torch.softmax(x, dim)\n"
CHECK = [sys.executable, "-m", "optest", "check", "--function", "m:softmax"]


def medians_ms(rows: dict[str, list[str]], runs: int) -> dict[str, float]:
    """The median of every command, asked in turns so that a busy machine is unfair to none."""
    taken: dict[str, list[float]] = {word: [] for word in rows}
    for _ in range(runs):
        for word, command in rows.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            taken[word].append((time.perf_counter() - began) * 1e3)
    return {word: sorted(each)[runs // 2] for word, each in taken.items()}


def edits_to_verdicts(folder: Path, runs: int) -> None:
    """Print the medians of a check in a new process and of one below `--watch`; the module is edited before each."""
    taken: dict[str, list[float]] = {"import torch": [], "optest check": [], "optest check --watch": []}
    module = folder / "m.py"
    module.write_text(SOFTMAX)

    def edit_and_wait(word: str, wait: Callable[[], object]) -> None:
        module.write_text(f"{SOFTMAX}# {len(taken[word])} {word}\n")
        began = time.perf_counter()
        wait()
        taken[word].append((time.perf_counter() - began) * 1e3)

    with subprocess.Popen([*CHECK, "--watch"], cwd=folder, stdout=subprocess.PIPE, text=True) as watch:
        lines = watch.stdout or ()
        try:
            for _ in range(runs):
                any("watching" in line for line in lines)
                edit_and_wait("optest check --watch", lambda: any(" cases of 1 " in line for line in lines))
        finally:
            watch.kill()
    commands = {"import torch": [sys.executable, "-c", "import torch"], "optest check": CHECK}
    for _ in range(runs):
        for word, command in commands.items():
            edit_and_wait(word, lambda: subprocess.run(command, cwd=folder, capture_output=True))  # noqa: B023
    print(f"\n| edit → verdict of a torch softmax, {os.cpu_count()} cores | ms (median of {runs}) | × import torch |")
    print("|---|--:|--:|")
    figures = {word: sorted(each)[runs // 2] for word, each in taken.items()}
    for word, figure in figures.items():
        print(f"| {word} | {figure:.0f} | {figure / figures['import torch']:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    runs = 5 if parser.parse_args().quick else 15
    with tempfile.TemporaryDirectory() as name:
        bare = Path(name) / "bare.py"
        bare.write_text(CLICK)
        rows = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "bare click --help": [sys.executable, str(bare)],
            "optest --help": [sys.executable, "-m", "optest", "--help"],
            "optest run --help": [sys.executable, "-m", "optest", "run", "--help"],
            "optest list operators": [sys.executable, "-m", "optest", "list", "operators"],
        }
        figures = medians_ms(rows, runs)
    print(f"| command | ms (median of {runs}) | × bare click |")
    print("|---|--:|--:|")
    for word, figure in figures.items():
        print(f"| {word} | {figure:.0f} | {figure / figures['bare click --help']:.2f} |")
    if find_spec("torch"):
        with tempfile.TemporaryDirectory() as name:
            edits_to_verdicts(Path(name), runs)


if __name__ == "__main__":
    main()
