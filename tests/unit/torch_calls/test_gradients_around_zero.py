"""Gradients that should be zero: what rounding leaves of them is no fault, and anything else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optest.core.runner import execute
from optest.operators import operators
from optest.spec import Argument, Fill, Status, TensorSpec, TestCase, Verdict, dtype
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

CALLS = {
    "torch.nn.functional.layer_norm(input0, [1], input1, input2)": [(4, 1), (1,), (1,)],
    "torch.nn.functional.normalize(input0)": [(4, 1)],
}


def verdict(text: str, kind: str, driver: TorchBackend) -> Verdict:
    asked = TestCase(
        descriptor=operators.get(text.partition("(")[0]),
        inputs=tuple(
            Argument(
                name=f"input{index}",
                path=f"input{index}",
                spec=TensorSpec(dtype=dtype(kind), shape=shape),
                fill=Fill(kind="randn"),
            )
            for index, shape in enumerate(CALLS[text])
        ),
        attributes={"call": text, "grad": True},
    )
    return execute([asked], driver).verdicts[0]


class Off(TorchBackend):
    """Torch with something in the gradient of the first input."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self._by = by

    def run(self, case: TestCase, inputs: Any) -> Any:
        found = list(super().run(case, inputs))
        place = len(found) - len(inputs)
        found[place] = (np.asarray(found[place], np.float32) + self._by).astype(found[place].dtype)
        return found


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("text", CALLS)
def test_noise_is_no_fault_and_more_than_noise_is(text: str, kind: str) -> None:
    found = verdict(text, kind, TorchBackend())
    assert found.status is Status.PASSED, found.message
    assert verdict(text, kind, Off(0.01 if kind == "float32" else 0.25)).status is Status.FAILED
