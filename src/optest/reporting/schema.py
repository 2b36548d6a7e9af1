"""The JSON report: one set of types from which its schema is made and by which it is validated, so they cannot drift.

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


class _Strict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    pass


class RuleEntry(_Strict):
    """The rule that judged an output."""

    name: str
    layer: str
    text: str


class RoundingEntry(_Strict):
    """How inexact results were rounded: counts, and the root mean square of their errors."""

    inexact: Count
    above: Count
    away: Count
    nearest_above: Count
    nearest_away: Count
    astray: Count
    draws: Count
    rms_ulp: float


class MeasureEntry(_Strict):
    """Numbers about one output against what was expected."""

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
    rounding: RoundingEntry | None = None


class CheckEntry(_Strict):
    """Something that was looked at beside the values, or why it could not be."""

    name: str
    state: CheckState
    detail: str


class TimingsEntry(_Strict):
    """Seconds spent in each phase, null where it did not happen."""

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
    """What the call of the case costs, and another implementation in the same run."""

    time: CallTimeEntry | None
    against: CallTimeEntry | None
    ratio: float | None
    ratio_spread: float | None
    declared_bytes: Count | None
    declared_operations: Count | None
    lacks: list[str]
    baseline_difference: Number | None = None


class LayoutEntry(_Strict):
    """How an input lies in its storage, in elements; null strides are those of a tensor without gaps."""

    strides: list[int] | None
    offset: Count


class CaseEntry(_Strict):
    """One case with its verdict."""

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
    tolerance: str
    """The rules that judged the outputs, in words; empty if nothing was measured."""
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
    layouts: dict[str, LayoutEntry] = {}
    """Of inputs that are not row after row from the start of their storage."""
    began_s: float | None = None
    """Seconds from the start of the run; ``devices`` are the ids of those that the case had."""
    devices: list[Count] = []


class RunEntry(_Strict):
    """The run: what was asked, and on what machine."""

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
    """The cases of one operator or model: executed, sharing an execution, how they ended, seconds of executions.

    ``pass_rate`` is the share of those that are not in ``not_run``, which has how many show nothing, by kind of reason;
    ``signatures`` counts distinct calls.
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
    """All cases, and each operator and model; how many operators the backend declares, if it says."""

    operators_declared: Count | None
    operators_declared_covered: Count | None
    by_operator: dict[str, GroupEntry]
    by_model: dict[str, GroupEntry]


class SummaryEntry(_Strict):
    """What the cases add up to."""

    total: Count
    finished: Count
    interrupted: bool
    exit_status: Count
    duration_s: Annotated[float, msgspec.Meta(ge=0)] | None
    by_status: dict[str, Count]
    by_reason: dict[str, Count]
    by_operator: dict[str, dict[str, Count]]
    figures: FiguresEntry | None = None
    notes: list[str] = []
    """What happened to devices."""


class Report(_Strict):
    """A report of optest."""

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
    """Hold a report against the schema; numbers that JSON does not have are refused by the writer.

    Raises:
        InternalError: naming the first place that does not fit.
    """
    try:
        msgspec.convert(report, Report, strict=True)
    except msgspec.ValidationError as error:
        raise InternalError(f"report does not fit its schema: {error}") from None
