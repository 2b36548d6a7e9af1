"""Every benchmark, one page of Markdown on standard output.

    python benchmarks/all.py [--full] [--only SCRIPT] [--write PAGE]

Ratios are of one run and carry over to other machines; microseconds do not, least of all from a busy machine, which
is why the page says how busy it was.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

FOLDER = Path(__file__).parent
SCRIPTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # script: arguments of a quick run, arguments of a full one
    "overhead": (("--quick",), ()),
    "startup": (("--quick",), ()),
    "planning": (("--quick", "--rounds", "2"), ("--rounds", "3")),
    "dispatcher": (("--quick",), ()),
    "verdict_throughput": (("--quick", "--repeats", "2"), ()),
    "verdict_quality": (("--draws", "200"), ()),
    "steadiness": (("20",), ()),
    "widths": (("--seeds", "1"), ()),
    "wrong_variants": (("--seeds", "1"), ()),
    "honest": (("--cases", "500", "--op", "exp", "--op", "sum", "--op", "gemm", "--op", "layer_norm"), ()),
    "generation": (("1048576",), ()),
    "references": (("--quick",), ()),
    "ffi_overhead": (("--quick",), ()),
    "model_cases": (("--quick",), ()),
}


def machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {_version(name)}" for name in ("numpy", "torch", "pytest"))
    load = f", load average {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    return f"{_processor()}, {cores} cores{load}; Python {platform.python_version()}, {versions}"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def section(script: str, arguments: tuple[str, ...]) -> tuple[str, int]:
    """The Markdown of one benchmark and its exit status."""
    path = FOLDER / f"{script}.py"
    command = " ".join(["python", f"benchmarks/{path.name}", *arguments])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--full",
        action="store_true",
        help="the figures that benchmarks/README.md quotes; the better part of an hour",
    )
    parser.add_argument("--only", action="append", choices=sorted(SCRIPTS), help="this benchmark. Repeatable.")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put it between a page's figures marks, too")
    given = parser.parse_args()
    worst, sections = 0, [f"{machine()}\n"]
    print(f"# Benchmarks\n\n{sections[0]}", flush=True)
    for script, (quick, full) in SCRIPTS.items():
        if given.only and script not in given.only:
            continue
        text, status = section(script, full if given.full else quick)
        print(text, flush=True)
        sections.append(text)
        worst = max(worst, abs(status))
    if given.write and not worst:
        before, _, rest = given.write.read_text(encoding="utf-8").partition("<!-- figures -->\n")
        after = rest.partition("<!-- /figures -->")[2]
        figures = "\n".join(sections).replace("\n## ", "\n### ")
        page = f"{before}<!-- figures -->\n{figures}<!-- /figures -->{after}"
        given.write.write_text(page, encoding="utf-8")
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
