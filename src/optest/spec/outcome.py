"""What came out: statuses, reasons, measures, checks, and a result that cannot claim what was not shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from optest.spec.benchmark import Benchmark
from optest.spec.picture import Picture


class Status(str, Enum):
    """What the reports group by."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    SUSPECT = "suspect"
    UNCHECKED = "unchecked"


BAD_STATUSES = frozenset({Status.FAILED, Status.ERROR, Status.CRASHED, Status.TIMEOUT, Status.SUSPECT, Status.XPASSED})
"""Statuses that make a run end with exit status 1."""


MERGED_TAGS, MERGED_KEYS = "cases", "keys"
"""Details of a skip that represents several cases: their number by the tag of their case set, and their keys by id."""


class Reason(str, Enum):
    """What people act on."""

    VALUE = "VALUE"
    NAN = "NAN"
    SHAPE = "SHAPE"
    DTYPE = "DTYPE"
    MISSING_OUTPUT = "MISSING_OUTPUT"
    EXTRA_OUTPUT = "EXTRA_OUTPUT"
    NOTHING_COMPARED = "NOTHING_COMPARED"
    INPUT_MUTATED = "INPUT_MUTATED"
    OUT_OF_BOUNDS = "OUT_OF_BOUNDS"
    READ_OUT_OF_BOUNDS = "READ_OUT_OF_BOUNDS"
    UNWRITTEN = "UNWRITTEN"
    WORKSPACE = "WORKSPACE"
    STATE = "STATE"
    NONDETERMINISTIC = "NONDETERMINISTIC"
    INVARIANT = "INVARIANT"
    LEAK = "LEAK"
    SANITIZER = "SANITIZER"
    NOT_REFUSED = "NOT_REFUSED"
    WRONG_ERROR = "WRONG_ERROR"
    WRONG_DEVICE = "WRONG_DEVICE"
    FALLBACK = "FALLBACK"
    COMPILE = "COMPILE"
    SIGNAL = "SIGNAL"
    EXIT_CODE = "EXIT_CODE"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DEVICE_LOST = "DEVICE_LOST"
    RAISED = "RAISED"
    UNSUPPORTED = "UNSUPPORTED"
    UNAVAILABLE = "UNAVAILABLE"
    REFERENCE_FAILED = "REFERENCE_FAILED"
    BAD_CASE = "BAD_CASE"
    INTERNAL = "INTERNAL"

    @property
    def status(self) -> Status:
        """The status that goes with this reason unless who finds it says otherwise."""
        return _STATUS_OF.get(self, Status.FAILED)


_STATUS_OF = {
    Reason.COMPILE: Status.ERROR,
    Reason.SIGNAL: Status.CRASHED,
    Reason.EXIT_CODE: Status.ERROR,
    Reason.DEADLINE: Status.TIMEOUT,
    Reason.OUT_OF_MEMORY: Status.ERROR,
    Reason.DEVICE_LOST: Status.CRASHED,
    Reason.RAISED: Status.ERROR,
    Reason.UNSUPPORTED: Status.SKIPPED,
    Reason.UNAVAILABLE: Status.SKIPPED,
    Reason.REFERENCE_FAILED: Status.ERROR,
    Reason.BAD_CASE: Status.ERROR,
    Reason.INTERNAL: Status.ERROR,
}


class Evidence(str, Enum):
    """What a pass rests on."""

    MEASURED = "measured"
    RAISED_AS_EXPECTED = "raised as expected"
    REFUSED_AS_EXPECTED = "refused as expected"
    SPECS_COMPARED = "shapes and dtypes compared, no values"
    EXTERNAL_REPORT = "external report"
    INVARIANT = "invariants alone"


_PASSED, _MEASURED = Status.PASSED, Evidence.MEASURED
"""Members by themselves: asking an enumeration for one costs as much as calling a function."""


