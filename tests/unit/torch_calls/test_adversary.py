"""Wrong answers that look right: each of them passed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from optest.backends.torch_eager import TorchBackend
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

pytestmark = pytest.mark.torch

RANDN = Fill(kind="randn")
WIDE = Tolerance(rtol=0.01, atol=0.01)
Answers = Callable[[list[Any], Sequence[Any]], Sequence[Any]]


class Wrong(TorchBackend):
    """Torch whose answers are changed on the way."""

    def __init__(self, change: Answers) -> None:
        super().__init__()
        self._change = change

    def run(self, case: TestCase, inputs: Any) -> Any:
        return self._change(list(super().run(case, inputs)), inputs)


def argument(
    index: int,
    shape: tuple[int, ...],
    kind: str = "float32",
    fill: Fill = RANDN,
    strides: tuple[int, ...] | None = None,
) -> Argument:
    spec = TensorSpec(dtype=dtype(kind), shape=shape, strides=strides)
    return Argument(name=f"input{index}", path=f"input{index}", spec=spec, fill=fill)


def verdict(text: str, *inputs: Argument, driver: TorchBackend | None = None, tolerance: Any = None) -> Verdict:
    layers = () if tolerance is None else (ToleranceLayer(layer=Layer.CASE, tolerance=tolerance),)
    case = TestCase(
        descriptor=operators.get(text.partition("(")[0]), inputs=inputs, attributes={"call": text}, tolerances=layers
    )
    return execute([case], driver or TorchBackend()).verdicts[0]


@pytest.mark.parametrize("text", ["torch.argmax(input0, 1)", "torch.topk(input0, 2)"])
def test_a_tolerance_for_values_does_not_let_positions_be_beside_the_right_ones(text: str) -> None:
    def beside(outputs: list[Any], _: Sequence[Any]) -> list[Any]:
        return [*outputs[:-1], outputs[-1] + 1]

    rows = argument(0, (4, 5000))
    assert verdict(text, rows, tolerance=WIDE).status is Status.PASSED
    assert verdict(text, rows, tolerance=WIDE, driver=Wrong(beside)).reason is Reason.VALUE


def test_memory_between_the_elements_of_an_input_is_not_the_calls_to_write() -> None:
    def write_gaps(outputs: list[Any], inputs: Sequence[Any]) -> list[Any]:
        np.lib.stride_tricks.as_strided(inputs[0], (8,), (4,))[4:] = 0
        return outputs

    rows = argument(0, (3, 4), strides=(8, 1))
    assert verdict("torch.exp(input0)", rows).status is Status.PASSED
    assert verdict("torch.exp(input0)", rows, driver=Wrong(write_gaps)).reason is Reason.OUT_OF_BOUNDS
