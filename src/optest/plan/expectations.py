"""Expectations files: known differences of a backend, cases with wrong data, cases to skip, each with its reason.

A line waives a failure for exactly its reason; a line that waives nothing is reported.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, with_config
from typing_extensions import Required, TypedDict

from optest.errors import UnknownName
from optest.plan.dialects import model_of
from optest.plan.from_samples import SET_TAG, TIER_TAG
from optest.plan.operator_lookup import Operators
from optest.plan.problems import Ledger, read_document
from optest.plan.select import glob_pattern
from optest.plan.yaml_source import Path, Source
from optest.spec import BAD_STATUSES, FORWARD, CaseResult, DType, Reason, Skip, Status, TestCase, Verdict, dtype

# Reasons that a backend may be known for; never a crash, a hang or an internal error.
EXPECTABLE_REASONS = (
    Reason.VALUE,
    Reason.NAN,
    Reason.SHAPE,
    Reason.DTYPE,
    Reason.RAISED,
    Reason.NOT_REFUSED,
    Reason.WRONG_ERROR,
    Reason.NONDETERMINISTIC,
    Reason.INVARIANT,
)

# For cases from elsewhere only (indices beyond a dimension, a mask that does not fit), never for an operator.
WRONG_DATA = Reason.BAD_CASE

# Key in a verdict's details with the label of the line that waived it.
_DETAIL = "expectation"
# A crash or a timeout is never waived.
_STATUSES = (Status.FAILED, Status.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One line for one operator and dtype: cases that fail for `reason`, or are skipped (None), under conditions.

    ``op`` and ``dtype`` are "" for any. ``cases`` and ``models`` are globs over ids and model names. ``files`` limits
    the line to the cases of these files; None is any. Conditions: ``case_sets``, ``fills``, ``tier``, ``mode``,
    ``variants``, and for each of ``attributes`` its possible values. ``at_most_ulp`` (units in the last place of the
    output) and ``at_most_error`` limit the error. With ``is_of_gradients`` only gradients may be wrong, without it
    results. ``is_binding`` is False for other package versions than the line was written for: then it may waive
    nothing. Without ``is_strict`` it may also cover cases that pass.
    """

    op: str
    dtype: str
    reason: Reason | None
    why: str
    cases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    files: frozenset[str] | None = None
    case_sets: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    tier: str = ""
    mode: str = ""
    variants: tuple[str, ...] = ()
    at_most_ulp: float | None = None
    at_most_error: float | None = None
    is_of_gradients: bool = False
    where: str = ""
    is_binding: bool = True
    is_strict: bool = True

    @property
    def name(self) -> str:
        kind = "skip" if self.reason is None else self.reason.value
        gradients = "of gradients" * self.is_of_gradients
        return " ".join(filter(None, (*self.variants, *self.models, *self.cases, self.op, self.dtype, kind, gradients)))

    @property
    def label(self) -> str:
        return f"{self.name}, {self.where}"

    @property
    def pair(self) -> tuple[str, str]:
        return (self.op, self.dtype)

    def covers(self, case: TestCase) -> bool:
        """Return whether the line concerns the case and its case, set, fill and attribute conditions are met."""
        if not self.concerns(case):
            return False
        if self.cases and not any(_matches(glob, name) for glob in self.cases for name in _names_of(case)):
            return False
        if self.case_sets and not any(f"{SET_TAG}{name}" in case.tags for name in self.case_sets):
            return False
        if self.fills and not any(argument.fill.kind in self.fills for argument in case.inputs):
            return False
        return all(
            any(_equal(case.attributes.get(name), x) for x in values) for name, values in self.attributes.items()
        )

    def reaches(self, verdict: Verdict) -> bool:
        """Return whether the verdict's errors, in results or gradients as the line names, are within its limits."""
        wrong = [x for x in verdict.measures if x.mismatched]
        if self.is_of_gradients and not all(x.is_gradient for x in verdict.measures if x.is_off):
            return False
        if self.is_of_gradients and self.reason is Reason.NAN:
            # Finite errors would be a difference in value.
            return all(x.mismatched == x.nonfinite_mismatched for x in wrong)
        # No limit covers a mismatch that is not finite.
        return all(
            not x.nonfinite_mismatched and (error := getattr(x, name)) is not None and error <= limit
            for name, limit in (("max_ulp_error", self.at_most_ulp), ("max_abs_error", self.at_most_error))
            if limit is not None
            for x in wrong
        )

    def concerns(self, case: TestCase) -> bool:
        """Return whether operator, dtype, model, file, mode, tier and variant match; other conditions are ignored."""
        return (
            (not self.op or _matches(self.op, case.descriptor.name))
            and (not self.dtype or case_dtype(case.dtypes) == self.dtype)
            and (not self.models or any(_matches(glob, model_of(case)) for glob in self.models))
            and (self.files is None or case.where.rpartition(":")[0] in self.files)
            and (not self.mode or case.mode != FORWARD)
            and (not self.tier or f"{TIER_TAG}{self.tier}" in case.tags)
            and (not self.variants or case.backend.variant in self.variants)
        )


