"""Run every benchmark, and print one page of Markdown.

    python benchmarks/all.py [--full] [--only SCRIPT] [--write PAGE]

Ratios are of one run and carry over to other machines; microseconds do not, least of all from a busy machine. The page
therefore has the load of the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import kit

FOLDER = Path(__file__).parent
_FEW = tuple(word for name in ("exp", "sum", "gemm", "layer_norm") for word in ("--op", name))
SCRIPTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # script: arguments of a quick run, arguments of a full one
    "overhead": (("--quick",), ()),
    "startup": (("--quick",), ()),
    "planning": (("--quick", "--rounds", "2"), ("--rounds", "3")),
    "dispatcher": (("--quick",), ()),
    "verdict_throughput": (("--quick", "--repeats", "2"), ()),
    "steadiness": (("20",), ()),
    "honest": (("--seeds", "1", *_FEW), ()),
    "faults": (_FEW, ()),
    "generation": (("1048576",), ()),
    "references": (("--quick",), ()),
    "ffi_overhead": (("--quick",), ()),
    "model_cases": (("--quick",), ()),
}


def section(script: str, arguments: tuple[str, ...]) -> tuple[str, int]:
    """Run one benchmark, and return its Markdown and its exit status."""
    path = FOLDER / f"{script}.py"
    command = " ".join(["python", f"benchmarks/{path.name}", *arguments])
    environment = {**os.environ, **kit.ONE_THREAD}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, str(path), *arguments], capture_output=True, text=True, env=environment, check=False
    )
    took = time.perf_counter() - began
    text = done.stdout.strip()
    body = text if text.startswith("|") or "\n|" in text else f"```\n{text}\n```"
    failure = f"\n\nexit status {done.returncode}\n\n```\n{done.stderr.strip()}\n```" if done.returncode else ""
    return f"## {script}\n\n`{command}` ({took:.0f} s)\n\n{body}{failure}\n", done.returncode


def main() -> int:
    parser = kit.parser(__doc__)
    parser.add_argument(
        "--full",
        action="store_true",
        help="the figures that benchmarks/README.md quotes; the better part of an hour",
    )
    parser.add_argument("--only", action="append", choices=sorted(SCRIPTS), help="only this benchmark. Repeatable.")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="also put it between a page's figures marks")
    options = parser.parse_args()
    worst, sections = 0, [f"{kit.machine()}\n"]
    print(f"# Benchmarks\n\n{sections[0]}", flush=True)
    for script, (quick, full) in SCRIPTS.items():
        if options.only and script not in options.only:
            continue
        text, status = section(script, full if options.full else quick)
        print(text, flush=True)
        sections.append(text)
        worst = max(worst, abs(status))
    if options.write and not worst:
        before, _, rest = options.write.read_text(encoding="utf-8").partition("<!-- figures -->\n")
        after = rest.partition("<!-- /figures -->")[2]
        figures = "\n".join(sections).replace("\n## ", "\n### ")
        page = f"{before}<!-- figures -->\n{figures}<!-- /figures -->{after}"
        options.write.write_text(page, encoding="utf-8")
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
