"""Conversions to and from float8 differentiated: torch squares no float8, and nobody has to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optest.core.runner import execute
from optest.operators import operators
from optest.spec import Argument, Fill, Reason, Status, TensorSpec, TestCase, Verdict, dtype
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

CALLS = [
    ("torch.Tensor.to(input0, torch.float8_e4m3fn)", "float32"),
    ("torch.Tensor.to(input0, torch.float8_e5m2)", "bfloat16"),
    ("torch.Tensor.float(input0)", "float8_e4m3fn"),
]


def verdict(text: str, kind: str, driver: TorchBackend) -> Verdict:
    given = Argument(
        name="input0",
        path="input0",
        spec=TensorSpec(dtype=dtype(kind), shape=(4, 16)),
        fill=Fill(kind="uniform", parameters={"low": -4.0, "high": 4.0}),
    )
    asked = TestCase(
        descriptor=operators.get(text.partition("(")[0]), inputs=(given,), attributes={"call": text, "grad": True}
    )
    return execute([asked], driver).verdicts[0]


class Doubled(TorchBackend):
    """Torch with gradients twice as large."""

    def run(self, case: TestCase, inputs: Any) -> Any:
        *others, gradient = super().run(case, inputs)
        return [*others, (gradient.astype(np.float32) * 2).astype(gradient.dtype)]


@pytest.mark.parametrize(("text", "kind"), CALLS)
def test_the_gradient_is_exact(text: str, kind: str) -> None:
    found = verdict(text, kind, TorchBackend())
    assert found.status is Status.PASSED, found.message
    rule = found.measures[-1].rule
    assert rule is not None
    assert rule.name == "exact"
    assert verdict(text, kind, Doubled()).reason is Reason.VALUE
