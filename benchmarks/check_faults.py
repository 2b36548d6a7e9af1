"""Which faults does ``optest check`` find? Every generic fault of every operator, one at a time, by default settings.

    python benchmarks/check_faults.py [OPERATOR ...]

Prints a table of faults found and asked, and those that no case showed. A fault is asked only where some operator input
or attribute lets it exist; one that changes no output of any case counts as not found.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))

from wrong_kernels import first_findings
from wrong_kernels.any_operator import faults_of

from optest.api import bootstrap
from optest.operators.catalogue import DESCRIPTORS


def main(names: list[str]) -> None:
    bootstrap()
    began = time.monotonic()
    found: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    missed: dict[str, list[str]] = {}
    for descriptor in DESCRIPTORS:
        if descriptor.samples is None or (names and descriptor.name not in names):
            continue
        faults = list(faults_of(descriptor))
        findings = first_findings(descriptor.name, faults)
        for fault in faults:
            kind = fault.name.partition(": ")[2]
            kind = (
                "an attribute or optional input ignored" if kind.endswith(" ignored") and "offset" not in kind else kind
            )
            asked[kind] += 1
            if fault.name in findings:
                found[kind] += 1
            else:
                missed.setdefault(kind, []).append(fault.name)
    print("| fault | found | asked |")
    print("|---|---|---|")
    for kind, count in asked.items():
        print(f"| {kind} | {found[kind]} | {count} |")
    print(
        f"\n{sum(found.values()):,} of {sum(asked.values()):,} found in {time.monotonic() - began:.0f} s; not found:\n"
    )
    for kind, which in missed.items():
        print(f"- {kind}: {', '.join(name.partition(': ')[0] if ' ignored' not in name else name for name in which)}")


if __name__ == "__main__":
    main(sys.argv[1:])
