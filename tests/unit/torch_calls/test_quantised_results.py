"""What is quantised is compared as the numbers that its levels stand for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch_kit import case, tensor, verdict  # noqa: E402

from optest.spec import Status  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")]


@pytest.mark.parametrize("function", ["torch.quantize_per_tensor", "torch.ops.aten.quantize_per_tensor.default"])
def test_a_quantised_result_is_compared(function: str) -> None:
    found = verdict(case(f"{function}(input0, 0.1, 0, torch.qint8)", tensor((3, 4))))
    assert found.status is Status.PASSED, found
