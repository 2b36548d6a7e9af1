"""Shrink the tensors of a captured call: divide a large size and all its multiples by the same number.

Multiples are divided in all shapes, strides, offsets and integer arguments. A candidate is first executed on the meta
device, so that an invalid call is never written; candidates whose output shapes are divided, too, are preferred.
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

# Smaller numbers may be dimensions, kernel sizes or counts and are not taken for sizes.
_SMALLEST = 8
_MAX_STEPS, _MAX_CANDIDATES = 12, 80
# A size without a usable divisor keeps its remainder by this: an odd size stays odd, a vectorisable one stays so.
_KEPT_MODULUS = 16
# Elements up to which a candidate is executed on the CPU, to see whether torch accepts it.
_MAX_EXECUTED = 1 << 24

Entry = Mapping[str, Any]
Shapes = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Division:
    """Division of multiples of ``base`` by ``by``; with ``instead`` only ``base`` itself is replaced by that."""

    base: int
    by: int
    instead: int | None = None

    def __call__(self, size: int) -> int:
        if self.instead is not None:
            return self.instead if size == self.base else size
        return size // self.by if size and size % self.base == 0 else size


def shrink_entry(entry: Entry, limit: int) -> tuple[dict[str, Any], dict[int, int]]:
    """Return the case with sizes of at most ``limit``, as far as possible, and the new size of each changed one."""
    current = copy.deepcopy(dict(entry))
    first = _sizes_of_entry(current)
    became = {size: size for size in first}
    for _ in range(_MAX_STEPS):
        largest = max(_sizes_of_entry(current), default=0)
        if largest <= limit:
            break
        step = _shrink_once(current, largest, limit)
        if step is None:
            break
        current, division = step
        became = {size: division(new) for size, new in became.items()}
    return current, {size: new for size, new in became.items() if size != new}


def _shrink_once(entry: dict[str, Any], largest: int, limit: int) -> tuple[dict[str, Any], _Division] | None:
    """Return the entry with its largest size reduced, and the division; None if no candidate is valid.

    Prefer a candidate whose outputs have divided shapes, else take the first valid one.
    """
    before, kinds = _shapes_of_outputs(entry), [tensor["dtype"] for tensor in tensor_entries(entry)]
    # Values of offsets, of lengths, and of some masks have to fit the sizes of other tensors.
    is_ordered = takes_ordered_integers(entry["op"]) and any("int" in kind for kind in kinds)
    if before is None or is_ordered or ("bool" in kinds[1:] and facts_of(entry["op"]).mask_must_fit):
        return None
    lenient = None
    numbers = [abs(value) for value in _call_of_entry(entry).values() if type(value) is int and abs(value) >= _SMALLEST]
    together = math.gcd(largest, *[number for number in numbers if largest % number == 0])
    for division in _divisions(largest, limit, together):
        for with_numbers in (True, False):
            changed = _changed(entry, division, with_numbers)
            after = _shapes_of_outputs(changed)
            # For example, the slice 12:16 of 8 elements is valid, but empty.
            has_elements = any(0 not in shape for shape in before)
            if after is None or (has_elements and all(0 in shape for shape in after)):
                continue
            is_divided = after == [tuple(map(division, shape)) for shape in before]
            if (is_divided or lenient is None) and _is_refused_on_cpu(changed):
                continue
            if is_divided:
                return changed, division
            lenient = lenient or (changed, division)
    return lenient


def _divisions(size: int, limit: int, together: int) -> Iterator[_Division]:
    """Yield divisions of ``size``, best first, at last its replacement by a size without a common factor.

    ``together`` is the greatest common divisor of ``size`` and the integer arguments that divide it.
    """
    least = -(-size // limit)
    divisors = [d for d in range(2, min(size, 4096) + 1) if size % d == 0]
    # Prefer the smallest divisor that reaches the limit, so that the case stays as large as possible.
    factors = [d for d in divisors if d >= least] + [d for d in reversed(divisors) if d < least]
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
            if tried > _MAX_CANDIDATES:
                return
            yield _Division(base, by)
    kept = size % _KEPT_MODULUS
    instead = limit - (limit - kept) % _KEPT_MODULUS if limit >= max(kept, 1) else limit
    if 0 < instead < size:
        yield _Division(size, 1, instead)


def _sizes_of_entry(entry: Entry) -> set[int]:
    """Return all sizes of the call's input tensors; of its outputs if it has no inputs."""
    shapes = [tensor["shape"] for tensor in tensor_entries(entry)] or _shapes_of_outputs(entry) or []
    return {size for shape in shapes for size in shape}


