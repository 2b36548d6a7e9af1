"""Calls of torch by name: what is found, what they yield, and what is expected of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch_kit
from texts import refusal, says
from torch_kit import Answering, Wrong, fails, passes, separates, tensor, verdict

from optest.api import cases
from optest.operators import operators
from optest.spec import ExpectedError, Fault, Reason, RuleClass, Status, TestCase, Tolerance, Unrounded
from optest.torch.calls.call import torch_call
from optest.torch.calls.descriptors import descriptor_of
from optest.torch.calls.device_call import parse_case_call, why_no_operator
from optest.torch.calls.names import NoSuchCallable, find_callable
from optest.torch.calls.reference import compute_expected, terms
from optest.torch.eager import TorchBackend


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("torch.nn.functional.sillu", "torch.nn.functional.silu"),
        ("torch.softmaxx", "torch.softmax"),
        ("torch.silu", "torch.nn.functional.silu"),
        ("torch.ops.aten.veiw", "torch.ops.aten.view"),
        ("torch.nonsense.add", None),
    ],
)
def test_unknown_name_proposes_existing_one(name: str, hint: str | None) -> None:
    with pytest.raises(NoSuchCallable, match=f"has no torch.*{f'did you mean {hint}' if hint else ''}"):
        find_callable(name)


@pytest.mark.parametrize("name", ["abs", "F.relu", "torch.F.relu", "numpy.add", "os.system", "torch"])
def test_foreign_function_is_no_operator(name: str) -> None:
    with pytest.raises(NoSuchCallable, match=f"op is '{name}', expected a dotted name of torch's; "):
        find_callable(name)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("torch.mul(input0, input1)", "the function of `call` is torch.mul, expected the op, torch.add"),
        ("numpy.add(input0, input1)", "op is 'numpy.add', expected a dotted name of torch's"),
    ],
)
def test_call_has_to_match_op(call: str, said: str) -> None:
    (case,) = cases(op="torch.add", dtype="float32,float32", shape=("input0=2", "input1=2"), attr=(f"call={call}",))
    with pytest.raises(Fault, match=said) as caught:
        parse_case_call(case)
    assert caught.value.reason is Reason.BAD_CASE
    with pytest.raises(Fault, match=said):
        why_no_operator(case)


def test_unregistered_operator_message_names_plugins() -> None:
    call = {"call": "torch.ops.optest_nobodys.twice(input0)"}
    with pytest.raises(Fault, match=r"has no torch\.ops\.optest_nobodys\.twice; .*set OPTEST_PLUGINS") as caught:
        compute_expected([np.ones(2, np.float32)], call)
    assert caught.value.reason is Reason.BAD_CASE


def test_which_calls_change_their_first_argument() -> None:
    for name in ("torch.add_", "torch.setitem", "torch.ops.aten.add_.Tensor"):
        assert descriptor_of(name).mutates == ("input0",), name
    for name in ("torch.add", "torch.and_", "torch.or_", "torch.Tensor.__add__"):
        assert descriptor_of(name).mutates == (), name
    assert torch_call("torch.nn.functional.relu(input0, inplace=True)").mutates == (0,)
    assert torch_call("torch.nn.functional.relu(input0, inplace=False)").mutates == ()


@pytest.mark.parametrize(
    ("call", "is_for_the_host"),
    [
        ("torch.arange(3)", True),
        ("torch.zeros(2, 3, dtype=torch.float32)", True),
        ("torch.arange(3, device=device('cuda:0'))", False),
        ("torch.arange(3, device=device('cpu'))", True),
        ("torch.Tensor.to(input0, device('cpu'))", True),
        ("torch.Tensor.to(input0, device('cuda:0'))", False),
        ("torch.abs(input0)", False),
    ],
)
def test_which_calls_put_their_result_on_the_host(call: str, is_for_the_host: bool) -> None:
    """``torch.arange(3)`` makes its tensor on the CPU, whatever the device under test: no fault of the device."""
    assert torch_call(call).is_for_the_host is is_for_the_host


def case(text: str, *tensors: tuple[str, tuple[int, ...]], fill: str = "randn", **more: Any) -> TestCase:
    return torch_kit.case(text, *(tensor(shape, kind, fill) for kind, shape in tensors), **more)


LOOSE = Tolerance(rtol=5e-3, atol=5e-3)

HALF = ("bfloat16", (3, 5))
LAYER = [("bfloat16", shape) for shape in ((4, 300), (7, 300), (7,))]
IMAGES = [("float32", shape) for shape in ((1, 3, 8, 8), (4, 3, 3, 3))]


@pytest.mark.parametrize(
    "asked",
    [
        case("torch.add(input0, input1, alpha=2)", HALF, HALF, stated=LOOSE),
        case("torch.add_(input0, input1)", HALF, HALF, stated=LOOSE),
        case("torch.setitem(input0, (0, slice(None, 2, None)), 1.5)", HALF),
        case("torch.nn.functional.relu(input0, inplace=True)", HALF, stated=LOOSE),
        case("torch.cat([input0, input1], dim=-1)", HALF, HALF),
        case("torch.chunk(input0, 2, dim=1)", HALF),
        case("torch.to(input0, torch.float32)", HALF),
        case("torch.float(input0)", HALF),
        case("torch.getitem(input0, (..., None, slice(None, None, 2)))", HALF),
        case("torch.and_(input0, input1)", ("bool", (3, 5)), ("bool", (3, 5)), fill="randint"),
        case("torch.invert(input0)", ("int32", (3, 5)), fill="randint"),
        case("torch.arange(2, 9, dtype=torch.float16)", stated=LOOSE),
        case("torch.Tensor.size(input0)", HALF),
        case("torch.result_type(input0, 1.0)", HALF),
        case("torch.promote_types(torch.float16, torch.float32)"),
        case("torch.Tensor.element_size(input0)", HALF),
        case("torch.Tensor.type(input0)", HALF),
        case("torch.Tensor.__repr__(input0)", HALF),
        case("torch.Tensor.dim(input0)", HALF),
        case("torch.is_floating_point(input0)", HALF),
        case("torch.max(input0, dim=1)", HALF, stated=LOOSE),
        case("torch.nn.functional.linear(input0, input1, input2)", *LAYER, stated=LOOSE),
        case("torch.einsum('ij,kj->ik', input0, input1)", HALF, HALF, stated=LOOSE),
        case("torch.nn.functional.conv2d(input0, input1, padding=1)", *IMAGES),
        case("torch.nn.functional.softmax(input0, dim=-1, dtype=torch.float32)", HALF, stated=LOOSE),
        case("torch.sym_sum([1, 65])"),
    ],
    ids=lambda each: each.attributes["call"],
)
def test_torch_agrees_with_itself_in_float64(asked: TestCase) -> None:
    passes(asked)


def test_dropped_product_fails_despite_file_tolerance() -> None:
    """5e-3 of a sum of 4096 products between 0 and 1 is five of them."""

    def dropped(_: list[Any], inputs: Any) -> list[Any]:
        left, right = (torch.from_numpy(np.array(each)) for each in inputs)
        return [(left[:, :-1] @ right[:-1]).numpy()]

    asked = case(
        "torch.matmul(input0, input1)", ("float32", (8, 4096)), ("float32", (4096, 8)), fill="uniform", stated=LOOSE
    )
    separates(asked, Answering(dropped))


def test_changed_input_and_result_are_compared() -> None:
    asked = case("torch.add_(input0, input1)", HALF, HALF, stated=LOOSE)
    untouched = Answering(lambda outputs, inputs: [outputs[0], inputs[0]])
    fails(asked, untouched, output="output1")


def test_wrong_number_of_outputs_fails() -> None:
    asked = case("torch.chunk(input0, 2, dim=1)", HALF)
    fails(asked, Wrong(lambda outputs: outputs[:1]), reason=Reason.MISSING_OUTPUT)
    fails(asked, Wrong(lambda outputs: [*outputs, outputs[0]]), reason=Reason.EXTRA_OUTPUT)


def test_output_dtype_is_that_of_call() -> None:
    array = np.ones((2, 3), np.float32)
    [found] = compute_expected([array], {"call": "torch.nn.functional.softmax(input0, dim=-1, dtype=torch.float16)"})
    assert isinstance(found, Unrounded)
    assert (found.values.dtype, found.dtype.name) == (np.float64, "float16")


@pytest.mark.parametrize("call", ["torch.matmul(input0, input1)", "torch.einsum('ij,jk->ik', input0, input1)"])
def test_terms_of_a_contraction_are_its_own(call: str) -> None:
    left, right = np.array([[1.0, -2.0, 3.0]], np.float32), np.array([[4.0], [5.0], [-6.0]], np.float32)
    [found] = terms([left, right], {"call": call})
    assert (found.absolute.item(), found.squared.item(), found.count) == (4 + 10 + 18, 16 + 100 + 324, 3)


def test_every_contraction_result_has_terms() -> None:
    """The gradients of a convolution: over kernel and channels, over batch and places, over batch and places."""
    above, given, weight = np.full((2, 4, 5), -2.0), np.full((2, 3, 7), 3.0), np.full((4, 3, 3), -1.0)
    text = (
        "torch.ops.aten.convolution_backward.default("
        "input0, input1, input2, [4], [1], [0], [1], False, [0], 1, [True, True, True])"
    )
    arrays = [each.astype(np.float32) for each in (above, given, weight)]
    of_input, of_weight, of_bias = terms(arrays, {"call": text})
    assert (of_input.absolute.max(), of_input.squared.max(), of_input.count) == (3 * 4 * 2, 3 * 4 * 4, 3 * 4)
    assert (of_weight.absolute.max(), of_weight.squared.max(), of_weight.count) == (2 * 5 * 6, 2 * 5 * 36, 2 * 5)
    assert (of_bias.absolute.max(), of_bias.squared.max(), of_bias.count) == (2 * 5 * 2, 2 * 5 * 4, 2 * 5)


def refused(text: str, match: str, *tensors: tuple[Any, Any]) -> TestCase:
    expected = ExpectedError(type="RuntimeError", match=match)
    return torch_kit.case(text, *(tensors or (tensor((3, 5), "bfloat16"),)), expects_error=expected)


ACCEPTED = {"reason": Reason.NOT_REFUSED, "words": "torch on the CPU accepts"}


def test_strides_reach_the_call() -> None:
    """A view of what is not contiguous is refused, in float64 too."""
    text, shape = "torch.view(input0, [2, 24])", (2, 3, 8)
    passes(refused(text, "view", tensor(shape, "float16", strides=(48, 16, 1))))
    fails(refused(text, "view", tensor(shape, "float16")), **ACCEPTED)


def test_other_error_text_is_no_refusal() -> None:
    found = fails(refused("torch.view(input0, 32, -1, 2880)", "view"), reason=Reason.WRONG_ERROR)
    assert says(found.message, "torch_calls.is_invalid_for_input")


def test_a_refusal_of_a_device_alone_is_none() -> None:
    """A device of one's own may refuse before torch is asked: torch on the CPU is asked all the same."""

    class Refusing(TorchBackend):
        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            raise RuntimeError("no sin here")

    fails(refused("torch.sin(input0)", "no sin"), Refusing(), **ACCEPTED)
    fails(refused("torch.view(input0, 4)", "invalid"), Refusing(), reason=Reason.WRONG_ERROR, words="no sin here")


