"""Measure, rule, verdict: numbers about actual against expected, what is allowed, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from optest.spec import Check, DType, Numerics, Rule, TestCase, Verdict

__all__ = ["Expected", "judge"]


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


_judge: Callable[..., Verdict] | None = None


def judge(
    case: TestCase,
    actual: Sequence[Any],
    expected: Sequence[Expected],
    *,
    numerics: Numerics,
    every_measure: bool = False,
    inputs: Sequence[Any] | None = None,
    checks: tuple[Check, ...] = (),
) -> Verdict:
    """Compare outputs in order and return the verdict; ``every_measure`` computes all numbers even on a pass.

    ``actual`` are NumPy arrays. Number, shape and dtype of the outputs are part of the verdict. ``inputs``, where
    they are known, tell sums over operands of few distinct values, whose roundings add up, from all others.
    ``checks`` is what else was looked at; the verdict holds them.
    """
    global _judge
    if _judge is None:  # NumPy is imported when the first verdict is asked for
        from optest.compare.verdict import judge as judge_outputs

        _judge = judge_outputs
    return _judge(case, actual, expected, numerics=numerics, every_measure=every_measure, inputs=inputs, checks=checks)
