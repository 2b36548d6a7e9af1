"""Sums of products that are known in float64: their terms, in blocks, and of complex numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from texts import says
from torch_kit import Answering, Wrong, case, element, fails, passes, separates, tensor, verdict

from optest.operators.elementwise.arithmetic_reference import add_terms, mul_terms, sub_terms
from optest.spec import Reason, TestCase
from optest.torch.calls import contraction_blocks, reference
from optest.torch.calls.call import torch_call
from optest.torch.calls.contraction_blocks import in_blocks
from optest.torch.calls.reference import terms

ROWS, LONG = 8, 4096
A, B = tensor((ROWS, LONG)), tensor((3, LONG, 16))
ENDS = tensor(3, "int32", "data", values=[2, 2, ROWS])
NAMES = ["torch.nn.functional.grouped_mm", "torch._grouped_mm", "torch.ops.aten._grouped_mm.default"]


def exact(harm: float = 0.0) -> Answering:
    """Torch that sums in float64; ``harm`` is added to one element."""

    def outputs(own: list[Any], inputs: Sequence[Any]) -> list[Any]:
        one, other, ends = [np.asarray(each, dtype=np.float64) for each in inputs]
        begins = [0, *ends[:-1]]
        parts = [one[int(b) : int(e)] @ other[g] for g, (b, e) in enumerate(zip(begins, ends, strict=True))]
        found = np.concatenate(parts).astype(own[0].dtype)
        found[1, 1] += harm
        return [found]

    return Answering(outputs)


@pytest.mark.parametrize("name", NAMES)
def test_sum_without_a_term_fails(name: str) -> None:
    asked = case(f"{name}(input0, input1, offs=input2)", A, B, ENDS)
    passes(asked)
    passes(asked, exact())
    fails(asked, exact(harm=0.25))


@pytest.mark.parametrize(
    ("shapes", "ends"),
    [
        (((3, 4, 8), (3, 8, 4)), None),
        (((3, 4, 8), (8, 12)), [4, 8, 12]),
        (((4, 12), (12, 8)), [4, 4, 12]),
        (((12, 8), (3, 8, 4)), [4, 8, 12]),
    ],
)
def test_grouped_products_pass_against_themselves(shapes: Any, ends: list[int] | None) -> None:
    operands = [tensor(shape) for shape in shapes]
    offsets = [tensor(3, "int32", "data", values=ends)] if ends else []
    text = f"torch._grouped_mm(input0, input1{', input2' if ends else ''})"
    for more in ({}, {"grad": True}):
        passes(case(text, *operands, *offsets, **more))


@pytest.mark.parametrize(("ends", "reason"), [([2, 4, 6], Reason.UNSUPPORTED), ([4, 2, ROWS], Reason.BAD_CASE)])
def test_rows_of_no_group_have_no_right_answer(ends: list[int], reason: Reason) -> None:
    ends_of_rows = tensor(3, "int32", "data", values=ends)
    fails(case("torch._grouped_mm(input0, input1, input2)", A, B, ends_of_rows), reason=reason)


def test_refused_bias_has_no_expected_result() -> None:
    asked = case("torch._grouped_mm(input0, input1, input2, input3)", A, B, ENDS, tensor((3, 16)))
    assert verdict(asked).reason in {Reason.UNSUPPORTED, Reason.REFERENCE_FAILED}


SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "addmm": ((24,), (4, 512), (512, 24)),
    "addmv": ((4,), (4, 512), (512,)),
    "baddbmm": ((2, 4, 8), (2, 4, 512), (2, 512, 8)),
    "addbmm": ((4, 8), (2, 4, 512), (2, 512, 8)),
    "addr": ((4, 8), (4,), (8,)),
}
TERMS = {"addmm": 513, "addmv": 513, "baddbmm": 513, "addbmm": 1025, "addr": 2}

OPERANDS = "input0, input1, input2"
FORMS = [f"torch.{{}}({OPERANDS})", f"torch.{{}}({OPERANDS}, beta=-0.5, alpha=-0.125)"]


def inputs(name: str, kind: str = "float32") -> list[Any]:
    return [tensor(shape, kind) for shape in SHAPES[name]]


@pytest.mark.parametrize("grad", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("form", FORMS, ids=["plain", "multiples"])
@pytest.mark.parametrize("name", SHAPES)
def test_torch_is_right_by_the_rule_for_sums(name: str, form: str, grad: bool) -> None:
    found = passes(case(form.format(name), *inputs(name), grad=grad))
    assert "4·√k·u·Σ|terms|" in str(found.measures[0].rule)


@pytest.mark.parametrize("name", ["addmm", "baddbmm"])
def test_in_place_and_of_the_dispatcher(name: str) -> None:
    first = tensor((4, 24)) if name == "addmm" else inputs(name)[0]
    for form in (f"torch.Tensor.{name}_({OPERANDS}, alpha=0.5)", f"torch.ops.aten.{name}.default({OPERANDS})"):
        passes(case(form, first, *inputs(name)[1:]))


@pytest.mark.parametrize("form", FORMS, ids=["plain", "multiples"])
@pytest.mark.parametrize("name", SHAPES)
def test_terms_are_counted_without_their_factors(name: str, form: str) -> None:
    found = terms([np.ones(shape, np.float32) for shape in SHAPES[name]], {"call": form.format(name)})[0]
    products, alpha, beta = TERMS[name] - 1, *((1.0, 1.0) if "alpha" not in form else (0.125, 0.5))
    assert found.count == TERMS[name]
    assert np.all(found.absolute == beta + alpha * products)
    assert np.all(found.squared == beta**2 + alpha**2 * products)


OFF_BY_A_HUNDREDTH = element(3, lambda value: value + 0.01)


def test_what_rounding_does_not_explain_is_found() -> None:
    fails(case(FORMS[0].format("addmm"), *inputs("addmm")), OFF_BY_A_HUNDREDTH)


@pytest.mark.parametrize("name", SHAPES)
def test_complex_factor_counts_by_magnitude(name: str) -> None:
    form = f"torch.{name}(input0, input1, input2, beta=0.6+0.8j, alpha=0.3-0.4j)"
    separates(case(form, *inputs(name, "complex64")), OFF_BY_A_HUNDREDTH)
    found = terms([np.ones(shape, np.complex64) for shape in SHAPES[name]], {"call": form})[0]
    assert found.count == TERMS[name]
    assert np.allclose(found.absolute, 1.0 + 0.5 * (TERMS[name] - 1))


@pytest.mark.parametrize("factors", ["", ", beta=True, alpha=False", ", beta=False, alpha=True"])
def test_products_of_truth_values(factors: str) -> None:
    truth_values = case(f"torch.addr(input0, input1, input2{factors})", *inputs("addr", "bool"))
    separates(truth_values, element(3, np.logical_not))


# Large contractions are made block by block, and are the same as in one piece.


CALLS = {
    "torch.nn.functional.linear(input0, input1)": [(3, 16), (50, 16)],
    "torch.nn.functional.linear(input0, input1, input2)": [(2, 3, 16), (50, 16), (50,)],
    "torch.nn.functional.linear(input0, input1, bias=input2)": [(3, 16), (50, 16), (50,)],
    "torch.nn.functional.linear(input0, input1, None)": [(90, 16), (5, 16)],
    "torch.matmul(input0, input1)": [(3, 16), (16, 70)],
    "torch.mm(input0, input1)": [(80, 16), (16, 5)],
    "torch.bmm(input0, input1)": [(5, 3, 16), (5, 16, 20)],
    "torch.Tensor.matmul(input1, input0)": [(16, 7), (2, 64, 16)],
    "torch.ops.aten.mm.default(input0, input1)": [(3, 16), (16, 70)],
    "torch.matmul(input0, input2)": [(90, 16), (1,), (16,)],
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "_LARGE", 1)
    monkeypatch.setattr(contraction_blocks, "_BLOCK", 100)


def drawn(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(5)
    arrays = [random.standard_normal(shape).astype(np.float16) for shape in shapes]
    for array in arrays:
        array.setflags(write=False)
    return arrays


@pytest.mark.parametrize("text", CALLS)
@pytest.mark.usefixtures("small_blocks")
def test_blocks_are_the_result(text: str) -> None:
    inputs, call = drawn(*CALLS[text]), torch_call(text)
    kept = [array.copy() for array in inputs]
    found = in_blocks(call, inputs, [torch.Tensor.abs_, torch.Tensor.square_])
    absolute = [torch.from_numpy(np.abs(array.astype(np.float64))) for array in inputs]
    for result, operands in zip(found, (absolute, [each.square() for each in absolute]), strict=True):
        torch.testing.assert_close(result, *call.on(operands, torch.device("cpu"))(), rtol=1e-14, atol=0.0)
    assert all(np.array_equal(array, before) for array, before in zip(inputs, kept, strict=True))


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("torch.matmul(input0, input0)", [(16, 16)]),
        ("torch.add(input0, input1)", [(9, 9), (9, 9)]),
        ("torch.addmm(input0, input1, input2)", [(9, 9), (9, 9), (9, 9)]),
        ("torch.nn.functional.linear(input0, input1)", [(30,), (30,)]),
        ("torch.matmul(input0, input1)", [(30,), (30,)]),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_contraction_without_split_is_one_block(text: str, shapes: list[tuple[int, ...]]) -> None:
    assert in_blocks(torch_call(text), drawn(*shapes), [torch.Tensor.abs_]) is None


@pytest.mark.usefixtures("small_blocks")
def test_error_terms_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, call = drawn((3, 16), (50, 16), (50,)), {"call": "torch.nn.functional.linear(input0, input1, input2)"}
    (by_blocks,) = terms(inputs, call)
    monkeypatch.setattr(reference, "_LARGE", 1 << 30)
    (whole,) = terms(inputs, call)
    assert by_blocks.count == whole.count == 17
    np.testing.assert_allclose(by_blocks.absolute, whole.absolute, rtol=1e-14)
    np.testing.assert_allclose(by_blocks.squared, whole.squared, rtol=1e-14)


@pytest.mark.usefixtures("small_blocks")
def test_torch_has_as_many_threads_as_before() -> None:
    before, call = torch.get_num_threads(), torch_call("torch.nn.functional.linear(input0, input1)")
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            assert in_blocks(call, drawn((3, 16), (50, 16)), [torch.Tensor.abs_]) is not None
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("small_blocks")
def test_what_a_block_raises_is_raised() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        in_blocks(torch_call("torch.mm(input0, input1)"), drawn((3, 16), (17, 70)), [torch.Tensor.abs_])


# Calls of complex numbers: sums and products by their own error, all other functions by torch.testing's defaults.


def complex_case(text: str, kind: str = "complex64") -> TestCase:
    return case(text, *[tensor(2000, kind)] * (2 if "input1" in text else 1))


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
    passes(complex_case(text, kind))


@pytest.mark.parametrize(
    ("text", "share"),
    [("torch.mul(input0, input1)", 4e-7), ("torch.add(input0, input1)", 4e-7), ("torch.exp(input0)", 3e-6)],
)
def test_results_off_by_share_of_magnitude_fail(text: str, share: float) -> None:
    off = Wrong(lambda outputs: [outputs[0] + (share * np.abs(outputs[0])).astype(outputs[0].real.dtype)])
    fails(complex_case(text), off)


def test_rule_text_names_missing_catalogue_rule() -> None:
    found = verdict(complex_case("torch.exp(input0)")).measures[0].rule
    assert found is not None
    assert found.name == "close"
    assert says(found.text, "torch_calls.its_ceiling_for_exp")


def test_terms_bound_error_of_cancelling_products() -> None:
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
