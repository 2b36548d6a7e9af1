"""Calls of torch that the catalogue does not know: torch.testing's own tolerances, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_kit
from torch.testing._comparison import get_tolerances
from torch_kit import Wrong, tensor, verdict

from optest.compare.assert_close import close_tolerance
from optest.compare.policy import describe_rule
from optest.operators import operators
from optest.spec import Reason, RuleClass, Status, TestCase, Tolerance, dtype
from optest.torch.calls.descriptors import descriptor_of

DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def case(text: str, kind: str = "float32", *, low: float = 0.5, high: float = 4.0, **more: Any) -> TestCase:
    return torch_kit.case(text, tensor((6, 7), kind, "uniform", low=low, high=high), **more)


def scaled(factor: float) -> Wrong:
    """Torch with results that are off by a factor."""
    return Wrong(lambda outputs: [each * each.dtype.type(factor) for each in outputs])


@pytest.mark.parametrize("name", DTYPES)
def test_they_are_those_of_torch(name: str) -> None:
    assert close_tolerance(dtype(name)) == get_tolerances(getattr(torch, name), rtol=None, atol=None)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_a_function_that_the_catalogue_does_not_know_is_judged(kind: str) -> None:
    asked = case("torch.lgamma(input0)", kind)
    found = verdict(asked)
    assert found.status is Status.PASSED, found
    rule = found.measures[0].rule
    assert rule is not None
    assert (rule.name, rule.layer) == ("close", "operator")
    assert f"torch.testing's default for {kind}" in rule.text
    assert f"torch.testing's default for {kind}" in describe_rule(asked)


def test_what_is_farther_off_fails() -> None:
    asked = case("torch.special.i0(input0)")
    assert verdict(asked, scaled(1 + 2e-5)).reason is Reason.VALUE
    assert verdict(asked, scaled(1 + 5e-7)).status is Status.PASSED


def test_what_the_inputs_rounding_changes_is_no_fault() -> None:
    """Differences of neighbours lose digits, in torch's own 16 bits too; what is farther off than that is wrong."""
    asked = case("torch.gradient(input0, dim=0)", "float16", low=99, high=101)
    found = verdict(asked)
    assert found.status is Status.PASSED, found
    assert "8 times what one rounding of every input changes" in (found.measures[0].rule or found).text
    assert verdict(asked, scaled(5.0)).reason is Reason.VALUE


def test_a_stated_tolerance_is_not_widened_by_it() -> None:
    asked = case("torch.special.polygamma(2, input0)", "float16", high=9.5)
    assert verdict(asked, scaled(1.002)).status is Status.PASSED
    strict = case("torch.special.polygamma(2, input0)", "float16", high=9.5, stated=Tolerance(rtol=1e-6))
    assert verdict(strict, scaled(1.002)).reason is Reason.VALUE


def test_results_that_zeros_would_be_close_to_are_looked_at_with_a_smaller_atol() -> None:
    asked = case("torch.special.i1(input0)", low=1e-9, high=1e-6)
    assert verdict(asked).status is Status.PASSED
    assert verdict(asked, scaled(1.001)).reason is Reason.VALUE
    assert verdict(asked, scaled(0.0)).reason is Reason.VALUE


def test_a_stated_tolerance_goes_before_it() -> None:
    asked = case("torch.special.i0(input0)", stated=Tolerance(rtol=0.1))
    assert verdict(asked, scaled(1.05)).status is Status.PASSED


def test_a_rule_of_the_catalogue_goes_before_it() -> None:
    rules = {name: descriptor_of(name, operators).rule for name in ("torch.exp", "torch.lgamma")}
    assert {name: rule and rule.kind for name, rule in rules.items()} == {
        "torch.exp": RuleClass.ULP,
        "torch.lgamma": RuleClass.CLOSE,
    }


def test_a_dtype_of_which_torch_says_nothing_needs_a_tolerance() -> None:
    found = verdict(case("torch.Tensor.xlogy(input0, input0)", "float8_e5m2"))
    assert found.status is not Status.PASSED
    assert close_tolerance(dtype("float8_e5m2")) is None
