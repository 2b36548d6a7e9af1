"""What a call does to memory beside its results: inputs that it should leave alone, and results that are an input's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from optest.numerics import Array
from optest.spec import Fault, Reason
from optest.spec.calls import TensorRef
from optest.torch.calls.calling import TorchCall
from optest.torch.calls.cpu_tensors import on_cpu, to_read
from optest.torch.calls.descriptors import descriptor_of
from optest.torch.calls.overlap import have_common_memory

__all__ = ["require_left_alone", "require_memory_as_on_cpu"]

_CPU = torch.device("cpu")


def require_left_alone(
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
            if used is not tensor and not tensor.is_contiguous() and _span(used) == _span(tensor):
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


def _span(tensor: torch.Tensor) -> int:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return 1 + reach if tensor.numel() else 0


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """One row of bytes for every element from the first to the last in memory, those between them, too."""
    span = _span(tensor)
    return tensor.detach().as_strided((span,), (1,)).view(torch.uint8).reshape(span, tensor.element_size())


def _is_element(tensor: torch.Tensor) -> torch.Tensor:
    places = torch.arange(_span(tensor), device=tensor.device).as_strided(tensor.shape, tensor.stride())
    found = torch.zeros(_span(tensor), dtype=torch.bool, device=tensor.device)
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
    _require_contiguous(call, returned)
    shared = _shared(returned, given)
    if returned and _is_in_place(call) and isinstance(returned[0], torch.Tensor) and _storage(returned[0]):
        changed = call.call.args[0].index
        if _storage(returned[0]) != _storage(given[changed]):
            raise Fault(
                Reason.STATE, f"the call changes input{changed}, but returns another tensor than the one it changed"
            )
    for index in call.into:
        if given[index].numel() and all(pair[1] != index for pair in shared):
            raise Fault(
                Reason.STATE, f"the call should put a result into input{index} and return that, but returns another"
            )
    questionable = {pair for pair in shared if pair[1] not in call.changes}
    together = _shared_among(returned)
    strange = [number for number, each in enumerate(returned) if _is_strange(each)]
    if (
        not questionable
        and not together
        and not strange
        and not (_promises_views(call) and _is_copied(returned, shared))
    ):
        return
    tensors = on_cpu(inputs) if call.changes else [to_read(array) for array in inputs]
    with torch.no_grad():
        of_cpu = call.on(tensors, _CPU)()[: len(returned)]
    for number in strange:
        _require_kind_of_memory(number, returned[number], of_cpu[number] if number < len(of_cpu) else None)
    shared_on_cpu = _shared(of_cpu, tensors)
    for number, index in sorted(questionable - shared_on_cpu):
        raise Fault(
            Reason.STATE,
            f"output{number} is the memory of input{index}, but should have memory of its own: what is written into "
            "one of them changes both",
        )
    for one, other in sorted(together - _shared_among(of_cpu)):
        raise Fault(
            Reason.STATE,
            f"output{one} and output{other} are the same memory, but should have memory of their own: what is written "
            "into one of them changes both",
        )
    for number, index in sorted(shared_on_cpu - shared if _promises_views(call) else ()):
        raise Fault(
            Reason.STATE,
            f"output{number} should be a view of input{index}, but is a copy: what is written into one of them does "
            "not change the other",
        )


def _is_strange(leaf: Any) -> bool:
    """Whether a result has no memory for each of its elements."""
    return isinstance(leaf, torch.Tensor) and (leaf.layout is not torch.strided or _is_repeated(leaf))


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
            f"output{number} is a tensor of layout {found.layout}, but should be one of {of_cpu.layout}",
        )
    if _is_repeated(found) and not _is_repeated(of_cpu) and found.numel():
        raise Fault(
            Reason.STATE,
            f"several elements of output{number} are one place in memory (strides {list(found.stride())}), but each "
            "should have its own: what is written into one of them changes others",
        )


_VIEWS = frozenset(
    """
    as_strided broadcast_to chunk detach diagonal dsplit expand expand_as getitem hsplit movedim narrow permute select
    slice split split_with_sizes squeeze t tensor_split transpose unbind unflatten unfold
    unsqueeze view view_as vsplit
    """.split()  # noqa: SIM905 - words as in the other modules
)
"""What torch promises to be a view wherever it is one on the CPU; ``reshape`` and ``contiguous`` may copy."""


def _promises_views(call: TorchCall) -> bool:
    return call.call.operator in _VIEWS


def _is_copied(returned: Sequence[Any], shared: set[tuple[int, int]]) -> bool:
    """Whether some result with elements lies in the memory of no input."""
    views = {number for number, _ in shared}
    return any(isinstance(each, torch.Tensor) and each.numel() and n not in views for n, each in enumerate(returned))


def _shared_among(returned: Sequence[Any]) -> set[tuple[int, int]]:
    """Pairs of results that lie in one memory, the first of them with every other one; parts of one block are none."""
    first: list[int] = []
    found = set()
    for number, each in enumerate(returned):
        if isinstance(each, torch.Tensor) and each.layout is torch.strided and each.numel() and _storage(each):
            owner = next((one for one in first if have_common_memory(returned[one], each)), None)
            if owner is None:
                first.append(number)
            else:
                found.add((owner, number))
    return found


def _require_contiguous(call: TorchCall, returned: Sequence[Any]) -> None:
    """``contiguous()`` is about strides alone, which no comparison of values sees."""
    is_asked = call.call.operator == "contiguous" and len(call.call.args) == 1 and not call.call.kwargs
    if is_asked and isinstance(returned[0], torch.Tensor) and not returned[0].is_contiguous():
        strides = list(returned[0].stride())
        raise Fault(Reason.SHAPE, f"output0 has the strides {strides}, but should be contiguous")


def _is_in_place(call: TorchCall) -> bool:
    """Whether the call changes its first argument and returns it."""
    is_named = bool(descriptor_of(call.call.function).mutates) or call.call.kwargs.get("inplace") is True
    return is_named and bool(call.call.args) and isinstance(call.call.args[0], TensorRef)


def _shared(leaves: Sequence[Any], tensors: Sequence[torch.Tensor]) -> set[tuple[int, int]]:
    """Which results lie in the memory of which inputs; tensors without values lie in none."""
    owners = {_storage(tensor): index for index, tensor in enumerate(tensors) if tensor.numel()}
    owners.pop(0, None)
    return {
        (number, owners[_storage(leaf)])
        for number, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel() and _storage(leaf) in owners
    }


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())
