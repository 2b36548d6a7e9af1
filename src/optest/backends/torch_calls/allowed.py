"""Which calls may fall back: the names that ``--allow-fallback`` takes, and how a record tells that one did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from optest.spec import CaseResult

__all__ = ["FELL_BACK", "names_in", "not_needed"]

FELL_BACK = "fall-back"
"""The name of the check that tells of one that is allowed."""


def names_in(stated: Sequence[str]) -> list[str]:
    """The names in texts that may hold several, separated by commas."""
    return [name.strip() for text in stated for name in text.split(",") if name.strip()]


def not_needed(stated: Sequence[str], results: Iterable[CaseResult]) -> list[str]:
    """Those of the names of which no call fell back."""
    used = {result.operator for result in results if any(check.name == FELL_BACK for check in result.verdict.checks)}
    return [name for name in dict.fromkeys(names_in(stated)) if name not in used]
