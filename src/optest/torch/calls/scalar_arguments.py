"""Python numbers among the arguments of a call: operands, and the factors ``alpha`` and ``beta``.

Torch rounds an operand to the dtype that it computes in, which is part of what it promises.

``x * 1.702`` with x of float32 is x times the float32 that is nearest to 1.702, and for 16-bit x, too, torch computes
in float32. A reference in float64 that took 1.702 itself would find the right answer wrong by more than a rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optest.numerics import dtype_of
from optest.spec.calls import Call
from optest.torch.calls.call import TorchCall
from optest.torch.fact_sheet import facts_of

__all__ = ["with_alpha_beta_to_power", "with_rounded_scalars"]


def with_rounded_scalars(call: TorchCall, inputs: Sequence[Any]) -> TorchCall:
    """The call with numbers in float32, if that is what its tensors make torch compute in."""
    if not any(isinstance(value, (float, complex)) for value in call.call.values()):
        return call
    if not facts_of(call.call.function).scalars or not _computes_in_float32(inputs):
        return call
    args, kwargs = call.call.mapped(_rounded)
    return replace(call, call=Call(call.call.function, tuple(args), kwargs))


def _computes_in_float32(inputs: Sequence[Any]) -> bool:
    floating = [each for each in (dtype_of(array.dtype) for array in inputs) if each.is_inexact]
    return bool(floating) and all(each.name in _FLOAT32 for each in floating)


_FLOAT32 = ("float32", "float16", "bfloat16", "complex64")


def _rounded(value: Any) -> Any:
    if type(value) is complex:
        return complex(_rounded(value.real), _rounded(value.imag))
    if type(value) is not float:
        return value
    with np.errstate(over="ignore"):
        rounded = float(np.float32(value))
    return rounded if np.isfinite(rounded) else value


# ``torch.addmm(c, a, b, beta=2, alpha=-0.5)`` is β·c + α·a·b. The error terms of such a sum are made by the call
# itself, on magnitudes, squares and ones. The factors are in every term, so they become such, too.
_FACTORS = ("alpha", "beta")


def with_alpha_beta_to_power(call: TorchCall, power: int) -> TorchCall:
    """The call with ``|factor| ** power`` in the place of each factor; 0 counts terms."""
    if not any(name in call.call.kwargs for name in _FACTORS):
        return call
    kwargs: dict[str, Any] = {
        name: abs(value) ** power if name in _FACTORS and isinstance(value, (int, float, complex)) else value
        for name, value in call.call.kwargs.items()
    }
    return replace(call, call=replace(call.call, kwargs=kwargs))
