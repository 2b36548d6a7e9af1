"""``addmm`` and its kin are sums of products and one operand more, which the rule for sums judges at any length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch_kit import case, element, tensor, verdict  # noqa: E402

from optest.spec import Status  # noqa: E402
from optest.torch.calls.reference import terms  # noqa: E402

pytestmark = pytest.mark.torch

SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "addmm": ((24,), (4, 512), (512, 24)),
    "addmv": ((4,), (4, 512), (512,)),
    "baddbmm": ((2, 4, 8), (2, 4, 512), (2, 512, 8)),
    "addbmm": ((4, 8), (2, 4, 512), (2, 512, 8)),
    "addr": ((4, 8), (4,), (8,)),
}
TERMS = {"addmm": 513, "addmv": 513, "baddbmm": 513, "addbmm": 1025, "addr": 2}
FORMS = [
    "torch.{}(input0, input1, input2)",
    "torch.{}(input0, input1, input2, beta=-0.5, alpha=-0.125)",
]


def inputs(name: str) -> list[Any]:
    return [tensor(shape) for shape in SHAPES[name]]


@pytest.mark.parametrize("grad", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("form", FORMS, ids=["plain", "multiples"])
@pytest.mark.parametrize("name", SHAPES)
def test_torch_is_right_by_the_rule_for_sums(name: str, form: str, grad: bool) -> None:
    found = verdict(case(form.format(name), *inputs(name), grad=grad))
    assert found.status is Status.PASSED, found
    assert "4·√k·u·Σ|terms|" in str(found.measures[0].rule)


@pytest.mark.parametrize("name", ["addmm", "baddbmm"])
def test_in_place_and_of_the_dispatcher(name: str) -> None:
    shapes = {"addmm": ((4, 24), (4, 512), (512, 24)), "baddbmm": SHAPES["baddbmm"]}[name]
    given = [tensor(shape) for shape in shapes]
    assert verdict(case(f"torch.Tensor.{name}_(input0, input1, input2, alpha=0.5)", *given)).status is Status.PASSED
    assert verdict(case(f"torch.ops.aten.{name}.default(input0, input1, input2)", *given)).status is Status.PASSED


@pytest.mark.parametrize("form", FORMS, ids=["plain", "multiples"])
@pytest.mark.parametrize("name", SHAPES)
def test_terms_are_counted_without_their_factors(name: str, form: str) -> None:
    arrays = [np.ones(shape, np.float32) for shape in SHAPES[name]]
    found = terms(arrays, {"call": form.format(name)})[0]
    products, alpha, beta = TERMS[name] - 1, *((1.0, 1.0) if "alpha" not in form else (0.125, 0.5))
    assert found.count == TERMS[name]
    assert np.all(found.absolute == beta + alpha * products)
    assert np.all(found.squared == beta**2 + alpha**2 * products)


def test_what_rounding_does_not_explain_is_found() -> None:
    wrong = element(3, lambda value: value + 0.01)
    assert verdict(case(FORMS[0].format("addmm"), *inputs("addmm")), wrong).status is Status.FAILED


@pytest.mark.parametrize("name", SHAPES)
def test_a_complex_multiple_is_as_large_as_its_magnitude(name: str) -> None:
    form = f"torch.{name}(input0, input1, input2, beta=0.6+0.8j, alpha=0.3-0.4j)"
    given = [tensor(shape, "complex64") for shape in SHAPES[name]]
    assert verdict(case(form, *given)).status is Status.PASSED
    wrong = element(3, lambda value: value + 0.01)
    assert verdict(case(form, *given), wrong).status is Status.FAILED
    found = terms([np.ones(shape, np.complex64) for shape in SHAPES[name]], {"call": form})[0]
    assert found.count == TERMS[name]
    assert np.allclose(found.absolute, 1.0 + 0.5 * (TERMS[name] - 1))


@pytest.mark.parametrize("factors", ["", ", beta=True, alpha=False", ", beta=False, alpha=True"])
def test_products_of_truth_values(factors: str) -> None:
    one = case(f"torch.addr(input0, input1, input2{factors})", *[tensor(shape, "bool") for shape in SHAPES["addr"]])
    assert verdict(one).status is Status.PASSED
    assert verdict(one, element(3, np.logical_not)).status is Status.FAILED