def test_random_results_are_not_compared() -> None:
    dropout = case("torch.nn.functional.dropout(input0, p=0.5, training=True)", HALF, stated=LOOSE)
    fails(dropout, reason=Reason.UNSUPPORTED, words="random numbers")


def test_objects_are_left_out() -> None:
    found = verdict(case("torch.Tensor.__iter__(input0)", HALF))
    assert (found.status, found.reason) == (Status.SKIPPED, Reason.UNSUPPORTED), found
    assert says(found.message, "torch_calls.returns_tuple_iterator_which")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("torch.Tensor.data_ptr(input0)", "returns an address"),
        ("torch.Tensor.__hash__(input0)", "returns an address"),
        ("torch.Tensor.numpy(input0)", "hands out the memory of a tensor"),
        ("torch.Tensor.untyped_storage(input0)", "hands out the memory of a tensor"),
        ("torch.no_grad()", "not an operator"),
    ],
)
def test_addresses_and_memory_are_no_results(text: str, told: str) -> None:
    assert told in (TorchBackend().unsupported(case(text, *[HALF] * text.count("input"))) or "")


def test_unknown_name_is_bad_case() -> None:
    with refusal(Fault, "torch_calls.did_you_mean_torch"):
        TorchBackend().unsupported(case("torch.softmaxx(input0)", HALF))


@pytest.mark.parametrize(
    ("name", "catalogue", "kind"),
    [
        ("torch.view", (), RuleClass.MOVEMENT),
        ("torch.float", (), RuleClass.EXACT),
        ("torch.bmm", (), RuleClass.ACCUMULATE),
        ("torch.silu", (), RuleClass.CLOSE),
        ("torch.lgamma", (operators,), RuleClass.CLOSE),
        ("torch.exp", (operators,), RuleClass.ULP),  # goes before torch.testing's tolerances
    ],
)
def test_which_rules_judge(name: str, catalogue: tuple[Any, ...], kind: RuleClass) -> None:
    assert descriptor_of(name, *catalogue).rule.kind is kind


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("function", ["torch.quantize_per_tensor", "torch.ops.aten.quantize_per_tensor.default"])
def test_quantised_result_is_compared_dequantised(function: str) -> None:
    asked = torch_kit.case(f"{function}(input0, 0.1, 0, torch.qint8)", tensor((3, 4)))
    separates(asked, torch_kit.element(6, lambda value: value + value.dtype.type(0.1)))
