"""Calls of torch made by torch.compile: what was not compiled does not pass."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from texts import refusal, says
from torch._dynamo.backends.common import aot_autograd
from torch_kit import by, case, compiler_without_kernels, tensor
from user_shell import user_environment

from optest.core.runner import execute
from optest.errors import UnknownName
from optest.spec import Fault, Reason, Status
from optest.torch.calls.compiled import require_compiler, run_compiled
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.dispatch_modes import DispatchMode
from optest.torch.eager import TorchBackend

ROWS = torch.arange(12.0).reshape(3, 4)


def _by(compiler: str, *, may_fall_back: bool = False) -> DeviceUnderTest:
    return DeviceUnderTest("torch.f", torch.device("cpu"), compiler, may_fall_back)


def test_a_compiled_call_yields_what_it_yields() -> None:
    [found] = run_compiled(lambda left, right: [left @ right.T], [ROWS, ROWS], _by("aot_eager"), refuses=False)
    assert torch.equal(found, ROWS @ ROWS.T)


def test_many_shapes_of_one_call_are_compiled_each() -> None:
    for size in range(1, 14):  # torch gives up on one function after eight
        [found] = run_compiled(lambda given: [given + 1], [torch.zeros(size)], _by("aot_eager"), refuses=False)
        assert found.shape == (size,)


def test_what_is_not_compiled_is_a_fall_back() -> None:
    with (
        torch.compiler.set_stance("force_eager"),
        pytest.raises(Fault, match="eager torch executed") as raised,
    ):
        run_compiled(lambda given: [given + 1], [ROWS], _by("aot_eager"), refuses=False)
    assert raised.value.reason is Reason.FALLBACK


def test_eager_refusal_is_not_compiled_refusal() -> None:
    with torch.compiler.set_stance("force_eager"), refusal(Fault, "torch_calls.is_switched_off_here") as raised:
        run_compiled(lambda given: [given.view(5, 5)], [ROWS], _by("aot_eager"), refuses=True)
    assert raised.value.reason is Reason.FALLBACK


@pytest.mark.parametrize("refuses", [True, False])
def test_a_compiler_that_is_switched_off_compiles_nothing(refuses: bool) -> None:
    with torch._dynamo.config.patch(disable=True), refusal(Fault, "torch_calls.is_switched_off_here") as raised:
        run_compiled(lambda given: [given + 1], [ROWS], _by("aot_eager"), refuses=refuses)
    assert raised.value.reason is Reason.FALLBACK


def test_disabled_compiler_may_fall_back() -> None:
    asked = _by("aot_eager", may_fall_back=True)
    with torch._dynamo.config.patch(disable=True):
        [found] = run_compiled(lambda given: [given + 1], [ROWS], asked, refuses=False)
    assert torch.equal(found, ROWS + 1)
    assert says(asked.checks()[0].detail, "torch_calls.is_switched_off_here")


def test_call_without_operators_is_not_compiled() -> None:
    with pytest.raises(Fault, match="computes nothing") as raised:
        run_compiled(lambda one, other: [[one, other][1]], [ROWS, ROWS], _by("aot_eager"), refuses=False)
    assert raised.value.reason is Reason.UNSUPPORTED


def test_compiler_failure_differs_from_call_error() -> None:
    compiler_without_kernels("optest_fails")
    with pytest.raises(Fault, match=r"torch\.compile, optest_fails") as raised:
        run_compiled(lambda given: [given + 1], [ROWS], _by("optest_fails"), refuses=False)
    assert raised.value.reason is Reason.COMPILE
    assert "no such kernel" in raised.value.details["exception"]


def test_graph_break_message_names_operator() -> None:
    with pytest.raises(Fault, match=r"inductor: .*: .*aten\.equal") as raised:
        run_compiled(lambda given: [torch.equal(given, given + 1)], [ROWS], _by("inductor"), refuses=False)
    assert raised.value.reason is Reason.COMPILE
    told = raised.value.details["exception"]
    assert "Hint: " in told
    assert "from user code" not in told  # it would be optest's
    assert ".py" not in told


def test_a_refusal_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match=r"^shape '.5, 5.' is invalid"):
        run_compiled(lambda given: [given.view(5, 5)], [ROWS], _by("aot_eager"), refuses=True)


def test_unknown_compiler_message_lists_known_ones() -> None:
    require_compiler("inductor")
    with refusal(UnknownName, "torch_calls.did_you_mean_inductor"):
        require_compiler("inducter")


def test_an_allowed_fall_back_is_answered_and_told() -> None:
    compiler_without_kernels("optest_fails_too")
    asked = _by("optest_fails_too", may_fall_back=True)
    [found] = run_compiled(lambda given: [given + 1], [ROWS], asked, refuses=False)
    assert torch.equal(found, ROWS + 1)
    [check] = asked.checks()
    assert "no such kernel" in check.detail
    with torch.compiler.set_stance("force_eager"):
        asked = _by("aot_eager", may_fall_back=True)
        run_compiled(lambda given: [given + 1], [ROWS], asked, refuses=False)
    assert "eager torch executed the call" in asked.checks()[0].detail


def test_compiling_is_timed_apart_from_the_call() -> None:
    def slow(graph: Any, _: Any) -> Any:
        time.sleep(0.2)
        return lambda *given: graph(*given)

    torch._dynamo.register_backend(slow, name="optest_slow_compiler")

    def call(given: torch.Tensor) -> list[torch.Tensor]:
        return [given + 1]

    asked = _by("optest_slow_compiler")
    run_compiled(call, [ROWS], asked, refuses=False)
    assert 0.2 <= asked.compilation.seconds < 300


def test_late_backward_compilation_is_counted() -> None:
    asked = case("torch.sin(input0)", tensor((3, 4)), grad=True)
    for wait_s in (0.2, 2.0, 20.0):  # on a busy machine the call itself may take that long
        found = execute([asked], _whose_way_back_takes(wait_s))
        assert found.verdicts[0].status is Status.PASSED
        timings = found.timings
        assert timings.compile_s is not None
        assert timings.run_s is not None
        assert timings.compile_s >= wait_s
        if timings.run_s < wait_s:
            break
    assert 0 <= timings.run_s < wait_s
    assert execute([asked], TorchBackend()).timings.compile_s is None


def _whose_way_back_takes(wait_s: float) -> TorchBackend:
    """To compile."""

    def slow(graph: Any, _: Any) -> Any:
        time.sleep(wait_s)
        return make_boxed_func(graph.forward)

    name = f"optest_way_back_in_{wait_s:g}s"
    quick = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(graph.forward), bw_compiler=slow)
    torch._dynamo.register_backend(quick, name=name)
    return by(name)


def test_the_compiler_leaves_dispatch_modes_as_they_are() -> None:
    was_compiled = set()

    class Mode(DispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            was_compiled.add(torch.compiler.is_compiling())
            return func(*args, **(kwargs or {}))

    @torch.compile(backend="eager")
    def breaks(given: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return given.clone() + 1

    for _ in range(2):
        with Mode():
            breaks(ROWS)
    assert was_compiled == {False}


SAYS = """
import sys
import optest.torch.eager
print("torch._dynamo" in sys.modules)
from optest.torch.calls.compiled import require_compiler
require_compiler("inductor")
import os
print(os.environ.get("TORCHINDUCTOR_CACHE_DIR"))
"""


@pytest.mark.heavy
def test_compiler_is_loaded_on_request(tmp_path: Path) -> None:
    """A run that compiles nothing waits for no compiler, and loading one leaves no folder behind."""
    variables = user_environment(TMPDIR=str(tmp_path))
    variables.pop("TORCHINDUCTOR_CACHE_DIR", None)
    ended = subprocess.run(
        [sys.executable, "-c", SAYS], env=variables, capture_output=True, text=True, timeout=600, check=True
    )
    assert ended.stdout.split() == ["False", "None"]
    assert list(tmp_path.iterdir()) == []


# One process asks the driver several times: what an earlier one was told does not hold for the next.

ADD = case("torch.add(input0, input0)", tensor(3))


def is_compiled(driver: TorchBackend) -> bool:
    return execute([ADD], driver).timings.compile_s is not None


@pytest.mark.parametrize("options", [{}, {"compile_backend": None}, {"compile_backend": "eager"}])
def test_what_states_no_compiler_compiles_nothing(options: dict[str, str | None]) -> None:
    driver = TorchBackend()
    driver.configure({"compile_backend": "aot_eager"})
    assert is_compiled(driver)
    driver.configure(options)
    assert not is_compiled(driver)


def test_device_defaults_to_cpu() -> None:
    driver = TorchBackend()
    driver._device = torch.device("meta")
    driver.configure({})
    assert driver.device() == "cpu"


def test_options_that_are_refused_change_nothing() -> None:
    driver = TorchBackend()
    driver.configure({"compile_backend": "aot_eager"})
    with pytest.raises(UnknownName):
        driver.configure({"compile_backend": "aot_eagre"})
    assert is_compiled(driver)
