"""What was compiled is called again: a model does so, and a compiler has state that a first call does not show.

The second call gets the same values in other memory. What it yields is judged like the first answer where its bits
differ, so a result that is drawn together in another order is none the worse for that. Further calls get other values
of one input: whoever kept the values of the first call is found by that. The last one gets the first values again. No
call may change its inputs, or the results of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from optest.numerics import Array, same_bits
from optest.spec import Fault, Reason
from optest.torch.calls.call import TorchCall
from optest.torch.calls.device_under_test import DeviceUnderTest, may_draw, random_numbers_kept
from optest.torch.calls.gradients import Draw, differentiated
from optest.torch.calls.memory_effects import have_common_memory, require_inputs_unchanged, storage_address
from optest.torch.calls.refusals import NO_KERNEL, first_line
from optest.torch.fact_sheet import takes_ordered_integers
from optest.torch.tensors import as_array, copied, has_memory, is_inexact, memory_of, on_cpu

_SECOND = "called a second time with the same values"
_LAST = "called again with the first values, after calls with other ones"
_MOST_COPIED_BYTES = 1 << 26
"""Beyond that the second call gets the very tensors of the first one, but for those that it changes."""

_MOST_CHANGED_BYTES = 1 << 22
"""What a compiler keeps does not depend on sizes, and long calls are not made once more for each input."""

_REPLAYS = "cudagraphs"
"""Torch's own compilers of this name promise no result beyond the next call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCall:
    """A call of what was compiled, and what it yielded: ``leaves`` on the device, ``results`` as arrays."""

    call: TorchCall
    inputs: Sequence[Array]
    tensors: Sequence[torch.Tensor]
    """The inputs on the device."""

    again: Callable[[int], torch.Tensor]
    """Puts an input on the device once more."""

    leaves: Sequence[Any]
    results: Sequence[Array]
    target: DeviceUnderTest
    compiled: Callable[[Sequence[torch.Tensor]], list[Any]]
    upstream: Draw | None = None
    """What its gradients got from above; None where none were asked for."""


def require_later_calls_right(first: FirstCall) -> None:
    """Call what was compiled again, with the same values, with other ones of each input in turn, and with the first.

    The target keeps what a call with the first values yields where that has other bits than the first results.

    Raises:
        Fault: RAISED if a later call raises where torch on the CPU does not, STATE if it writes into the results of the
            first one, draws random numbers or yields results of other values, since a compiler kept the ones that it
            first saw; INPUT_MUTATED and OUT_OF_BOUNDS if it writes into its inputs.
    """
    others = _in_other_memory(first)
    given = first.call.changeable(others)
    who = f"what {first.target.compiler} compiled"
    with random_numbers_kept(who, unless=partial(may_draw, first.call, first.tensors)):
        leaves = _called(given, _SECOND, first)
    _require_inputs_unchanged(first, others, given, first.again, _SECOND)
    if not _is_replayed(first):
        _require_results_kept(first, leaves, [*first.tensors, *given])
    _keep_if_different(first, first.results, leaves, _SECOND)
    if _bytes_of(first.tensors) <= _MOST_CHANGED_BYTES:
        # Each result has to follow the values of each input, and each gradient too, where there are some. Torch on the
        # CPU computes only where one does not. Nothing is known of inputs that are empty or zero.
        # Calls below might write into the memory of the first results.
        kept = [np.array(array) for array in first.results]
        for index in dict.fromkeys(first.call.call.tensors()):
            _require_followed(index, first, kept)
            _require_results_as_they_were(first, kept)
        others = _in_other_memory(first)
        given = first.call.changeable(others)
        leaves = _called(given, _LAST, first)
        _require_inputs_unchanged(first, others, given, first.again, _LAST)
        _require_results_as_they_were(first, kept)
        _keep_if_different(first, kept, leaves, _LAST)


