"""Comparison of actual with expected outputs: measures, tolerance rules and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optest.spec import DType, Rule

__all__ = ["Expected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Expected output of an operator, with the information that its tolerance rule needs.

    ``value`` is float64 (complex128) and unrounded for an inexact ``dtype``, else exact integers or bool. An
    expectation that was stored rounded may have ``dtype`` itself. ``terms`` is the operator's Terms or ErrorBudget for
    this output, None if the rule needs none. ``alternatives`` takes all actual outputs and returns a mask, True for
    elements that are as right as ``value`` (or None); it is called only if something differs. ``rule`` replaces the
    operator's rule for this output.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    value: Any
    terms: Any | None = None
    alternatives: Callable[[Sequence[Any]], Any] | None = None
    rule: Rule | None = None
