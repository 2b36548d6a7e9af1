"""What calls do to memory: views, strides, results written into inputs, and inputs that change beside the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch_kit
from texts import says
from torch_kit import Answering, Wrong, by, case, compiled_as, element, fails, passes, separates, tensor, verdict

from optest.core.results import result_of
from optest.operators import operators
from optest.spec import CheckState, Reason, Tolerance, Verdict
from optest.torch.calls.call import torch_call
from optest.torch.cases import STRIDES, other_strides
from optest.torch.eager import TorchBackend

ROWS = tensor((4, 6))
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


def copies(_: Any, results: Any) -> Any:
    return [each.clone() for each in results]


@pytest.mark.parametrize("text", VIEWS)
def test_a_copy_is_no_view(text: str) -> None:
    passes(case(text, ROWS), None, by("aot_eager"))
    fails(case(text, ROWS), compiled_as(copies), reason=Reason.STATE, words="expected a view of input0")


@pytest.mark.parametrize("text", MAY_COPY)
def test_what_may_copy_may(text: str) -> None:
    passes(case(text, ROWS), compiled_as(copies))


def test_two_results_have_memory_of_their_own_each() -> None:
    """Of ones the smallest is the largest, so that no value shows it."""
    of, one_for_two = case("torch.aminmax(input0)", tensor((4, 6), fill="ones")), lambda _, results: [results[0]] * 2
    separates(of, compiled_as(one_for_two), reason=Reason.STATE, words="output0 and output1 share memory")


def test_copysign_compares_sign_of_zero() -> None:
    signs = [tensor(3, "float32", "data", values=values) for values in ([0.0, 1.0, 2.0], [-1.0, -1.0, 1.0])]
    of = case("torch.copysign(input0, input1)", *signs)
    passes(of, None, by("aot_eager"))
    fails(of, compiled_as(lambda _, results: tuple(each + 0.0 for each in results)))


@pytest.mark.parametrize("dim", [0, -1])
def test_results_may_be_parts_of_one_block(dim: int) -> None:
    """One behind the other, or one among the other: what is written into one of them changes no other."""
    together = compiled_as(lambda _, results: torch.stack(results, dim).unbind(dim))
    passes(case("torch.var_mean(input0, 1)", ROWS), together)


IMAGES = tensor((2, 4, 5, 6), strides=(120, 1, 24, 4))
RELU = "torch.relu(input0)"


def told(found: Verdict) -> list[str]:
    return [check.detail for check in found.checks if check.name == STRIDES and check.state is CheckState.NOTE]


def loses_layout() -> TorchBackend:
    return compiled_as(lambda _, results: tuple(each.contiguous() for each in results))


def test_a_lost_memory_format_is_told() -> None:
    found = passes(case(RELU, IMAGES), loses_layout())
    assert told(found) == ["output0 has the strides [120, 30, 6, 1], torch on the CPU gives it [120, 1, 24, 4]"]
    [line] = other_strides([result_of(case(RELU, IMAGES), found)] * 4)
    assert line.startswith("outputs with other strides than those of torch on the CPU: 4 cases (")
    assert line.endswith(", …); --same-strides fails such cases")
    assert list(other_strides([result_of(case(RELU, IMAGES), verdict(case(RELU, IMAGES)))])) == []


def test_different_strides_fail_on_request() -> None:
    wanted, driver = case(RELU, IMAGES), loses_layout()
    wanted.attributes["same_strides"] = True  # type: ignore[index]
    assert says(fails(wanted, driver, reason=Reason.SHAPE).message, "torch_calls.torch_on_the_cpu")
    passes(wanted, by("aot_eager"), None)
    driver.configure({"compile_backend": driver.compiler, "same_strides": True})
    fails(case(RELU, IMAGES), driver, reason=Reason.SHAPE)


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        (RELU, (IMAGES,)),
        ("torch.add_(input0, 1.0)", (IMAGES,)),
        ("torch.transpose(input0, 1, 2)", (IMAGES,)),
        # The CPU's kernels may choose channels last, which tensors without values do not know.
        ("torch.nn.functional.conv2d(input0, input1)", (IMAGES, tensor((8, 4, 3, 3)))),
    ],
)
def test_torchs_own_are_not_told(text: str, inputs: tuple[Any, ...]) -> None:
    assert told(passes(case(text, *inputs), by("aot_eager"))) == []


def test_strides_that_lead_nowhere_are_not_told() -> None:
    one_row = compiled_as(lambda _, results: (torch.empty_strided((1, 40), (7, 1)).copy_(results[0]),))
    assert told(passes(case("torch.exp(input0)", tensor((1, 40))), one_row)) == []


# ``out=``, operators of Python by their methods, and schemas: what a call is asked to write is looked at, too.


LONG_ROWS, ROW, PLACES = tensor((3, 40)), tensor(40), tensor((3, 40), "int64", "zeros")
COLUMNS, NORM = tensor((40, 5)), "torch.nn.functional.batch_norm(input0, input1, input2"
NORM_INPUTS = [tensor((6, 5)), *[tensor(5, fill="uniform", low=0.5, high=2.0)] * 2]
CALLS = [
    ("torch.add(input0, input1, out=input2)", [LONG_ROWS, LONG_ROWS, LONG_ROWS]),
    ("torch.add(input0, input1, out=input0)", [LONG_ROWS, LONG_ROWS]),
    ("torch.ops.aten.add.out(input0, input1, out=input2)", [LONG_ROWS, LONG_ROWS, LONG_ROWS]),
    ("torch.matmul(input0, input1, out=input2)", [LONG_ROWS, COLUMNS, tensor((3, 5))]),
    ("torch.sort(input0, out=(input2, input1))", [LONG_ROWS, PLACES, LONG_ROWS]),
    ("torch.Tensor.__iadd__(input0, input1)", [LONG_ROWS, LONG_ROWS]),
    ("torch.Tensor.__setitem__(input0, 0, input1)", [LONG_ROWS, ROW]),
    ("torch._foreach_add_([input0, input1], 1.0)", [LONG_ROWS, ROW]),
    ("torch._foreach_add_((input0, input1), 1.0)", [LONG_ROWS, ROW]),
]
EAGER_CALLS = [
    ("torch.getitem(input0, [0, 2])", [ROWS]),  # the CPU copies, too
    ("torch.nn.functional.unfold(input0, 2)", [tensor((1, 1, 4, 4))]),
    ("torch.chunk(input0, 2)", [ROWS]),
    ("torch.broadcast_tensors(input0, input0)", [ROWS]),
    ("torch.copysign(input0, -1)", [tensor(9, "int64", "randint", low=-5, high=5)]),
    ("torch.matmul(input0, input1, out=input2)", [LONG_ROWS, COLUMNS, tensor((0,))]),  # is resized
    (f"{NORM}, training=True)", NORM_INPUTS),
    ("torch.Tensor.double(input0)", NORM_INPUTS[:1]),
    ("torch.Tensor.to(input0, torch.float64)", NORM_INPUTS[:1]),
]


@pytest.mark.parametrize(("text", "tensors"), [*CALLS, *EAGER_CALLS])
def test_a_right_call_passes(text: str, tensors: list[Any]) -> None:
    passes(case(text, *tensors), None, *([by("aot_eager")] if (text, tensors) in CALLS else []))


def test_gradient_of_copysign_passes() -> None:
    passes(case("torch.copysign(input0, input1)", tensor(9), tensor(9), grad=True))


@pytest.mark.parametrize(
    ("text", "tensors", "change", "reason", "words"),
    [
        (*CALLS[0], lambda given: (given[0] + given[1],), Reason.STATE, ""),
        (*CALLS[5], lambda given: (given[0] + given[1],), Reason.STATE, ""),
        (*CALLS[6], lambda _: (), Reason.VALUE, ""),
        (*CALLS[7], lambda given: (given[0].add_(1), given[1]), Reason.VALUE, "input1 afterwards"),
    ],
    ids=["result outside out", "nothing added", "nothing set", "only first of list"],
)
def test_missing_write_fails(
    text: str, tensors: list[Any], change: Callable[[Sequence[Any]], Any], reason: Reason, words: str
) -> None:
    """The compiler's code calls ``change`` in place of the graph."""
    instead = torch_kit.registered(lambda graph, _: lambda *given: change(given))
    found = fails(case(text, *tensors), instead, reason=reason, words=words)
    assert "out=" not in text or says(found.message, "torch_calls.should_put_result_into")


