"""What `optest --help` and `optest list` cost before anything runs, against a bare click program."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

CLICK = "import click\n@click.command()\ndef main(): pass\nmain(['--help'], standalone_mode=False)\n"


def median_ms(command: list[str], runs: int = 15) -> float:
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        taken.append((time.perf_counter() - began) * 1e3)
    return sorted(taken)[runs // 2]


def main() -> None:
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
        figures = {word: median_ms(command) for word, command in rows.items()}
    print("| command | ms (median of 15) | × bare click |")
    print("|---|--:|--:|")
    for word, figure in figures.items():
        print(f"| {word} | {figure:.0f} | {figure / figures['bare click --help']:.2f} |")


if __name__ == "__main__":
    main()