def require_values_followed(
    call: Callable[..., list[Any]],
    tensors: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    target: DeviceUnderTest,
    *,
    reverses: bool,
) -> None:
    """Call what was compiled of ``call``, which yielded ``results``, once more with the elements of its inputs in the
    reverse order, and half of their values; integers stay without ``reverses``.

    Raises:
        Fault: STATE if it yields the same again where torch does not, or writes into the results.
    """
    others = [copied(each) for each in tensors]
    for each in others:
        if each.numel() and (is_inexact(each) or reverses):
            _reverse(each)  # a quotient, a comparison or a sign does not follow the half of all
        if each.numel() and is_inexact(each):
            _halve(each)
    try:
        plain, changed = ([leaf.cpu() for leaf in call(*given)] for given in (tensors, others))
    except Exception:  # noqa: BLE001 - whatever torch raises, it does not take them
        return
    who, kept = f"what {target.compiler} compiled", [np.array(as_array(each)) for each in results]
    again = [as_array(each) for each in target.compiled(others)] if target.compiled else []
    if not same_bits(kept, [as_array(each) for each in results]):
        raise Fault(Reason.STATE, f"the results of the first call are written by later calls of {who}")
    for one, two, expected, other in zip(kept, again, plain, changed, strict=False):
        if same_bits([one], [two]) and _differ(expected, other) and _is_nearly(one, expected):
            how = "with other values of its inputs"
            raise Fault(Reason.STATE, f"{how}, {who} yields what it yielded before: it kept the first results")


def _require_followed(index: int, first: FirstCall, kept: Sequence[Array]) -> None:
    """Call with other values of one input; nothing is asked where nobody knows which are legal."""
    changed = changed_values(first.call, index, first.tensors[index])
    if changed is None:
        return
    others = _in_other_memory(first)
    changed.put(others[index])
    before = [copied(each) for each in others]
    given = first.call.changeable(others)
    found = _called_with_changed(given, index, changed, first)
    if found is None:
        return
    _require_inputs_unchanged(first, others, given, lambda number: before[number], f"with {changed.how}")
    unchanged = {
        number: one
        for number, (one, two) in enumerate(zip(kept, found, strict=False))
        if same_bits([one], [two])
        and not (first.upstream is not None and one.dtype == np.bool_)  # which gradients there are
    }
    if unchanged and _are_of_changed_values(unchanged, first, index, changed):
        raise Fault(
            Reason.STATE,
            f"with {changed.how}, what {first.target.compiler} compiled yields what it yielded before: it kept the "
            "values that it was compiled with",
            details={"input": index},
        )


def _called_with_changed(
    given: Sequence[torch.Tensor], index: int, changed: ChangedValues, first: FirstCall
) -> list[Array] | None:
    """What the call yields; None where it refuses values that torch on the CPU refuses, too."""
    try:
        return [as_array(leaf) for leaf in first.compiled(given)]
    except Exception as error:
        if not _is_taken_by_torch(first, index, changed):
            return None
        raise Fault(
            Reason.RAISED,
            f"with {changed.how}, what {first.target.compiler} compiled raises {type(error).__name__}: "
            f"{first_line(error)}; torch does not",
            details={"input": index},
        ) from error


def _keep_if_different(first: FirstCall, expected: Sequence[Array], leaves: Sequence[Any], how: str) -> None:
    found = [as_array(leaf) for leaf in leaves]
    if not same_bits(expected, found):
        first.target.further.append((how, found))


def _is_replayed(first: FirstCall) -> bool:
    return _REPLAYS in str(first.target.compiler)


def _require_results_as_they_were(first: FirstCall, kept: Sequence[Array]) -> None:
    if not _is_replayed(first) and not same_bits(kept, first.results):
        message = f"the results of the first call are written by later calls of what {first.target.compiler} compiled"
        raise Fault(Reason.STATE, message)


def _called(given: Sequence[torch.Tensor], how: str, first: FirstCall) -> list[Any]:
    try:
        leaves = first.compiled(given)
        first.target.synchronize()
    except Exception as error:
        message = f"{how}, what {first.target.compiler} compiled raises {type(error).__name__}: {first_line(error)}"
        raise Fault(Reason.RAISED, message) from error
    return leaves


