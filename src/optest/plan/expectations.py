"""Expectations files: where a backend is known to differ from the references, for which reason, and why.

It excuses a failure with the stated reason and nothing else; a line that excuses nothing is a line too many.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, with_config
from typing_extensions import Required, TypedDict

from optest.errors import PlanError, Problem, UnknownName
from optest.plan.from_samples import SET_TAG, TIER_TAG
from optest.plan.misfits import problems_of
from optest.plan.source import Path, Source, format_path, parse_source
from optest.plan.statement import Operators
from optest.spec import CaseResult, Reason, Status, TestCase, Verdict, dtype

__all__ = ["EXCUSABLE", "Expectation", "Expectations", "case_dtype", "read_expectations"]

EXCUSABLE = (
    Reason.VALUE,
    Reason.NAN,
    Reason.SHAPE,
    Reason.DTYPE,
    Reason.RAISED,
    Reason.NOT_REFUSED,
    Reason.WRONG_ERROR,
    Reason.NONDETERMINISTIC,
)
"""What a backend may be known for; never a crash, a hang, or a fault of optest's own."""

_DETAIL = "expectation"
_STATUSES = (Status.FAILED, Status.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One line: an operator in one dtype fails for one reason, where all conditions that are stated hold.

    ``case_sets``, ``fills`` and ``tier`` name those in which it happens; an attribute of ``attributes`` has one of the
    values. ``at_most_ulp`` is the largest error that is excused, in units in the last place of the output; None is any.
    ``is_of_gradients``: gradients fail, and the results that they belong to are right; without it, results fail.
    ``is_binding`` is False where the file was written for other versions: there the line may be left over.
    """

    op: str
    dtype: str
    reason: Reason
    why: str
    case_sets: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    attributes: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    tier: str = ""
    at_most_ulp: float | None = None
    is_of_gradients: bool = False
    where: str = ""
    is_binding: bool = True

    @property
    def name(self) -> str:
        return f"{self.op} {self.dtype} {self.reason.value}{' of gradients' if self.is_of_gradients else ''}"

    @property
    def pair(self) -> tuple[str, str]:
        return (self.op, self.dtype)

    def covers(self, case: TestCase) -> bool:
        """Whether the case is one of those that may fail."""
        if (case.descriptor.name, case_dtype(case)) != self.pair:
            return False
        if not self._is_of_tier(case):
            return False
        if self.case_sets and not any(f"{SET_TAG}{name}" in case.tags for name in self.case_sets):
            return False
        if self.fills and not any(argument.fill.kind in self.fills for argument in case.inputs):
            return False
        return all(
            any(_same(case.attributes.get(name), value) for value in values) for name, values in self.attributes.items()
        )

    def reaches(self, verdict: Verdict) -> bool:
        """Whether it excuses errors as large as those of the verdict, in the outputs that have them.

        With a limit, none that are not finite; of gradients with the reason NAN, none that are.
        """
        limit = self.at_most_ulp
        wrong = [each for each in verdict.measures if each.mismatched]
        if self.is_of_gradients and not all(each.is_gradient for each in verdict.measures if each.is_off):
            return False
        if self.is_of_gradients and self.reason is Reason.NAN:
            return all(each.mismatched == each.nonfinite_mismatched for each in wrong)
        return limit is None or all(
            not each.nonfinite_mismatched and each.max_ulp_error is not None and each.max_ulp_error <= limit
            for each in wrong
        )

    def is_asked_by(self, case: TestCase) -> bool:
        """Whether a check that has this case asks for what the line is about."""
        return (case.descriptor.name, case_dtype(case)) == self.pair and self._is_of_tier(case)

    def _is_of_tier(self, case: TestCase) -> bool:
        return not self.tier or f"{TIER_TAG}{self.tier}" in case.tags


def _same(got: Any, stated: Any) -> bool:
    """Attributes hold lists as tuples; True and 1 are two values."""
    if isinstance(got, (list, tuple)):
        return isinstance(stated, (list, tuple)) and list(got) == list(stated)
    return type(got) is type(stated) and bool(got == stated)


def case_dtype(case: TestCase) -> str:
    """The dtype that a case is counted under: that of its first inexact input, else of its first."""
    names = [entry.name for entry in case.dtypes if entry.is_inexact] or [entry.name for entry in case.dtypes]
    return names[0] if names else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """The lines of all files that were read."""

    lines: tuple[Expectation, ...] = ()

    @classmethod
    def joined(cls, files: Iterable[Expectations]) -> Expectations:
        """The lines of several files; of two for the same operator, dtype and reason that of the later file stands."""
        by_name = {line.name: line for each in files for line in each.lines}
        return cls(lines=tuple(by_name.values()))

    def excused(self, case: TestCase, verdict: Verdict) -> Verdict:
        """The verdict, XFAILED if a line expects just this failure of the case."""
        if verdict.status not in _STATUSES or not self.lines:
            return verdict
        for line in self.lines:
            if verdict.reason is line.reason and line.covers(case) and line.reaches(verdict):
                return dataclasses.replace(
                    verdict,
                    status=Status.XFAILED,
                    message=f"{verdict.message} (expected: {line.why})" if verdict.message else line.why,
                    details={**verdict.details, _DETAIL: f"{line.name}, {line.where}"},
                )
        return verdict

    def unused(self, cases: Iterable[TestCase], results: Iterable[CaseResult]) -> list[Expectation]:
        """The lines that excused nothing though cases that they cover were asked."""
        used = {str(result.verdict.details.get(_DETAIL, "")) for result in results}
        idle = [line for line in self.lines if line.is_binding and f"{line.name}, {line.where}" not in used]
        if not idle:
            return []
        asked = list(cases)
        return [line for line in idle if any(map(line.is_asked_by, asked))]


def _fits(written_for: Mapping[str, str], versions: Mapping[str, str]) -> bool:
    """Whether these are the versions that a file was written for; ``2.13`` stands for every 2.13.x."""
    found = {name: f"{versions.get(name, '')}.".replace("+", ".") for name in written_for}
    return all(found[name].startswith(f"{wanted}.") for name, wanted in written_for.items())


@with_config(ConfigDict(extra="forbid", strict=True))
class _Where(TypedDict, total=False):
    case_set: Annotated[str | list[str], Field(description="Case set, or several, in which it happens.")]
    fill: Annotated[str | list[str], Field(description="Fill of an input, or several, with which it happens.")]
    attributes: Annotated[dict[str, Any], Field(description="Attributes and their value; {any: [0, 1]} names several.")]
    tier: Annotated[Literal["smoke", "parity", "full"], Field(description="Tier whose cases alone show it.")]
    gradients: Annotated[bool, Field(description="Gradients differ, beside right results; else results do.")]


@with_config(ConfigDict(extra="forbid", strict=True))
class _Line(TypedDict, total=False):
    op: Required[Annotated[str, Field(min_length=1)]]
    dtype: Required[Annotated[str, Field(min_length=1)]]
    reason: Required[Annotated[str, Field(min_length=1)]]
    why: Required[Annotated[str, Field(min_length=1)]]
    at_most_ulp: Annotated[float, Field(gt=0, strict=False, description="Largest error in ulp, with reason VALUE.")]
    where: _Where


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1]
    written_for: dict[str, str] = Field(default_factory=dict, description="Versions with which every line is needed.")
    expected: list[_Line]


def read_expectations(
    path: str | os.PathLike[str], *, operators: Operators, versions: Mapping[str, str] | None = None
) -> Expectations:
    """Read an expectations file; ``versions`` are those of the backend, by package.

    Raises:
        PlanError: with everything that is wrong with it.
    """
    file = os.fspath(path)
    try:
        raw = FilePath(file).read_bytes()
    except OSError as error:
        message = f"cannot read the expectations: {error.strerror}"
        raise PlanError([Problem(message=message, file=file)]) from None
    source = parse_source(raw, file)
    try:
        document = _Document.model_validate(source.data)
    except ValidationError as error:
        raise PlanError(problems_of(error, source, _known_keys).values()) from None
    if source.faults:
        raise PlanError(source.faults.values())
    lines = _Lines(source, operators, _fits(document.written_for, versions or {}))
    read = [lines.read(entry, index) for index, entry in enumerate(document.expected)]
    if lines.problems:
        raise PlanError(lines.problems)
    return Expectations(lines=tuple(line for line in read if line is not None))


def _known_keys(path: Path) -> Collection[str]:
    if not path:
        return list(_Document.model_fields)
    return list((_Where if path[-1] == "where" else _Line).__annotations__)


class _Lines:
    """Reads the lines of one file and notes what is wrong with them."""

    def __init__(self, source: Source, operators: Operators, is_binding: bool) -> None:
        self.problems: list[Problem] = []
        self._is_binding = is_binding
        self._source = source
        self._operators = operators
        self._names: dict[str, int] = {}

    def read(self, entry: Mapping[str, Any], index: int) -> Expectation | None:
        place: Path = ("expected", index)
        before = len(self.problems)
        op = self._known_operator(entry["op"], (*place, "op"))
        name = self._known_dtype(entry["dtype"], (*place, "dtype"))
        reason = self._excusable(entry["reason"], (*place, "reason"))
        if "at_most_ulp" in entry and reason is not None and reason is not Reason.VALUE:
            self._problem((*place, "at_most_ulp"), f"at_most_ulp stands beside {reason.value}", "it limits VALUE alone")
        if len(self.problems) > before or reason is None:
            return None
        conditions = entry.get("where", {})
        line = Expectation(
            op=op,
            dtype=name,
            reason=reason,
            why=entry["why"],
            case_sets=_words(conditions.get("case_set", ())),
            fills=_words(conditions.get("fill", ())),
            attributes=self._attributes(op, conditions.get("attributes", {}), (*place, "where", "attributes")),
            tier=conditions.get("tier", ""),
            at_most_ulp=entry.get("at_most_ulp"),
            is_of_gradients=conditions.get("gradients", False),
            where=f"{self._source.file}:{self._source.line_of(place)}",
            is_binding=self._is_binding,
        )
        self._once(line, place)
        return line

    def _problem(self, place: Path, message: str, hint: str = "") -> None:
        line = self._source.line_of(place)
        path = format_path(place)
        self.problems.append(Problem(message=message, file=self._source.file, line=line, path=path, hint=hint))

    def _unknown(self, place: Path, error: UnknownName) -> None:
        hint = f"did you mean {error.suggestion}?" if error.suggestion else ""
        self._problem(place, f"unknown {error.kind} {error.name!r}", hint)

    def _known_operator(self, name: str, place: Path) -> str:
        spelling = self._operators.spelling(name)
        if spelling is not None and len(spelling.operators) > 1:
            message = f"{name} stands for {' or '.join(spelling.operators)}, but an expectation is of one operator"
            self._problem(place, message, "a line for each, under the operator's own name")
        try:
            return self._operators.get(name).name
        except UnknownName as error:
            self._unknown(place, error)
            return name

    def _known_dtype(self, name: str, place: Path) -> str:
        try:
            return dtype(name).name
        except UnknownName as error:
            self._unknown(place, error)
            return name

    def _excusable(self, name: str, place: Path) -> Reason | None:
        if name in {each.value for each in EXCUSABLE}:
            return Reason(name)
        if name not in Reason.__members__:
            self._unknown(place, UnknownName("reason", name, list(Reason.__members__)))
            return None
        listed = ", ".join(each.value for each in EXCUSABLE)
        self._problem(place, f"reason is {name}, which nothing excuses", f"what may be expected: {listed}")
        return None

    def _attributes(self, op: str, stated: Mapping[str, Any], place: Path) -> dict[str, tuple[Any, ...]]:
        found = {}
        descriptor = self._operators.get(op)
        for name, value in stated.items():
            values = value["any"] if isinstance(value, dict) and list(value) == ["any"] else [value]
            try:
                attribute = descriptor.attribute(name)
                found[attribute.name] = tuple(map(attribute.read, values))
            except UnknownName as error:
                self._unknown((*place, name), error)
            except ValueError as error:
                self._problem((*place, name), str(error))
        return found

    def _once(self, line: Expectation, place: Path) -> None:
        first = self._names.setdefault(line.name, self._source.line_of(place))
        if first != self._source.line_of(place):
            hint = "one line says it all: name several case sets, fills or values in its `where`"
            self._problem(place, f"{line.name} is expected twice, first in line {first}", hint)


def _words(stated: str | Sequence[str]) -> tuple[str, ...]:
    return (stated,) if isinstance(stated, str) else tuple(stated)
