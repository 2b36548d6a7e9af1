"""Calls of complex numbers: sums and products by their own error, all other functions by torch.testing's defaults."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_kit
from torch_kit import Wrong, case, tensor

from optest.operators.elementwise.arithmetic_reference import add_terms, mul_terms, sub_terms
from optest.spec import Reason, Status, Verdict
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch


def verdict(text: str, kind: str = "complex64", driver: TorchBackend | None = None) -> Verdict:
    return torch_kit.verdict(case(text, *[tensor(2000, kind)] * (2 if "input1" in text else 1)), driver)


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
@pytest.mark.parametrize(
    "text",
    [
        "torch.mul(input0, input1)",
        "torch.mul(input0, 2.3)",
        "torch.mul(input0, complex(0.1, 0.7))",
        "torch.add(input0, input1)",
        "torch.sub(input0, input1)",
        "torch.sub(input0, input1, alpha=0.3)",
        "torch.Tensor.mul_(input0, input1)",
        "torch.log1p(input0)",
        "torch.nn.functional.silu(input0)",
    ],
)
def test_honest_results_pass(text: str, kind: str) -> None:
    assert verdict(text, kind).status is Status.PASSED


def off(share: float) -> Wrong:
    """Torch whose first result is off by a share of its magnitude."""
    return Wrong(lambda outputs: [outputs[0] + (share * np.abs(outputs[0])).astype(outputs[0].real.dtype)])


@pytest.mark.parametrize("text", ["torch.mul(input0, input1)", "torch.add(input0, input1)", "torch.exp(input0)"])
def test_results_that_are_off_fail(text: str) -> None:
    share = 3e-6 if "exp" in text else 4e-7
    assert verdict(text, driver=off(share)).reason is Reason.VALUE


def test_the_rule_says_that_it_is_not_the_catalogues() -> None:
    found = verdict("torch.exp(input0)").measures[0].rule
    assert found is not None
    assert found.name == "close"
    assert "its ceiling for exp is that of real numbers" in found.text


def test_the_terms_bound_the_error_of_products_that_cancel() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(20_000) + 1j * rng.standard_normal(20_000) for _ in range(2))
    a, b = a.astype(np.complex64), b.astype(np.complex64)
    right = a.astype(np.complex128) * b.astype(np.complex128)
    error = np.abs((torch.from_numpy(a) * torch.from_numpy(b)).numpy() - right)
    (budget,) = mul_terms([a, b], {})
    assert budget is not None
    allowed = (np.asarray(budget.worst) + 0.5 * np.abs(right)) * 2.0**-24
    assert (error <= allowed).all()
    assert float((error / allowed).max()) > 0.6  # it is a bound, not a licence


def test_real_numbers_have_no_terms() -> None:
    x = np.ones(3, np.float32)
    assert mul_terms([x, x], {}) == add_terms([x, x], {}) == sub_terms([x, x], {}) == (None,)
