"""Pixels that are weighed in integers may be one of two neighbours; pixels that are only moved may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

from optest.api import cases  # noqa: E402
from optest.core.runner import execute  # noqa: E402
from optest.spec import Status, TestCase  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.filterwarnings("ignore:.nn.functional.upsample")]


class Off(TorchBackend):
    """Torch whose first pixel is off by a few levels."""

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels = levels

    def run(self, case: TestCase, inputs: Any) -> Any:
        (output,) = (np.array(each) for each in super().run(case, inputs))
        first = output.reshape(-1)[:1]
        first[:] = np.where(first < 128, first + self.levels, first - self.levels)
        return [output]


@pytest.mark.parametrize("levels", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "within"), [("nn.functional.upsample_bilinear", 1), ("nn.functional.upsample_nearest", 0)]
)
def test_pixels(name: str, within: int, levels: int) -> None:
    asked = [
        case for case in cases(source=f"opinfo:{name}", dtype="uint8", tag=("function",)) if "::sample1" in case.id
    ]
    assert asked
    for case in asked:
        (verdict,) = execute([case], Off(levels)).verdicts
        assert verdict.status is (Status.PASSED if levels <= within else Status.FAILED), (case.id, verdict)
