"""The tolerance that is suggested without a rule follows from the condition of the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core_kit import RANDN, case_of, spec_of
from texts import says

from optest.core.runner import TestRunner
from optest.core.suggestion import SUGGESTED, accepts_constants
from optest.spec import Fill, OperatorDescriptor, Reason, Verdict


def verdict_of(reference: Callable[..., Any], kind: str, fill: Fill = RANDN) -> Verdict:
    descriptor = OperatorDescriptor(name="own", signature="x -> out", reference=reference)
    (result,) = TestRunner().run([case_of(descriptor, spec_of(1000, kind=kind), fill=fill)])
    assert result.reason is Reason.BAD_CASE
    return result.verdict


def suggestion_of(*arguments: Any, **more: Any) -> tuple[float, float]:
    rtol, atol, *_ = verdict_of(*arguments, **more).details[SUGGESTED]
    return rtol, atol


def wide(inputs: Any) -> Any:
    return np.asarray(inputs[0], np.float64)


@pytest.mark.parametrize(("kind", "unit"), [("float32", 2.0**-24), ("float16", 2.0**-11), ("bfloat16", 2.0**-8)])
def test_eight_roundings_of_input_and_result(kind: str, unit: float) -> None:
    rtol, atol = suggestion_of(lambda inputs, _: (wide(inputs) * 2,), kind)
    assert 8 * unit < rtol <= 20 * unit
    assert atol <= 20 * unit


def test_condition_makes_it_wider() -> None:
    ordinary, _ = suggestion_of(lambda inputs, _: (wide(inputs) ** 2,), "float32")
    steep, _ = suggestion_of(lambda inputs, _: (wide(inputs) ** 20,), "float32")
    assert 5 * ordinary < steep < 20 * ordinary


def test_what_cancels_needs_atol() -> None:
    fill = Fill(kind="uniform", parameters={"low": 0.5, "high": 1.5})
    rtol, atol = suggestion_of(lambda inputs, _: (wide(inputs) - 1,), "float32", fill)
    assert rtol < 1e-3
    assert 1e-8 < atol < 1e-5


def test_a_hopeless_call_has_none() -> None:
    verdict = verdict_of(lambda inputs, _: (np.sin(wide(inputs) * 1e12),), "float32")
    assert SUGGESTED not in verdict.details
    assert says(verdict.message, "core.is_as_much_as")


def test_no_tolerance_lets_the_mean_pass() -> None:
    verdict = verdict_of(lambda inputs, _: (1 + 1e-4 * wide(inputs),), "float16")
    assert SUGGESTED not in verdict.details
    assert says(verdict.message, "core.the_mean_of_the_results")
    assert "--reference m:slow" in verdict.message
    assert not accepts_constants(0.3, 0.1, 1.0, 1.0)
    assert accepts_constants(0.3, 0.7, 1.0, 1.0)


def test_why_no_number_is_known() -> None:
    seen: list[Any] = []

    def once(inputs: Any, _: Any) -> Any:
        seen.append(inputs)
        if len(seen) > 2:  # the backend has asked it, too
            raise ValueError("no more")
        return (wide(inputs),)

    assert says(verdict_of(once, "float32").message, "core.no_number_can_be")
