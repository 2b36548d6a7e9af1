"""Calls of torch made by torch.compile: what was not compiled does not pass."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_kit
from functorch.compile import make_boxed_func
from texts import refusal, says
from torch_kit import Wrong, by, case, compiled_both_ways, compiler_without_kernels, fails, passes, registered, tensor
from user_shell import user_environment

from optest.core.results import result_of
from optest.core.runner import execute
from optest.errors import UnknownName
from optest.spec import Check, CheckState, Evidence, Fault, Measure, Reason, Status, TestCase, Verdict
from optest.torch.calls.compiled import require_compiler, run_compiled
from optest.torch.calls.device_call import run_on_device
from optest.torch.calls.device_under_test import DeviceUnderTest, kept_on_device, require_on_device
from optest.torch.cases import FELL_BACK, unused_fallbacks
from optest.torch.dispatch_modes import DispatchMode
from optest.torch.eager import TorchBackend
from optest.torch.tensors import to_torch

ROWS = torch.arange(12.0).reshape(3, 4)


def _by(compiler: str, *, may_fall_back: bool = False) -> DeviceUnderTest:
    return DeviceUnderTest("torch.f", torch.device("cpu"), compiler, may_fall_back)


def run(call: Callable[..., Any], *given: Any, refuses: bool = False, under_test: DeviceUnderTest | None = None) -> Any:
    """Return the only result of the call, compiled by aot_eager unless ``under_test`` names another compiler."""
    [found] = run_compiled(call, [*given] or [ROWS], under_test or _by("aot_eager"), refuses=refuses)
    return found


def plus_one(given: Any) -> list[Any]:
    return [given + 1]


@contextmanager
def fault(reason: Reason, words: str) -> Iterator[pytest.ExceptionInfo[Fault]]:
    """Fail unless the block raises a fault with that reason and with the words or the golden text of that name."""
    with pytest.raises(Fault) as raised:
        yield raised
    assert raised.value.reason is reason
    assert mentions(str(raised.value), words)


def mentions(message: str, words: str) -> bool:
    return says(message, words) if words.startswith("torch_calls.") else re.search(words, message) is not None


def test_a_compiled_call_yields_what_it_yields() -> None:
    assert torch.equal(run(lambda left, right: [left @ right.T], ROWS, ROWS), ROWS @ ROWS.T)


def test_many_shapes_of_one_call_are_compiled_each() -> None:
    for size in range(1, 14):  # torch gives up on one function after eight
        assert run(plus_one, torch.zeros(size)).shape == (size,)


def test_what_is_not_compiled_is_a_fall_back() -> None:
    with SWITCHES["eager"](), fault(Reason.FALLBACK, "eager torch executed"):
        run(plus_one)


def test_compiler_failure_differs_from_call_error() -> None:
    compiler_without_kernels("optest_fails")
    with fault(Reason.COMPILE, r"torch\.compile, optest_fails") as raised:
        run(plus_one, under_test=_by("optest_fails"))
    assert "no such kernel" in raised.value.details["exception"]


@pytest.mark.parametrize(
    ("switch", "words"),
    [
        ("disabled", "torch_calls.is_switched_off_here"),
        ("eager", "eager torch executed the call"),
        (None, "no such kernel"),
    ],
)
def test_an_allowed_fall_back_is_answered_and_told(switch: str | None, words: str) -> None:
    asked = _by("aot_eager" if switch else compiler_without_kernels().compiler or "", may_fall_back=True)
    with SWITCHES[switch]() if switch else nullcontext():
        assert torch.equal(run(plus_one, under_test=asked), ROWS + 1)
    [check] = asked.checks()
    assert mentions(check.detail, words)


def view(given: Any) -> list[Any]:
    return [given.view(5, 5)]


SWITCHES = {
    "disabled": lambda: torch._dynamo.config.patch(disable=True),
    "eager": lambda: torch.compiler.set_stance("force_eager"),  # holds as soon as it is built
}


@pytest.mark.parametrize(
    ("switch", "call", "refuses"), [("disabled", plus_one, True), ("disabled", plus_one, False), ("eager", view, True)]
)
def test_a_compiler_that_is_switched_off_compiles_nothing(switch: str, call: Any, refuses: bool) -> None:
    """Nor is a refusal of eager torch one of the compiled call."""
    with SWITCHES[switch](), fault(Reason.FALLBACK, "torch_calls.is_switched_off_here"):
        run(call, refuses=refuses)


def test_call_without_operators_is_not_compiled() -> None:
    with fault(Reason.UNSUPPORTED, "computes nothing"):
        run(lambda one, other: [[one, other][1]], ROWS, ROWS)


def test_graph_break_message_names_operator() -> None:
    with fault(Reason.COMPILE, r"inductor: .*: .*aten\.equal") as raised:
        run(lambda given: [torch.equal(given, given + 1)], under_test=_by("inductor"))
    told = raised.value.details["exception"]
    assert "Hint: " in told
    assert "from user code" not in told  # it would be optest's
    assert ".py" not in told


def test_a_refusal_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match=r"^shape '.5, 5.' is invalid"):
        run(view, refuses=True)


def test_compiling_is_timed_apart_from_the_call() -> None:
    def slow(graph: Any, _: Any) -> Any:
        time.sleep(0.2)
        return lambda *given: graph(*given)

    asked = _by(registered(slow).compiler or "")
    run(plus_one, under_test=asked)
    assert 0.2 <= asked.compilation.seconds < 300


def test_unknown_compiler_message_lists_known_ones() -> None:
    require_compiler("inductor")
    with refusal(UnknownName, "torch_calls.did_you_mean_inductor"):
        require_compiler("inducter")


def test_late_backward_compilation_is_counted() -> None:
    asked = case("torch.sin(input0)", tensor((3, 4)), grad=True)
    for wait_s in (0.2, 2.0, 20.0):  # on a busy machine the call itself may take that long

        def slow(graph: Any, _: Any, wait_s: float = wait_s) -> Any:
            time.sleep(wait_s)
            return make_boxed_func(graph.forward)

        found = execute([asked], compiled_both_ways(backward=slow))
        assert found.verdicts[0].status is Status.PASSED
        timings = found.timings
        assert timings.run_s is not None
        assert (timings.compile_s or 0.0) >= wait_s
        if timings.run_s < wait_s:
            break
    assert 0 <= timings.run_s < wait_s
    assert execute([asked], TorchBackend()).timings.compile_s is None


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
    variables, command = user_environment(TMPDIR=str(tmp_path)), [sys.executable, "-c", SAYS]
    variables.pop("TORCHINDUCTOR_CACHE_DIR", None)
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600, check=True)
    assert ended.stdout.split() == ["False", "None"]
    assert list(tmp_path.iterdir()) == []


# One process asks the driver several times: what an earlier one was told does not hold for the next.

ADD = case("torch.add(input0, input0)", tensor(3))


def is_compiled(driver: TorchBackend) -> bool:
    return execute([ADD], driver).timings.compile_s is not None


@pytest.mark.parametrize("options", [{}, {"compile_backend": None}, {"compile_backend": "eager"}])
def test_what_states_no_compiler_compiles_nothing(options: dict[str, str | None]) -> None:
    driver = by("aot_eager")
    with pytest.raises(UnknownName):
        driver.configure({"compile_backend": "aot_eagre"})
    assert is_compiled(driver)
    driver.configure(options)
    assert not is_compiled(driver)


def test_device_defaults_to_cpu() -> None:
    driver = TorchBackend()
    driver._device = torch.device("meta")
    driver.configure({})
    assert driver.device() == "cpu"


# Only a call that may fall back to the CPU or to eager torch passes if it does.


META = torch.device("meta")


def rows_case(text: str) -> TestCase:
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


def made(name: str, **more: Any) -> tuple[list[Any], DeviceUnderTest]:
    """The call on a device that is not the CPU; what lies on ``meta`` has no values, so they are not fetched."""
    function, array = f"torch.ops.optest_devices.{name}", torch.randn(3, 4).numpy()
    under_test = DeviceUnderTest(function, META, **more)

    def to_meta(_: int, given: Any) -> torch.Tensor:
        return to_torch(given, torch.device("cpu")).to(META)

    return run_on_device(rows_case(f"{function}(input0)"), [array], to_meta, under_test), under_test


@pytest.mark.usefixtures("library")
def test_output_on_cpu_is_a_fall_back() -> None:
    with fault(Reason.FALLBACK, "torch_calls.came_back_on_the_cpu") as raised:
        made("on_cpu")
    assert raised.value.details == {"device": "cpu"}


@pytest.mark.usefixtures("library")
def test_allowed_call_falls_back_with_note() -> None:
    [found], under_test = made("on_cpu", may_fall_back=True)
    assert found.tolist() == [[1.0] * 4] * 3
    [check] = under_test.checks()
    assert (check.name, check.state) == (FELL_BACK, CheckState.NOTE)
    assert says(check.detail, "torch_calls.came_back_on_the")
    assert "--allow-fallback names torch.ops.optest_devices.on_cpu" in check.detail


@pytest.mark.usefixtures("library")
def test_fall_back_warning_is_seen_every_time() -> None:
    for _ in range(2):
        with fault(Reason.FALLBACK, "torch_calls.meta_had_the_cpu"):
            made("warns")


def test_other_warnings_are_passed_on() -> None:
    with pytest.warns(UserWarning, match="something else"), kept_on_device(DeviceUnderTest("torch.f", META)):
        warnings.warn("something else on the CPU", stacklevel=1)


def test_cpu_does_not_fall_back() -> None:
    with kept_on_device(DeviceUnderTest("torch.f", torch.device("cpu"))):
        warnings.warn("will fall back to run on the CPU", stacklevel=1)


def test_another_device_is_no_fall_back() -> None:
    under_test = DeviceUnderTest("torch.f", torch.device("cuda:1"), may_fall_back=True)
    with fault(Reason.WRONG_DEVICE, "torch_calls.is_on_meta_but"):
        require_on_device(torch.empty(3, device=META), under_test, is_for_the_host=False)


def test_explicit_move_to_cpu_passes() -> None:
    require_on_device(torch.empty(3), DeviceUnderTest("torch.to", META), is_for_the_host=True)
    require_on_device(3, DeviceUnderTest("torch.Tensor.size", META), is_for_the_host=False)


SIN, EXP = rows_case("torch.sin(input0)"), rows_case("torch.exp(input0)")


def falls_back(driver: TorchBackend, compiler: str | None) -> TorchBackend:
    driver.configure({"compile_backend": compiler, "allow_fallback": ("torch.sin,torch.cos", "torch.tan")})
    return driver


def notes(of: Verdict) -> list[str]:
    return [check.name for check in of.checks if check.state is CheckState.NOTE]


def test_only_listed_call_may_fall_back() -> None:
    never = compiler_without_kernels()
    assert notes(passes(SIN, falls_back(never, never.compiler))) == [FELL_BACK]
    fails(EXP, never, reason=Reason.COMPILE)
    fails(SIN, falls_back(Wrong(lambda outputs: [output + 1 for output in outputs]), never.compiler))


@pytest.mark.parametrize(
    "hand_back",
    [lambda graph: graph, lambda graph: graph.forward, lambda graph: torch.fx.Interpreter(graph).run],
    ids=["graph", "forward", "interpreter"],
)
def test_returned_graph_is_a_fall_back(hand_back: Any) -> None:
    driver = registered(lambda graph, _: hand_back(graph))
    falls_back(driver, driver.compiler)
    assert says(fails(EXP, driver, reason=Reason.FALLBACK).message, "torch_calls.handed_back_the_graph")
    assert FELL_BACK in notes(passes(SIN, driver))


def test_changed_graph_may_be_returned() -> None:
    def changes(graph: Any, _: Any) -> Any:
        for node in graph.graph.nodes:
            if node.op == "call_function" and node.target is torch.exp:
                node.target = torch.special.exp2
                node.args = (torch.fx.Proxy(node.args[0]).node,)
        graph.recompile()
        return graph.forward

    fails(EXP, registered(changes))


def test_torchs_own_eager_compilers_may_hand_back_theirs() -> None:
    passes(EXP, by("eager_noexcept"))


def test_an_entry_that_nothing_needs_is_told() -> None:
    measure = Measure(output="output0", dtype="float32", shape=(3, 4), compared=12)
    passed = Verdict(status=Status.PASSED, evidence=Evidence.MEASURED, measures=(measure,))
    fell = replace(passed, checks=(Check(name=FELL_BACK, state=CheckState.NOTE, detail="x"),))
    results = [result_of(SIN, fell), result_of(rows_case("torch.cos(input0)"), passed)]
    assert list(unused_fallbacks(("torch.sin,torch.cos", "torch.tann"), results)) == [
        "--allow-fallback torch.cos is not needed: no call of it fell back",
        "--allow-fallback torch.tann is not needed: no case calls it",
    ]
    assert list(unused_fallbacks((), results)) == []
