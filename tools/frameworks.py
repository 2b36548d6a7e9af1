"""Write the table of docs/backends/frameworks.md: `optest check` of every framework that optest has a backend for.

    python tools/frameworks.py                          # tier parity; hours on two cores
    python tools/frameworks.py numpy jax:jit            # only these
    python tools/frameworks.py --kept runs --into docs/backends/frameworks.md

With ``--kept`` journals are stored in that folder, a folder for each row; finished runs are not repeated, and a later
run of some operators replaces their results. With ``--into`` the table replaces the text between the marks of that
page. A framework that is not installed, and a run that did not finish, have a row that says so. Exits with 1 if
something failed.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from optest.backends import backend_manager
from optest.errors import Unavailable
from optest.spec import BAD_STATUSES, CaseResult, Status
from optest.store import read_journal

FRAMEWORKS = {
    "numpy": (),
    "torch": ("", "inductor"),
    "onnxruntime": ("disabled", "basic", "extended", "all"),
    "onnx-reference": (),
    "jax": ("op_by_op", "jit"),
    "openvino": ("f32", "default"),
}
TIER = {"torch inductor": "smoke"}
"""Tiers of rows that would take days: a compiler takes seconds for each of more than twenty thousand calls."""
COLUMNS = ("backend", "version", "tier", "operators", "cases", "passed", "unsupported", "expected", "failed")
BEGIN, END = "<!-- made by tools/frameworks.py -->\n", "<!-- end -->\n"


def results_of(backend: str, variant: str, tier: str, folder: Path, jobs: int) -> list[CaseResult] | str:
    """Return the latest result of each case in the finished runs of a folder, or the reason why there is none.

    Runs the check first if there is none and ``jobs`` is not 0.
    """

    def kept() -> dict[str, CaseResult]:
        journals = [read_journal(path) for path in sorted(folder.glob("*/journal.jsonl"))]
        return {x.id: x for journal in journals if journal.summary for x in journal.results}

    if jobs and not kept():
        words = ["check", "--backend", backend, "--tier", tier, "--jobs", str(jobs), "--runs-dir", str(folder), "-qqq"]
        words += ["--variant", variant] if variant else []
        subprocess.run([sys.executable, "-m", "optest", *words], check=False, capture_output=True)
    return list(kept().values()) or "not run as a whole"


def row(backend: str, variant: str, tier: str, folder: Path, jobs: int) -> tuple[list[str], bool]:
    """Return the cells for one backend and variant, and whether something failed."""
    name = f"{backend} {variant}".strip()
    tier = TIER.get(name, tier)
    try:
        versions = backend_manager.get(backend).versions()
    except Unavailable as error:
        return [name, f"not installed: {error.remedy}", *[""] * (len(COLUMNS) - 2)], False
    version = versions.get(backend.replace("onnx-reference", "onnx"), "")
    results = results_of(backend, variant, tier, folder / f"{backend}-{variant or '-'}", jobs)
    if isinstance(results, str):
        return [name, version, tier, results, *[""] * (len(COLUMNS) - 4)], True
    counts: Counter[str] = Counter()
    for result in results:
        known = {Status.PASSED: "passed", Status.SKIPPED: "unsupported", Status.XFAILED: "expected"}
        counts["failed" if result.status in BAD_STATUSES else known.get(result.status, "failed")] += 1
    numbers = (len({result.operator for result in results}), len(results))
    figures = [f"{number:,}" for number in (*numbers, *(counts[name] for name in COLUMNS[5:]))]
    return [name, version, tier, *figures], counts["failed"] > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", metavar="BACKEND")
    parser.add_argument("--tier", choices=("smoke", "parity", "full"), default="parity")
    parser.add_argument("--jobs", type=int, default=2, help="0: run nothing, and use the kept journals")
    parser.add_argument("--kept", type=Path, metavar="FOLDER")
    parser.add_argument("--into", type=Path, metavar="PAGE.md")
    options = parser.parse_args()
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.backends or FRAMEWORKS:
            backend, _, named = name.partition(":")
            for variant in (named,) if named else FRAMEWORKS.get(backend, ()) or ("",):
                cells, is_bad = row(backend, variant, options.tier, options.kept or Path(temporary), options.jobs)
                failed |= is_bad
                lines.append(f"| {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    if options.into is not None:
        page = options.into.read_text()
        before, _, rest = page.partition(BEGIN)
        _, _, after = rest.partition(END)
        machine = f"`optest check`, seed 0, Python {platform.python_version()} on {processor()}:"
        options.into.write_text(f"{before}{BEGIN}{machine}\n\n" + "\n".join(lines) + f"\n{END}{after}")
    return int(failed)


def processor() -> str:
    """Return the number of cores and the name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
