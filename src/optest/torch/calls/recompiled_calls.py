"""Call compiled code again, as a model does: a compiler may keep state that a first call does not reveal.

The second call gets the same values in other memory; results with other bits are compared like the first ones, since a
sum may be computed in another order. Further calls get other values of one input, which reveals kept values. The last
one gets the first values again. No call may change its inputs or the results of the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from optest.numerics import Array, same_bits
from optest.spec import Fault, Reason
from optest.torch.calls.call import TorchCall
from optest.torch.calls.device_under_test import DeviceUnderTest, may_draw, random_numbers_kept
from optest.torch.calls.gradients import Draw, differentiate
from optest.torch.calls.memory_effects import have_common_memory, require_inputs_unchanged, storage_address
from optest.torch.calls.refusals import NO_KERNEL, first_line
from optest.torch.fact_sheet import takes_ordered_integers
from optest.torch.tensors import as_array, cpu_copies, has_memory, is_inexact, memory_of, strided_copy

_SECOND = "called a second time with the same values"
_LAST = "called again with the first values, after calls with other ones"
# Above it the second call gets the tensors of the first one, except those that it changes.
_MAX_COPIED_BYTES = 1 << 26
# State of a compiler does not depend on sizes, so long calls are not repeated for each input.
_MAX_CHANGED_BYTES = 1 << 22
# Compilers of this name in torch keep no result beyond the next call.
_REPLAYS = "cudagraphs"
# A result follows its inputs if it changes by this share of its largest element, or this share of its integers change.
# It is a choice: 1 % is more than a rounding of bfloat16 (1/256), and less than half the input values change in most
# functions. A result that changes less is inconclusive.
_FOLLOWS = 0.01
# torch has few functions for unsigned integers.
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCall:
    """First call of compiled code: ``inputs``, the same as ``tensors`` on the device, and its results.

    ``leaves`` are the results on the device, ``results`` the same as arrays. ``reload`` copies an input to the device
    again. ``upstream`` are the upstream gradients; None if no gradients are tested.
    """

    call: TorchCall
    inputs: Sequence[Array]
    tensors: Sequence[torch.Tensor]
    reload: Callable[[int], torch.Tensor]
    leaves: Sequence[Any]
    results: Sequence[Array]
    target: DeviceUnderTest
    compiled: Callable[[Sequence[torch.Tensor]], list[Any]]
    upstream: Draw | None = None

    @property
    def code(self) -> str:
        """The code under test, as messages name it."""
        return f"the code compiled by {self.target.compiler}"

    @property
    def is_replayed(self) -> bool:
        """Return whether results may be overwritten by the next call."""
        return _REPLAYS in str(self.target.compiler)


def require_later_calls_right(first: FirstCall) -> None:
    """Call compiled code again with the same values, with other values of one input at a time, and with the first.

    Append results for the first values whose bits differ to ``first.target.further``.

    Raises:
        Fault: RAISED if a later call raises and torch on the CPU does not; STATE if it writes into the first results,
            draws random numbers, or returns results of the first values for other ones; INPUT_MUTATED and
            OUT_OF_BOUNDS if it writes into its inputs.
    """
    with random_numbers_kept(first.code, unless=partial(may_draw, first.call, first.tensors)):
        leaves, passed = _call_again(first, _SECOND)
    if not first.is_replayed:
        _require_separate_results(first, leaves, [*first.tensors, *passed])
    _keep_if_different(first, first.results, leaves, _SECOND)
    if _bytes_of(first.tensors) <= _MAX_CHANGED_BYTES:
        # Copies, since later calls might write into the memory of the first results.
        kept = [np.array(array) for array in first.results]
        for index in dict.fromkeys(first.call.call.tensors()):
            _require_followed(index, first, kept)
            _require_results_unchanged(first, kept)
        leaves, _ = _call_again(first, _LAST)
        _require_results_unchanged(first, kept)
        _keep_if_different(first, kept, leaves, _LAST)


def _call_again(first: FirstCall, how: str) -> tuple[list[Any], list[torch.Tensor]]:
    """Call compiled code with the first values in other memory; return its results and the tensors that it got.

    Raises:
        Fault: RAISED if it raises, INPUT_MUTATED or OUT_OF_BOUNDS if it writes into its inputs.
    """
    tensors = _in_other_memory(first)
    passed = first.call.changeable(tensors)
    try:
        leaves = first.compiled(passed)
        first.target.synchronize()
    except Exception as error:
        message = f"{how}, {first.code} raises {type(error).__name__}: {first_line(error)}"
        raise Fault(Reason.RAISED, message) from error
    _require_inputs_unchanged(first, tensors, passed, first.reload, how)
    return leaves, passed


def require_values_followed(
    call: Callable[..., list[Any]],
    tensors: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    target: DeviceUnderTest,
    *,
    reverses: bool,
) -> None:
    """Repeat a compiled ``call`` with its inputs reversed and halved, and check that its ``results`` follow.

    Without ``reverses``, integer inputs keep their values.

    Raises:
        Fault: STATE if a result stays the same although torch's changes, or the first results are overwritten.
    """
    others = [strided_copy(tensor) for tensor in tensors]
    for tensor in others:
        if tensor.numel() and (is_inexact(tensor) or reverses):
            _reverse(tensor)  # quotients, comparisons and signs do not change if all inputs are halved
        if tensor.numel() and is_inexact(tensor):
            _halve(tensor)
    try:
        plain, changed = ([leaf.cpu() for leaf in call(*args)] for args in (tensors, others))
    except Exception:  # noqa: BLE001 - torch refuses these values, with any exception
        return
    code, kept = f"the code compiled by {target.compiler}", [np.array(as_array(result)) for result in results]
    repeated = [as_array(leaf) for leaf in target.compiled(others)] if target.compiled else []
    if not same_bits(kept, [as_array(result) for result in results]):
        raise Fault(Reason.STATE, f"a later call of {code} overwrites the results of its first call")
    for before, after, expected, followed in zip(kept, repeated, plain, changed, strict=False):
        if same_bits([before], [after]) and _should_follow(before, expected, followed):
            message = f"with other values of its inputs, {code} returns its first results, which it kept"
            raise Fault(Reason.STATE, message)


def _require_followed(index: int, first: FirstCall, kept: Sequence[Array]) -> None:
    """Raise Fault if a result does not follow other values of an input; skip inputs whose legal values are unknown.

    torch on the CPU is executed only if a result has not changed, or the call raises: RAISED if torch does not.
    """
    condition = other_values(first.call, index, first.tensors[index])
    if condition is None:
        return
    how, change = condition
    others = _in_other_memory(first)
    change(others[index])
    before = [strided_copy(tensor) for tensor in others]
    passed = first.call.changeable(others)
    try:
        results = [as_array(leaf) for leaf in first.compiled(passed)]
    except Exception as error:
        try:
            _results_on_cpu(first, index, change)
        except Exception:  # noqa: BLE001 - torch refuses these values, with any exception
            return
        error_text = f"{type(error).__name__}: {first_line(error)}"
        message = f"{how}, {first.code} raises {error_text}; torch on the CPU does not"
        raise Fault(Reason.RAISED, message, details={"input": index}) from error
    _require_inputs_unchanged(first, others, passed, lambda number: before[number], how)
    unchanged = {
        number: old
        for number, (old, new) in enumerate(zip(kept, results, strict=False))
        # The mask of existing gradients does not depend on values.
        if same_bits([old], [new]) and not (first.upstream is not None and old.dtype == np.bool_)
    }
    if not unchanged:
        return
    try:
        plain, followed = (_results_on_cpu(first, index, x) for x in (None, change))
    except NO_KERNEL:  # torch on the CPU has no such kernel
        return
    most = min(len(plain), len(followed))
    if any(n < most and _should_follow(old, plain[n], followed[n]) for n, old in unchanged.items()):
        message = f"{how}, {first.code} returns its first results: it kept the values of compilation"
        raise Fault(Reason.STATE, message, details={"input": index})


def _keep_if_different(first: FirstCall, expected: Sequence[Array], leaves: Sequence[Any], how: str) -> None:
    results = [as_array(leaf) for leaf in leaves]
    if not same_bits(expected, results):
        first.target.further.append((how, results))


def _require_results_unchanged(first: FirstCall, kept: Sequence[Array]) -> None:
    if not first.is_replayed and not same_bits(kept, first.results):
        raise Fault(Reason.STATE, f"a later call of {first.code} overwrites the results of its first call")


def _require_inputs_unchanged(
    first: FirstCall,
    placed: Sequence[torch.Tensor],
    passed: Sequence[torch.Tensor],
    reload: Callable[[int], torch.Tensor],
    how: str,
) -> None:
    """Check the inputs after a later call; a Fault's message begins with ``how``."""
    try:
        require_inputs_unchanged(first.call, placed, passed, reload)
    except Fault as fault:
        raise Fault(fault.reason, f"{how}: {fault.message}", details=fault.details) from None


