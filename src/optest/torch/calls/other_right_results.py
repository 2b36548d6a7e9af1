"""Results that are right beside the reference's: what torch leaves undefined, and the other reading of a number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch

from optest.numerics import Array, dtype_of, round_to, ulp, widen
from optest.spec import AsRight, DType, Fault, TensorSpec, TestCase, Unrounded, dtype
from optest.spec.calls import Call, TensorRef, call_text, parse_call
from optest.torch.calls.call import TorchCall, torch_call
from optest.torch.calls.reference import expected
from optest.torch.fact_sheet import facts_of
from optest.torch.facts import Collisions
from optest.torch.tensors import as_array, on_cpu

_MOST_LOOKED_AT = 1 << 20


def why_no_one_result(case: TestCase, call: TorchCall) -> str | None:
    """Why the call has no one right result; None if it has. What is to be refused is asked all the same.

    A stride of 0 is left to torch, which refuses to change such a tensor, save with one value.
    """
    if case.expects_error is not None:
        return None
    facts, args = facts_of(call.call.function), call.call.args
    if facts.is_unwritten:
        return f"{call.call.function} returns memory that nobody has written, so no result is the right one"
    is_of_number = facts.sets_one_value == "of a number" and bool(args) and not isinstance(args[-1], TensorRef)
    if not call.changes or facts.sets_one_value == "always" or is_of_number:
        return None
    for index in call.changes:
        spec = case.inputs[index].spec
        if has_overlap(spec) and 0 not in (spec.strides or ()):
            return (
                f"it changes input{index}, several of whose elements lie in one place (strides "
                f"{list(spec.strides or ())}): torch leaves open how often each is changed"
            )
    return None


def has_overlap(spec: TensorSpec) -> bool:
    """Whether two elements of the tensor lie in one place; of very large ones only what their number says."""
    if spec.strides is None or not spec.elements:
        return False
    steps = sorted((stride, size) for size, stride in zip(spec.shape, spec.strides, strict=True) if size > 1)
    reach = 0
    for stride, size in steps:
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    span = 1 + sum(stride * (size - 1) for stride, size in steps)
    if spec.elements > span or spec.elements > _MOST_LOOKED_AT:
        return spec.elements > span
    places = np.zeros(1, np.int64)
    for stride, size in steps:
        places = np.add.outer(places, np.arange(size) * stride).ravel()
    return len(np.unique(places)) < prod(size for _, size in steps)


# Numbers that become integers of a dtype that does not hold them: torch leaves open which, and its kernels differ.


def conversions_out_of_range(inputs: Sequence[Any], text: str, results: Sequence[Any]) -> list[AsRight | None]:
    """True where the first tensor of the call has no number that its result could hold; None for other results."""
    tensors = parse_call(text).tensors()
    if not tensors:
        return [None] * len(results)
    given = np.asarray(inputs[tensors[0]])
    return [_beyond(given, np.asarray(each)) for each in results]


def _beyond(given: Array, result: Array) -> AsRight | None:
    if not dtype_of(given.dtype).is_float or result.dtype.kind not in "iu" or given.shape != result.shape:
        return None
    whole, limits = np.trunc(widen(given)), np.iinfo(result.dtype)
    mask = ~((whole >= float(limits.min)) & (whole < float(limits.max) + 1.0))
    doubt = f"no number lies within {result.dtype}, and torch leaves open what becomes of others" if mask.all() else ""
    return AsRight(mask, doubt)


# Several values that a call writes to one place: torch leaves open which of them stays, and devices differ.


def one_of_collided_writes(inputs: Sequence[Any], text: str, known: Collisions, results: Sequence[Any]) -> list[Any]:
    """True where several values were to be written and one of them stands there; None where no two meet."""
    with suppress(IndexError, KeyError, RuntimeError, TypeError, ValueError):
        places, values = _written(known.way, _arguments(torch_call(text), on_cpu(inputs), known.arguments))
        if len(np.unique(places)) < places.size:
            return [_stays(places, values, np.asarray(each)) for each in results]
    return [None] * len(results)


def _arguments(call: TorchCall, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def keep(*args: Any, **kwargs: Any) -> tuple[()]:
        found.update(zip(names, args, strict=False), **kwargs)
        return ()

    replace(call, function=keep).on(tensors)()
    return found


def _written(way: str, given: dict[str, Any]) -> tuple[Array, Array]:
    """Where each value goes, as the number of an element of the tensor that is written to, and the values."""
    target = given["input"] if "input" in given else given["self"]
    numbers = torch.arange(target.numel()).view(target.shape)
    if given.get("accumulate") or given.get("reduce") is not None:
        raise ValueError("all of them count")
    if way == "slices":
        places, values = numbers.index_select(given["dim"], given["index"]), given["source"]
    elif way == "elements":
        places = numbers.gather(given["dim"], given["index"])
        values = given["src"][tuple(map(slice, places.shape))]
    else:
        key = given["indices"]
        if way == "dimensions":
            key = tuple([slice(None) if each is None else each for each in key])
        places, values = numbers[key], given["values"]
    values = torch.broadcast_to(torch.as_tensor(values, dtype=target.dtype), places.shape)
    return places.flatten().numpy(), np.asarray(as_array(values)).reshape(-1)


def _stays(places: Array, values: Array, result: Array) -> Array | None:
    if values.dtype != result.dtype:
        return None
    elements = result.reshape(-1)
    found = np.zeros(elements.size, dtype=bool)
    # Values stay bit for bit, NaN for NaN.
    kept = elements[places]
    bits = [np.ascontiguousarray(each).view(np.uint8).reshape(-1, kept.dtype.itemsize) for each in (kept, values)]
    is_same = (bits[0] == bits[1]).all(axis=1) | ((kept != kept) & (values != values))
    found[places[is_same]] = True
    several = np.bincount(places, minlength=elements.size) > 1
    return (found & several).reshape(result.shape)


# Numbers beside 16-bit tensors, which torch reads in two ways: ``x + 0.3`` with x of float16.
#
# A number beside a tensor takes the tensor's dtype, says torch's promotion of types, and so do its CPU kernels of some
# functions: they round 0.3 to float16. Its CUDA kernels, and what its compiler makes, keep 0.3 in float32. Both are
# right, and what is right by the one may be any number of ulp away from the other (a remainder jumps). The reference
# has the number in float32; here is the other one.
#
# And ``0.3 / x``, which Python hands to x: torch multiplies 0.3 by the reciprocal of x, rounded to 16 bits
# (``torch.Tensor.__rtruediv__``), while its compiler divides.


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
    factor = {"alpha": call.kwargs["alpha"]} if "alpha" in call.kwargs else {}  # which is no operand
    narrow = call_text(replace(call, args=tuple(args), kwargs={**kwargs, **factor}))
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
        right = expected(arrays, {"call": call})[: len(actual)]
        others = nothing if known is None else list(known(arrays, {"call": call}, actual))
    except (Fault, ValueError):
        return nothing
    masks = [_within(np.asarray(got), value, ulps) for got, value in zip(actual, right, strict=True)]
    for place, other in enumerate((others * 2)[: len(masks)]):  # a call in place yields its result twice
        if other is not None and masks[place] is not None:
            masks[place] = masks[place] | other
    return [mask if mask is not None and bool(mask.all()) else None for mask in masks]


def _within(got: Array, right: Any, ulps: float) -> Array | None:
    """Where the output is ``wanted`` up to ``ulps`` of float32 and its own rounding."""
    if not isinstance(right, Unrounded) or got.shape != np.shape(right.values):
        return None
    entry = dtype_of(got.dtype)
    with np.errstate(all="ignore"):
        value, found = np.asarray(right.values), widen(got)
        size = np.where(np.isfinite(value), np.abs(value), 0.0)
        lost = ulps * ulp(size, dtype("float32"))
        is_near = np.abs(found - value) <= lost + 0.5 * ulp(size + lost, entry)
        rounded = widen(round_to(value, entry))
        return np.asarray(is_near | (found == rounded) | (np.isnan(found) & np.isnan(value)))