def _matches(glob: str, text: str) -> bool:
    # Most globs are plain names, which need no compiled pattern.
    return glob == text or glob_pattern(glob).fullmatch(text) is not None


def _names_of(case: TestCase) -> tuple[str, ...]:
    """Return the id of a case and, for a model case, its name without the model."""
    model = model_of(case)
    return (case.id, case.id.partition("::")[2]) if model else (case.id,)


def _equal(value: Any, expected: Any) -> bool:
    """Return whether two attribute values are equal; lists equal tuples, True and 1 differ."""
    if isinstance(value, (list, tuple)):
        return isinstance(expected, (list, tuple)) and list(value) == list(expected)
    return type(value) is type(expected) and bool(value == expected)


def case_dtype(dtypes: Sequence[DType]) -> str:
    """Return the dtype that a case is counted under: of the first inexact input, else of the first, "" without any."""
    names = [entry.name for entry in dtypes if entry.is_inexact] or [entry.name for entry in dtypes]
    return names[0] if names else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """The lines of all expectations files of a run."""

    lines: tuple[Expectation, ...] = ()

    @classmethod
    def merge(cls, files: Iterable[Expectations]) -> Expectations:
        """Return the lines of several files; a later line replaces one with the same operator, dtype and reason."""
        by_name = {line.name: line for file in files for line in file.lines}
        return cls(lines=tuple(by_name.values()))

    def waive(self, case: TestCase, verdict: Verdict) -> Verdict:
        """Return the verdict, XFAILED if a line expects this failure; a skipped case's names the line in details."""
        if verdict.status not in (*_STATUSES, Status.SKIPPED) or not self.lines:
            return verdict
        for line in self.lines:
            if verdict.status is Status.SKIPPED:
                # Another skip of the same case has another message.
                if line.reason is None and verdict.message == line.why and line.covers(case):
                    return dataclasses.replace(verdict, details={**verdict.details, _DETAIL: line.label})
            elif verdict.reason is line.reason and line.covers(case) and line.reaches(verdict):
                return dataclasses.replace(
                    verdict,
                    status=Status.XFAILED,
                    message=f"{verdict.message} (expected: {line.why})" if verdict.message else line.why,
                    details={**verdict.details, _DETAIL: line.label},
                )
        return verdict

    def of_files(self, files: frozenset[str]) -> Expectations:
        """Return the lines limited to the cases of these files."""
        return Expectations(lines=tuple(dataclasses.replace(line, files=files) for line in self.lines))

    def skip(self, case: TestCase) -> TestCase:
        """Return the case, skipped if a line skips it and it is not skipped yet."""
        # A skip in the plan keeps its own reason.
        line = next((line for line in self.lines if line.reason is None and line.covers(case)), None)
        return case if line is None or case.skip is not None else dataclasses.replace(case, skip=Skip(reason=line.why))

    def labels_concerning(self, cases: Sequence[TestCase]) -> dict[str, bool]:
        """Return the labels of binding lines that concern the cases and are strict or cover no case, with `covers`."""
        binding = [line for line in self.lines if line.is_binding and any(map(line.concerns, cases))]
        covering = ((line, any(map(line.covers, cases))) for line in binding)
        return {line.label: covers for line, covers in covering if line.is_strict or not covers}

    def unused(self, cases: Iterable[TestCase], results: Iterable[CaseResult]) -> list[Expectation]:
        """Return the lines that concern these cases and waived nothing, although they had to."""
        used = labels_used(results)
        idle = Expectations(lines=tuple(line for line in self.lines if line.label not in used))
        owed = idle.labels_concerning(list(cases))
        return [line for line in idle.lines if line.label in owed]


def labels_used(results: Iterable[CaseResult]) -> set[str]:
    """Return the labels of the lines that waived a result or skipped a case."""
    return {str(result.verdict.details.get(_DETAIL, "")) for result in results}


def remedy(line: Expectation, cases: Iterable[TestCase], results: Iterable[CaseResult]) -> str:
    """Return what to do about a line that waived nothing."""
    covered = {case.id for case in cases if line.covers(case)}
    if not covered:
        return "no case meets its conditions"
    bad = {x.reason.value for x in results if x.id in covered and x.status in BAD_STATUSES and x.reason}
    if line.reason is not None and line.reason.value in bad:
        return "the error of its cases exceeds its limit"
    return f"its cases fail with {', '.join(sorted(bad))}" if bad else "delete the line"


