"""Which torch function computes which operator, family by family."""

from __future__ import annotations

from optest.torch.operators import contraction, elementwise, movement, reduction
from optest.torch.operators.calls import TorchCall

__all__ = ["TORCH_OPERATORS"]

TORCH_OPERATORS: dict[str, TorchCall] = {
    name: call for family in (elementwise, reduction, contraction, movement) for name, call in family.CALLS.items()
}
"""By canonical name."""
