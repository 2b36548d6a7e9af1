"""Results that torch leaves undefined: in unwritten or overlapping memory, and beyond a dtype's range."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch

from optest.numerics import Array, dtype_of, widen
from optest.spec import AsRight, TensorSpec, TestCase
from optest.spec.calls import TensorRef, parse_call
from optest.torch.calls.call import TorchCall, torch_call
from optest.torch.fact_sheet import facts_of
from optest.torch.facts import Collisions
from optest.torch.tensors import as_array, on_cpu

__all__ = ["conversions_out_of_range", "has_overlap", "one_of_collided_writes", "why_no_one_result"]

_MOST_LOOKED_AT = 1 << 20


def why_no_one_result(case: TestCase, call: TorchCall) -> str | None:
    """Why the call has no one right result; None if it has. What is to be refused is asked all the same.

    A stride of 0 is left to torch, which refuses to change such a tensor, save with one value.
    """
    if case.expects_error is not None:
        return None
    if facts_of(call.call.function).is_unwritten:
        return f"{call.call.function} returns memory that nobody has written, so no result is the right one"
    if not call.changes or _sets_one_value(call):
        return None
    for index in call.changes:
        spec = case.inputs[index].spec
        if has_overlap(spec) and 0 not in (spec.strides or ()):
            return (
                f"it changes input{index}, several of whose elements lie in one place (strides "
                f"{list(spec.strides or ())}): torch leaves open how often each is changed"
            )
    return None


def _sets_one_value(call: TorchCall) -> bool:
    facts = facts_of(call.call.function)
    is_number = not isinstance(call.call.args[-1], TensorRef) if call.call.args else False
    return facts.sets_one_value == "always" or (facts.sets_one_value == "of a number" and is_number)


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

_CPU = torch.device("cpu")


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

    replace(call, function=keep).on(tensors, _CPU)()
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
    found[places[_are_same(elements[places], values)]] = True
    several = np.bincount(places, minlength=elements.size) > 1
    return (found & several).reshape(result.shape)


def _are_same(one: Array, other: Array) -> Array:
    """Bit for bit, NaN for NaN."""
    size = one.dtype.itemsize
    bits = [np.ascontiguousarray(each).view(np.uint8).reshape(-1, size) for each in (one, other)]
    same: Array = (bits[0] == bits[1]).all(axis=1) | ((one != one) & (other != other))
    return same
