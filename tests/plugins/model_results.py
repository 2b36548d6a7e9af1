"""Models in torch, run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def results(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of a model by name."""
    import torch

    from optest.torch.models.adapters import tensors_in

    with torch.no_grad():
        return dict(zip(model.outputs, tensors_in(model.module(**inputs)), strict=True))