def _matches_versions(written_for: Mapping[str, str], versions: Mapping[str, str]) -> bool:
    """Return whether the installed versions begin with those in `written_for`; ``2.13`` matches every 2.13.x."""
    # The dot at the end keeps 2.1 from matching 2.13.
    installed = {name: f"{versions.get(name, '')}.".replace("+", ".") for name in written_for}
    return all(installed[name].startswith(f"{version}.") for name, version in written_for.items())


_Word = Annotated[str, Field(min_length=1)]


@with_config(ConfigDict(extra="forbid", strict=True))
class _Where(TypedDict, total=False):
    case_set: Annotated[str | list[str], Field(description="Case set, or several, that the failure occurs in.")]
    fill: Annotated[str | list[str], Field(description="Fill, or several, of an input of the failing cases.")]
    attributes: Annotated[dict[str, Any], Field(description="Attributes and their value; {any: [0, 1]} lists several.")]
    tier: Annotated[Literal["smoke", "parity", "full"], Field(description="Only tier with the failing cases.")]
    group: Annotated[Literal["validation"], Field(description="Only cases without values.")]
    variant: Annotated[str | list[str], Field(description="Variant of the backend, or several, that fails.")]
    gradients: Annotated[bool, Field(description="Only gradients differ; without it, only results.")]


@with_config(ConfigDict(extra="forbid", strict=True))
class _Line(TypedDict, total=False):
    op: Annotated[_Word | list[_Word], Field(description="Operator, or several; with case or skip also a glob.")]
    dtype: Annotated[_Word | list[_Word], Field(description="Dtype of the first inexact input, else of the first.")]
    case: Annotated[_Word | list[_Word], Field(description="Globs over case ids, or over names in a model file.")]
    model: Annotated[_Word | list[_Word], Field(description="Globs over names of models.")]
    reason: Annotated[_Word, Field(description="Why it fails; BAD_CASE for wrong data of cases or models.")]
    skip: Annotated[Literal[True], Field(description="Skip the cases; replaces reason.")]
    why: Required[_Word]
    at_most_ulp: Annotated[float, Field(gt=0, strict=False, description="Largest error in ulp, with reason VALUE.")]
    at_most_error: Annotated[float, Field(gt=0, strict=False, description="Largest error, with reason VALUE.")]
    where: _Where
    written_for: Annotated[dict[str, str], Field(description="Versions that the line needs, added to the file's.")]
    strict: Annotated[bool, Field(description="False: the covered cases may also pass.")]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1]
    written_for: dict[str, str] = Field(default_factory=dict, description="Versions that every line needs.")
    expected: list[_Line]


def read_expectations(
    path: str | os.PathLike[str], *, operators: Operators, versions: Mapping[str, str] | None = None
) -> Expectations:
    """Read an expectations file, with the backend's installed ``versions``; raise PlanError with all its problems."""
    document, source = read_document(path, "the expectations", _Document, _known_keys)
    lines = _Lines(source, operators, document.written_for, versions or {})
    read = []
    for index, entry in enumerate(document.expected):
        # A copy for each pair of its operators and dtypes.
        several = [[(key, word) for word in _as_words(entry[key])] for key in ("op", "dtype") if key in entry]
        read += [lines.read({**entry, **dict(pair)}, index) for pair in product(*several)]
    lines.ledger.refuse()
    return Expectations(lines=tuple(line for line in read if line is not None))


def _known_keys(path: Path) -> Collection[str]:
    if path[:1] != ("expected",):
        return list(_Document.model_fields)
    return list((_Where if path[-1] == "where" else _Line).__annotations__)


