"""Every single fault of the example C library, looked for by ``optest check`` with its default settings.

    python benchmarks/library_faults.py             # prints a page of Markdown at the end
    python benchmarks/library_faults.py add relu    # only faults whose name begins so, without the page

Builds a copy of the example with its broken twin, checks the correct library, which has to pass, and then the broken
one with each fault in turn (``INFINIOP_FAULT``). A check is limited to the operators that the fault is in, stops at the
first case that is not well, and has a deadline of ten seconds a case, so that what hangs takes no five minutes.
A fault counts as found if a case is not well; nothing may be with the correct library.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from optest.clib.library.mapping_file import mapping_path, read_mapping
from optest.operators import operators
from optest.spec import BAD_STATUSES, CaseResult
from optest.store import read_journal

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "c_library"
MAPPING = "infiniop"
_SAID = 150
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
    """What a check made of one library: how many cases were asked and were not well, and the first of those."""

    name: str
    """The fault; empty for the correct library."""
    asked: int = 0
    bad: int = 0
    reason: str = ""
    case: str = ""
    said: str = ""
    seconds: float = 0.0

    @property
    def is_found(self) -> bool:
        return self.bad > 0


def build(folder: Path) -> Path:
    """A built copy of the example and its broken twin."""
    copy = folder / "c_library"
    shutil.copytree(EXAMPLE, copy, ignore=shutil.ignore_patterns("build", "lib", "broken", "asan"))
    subprocess.run(["make", "-s", f"-j{os.cpu_count()}", "all", "broken"], cwd=copy, check=True, timeout=300)
    return copy


def faults_of(library: Path) -> list[Fault]:
    listed = subprocess.run(["make", "-s", "faults"], cwd=library, check=True, capture_output=True, text=True)
    rows = [line.split("\t") for line in listed.stdout.splitlines()]
    return [Fault(name=name, operators=where, kind=kind, sentence=what) for name, where, kind, what in rows]


def asked_for(fault: Fault) -> list[str]:
    """Operators of optest that the library computes with what the fault is in; none for all of them."""
    entries = read_mapping(mapping_path(MAPPING, "")).operators
    wanted = {each.strip().replace("_", "") for each in fault.operators.split(",")}
    return [
        name
        for name, (entry, *_) in entries.items()
        if entry.name.lower() in wanted and name in {op.name for op in operators}
    ]


def check(
    library: Path, headers: Path, folder: Path, *, names: Sequence[str] = (), fault: str = "", jobs: int = 1
) -> Finding:
    """Ask one library of these operators, or of all, in a process of its own; with a fault until something is found."""
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
        print(f"nothing was asked:\n{(done.stdout + done.stderr)[-2000:]}", file=sys.stderr)
    bad = [each for each in results if each.status in BAD_STATUSES]
    finding = Finding(name=fault, asked=len(results), bad=len(bad), seconds=seconds)
    return finding if not bad else _with_first(finding, bad[0])


def _with_first(finding: Finding, first: CaseResult) -> Finding:
    reason = first.reason.value if first.reason else first.status.value
    said = first.verdict.message.partition("\n")[0]
    return replace(finding, reason=reason, case=first.id, said=said)


def row(fault: Fault, finding: Finding) -> str:
    if not finding.is_found:
        return f"| `{fault.name}` | {fault.kind} | **no** | | | {fault.sentence} |"
    said = finding.said[:_SAID].replace("|", "\\|")
    return f"| `{fault.name}` | {fault.kind} | yes | `{finding.reason}` | `{finding.case}` | {said} |"


def _why_not(fault: Fault) -> str:
    return f"; {WHY_NOT[fault.name]}" if fault.name in WHY_NOT else ""


def page(right: Finding, findings: Sequence[tuple[Fault, Finding]]) -> str:
    """The table of all faults, with a summary above it."""
    kinds: dict[str, list[bool]] = {}
    for fault, finding in findings:
        kinds.setdefault(fault.kind, []).append(finding.is_found)
    hits = sum(finding.is_found for _, finding in findings)
    misses = [fault for fault, finding in findings if not finding.is_found]
    return "\n".join(
        [
            "# Faults of a C library, and what finds them",
            "",
            f"`optest check` over the correct library: {right.asked:,} cases, **{right.bad} of them not well**.",
            "Over its broken twin, one fault at a time and with the same settings:",
            f"**{hits} of {len(findings)} faults found**.",
            "",
            "A check of one fault asks only the operators that it is in and stops at the first case that is not well.",
            "optest knows nothing of these faults: what is asked follows from the operators' calls, from the mapping",
            "and from what C lets a caller do.",
            "",
            "| kind | faults | found |",
            "|---|---|---|",
            *(f"| {kind} | {len(found)} | {sum(found)} |" for kind, found in kinds.items()),
            "",
            *(["Not found:", ""] if misses else []),
            *(f"- `{each.name}` ({each.operators}): {each.sentence}{_why_not(each)}" for each in misses),
            *([""] if misses else []),
            "| fault | kind | found | Reason | first case | what was said |",
            "|---|---|---|---|---|---|",
            *(row(fault, finding) for fault, finding in findings),
            "",
        ]
    )


class Log:
    """Findings on disk, one on each line, so that a run that was stopped goes on where it was."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.known = {each.name: each for each in (Finding(**json.loads(line)) for line in lines)}

    def add(self, finding: Finding) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(finding)) + "\n")


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("faults", nargs="*", help="only faults whose name begins so; prints no page")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="checks at the same time")
    parser.add_argument("--library", type=Path, help="a built copy of the example; default: one that is built now")
    parser.add_argument("--log", type=Path, help="keep findings here; what is in it already is not asked again")
    stated = parser.parse_args(None if arguments is None else list(arguments))
    log = Log(stated.log)
    with tempfile.TemporaryDirectory(prefix="optest-faults-") as scratch:
        folder = Path(scratch)
        library = (stated.library or build(folder)).resolve()
        faults = faults_of(library)
        chosen = [each for each in faults if not stated.faults or each.name.startswith(tuple(stated.faults))]

        def asked(fault: Fault | None) -> Finding:
            name = fault.name if fault else ""
            if name in log.known:
                return log.known[name]
            if fault is None:
                finding = check(library, library / "include", folder, jobs=stated.jobs)
                print(f"correct library: {finding.asked} cases, {finding.bad} not well, {finding.seconds:.0f} s")
            else:
                where = library / "broken"
                finding = check(where, library / "include", folder, names=asked_for(fault), fault=name)
                print(f"{row(fault, finding)} {finding.seconds:.1f} s", flush=True)
            log.add(finding)
            return finding

        right = None if stated.faults else asked(None)
        with ThreadPoolExecutor(stated.jobs) as pool:
            findings = list(zip(chosen, pool.map(asked, chosen), strict=True))
    hits = sum(finding.is_found for _, finding in findings)
    print(f"{hits} of {len(findings)} found")
    if right is not None:
        print(page(right, findings))
    return 0 if hits == len(findings) and (right is None or not right.bad) else 1


if __name__ == "__main__":
    sys.exit(main())
