"""Counting and ordering results: by status, operator and reason, by the plan; shared by every report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath

from optest.reporting.typography import by_invariants_text
from optest.spec import BAD_STATUSES, CaseResult, Evidence, Reason, Status

_LONGEST_KIND = 30
"""Characters; what is longer is a sentence, which the list of skips has."""


def _counted(status: Status, count: int) -> str:
    """Statuses that are nouns have a plural."""
    ending = "s" if count != 1 and status in (Status.ERROR, Status.TIMEOUT) else ""
    return f"{count} {status.value}{ending}"


@dataclass(slots=True)
class GroupTally:
    """The cases of one operator or one model: how they ended, and how many share another one's execution."""

    statuses: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    executed: int = 0
    """Those that were run for themselves: neither left out, nor found wrong before anything ran."""
    shared: int = 0
    operators: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    not_run: Counter[str] = field(default_factory=Counter)
    """How many of them show nothing of the backend, by the kind of reason: "too large", "known wrong data"."""
    spent_s: float = 0.0
    """What their executions took; a shared one counts where it was executed."""

    def add(self, result: CaseResult) -> None:
        number = len(result.keys)
        self.statuses[result.status] += number
        if result.reason is not None:
            self.reasons[result.reason.value] += number
        self.operators.add(result.operator)
        self.keys.add(result.key)
        if kind := _why_nothing_is_shown(result):
            self.not_run[kind] += number
        if result.status is Status.SKIPPED or (result.reason is Reason.BAD_CASE and not spent_s(result)):
            return
        if result.duplicate_of is None:
            self.executed += 1
            self.spent_s += spent_s(result)
        else:
            self.shared += 1

    @property
    def bad(self) -> int:
        return sum(count for status, count in self.statuses.items() if status in BAD_STATUSES)

    @property
    def all_passed(self) -> bool:
        return set(self.statuses) == {Status.PASSED}

    @property
    def pass_rate(self) -> float | None:
        """The share of those that show something of the backend, None if none does."""
        ran = sum(self.statuses.values()) - self.not_run.total()
        return self.statuses[Status.PASSED] / ran if ran else None


UNNAMED, WRONG_DATA = "skipped", "known wrong data"


def _why_nothing_is_shown(result: CaseResult) -> str:
    """The kind of reason, "" for a case that shows something: what a skip says in front of a colon."""
    if result.status is Status.XFAILED and result.reason is Reason.BAD_CASE:
        return WRONG_DATA
    if result.status is not Status.SKIPPED:
        return ""
    kind, colon, _ = result.verdict.message.partition(":")
    return kind if colon and len(kind) <= _LONGEST_KIND else UNNAMED


def skip_text(why: tuple[str, str]) -> str:
    """The reason and the message of a skip as one text."""
    return ": ".join(part for part in why if part) or "no reason given"


def spent_s(result: CaseResult) -> float:
    """Seconds of all phases of a case."""
    return result.timings.total_s or 0.0


def model_of(result: CaseResult) -> str:
    """The model that a case was traced from, "" for none."""
    model, separator, _ = result.id.partition("::")
    return model if separator and any(tag.startswith("model_") for tag in result.tags) else ""


@dataclass(slots=True)
class Tally:
    """What a run adds up to so far."""

    operators: dict[str, GroupTally] = field(default_factory=dict)
    skips: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many cases were skipped for a (reason, message)."""
    by_file: dict[tuple[str, str], GroupTally] = field(default_factory=dict)
    """By model and the file that the case stands in."""
    all: GroupTally = field(default_factory=GroupTally)
    refused: int = 0
    """How many of those that passed were refused, as they had to be."""
    by_invariants: int = 0
    """How many of those that passed have no reference."""

    def add(self, result: CaseResult) -> None:
        self.by_invariants += result.status is Status.PASSED and result.verdict.evidence is Evidence.INVARIANT
        self.refused += result.verdict.evidence is Evidence.RAISED_AS_EXPECTED
        operator = self.operators.get(result.operator)
        if operator is None:
            operator = self.operators[result.operator] = GroupTally()
        operator.add(result)
        if result.status is Status.SKIPPED:
            self.skips[result.reason.value if result.reason else "", result.verdict.message] += len(result.keys)
        self.all.add(result)
        if name := model_of(result):
            self.by_file.setdefault((name, result.where.rpartition(":")[0]), GroupTally()).add(result)

    @property
    def models(self) -> dict[str, GroupTally]:
        """By the model's name, and its file where several have one of that name."""
        files: dict[str, list[str]] = {}
        for name, file in self.by_file:
            files.setdefault(name, []).append(file)
        return {
            name if len(files[name]) == 1 else f"{name} ({_short(file, files[name])})": each
            for (name, file), each in self.by_file.items()
        }

    @property
    def statuses(self) -> Counter[Status]:
        return self.all.statuses

    @property
    def finished(self) -> int:
        return self.all.statuses.total()

    @property
    def bad(self) -> int:
        return self.all.bad

    def phrase(self) -> str:
        """``12 passed, 2 failed, 3 errors``, or ``nothing ran``."""
        counted = [_counted(status, self.statuses[status]) for status in Status if self.statuses[status]]
        if self.by_invariants:
            counted[0] += by_invariants_text(self.by_invariants)  # the passed come first
        return ", ".join(counted) or "nothing ran"

    def worst_first(self) -> list[tuple[str, GroupTally]]:
        """Operators by how much is wrong with them, in the order of the run among equals."""
        return sorted(self.operators.items(), key=lambda entry: (-entry[1].bad, entry[1].all_passed))


def _short(file: str, others: Iterable[str]) -> str:
    """A file by its name, by its path where others have that name."""
    names = [PurePath(each).name for each in others]
    return file if names.count(PurePath(file).name) > 1 else PurePath(file).name


def in_plan_order(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Rounds, then file and line of the plan, so that reports can be compared however the cases finished."""
    return sorted(results, key=_place)


def _place(result: CaseResult) -> tuple[int, str, int]:
    """Cases without a line keep the order in which they finished."""
    file, _, line = result.where.rpartition(":")
    return (result.round, file, int(line) if line.isdigit() else 0)
