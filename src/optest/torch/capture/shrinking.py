"""Calls with smaller tensors: large sizes are divided, all that belong together by the same number.

A size is divided wherever a multiple of it stands in the call: in other shapes, in strides and offsets, among the
numbers that the call takes. What is tried is made without values first, so a call that its sizes no longer fit is never
written; sizes that the call yields have to follow, too, where that is possible.
"""

from __future__ import annotations

import copy
import itertools
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from optest.spec import TensorSpec, contiguous_strides, dtype
from optest.spec.calls import Call, TensorRef, call_text, text_of
from optest.torch.calls.call import torch_call
from optest.torch.calls.indices import positions_of
from optest.torch.calls.refusals import REFUSALS
from optest.torch.capture.values import tensor_entries
from optest.torch.fact_sheet import facts_of, takes_ordered_integers
from optest.torch.model_cases.arguments import literal, value_of
from optest.torch.tensors import TORCH_DTYPES

_SMALLEST = 8
"""Numbers below it may be dimensions, kernel sizes or counts: they are not taken for sizes."""

_MOST_STEPS, _MOST_TRIED = 12, 80
_KEEPS = 16
"""A size without a divisor keeps its remainder by this: odd stays odd, and what fits a vector still does."""

Entry = Mapping[str, Any]
Shapes = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Division:
    """Multiples of ``base`` are divided by ``by``; with ``instead`` only ``base`` itself is replaced."""

    base: int
    by: int
    instead: int | None = None

    def __call__(self, size: int) -> int:
        if self.instead is not None:
            return self.instead if size == self.base else size
        return size // self.by if size and size % self.base == 0 else size


def shrunk(entry: Entry, limit: int) -> tuple[dict[str, Any], dict[int, int]]:
    """The keys of a case with sizes of at most ``limit`` where it can be had, and what became of each size."""
    current = copy.deepcopy(dict(entry))
    first = _sizes(current)
    became = {size: size for size in first}
    for _ in range(_MOST_STEPS):
        largest = max(_sizes(current), default=0)
        if largest <= limit:
            break
        found = _step(current, largest, limit)
        if found is None:
            break
        current, division = found
        became = {size: division(now) for size, now in became.items()}
    return current, {size: now for size, now in became.items() if size != now}


def _step(entry: dict[str, Any], largest: int, limit: int) -> tuple[dict[str, Any], _Division] | None:
    """The entry with its largest size made smaller, if it may be."""
    before = _yields(entry)
    if before is None or _counts(entry):
        return None
    lenient = None
    together = math.gcd(largest, *[each for each in _numbers(entry) if largest % each == 0])
    for division in _divisions(largest, limit, together):
        for with_numbers in (True, False):
            changed = _changed(entry, division, with_numbers)
            after = _yields(changed)
            has_elements = any(0 not in shape for shape in before)  # a slice from 12 to 16 of 8 elements has none
            if after is None or (has_elements and all(0 in shape for shape in after)):
                continue
            is_divided = after == [tuple(map(division, shape)) for shape in before]
            if (is_divided or lenient is None) and _is_refused(changed):
                continue
            if is_divided:
                return changed, division
            lenient = lenient or (changed, division)
    return lenient


def _counts(entry: Entry) -> bool:
    """Whether true elements of a mask, or offsets and lengths, have to fit the sizes of other tensors."""
    if takes_ordered_integers(entry["op"]) and any("int" in each["dtype"] for each in tensor_entries(entry)):
        return True
    is_masked = any(each["dtype"] == "bool" for each in list(tensor_entries(entry))[1:])
    return is_masked and facts_of(entry["op"]).mask_must_fit


