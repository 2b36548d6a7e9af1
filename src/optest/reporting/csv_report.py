"""CSV report of a run: one line for each case, with the times of all variants of the backend."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable

from optest.reporting.bench_table import median_s, with_baselines
from optest.reporting.tally import in_plan_order
from optest.reporting.typography import printable, without_ansi
from optest.spec import CaseResult, RunInfo, RunSummary

# Times are medians in seconds; `optimized_s` is that of the default variant, or of the only one. Empty: not known.
COLUMNS = (
    "id",
    "operator",
    "target",
    "status",
    "reason",
    "baseline_status",
    "reference_s",
    "baseline_s",
    "optimized_s",
    "speedup",
    "difference",
)


def csv_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:  # noqa: ARG001 - a format's
    """Return the CSV text of a run; a case that also ran on the baseline variant has one line for both results."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(COLUMNS)
    for result, baseline in with_baselines(in_plan_order(results), info.options.get("variants") or ()):
        default_s, baseline_s = median_s(result), median_s(baseline)
        cells = [
            result.id,
            result.operator,
            result.target,
            result.status.value,
            result.reason.value if result.reason else None,
            baseline.status.value if baseline else None,
            result.timings.reference_s,
            baseline_s,
            default_s,
            baseline_s / default_s if default_s and baseline_s else None,
            result.benchmark.baseline_difference if result.benchmark else None,
        ]
        lines.writerow([csv_cell(cell) for cell in cells])
    return out.getvalue()


# Excel and LibreOffice evaluate a cell that begins with one of these, also in their full-width forms.
_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")


def csv_cell(value: str | float | None) -> str | float | None:
    """Return ``value`` as a cell that a spreadsheet shows as text.

    Control characters are escaped, and an apostrophe precedes text that would be evaluated as a formula.
    """
    if not isinstance(value, str):
        return value
    text = printable(without_ansi(value))
    try:
        float(text)  # a negative number begins like a formula, but is none
    except ValueError:
        return f"'{text}" if _FORMULA.match(text) else text
    return text