class Fault(Exception):
    """The backend did not deliver, and this is why; raised by drivers, turned into a verdict by the runner.

    ``details`` are facts for the report: ``exit_code``, ``signal``, ``stderr_tail``, ``command``, ``path``. They are
    kept as plain data: numbers, text, lists and mappings; anything else as its ``repr``. Where elements of outputs were
    never written, ``written`` has each output by name with the mask of these elements: the others can be judged.

    Raises:
        ValueError: for a status that is no failure; only UNSUPPORTED and UNAVAILABLE may skip a case.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        status: Status | None = None,
        details: Mapping[str, Any] | None = None,
        written: Mapping[str, tuple[Any, Any]] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.written = written or {}
        self.message = _printable(message)
        self.status = status or reason.status
        self.details: dict[str, Any] = _plain(details or {})
        if self.status not in _FAULT_STATUSES and not (self.status is Status.SKIPPED is reason.status):
            raise ValueError(
                f"the status of a {reason.value} fault is {self.status.value}, but should be "
                f"{', '.join(sorted(each.value for each in _FAULT_STATUSES))}: {self.message}"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_fault, (self.reason, self.message, self.status, self.details))


_FAULT_STATUSES = frozenset({Status.FAILED, Status.ERROR, Status.CRASHED, Status.TIMEOUT})
_LONGEST_TEXT = 100_000


def _printable(text: object) -> str:
    """Text that UTF-8 can hold, of bounded length; foreign code hands over lone surrogates and megabytes."""
    whole = text if type(text) is str else str(text)
    return whole[:_LONGEST_TEXT].encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float):
        return value
    if type(value) is str:
        return _printable(value)
    if isinstance(value, Mapping):
        return {_printable(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, (int, float)):
        return float(value) if isinstance(value, float) else int(value)
    item = getattr(value, "item", None)  # a NumPy scalar
    number = item() if callable(item) and getattr(value, "ndim", None) == 0 else None
    return number if type(number) in (bool, int, float) else _printable(repr(value))


def _rebuild_fault(reason: Reason, message: str, status: Status, details: dict[str, Any]) -> Fault:
    return Fault(reason, message, status=status, details=details)


class CheckState(str, Enum):
    DONE = "done"
    FAILED = "failed"
    NOT_POSSIBLE = "not possible"
    INCONCLUSIVE = "inconclusive"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at beside the values, or why it could not be."""

    name: str
    state: CheckState
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleUsed:
    """The rule that judged an output: its name, who stated it, what it allows and from which numerics."""

    name: str
    layer: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """How inexact results were rounded, seen from their true values.

    ``inexact`` counts results whose true value the output dtype cannot hold; exact ties are left out. ``above`` of
    them lie above the true value, ``away`` farther from zero than it; of the same values rounded to the nearest it
    would be ``nearest_above`` and ``nearest_away``, about one half. ``astray`` lie on the other side than the
    nearest. ``draws`` is how many of them may count as independent: equal values have equal errors. ``rms_ulp`` is
    the root mean square of their errors; rounded to the nearest it is about 0.29.

    Raises:
        ValueError: for an ``rms_ulp`` that is not finite.
    """

    inexact: int
    above: int
    away: int
    nearest_above: int
    nearest_away: int
    astray: int
    draws: int
    rms_ulp: float

    def __post_init__(self) -> None:
        if not self.rms_ulp < float("inf"):
            raise ValueError(f"rms_ulp is {self.rms_ulp}, but should be finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Numbers about one output against what was expected; no opinion but ``mismatched``, which counts by the rule.

    Errors are |actual - expected|; ``ulp`` counts units in the last place of the output dtype at the expected
    value. Each largest error comes with its index. ``worst_*`` describe the element that exceeds its bound by
    the largest factor (or uses most of it): ``worst_used`` is error / bound. ``statistic`` is the tensor-wide
    z of the class rules with its ``statistic_limit``; ``rounding`` stands where true values are known, in more digits
    than the output has. Values are None where they were not computed.
    """

    output: str
    dtype: str
    shape: tuple[int, ...]
    compared: int
    mismatched: int = 0
    nonfinite_mismatched: int = 0
    worst_index: tuple[int, ...] | None = None
    worst_actual: float | int | str | None = None
    worst_expected: float | int | str | None = None
    worst_bound: float | None = None
    worst_used: float | None = None
    worst_ulp: float | None = None
    max_abs_error: float | None = None
    max_abs_index: tuple[int, ...] | None = None
    max_rel_error: float | None = None
    max_rel_index: tuple[int, ...] | None = None
    max_ulp_error: float | None = None
    max_ulp_index: tuple[int, ...] | None = None
    rmse: float | None = None
    cosine: float | None = None
    statistic: float | None = None
    statistic_limit: float | None = None
    rounding: Rounding | None = None

    @property
    def is_off(self) -> bool:
        """Whether elements are, or all of them together."""
        if self.mismatched or self.statistic is None or self.statistic_limit is None:
            return self.mismatched > 0
        return not self.statistic <= self.statistic_limit  # NaN is within no limit

    @property
    def is_gradient(self) -> bool:
        """Whether the output is the gradient of an input."""
        return self.output.startswith("grad.")

    where: str = ""
    rule: RuleUsed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds spent in each phase; None where the phase did not happen. ``compile_s`` is no part of ``run_s``."""

    generate_s: float | None = None
    reference_s: float | None = None
    run_s: float | None = None
    compare_s: float | None = None
    compile_s: float | None = None

    @property
    def total_s(self) -> float | None:
        """Of all phases; None if none happened."""
        phases = (self.generate_s, self.reference_s, self.compile_s, self.run_s, self.compare_s)
        spent = [seconds for seconds in phases if seconds is not None]
        return sum(spent) if spent else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Status and reason with what they rest on; ``pictures`` of outputs whose values are wrong.

    Raises:
        ValueError: for a pass without evidence, a measured pass without a compared element (an output that
            is declared empty has a measure of its own), or a status other than passed without a reason.
    """

    status: Status
    reason: Reason | None = None
    message: str = ""
    evidence: Evidence | None = None
    measures: tuple[Measure, ...] = ()
    checks: tuple[Check, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()

    def __post_init__(self) -> None:
        if self.status is _PASSED:
            if self.evidence is None:
                raise ValueError("a passed verdict needs evidence")
            if self.reason is not None:
                raise ValueError(f"a passed verdict has the reason {self.reason.value}, but should have none")
            if self.evidence is _MEASURED and not self.measures:
                raise ValueError("a verdict passed by measurement needs a measure")
        elif self.reason is None and self.status in (
            Status.FAILED,
            Status.ERROR,
            Status.CRASHED,
            Status.TIMEOUT,
        ):
            raise ValueError(f"a {self.status.value} verdict needs a reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case with its verdict, timings, seed and provenance; plain data, no tensors.

    ``case`` is the case in its wire form (:mod:`optest.core.wire`), so that it can be run again from the
    journal alone. ``duplicate_of`` names the case whose execution was shared. ``identifier`` says what is computed
    where the case has a name of its own. ``began_s`` is when its first attempt began, in seconds since the run did, and
    ``devices`` are the ids of those that it had.
    """

    id: str
    key: str
    operator: str
    target: str
    reference: str
    mode: str
    verdict: Verdict
    seed: int
    dtypes: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    backend: str = ""
    kind: str = ""
    chip: str | None = None
    device: str | None = None
    timings: Timings = field(default_factory=Timings)
    benchmark: Benchmark | None = None
    attempts: int = 1
    round: int = 0
    isolation: str = "none"
    duplicate_of: str | None = None
    repro: str = ""
    tags: tuple[str, ...] = ()
    description: str = ""
    where: str = ""
    identifier: str = ""
    case: Mapping[str, Any] = field(default_factory=dict)
    began_s: float | None = None
    devices: tuple[int, ...] = ()

    @property
    def status(self) -> Status:
        return self.verdict.status

    @property
    def reason(self) -> Reason | None:
        return self.verdict.reason

    @property
    def keys(self) -> Mapping[str, str]:
        """Keys of its cases by their ids: of one, or of all of an operator that are unsupported for the same reason."""
        return self.verdict.details.get(MERGED_KEYS) or {self.id: self.key}

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What resume, history and dedupe compare: case key, target, reference, mode."""
        return (self.key, self.target, self.reference, self.mode)
