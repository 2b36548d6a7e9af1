"""Sums that have multiples in them, ``torch.addmm(c, a, b, beta=2, alpha=-0.5)``: β·c + α·a·b.

What a contraction says of itself on magnitudes, squares and ones holds for its factors, too: they are in every term.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from optest.torch.calls.calling import TorchCall

__all__ = ["with_power_of_factors"]

_FACTORS = ("alpha", "beta")


def with_power_of_factors(call: TorchCall, power: int) -> TorchCall:
    """The call with ``|factor| ** power`` in the place of each factor; 0 counts terms."""
    if not any(name in call.call.kwargs for name in _FACTORS):
        return call
    kwargs: dict[str, Any] = {
        name: abs(value) ** power if name in _FACTORS and isinstance(value, (int, float, complex)) else value
        for name, value in call.call.kwargs.items()
    }
    return replace(call, call=replace(call.call, kwargs=kwargs))
