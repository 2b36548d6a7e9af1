"""Memory effects of a call: unexpected writes into inputs, memory shared by results, and strides of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
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
from optest.torch.tensors import cpu_copies, has_memory, memory_of, span_of, to_read


def require_inputs_unchanged(
    call: TorchCall,
    placed: Sequence[torch.Tensor],
    passed: Sequence[torch.Tensor],
    reload: Callable[[int], torch.Tensor],
) -> None:
    """Check after the call that its inputs hold their original bytes, and the gaps between elements theirs.

    ``placed`` are the inputs, ``passed`` the tensors that the call got: copies of the inputs that it changes.
    ``reload`` returns an input's original values on the device; if that is the memory of ``placed``, skip the check.

    Raises:
        Fault: INPUT_MUTATED for an input that the call should not change, OUT_OF_BOUNDS for the memory between the
            elements of any.
    """
    for index, (tensor, used) in enumerate(zip(placed, passed, strict=True)):
        if index in call.changes:
            if used is not tensor and not tensor.is_contiguous() and span_of(used) == span_of(tensor):
                _require_same_gaps(index, _bytes(tensor), _bytes(used), _is_element(tensor))
            continue
        before = reload(index)
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
    """Return one row of bytes for every element from the first to the last in memory, including gaps."""
    return memory_of(tensor.detach()).view(torch.uint8).reshape(-1, tensor.element_size())


def _is_element(tensor: torch.Tensor) -> torch.Tensor:
    """Return a mask over the rows of :func:`_bytes`: True for elements, False for gaps."""
    indices = torch.arange(span_of(tensor), device=tensor.device).as_strided(tensor.shape, tensor.stride())
    mask = torch.zeros(span_of(tensor), dtype=torch.bool, device=tensor.device)
    mask[indices.reshape(-1)] = True
    return mask


def require_memory_as_on_cpu(
    call: TorchCall, inputs: Sequence[Array], passed: Sequence[torch.Tensor], leaves: Sequence[Any]
) -> None:
    """Check that results share memory with the inputs ``passed`` and with each other exactly as on the CPU.

    Raises:
        Fault: STATE if an in-place call returns another tensor than it changed, a result shares memory with an input
            or another result, is a copy where torch makes a view, or repeats an element in memory. SHAPE if the result
            of ``contiguous`` is not contiguous, or a layout differs, for example sparse for strided.
    """
    returned = leaves[: len(leaves) - len(call.mutates)]
    # contiguous() only changes strides, which no comparison of values sees.
    is_plain = facts_of(call.call.function).makes_contiguous and len(call.call.args) == 1 and not call.call.kwargs
    if is_plain and isinstance(returned[0], torch.Tensor) and not returned[0].is_contiguous():
        strides = list(returned[0].stride())
        raise Fault(Reason.SHAPE, f"output0 has the strides {strides}, expected contiguous")
    with_inputs, with_results = _shared(returned, passed), _shared_among(returned)
    # An in-place call returns the tensor that it changed, and a call with ``out=`` that tensor.
    is_named = bool(descriptor_of(call.call.function).mutates) or call.call.kwargs.get("inplace") is True
    is_in_place = is_named and bool(call.call.args) and isinstance(call.call.args[0], TensorRef)
    first = returned[0] if returned and is_in_place else None
    if isinstance(first, torch.Tensor) and storage_address(first):
        changed = call.call.args[0].index
        if storage_address(first) != storage_address(passed[changed]):
            message = f"the call changes input{changed}, but returns another tensor than the one it changed"
            raise Fault(Reason.STATE, message)
    for index in call.into:
        if passed[index].numel() and all(pair[1] != index for pair in with_inputs):
            message = f"the call returns another tensor than input{index}, expected the one that out= names"
            raise Fault(Reason.STATE, message)
    suspicious = {pair for pair in with_inputs if pair[1] not in call.changes}
    results = [(number, leaf) for number, leaf in enumerate(returned) if isinstance(leaf, torch.Tensor)]
    unusual = [n for n, result in results if result.layout is not torch.strided or _is_repeated(result)]
    promises_views = facts_of(call.call.function).is_view
    views = {number for number, _ in with_inputs}
    is_copied = promises_views and any(result.numel() and number not in views for number, result in results)
    # Execute the call on the CPU only if something has to be compared with it.
    if not (suspicious or with_results or unusual or is_copied):
        return
    tensors = cpu_copies(inputs) if call.changes else [to_read(array) for array in inputs]
    with torch.no_grad():
        expected = call.on(tensors)()[: len(returned)]
    for number in unusual:
        _require_kind_of_memory(number, returned[number], expected[number] if number < len(expected) else None)
    with_inputs_on_cpu = _shared(expected, tensors)
    for number, index in sorted(suspicious - with_inputs_on_cpu):
        raise _shared_memory(f"output{number} shares memory with input{index}")
    for first_number, second_number in sorted(with_results - _shared_among(expected)):
        raise _shared_memory(f"output{first_number} and output{second_number} share memory")
    for number, index in sorted(with_inputs_on_cpu - with_inputs if promises_views else ()):
        message = f"output{number} is a copy, expected a view of input{index}: a write into one must change the other"
        raise Fault(Reason.STATE, message, details={"view_of": f"input{index}"})


def _shared_memory(statement: str) -> Fault:
    return Fault(Reason.STATE, f"{statement}, expected separate memory: a write into one changes the other")


def _is_repeated(tensor: torch.Tensor) -> bool:
    """Return whether several elements have one address, by a stride of 0."""
    strides = tensor.stride() if tensor.layout is torch.strided else ()
    return 0 in strides and any(not stride and size > 1 for size, stride in zip(tensor.shape, strides, strict=True))


def _require_kind_of_memory(number: int, result: torch.Tensor, expected: Any) -> None:
    """Raise Fault if the layout differs from the CPU's, or elements share an address that do not on the CPU."""
    if not isinstance(expected, torch.Tensor):
        return  # the comparison of values reports that
    if result.layout is not expected.layout:
        raise Fault(Reason.SHAPE, f"output{number} has the layout {result.layout}, expected {expected.layout}")
    if _is_repeated(result) and not _is_repeated(expected) and result.numel():
        raise Fault(
            Reason.STATE,
            f"several elements of output{number} share one address (strides {list(result.stride())}), expected "
            "separate ones: a write into one changes others",
        )


