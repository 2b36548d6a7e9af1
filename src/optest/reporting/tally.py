"""Counts of results by status, operator, reason and model, and their order in the plan; used by all reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath

from optest.reporting.typography import by_invariants_text
from optest.spec import BAD_STATUSES, CaseResult, Evidence, Reason, Status

# Maximum number of characters of the kind of a skip; a longer text is a sentence, which the list of skips has.
_MAX_KIND_LENGTH = 30


@dataclass(slots=True)
class GroupTally:
    """Counts of the cases of one operator or one model."""

    statuses: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    # Cases with an execution of their own: not skipped, and not invalid before anything ran.
    executed: int = 0
    # Cases that share the execution of another one.
    shared: int = 0
    operators: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    # Cases that show nothing of the backend, by the kind of reason: "too large", "known wrong data".
    not_run: Counter[str] = field(default_factory=Counter)
    # A shared execution counts in the group in which it was executed.
    spent_s: float = 0.0

    def add(self, result: CaseResult) -> None:
        number = len(result.keys)
        self.statuses[result.status] += number
        if result.reason is not None:
            self.reasons[result.reason.value] += number
        self.operators.add(result.operator)
        self.keys.add(result.key)
        if kind := _not_run_kind(result):
            self.not_run[kind] += number
        # A bad case that took time was found in its execution.
        if result.status is Status.SKIPPED or (result.reason is Reason.BAD_CASE and not total_seconds(result)):
            return
        if result.duplicate_of is None:
            self.executed += 1
            self.spent_s += total_seconds(result)
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
        """Share of passed cases among those that ran, None if no case ran."""
        ran = sum(self.statuses.values()) - self.not_run.total()
        return self.statuses[Status.PASSED] / ran if ran else None

    def reasons_text(self) -> str:
        """Return ``3 VALUE, 1 NAN``, the commonest reason first."""
        return ", ".join(f"{count} {reason}" for reason, count in self.reasons.most_common())


UNNAMED, WRONG_DATA = "skipped", "known wrong data"


def _not_run_kind(result: CaseResult) -> str:
    """Return why a case shows too little, "" if it is conclusive; for a skip the words before a colon."""
    if result.status is Status.XFAILED and result.reason is Reason.BAD_CASE:
        return WRONG_DATA
    if result.status is not Status.SKIPPED:
        return ""
    kind, colon, _ = result.verdict.message.partition(":")
    return kind if colon and len(kind) <= _MAX_KIND_LENGTH else UNNAMED


def skip_text(why: tuple[str, str]) -> str:
    """Return the reason and the message of a skip as one text."""
    return ": ".join(part for part in why if part) or "no reason given"


def total_seconds(result: CaseResult) -> float:
    """Return the seconds of all phases of a case, 0.0 if none was timed."""
    return result.timings.total_s or 0.0


def model_of(result: CaseResult) -> str:
    """Return the name of the model from which a case was traced, "" for other cases."""
    model, separator, _ = result.id.partition("::")
    return model if separator and any(tag.startswith("model_") for tag in result.tags) else ""


@dataclass(slots=True)
class Tally:
    """Counts of all results of a run."""

    operators: dict[str, GroupTally] = field(default_factory=dict)
    # Numbers of skipped cases by (reason, message).
    skips: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Groups of model cases by model and the file of the case.
    by_file: dict[tuple[str, str], GroupTally] = field(default_factory=dict)
    all: GroupTally = field(default_factory=GroupTally)
    # Passed cases of which the call was refused, as expected.
    refused: int = 0
    # Passed cases without a reference.
    by_invariants: int = 0

    def add(self, result: CaseResult) -> None:
        self.by_invariants += result.status is Status.PASSED and result.verdict.evidence is Evidence.INVARIANT
        self.refused += result.verdict.evidence is Evidence.RAISED_AS_EXPECTED
        self.operators.setdefault(result.operator, GroupTally()).add(result)
        if result.status is Status.SKIPPED:
            self.skips[result.reason.value if result.reason else "", result.verdict.message] += len(result.keys)
        self.all.add(result)
        if name := model_of(result):
            self.by_file.setdefault((name, result.where.rpartition(":")[0]), GroupTally()).add(result)

    @property
    def models(self) -> dict[str, GroupTally]:
        """Groups by the name of the model, with its file if several files have a model of that name."""
        files: dict[str, list[str]] = {}
        for name, file in self.by_file:
            files.setdefault(name, []).append(file)
        return {
            name if len(files[name]) == 1 else f"{name} ({_shortest_name(file, files[name])})": group
            for (name, file), group in self.by_file.items()
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
        """Return ``12 passed, 2 failed, 3 errors``; ``nothing ran`` without results."""
        parts = []
        for status, count in ((status, self.statuses[status]) for status in Status if self.statuses[status]):
            # Only these two statuses are nouns and have a plural.
            ending = "s" if count != 1 and status in (Status.ERROR, Status.TIMEOUT) else ""
            parts.append(f"{count} {status.value}{ending}")
        if self.by_invariants:
            parts[0] += by_invariants_text(self.by_invariants)  # passed cases come first
        return ", ".join(parts) or "nothing ran"

    def worst_first(self) -> list[tuple[str, GroupTally]]:
        """Return the operators by their number of failures, in the order of the run among equals."""
        return sorted(self.operators.items(), key=lambda entry: (-entry[1].bad, entry[1].all_passed))


def _shortest_name(file: str, files: Iterable[str]) -> str:
    """Return the name of a file; its path if several of ``files`` have that name."""
    names = [PurePath(path).name for path in files]
    return file if names.count(PurePath(file).name) > 1 else PurePath(file).name


def in_plan_order(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Return the results sorted by round, file and line of the plan; those without a line as they finished.

    Reports of two runs can then be compared.
    """

    def sort_key(result: CaseResult) -> tuple[int, str, int]:
        file, _, line = result.where.rpartition(":")
        return (result.round, file, int(line) if line.isdigit() else 0)

    return sorted(results, key=sort_key)
