"""Results and runs made by hand, with nothing of the engine in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optest.spec import CaseResult, Evidence, Measure, RuleUsed, RunInfo, RunSummary, Status, Timings, Verdict
from optest.store import JournalWriter

RULE = RuleUsed(name="operator matmul", layer="operator", text="float16 in, float32 accumulate, k=128")
REPRO = (
    "optest run --op matmul --dtype float16,float16 --shape input0=64x128 --shape input1=128x32 "
    "--seed 7 --backend torch"
)


def make_measure(**changes: Any) -> Measure:
    base = {"output": "out", "dtype": "float16", "shape": (64, 32), "compared": 2048, "rule": RULE}
    return Measure(**{**base, **changes})


def make_result(**changes: Any) -> CaseResult:
    """A passed matmul; what belongs to the verdict may be given flat (status, reason, message, …)."""
    own = {
        name: changes.pop(name)
        for name in ("status", "reason", "message", "measures", "checks", "details")
        if name in changes
    }
    status = own.pop("status", own["reason"].status if "reason" in own else Status.PASSED)
    if status is Status.PASSED:
        own = {"evidence": Evidence.MEASURED, "measures": (make_measure(worst_used=0.25),), **own}
    base = {
        "id": "matmul[float16](64x128, 128x32)",
        "key": "k1:00",
        "operator": "matmul",
        "target": "torch:cpu",
        "reference": "numpy",
        "mode": "forward",
        "verdict": Verdict(status=status, **own),
        "seed": 7,
        "dtypes": ("float16", "float16"),
        "shapes": {"input0": (64, 128), "input1": (128, 32)},
        "backend": "torch",
        "kind": "cpu",
        "device": "cpu",
        "timings": Timings(generate_s=0.0001, reference_s=0.0002, run_s=0.0008, compare_s=0.0001),
        "repro": "" if status is Status.PASSED else REPRO,
    }
    return CaseResult(**{**base, **changes})


def run_info(**changes: Any) -> RunInfo:
    base = {
        "run_id": "20260131T000000Z-ab",
        "started_at": "2026-01-31T23:59:58.123+00:00",
        "total": 3,
        "target": "torch:cpu",
        "seed": 7,
        "directory": ".optest/runs/20260131T000000Z-ab",
    }
    return RunInfo(**{**base, **changes})


def summary_of(results: Sequence[CaseResult], **changes: Any) -> RunSummary:
    return RunSummary.of(results, **{"total": len(results), "duration_s": 1.5, **changes})


def report_run(
    reporter: Any, info: RunInfo, results: Sequence[CaseResult], *, resumed: int = 0, missing: int = 0, **summary: Any
) -> None:
    """Report a run that reads its first results from a journal, and ends before its last.

    The results are handed on at the end only if the reporter did not hear of all.
    """
    total = len(results) + missing
    reporter.on_start(info)
    for index, each in enumerate(results[resumed:], resumed):
        reporter.on_case_result(each, index, total)
    reporter.on_complete(summary_of(results, total=total, **summary), *([results] if resumed else []))


def write_journal(path: Path, info: RunInfo, results: Sequence[CaseResult], summary: RunSummary | None = None) -> None:
    """Write a journal, which without a summary is that of a run that was killed."""
    with JournalWriter(path) as writer:
        writer.start(info)
        writer.results_at_once(results)
        if summary is not None:
            writer.end(summary)