def _shapes_of_outputs(entry: Entry) -> Shapes | None:
    """Return the shapes of the call's outputs, computed without values; None if torch refuses the call."""
    try:
        text = call_text(_call_of_entry(entry))
        inputs = [
            torch.empty_strided(tensor["shape"], _strides(tensor), dtype=_dtype_of_entry(tensor), device="meta")
            for tensor in tensor_entries(entry)
        ]
        with torch.no_grad():
            leaves = torch_call(text).without_values(inputs)
    except REFUSALS:
        return None
    return [tuple(leaf.shape) for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _is_refused_on_cpu(entry: Entry) -> bool:
    """Return whether torch on the CPU refuses the call; False for large calls and for those without a CPU kernel."""
    # Kernels check more than shape inference does.
    tensors = list(tensor_entries(entry))
    try:
        text = call_text(_call_of_entry(entry))
        if sum(_spec_of_entry(tensor).elements for tensor in tensors) > _MAX_EXECUTED:
            return False
        with torch.random.fork_rng(devices=()), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            torch_call(text).on([_example_tensor(tensor) for tensor in tensors])()
    except NotImplementedError:
        return False
    except REFUSALS:
        return True
    return False


def _example_tensor(tensor: Mapping[str, Any]) -> torch.Tensor:
    """Return a tensor of that layout: the written data, random numbers, or the lowest integer of the fill's range."""
    kind, shape, strides = _dtype_of_entry(tensor), tensor["shape"], _strides(tensor)
    fill = tensor.get("init_args")
    if tensor.get("init") == "data":
        values = torch.tensor(fill, dtype=torch.float64 if kind.is_floating_point else torch.int64)
        for axis in (axis for axis, step in enumerate(strides) if not step):
            values = values.narrow(axis, 0, 1)  # all elements of an expanded dimension are one
        return torch.empty_strided(values.shape, strides, dtype=kind).copy_(values).expand(shape)
    if kind is torch.bool or kind.is_floating_point or kind.is_complex:
        span = 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) if 0 not in shape else 0
        return torch.rand(span).to(kind).as_strided(shape, strides)
    return torch.empty_strided(shape, strides, dtype=kind).fill_(fill.get("low", 0) if isinstance(fill, dict) else 0)


def _call_of_entry(entry: Entry) -> Call:
    """Return the entry as a Call; its tensors are numbered in the order of :func:`tensor_entries`."""
    numbers = itertools.count()
    args = tuple([_call_argument(argument, numbers) for argument in entry.get("inputs", ())])
    kwargs = {
        name: _call_argument(value, numbers) if isinstance(value, dict) else value_of(value)
        for name, value in entry.get("kwmap", {}).items()
    }
    return Call(entry["op"], args, kwargs)


def _call_argument(entry: Mapping[str, Any], numbers: Iterator[int]) -> Any:
    ((kind, value),) = entry.items()
    match kind:
        case "tensor":
            return TensorRef(next(numbers))
        case "tensor_list":
            return [TensorRef(next(numbers)) for _ in value]
        case "tuple" | "list":
            parts = [_call_argument(part, numbers) for part in value]
            return tuple(parts) if kind == "tuple" else parts
        case "py":
            return literal(value)
    return value_of(value)


def _strides(tensor: Mapping[str, Any]) -> list[int]:
    return list(tensor.get("stride", contiguous_strides(tuple(tensor["shape"]))))


def _dtype_of_entry(tensor: Mapping[str, Any]) -> torch.dtype:
    return TORCH_DTYPES[tensor["dtype"]]


