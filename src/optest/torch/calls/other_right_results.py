"""Correct results that differ from the reference: undefined behaviour of torch, and its other promotion of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch

from optest.numerics import Array, dtype_of, round_to, ulp, widen
from optest.spec import AsRight, Fault, TensorSpec, TestCase, Unrounded, dtype
from optest.spec.calls import Call, TensorRef, call_text, parse_call
from optest.torch.calls.call import TorchCall, torch_call
from optest.torch.calls.reference import compute_expected
from optest.torch.fact_sheet import facts_of
from optest.torch.facts import Collisions
from optest.torch.tensors import as_array, cpu_copies

_MAX_ENUMERATED = 1 << 20


def why_no_one_result(case: TestCase, call: TorchCall) -> str | None:
    """Return the reason why a call has no unique correct result; None if it has one or expects an error."""
    if case.expects_error is not None:
        return None
    facts, args = facts_of(call.call.function), call.call.args
    if facts.is_unwritten:
        return f"{call.call.function} returns uninitialised memory, so no result is the right one"
    is_of_number = facts.sets_one_value == "of a number" and bool(args) and not isinstance(args[-1], TensorRef)
    if not call.changes or facts.sets_one_value == "always" or is_of_number:
        return None
    for index in call.changes:
        spec = case.inputs[index].spec
        # torch itself refuses to change a tensor with a stride of 0, except to one value.
        if has_overlap(spec) and 0 not in (spec.strides or ()):
            return (
                f"it changes input{index}, whose elements overlap in memory (strides {list(spec.strides or ())}); "
                "torch does not define the result"
            )
    return None


def has_overlap(spec: TensorSpec) -> bool:
    """Return whether two elements have one address; above 2**20 elements, whether they exceed the memory span."""
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
    if spec.elements > span or spec.elements > _MAX_ENUMERATED:
        return spec.elements > span
    offsets = np.zeros(1, np.int64)
    for stride, size in steps:
        offsets = np.add.outer(offsets, np.arange(size) * stride).ravel()
    return len(np.unique(offsets)) < prod(size for _, size in steps)


# torch does not define the conversion of a number to an integer dtype that cannot hold it, and its kernels differ.
def conversions_out_of_range(inputs: Sequence[Any], text: str, results: Sequence[Any]) -> list[AsRight | None]:
    """Return masks that accept any integer if the first input's element exceeds the result's dtype; None for results
    that convert no floats to integers.
    """
    tensors = parse_call(text).tensors()
    if not tensors:
        return [None] * len(results)
    source = np.asarray(inputs[tensors[0]])
    return [_out_of_range_mask(source, np.asarray(result)) for result in results]


def _out_of_range_mask(source: Array, result: Array) -> AsRight | None:
    if not dtype_of(source.dtype).is_float or result.dtype.kind not in "iu" or source.shape != result.shape:
        return None
    whole, limits = np.trunc(widen(source)), np.iinfo(result.dtype)
    mask = ~((whole >= float(limits.min)) & (whole < float(limits.max) + 1.0))
    doubt = (
        f"no number is within {result.dtype}, and torch does not define the conversion of others" if mask.all() else ""
    )
    return AsRight(mask, doubt)


# torch does not define which of several values written to one element remains, and devices differ.
def one_of_collided_writes(inputs: Sequence[Any], text: str, known: Collisions, results: Sequence[Any]) -> list[Any]:
    """Return masks that accept an element that holds one of several values written to it; None if no writes collide."""
    with suppress(IndexError, KeyError, RuntimeError, TypeError, ValueError):
        indices, values = _written_indices(known.way, _arguments(torch_call(text), cpu_copies(inputs), known.arguments))
        if len(np.unique(indices)) < indices.size:
            return [_mask_of_kept(indices, values, np.asarray(result)) for result in results]
    return [None] * len(results)


def _arguments(call: TorchCall, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}

    def keep(*args: Any, **kwargs: Any) -> tuple[()]:
        arguments.update(zip(names, args, strict=False), **kwargs)
        return ()

    replace(call, function=keep).on(tensors)()
    return arguments


def _written_indices(way: str, arguments: dict[str, Any]) -> tuple[Array, Array]:
    """Return the flat index of the element that each value is written to, and the values.

    Raises:
        ValueError: if the call accumulates or reduces, so that all values count.
    """
    target = arguments["input"] if "input" in arguments else arguments["self"]
    numbers = torch.arange(target.numel()).view(target.shape)
    if arguments.get("accumulate") or arguments.get("reduce") is not None:
        raise ValueError("all values count")
    if way == "slices":
        indices, values = numbers.index_select(arguments["dim"], arguments["index"]), arguments["source"]
    elif way == "elements":
        indices = numbers.gather(arguments["dim"], arguments["index"])
        values = arguments["src"][tuple(map(slice, indices.shape))]
    else:
        key = arguments["indices"]
        if way == "dimensions":
            key = tuple([slice(None) if part is None else part for part in key])
        indices, values = numbers[key], arguments["values"]
    values = torch.broadcast_to(torch.as_tensor(values, dtype=target.dtype), indices.shape)
    return indices.flatten().numpy(), np.asarray(as_array(values)).reshape(-1)


def _mask_of_kept(indices: Array, values: Array, result: Array) -> Array | None:
    """Return a mask of the elements that several values are written to and that hold one of them bit for bit, or NaN
    for NaN; None if the dtypes differ.
    """
    if values.dtype != result.dtype:
        return None
    elements = result.reshape(-1)
    mask = np.zeros(elements.size, dtype=bool)
    kept = elements[indices]
    bits = [np.ascontiguousarray(array).view(np.uint8).reshape(-1, kept.dtype.itemsize) for array in (kept, values)]
    is_same = (bits[0] == bits[1]).all(axis=1) | ((kept != kept) & (values != values))
    mask[indices[is_same]] = True
    is_collided = np.bincount(indices, minlength=elements.size) > 1
    return (mask & is_collided).reshape(result.shape)


# torch promotes a Python number next to a 16-bit tensor in two ways, as in ``x + 0.3`` with x in float16. By its type
# promotion, 0.3 takes the tensor's dtype: some CPU kernels round it to float16. CUDA kernels and compiled code keep
# float32. Both are correct and may differ by any number of ulp (a remainder jumps). The reference uses float32; the
# functions below compute the other result.
#
# For ``0.3 / x``, torch multiplies 0.3 by the reciprocal of x rounded to 16 bits (``torch.Tensor.__rtruediv__``), while
# compiled code divides.

Known = Callable[[Sequence[Any], Mapping[str, Any], Sequence[Any]], Sequence[Any]]


def with_scalars_of_16_bits(text: str, inputs: Sequence[Any]) -> tuple[str, list[Any]] | None:
    """Return the call and its inputs with Python numbers and 0-d tensors rounded to the 16-bit dtype of its tensors.

    None if the tensors have another or several dtypes, or if rounding changes nothing.
    """
    call = torch_call(text).call
    entries = [dtype_of(array.dtype) for array in inputs]
    kinds = {entry.name for entry, array in zip(entries, inputs, strict=True) if entry.is_inexact and array.ndim}
    if facts_of(call.function).scalars != "operands" or len(kinds) != 1 or not kinds <= {"float16", "bfloat16"}:
        return None
    kind = dtype(kinds.pop())
    args, kwargs = call.mapped(lambda x: float(widen(round_to(np.asarray(x), kind))) if type(x) is float else x)
    factor = {"alpha": call.kwargs["alpha"]} if "alpha" in call.kwargs else {}  # no operand
    narrow = call_text(replace(call, args=tuple(args), kwargs={**kwargs, **factor}))
    arrays = [
        array if array.ndim or not entry.is_float else widen(round_to(array, kind)).astype(array.dtype)
        for entry, array in zip(entries, inputs, strict=True)
    ]
    is_same = narrow == call_text(call) and all(map(np.array_equal, arrays, inputs))
    return None if is_same else (narrow, arrays)


def _with_reciprocal(text: str, inputs: Sequence[Any]) -> tuple[str, list[Any]] | None:
    """Return a quotient of a number and a 16-bit tensor as a product with the rounded reciprocal, and its inputs; None
    for other calls.
    """
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


def right_by_other_promotion(
    inputs: Sequence[Any], text: str, actual: Sequence[Any], ulps: float, known: Known | None
) -> list[Any]:
    """Return an all-True mask for each result that is correct as a whole with numbers rounded to 16 bits, else None.

    ``ulps`` is the function's ceiling in ulp of float32; ``known`` returns masks of alternative correct elements. A
    result that mixes both promotions is not accepted.
    """
    unknown: list[Any] = [None] * len(actual)
    narrow = with_scalars_of_16_bits(text, inputs)
    if narrow is None:
        narrow, known = _with_reciprocal(text, inputs), None
    if narrow is None:
        return unknown
    call, arrays = narrow
    try:
        references = compute_expected(arrays, {"call": call})[: len(actual)]
        alternatives = unknown if known is None else list(known(arrays, {"call": call}, actual))
    except (Fault, ValueError):
        return unknown
    masks = [_mask_within(np.asarray(got), value, ulps) for got, value in zip(actual, references, strict=True)]
    for index, alternative in enumerate((alternatives * 2)[: len(masks)]):  # an in-place call yields its result twice
        if alternative is not None and masks[index] is not None:
            masks[index] = masks[index] | alternative
    return [mask if mask is not None and bool(mask.all()) else None for mask in masks]


def _mask_within(got: Array, reference: Any, ulps: float) -> Array | None:
    """Return a mask of the elements within ``ulps`` of float32 plus their own rounding; None for an unknown reference
    or another shape.
    """
    if not isinstance(reference, Unrounded) or got.shape != np.shape(reference.values):
        return None
    entry = dtype_of(got.dtype)
    with np.errstate(all="ignore"):
        value, output = np.asarray(reference.values), widen(got)
        size = np.where(np.isfinite(value), np.abs(value), 0.0)
        error = ulps * ulp(size, dtype("float32"))
        is_near = np.abs(output - value) <= error + 0.5 * ulp(size + error, entry)
        rounded = widen(round_to(value, entry))
        return np.asarray(is_near | (output == rounded) | (np.isnan(output) & np.isnan(value)))
