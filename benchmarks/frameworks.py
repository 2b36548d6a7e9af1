"""What `optest check` says of every framework that is shipped as a backend, as one table of Markdown.

    python benchmarks/frameworks.py                 # tier parity; the better part of an hour on two cores
    python benchmarks/frameworks.py --tier smoke    # seconds for each
    python benchmarks/frameworks.py numpy jax:jit   # these alone

A framework that is not installed has a row that says so. Exits with 1 if something failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from optest.backends import backend_manager
from optest.errors import Unavailable
from optest.spec import BAD_STATUSES, Status
from optest.store import RunDirectory, read_journal

ASKED = {
    "numpy": (),
    "torch": (),
    "onnx-reference": (),
    "onnxruntime": ("disabled", "basic", "extended", "all"),
    "openvino": ("f32",),
    "jax": ("op_by_op", "jit"),
}


def row(backend: str, variant: str, tier: str, jobs: int) -> tuple[list[str], bool]:
    """The cells for one backend and variant, and whether something failed."""
    name = f"{backend} {variant}".strip()
    try:
        versions = backend_manager.get(backend).versions()
    except Unavailable as error:
        return [name, f"not installed: {error.remedy}", *[""] * 6], False
    with tempfile.TemporaryDirectory() as folder:
        words = ["check", "--backend", backend, "--tier", tier, "--jobs", str(jobs), "--runs-dir", folder, "-qqq"]
        words += ["--variant", variant] if variant else []
        ended = subprocess.run([sys.executable, "-m", "optest", *words], check=False, capture_output=True, text=True)
        (directory,) = (each for each in Path(folder).iterdir() if (each / "journal.jsonl").exists())
        journal = read_journal(RunDirectory(directory).journal_path)
        assert journal.summary is not None, f"{name} did not come to its end:\n{ended.stderr[-2000:]}"
    counts: Counter[str] = Counter()
    for each in journal.results:
        known = {Status.PASSED: "passed", Status.SKIPPED: "gaps", Status.XFAILED: "expected"}
        counts["failed" if each.status in BAD_STATUSES else known.get(each.status, "failed")] += 1
    version = versions.get(backend.replace("onnx-reference", "onnx"), "")
    cells = [
        name,
        version,
        str(len({each.operator for each in journal.results})),
        *(
            f"{count:,}"
            for count in (len(journal.results), *(counts[key] for key in ("passed", "gaps", "expected", "failed")))
        ),
        f"{journal.summary.duration_s:.0f} s",
    ]
    return cells, counts["failed"] > 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", metavar="BACKEND")
    parser.add_argument("--tier", choices=("smoke", "parity", "full"), default="parity")
    parser.add_argument("--jobs", type=int, default=2)
    stated = parser.parse_args()
    print(f"`optest check --tier {stated.tier} --jobs {stated.jobs}`, seed 0\n")
    print("| backend | version | operators | asked | passed | gaps | expected | failed | time |")
    print("|---|---|---|---|---|---|---|---|---|")
    failed = False
    for name in stated.backends or ASKED:
        backend, _, named = name.partition(":")
        for variant in (named,) if named else ASKED.get(backend, ()) or ("",):
            cells, is_bad = row(backend, variant, stated.tier, stated.jobs)
            failed |= is_bad
            print(f"| {' | '.join(cells)} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
