"""What does `optest --help` cost against a bare click program, and an edit of a torch function until its verdict?

    python benchmarks/startup.py [--quick]

`optest --help` and `optest list` run nothing. The second table has the time from an edit to the verdict of its check,
in a new process and below `--watch`, against the import of torch.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import kit

CLICK = "import click\n@click.command()\ndef main(): pass\nmain(['--help'], standalone_mode=False)\n"
SOFTMAX = "import torch\ndef softmax(x, dim):\n    return torch.softmax(x, dim)\n"
CHECK = [sys.executable, "-m", "optest", "check", "--function", "m:softmax"]


def commands_ms(folder: Path, runs: int) -> dict[str, float]:
    """Return the median times of commands that run no case, and of a bare click program."""
    bare = folder / "bare.py"
    bare.write_text(CLICK)
    commands = {
        "python -c pass": ["-c", "pass"],
        "bare click --help": [str(bare)],
        "optest --help": ["-m", "optest", "--help"],
        "optest run --help": ["-m", "optest", "run", "--help"],
        "optest list operators": ["-m", "optest", "list", "operators"],
    }
    sides = {name: partial(kit.run_program, [sys.executable, *words], folder) for name, words in commands.items()}
    return {name: statistics.median(x.wall for x in times) * 1e3 for name, times in kit.in_turns(sides, runs).items()}


def edits_ms(folder: Path, runs: int) -> dict[str, float]:
    """Return the median times of `import torch` and of a check after an edit, in a new process and below `--watch`."""
    module = folder / "m.py"
    module.write_text(SOFTMAX)
    edits = 0

    def edit() -> None:
        nonlocal edits
        edits += 1
        module.write_text(f"{SOFTMAX}# edit {edits}\n")

    def check_again() -> None:
        edit()
        kit.run_program(CHECK, folder, statuses=(0, 1))  # torch fails some cases of its own

    times: dict[str, list[float]] = {}
    with subprocess.Popen([*CHECK, "--watch"], cwd=folder, stdout=subprocess.PIPE, text=True) as watch:
        lines = watch.stdout or ()

        def wait_for_verdict() -> None:
            edit()
            any(" cases of 1 " in line for line in lines)

        try:
            for _ in range(runs):
                any("watching" in line for line in lines)
                times.setdefault("optest check --watch", []).append(kit.timed(wait_for_verdict).wall)
        finally:
            watch.kill()
    imported = partial(kit.run_program, [sys.executable, "-c", "import torch"], folder)
    sides = kit.in_turns({"import torch": imported, "optest check": check_again}, runs)
    times |= {name: [x.wall for x in seconds] for name, seconds in sides.items()}
    return {name: statistics.median(seconds) * 1e3 for name, seconds in times.items()}


def main() -> None:
    runs = 5 if kit.parser(__doc__, quick="fewer runs").parse_args().quick else 15
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = commands_ms(folder, runs)
        rows = [(name, f"{x:.0f}", f"{x / figures['bare click --help']:.2f}") for name, x in figures.items()]
        print(kit.table(("command", f"ms (median of {runs})", "× bare click"), rows))
        if find_spec("torch"):
            figures = edits_ms(folder, runs)
            rows = [(name, f"{x:.0f}", f"{x / figures['import torch']:.2f}") for name, x in figures.items()]
            columns = (f"edit → verdict of a torch softmax, {os.cpu_count()} cores", f"ms (median of {runs})")
            print("", kit.table((*columns, "× import torch"), rows), sep="\n")


if __name__ == "__main__":
    main()
