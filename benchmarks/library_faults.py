"""Which faults of the example C library does ``optest check`` find by default settings, one at a time?

    python benchmarks/library_faults.py             # prints a page of Markdown at the end
    python benchmarks/library_faults.py add relu    # only faults whose name begins so, without the page

Builds a copy of the example with its broken twin, checks the correct library, which has to pass, and then the broken
one with each fault in turn (``INFINIOP_FAULT``). optest knows nothing of these faults. A check of a fault runs only the
operators that have it, stops at the first bad case, and has a time limit of ten seconds a case, because some hang.
A fault counts as found if a case is bad; with the correct library no case may be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import kit

from optest.clib.library.mapping_file import mapping_path, read_mapping
from optest.operators import operators
from optest.spec import BAD_STATUSES
from optest.store import read_journal

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "c_library"
MAPPING = "infiniop"
_LONGEST_MESSAGE = 150
WHY_NOT = {
    "rms_norm_refuses_vectors": "the mapping promises tensors of two and three dimensions, as the real library takes "
    "them; a call with a vector is a gap",
}
"""Known misses, and the decision that lets them pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A line of ``make faults``."""

    name: str
    operators: str
    kind: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Numbers of all and of bad cases in a check of one library, and the first bad one."""

    cases: int = 0
    bad: int = 0
    reason: str = ""
    case: str = ""
    message: str = ""
    seconds: float = 0.0

    @property
    def is_found(self) -> bool:
        return self.bad > 0


def build(folder: Path, *targets: str) -> Path:
    """Build these targets in a copy of the example, and return the copy."""
    copy = folder / "c_library"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("build", "lib", "broken", "asan"))
    subprocess.run(["make", "-s", f"-j{os.cpu_count()}", *targets], cwd=copy, check=True, timeout=300)
    return copy


def faults_of(library: Path) -> list[Fault]:
    listed = subprocess.run(["make", "-s", "faults"], cwd=library, check=True, capture_output=True, text=True)
    rows = [line.split("\t") for line in listed.stdout.splitlines()]
    return [Fault(name=name, operators=where, kind=kind, sentence=what) for name, where, kind, what in rows]


def operators_of(fault: Fault) -> list[str]:
    """Return optest's operators that the library computes with code that has the fault; none for all of them."""
    entries = read_mapping(mapping_path(MAPPING, "")).operators
    wanted = {name.strip().replace("_", "") for name in fault.operators.split(",")}
    known = {op.name for op in operators}
    return [name for name, (entry, *_) in entries.items() if entry.name.lower() in wanted and name in known]


def check(
    library: Path, headers: Path, folder: Path, *, names: Sequence[str] = (), fault: str = "", jobs: int = 1
) -> Finding:
    """Check these operators of a library, or all, in a new process; with a fault only until the first bad case."""
    runs = Path(tempfile.mkdtemp(dir=folder))
    command = [
        *(sys.executable, "-m", "optest", "check", "--backend", "ffi", "--library", str(library)),
        *("--headers", str(headers), "--mapping", MAPPING, "--runs-dir", str(runs)),
        *("--jobs", str(jobs), "--timeout", "10", "--isolate", "worker"),
        *(word for name in names for word in ("--op", name)),
        *(("-x",) if fault else ()),
    ]
    environment = {key: value for key, value in os.environ.items() if key not in ("INFINIOP_FAULT", "INFINI_ROOT")}
    if fault:
        environment["INFINIOP_FAULT"] = fault
    began = time.perf_counter()
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    journals = sorted(runs.glob("*/journal.jsonl"))
    results = read_journal(journals[-1]).results if journals else []
    shutil.rmtree(runs, ignore_errors=True)
    if not results:
        print(f"no case ran:\n{(done.stdout + done.stderr)[-2000:]}", file=sys.stderr)
    bad = [result for result in results if result.status in BAD_STATUSES]
    if not bad:
        return Finding(cases=len(results), seconds=seconds)
    first = bad[0]
    return Finding(
        cases=len(results),
        bad=len(bad),
        reason=first.reason.value if first.reason else first.status.value,
        case=first.id,
        message=first.verdict.message.partition("\n")[0],
        seconds=seconds,
    )


def row(fault: Fault, finding: Finding) -> str:
    if not finding.is_found:
        return f"| `{fault.name}` | {fault.kind} | **no** | | | {fault.sentence} |"
    message = finding.message[:_LONGEST_MESSAGE].replace("|", "\\|")
    return f"| `{fault.name}` | {fault.kind} | yes | `{finding.reason}` | `{finding.case}` | {message} |"


def page(right: Finding, findings: Sequence[tuple[Fault, Finding]]) -> str:
    """Return the table of all faults below a summary."""
    kinds: dict[str, list[bool]] = {}
    for fault, finding in findings:
        kinds.setdefault(fault.kind, []).append(finding.is_found)
    hits = sum(finding.is_found for _, finding in findings)
    misses = [fault for fault, finding in findings if not finding.is_found]
    lines = [
        "# Faults of a C library, and the cases that find them",
        "",
        f"`optest check` over the correct library: {right.cases:,} cases, **{right.bad} of them bad**.",
        "Over its broken twin, one fault at a time and with the same settings:",
        f"**{hits} of {len(findings)} faults found**.",
        "",
        kit.table(("kind", "faults", "found"), [(kind, len(found), sum(found)) for kind, found in kinds.items()]),
        "",
        *(f"- not found: `{x.name}` ({x.operators}): {x.sentence}; {WHY_NOT.get(x.name, '')}" for x in misses),
        "",
        "| fault | kind | found | Reason | first case | message |",
        "|---|---|---|---|---|---|",
        *(row(fault, finding) for fault, finding in findings),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = kit.parser(__doc__)
    parser.add_argument("faults", nargs="*", help="only faults whose name begins so; prints no page")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="checks at the same time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="optest-faults-") as scratch:
        folder = Path(scratch)
        library = build(folder, "all", "broken").resolve()
        faults = faults_of(library)
        chosen = [x for x in faults if not options.faults or x.name.startswith(tuple(options.faults))]

        def check_fault(fault: Fault) -> Finding:
            finding = check(
                library / "broken", library / "include", folder, names=operators_of(fault), fault=fault.name
            )
            print(f"{row(fault, finding)} {finding.seconds:.1f} s", flush=True)
            return finding

        right = None if options.faults else check(library, library / "include", folder, jobs=options.jobs)
        with ThreadPoolExecutor(options.jobs) as pool:
            findings = list(zip(chosen, pool.map(check_fault, chosen), strict=True))
    hits = sum(finding.is_found for _, finding in findings)
    print(f"{hits} of {len(findings)} found")
    if right is not None:
        print(page(right, findings))
    return 0 if hits == len(findings) and (right is None or not right.bad) else 1


if __name__ == "__main__":
    sys.exit(main())
