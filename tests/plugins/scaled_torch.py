"""torch whose floating results are all a little too large, by more than any rule allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optest.backends import backend_manager
from optest.torch.eager import TorchBackend


class ScaledTorch(TorchBackend):
    name = "scaled_torch"

    def run(self, case: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        outputs = super().run(case, inputs)
        return [each * each.dtype.type(1.25) if each.dtype.kind == "f" else each for each in outputs]


def register() -> None:
    backend_manager.register(ScaledTorch())
