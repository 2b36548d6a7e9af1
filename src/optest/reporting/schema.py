"""Types of the JSON report, from which its schema is built and by which it is validated.

Non-finite numbers are the strings ``"nan"``, ``"inf"`` and ``"-inf"``; inside free-form objects (``attributes``,
``details``, ``options``, ``host``) they are ``{"$float": "nan"}`` and so on, as in the journal.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from optest.errors import InternalError
from optest.spec import CheckState, Evidence, Reason, Status

REPORT_SCHEMA_VERSION: Final = 1

Number = float | Literal["nan", "inf", "-inf"]
Count = Annotated[int, msgspec.Meta(ge=0)]
Index = list[Count]


# A field that a report has but the schema lacks is an error.
class _Strict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class RuleEntry(_Strict):
    """Rule by which an output was compared."""

    name: str
    layer: str
    text: str


class MeasureEntry(_Strict):
    """Comparison of one output with its expected values."""

    output: str
    dtype: str
    shape: Index
    compared: Count
    mismatched: Count
    nonfinite_mismatched: Count
    worst_index: Index | None
    worst_actual: float | int | str | None
    worst_expected: float | int | str | None
    worst_bound: Number | None
    worst_used: Number | None
    worst_ulp: Number | None
    max_abs_error: Number | None
    max_abs_index: Index | None
    max_rel_error: Number | None
    max_rel_index: Index | None
    max_ulp_error: Number | None
    max_ulp_index: Index | None
    rmse: Number | None
    cosine: Number | None
    statistic: Number | None
    statistic_limit: Number | None
    where: str
    rule: RuleEntry | None


class CheckEntry(_Strict):
    """Check in addition to the values; ``detail`` has the reason why it failed or was not possible."""

    name: str
    state: CheckState
    detail: str


class TimingsEntry(_Strict):
    """Seconds spent in each phase, null for a phase that did not happen."""

    generate_s: Number | None
    reference_s: Number | None
    run_s: Number | None
    compare_s: Number | None
    compile_s: Number | None = None


class CallTimeEntry(_Strict):
    """Seconds of one call; ``spread_s`` is the interquartile range over the batches, null for a single one."""

    who: str
    median_s: float
    least_s: float
    spread_s: float | None
    calls: Count
    batches: Count
    warm_up_calls: Count
    gb_per_s: float | None
    gflop_per_s: float | None


class BenchmarkEntry(_Strict):
    """Time of the call of a case, and of another implementation in the same run."""

    time: CallTimeEntry | None
    against: CallTimeEntry | None
    ratio: float | None
    ratio_spread: float | None
    declared_bytes: Count | None
    declared_operations: Count | None
    lacks: list[str]
    baseline_difference: Number | None = None


class LayoutEntry(_Strict):
    """Strides and offset of an input, in elements; null strides are contiguous."""

    strides: list[int] | None
    offset: Count


class ExplanationEntry(_Strict):
    """Facts that the report derives from a failure; ``same_cause`` is the id of the case that represents its group."""

    meaning: str
    hints: dict[str, list[str]]
    output_layouts: dict[str, LayoutEntry]
    remedy: str
    pattern: str
    same_cause: str


class CaseEntry(_Strict):
    """Case with its verdict."""

    id: str
    key: str
    operator: str
    status: Status
    reason: Reason | None
    message: str
    evidence: Evidence | None
    seed: int
    dtypes: list[str]
    shapes: dict[str, Index]
    attributes: dict[str, Any]
    # Texts of the rules of all outputs; empty if nothing was measured.
    tolerance: str
    measures: list[MeasureEntry]
    checks: list[CheckEntry]
    details: dict[str, Any]
    target: str
    backend: str
    kind: str
    chip: str | None
    device: str | None
    reference: str
    mode: str
    isolation: str
    attempts: Count
    round: Count
    timings: TimingsEntry
    benchmark: BenchmarkEntry | None
    repro: str
    duplicate_of: str | None
    tags: list[str]
    description: str
    where: str
    identifier: str
    # Only inputs that are not contiguous from the start of their storage.
    layouts: dict[str, LayoutEntry] = {}
    # Seconds from the start of the run.
    began_s: float | None = None
    # Ids of the devices of the case.
    devices: list[Count] = []
    # Maps of the errors of wrong outputs, as in the journal.
    pictures: list[dict[str, Any]] = []
    # Only for failures.
    explanation: ExplanationEntry | None = None


class RunEntry(_Strict):
    """Run: its target, seed, plan, options, versions and machine."""

    id: str
    started_at: str
    target: str
    seed: int
    plan: str
    directory: str
    isolation: str
    jobs: Count
    optest_version: str
    versions: dict[str, str]
    host: dict[str, Any]
    options: dict[str, Any]
    notes: list[str]


class GroupEntry(_Strict):
    """Counts of the cases of one operator or model.

    ``shared`` cases share the execution of another case; ``signatures`` counts distinct calls. ``not_run`` counts cases
    that show nothing of the backend, by kind of reason; ``pass_rate`` is the share of passed cases among the others.
    """

    executed: Count
    shared: Count
    operators: Count
    signatures: Count
    pass_rate: float | None
    spent_s: Annotated[float, msgspec.Meta(ge=0)]
    by_status: dict[str, Count]
    not_run: dict[str, Count]


class FiguresEntry(GroupEntry):
    """Counts of all cases, of each operator and of each model; the operators that the backend declares, if it does."""

    operators_declared: Count | None
    operators_declared_covered: Count | None
    by_operator: dict[str, GroupEntry]
    by_model: dict[str, GroupEntry]


class SummaryEntry(_Strict):
    """Counts of all cases, and the end of the run."""

    total: Count
    finished: Count
    interrupted: bool
    exit_status: Count
    duration_s: Annotated[float, msgspec.Meta(ge=0)] | None
    by_status: dict[str, Count]
    by_reason: dict[str, Count]
    by_operator: dict[str, dict[str, Count]]
    figures: FiguresEntry | None = None
    # Events of devices.
    notes: list[str] = []


class Report(_Strict):
    """Report of optest."""

    schema_version: Literal[1]
    run: RunEntry
    summary: SummaryEntry
    cases: list[CaseEntry]


REPORT_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "optest report",
    **msgspec.json.schema(Report),
}


def require_fit(report: Any) -> None:
    """Validate a report against its types; non-finite numbers are left to the JSON encoder.

    Raises:
        InternalError: with the path of the first value that does not fit.
    """
    try:
        msgspec.convert(report, Report, strict=True)
    except msgspec.ValidationError as error:
        raise InternalError(f"report does not fit its schema: {error}") from None
