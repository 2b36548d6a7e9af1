"""What a call does to memory: inputs that it leaves alone or not, whose memory its results are, and their strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from optest.numerics import Array
from optest.spec import Check, CheckState, Fault, Reason
from optest.spec.calls import TensorRef
from optest.torch.calls.call import TorchCall
from optest.torch.calls.descriptors import descriptor_of
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.calls.refusals import NO_KERNEL
from optest.torch.cases import STRIDES
from optest.torch.fact_sheet import facts_of
from optest.torch.tensors import has_memory, memory_of, on_cpu, span_of, to_read


def require_inputs_unchanged(
    call: TorchCall,
    placed: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor],
    again: Callable[[int], torch.Tensor],
) -> None:
    """Look at the inputs after the call.

    ``placed`` are the inputs, ``given`` what the call got: copies where it changes them. ``again`` puts an input on the
    device once more; where that is the very memory of the first one, its owner sees to it.

    Raises:
        Fault: INPUT_MUTATED for an input that the call should not change, OUT_OF_BOUNDS for the memory between the
            elements of any.
    """
    for index, (tensor, used) in enumerate(zip(placed, given, strict=True)):
        if index in call.changes:
            if used is not tensor and not tensor.is_contiguous() and span_of(used) == span_of(tensor):
                _require_same_gaps(index, _bytes(tensor), _bytes(used), _is_element(tensor))
            continue
        before = again(index)
        if before.data_ptr() == tensor.data_ptr():
            continue
        was, now, is_element = _bytes(before), _bytes(tensor), _is_element(tensor)
        if not torch.equal(was[is_element], now[is_element]):
            raise Fault(Reason.INPUT_MUTATED, f"input{index} was changed on the device", details={"input": index})
        _require_same_gaps(index, was, now, is_element)


def _require_same_gaps(index: int, was: torch.Tensor, now: torch.Tensor, is_element: torch.Tensor) -> None:
    if not torch.equal(was[~is_element], now[~is_element]):
        message = f"memory between the elements of input{index} was written"
        raise Fault(Reason.OUT_OF_BOUNDS, message, details={"input": index})


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """One row of bytes for every element from the first to the last in memory, those between them, too."""
    return memory_of(tensor.detach()).view(torch.uint8).reshape(-1, tensor.element_size())


def _is_element(tensor: torch.Tensor) -> torch.Tensor:
    places = torch.arange(span_of(tensor), device=tensor.device).as_strided(tensor.shape, tensor.stride())
    found = torch.zeros(span_of(tensor), dtype=torch.bool, device=tensor.device)
    found[places.reshape(-1)] = True
    return found


def require_memory_as_on_cpu(
    call: TorchCall, inputs: Sequence[Array], given: Sequence[torch.Tensor], leaves: Sequence[Any]
) -> None:
    """Look at whose memory the results are; torch on the CPU is asked where one of them is an input's.

    Raises:
        Fault: STATE for a call in place that returns another tensor than the one it changed, and for a result that is
            an input's or another result's memory though it should have its own, or a copy of an input though it should
            be a view, or elements of a result that share a place: who changes one of them later changes both. SHAPE
            for a result of ``contiguous`` that is not, and for another layout, as sparse in place of strided.
    """
    returned = leaves[: len(leaves) - len(call.mutates)]
    # contiguous() is about strides alone, which no comparison of values sees.
    is_plain = facts_of(call.call.function).makes_contiguous and len(call.call.args) == 1 and not call.call.kwargs
    if is_plain and isinstance(returned[0], torch.Tensor) and not returned[0].is_contiguous():
        strides = list(returned[0].stride())
        raise Fault(Reason.SHAPE, f"output0 has the strides {strides}, expected contiguous")
    with_inputs, with_results = _shared(returned, given), _shared_among(returned)
    # A call in place returns the tensor that it changed, and a call with ``out=`` the one that it was given.
    is_named = bool(descriptor_of(call.call.function).mutates) or call.call.kwargs.get("inplace") is True
    is_in_place = is_named and bool(call.call.args) and isinstance(call.call.args[0], TensorRef)
    first = returned[0] if returned and is_in_place else None
    if isinstance(first, torch.Tensor) and storage_address(first):
        changed = call.call.args[0].index
        if storage_address(first) != storage_address(given[changed]):
            message = f"the call changes input{changed}, but returns another tensor than the one it changed"
            raise Fault(Reason.STATE, message)
    for index in call.into:
        if given[index].numel() and all(pair[1] != index for pair in with_inputs):
            message = f"the call should put a result into input{index} and return that, but returns another"
            raise Fault(Reason.STATE, message)
    questionable = {pair for pair in with_inputs if pair[1] not in call.changes}
    # Results without memory for each of their elements.
    tensors_returned = [(number, each) for number, each in enumerate(returned) if isinstance(each, torch.Tensor)]
    strange = [n for n, each in tensors_returned if each.layout is not torch.strided or _is_repeated(each)]
    promises_views = facts_of(call.call.function).is_view
    views = {number for number, _ in with_inputs}
    is_copied = promises_views and any(each.numel() and number not in views for number, each in tensors_returned)
    if not (questionable or with_results or strange or is_copied):
        return
    tensors = on_cpu(inputs) if call.changes else [to_read(array) for array in inputs]
    with torch.no_grad():
        of_cpu = call.on(tensors)()[: len(returned)]
    for number in strange:
        _require_kind_of_memory(number, returned[number], of_cpu[number] if number < len(of_cpu) else None)
    with_inputs_on_cpu = _shared(of_cpu, tensors)
    for number, index in sorted(questionable - with_inputs_on_cpu):
        raise _has_foreign_memory(f"output{number} is the memory of input{index}", "its")
    for one, other in sorted(with_results - _shared_among(of_cpu)):
        raise _has_foreign_memory(f"output{one} and output{other} are the same memory", "their")
    for number, index in sorted(with_inputs_on_cpu - with_inputs if promises_views else ()):
        message = f"output{number} should be a view of input{index}, but is a copy: what is written into one of them "
        raise Fault(Reason.STATE, f"{message}does not change the other", details={"view_of": f"input{index}"})


def _has_foreign_memory(what: str, whose: str) -> Fault:
    message = f"{what}, expected memory of {whose} own: what is written into one of them changes both"
    return Fault(Reason.STATE, message)


def _is_repeated(tensor: torch.Tensor) -> bool:
    """Whether several elements are one place in memory, by a stride of 0."""
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    return 0 in strides and any(not stride and size > 1 for size, stride in zip(tensor.shape, strides, strict=True))


def _require_kind_of_memory(number: int, found: torch.Tensor, of_cpu: Any) -> None:
    if not isinstance(of_cpu, torch.Tensor):
        return  # which the comparison of values tells
    if found.layout is not of_cpu.layout:
        raise Fault(
            Reason.SHAPE,
            f"output{number} is a tensor of layout {found.layout}, expected one of {of_cpu.layout}",
        )
    if _is_repeated(found) and not _is_repeated(of_cpu) and found.numel():
        raise Fault(
            Reason.STATE,
            f"several elements of output{number} are one place in memory (strides {list(found.stride())}), but each "
            "should have its own: what is written into one of them changes others",
        )


def _shared_among(returned: Sequence[Any]) -> set[tuple[int, int]]:
    """Pairs of results that lie in one memory, the first of them with every other one; parts of one block are none."""
    first: list[int] = []
    found = set()
    for number, each in enumerate(returned):
        if has_memory(each) and storage_address(each):
            owner = next((one for one in first if have_common_memory(returned[one], each)), None)
            if owner is None:
                first.append(number)
            else:
                found.add((owner, number))
    return found


def _shared(leaves: Sequence[Any], tensors: Sequence[torch.Tensor]) -> set[tuple[int, int]]:
    """Pairs of a result and the input in whose memory it lies; tensors without values lie in none."""
    owners = {storage_address(tensor): index for index, tensor in enumerate(tensors) if tensor.numel()}
    owners.pop(0, None)
    return {
        (number, owners[storage_address(leaf)])
        for number, leaf in enumerate(leaves)
        if has_memory(leaf) and storage_address(leaf) in owners
    }


def storage_address(tensor: torch.Tensor) -> int:
    """Where its storage begins; 0 of a tensor without memory."""
    return int(tensor.untyped_storage().data_ptr())


_MOST_LOOKED_AT = 1 << 20


def have_common_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a byte belongs to both; large tensors that lie among each other are taken for such."""
    first, last, another, last_of_other = *_bytes_from_to(one), *_bytes_from_to(other)
    if last <= another or last_of_other <= first:
        return False
    if one.nbytes + other.nbytes > _MOST_LOOKED_AT:
        return True
    return bool(np.isin(_addresses(one), _addresses(other)).any())