def _divisions(size: int, limit: int, together: int) -> Iterator[_Division]:
    """What may be done to ``size``, best first; ``together`` divides it and the numbers that the call takes."""
    least = -(-size // limit)
    divisors = [each for each in range(2, min(size, 4096) + 1) if size % each == 0]
    factors = [each for each in divisors if each >= least] + [each for each in reversed(divisors) if each < least]
    tried = 0
    for by in factors:
        if size // by < min(limit, _SMALLEST):
            continue
        # Divisors of the size from the largest down to this one.
        larger = (size // count for count in range(1, size // by + 1) if size % count == 0)
        for base in dict.fromkeys((together, *larger)):
            if base % by or base < max(_SMALLEST, 2 * by):
                continue
            tried += 1
            if tried > _MOST_TRIED:
                return
            yield _Division(base, by)
    kept = size % _KEEPS
    instead = limit - (limit - kept) % _KEEPS if limit >= max(kept, 1) else limit
    if 0 < instead < size:
        yield _Division(size, 1, instead)


def _numbers(entry: Entry) -> Iterator[int]:
    """The numbers that the call takes, those that may be sizes."""
    for value in _call(entry).values():
        if type(value) is int and abs(value) >= _SMALLEST:
            yield abs(value)


def _sizes(entry: Entry) -> set[int]:
    """Of its tensors; of what it makes if it takes none."""
    shapes = [tensor["shape"] for tensor in tensor_entries(entry)] or _yields(entry) or []
    return {size for shape in shapes for size in shape}


def _yields(entry: Entry) -> Shapes | None:
    """The shapes that the call yields, told without values; None if it cannot be made or told."""
    try:
        text = call_text(_call(entry))
        given = [
            torch.empty_strided(each["shape"], _strides(each), dtype=_dtype(each), device="meta")
            for each in tensor_entries(entry)
        ]
        with torch.no_grad():
            leaves = torch_call(text).without_values(given)
    except REFUSALS:
        return None
    return [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]


_MOST_MADE = 1 << 24
"""Elements up to which a smaller call is made for once, to see whether torch takes it."""


def _is_refused(entry: Entry) -> bool:
    """Whether torch on the CPU refuses the call, though it can tell its sizes: kernels ask more of them.

    What the CPU has not got, and what is large, is not known to be refused.
    """
    tensors = list(tensor_entries(entry))
    try:
        text = call_text(_call(entry))
        spans = [TensorSpec(dtype=dtype(each["dtype"]), shape=tuple(each["shape"])).elements for each in tensors]
        if sum(spans) > _MOST_MADE:
            return False
        with torch.random.fork_rng(devices=()), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            torch_call(text).on([_filled(each) for each in tensors])()
    except NotImplementedError:
        return False
    except REFUSALS as error:
        return "not implemented" not in str(error)
    return False


def _filled(tensor: Mapping[str, Any]) -> torch.Tensor:
    """A tensor of that layout: what is written out, the lowest integer that may be drawn, or random numbers."""
    kind, shape, strides = _dtype(tensor), tensor["shape"], _strides(tensor)
    given = tensor.get("init_args")
    if tensor.get("init") == "data":
        values = torch.tensor(given, dtype=torch.float64 if kind.is_floating_point else torch.int64)
        for axis in (each for each, step in enumerate(strides) if not step):
            values = values.narrow(axis, 0, 1)  # one element stands for all of them
        return torch.empty_strided(values.shape, strides, dtype=kind).copy_(values).expand(shape)
    if kind is torch.bool or kind.is_floating_point or kind.is_complex:
        span = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) if 0 not in shape else 0
        return torch.rand(span).to(kind).as_strided(shape, strides)
    return torch.empty_strided(shape, strides, dtype=kind).fill_(given.get("low", 0) if isinstance(given, dict) else 0)


def _call(entry: Entry) -> Call:
    """The call; its tensors have the numbers that :func:`tensor_entries` gives them."""
    numbers = itertools.count()
    args = tuple([_argument(each, numbers) for each in entry.get("inputs", ())])
    kwargs = {
        name: _argument(value, numbers) if isinstance(value, dict) else value_of(value)
        for name, value in entry.get("kwmap", {}).items()
    }
    return Call(entry["op"], args, kwargs)


def _argument(entry: Mapping[str, Any], numbers: Iterator[int]) -> Any:
    ((kind, value),) = entry.items()
    match kind:
        case "tensor":
            return TensorRef(next(numbers))
        case "tensor_list":
            return [TensorRef(next(numbers)) for _ in value]
        case "tuple" | "list":
            parts = [_argument(each, numbers) for each in value]
            return tuple(parts) if kind == "tuple" else parts
        case "py":
            return literal(value)
    return value_of(value)


def _strides(tensor: Mapping[str, Any]) -> list[int]:
    return list(tensor.get("stride", contiguous_strides(tuple(tensor["shape"]))))


def _dtype(tensor: Mapping[str, Any]) -> torch.dtype:
    return TORCH_DTYPES[tensor["dtype"]]


def _changed(entry: Entry, division: _Division, with_numbers: bool) -> dict[str, Any]:
    """The entry with its sizes, and the numbers that it takes, divided."""
    changed = copy.deepcopy(dict(entry))
    for tensor in tensor_entries(changed):
        _resize(tensor, division)
    if with_numbers:
        changed["inputs"] = [_renumbered(each, division) for each in changed.get("inputs", ())]
        changed["kwmap"] = {
            name: _renumbered({"value": value}, division)["value"] if not isinstance(value, dict) else value
            for name, value in changed.get("kwmap", {}).items()
        }
        changed = {key: value for key, value in changed.items() if value not in ([], {})}
    _keep_positions_within(changed)
    return changed


def _resize(tensor: dict[str, Any], division: _Division) -> None:
    shape, strides, offset = tensor["shape"], _strides(tensor), tensor.get("storage_offset", 0)
    sizes = [division(size) for size in shape]
    if sizes == shape:
        return
    # Strides keep their order, as dense as they were; gaps keep their ratio, or are divided as sizes are.
    steps = [0] * len(shape)
    span, new_span = 1, 1
    for axis in sorted(range(len(shape)), key=lambda each: (strides[each], shape[each] != 1)):
        if strides[axis] == 0:
            continue
        ratio, rest = divmod(strides[axis], span)
        steps[axis] = new_span * ratio if not rest else max(division(strides[axis]), new_span)
        if shape[axis] != 1:
            span, new_span = strides[axis] * shape[axis], steps[axis] * sizes[axis]
    tensor["shape"] = sizes
    tensor.pop("stride", None)
    if steps != list(contiguous_strides(tuple(sizes))):
        tensor["stride"] = steps
    if offset:
        tensor["storage_offset"] = _offset(offset, shape, strides, sizes, steps, division)
    if tensor.get("init") == "data":
        _forget_values(tensor)


def _offset(
    offset: int, shape: list[int], strides: list[int], sizes: list[int], steps: list[int], division: _Division
) -> int:
    """Where the first element lies: so many steps of each dimension, whole ones and a rest."""
    found = 0
    for axis in sorted(range(len(shape)), key=lambda each: -strides[each]):
        if strides[axis] == 0:
            continue
        count, offset = divmod(offset, strides[axis])
        whole, rest = divmod(count, shape[axis])
        found += (whole * sizes[axis] + min(division(rest), sizes[axis] - 1)) * steps[axis]
    return found + offset


def _forget_values(tensor: dict[str, Any]) -> None:
    """Values that were written out are drawn from their range instead."""
    values = np.array(tensor.pop("init_args"))
    del tensor["init"]
    if not values.size:
        return  # NumPy takes an empty list for floats, whatever the tensor holds
    if values.dtype.kind not in "iu":
        tensor["init"] = "randn"
    elif tensor["dtype"] != "bool":
        tensor["init"], tensor["init_args"] = "randint", {"low": int(values.min()), "high": int(values.max()) + 1}


def _renumbered(entry: dict[str, Any], division: _Division) -> dict[str, Any]:
    ((kind, value),) = entry.items()
    if kind in ("tuple", "list"):
        return {kind: [_renumbered(each, division) for each in value]}
    if kind == "py":
        return {"py": text_of(_divided(literal(value), division))}
    if kind == "value":
        return {"value": _divided(value, division)}
    return entry


def _divided(value: Any, division: _Division) -> Any:
    if type(value) is int:
        return int(math.copysign(division(abs(value)), value)) if abs(value) >= _SMALLEST else value
    if isinstance(value, (list, tuple)):
        return type(value)([_divided(each, division) for each in value])
    if isinstance(value, slice):
        return slice(*[_divided(each, division) for each in (value.start, value.stop, value.step)])
    return value


def _keep_positions_within(entry: Entry) -> None:
    """Positions in a dimension that became smaller are taken modulo its size."""
    tensors = list(tensor_entries(entry))
    try:
        text = call_text(_call(entry))
    except REFUSALS:
        return
    specs = [TensorSpec(dtype=dtype(each["dtype"]), shape=tuple(each["shape"])) for each in tensors]
    for positions in positions_of(text, specs):
        tensor, size = tensors[positions.index], positions.high + 1
        if size <= 0:
            continue
        if tensor.get("init") == "data":
            found = np.array(tensor["init_args"])
            tensor["init_args"] = np.where((found >= size) | (found < -size), found % size, found).tolist()
        elif tensor.get("init") == "randint":
            given = tensor["init_args"]
            low = min(given["low"], size - 1)
            tensor["init_args"] = {"low": max(low, positions.low), "high": max(min(given["high"], size), low + 1)}
