"""Which torch function computes which operator, family by family."""

from __future__ import annotations

from optest.backends.torch_operators import (
    activation,
    attention,
    contraction,
    elementwise,
    indexing,
    movement,
    normalization,
    pooling,
    quantization,
    reduction,
)
from optest.backends.torch_operators.calls import TorchCall

__all__ = ["TORCH_OPERATORS"]

TORCH_OPERATORS: dict[str, TorchCall] = {
    name: call
    for family in (
        elementwise,
        activation,
        reduction,
        normalization,
        contraction,
        pooling,
        attention,
        movement,
        indexing,
        quantization,
    )
    for name, call in family.CALLS.items()
}
"""By canonical name."""
