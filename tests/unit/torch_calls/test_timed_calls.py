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
GRADIENTS = case("torch.matmul(input0, input1)", *MATMUL_TENSORS, grad=True)
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


@pytest.mark.parametrize(
    ("name", "way", "of", "graphs", "text"),
    [
        ("optest_counted_relu", "", None, None, "torch_calls.torch_cpu_compiled_by"),
        # One graph for the verdict, one for the timing; twice as many with gradients.
        ("optest_counted", "", MATMUL, 2, "torch_calls.torch_cpu_compiled_by_optest"),
        ("optest_differentiated", "_back", GRADIENTS, 4, "torch_calls.torch_cpu_compiled_by_optest_differentiated"),
    ],
)
def test_call_is_timed_compiled(name: str, way: str, of: Any, graphs: int | None, text: str) -> None:
    """The first case is one of the catalogue."""
    compiler, (relu,) = Counted(name), cases(op="relu", dtype="float32", shape="input0=8")
    time = timed(of or relu, by(name + way)).time
    assert says_exactly(time.who, text)
    assert graphs in (None, compiler.graphs)
    assert compiler.calls >= (2 if way else 1) * (time.calls + time.warm_up_calls)


def test_what_is_compiled_is_compared_with_eager_torch() -> None:
    driver = backend_manager.get("torch")
    driver.configure({"compile_backend": "aot_eager"})
    try:
        assert comparison_called("torch") is not driver
        found = timed(MATMUL, driver, BenchOptions(target_s=1e-3, against="torch"))
    finally:
        driver.configure({})
    who = [each and each.who for each in (found.time, found.against)]
    assert who == ["torch:cpu compiled by aot_eager", "torch:cpu"]


@pytest.mark.parametrize(
    ("text", "grad"),
    [
        ("torch.add_(input0, input1)", False),
        ("torch.setitem(input0, 0, 1.0)", False),
        ("torch.mul(input0, input1)", False),
        ("torch.nn.functional.silu(input0)", True),
    ],
)
@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_in_place_call_is_timed_on_changed_inputs(text: str, grad: bool, compiler: str) -> None:
    assert timed(case(text, *[tensor((4, 8))] * text.count("input"), grad=grad), by(compiler)).time is not None


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
