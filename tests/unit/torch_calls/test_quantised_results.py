"""What is quantised is compared as the numbers that its levels stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch_kit import case, tensor, verdict  # noqa: E402

from optest.core.runner import execute  # noqa: E402
from optest.spec import Status, TestCase  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")]


@pytest.mark.parametrize("function", ["torch.quantize_per_tensor", "torch.ops.aten.quantize_per_tensor.default"])
def test_a_quantised_result_is_compared(function: str) -> None:
    found = verdict(case(f"{function}(input0, 0.1, 0, torch.qint8)", tensor((3, 4))))
    assert found.status is Status.PASSED, found


def test_a_wrong_quantised_result_is_failed() -> None:
    class OneLevelOff(TorchBackend):
        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            found = super().run(case, inputs)
            found[0][1, 2] += 0.1
            return found

    wrong = execute([case("torch.quantize_per_tensor(input0, 0.1, 0, torch.qint8)", tensor((3, 4)))], OneLevelOff())
    assert wrong.verdicts[0].status is Status.FAILED, wrong.verdicts[0]
