"""What is let pass and told: calls that ``--allow-fallback`` names, and results with other strides than torch's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from optest.spec import CaseResult

__all__ = ["FELL_BACK", "STRIDES", "names_in", "not_needed"]

FELL_BACK = "fall-back"
"""The name of the check that tells of one that is allowed."""

STRIDES = "strides"
"""The name of the check that tells of results with other strides than torch on the CPU gives them."""


def names_in(stated: Sequence[str]) -> list[str]:
    """The names in texts that may hold several, separated by commas."""
    return [name.strip() for text in stated for name in text.split(",") if name.strip()]


def not_needed(stated: Sequence[str], results: Iterable[CaseResult]) -> list[str]:
    """Those of the names of which no call fell back."""
    used = {result.operator for result in results if any(check.name == FELL_BACK for check in result.verdict.checks)}
    return [name for name in dict.fromkeys(names_in(stated)) if name not in used]
