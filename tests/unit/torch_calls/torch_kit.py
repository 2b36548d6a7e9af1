"""Calls of torch as cases, and torch whose answers are changed on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from optest.backends import BackendDriver
from optest.core.runner import execute
from optest.operators import operators
from optest.spec import (
    Argument,
    Fill,
    Layer,
    Reason,
    Status,
    TensorSpec,
    TestCase,
    Tolerance,
    ToleranceLayer,
    Verdict,
    dtype,
)
from optest.torch.eager import TorchBackend

Outputs = list[Any]
Change = Callable[[Outputs], Sequence[Any]]


def tensor(
    shape: Sequence[int] | int,
    kind: str = "float32",
    fill: str = "randn",
    strides: tuple[int, ...] | None = None,
    **given: Any,
) -> tuple[TensorSpec, Fill]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return TensorSpec(dtype=dtype(kind), shape=sizes, strides=strides), Fill(kind=fill, parameters=given)


def case(
    text: str, *tensors: tuple[TensorSpec, Fill], grad: bool = False, stated: Tolerance | None = None, **more: Any
) -> TestCase:
    attributes: dict[str, Any] = {"call": text, **({"grad": True} if grad else {})}
    return TestCase(
        descriptor=operators.get(text.partition("(")[0]),
        inputs=tuple(
            Argument(name=f"input{index}", path=f"input{index}", spec=spec, fill=fill)
            for index, (spec, fill) in enumerate(tensors)
        ),
        attributes=attributes,
        tolerances=() if stated is None else (ToleranceLayer(layer=Layer.PLAN, tolerance=stated),),
        **more,
    )


class Answering(TorchBackend):
    """Torch with outputs that ``change`` computes from its own and the inputs; ``given`` changes the inputs before."""

    def __init__(
        self, change: Callable[[Outputs, Sequence[Any]], Sequence[Any]], given: Callable[..., Any] | None = None
    ) -> None:
        super().__init__()
        self._change, self._given = change, given

    def run(self, case: TestCase, inputs: Any) -> Any:
        others = inputs if self._given is None else [np.ascontiguousarray(x) for x in self._given(*inputs)]
        return self._change([np.array(output) for output in super().run(case, others)], inputs)


class Wrong(Answering):
    """Torch whose outputs are changed."""

    def __init__(self, change: Change) -> None:
        super().__init__(lambda outputs, _: change(outputs))


def only(output: int, change: Callable[[Any], Any]) -> Change:
    """Return a change of one output, which keeps its dtype."""

    def changed(outputs: Outputs) -> Outputs:
        outputs[output] = np.ascontiguousarray(change(outputs[output])).astype(outputs[output].dtype)
        return outputs

    return changed


def one_off(place: int, change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a change of the element at ``place`` of an array in row-major order."""

    def changed(array: Any) -> Any:
        array.flat[place] = change(array.flat[place])
        return array

    return changed


def element(place: int, change: Callable[[Any], Any], output: int = 0) -> Wrong:
    """Torch that is wrong in one element of one output."""
    return Wrong(only(output, one_off(place, change)))


def zeros() -> Wrong:
    return Wrong(lambda outputs: [np.zeros_like(each) for each in outputs])


def verdict(of: TestCase, driver: BackendDriver | None = None) -> Verdict:
    return execute([of], driver or TorchBackend()).verdicts[0]


def passes(of: TestCase, *drivers: BackendDriver | None) -> Verdict:
    """Return the last verdict on a case, which has to pass with each of the drivers, torch if there are none."""
    for driver in drivers or (None,):
        found = verdict(of, driver)
        assert found.status is Status.PASSED, (of, driver, found)
    return found


def fails(
    of: TestCase,
    driver: TorchBackend | None = None,
    *,
    reason: Reason = Reason.VALUE,
    output: str | None = None,
    words: str = "",
) -> Verdict:
    """Return the verdict on a case, which has to have the reason; its message begins with ``output``, has ``words``."""
    found = verdict(of, driver)
    assert found.reason is reason, found
    assert output is None or found.message.partition(":")[0] == output, found
    assert words in found.message, found
    return found


def separates(of: TestCase, *wrong: TorchBackend, **expected: Any) -> None:
    """Assert that a case passes with torch and fails as expected with each of the wrong backends."""
    passes(of)
    for driver in wrong:
        fails(of, driver, **expected)


_NAMES = itertools.count()


def registered(compiler: Any, name: str = "") -> TorchBackend:
    """Torch with that compiler, which gets a graph and its inputs, under that name or a new one."""
    name = name or f"optest_compiler_{next(_NAMES)}"
    torch._dynamo.register_backend(compiler, name=name)
    return by(name)


def by(compiler: str | None) -> TorchBackend:
    driver = TorchBackend()
    driver.configure({"compile_backend": compiler})
    return driver


def compiled_as(change: Callable[[Sequence[Any], Any], Any], name: str = "") -> TorchBackend:
    """Torch with a compiler whose code returns ``change`` of the graph's tensors and its results."""

    def compiler(graph: Any, _: Any) -> Any:
        return lambda *given: change([each for each in given if isinstance(each, torch.Tensor)], graph(*given))

    return registered(compiler, name)


def compiler_without_kernels(name: str = "") -> TorchBackend:
    """Torch with a compiler of that name that fails to compile."""

    def refuse(_: Any, __: Any) -> Any:
        raise NotImplementedError("no such kernel")

    return registered(refuse, name)


def _graph_forward(graph: Any, _: Any) -> Any:
    return make_boxed_func(graph.forward)


def compiled_both_ways(forward: Any = _graph_forward, backward: Any = _graph_forward) -> TorchBackend:
    """Torch with a compiler of its own for the graph and for that of the gradients."""
    return registered(aot_autograd(fw_compiler=forward, bw_compiler=backward))


def changing_results(change: Callable[[Sequence[Any]], Sequence[Any]]) -> Any:
    """A compiler of one of the two graphs, whose code returns ``change`` of the results."""
    return lambda graph, _: make_boxed_func(lambda *given: list(change(graph(*given))))
