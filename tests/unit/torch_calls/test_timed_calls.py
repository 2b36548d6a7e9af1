"""What ``--bench`` calls: the compiled function where a compiler is asked, and in place what is asked in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from functorch.compile import make_boxed_func
from texts import says_exactly
from torch._dynamo.backends.common import aot_autograd
from torch_kit import by, case, tensor

from optest.api import cases
from optest.backends import backend_manager
from optest.core.benchmarking import BenchOptions, comparison_called
from optest.core.runner import execute
from optest.spec import Benchmark, Reason, Status
from optest.torch.calls.gradients import Upstream
from optest.torch.eager import TorchBackend

MATMUL_TENSORS = (tensor((4, 8)), tensor((8, 4)))
MATMUL = case("torch.matmul(input0, input1)", *MATMUL_TENSORS)
QUICK = BenchOptions(target_s=1e-3)


class Counted:
    """A compiler that counts graphs that it compiled and calls of what came of them, those of ways back too."""

    def __init__(self, name: str) -> None:
        self.graphs = self.calls = 0
        there_and_back = aot_autograd(fw_compiler=self.boxed, bw_compiler=self.boxed)
        torch._dynamo.register_backend(lambda *given: self.plain(*given), name=name)
        torch._dynamo.register_backend(lambda *given: there_and_back(*given), name=f"{name}_back")

    def plain(self, graph: Any, _: Any) -> Any:
        self.graphs += 1

        def called(*given: Any) -> Any:
            self.calls += 1
            return graph(*given)

        return called

    def boxed(self, graph: Any, example: Any) -> Any:
        return make_boxed_func(self.plain(graph, example))


def timed(of: Any, driver: TorchBackend, options: BenchOptions = QUICK) -> Benchmark:
    execution = execute([of], driver, bench=options)
    assert execution.verdicts[0].status is Status.PASSED, execution.verdicts[0]
    assert execution.benchmark is not None
    return execution.benchmark


def test_catalogue_call_is_timed_compiled() -> None:
    compiler = Counted("optest_counted_relu")
    (relu,) = cases(op="relu", dtype="float32", shape="input0=8")
    found = timed(relu, by("optest_counted_relu"))
    assert found.time is not None
    assert says_exactly(found.time.who, "torch_calls.torch_cpu_compiled_by")
    assert compiler.calls > found.time.calls


def test_compiled_call_is_timed_without_compilation() -> None:
    compiler = Counted("optest_counted")
    found = timed(MATMUL, by("optest_counted"))
    assert found.time is not None
    assert says_exactly(found.time.who, "torch_calls.torch_cpu_compiled_by_optest")
    assert compiler.graphs == 2  # one for the verdict, one for the timing
    assert compiler.calls >= found.time.calls + found.time.warm_up_calls


def test_gradients_are_timed_compiled_with_their_call() -> None:
    compiler = Counted("optest_differentiated")
    found = timed(case("torch.matmul(input0, input1)", *MATMUL_TENSORS, grad=True), by("optest_differentiated_back"))
    assert found.time is not None
    assert says_exactly(found.time.who, "torch_calls.torch_cpu_compiled_by_optest_differentiated")
    assert compiler.graphs == 4
    assert compiler.calls >= 2 * (found.time.calls + found.time.warm_up_calls)


def test_what_is_compiled_is_compared_with_eager_torch() -> None:
    driver = backend_manager.get("torch")
    driver.configure({"compile_backend": "aot_eager"})
    try:
        other = comparison_called("torch")
        found = timed(MATMUL, driver, BenchOptions(target_s=1e-3, against="torch"))
    finally:
        driver.configure({})
    assert other is not driver
    assert (found.time and found.time.who, found.against and found.against.who) == (
        "torch:cpu compiled by aot_eager",
        "torch:cpu",
    )


@pytest.mark.parametrize(
    "text", ["torch.add_(input0, input1)", "torch.setitem(input0, 0, 1.0)", "torch.mul(input0, input1)"]
)
@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_in_place_call_is_timed_on_changed_inputs(text: str, compiler: str) -> None:
    of = case(text, tensor((4, 8)), tensor((4, 8))) if "input1" in text else case(text, tensor((4, 8)))
    assert timed(of, by(compiler)).time is not None


def test_late_wrong_result_of_compiler_fails() -> None:
    graphs = 0

    def tires(graph: Any, _: Any) -> Any:
        nonlocal graphs
        graphs += 1
        is_timed, calls = graphs == 2, 0  # the first graph is for the verdict

        def called(*given: Any) -> Sequence[Any]:
            nonlocal calls
            calls += 1
            return [each + (is_timed and calls > 1) for each in graph(*given)]

        return called

    torch._dynamo.register_backend(tires, name="optest_tires")
    verdict = execute([MATMUL], by("optest_tires"), bench=QUICK).verdicts[0]
    assert verdict.reason is Reason.STATE


def test_gradients_from_above_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    of = case("torch.mul(input0, input1)", tensor((4, 8)), tensor((4, 8)), grad=True)
    driver, drawn = TorchBackend(), []
    draw = Upstream.__call__
    monkeypatch.setattr(Upstream, "__call__", lambda *given: drawn.append(given) or draw(*given))
    arrays = [np.ones((4, 8), np.float32), np.ones((4, 8), np.float32)]
    with driver.prepared(of, arrays) as call:
        call.call()
        first, second = call.outputs(), call.outputs()
    assert len(drawn) == 1
    assert [each.tolist() for each in first] == [each.tolist() for each in second]
    assert says_exactly(call.description, "torch_calls.torch_cpu_with_gradients")
