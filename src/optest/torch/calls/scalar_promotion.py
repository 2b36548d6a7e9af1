"""Numbers beside 16-bit tensors, which torch reads in two ways: ``x + 0.3`` with x of float16.

A number beside a tensor takes the tensor's dtype, says torch's promotion of types, and so do its CPU kernels of some
functions: they round 0.3 to float16. Its CUDA kernels, and what its compiler makes, keep 0.3 in float32. Both are
right, and what is right by the one may be any number of ulp away from the other (a remainder jumps). The reference has
the number in float32; here is the other one.

And ``0.3 / x``, which Python hands to x: torch multiplies 0.3 by the reciprocal of x, rounded to 16 bits
(``torch.Tensor.__rtruediv__``), while its compiler divides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optest.numerics import Array, dtype_of, round_to, ulp, widen
from optest.spec import DType, Fault, Unrounded, dtype
from optest.spec.calls import Call, TensorRef, call_text
from optest.torch.calls.call import torch_call
from optest.torch.calls.reference import expected
from optest.torch.fact_sheet import facts_of

__all__ = ["right_by_other_promotion", "with_scalars_of_16_bits"]

Known = Callable[[Sequence[Any], Mapping[str, Any], Sequence[Any]], Sequence[Any]]


def with_scalars_of_16_bits(text: str, inputs: Sequence[Any]) -> tuple[str, list[Any]] | None:
    """The call and its inputs with numbers rounded to the dtype of its tensors, among them tensors without dimensions.

    None where that dtype is none of 16 bits, or rounding changes nothing.
    """
    call = torch_call(text).call
    entries = [dtype_of(array.dtype) for array in inputs]
    kinds = {entry.name for entry, array in zip(entries, inputs, strict=True) if entry.is_inexact and array.ndim}
    if facts_of(call.function).scalars != "operands" or len(kinds) != 1 or not kinds <= {"float16", "bfloat16"}:
        return None
    kind = dtype(kinds.pop())
    args, kwargs = call.mapped(lambda value: _rounded(value, kind))
    narrow = call_text(dataclasses.replace(call, args=tuple(args), kwargs={**kwargs, **_kept(call)}))
    arrays = [
        array if array.ndim or not entry.is_float else widen(round_to(array, kind)).astype(array.dtype)
        for entry, array in zip(entries, inputs, strict=True)
    ]
    is_same = narrow == call_text(call) and all(map(np.array_equal, arrays, inputs))
    return None if is_same else (narrow, arrays)


def _with_reciprocal(text: str, inputs: Sequence[Any]) -> tuple[str, list[Any]] | None:
    """A quotient that the divisor was asked for, as the product with its reciprocal; None for any other call."""
    call = torch_call(text).call
    if not facts_of(call.function).may_multiply_by_reciprocal or call.kwargs or len(call.args) != 2:
        return None
    divisor, dividend = call.args if call.spelled.is_reflected else call.args[::-1]
    if not isinstance(divisor, TensorRef) or not (call.spelled.is_reflected or isinstance(dividend, (int, float))):
        return None
    arrays = list(inputs)
    entry = dtype_of(arrays[divisor.index].dtype)
    if entry.name not in ("float16", "bfloat16"):
        return None
    with np.errstate(all="ignore"):
        arrays[divisor.index] = round_to(1.0 / widen(arrays[divisor.index]), entry)
    return call_text(Call("torch.mul", (divisor, dividend))), arrays


def _kept(call: Call) -> dict[str, Any]:
    """A factor is no operand."""
    return {name: call.kwargs[name] for name in ("alpha",) if name in call.kwargs}


def _rounded(value: Any, kind: DType) -> Any:
    return float(widen(round_to(np.asarray(value), kind))) if type(value) is float else value


def right_by_other_promotion(
    inputs: Sequence[Any], text: str, actual: Sequence[Any], ulps: float, known: Known | None
) -> list[Any]:
    """One mask for each result: all of it, if it is right with the numbers rounded to 16 bits, else None.

    ``ulps`` is the ceiling of the function in ulp of float32, and ``known`` says which elements beside the expected
    ones are right. A result that is right now by the one reading and now by the other is none.
    """
    nothing: list[Any] = [None] * len(actual)
    narrow = with_scalars_of_16_bits(text, inputs)
    if narrow is None:
        narrow, known = _with_reciprocal(text, inputs), None
    if narrow is None:
        return nothing
    call, arrays = narrow
    try:
        wanted = expected(arrays, {"call": call})[: len(actual)]
        others = nothing if known is None else list(known(arrays, {"call": call}, actual))
    except (Fault, ValueError):
        return nothing
    masks = [_within(np.asarray(got), value, ulps) for got, value in zip(actual, wanted, strict=True)]
    for place, other in enumerate((others * 2)[: len(masks)]):  # a call in place yields its result twice
        if other is not None and masks[place] is not None:
            masks[place] = masks[place] | other
    return [mask if mask is not None and bool(mask.all()) else None for mask in masks]


def _within(got: Array, wanted: Any, ulps: float) -> Array | None:
    """Where the output is ``wanted`` up to ``ulps`` of float32 and its own rounding."""
    if not isinstance(wanted, Unrounded) or got.shape != np.shape(wanted.values):
        return None
    entry = dtype_of(got.dtype)
    with np.errstate(all="ignore"):
        value, found = np.asarray(wanted.values), widen(got)
        size = np.where(np.isfinite(value), np.abs(value), 0.0)
        lost = ulps * ulp(size, dtype("float32"))
        is_near = np.abs(found - value) <= lost + 0.5 * ulp(size + lost, entry)
        rounded = widen(round_to(value, entry))
        return np.asarray(is_near | (found == rounded) | (np.isnan(found) & np.isnan(value)))
