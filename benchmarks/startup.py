"""What `optest --help` and `optest list` cost before anything runs, against a bare click program."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLICK = "import click\n@click.command()\ndef main(): pass\nmain(['--help'], standalone_mode=False)\n"


def medians_ms(rows: dict[str, list[str]], runs: int) -> dict[str, float]:
    """The median of every command, asked in turns so that a busy machine is unfair to none."""
    taken: dict[str, list[float]] = {word: [] for word in rows}
    for _ in range(runs):
        for word, command in rows.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            taken[word].append((time.perf_counter() - began) * 1e3)
    return {word: sorted(each)[runs // 2] for word, each in taken.items()}


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


if __name__ == "__main__":
    main()
