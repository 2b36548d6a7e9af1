"""Asked for gradients, a call that has none is judged by its results all the same, and a note says that it has none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from torch_kit import Wrong, by, case, only, tensor, verdict

from optest.spec import Reason, Status, Verdict
from optest.torch.calls.call import torch_call

pytestmark = pytest.mark.torch

ROWS = tensor((6, 5))
STATISTIC = tensor(5, fill="uniform", low=0.5, high=2.0)
NORM = "torch.nn.functional.batch_norm(input0, input1, input2, input3, input4, training={})"
CALLS = {
    "argmax": case("torch.argmax(input0, 1)", ROWS, grad=True),
    "eq": case("torch.eq(input0, input1)", ROWS, ROWS, grad=True),
    "integers": case("torch.add(input0, input0)", tensor(3, "int64", "randint"), grad=True),
    "zeta": case("torch.special.zeta(input0, input0)", tensor(3, fill="uniform", low=1.5, high=3.0), grad=True),
    "detach": case("torch.detach(input0)", ROWS, grad=True),
}
NORMS = {
    mode: case(NORM.format(mode), ROWS, STATISTIC, STATISTIC, STATISTIC, STATISTIC, grad=True)
    for mode in ("True", "False")
}


def first_wrong(outputs: list[Any]) -> list[Any]:
    first = outputs[0]
    return [~first if first.dtype == bool else first + first.dtype.type(1), *outputs[1:]]


def notes(found: Verdict) -> str:
    return " ".join(check.detail for check in found.checks)


@pytest.mark.parametrize("name", [*CALLS])
def test_results_without_a_gradient_are_judged(name: str) -> None:
    found = verdict(CALLS[name])
    assert found.status is Status.PASSED, found
    assert re.search("gives no gradient|cannot differentiate|has no floating input", notes(found))
    assert verdict(CALLS[name], Wrong(first_wrong)).reason is Reason.VALUE


@pytest.mark.filterwarnings("ignore:Error detected in SpecialZetaBackward")  # torch says so while it compiles
@pytest.mark.parametrize("name", ["argmax", "eq", "zeta"])
def test_compiled_results_without_a_gradient_are_judged(name: str) -> None:
    found = verdict(CALLS[name], by("aot_eager"))
    assert found.status is Status.PASSED, found


@pytest.mark.heavy
@pytest.mark.parametrize("mode", NORMS)
def test_running_statistics_have_no_gradient(mode: str) -> None:
    found = verdict(NORMS[mode])
    assert found.status is Status.PASSED, found
    assert torch_call(NORMS[mode].attributes["call"]).constant == (1, 2)
    assert [each.output for each in found.measures][-5:] == [f"grad.input{index}" for index in range(5)]
    assert verdict(NORMS[mode], Wrong(first_wrong)).reason is Reason.VALUE
    for place, name in ((-1, "grad.input4"), (-5, "grad.input0")):
        wrong = verdict(NORMS[mode], Wrong(only(place, lambda gradient: gradient * gradient.dtype.type(1.01))))
        assert (wrong.reason, wrong.message.partition(":")[0]) == (Reason.VALUE, name)


def test_missing_dependency_of_result_fails() -> None:
    asked = case("torch.nn.functional.silu(input0)", ROWS, grad=True)
    assert verdict(asked).status is Status.PASSED
    found = verdict(asked, Wrong(lambda outputs: [outputs[0], ~outputs[1], 0 * outputs[-1]]))
    assert (found.reason, found.message.partition(":")[0]) == (Reason.VALUE, "grad.exists")


def test_a_gradient_where_torch_has_none_is_wrong() -> None:
    def invents(outputs: list[Any]) -> list[Any]:
        return [outputs[0], ~outputs[1], *outputs[2:]]

    assert verdict(CALLS["argmax"], Wrong(invents)).reason is Reason.VALUE


def test_failing_backward_is_not_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch on the CPU can: so the device has to."""
    asked = case("torch.nn.functional.silu(input0)", ROWS, grad=True)

    def fails(*_: Any) -> Any:
        raise RuntimeError("no way back here")

    monkeypatch.setattr("optest.torch.calls.device_call.differentiate", fails)
    found = verdict(asked)
    assert (found.reason, "no way back here" in found.message) == (Reason.RAISED, True)