def _spec_of_entry(tensor: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(dtype=dtype(tensor["dtype"]), shape=tuple(tensor["shape"]))


def _changed(entry: Entry, division: _Division, with_numbers: bool) -> dict[str, Any]:
    """Return a copy of the entry with divided sizes and, if ``with_numbers``, divided integer arguments."""
    changed = copy.deepcopy(dict(entry))
    for tensor in tensor_entries(changed):
        _resize(tensor, division)
    if with_numbers:
        changed["inputs"] = [_renumbered(argument, division) for argument in changed.get("inputs", ())]
        changed["kwmap"] = {
            name: _renumbered({"value": value}, division)["value"] if not isinstance(value, dict) else value
            for name, value in changed.get("kwmap", {}).items()
        }
        changed = {key: value for key, value in changed.items() if value not in ([], {})}
    _keep_positions_within(changed)
    return changed


def _resize(tensor: dict[str, Any], division: _Division) -> None:
    """Divide sizes, strides and offset of a tensor in place; written data of another shape become a random fill."""
    shape, strides, offset = tensor["shape"], _strides(tensor), tensor.get("storage_offset", 0)
    sizes = [division(size) for size in shape]
    if sizes == shape:
        return
    # Strides keep their order and density; a gap keeps its ratio to the dimensions within, or is divided like a size.
    steps = [0] * len(shape)
    span, new_span = 1, 1
    for axis in sorted(range(len(shape)), key=lambda a: (strides[a], shape[a] != 1)):
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
    """Return the offset in the new layout of the element that ``offset`` selects in the old one.

    Split the offset into steps of each dimension; complete dimensions scale with their size, the rest is divided.
    """
    new_offset = 0
    for axis in sorted(range(len(shape)), key=lambda a: -strides[a]):
        if strides[axis] == 0:
            continue
        count, offset = divmod(offset, strides[axis])
        complete, rest = divmod(count, shape[axis])
        new_offset += (complete * sizes[axis] + min(division(rest), sizes[axis] - 1)) * steps[axis]
    return new_offset + offset


def _forget_values(tensor: dict[str, Any]) -> None:
    """Replace written data by a random fill: randint over its range for integers, randn for floats."""
    values = np.array(tensor.pop("init_args"))
    del tensor["init"]
    if not values.size:
        return  # NumPy reads an empty list as float64, whatever the tensor holds
    if values.dtype.kind not in "iu":
        tensor["init"] = "randn"
    elif tensor["dtype"] != "bool":
        tensor["init"], tensor["init_args"] = "randint", {"low": int(values.min()), "high": int(values.max()) + 1}


def _renumbered(entry: dict[str, Any], division: _Division) -> dict[str, Any]:
    """Return an argument with its integers divided; tensors are unchanged."""
    ((kind, value),) = entry.items()
    if kind in ("tuple", "list"):
        return {kind: [_renumbered(part, division) for part in value]}
    if kind == "py":
        return {"py": text_of(_divided(literal(value), division))}
    if kind == "value":
        return {"value": _divided(value, division)}
    return entry


def _divided(value: Any, division: _Division) -> Any:
    """Return a value with integers of at least 8 divided, also within lists, tuples and slices; the sign is kept."""
    if type(value) is int:
        return int(math.copysign(division(abs(value)), value)) if abs(value) >= _SMALLEST else value
    if isinstance(value, (list, tuple)):
        return type(value)([_divided(part, division) for part in value])
    if isinstance(value, slice):
        return slice(*[_divided(part, division) for part in (value.start, value.stop, value.step)])
    return value


def _keep_positions_within(entry: Entry) -> None:
    """Bring the call's index tensors into the range of the smaller dimensions: data modulo the size, fills clipped."""
    tensors = list(tensor_entries(entry))
    try:
        text = call_text(_call_of_entry(entry))
    except REFUSALS:
        return
    for positions in positions_of(text, [_spec_of_entry(tensor) for tensor in tensors]):
        tensor, size = tensors[positions.index], positions.high + 1
        if size <= 0:
            continue
        if tensor.get("init") == "data":
            values = np.array(tensor["init_args"])
            tensor["init_args"] = np.where((values >= size) | (values < -size), values % size, values).tolist()
        elif tensor.get("init") == "randint":
            bounds = tensor["init_args"]
            low = min(bounds["low"], size - 1)
            tensor["init_args"] = {"low": max(low, positions.low), "high": max(min(bounds["high"], size), low + 1)}
