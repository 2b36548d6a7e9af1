"""What is said of a trace as a whole: the first value that differs, and how many do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from optest.guests import Values
from optest.spec import BAD_STATUSES, CaseResult, TestCase

__all__ = ["ModelRunHooks"]

_TRACED = ("isolated", "accumulated")


class ModelRunHooks:
    """As :class:`optest.guests.RunHooks` says."""

    def changed_cases(self, cases: Sequence[TestCase], settings: Values) -> list[TestCase]:  # noqa: ARG002
        return list(cases)

    def describe_reference(self, case: TestCase) -> str:  # noqa: ARG002
        return ""

    def environment(self, settings: Values, folder: Path, stated: Mapping[str, str]) -> dict[str, str]:  # noqa: ARG002
        return dict(stated)

    def closing_notes(self, settings: Values, results: Sequence[CaseResult]) -> Iterator[str]:  # noqa: ARG002
        traced = [each for each in results if each.attributes.get("part") in _TRACED]
        wrong = [each for each in traced if each.status in BAD_STATUSES]
        if wrong:
            place = wrong[0].where.partition(": ")[2]
            yield f"first mismatch: {wrong[0].id} ({place}); {len(wrong)} of {len(traced)} values differ"
