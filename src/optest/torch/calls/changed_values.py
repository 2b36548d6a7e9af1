"""Other values for an input of what was compiled, and whether torch's own results follow them.

Floating and complex inputs get half their values: what is legal stays so, and most results change. Integers and bool
get their elements in the reverse order: positions stay within what they index, and as many elements are true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from optest.numerics import Array
from optest.torch.calls.call import TorchCall
from optest.torch.calls.gradients import Draw, changeable, differentiated
from optest.torch.calls.refusals import NO_KERNEL
from optest.torch.fact_sheet import takes_ordered_integers
from optest.torch.tensors import memory_of, on_cpu

__all__ = ["ChangedValues", "are_of_changed_values", "changed_values", "is_taken_by_torch"]

_CPU = torch.device("cpu")

# A result follows its inputs if it changes by this share of the largest one, or so many of its integers change. One in
# a hundred is more than a rounding of bfloat16 (1/256), and less than what half the values change of most functions.
_FOLLOWS = 0.01


@dataclass(frozen=True, slots=True)
class ChangedValues:
    """``how`` says which, after "with"; ``put`` writes them into all the memory of a tensor, from its first element."""

    how: str
    put: Callable[[torch.Tensor], None]


def changed_values(call: TorchCall, index: int, tensor: torch.Tensor) -> ChangedValues | None:
    """What the input of this number may have in place of its values; None where nobody knows what is legal."""
    if not tensor.numel():
        return None
    if tensor.is_floating_point() or tensor.is_complex():
        return ChangedValues(f"half the values of input{index}", _halve)
    if takes_ordered_integers(call.call.function):
        return None
    return ChangedValues(f"the elements of input{index} in the reverse order", _reverse)


def _halve(tensor: torch.Tensor) -> None:
    """Elements that share a place are halved once; torch multiplies no numbers of 8 bits."""
    memory = memory_of(tensor)
    memory.copy_(memory.float().mul_(0.5) if memory.element_size() == 1 else memory * 0.5)


def _reverse(tensor: torch.Tensor) -> None:
    """Gaps between the elements keep what is there, which need not be legal."""
    memory = memory_of(tensor)
    if memory.dtype in _SIGNED:  # torch has few functions for the others
        memory = memory.view(_SIGNED[memory.dtype])
    places = torch.arange(len(memory), device=tensor.device).as_strided(tensor.shape, tensor.stride()).unique()
    memory[places] = memory[places.flip(0)]


_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def is_taken_by_torch(
    call: TorchCall, inputs: Sequence[Array], index: int, other: ChangedValues, upstream: Draw | None
) -> bool:
    """Whether torch on the CPU takes the other values, and differentiates the call where there is ``upstream``."""
    try:
        _by_torch(call, inputs, index, other, upstream)
    except Exception:  # noqa: BLE001 - whatever torch raises, it does not take them
        return False
    return True


def are_of_changed_values(
    results: Mapping[int, Array],
    call: TorchCall,
    inputs: Sequence[Array],
    index: int,
    other: ChangedValues,
    upstream: Draw | None,
) -> bool:
    """Whether results that did not follow the values of an input are those that torch on the CPU has for other ones.

    ``results`` are they, by their numbers. What is wrong for the first values, too, is no matter of what was kept: the
    comparison says so. Nothing is known where torch on the CPU has no such kernel.
    """
    try:
        plain = _by_torch(call, inputs, index, None, upstream)
        changed = _by_torch(call, inputs, index, other, upstream)
    except NO_KERNEL:
        return False
    return any(
        _differ(plain[number], changed[number]) and _is_nearly(array, plain[number])
        for number, array in results.items()
        if number < min(len(plain), len(changed))
    )


def _by_torch(
    call: TorchCall, inputs: Sequence[Array], index: int, other: ChangedValues | None, upstream: Draw | None
) -> list[Any]:
    """What torch on the CPU yields, with other values of one input; its gradients stand behind that."""
    tensors = on_cpu(inputs)
    if other is not None:
        other.put(tensors[index])
    if upstream is None:
        with torch.no_grad():
            return call.on(tensors, _CPU)()
    found = differentiated(call, lambda *given: call.on(changeable(call, given), _CPU)(), tensors, upstream)
    return [*found.leaves, None, *found.dense(tensors)]


def _is_nearly(array: Array, wanted: torch.Tensor) -> bool:
    if array.shape != tuple(wanted.shape):
        return False
    kind = np.complex128 if wanted.is_complex() else np.float64
    return not _differ(wanted, torch.from_numpy(array.astype(kind)))


def _differ(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    if one.shape != other.shape:
        return True
    if not one.numel():
        return False
    if not one.is_floating_point() and not one.is_complex():
        return bool((one != other).double().mean() > _FOLLOWS)
    kind = torch.complex128 if one.is_complex() else torch.float64
    apart = (one.to(kind) - other.to(kind)).abs().nan_to_num(0.0, 0.0, 0.0).max()
    return bool(apart > _FOLLOWS * one.to(kind).abs().nan_to_num(0.0, 0.0, 0.0).max())