def _bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def _in_other_memory(first: FirstCall) -> Sequence[torch.Tensor]:
    """Return the inputs of the first call in other memory; the same tensors if they exceed 64 MiB."""
    if _bytes_of(first.tensors) > _MAX_COPIED_BYTES:
        return first.tensors
    if first.target.device.type != "cpu":
        return [first.reload(index) for index in range(len(first.tensors))]
    return [strided_copy(tensor) for tensor in first.tensors]


def _require_separate_results(first: FirstCall, leaves: Sequence[Any], inputs: Sequence[torch.Tensor]) -> None:
    """Raise Fault STATE if a result of the second call shares memory with one of the first, except that of inputs."""
    owned = {storage_address(tensor) for tensor in inputs} | {0}
    for leaf in leaves:
        if not has_memory(leaf) or storage_address(leaf) in owned:
            continue
        for number, kept in enumerate(first.leaves):
            if has_memory(kept) and have_common_memory(kept, leaf):
                message = f"the second call of {first.code} overwrites output{number} of its first call: both results"
                raise Fault(Reason.STATE, f"{message} have the same memory")


# Halved floats stay legal, and most results change. Reversed integers and bools keep positions within their range and
# the number of true elements.
def other_values(
    call: TorchCall, index: int, tensor: torch.Tensor
) -> tuple[str, Callable[[torch.Tensor], None]] | None:
    """Return a condition of a later call: its description, and a function that changes an input to other legal values.

    Floats are halved, integers and bools reversed. None if the input is empty or its integers have to be ordered.
    """
    if not tensor.numel():
        return None
    if is_inexact(tensor):
        return f"with half the values of input{index}", _halve
    if takes_ordered_integers(call.call.function):
        return None
    return f"with the elements of input{index} in the reverse order", _reverse