class _Lines:
    """Reader of the lines of one file, with a ledger of their problems."""

    def __init__(
        self, source: Source, operators: Operators, written_for: Mapping[str, str], versions: Mapping[str, str]
    ) -> None:
        self.ledger = Ledger(source)
        self._written_for, self._versions = written_for, versions
        self._source = source
        self._operators = operators
        self._names: dict[str, int] = {}

        """Return the expectation of a line; note a problem and return None if the line is wrong."""

    def read(self, entry: Mapping[str, Any], index: int) -> Expectation | None:
        place: Path = ("expected", index)
        before = self.ledger.noted
        cases, models = _as_words(entry.get("case", ())), _as_words(entry.get("model", ()))
        is_narrow = bool(cases or models)
        # Exactly one of the two: the cases fail for a reason, or they are skipped.
        if ("reason" in entry) == ("skip" in entry):
            keys = "both reason and skip" if "skip" in entry else "neither reason nor skip"
            self.ledger.problem(place, f"the line sets {keys}", "set one of them: reason: VALUE or skip: true")
        if "reason" in entry and not is_narrow and not ("op" in entry and "dtype" in entry):
            self.ledger.problem(place, "the line names no op with its dtype, no case and no model", "case: 'getitem.*'")
        if "skip" in entry and not is_narrow and "op" not in entry:
            self.ledger.problem(place, "the line would skip every case", "name them: case, model or op")
        op = entry.get("op", "")
        if op and not (_is_glob(op) and (is_narrow or "skip" in entry)):
            # torch.max is two operators: an expectation for both could waive the failure of the wrong one.
            spelling = self._operators.spelling(op)
            if spelling is not None and len(spelling.operators) > 1:
                message = f"{op} means {' or '.join(spelling.operators)}, but an expectation is for one operator"
                self.ledger.problem((*place, "op"), message, "write a line for each operator, by its name in optest")
            descriptor = self.ledger.attempt((*place, "op"), self._operators.get, op)
            op = op if descriptor is None else descriptor.name
        known = self.ledger.attempt((*place, "dtype"), dtype, entry["dtype"]) if "dtype" in entry else None
        reason = self._excusable(entry["reason"], (*place, "reason"), is_narrow) if "reason" in entry else None
        # Failures for other reasons have no error that could be compared.
        for limit in {"at_most_ulp", "at_most_error"} & entry.keys() if reason not in (None, Reason.VALUE) else ():
            message = f"{limit} is set with reason {entry['reason']}, but limits only VALUE"
            self.ledger.problem((*place, limit), message, f"remove {limit}")
        if self.ledger.noted > before:
            return None
        conditions = entry.get("where", {})
        line = Expectation(
            op=op,
            dtype="" if known is None else known.name,
            reason=reason,
            why=entry["why"],
            cases=cases,
            models=models,
            case_sets=_as_words(conditions.get("case_set", ())),
            fills=_as_words(conditions.get("fill", ())),
            attributes=self._attributes(op, conditions.get("attributes", {}), (*place, "where", "attributes")),
            tier=conditions.get("tier", ""),
            mode=conditions.get("group", ""),
            variants=_as_words(conditions.get("variant", ())),
            at_most_ulp=entry.get("at_most_ulp"),
            at_most_error=entry.get("at_most_error"),
            is_of_gradients=conditions.get("gradients", False),
            where=f"{self._source.file}:{self._source.line_of(place)}",
            is_binding=_matches_versions({**self._written_for, **entry.get("written_for", {})}, self._versions),
            is_strict=entry.get("strict", True),
        )
        number = self._source.line_of(place)
        first = self._names.setdefault(line.name, number)
        if first != number:
            hint = "merge the lines: list all case sets, fills or values in one `where`"
            self.ledger.problem(place, f"{line.name} is expected twice, first in line {first}", hint)
        return line

    def _excusable(self, name: str, place: Path, is_narrow: bool) -> Reason | None:
        """Return the reason if a line may name it (a narrow one also BAD_CASE); else note a problem, return None."""
        if name == WRONG_DATA.value and is_narrow:
            return WRONG_DATA
        if name in {x.value for x in EXPECTABLE_REASONS}:
            return Reason(name)
        if name not in Reason.__members__:
            self.ledger.unknown(place, UnknownName("reason", name, list(Reason.__members__)))
            return None
        listed = ", ".join(x.value for x in EXPECTABLE_REASONS) + f"; {WRONG_DATA.value} with case or model"
        self.ledger.problem(place, f"reason is {name}, which cannot be expected", f"reasons that can: {listed}")
        return None

    def _attributes(self, op: str, written: Mapping[str, Any], place: Path) -> dict[str, tuple[Any, ...]]:
        """Return each attribute's possible values as the operator reads them; note a problem for each wrong one."""
        values_of: dict[str, tuple[Any, ...]] = {}
        if written and (not op or _is_glob(op)):
            self.ledger.problem(place, "attributes need an operator, but op is missing or a glob", "op: softmax")
            return values_of
        for name, value in written.items():
            values = value["any"] if isinstance(value, dict) and list(value) == ["any"] else [value]
            try:
                attribute = self._operators.get(op).attribute(name)
                values_of[attribute.name] = tuple(map(attribute.read, values))
            except UnknownName as error:
                self.ledger.unknown((*place, name), error)
            except ValueError as error:
                self.ledger.problem((*place, name), str(error))
        return values_of


def _is_glob(text: str) -> bool:
    return "*" in text or "?" in text


def _as_words(value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
