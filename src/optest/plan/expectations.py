"""Expectations files: where a backend is known to differ, which cases have wrong data, which are left out, and why.

A line excuses a failure with the stated reason and nothing else; a line that excuses nothing is a line too many.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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

EXCUSABLE = (
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
"""What a backend may be known for; never a crash, a hang, or a fault of optest's own."""

WRONG_DATA = Reason.BAD_CASE
"""Of cases that somebody else wrote: positions beyond a dimension, a mask that does not fit. Never of an operator."""

_DETAIL = "expectation"
_STATUSES = (Status.FAILED, Status.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """One line of one operator and dtype: cases fail for one reason, or are left out (None), where its conditions hold.

    ``op`` and ``dtype`` may be "", for any; ``cases`` and ``models`` are globs over ids and names of models; ``files``
    are those whose cases alone it is about, None for any. ``case_sets``, ``fills``, ``tier``, ``mode`` and
    ``variants`` name those in which it happens; an attribute of ``attributes`` has one of the values. ``at_most_ulp``
    is the most that an error may be, in units in the last place of the output, and ``at_most_error`` as a number; None
    is any. ``is_of_gradients``: gradients fail, and the results that they belong to are right; without it, results
    fail. ``is_binding`` is False where the line may excuse nothing, with other versions than those that it was written
    for; without ``is_strict`` (``strict: false``) it may wherever it covers a case.
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
        what = "skip" if self.reason is None else self.reason.value
        words = (
            *self.variants,
            *self.models,
            *self.cases,
            self.op,
            self.dtype,
            what,
            "of gradients" * self.is_of_gradients,
        )
        return " ".join(filter(None, words))

    @property
    def label(self) -> str:
        return f"{self.name}, {self.where}"

    @property
    def pair(self) -> tuple[str, str]:
        return (self.op, self.dtype)

    def covers(self, case: TestCase) -> bool:
        """Whether the case is one of those that may fail."""
        if not self.concerns(case):
            return False
        if self.cases and not any(_matches(glob, name) for glob in self.cases for name in _names_of(case)):
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
        wrong = [each for each in verdict.measures if each.mismatched]
        if self.is_of_gradients and not all(each.is_gradient for each in verdict.measures if each.is_off):
            return False
        if self.is_of_gradients and self.reason is Reason.NAN:
            return all(each.mismatched == each.nonfinite_mismatched for each in wrong)
        return all(
            not each.nonfinite_mismatched and (error := getattr(each, name)) is not None and error <= limit
            for name, limit in (("max_ulp_error", self.at_most_ulp), ("max_abs_error", self.at_most_error))
            if limit is not None
            for each in wrong
        )

    def concerns(self, case: TestCase) -> bool:
        """Whether the line is about cases like this one, conditions aside."""
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
    return glob == text or glob_pattern(glob).fullmatch(text) is not None


def _names_of(case: TestCase) -> tuple[str, ...]:
    """The id of a case, and in a file of model cases the name that it has there."""
    model = model_of(case)
    return (case.id, case.id.partition("::")[2]) if model else (case.id,)


def _same(got: Any, given: Any) -> bool:
    """Attributes hold lists as tuples; True and 1 are two values."""
    if isinstance(got, (list, tuple)):
        return isinstance(given, (list, tuple)) and list(got) == list(given)
    return type(got) is type(given) and bool(got == given)


def case_dtype(dtypes: Sequence[DType]) -> str:
    """The dtype that a case with inputs of these is counted under: that of the first inexact one, else of the first."""
    names = [entry.name for entry in dtypes if entry.is_inexact] or [entry.name for entry in dtypes]
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
        """The verdict, XFAILED if a line expects just this failure of the case; of one left out, by which line."""
        if verdict.status not in (*_STATUSES, Status.SKIPPED) or not self.lines:
            return verdict
        for line in self.lines:
            if verdict.status is Status.SKIPPED:
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
        """The same lines about the cases of these files alone."""
        return Expectations(lines=tuple(dataclasses.replace(line, files=files) for line in self.lines))

    def left_out(self, case: TestCase) -> TestCase:
        """The case, skipped if a line says so."""
        line = next((line for line in self.lines if line.reason is None and line.covers(case)), None)
        return case if line is None or case.skip is not None else dataclasses.replace(case, skip=Skip(reason=line.why))

    def concerning(self, cases: Sequence[TestCase]) -> dict[str, bool]:
        """The labels of the lines about cases like these that have to excuse one, with whether they cover any."""
        binding = [line for line in self.lines if line.is_binding and any(map(line.concerns, cases))]
        covering = ((line, any(map(line.covers, cases))) for line in binding)
        return {line.label: covers for line, covers in covering if line.is_strict or not covers}

    def unused(self, cases: Iterable[TestCase], results: Iterable[CaseResult]) -> list[Expectation]:
        """The lines about cases like these that excused nothing."""
        used = labels_used(results)
        idle = Expectations(lines=tuple(line for line in self.lines if line.label not in used))
        owed = idle.concerning(list(cases))
        return [line for line in idle.lines if line.label in owed]


def labels_used(results: Iterable[CaseResult]) -> set[str]:
    """Which lines excused a result, or left a case out."""
    return {str(result.verdict.details.get(_DETAIL, "")) for result in results}


def remedy(line: Expectation, cases: Iterable[TestCase], results: Iterable[CaseResult]) -> str:
    """What to do about a line that excused nothing: the reason or the conditions may be wrong."""
    covered = {case.id for case in cases if line.covers(case)}
    if not covered:
        return "its conditions fit no case"
    bad = {each.reason.value for each in results if each.id in covered and each.status in BAD_STATUSES and each.reason}
    if line.reason is not None and line.reason.value in bad:
        return "what it covers is farther off than its limit"
    return f"what it covers went wrong for {', '.join(sorted(bad))}" if bad else "drop the line"


def _fits(written_for: Mapping[str, str], versions: Mapping[str, str]) -> bool:
    """Whether these are the versions that a file was written for; ``2.13`` stands for every 2.13.x."""
    found = {name: f"{versions.get(name, '')}.".replace("+", ".") for name in written_for}
    return all(found[name].startswith(f"{wanted}.") for name, wanted in written_for.items())


_Word = Annotated[str, Field(min_length=1)]


@with_config(ConfigDict(extra="forbid", strict=True))
class _Where(TypedDict, total=False):
    case_set: Annotated[str | list[str], Field(description="Case set, or several, in which it happens.")]
    fill: Annotated[str | list[str], Field(description="Fill of an input, or several, with which it happens.")]
    attributes: Annotated[dict[str, Any], Field(description="Attributes and their value; {any: [0, 1]} names several.")]
    tier: Annotated[Literal["smoke", "parity", "full"], Field(description="Tier whose cases alone show it.")]
    group: Annotated[Literal["validation"], Field(description="Of cases without values alone.")]
    variant: Annotated[str | list[str], Field(description="Variant of the backend, or several, that shows it.")]
    gradients: Annotated[bool, Field(description="Gradients differ, beside right results; else results do.")]


@with_config(ConfigDict(extra="forbid", strict=True))
class _Line(TypedDict, total=False):
    op: Annotated[_Word | list[_Word], Field(description="Operator, or several; beside case or skip a glob, too.")]
    dtype: Annotated[_Word | list[_Word], Field(description="Dtype of the first inexact input, else of the first.")]
    case: Annotated[_Word | list[_Word], Field(description="Globs over ids of cases, or their names in the file.")]
    model: Annotated[_Word | list[_Word], Field(description="Globs over names of models.")]
    reason: Annotated[_Word, Field(description="Why it fails; BAD_CASE for wrong data of cases or models.")]
    skip: Annotated[Literal[True], Field(description="Leave the cases out, in place of a reason.")]
    why: Required[_Word]
    at_most_ulp: Annotated[float, Field(gt=0, strict=False, description="Largest error in ulp, with reason VALUE.")]
    at_most_error: Annotated[float, Field(gt=0, strict=False, description="Largest error, with reason VALUE.")]
    where: _Where
    written_for: Annotated[dict[str, str], Field(description="Versions with which it is needed, beside the file's.")]
    strict: Annotated[bool, Field(description="False: what it covers need not fail, as after other calls.")]


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
    document, source = read_document(path, "the expectations", _Document, _known_keys)
    lines = _Lines(source, operators, document.written_for, versions or {})
    read = [lines.read(each, index) for index, entry in enumerate(document.expected) for each in _one_by_one(entry)]
    lines.ledger.refuse()
    return Expectations(lines=tuple(line for line in read if line is not None))


def _one_by_one(entry: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The line for each pair of its operators and dtypes, which is held to what it says of each."""
    several = [[(key, word) for word in _words(entry[key])] for key in ("op", "dtype") if key in entry]
    return ({**entry, **dict(pair)} for pair in product(*several))


def _known_keys(path: Path) -> Collection[str]:
    if path[:1] != ("expected",):
        return list(_Document.model_fields)
    return list((_Where if path[-1] == "where" else _Line).__annotations__)


class _Lines:
    """Reads the lines of one file and notes what is wrong with them."""

    def __init__(
        self, source: Source, operators: Operators, written_for: Mapping[str, str], versions: Mapping[str, str]
    ) -> None:
        self.ledger = Ledger(source)
        self._written_for, self._versions = written_for, versions
        self._source = source
        self._operators = operators
        self._names: dict[str, int] = {}

    def read(self, entry: Mapping[str, Any], index: int) -> Expectation | None:
        place: Path = ("expected", index)
        before = self.ledger.noted
        cases, models = _words(entry.get("case", ())), _words(entry.get("model", ()))
        is_narrow = bool(cases or models)
        # A line says what it is about, and either why that fails or that it is left out.
        if ("reason" in entry) == ("skip" in entry):
            stated = "both reason and skip" if "skip" in entry else "neither reason nor skip"
            self.ledger.problem(place, f"the line sets {stated}", "one of reason: VALUE and skip: true")
        if "reason" in entry and not is_narrow and not ("op" in entry and "dtype" in entry):
            self.ledger.problem(place, "the line names no op with its dtype, no case and no model", "case: 'getitem.*'")
        if "skip" in entry and not is_narrow and "op" not in entry:
            self.ledger.problem(place, "the line would leave every case out", "name them: case, model or op")
        op = entry.get("op", "")
        if op and not (_is_glob(op) and (is_narrow or "skip" in entry)):
            spelling = self._operators.spelling(op)
            if spelling is not None and len(spelling.operators) > 1:
                message = f"{op} means {' or '.join(spelling.operators)}, but an expectation is of one operator"
                self.ledger.problem((*place, "op"), message, "a line for each, under the operator's own name")
            descriptor = self.ledger.found((*place, "op"), self._operators.get, op)
            op = op if descriptor is None else descriptor.name
        known = self.ledger.found((*place, "dtype"), dtype, entry["dtype"]) if "dtype" in entry else None
        reason = self._excusable(entry["reason"], (*place, "reason"), is_narrow) if "reason" in entry else None
        for limit in {"at_most_ulp", "at_most_error"} & entry.keys() if reason not in (None, Reason.VALUE) else ():
            self.ledger.problem((*place, limit), f"{limit} stands beside {entry['reason']}", "it limits VALUE alone")
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
            case_sets=_words(conditions.get("case_set", ())),
            fills=_words(conditions.get("fill", ())),
            attributes=self._attributes(op, conditions.get("attributes", {}), (*place, "where", "attributes")),
            tier=conditions.get("tier", ""),
            mode=conditions.get("group", ""),
            variants=_words(conditions.get("variant", ())),
            at_most_ulp=entry.get("at_most_ulp"),
            at_most_error=entry.get("at_most_error"),
            is_of_gradients=conditions.get("gradients", False),
            where=f"{self._source.file}:{self._source.line_of(place)}",
            is_binding=_fits({**self._written_for, **entry.get("written_for", {})}, self._versions),
            is_strict=entry.get("strict", True),
        )
        first = self._names.setdefault(line.name, self._source.line_of(place))
        if first != self._source.line_of(place):
            hint = "one line says it all: name several case sets, fills or values in its `where`"
            self.ledger.problem(place, f"{line.name} is expected twice, first in line {first}", hint)
        return line

    def _excusable(self, name: str, place: Path, is_narrow: bool) -> Reason | None:
        if name == WRONG_DATA.value and is_narrow:
            return WRONG_DATA
        if name in {each.value for each in EXCUSABLE}:
            return Reason(name)
        if name not in Reason.__members__:
            self.ledger.unknown(place, UnknownName("reason", name, list(Reason.__members__)))
            return None
        listed = ", ".join(each.value for each in EXCUSABLE) + f"; {WRONG_DATA.value} beside case or model"
        self.ledger.problem(place, f"reason is {name}, which nothing excuses", f"what may be expected: {listed}")
        return None

    def _attributes(self, op: str, given: Mapping[str, Any], place: Path) -> dict[str, tuple[Any, ...]]:
        found = {}
        if given and (not op or _is_glob(op)):
            self.ledger.problem(place, "attributes are those of one operator", "name it: op: softmax")
            return {}
        descriptor = self._operators.get(op) if given else None
        for name, value in given.items():
            values = value["any"] if isinstance(value, dict) and list(value) == ["any"] else [value]
            try:
                assert descriptor is not None
                attribute = descriptor.attribute(name)
                found[attribute.name] = tuple(map(attribute.read, values))
            except UnknownName as error:
                self.ledger.unknown((*place, name), error)
            except ValueError as error:
                self.ledger.problem((*place, name), str(error))
        return found


def _is_glob(text: str) -> bool:
    return "*" in text or "?" in text


def _words(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
