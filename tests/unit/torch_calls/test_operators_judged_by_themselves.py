"""An operator that somebody's library registered is its own reference on the CPU: a pass by that says nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch_kit import case, tensor, verdict  # noqa: E402

from optest.backends.numpy_reference import NumpyBackend  # noqa: E402
from optest.core.runner import execute  # noqa: E402
from optest.spec import Reason, Status, Verdict  # noqa: E402
from optest.torch.calls.names import NoSuchCallable, find_callable  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402

pytestmark = pytest.mark.torch

LIBRARY = torch.library.Library("optest_own", "DEF")
LIBRARY.define("softmax(Tensor x, int dim) -> Tensor")
LIBRARY.define("zero(Tensor x) -> Tensor")
LIBRARY.define("two(Tensor x, Tensor y) -> (Tensor, Tensor)")
LIBRARY.impl("softmax", lambda x, dim: torch.softmax(x, dim) * 1.5, "CompositeImplicitAutograd")
LIBRARY.impl("zero", torch.zeros_like, "CPU")
LIBRARY.impl("two", lambda x, y: (x * 2, (y + 1)[:1]), "CPU")

CALLS = {
    "torch.ops.optest_own.softmax(input0, -1)": [tensor((8, 100))],
    "torch.ops.optest_own.softmax.default(input0, -1)": [tensor((8, 100))],
    "torch.ops.optest_own.zero(input0)": [tensor((8, 10))],
    "torch.ops.optest_own.two(input0, input1)": [tensor((8, 10))] * 2,
}


def softmax(inputs: Sequence[Any], _: Mapping[str, Any]) -> Any:
    exponentials = np.exp(inputs[0].astype(np.float64))
    return exponentials / exponentials.sum(-1, keepdims=True)


def as_registered(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    return 1.5 * softmax(inputs, attributes)


class Elsewhere(TorchBackend):
    """A device that has a kernel of its own."""

    def device(self) -> str:
        return "npu:0"


def against(reference: Any, text: str = "torch.ops.optest_own.softmax(input0, -1)") -> Verdict:
    return verdict(dataclasses.replace(case(text, *CALLS[text]), reference=reference))


@pytest.mark.parametrize(("text", "grad"), [*((each, False) for each in CALLS), (next(iter(CALLS)), True)])
def test_what_is_its_own_reference_does_not_pass(text: str, grad: bool) -> None:
    found = verdict(case(text, *CALLS[text], grad=grad))
    assert found.status is Status.SUSPECT
    assert "`reference:`" in found.message


@pytest.mark.parametrize("text", CALLS)
def test_nor_by_the_backend_that_answers_with_references(text: str) -> None:
    assert execute([case(text, *CALLS[text])], NumpyBackend()).verdicts[0].status is Status.SUSPECT


def test_a_kernel_elsewhere_is_another_one() -> None:
    found = verdict(case("torch.ops.optest_own.zero(input0)", tensor(8)), Elsewhere())
    assert found.status is Status.PASSED


def test_an_independent_reference_judges_it() -> None:
    assert against(softmax).reason is Reason.VALUE
    assert against(as_registered).status is Status.PASSED


def test_name_suffix_selects_no_rule() -> None:
    (measure,) = against(as_registered).measures
    assert measure.rule is not None
    assert measure.rule.name == "close"


def test_foreign_name_gets_no_aten_proposal() -> None:
    with pytest.raises(NoSuchCallable, match="OPTEST_PLUGINS") as found:
        find_callable("torch.ops.optest_nowhere.softmax")
    assert "torch.softmax" not in str(found.value)
    with pytest.raises(NoSuchCallable, match=r"torch\.ops\.optest_own\.softmax"):
        find_callable("torch.ops.optest_own.sofmax.default")


def test_torchs_own_operators_are_judged() -> None:
    assert verdict(case("torch.ops.aten.softmax.int(input0, -1)", tensor((8, 10)))).status is Status.PASSED


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "text", ["torch.topk(input0, 3)", "torch.softmax(input0, -1)", "torch.Tensor.mul_(input0, 0.5)"]
)
def test_call_allocates_reference_outputs(text: str, grad: bool) -> None:
    """Several of them, of several dtypes and shapes, with gradients and notes behind them."""
    found = execute([case(text, tensor((4, 8), "bfloat16"), grad=grad)], NumpyBackend()).verdicts[0]
    assert found.status is Status.PASSED
