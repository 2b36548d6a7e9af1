"""Outputs that the device under test did not make: a failure, unless the call is named, and then it is told."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch_kit
from texts import refusal, says
from torch_kit import Wrong, by, compiler_without_kernels, tensor, verdict

from optest.core.results import result_of
from optest.spec import Check, CheckState, Evidence, Fault, Measure, Reason, Status, TestCase, Verdict
from optest.torch.calls.device_call import run_on_device
from optest.torch.calls.device_under_test import DeviceUnderTest, kept_on_device, require_on_device
from optest.torch.cases import FELL_BACK, unused_fallbacks
from optest.torch.eager import TorchBackend
from optest.torch.tensors import to_torch

META = torch.device("meta")


def case(text: str) -> TestCase:
    return torch_kit.case(text, tensor((3, 4)))


@pytest.fixture(scope="module")
def library() -> Iterator[None]:
    """Operators of a device that has no kernel for them: one returns what the CPU made, another one warns of it.

    They are there as long as the names that were looked up once.
    """
    with torch.library._scoped_library("optest_devices", "DEF") as made:
        made.define("on_cpu(Tensor x) -> Tensor")
        made.define("warns(Tensor x) -> Tensor")
        made.impl("on_cpu", lambda x: torch.ones(x.shape, device="cpu"), "Meta")
        made.impl("warns", _warns, "Meta")
        yield


def _warns(x: torch.Tensor) -> torch.Tensor:
    warnings.warn("The operator 'aten::f' is not supported and will fall back to run on the CPU.", stacklevel=1)
    return torch.empty_like(x)


def asked(name: str, **more: Any) -> DeviceUnderTest:
    return DeviceUnderTest(name, META, **more)


def made(name: str, under_test: DeviceUnderTest) -> list[Any]:
    """The call on a device that is not the CPU; what lies on ``meta`` has no values, so they are not fetched."""
    text = f"torch.ops.optest_devices.{name}(input0)"
    array = torch.randn(3, 4).numpy()
    return run_on_device(
        case(text), [array], lambda _, given: to_torch(given, torch.device("cpu")).to(META), under_test
    )


@pytest.mark.usefixtures("library")
def test_output_on_cpu_is_a_fall_back() -> None:
    with refusal(Fault, "torch_calls.came_back_on_the_cpu") as raised:
        made("on_cpu", asked("torch.ops.optest_devices.on_cpu"))
    assert raised.value.reason is Reason.FALLBACK
    assert raised.value.details == {"device": "cpu"}


@pytest.mark.usefixtures("library")
def test_allowed_call_falls_back_with_note() -> None:
    under_test = asked("torch.ops.optest_devices.on_cpu", may_fall_back=True)
    [found] = made("on_cpu", under_test)
    assert found.tolist() == [[1.0] * 4] * 3
    [check] = under_test.checks()
    assert (check.name, check.state) == (FELL_BACK, CheckState.NOTE)
    assert says(check.detail, "torch_calls.came_back_on_the")
    assert "--allow-fallback names torch.ops.optest_devices.on_cpu" in check.detail


@pytest.mark.usefixtures("library")
def test_fall_back_warning_is_seen_every_time() -> None:
    for _ in range(2):
        with refusal(Fault, "torch_calls.meta_had_the_cpu") as raised:
            made("warns", asked("torch.ops.optest_devices.warns"))
        assert raised.value.reason is Reason.FALLBACK


def test_other_warnings_are_passed_on() -> None:
    with pytest.warns(UserWarning, match="something else"), kept_on_device(asked("torch.f")):
        warnings.warn("something else on the CPU", stacklevel=1)


def test_cpu_does_not_fall_back() -> None:
    with kept_on_device(DeviceUnderTest("torch.f", torch.device("cpu"))):
        warnings.warn("will fall back to run on the CPU", stacklevel=1)


def test_another_device_is_no_fall_back() -> None:
    under_test = DeviceUnderTest("torch.f", torch.device("cuda:1"), may_fall_back=True)
    with refusal(Fault, "torch_calls.is_on_meta_but") as raised:
        require_on_device(torch.empty(3, device=META), under_test, is_for_the_host=False)
    assert raised.value.reason is Reason.WRONG_DEVICE


def test_explicit_move_to_cpu_passes() -> None:
    require_on_device(torch.empty(3), asked("torch.to"), is_for_the_host=True)
    require_on_device(3, asked("torch.Tensor.size"), is_for_the_host=False)


def falls_back(compiler: str) -> TorchBackend:
    driver = compiler_without_kernels(compiler)
    driver.configure({"compile_backend": compiler, "allow_fallback": ("torch.sin,torch.cos", "torch.tan")})
    return driver


def test_only_listed_call_may_fall_back() -> None:
    driver = falls_back("optest_never_compiles")
    listed, other = (verdict(case(f"torch.{name}(input0)"), driver) for name in ("sin", "exp"))
    assert listed.status is Status.PASSED, listed
    assert [check.name for check in listed.checks if check.state is CheckState.NOTE] == [FELL_BACK]
    assert other.reason is Reason.COMPILE


def test_what_falls_back_is_still_judged() -> None:
    driver = Wrong(lambda outputs: [output + 1 for output in outputs])
    falls_back("optest_never_compiles_either")
    driver.configure({"compile_backend": "optest_never_compiles_either", "allow_fallback": ("torch.sin",)})
    assert verdict(case("torch.sin(input0)"), driver).reason is Reason.VALUE


@pytest.mark.parametrize(
    ("way", "hand_back"),
    [
        ("graph", lambda graph: graph),
        ("forward", lambda graph: graph.forward),
        ("interpreter", lambda graph: torch.fx.Interpreter(graph).run),
    ],
)
def test_returned_graph_is_a_fall_back(way: str, hand_back: Any) -> None:
    name = f"optest_hands_back_{way}"
    torch._dynamo.register_backend(lambda graph, _: hand_back(graph), name=name)
    driver = TorchBackend()
    driver.configure({"compile_backend": name, "allow_fallback": ("torch.sin",)})
    found = verdict(case("torch.exp(input0)"), driver)
    assert found.reason is Reason.FALLBACK, found
    assert says(found.message, "torch_calls.handed_back_the_graph")
    allowed = verdict(case("torch.sin(input0)"), driver)
    assert allowed.status is Status.PASSED, allowed
    assert FELL_BACK in [check.name for check in allowed.checks]


def test_changed_graph_may_be_returned() -> None:
    def passes(graph: Any, _: Any) -> Any:
        for node in graph.graph.nodes:
            if node.op == "call_function" and node.target is torch.exp:
                node.target = torch.special.exp2
                node.args = (torch.fx.Proxy(node.args[0]).node,)
        graph.recompile()
        return graph.forward

    torch._dynamo.register_backend(passes, name="optest_changes_its_graph")
    driver = by("optest_changes_its_graph")
    found = verdict(case("torch.exp(input0)"), driver)
    assert found.reason is Reason.VALUE, found


def test_torchs_own_eager_compilers_may_hand_back_theirs() -> None:
    driver = by("eager_noexcept")
    assert verdict(case("torch.exp(input0)"), driver).status is Status.PASSED


def test_an_entry_that_nothing_needs_is_told() -> None:
    measure = Measure(output="output0", dtype="float32", shape=(3, 4), compared=12)
    fell = Check(name=FELL_BACK, state=CheckState.NOTE, detail="x")
    results = [
        result_of(
            case(f"torch.{name}(input0)"),
            Verdict(status=Status.PASSED, evidence=Evidence.MEASURED, measures=(measure,), checks=checks),
        )
        for name, checks in (("sin", (fell,)), ("cos", ()))
    ]
    assert list(unused_fallbacks(("torch.sin,torch.cos", "torch.tann"), results)) == [
        "--allow-fallback torch.cos is not needed: no call of it fell back",
        "--allow-fallback torch.tann is not needed: no case calls it",
    ]
    assert list(unused_fallbacks((), results)) == []
