"""The torch calls of the catalogue's operators, by operator name; one module per family or two."""

from __future__ import annotations

from optest.torch.operators import contraction, elementwise, kernels, movement, reduction
from optest.torch.operators.calls import TorchCall

__all__ = ["TORCH_OPERATORS"]

_FAMILIES = (elementwise, reduction, contraction, movement, kernels)
TORCH_OPERATORS: dict[str, TorchCall] = {name: call for family in _FAMILIES for name, call in family.CALLS.items()}