def test_an_operator_of_others_says_what_it_writes() -> None:
    with torch.library._scoped_library("optest_writes", "DEF") as made:
        made.define("norm(Tensor(a!) result, Tensor x) -> ()")
        made.define("put(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
        call = torch_call("torch.ops.optest_writes.norm(input0, input1)")
        assert (call.mutates, call.beside, call.into) == ((0,), (0,), ())
        call = torch_call("torch.ops.optest_writes.put(input0, out=input1)")
        assert (call.mutates, call.beside, call.into) == ((), (), (1,))


def test_running_statistics_stay_where_they_were() -> None:
    assert torch_call(f"{NORM}, training=True)").beside == (1, 2)
    assert torch_call(f"{NORM}, training=False)").changes == ()


# Calls that change more than they return: running statistics and clipped weights are outputs, too.


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


@pytest.mark.parametrize("stated", [Tolerance(rtol=1e-5, atol=1e-6), None], ids=["stated", "not-stated"])
def test_running_statistics_are_judged(stated: Tolerance | None) -> None:
    of = case(f"{NORM}, training=True, momentum=0.3)", *NORM_INPUTS, stated=stated)
    assert [each.output for each in passes(of).measures] == ["output0", "input1 afterwards", "input2 afterwards"]
    forgetful = Answering(lambda outputs, inputs: [*outputs[:2], np.array(inputs[2])])
    fails(of, forgetful, words="input2 afterwards")


@pytest.mark.parametrize("name", ["torch.linalg.norm", "torch.masked.norm"])
def test_same_name_elsewhere_gets_no_catalogue_rule(name: str) -> None:
    assert operators.get(name).rule not in (None, operators.get("norm").rule)
    assert operators.get("torch.norm").rule == operators.get("norm").rule


# ``embedding`` with ``max_norm`` clips rows of its weight before it takes them: what it computes is not exact.

CLIPPED = "torch.nn.functional.embedding(input0, input1, max_norm=1.0)"
TABLE_PLACES = tensor(20, "int64", "data", values=[0, 1, 2, 3] * 5)
EMBEDDED = case(CLIPPED, TABLE_PLACES, tensor((6, 16)))


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("grad", [False, True])
def test_clipped_rows_pass(kind: str, grad: bool) -> None:
    found = passes(case(CLIPPED, TABLE_PLACES, tensor((6, 16), kind), grad=grad))
    assert [each.output for each in found.measures][:2] == ["output0", "input1 afterwards"]


def test_clipped_rows_are_right_to_within_a_rounding() -> None:
    next_value = Wrong(lambda outputs: [outputs[0] * (1 + np.finfo(np.float32).eps), *outputs[1:]])
    passes(EMBEDDED, next_value, by("aot_eager"))


@pytest.mark.parametrize(
    ("place", "factor", "output"), [(7, 1.001, 0), (7, 1.001, 1), (4 * 16 + 3, 0.5, 1), (slice(None), 2, 1)]
)
def test_wrong_returned_or_changed_element_fails(place: Any, factor: float, output: int) -> None:
    wrong = element(place, lambda value: value * np.float32(factor), output)
    fails(EMBEDDED, wrong, output=["output0", "input1 afterwards"][output])
