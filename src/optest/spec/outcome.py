"""Results: statuses, reasons, measures, checks, and verdicts that cannot pass without evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from optest.spec.benchmark import Benchmark
from optest.spec.picture import Picture


class Status(str, Enum):
    """Outcome of a case; reports group by it."""

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


# Statuses that make a run end with exit status 1.
BAD_STATUSES = frozenset({Status.FAILED, Status.ERROR, Status.CRASHED, Status.TIMEOUT, Status.SUSPECT, Status.XPASSED})


# Details of a skip that represents several cases: their number by the tag of their case set, and their keys by id.
MERGED_TAGS, MERGED_KEYS = "cases", "keys"


class Reason(str, Enum):
    """Cause of a status other than passed; docs/reasons.md explains each."""

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
        """Default status of a fault with this reason."""
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
    """Evidence of a pass."""

    MEASURED = "measured"
    RAISED_AS_EXPECTED = "raised as expected"
    REFUSED_AS_EXPECTED = "refused as expected"
    SPECS_COMPARED = "shapes and dtypes compared, no values"
    EXTERNAL_REPORT = "external report"
    INVARIANT = "invariants alone"


# Read once: the lookup of an enumeration's member costs as much as a function call.
_PASSED, _MEASURED = Status.PASSED, Evidence.MEASURED


class Fault(Exception):
    """Failure of a backend, a reference or a case; drivers raise it, and the runner turns it into a verdict.

    ``details`` are facts for the report: ``exit_code``, ``signal``, ``stderr_tail``, ``command``, ``path``. They are
    converted to plain data: numbers, text, lists and mappings; anything else to its ``repr``. ``written`` maps the name
    of each partly unwritten output to the output and the mask of unwritten elements, so that the others are compared.

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
        self.details: dict[str, Any] = _to_plain_data(details or {})
        if self.status not in _FAULT_STATUSES and not (self.status is Status.SKIPPED is reason.status):
            raise ValueError(
                f"the status of a {reason.value} fault is {self.status.value}, expected "
                f"{', '.join(sorted(status.value for status in _FAULT_STATUSES))}: {self.message}"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_fault, (self.reason, self.message, self.status, self.details))


_FAULT_STATUSES = frozenset({Status.FAILED, Status.ERROR, Status.CRASHED, Status.TIMEOUT})
_LONGEST_TEXT = 100_000


def _printable(text: object) -> str:
    """Convert to a str that UTF-8 can encode, of at most 100,000 characters."""
    # Foreign code passes lone surrogates and megabytes of text.
    string = text if type(text) is str else str(text)
    return string[:_LONGEST_TEXT].encode("utf-8", "backslashreplace").decode()


def _to_plain_data(value: Any) -> Any:
    """Convert to None, bool, numbers, str, list and dict, recursively; any other object to its ``repr``."""
    if value is None or type(value) in (bool, int, float):
        return value
    if type(value) is str:
        return _printable(value)
    if isinstance(value, Mapping):
        return {_printable(key): _to_plain_data(element) for key, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_plain_data(element) for element in value]
    if isinstance(value, (int, float)):
        return float(value) if isinstance(value, float) else int(value)
    # NumPy scalars, without an import of NumPy
    item = getattr(value, "item", None)
    number = item() if callable(item) and getattr(value, "ndim", None) == 0 else None
    return number if type(number) in (bool, int, float) else _printable(repr(value))


def _rebuild_fault(reason: Reason, message: str, status: Status, details: dict[str, Any]) -> Fault:
    return Fault(reason, message, status=status, details=details)


class CheckState(str, Enum):
    """Result of a check."""

    DONE = "done"
    FAILED = "failed"
    NOT_POSSIBLE = "not possible"
    INCONCLUSIVE = "inconclusive"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One property that was checked in addition to the values, or the reason why it could not be."""

    name: str
    state: CheckState
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleUsed:
    """Rule that an output was compared with: its name, its origin, and its bounds and numerics in words."""

    name: str
    layer: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Errors of one output relative to the expected output; ``mismatched`` counts the elements outside the rule.

    Errors are |actual - expected|; ``ulp`` counts units in the last place of the output dtype at the expected
    value. Each largest error has its index. ``worst_*`` describe the element with the largest ``worst_used``, which is
    error / bound. ``statistic`` is the tensor-wide z of the built-in rules with its ``statistic_limit``. Values are
    None if they were not computed.
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

    @property
    def is_off(self) -> bool:
        """True if an element is outside its bound, or the statistic of the tensor outside its limit."""
        if self.mismatched or self.statistic is None or self.statistic_limit is None:
            return self.mismatched > 0
        # `not <=` instead of `>`, for NaN
        return not self.statistic <= self.statistic_limit

    @property
    def is_gradient(self) -> bool:
        """True if the output is the gradient of an input."""
        return self.output.startswith("grad.")

    where: str = ""
    rule: RuleUsed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds of each phase; None for a phase that did not happen. ``run_s`` does not include ``compile_s``."""

    generate_s: float | None = None
    reference_s: float | None = None
    run_s: float | None = None
    compare_s: float | None = None
    compile_s: float | None = None

    @property
    def total_s(self) -> float | None:
        """Seconds of all phases; None if no phase happened."""
        phases = (self.generate_s, self.reference_s, self.compile_s, self.run_s, self.compare_s)
        spent = [seconds for seconds in phases if seconds is not None]
        return sum(spent) if spent else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Status and reason of a case with their evidence; ``pictures`` show outputs with wrong values.

    Raises:
        ValueError: for a pass without evidence or with a reason, a measured pass without a measure, or a failure,
            error, crash or timeout without a reason.
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
                raise ValueError(f"a passed verdict has the reason {self.reason.value}, expected None")
            if self.evidence is _MEASURED and not self.measures:
                raise ValueError("a verdict passed by measurement needs a measure")
        elif self.reason is None and self.status in _FAULT_STATUSES:
            raise ValueError(f"a {self.status.value} verdict needs a reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case with its verdict, timings, seed and provenance; plain data, no tensors.

    ``case`` is the case in its wire form (:mod:`optest.core.wire`), so that the journal is enough to run it again.
    ``duplicate_of`` is the id of the case whose execution was shared. ``identifier`` is set if ``id`` is a user-defined
    name. ``began_s`` is the start of the first attempt in seconds since the start of the run, and ``devices`` are the
    ids of the devices that it used.
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
        """Keys by case id: one, or those of all cases that a merged skip of an operator represents."""
        return self.verdict.details.get(MERGED_KEYS) or {self.id: self.key}

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Case key, target, reference and mode, by which resume, history and deduplication match results."""
        return (self.key, self.target, self.reference, self.mode)