def _require_inputs_unchanged(
    first: FirstCall,
    placed: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor],
    again: Callable[[int], torch.Tensor],
    how: str,
) -> None:
    """Look at the inputs of another call than the first one."""
    try:
        require_inputs_unchanged(first.call, placed, given, again)
    except Fault as fault:
        raise Fault(fault.reason, f"{how}: {fault.message}", details=fault.details) from None


def _bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(each.untyped_storage().nbytes() for each in tensors)


def _in_other_memory(first: FirstCall) -> Sequence[torch.Tensor]:
    if _bytes_of(first.tensors) > _MOST_COPIED_BYTES:
        return first.tensors
    if first.target.device.type != "cpu":
        return [first.again(index) for index in range(len(first.tensors))]
    return [copied(each) for each in first.tensors]


def _require_results_kept(first: FirstCall, leaves: Sequence[Any], inputs: Sequence[torch.Tensor]) -> None:
    owned = {storage_address(each) for each in inputs} | {0}
    for each in leaves:
        if not has_memory(each) or storage_address(each) in owned:
            continue
        for number, kept in enumerate(first.leaves):
            if has_memory(kept) and have_common_memory(kept, each):
                raise Fault(
                    Reason.STATE,
                    f"output{number} of the first call is written by the second call of what {first.target.compiler} "
                    "compiled: both results are the same memory",
                )


# Other values for an input of what was compiled, and whether torch's own results follow them.
#
# Floating and complex inputs get half their values: what is legal stays so, and most results change. Integers and bool
# get their elements in the reverse order: positions stay within what they index, and as many elements are true.


# A result follows its inputs if it changes by this share of the largest one, or so many of its integers change. It is a
# choice: one in a hundred is more than a rounding of bfloat16 (1/256), and less than what half the values change of
# most functions. Of a result that changes less, nothing is said.
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
    if is_inexact(tensor):
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


def _is_taken_by_torch(first: FirstCall, index: int, other: ChangedValues) -> bool:
    """Whether torch on the CPU takes the other values, and differentiates the call where gradients are asked for."""
    try:
        _by_torch(first, index, other)
    except Exception:  # noqa: BLE001 - whatever torch raises, it does not take them
        return False
    return True


def _are_of_changed_values(results: Mapping[int, Array], first: FirstCall, index: int, other: ChangedValues) -> bool:
    """Whether results that did not follow the values of an input are those that torch on the CPU has for other ones.

    ``results`` are they, by their numbers. What is wrong for the first values, too, is no matter of what was kept: the
    comparison says so. Nothing is known where torch on the CPU has no such kernel.
    """
    try:
        plain, changed = _by_torch(first, index, None), _by_torch(first, index, other)
    except NO_KERNEL:
        return False
    return any(
        _differ(plain[number], changed[number]) and _is_nearly(array, plain[number])
        for number, array in results.items()
        if number < min(len(plain), len(changed))
    )


def _by_torch(first: FirstCall, index: int, other: ChangedValues | None) -> list[Any]:
    """What torch on the CPU yields, with other values of one input; its gradients stand behind that."""
    call, tensors = first.call, on_cpu(first.inputs)
    if other is not None:
        other.put(tensors[index])
    if first.upstream is None:
        with torch.no_grad():
            return call.on(tensors)()
    return differentiated(call, call.on_copies(), tensors, first.upstream).outputs(tensors)


def _is_nearly(array: Array, expected: torch.Tensor) -> bool:
    if array.shape != tuple(expected.shape):
        return False
    kind = np.complex128 if expected.is_complex() else np.float64
    return not _differ(expected, torch.from_numpy(array.astype(kind)))


def _differ(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    if one.shape != other.shape:
        return True
    if not one.numel():
        return False
    if not is_inexact(one):
        return bool((one != other).double().mean() > _FOLLOWS)
    if not torch.equal(one.isfinite(), other.isfinite()):
        return True  # what holds NaN in place of numbers is no result that was kept
    kind = torch.complex128 if one.is_complex() else torch.float64
    apart = (one.to(kind) - other.to(kind)).abs().nan_to_num(0.0, 0.0, 0.0).max()
    return bool(apart > _FOLLOWS * one.to(kind).abs().nan_to_num(0.0, 0.0, 0.0).max())