def _bytes_from_to(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + span_of(tensor) * tensor.element_size()


def _addresses(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    width = tensor.element_size()
    places: np.ndarray[Any, Any] = tensor.data_ptr() + np.arange(width)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = np.add.outer(places, np.arange(size) * stride * width).ravel()
    return places


# The strides of results: no value depends on them, but the view that a model takes next may, and so does its speed.
#
# Torch promises no strides of an operator in general, and a compiler may choose others. So they are told, and a case
# fails by them only where it is asked to.

_Strides = list[tuple[tuple[int, ...], tuple[int, ...]] | None]
"""Of each result its shape, and its strides, 0 where there is one element alone; None where none leads anywhere."""


def compare_strides(
    call: TorchCall, inputs: Sequence[Array], leaves: Sequence[Any], target: DeviceUnderTest, *, must_be_same: bool
) -> None:
    """Note the results whose strides are not those of torch on the CPU.

    Torch without values is asked first, which computes nothing; the CPU only where that has others.

    Raises:
        Fault: SHAPE in place of the note with ``must_be_same``.
    """
    found = _strides_of(leaves)
    if all(each is None for each in found) or found == _without_values(call, inputs):
        return
    with torch.no_grad():
        of_cpu = _strides_of(call.on(on_cpu(inputs))())
    differences = [
        f"output{number} has the strides {list(one[1])}, torch on the CPU gives it {list(other[1])}"
        for number, (one, other) in enumerate(zip(found, of_cpu, strict=False))
        if one is not None and other is not None and one[0] == other[0] and one[1] != other[1]
    ]
    if differences and must_be_same:
        raise Fault(Reason.SHAPE, "; ".join(differences))
    target.notes += [Check(name=STRIDES, state=CheckState.NOTE, detail=each) for each in differences]


def _without_values(call: TorchCall, inputs: Sequence[Array]) -> _Strides | None:
    try:
        with torch.no_grad():
            return _strides_of(call.without_values([to_read(each) for each in inputs]))
    except NO_KERNEL:
        return None


def _strides_of(leaves: Sequence[Any]) -> _Strides:
    return [
        (
            tuple(leaf.shape),
            tuple(0 if size == 1 else stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True)),
        )
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel() > 1
        else None
        for leaf in leaves
    ]
