"""Sums of products that are known in float64: of groups, and with one operand added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch_kit import case, element, tensor, verdict  # noqa: E402

from optest.core.runner import execute  # noqa: E402
from optest.spec import Reason, Status, TestCase, Verdict  # noqa: E402
from optest.torch.calls.reference import terms  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, LONG = 8, 4096
A, B = tensor((ROWS, LONG)), tensor((3, LONG, 16))
ENDS = tensor(3, "int32", "data", values=[2, 2, ROWS])
NAMES = ["torch.nn.functional.grouped_mm", "torch._grouped_mm", "torch.ops.aten._grouped_mm.default"]


class Exact(TorchBackend):
    """Adds up in float64; ``harm`` is added to one element."""

    def __init__(self, harm: float = 0.0) -> None:
        super().__init__()
        self._harm = harm

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        (made,) = super().run(case, inputs)
        one, other, ends = [np.asarray(each, dtype=np.float64) for each in inputs]
        begins = [0, *ends[:-1]]
        parts = [one[int(b) : int(e)] @ other[g] for g, (b, e) in enumerate(zip(begins, ends, strict=True))]
        found = np.concatenate(parts).astype(made.dtype)
        found[1, 1] += self._harm
        return [found]


def judged(asked: TestCase, driver: TorchBackend) -> Verdict:
    return execute([asked], driver).verdicts[0]


@pytest.mark.parametrize("name", NAMES)
def test_an_exact_sum_is_right_and_one_that_lost_a_term_is_not(name: str) -> None:
    asked = case(f"{name}(input0, input1, offs=input2)", A, B, ENDS)
    assert judged(asked, TorchBackend()).status is Status.PASSED
    assert judged(asked, Exact()).status is Status.PASSED
    assert judged(asked, Exact(harm=0.25)).status is Status.FAILED


@pytest.mark.parametrize(
    ("shapes", "ends"),
    [
        (((3, 4, 8), (3, 8, 4)), None),
        (((3, 4, 8), (8, 12)), [4, 8, 12]),
        (((4, 12), (12, 8)), [4, 4, 12]),
        (((12, 8), (3, 8, 4)), [4, 8, 12]),
    ],
)
def test_each_way_to_group_passes_against_itself_backward_too(shapes: Any, ends: list[int] | None) -> None:
    operands = [tensor(shape) for shape in shapes]
    offsets = [tensor(3, "int32", "data", values=ends)] if ends else []
    text = f"torch._grouped_mm(input0, input1{', input2' if ends else ''})"
    for more in ({}, {"grad": True}):
        found = verdict(case(text, *operands, *offsets, **more))
        assert found.status is Status.PASSED, found


@pytest.mark.parametrize(("ends", "reason"), [([2, 4, 6], Reason.UNSUPPORTED), ([4, 2, ROWS], Reason.BAD_CASE)])
def test_rows_of_no_group_have_no_right_answer(ends: list[int], reason: Reason) -> None:
    asked = case("torch._grouped_mm(input0, input1, input2)", A, B, tensor(3, "int32", "data", values=ends))
    assert judged(asked, TorchBackend()).reason is reason


def test_a_bias_which_torch_refuses_has_no_right_answer() -> None:
    asked = case("torch._grouped_mm(input0, input1, input2, input3)", A, B, ENDS, tensor((3, 16)))
    assert judged(asked, TorchBackend()).reason in {Reason.UNSUPPORTED, Reason.REFERENCE_FAILED}


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
