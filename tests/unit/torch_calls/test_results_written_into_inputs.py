"""``out=``, operators of Python by their methods, and schemas: what a call is asked to write is looked at, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch_kit import by, case, tensor, verdict

from optest.spec import Reason, Status
from optest.torch.calls.call import torch_call
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

ROWS, ROW, PLACES = tensor((3, 40)), tensor(40), tensor((3, 40), "int64", "zeros")
CALLS = [
    ("torch.add(input0, input1, out=input2)", [ROWS, ROWS, ROWS]),
    ("torch.add(input0, input1, out=input0)", [ROWS, ROWS]),
    ("torch.ops.aten.add.out(input0, input1, out=input2)", [ROWS, ROWS, ROWS]),
    ("torch.matmul(input0, input1, out=input2)", [ROWS, tensor((40, 5)), tensor((3, 5))]),
    ("torch.sort(input0, out=(input2, input1))", [ROWS, PLACES, ROWS]),
    ("torch.Tensor.__iadd__(input0, input1)", [ROWS, ROWS]),
    ("torch.Tensor.__setitem__(input0, 0, input1)", [ROWS, ROW]),
    ("torch._foreach_add_([input0, input1], 1.0)", [ROWS, ROW]),
    ("torch._foreach_add_((input0, input1), 1.0)", [ROWS, ROW]),
]


@pytest.mark.parametrize(("text", "tensors"), CALLS, ids=[text for text, _ in CALLS])
def test_a_right_call_passes(text: str, tensors: list[Any]) -> None:
    assert verdict(case(text, *tensors)).status is Status.PASSED
    assert verdict(case(text, *tensors), by("aot_eager")).status is Status.PASSED


def test_out_that_resizes_passes() -> None:
    found = verdict(case("torch.matmul(input0, input1, out=input2)", ROWS, tensor((40, 5)), tensor((0,))))
    assert found.status is Status.PASSED, found


def instead(name: str, change: Callable[[Sequence[Any]], Any]) -> TorchBackend:
    """A compiler that calls ``change`` in place of the graph."""
    torch._dynamo.register_backend(lambda graph, _: lambda *given: change(given), name=name)
    return by(name)


def test_a_result_that_is_not_put_into_out_is_found() -> None:
    driver = instead("optest_no_out", lambda given: (given[0] + given[1],))
    found = verdict(case("torch.add(input0, input1, out=input2)", ROWS, ROWS, ROWS), driver)
    assert found.reason is Reason.STATE, found
    assert "should put a result into input2" in found.message


def test_operators_of_python_that_write_nothing_are_found() -> None:
    driver = instead("optest_no_iadd", lambda given: (given[0] + given[1],))
    found = verdict(case("torch.Tensor.__iadd__(input0, input1)", ROWS, ROWS), driver)
    assert found.reason is Reason.STATE, found
    driver = instead("optest_no_setitem", lambda _: ())
    found = verdict(case("torch.Tensor.__setitem__(input0, 0, input1)", ROWS, ROW), driver)
    assert found.reason is Reason.VALUE, found


def test_the_last_tensor_of_a_list_is_looked_at() -> None:
    driver = instead("optest_first_of_list", lambda given: (given[0].add_(1), given[1]))
    found = verdict(case("torch._foreach_add_([input0, input1], 1.0)", ROWS, ROW), driver)
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
