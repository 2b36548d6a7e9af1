"""Measure, rule, verdict: numbers about actual against expected, what is allowed, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optest.spec import DType, Rule

__all__ = ["Expected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """One output as the reference has it.

    ``value`` is float64 (complex128) and unrounded for inexact ``dtype``, exact integers or bool otherwise. An
    expectation that was stored rounded may have ``dtype`` itself.
    ``terms`` is the operator's Terms or ErrorBudget for this output, None where the rule needs none.
    ``alternatives`` takes all actual outputs and returns a mask, True where an element that differs from ``value`` is
    as right (or None); it is asked only where something differs. ``rule`` judges this output, else the operator's.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    value: Any
    terms: Any | None = None
    alternatives: Callable[[Sequence[Any]], Any] | None = None
    rule: Rule | None = None