def _halve(tensor: torch.Tensor) -> None:
    # The memory, so that elements with one address are halved once. torch multiplies no floats of 8 bits.
    memory = memory_of(tensor)
    memory.copy_(memory.float().mul_(0.5) if memory.element_size() == 1 else memory * 0.5)


def _reverse(tensor: torch.Tensor) -> None:
    memory = memory_of(tensor)
    if memory.dtype in _SIGNED:
        memory = memory.view(_SIGNED[memory.dtype])
    # Elements only: gaps between them may hold illegal values.
    indices = torch.arange(len(memory), device=tensor.device).as_strided(tensor.shape, tensor.stride()).unique()
    memory[indices] = memory[indices.flip(0)]


def _results_on_cpu(first: FirstCall, index: int, change: Callable[[torch.Tensor], None] | None) -> list[Any]:
    """Return torch's results and gradients on the CPU, after ``change`` of one input."""
    call, tensors = first.call, cpu_copies(first.inputs)
    if change is not None:
        change(tensors[index])
    if first.upstream is None:
        with torch.no_grad():
            return call.on(tensors)()
    return differentiate(call, call.on_copies(), tensors, first.upstream).outputs(tensors)


def _should_follow(before: Array, expected: Any, followed: Any) -> bool:
    """Return whether a result has to change: torch's does, from ``expected`` to ``followed``, and it was nearly right.

    False for results that are wrong for the first values, too.
    """
    if not _differ(expected, followed) or before.shape != tuple(expected.shape):
        return False
    kind = np.complex128 if expected.is_complex() else np.float64
    return not _differ(expected, torch.from_numpy(before.astype(kind)))


def _differ(first: Any, second: Any) -> bool:
    """Return whether two tensors differ in shape, finiteness or by more than _FOLLOWS; False for non-tensors."""
    if not isinstance(first, torch.Tensor) or not isinstance(second, torch.Tensor):
        return False
    if first.shape != second.shape:
        return True
    if not first.numel():
        return False
    if not is_inexact(first):
        return bool((first != second).double().mean() > _FOLLOWS)
    if not torch.equal(first.isfinite(), second.isfinite()):
        return True
    kind = torch.complex128 if first.is_complex() else torch.float64
    difference = (first.to(kind) - second.to(kind)).abs().nan_to_num(0.0, 0.0, 0.0).max()
    return bool(difference > _FOLLOWS * first.to(kind).abs().nan_to_num(0.0, 0.0, 0.0).max())
