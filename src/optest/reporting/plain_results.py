"""Results as files show them: what foreign code said without the sequences that colour a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from optest.reporting.check_findings import FailureGroup, group_lines
from optest.reporting.explain import explain
from optest.reporting.typography import without_ansi
from optest.spec import CaseResult

__all__ = ["block", "group_block", "plain"]


def plain(result: CaseResult) -> CaseResult:
    """The result with the words of foreign code uncoloured; nothing else of it is changed."""
    verdict = result.verdict
    uncoloured = replace(verdict, message=without_ansi(verdict.message), details=_uncoloured(verdict.details))
    return replace(result, id=without_ansi(result.id), verdict=uncoloured)


def block(result: CaseResult) -> str:
    """The failure block of a result as one text: that of the terminal, but for colours of foreign output."""
    return "\n".join(explain(plain(result)))


def group_block(group: FailureGroup) -> str:
    """The failure block of a group as one text."""
    return "\n".join(group_lines(replace(group, first=plain(group.first))))


def _uncoloured(value: Any) -> Any:
    if isinstance(value, str):
        return without_ansi(value)
    if isinstance(value, Mapping):
        return {name: _uncoloured(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_uncoloured(each) for each in value]
    return value