def _shared_among(returned: Sequence[Any]) -> set[tuple[int, int]]:
    """Return pairs (earlier, later) of results that share bytes, with the first owner of each memory."""
    first: list[int] = []
    pairs = set()
    for number, leaf in enumerate(returned):
        if has_memory(leaf) and storage_address(leaf):
            owner = next((earlier for earlier in first if have_common_memory(returned[earlier], leaf)), None)
            if owner is None:
                first.append(number)
            else:
                pairs.add((owner, number))
    return pairs


def _shared(leaves: Sequence[Any], tensors: Sequence[torch.Tensor]) -> set[tuple[int, int]]:
    """Return pairs (result, input) that share a storage; tensors without memory share none."""
    owners = {storage_address(tensor): index for index, tensor in enumerate(tensors) if tensor.numel()}
    owners.pop(0, None)
    return {
        (number, owners[storage_address(leaf)])
        for number, leaf in enumerate(leaves)
        if has_memory(leaf) and storage_address(leaf) in owners
    }


def storage_address(tensor: torch.Tensor) -> int:
    """Return the address of the tensor's storage; 0 if it has no memory."""
    return int(tensor.untyped_storage().data_ptr())


_MAX_COMPARED_BYTES = 1 << 20


def have_common_memory(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether a byte belongs to elements of both; above 1 MiB in all, whether their address ranges overlap."""
    start, end = _address_range(first)
    second_start, second_end = _address_range(second)
    if end <= second_start or second_end <= start:
        return False
    if first.nbytes + second.nbytes > _MAX_COMPARED_BYTES:
        return True
    return bool(np.isin(_addresses(first), _addresses(second)).any())


def _address_range(tensor: torch.Tensor) -> tuple[int, int]:
    return tensor.data_ptr(), tensor.data_ptr() + span_of(tensor) * tensor.element_size()


def _addresses(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    width = tensor.element_size()
    addresses: np.ndarray[Any, Any] = tensor.data_ptr() + np.arange(width)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        addresses = np.add.outer(addresses, np.arange(size) * stride * width).ravel()
    return addresses


# No value depends on the strides of a result, but the next view in a model may, and so does speed. torch guarantees no
# strides in general, and a compiler may choose others: so they are noted, and a case fails only on request.

# Shape and strides of each result, 0 for dimensions of size 1; None for results of at most one element.
_Strides = list[tuple[tuple[int, ...], tuple[int, ...]] | None]


def compare_strides(
    call: TorchCall, inputs: Sequence[Array], leaves: Sequence[Any], target: DeviceUnderTest, *, must_be_same: bool
) -> None:
    """Add a note to ``target`` for each result whose strides differ from those of torch on the CPU.

    Raises:
        Fault: SHAPE instead of the notes, with ``must_be_same``.
    """
    strides = _strides_of(leaves)
    if all(entry is None for entry in strides):
        return
    with torch.no_grad():
        # Execute the call only if inference without values has other strides.
        with suppress(*NO_KERNEL):
            if strides == _strides_of(call.without_values([to_read(array) for array in inputs])):
                return
        expected = _strides_of(call.on(cpu_copies(inputs))())
    differences = [
        f"output{number} has the strides {list(got[1])}, torch on the CPU gives it {list(want[1])}"
        for number, (got, want) in enumerate(zip(strides, expected, strict=False))
        if got is not None and want is not None and got[0] == want[0] and got[1] != want[1]
    ]
    if differences and must_be_same:
        raise Fault(Reason.SHAPE, "; ".join(differences))
    target.notes += [Check(name=STRIDES, state=CheckState.NOTE, detail=text) for text in differences]


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
