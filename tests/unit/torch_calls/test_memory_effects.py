"""What calls do to memory: views, strides, results written into inputs, and inputs that change beside the results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from texts import says
from torch_kit import Answering, Wrong, by, case, compiler_that, element, tensor, verdict

from optest.core.results import result_of
from optest.operators import operators
from optest.spec import CheckState, Reason, Status, Tolerance, Verdict
from optest.torch.calls.call import torch_call
from optest.torch.cases import STRIDES, other_strides
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch


ROWS = tensor((4, 6))
NAMES = itertools.count()
VIEWS = [
    "torch.transpose(input0, 0, 1)",
    "torch.view(input0, [6, 4])",
    "torch.getitem(input0, (0, slice(1, 3)))",
    "torch.unbind(input0)",
    "torch.chunk(input0, 2)",
    "torch.expand(input0, [2, 4, 6])",
    "torch.ops.aten.permute.default(input0, [1, 0])",
    "torch.Tensor.__getitem__(input0, 1)",
]
MAY_COPY = ["torch.reshape(input0, [6, 4])", "torch.contiguous(input0)", "torch.flatten(input0)"]


@pytest.mark.parametrize("text", VIEWS)
def test_a_copy_is_no_view(text: str) -> None:
    of = case(text, ROWS)
    assert verdict(of).status is Status.PASSED
    assert verdict(of, by("aot_eager")).status is Status.PASSED
    copies = compiler_that(f"optest_copies_{next(NAMES)}", lambda _, results: [each.clone() for each in results])
    found = verdict(of, copies)
    assert (found.reason, "expected a view of input0" in found.message) == (Reason.STATE, True)


@pytest.mark.parametrize("text", ["torch.getitem(input0, [0, 2])", "torch.nn.functional.unfold(input1, 2)"])
def test_copy_passes_if_cpu_copies(text: str) -> None:
    assert verdict(case(text, ROWS, tensor((1, 1, 4, 4)))).status is Status.PASSED


@pytest.mark.parametrize("text", MAY_COPY)
def test_what_may_copy_may(text: str) -> None:
    copies = compiler_that(f"optest_may_copy_{next(NAMES)}", lambda _, results: [each.clone() for each in results])
    assert verdict(case(text, ROWS), copies).status is Status.PASSED


def test_two_results_have_memory_of_their_own_each() -> None:
    """Of ones the smallest is the largest, so that no value shows it."""
    of = case("torch.aminmax(input0)", tensor((4, 6), fill="ones"))
    assert verdict(of).status is Status.PASSED
    found = verdict(of, compiler_that("optest_one_for_two", lambda _, results: [results[0], results[0]]))
    assert (found.reason, "output0 and output1 share memory" in found.message) == (Reason.STATE, True)


def test_views_of_one_input_share_its_memory() -> None:
    assert verdict(case("torch.chunk(input0, 2)", ROWS)).status is Status.PASSED
    assert verdict(case("torch.broadcast_tensors(input0, input0)", ROWS)).status is Status.PASSED


def test_copysign_compares_sign_of_zero() -> None:
    signs = [tensor(3, "float32", "data", values=values) for values in ([0.0, 1.0, 2.0], [-1.0, -1.0, 1.0])]
    of = case("torch.copysign(input0, input1)", *signs)
    assert verdict(of).status is Status.PASSED
    assert verdict(of, by("aot_eager")).status is Status.PASSED
    driver = compiler_that("optest_zero_sign", lambda _, results: tuple(each + 0.0 for each in results))
    assert verdict(of, driver).reason is Reason.VALUE
    assert verdict(case("torch.copysign(input0, input1)", tensor(9), tensor(9), grad=True)).status is Status.PASSED
    assert verdict(case("torch.copysign(input0, -1)", tensor(9, "int64", "randint", low=-5, high=5))).status is (
        Status.PASSED
    )


@pytest.mark.parametrize("dim", [0, -1])
def test_results_may_be_parts_of_one_block(dim: int) -> None:
    """One behind the other, or one among the other: what is written into one of them changes no other."""
    together = compiler_that(f"optest_block_{dim + 1}", lambda _, results: torch.stack(results, dim).unbind(dim))
    assert verdict(case("torch.var_mean(input0, 1)", ROWS), together).status is Status.PASSED


IMAGES = tensor((2, 4, 5, 6), strides=(120, 1, 24, 4))


def told(found: Verdict) -> list[str]:
    return [check.detail for check in found.checks if check.name == STRIDES and check.state is CheckState.NOTE]


def loses_layout(name: str) -> TorchBackend:
    return compiler_that(name, lambda _, results: tuple(each.contiguous() for each in results))


def test_a_lost_memory_format_is_told() -> None:
    found = verdict(case("torch.relu(input0)", IMAGES), loses_layout("optest_no_layout"))
    assert found.status is Status.PASSED
    assert told(found) == ["output0 has the strides [120, 30, 6, 1], torch on the CPU gives it [120, 1, 24, 4]"]


def test_different_strides_fail_on_request() -> None:
    wanted = case("torch.relu(input0)", IMAGES)
    wanted.attributes["same_strides"] = True  # type: ignore[index]
    found = verdict(wanted, loses_layout("optest_no_layout_in_case"))
    assert found.reason is Reason.SHAPE, found
    assert says(found.message, "torch_calls.torch_on_the_cpu")
    assert verdict(wanted, by("aot_eager")).status is Status.PASSED
    assert verdict(wanted).status is Status.PASSED


def test_it_fails_where_the_command_line_does() -> None:
    driver = loses_layout("optest_no_layout_asked")
    driver.configure({"compile_backend": "optest_no_layout_asked", "same_strides": True})
    assert verdict(case("torch.relu(input0)", IMAGES), driver).reason is Reason.SHAPE


@pytest.mark.parametrize("text", ["torch.relu(input0)", "torch.add_(input0, 1.0)", "torch.transpose(input0, 1, 2)"])
def test_torchs_own_are_not_told(text: str) -> None:
    found = verdict(case(text, IMAGES), by("aot_eager"))
    assert (found.status, told(found)) == (Status.PASSED, [])


def test_strides_that_lead_nowhere_are_not_told() -> None:
    def others(_: Any, results: Any) -> Any:
        return (torch.empty_strided((1, 40), (7, 1)).copy_(results[0]),)

    found = verdict(case("torch.exp(input0)", tensor((1, 40))), compiler_that("optest_one_row", others))
    assert (found.status, told(found)) == (Status.PASSED, [])


def test_cpu_strides_decide_over_inferred_ones() -> None:
    """Its kernels for convolutions may choose channels last, which tensors without values do not know."""
    weights, text = tensor((8, 4, 3, 3)), "torch.nn.functional.conv2d(input0, input1)"
    assert told(verdict(case(text, IMAGES, weights), by("aot_eager"))) == []


def test_the_run_says_how_many_there_are() -> None:
    wanted = case("torch.relu(input0)", IMAGES)
    found = verdict(wanted, loses_layout("optest_no_layout_told"))
    [line] = other_strides([result_of(wanted, found)] * 4)
    assert line.startswith("outputs with other strides than those of torch on the CPU: 4 cases (")
    assert line.endswith(", …); --same-strides fails such cases")
    assert list(other_strides([result_of(wanted, verdict(wanted))])) == []


# ``out=``, operators of Python by their methods, and schemas: what a call is asked to write is looked at, too.


LONG_ROWS, ROW, PLACES = tensor((3, 40)), tensor(40), tensor((3, 40), "int64", "zeros")
CALLS = [
    ("torch.add(input0, input1, out=input2)", [LONG_ROWS, LONG_ROWS, LONG_ROWS]),
    ("torch.add(input0, input1, out=input0)", [LONG_ROWS, LONG_ROWS]),
    ("torch.ops.aten.add.out(input0, input1, out=input2)", [LONG_ROWS, LONG_ROWS, LONG_ROWS]),
    ("torch.matmul(input0, input1, out=input2)", [LONG_ROWS, tensor((40, 5)), tensor((3, 5))]),
    ("torch.sort(input0, out=(input2, input1))", [LONG_ROWS, PLACES, LONG_ROWS]),
    ("torch.Tensor.__iadd__(input0, input1)", [LONG_ROWS, LONG_ROWS]),
    ("torch.Tensor.__setitem__(input0, 0, input1)", [LONG_ROWS, ROW]),
    ("torch._foreach_add_([input0, input1], 1.0)", [LONG_ROWS, ROW]),
    ("torch._foreach_add_((input0, input1), 1.0)", [LONG_ROWS, ROW]),
]


@pytest.mark.parametrize(("text", "tensors"), CALLS, ids=[text for text, _ in CALLS])
def test_a_right_call_passes(text: str, tensors: list[Any]) -> None:
    assert verdict(case(text, *tensors)).status is Status.PASSED
    assert verdict(case(text, *tensors), by("aot_eager")).status is Status.PASSED


def test_out_that_resizes_passes() -> None:
    found = verdict(case("torch.matmul(input0, input1, out=input2)", LONG_ROWS, tensor((40, 5)), tensor((0,))))
    assert found.status is Status.PASSED, found


def instead(name: str, change: Callable[[Sequence[Any]], Any]) -> TorchBackend:
    """A compiler that calls ``change`` in place of the graph."""
    torch._dynamo.register_backend(lambda graph, _: lambda *given: change(given), name=name)
    return by(name)


def test_result_outside_out_fails() -> None:
    driver = instead("optest_no_out", lambda given: (given[0] + given[1],))
    found = verdict(case("torch.add(input0, input1, out=input2)", LONG_ROWS, LONG_ROWS, LONG_ROWS), driver)
    assert found.reason is Reason.STATE, found
    assert says(found.message, "torch_calls.should_put_result_into")


def test_operators_of_python_that_write_nothing_are_found() -> None:
    driver = instead("optest_no_iadd", lambda given: (given[0] + given[1],))
    found = verdict(case("torch.Tensor.__iadd__(input0, input1)", LONG_ROWS, LONG_ROWS), driver)
    assert found.reason is Reason.STATE, found
    driver = instead("optest_no_setitem", lambda _: ())
    found = verdict(case("torch.Tensor.__setitem__(input0, 0, input1)", LONG_ROWS, ROW), driver)
    assert found.reason is Reason.VALUE, found


def test_last_tensor_of_list_is_compared() -> None:
    driver = instead("optest_first_of_list", lambda given: (given[0].add_(1), given[1]))
    found = verdict(case("torch._foreach_add_([input0, input1], 1.0)", LONG_ROWS, ROW), driver)
    assert found.reason is Reason.VALUE, found
    assert "input1 afterwards" in found.message


def test_an_operator_of_others_says_what_it_writes() -> None:
    with torch.library._scoped_library("optest_writes", "DEF") as made:
        made.define("norm(Tensor(a!) result, Tensor x) -> ()")
        made.define("put(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
        call = torch_call("torch.ops.optest_writes.norm(input0, input1)")
        assert (call.mutates, call.beside, call.into) == ((0,), (0,), ())
        call = torch_call("torch.ops.optest_writes.put(input0, out=input1)")
        assert (call.mutates, call.beside, call.into) == ((), (), (1,))


def test_running_statistics_stay_where_they_were() -> None:
    text = "torch.nn.functional.batch_norm(input0, input1, input2, training=True)"
    assert torch_call(text).beside == (1, 2)
    assert torch_call(text.replace("True", "False")).changes == ()


# Calls that change more than they return: running statistics and clipped weights are outputs, too.


NORM = "torch.nn.functional.batch_norm(input0, input1, input2"


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (f"{NORM})", ()),
        (f"{NORM}, training=True)", (1, 2)),
        (f"{NORM}, input3, input4, True, 0.5, 1e-05)", (1, 2)),
        (f"{NORM}, training=False)", ()),
        ("torch.nn.functional.batch_norm(input0, None, None, training=True)", ()),
        ("torch.native_batch_norm(input0, input1, input2, input3, input4, True, 0.5, 0.1)", (3, 4)),
        ("torch.nn.functional.instance_norm(input0, input1, input2)", (1, 2)),
        ("torch.nn.functional.instance_norm(input0, input1, input2, use_input_stats=False)", ()),
        ("torch.nn.functional.embedding(input0, input1)", ()),
        ("torch.nn.functional.embedding(input0, input1, max_norm=1.0)", (1,)),
        ("torch.nn.functional.embedding_bag(input0, input1, max_norm=1.0)", (1,)),
    ],
)
def test_requested_input_changes_are_known(text: str, changed: tuple[int, ...]) -> None:
    assert torch_call(text).mutates == changed


STATED = Tolerance(rtol=1e-5, atol=1e-6)
NORM_INPUTS = [tensor((6, 5)), *[tensor(5, fill="uniform", low=0.5, high=2.0)] * 2]
TRAINED = f"{NORM}, training=True, momentum=0.3)"


def test_running_statistics_are_judged() -> None:
    found = verdict(case(TRAINED, *NORM_INPUTS, stated=STATED))
    assert found.status is Status.PASSED, found
    assert [each.output for each in found.measures] == ["output0", "input1 afterwards", "input2 afterwards"]


@pytest.mark.parametrize("stated", [STATED, None], ids=["stated", "not-stated"])
def test_running_statistics_that_stay_are_found(stated: Tolerance | None) -> None:
    forgetful = Answering(lambda outputs, inputs: [*outputs[:2], np.array(inputs[2])])
    found = verdict(case(TRAINED, *NORM_INPUTS, stated=stated), forgetful)
    assert found.reason is Reason.VALUE
    assert "input2 afterwards" in found.message


def test_running_statistics_use_close_rule_by_default() -> None:
    found = verdict(case(f"{NORM}, training=True)", *NORM_INPUTS))
    assert found.status is Status.PASSED, found


@pytest.mark.parametrize("name", ["double", "to"])
def test_what_is_made_float64_is_float64(name: str) -> None:
    text = "torch.Tensor.double(input0)" if name == "double" else "torch.Tensor.to(input0, torch.float64)"
    assert verdict(case(text, *NORM_INPUTS[:1])).status is Status.PASSED


@pytest.mark.parametrize("name", ["torch.linalg.norm", "torch.masked.norm"])
def test_same_name_elsewhere_gets_no_catalogue_rule(name: str) -> None:
    rule = operators.get(name).rule
    assert rule is not None
    assert rule != operators.get("norm").rule
    assert operators.get("torch.norm").rule == operators.get("norm").rule


# ``embedding`` with ``max_norm`` clips rows of its weight before it takes them: what it computes is not exact.

CLIPPED = "torch.nn.functional.embedding(input0, input1, max_norm=1.0)"
TABLE_PLACES = tensor(20, "int64", "data", values=[0, 1, 2, 3] * 5)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("grad", [False, True])
def test_clipped_rows_are_right_to_within_a_rounding(kind: str, grad: bool) -> None:
    of = case(CLIPPED, TABLE_PLACES, tensor((6, 16), kind), grad=grad)
    found = verdict(of)
    assert found.status is Status.PASSED, found
    assert [each.output for each in found.measures][:2] == ["output0", "input1 afterwards"]

    def next_value(outputs: list[Any]) -> list[Any]:
        return [outputs[0] * (1 + np.finfo(np.float32).eps).astype(outputs[0].dtype), *outputs[1:]]

    if kind == "float32" and not grad:
        assert verdict(of, Wrong(next_value)).status is Status.PASSED


EMBEDDED = case(CLIPPED, TABLE_PLACES, tensor((6, 16)))


@pytest.mark.parametrize("output", [0, 1])
def test_wrong_returned_or_changed_element_fails(output: int) -> None:
    found = verdict(EMBEDDED, element(7, lambda value: value * np.float32(1.001), output))
    assert (found.reason, found.message.partition(":")[0]) == (Reason.VALUE, ["output0", "input1 afterwards"][output])


def test_wrongly_clipped_weight_fails() -> None:
    assert verdict(EMBEDDED, Wrong(lambda outputs: [outputs[0], outputs[1] * np.float32(2)])).reason is Reason.VALUE
    assert verdict(EMBEDDED, element(4 * 16 + 3, lambda value: value * np.float32(0.5), 1)).reason is Reason.VALUE


def test_it_is_compiled_too() -> None:
    found = verdict(EMBEDDED, by("aot_eager"))
    assert found.status is Status.PASSED, found
