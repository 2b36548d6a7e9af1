"""What was compiled is called again: a model does so, and a compiler has state that a first call does not show.

The second call gets the same values in other memory. What it yields is judged like the first answer where its bits
differ, so a result that is drawn together in another order is none the worse for that. Further calls get other values
of one input: whoever kept the values of the first call is found by that. The last one gets the first values again. No
call may change its inputs, or the results of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from optest.numerics import Array, bits
from optest.spec import Fault, Reason
from optest.torch.calls.call import TorchCall
from optest.torch.calls.changed_values import are_of_changed_values, changed_values, is_taken_by_torch
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.calls.global_state import may_draw, random_numbers_kept
from optest.torch.calls.gradients import Draw, changeable
from optest.torch.calls.memory_effects import have_common_memory, require_inputs_unchanged, storage_address
from optest.torch.tensors import as_array, copied

__all__ = ["call_again", "call_with_changed_values"]

_SECOND = "called a second time with the same values"
_LAST = "called again with the first values, after calls with other ones"
_MOST_COPIED_BYTES = 1 << 26
"""Beyond that the second call gets the very tensors of the first one, but for those that it changes."""

_MOST_CHANGED_BYTES = 1 << 22
"""What a compiler keeps does not depend on sizes, and long calls are not made once more for each input."""

_REPLAYS = "cudagraphs"
"""Torch's own compilers of this name promise no result beyond the next call."""


def call_again(
    call: TorchCall,
    tensors: Sequence[torch.Tensor],
    again: Callable[[int], torch.Tensor],
    leaves: Sequence[Any],
    first: Sequence[Array],
    target: DeviceUnderTest,
) -> None:
    """Call what was compiled a second time; ``target`` keeps what it yields where that has other bits.

    ``again`` puts an input on the device once more; ``leaves`` and ``first`` are the first answer.

    Raises:
        Fault: RAISED if the second call raises, STATE if it writes into the results of the first one or draws random
            numbers, INPUT_MUTATED and OUT_OF_BOUNDS if it writes into its inputs.
    """
    if target.compiled is None:
        return
    others = _in_other_memory(tensors, again, target)
    given = changeable(call, others)
    with random_numbers_kept(f"what {target.compiler} compiled", unless=partial(may_draw, call, tensors)):
        other = _called(given, _SECOND, target)
    _require_inputs_unchanged(call, others, given, again, _SECOND)
    if _REPLAYS not in str(target.compiler):
        _require_results_kept(leaves, other, [*tensors, *given], target)
    second = [as_array(leaf) for leaf in other]
    if not _are_same(first, second):
        target.further.append((_SECOND, second))


def call_with_changed_values(
    call: TorchCall,
    inputs: Sequence[Array],
    tensors: Sequence[torch.Tensor],
    again: Callable[[int], torch.Tensor],
    first: Sequence[Array],
    target: DeviceUnderTest,
    upstream: Draw | None = None,
) -> None:
    """Call what was compiled with other values of each input in turn: each of its results has to follow them.

    With ``upstream`` its gradients have to, too. Torch on the CPU is asked only where one does not. Nothing is known of
    inputs that are large, empty or zero. Then it is called with the first values; ``target`` keeps what it yields where
    that has other bits than ``first``.

    Raises:
        Fault: STATE where results are those of other values, since a compiler kept the ones that it first saw, and
            where the first results are written; RAISED where the call refuses values that torch on the CPU takes;
            INPUT_MUTATED and OUT_OF_BOUNDS where it writes into its inputs.
    """
    if target.compiled is None or _bytes_of(tensors) > _MOST_CHANGED_BYTES:
        return
    kept = [np.array(array) for array in first]  # the calls below might write into the memory of the first results
    for index in dict.fromkeys(call.call.tensors()):
        _require_followed(index, call, inputs, tensors, again, kept, target, upstream)
        _require_results_as_they_were(kept, first, target)
    others = _in_other_memory(tensors, again, target)
    given = changeable(call, others)
    last = [as_array(leaf) for leaf in _called(given, _LAST, target)]
    _require_inputs_unchanged(call, others, given, again, _LAST)
    _require_results_as_they_were(kept, first, target)
    if not _are_same(kept, last):
        target.further.append((_LAST, last))


def _require_followed(
    index: int,
    call: TorchCall,
    inputs: Sequence[Array],
    tensors: Sequence[torch.Tensor],
    again: Callable[[int], torch.Tensor],
    first: Sequence[Array],
    target: DeviceUnderTest,
    upstream: Draw | None,
) -> None:
    other = changed_values(call, index, tensors[index])
    if other is None or target.compiled is None:
        return
    others = _in_other_memory(tensors, again, target)
    other.put(others[index])
    before = [copied(each) for each in others]
    given = changeable(call, others)
    try:
        found = [as_array(leaf) for leaf in target.compiled(given)]
    except Exception as error:
        if not is_taken_by_torch(call, inputs, index, other, upstream):
            return
        raise Fault(
            Reason.RAISED,
            f"with {other.how}, what {target.compiler} compiled raises {_said(error)}; torch does not",
            details={"input": index},
        ) from error
    _require_inputs_unchanged(call, others, given, lambda number: before[number], f"with {other.how}")
    unchanged = {
        number: one
        for number, (one, two) in enumerate(zip(first, found, strict=False))
        if _is_same(one, two) and not (upstream is not None and one.dtype == np.bool_)  # which gradients there are
    }
    if unchanged and are_of_changed_values(unchanged, call, inputs, index, other, upstream):
        raise Fault(
            Reason.STATE,
            f"with {other.how}, what {target.compiler} compiled yields what it yielded before: it kept the values that "
            "it was compiled with",
            details={"input": index},
        )


def _require_results_as_they_were(kept: Sequence[Array], first: Sequence[Array], target: DeviceUnderTest) -> None:
    if _REPLAYS not in str(target.compiler) and not _are_same(kept, first):
        message = f"the results of the first call are written by later calls of what {target.compiler} compiled"
        raise Fault(Reason.STATE, message)


def _called(given: Sequence[torch.Tensor], how: str, target: DeviceUnderTest) -> list[Any]:
    if target.compiled is None:
        return []
    try:
        found = target.compiled(given)
        target.synchronize()
    except Exception as error:
        raise Fault(Reason.RAISED, f"{how}, what {target.compiler} compiled raises {_said(error)}") from error
    return found


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0]


def _require_inputs_unchanged(
    call: TorchCall,
    placed: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor],
    again: Callable[[int], torch.Tensor],
    how: str,
) -> None:
    """Look at the inputs of another call than the first one."""
    try:
        require_inputs_unchanged(call, placed, given, again)
    except Fault as fault:
        raise Fault(fault.reason, f"{how}: {fault.message}", details=fault.details) from None


def _bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(each.untyped_storage().nbytes() for each in tensors)


def _in_other_memory(
    tensors: Sequence[torch.Tensor], again: Callable[[int], torch.Tensor], target: DeviceUnderTest
) -> Sequence[torch.Tensor]:
    if _bytes_of(tensors) > _MOST_COPIED_BYTES:
        return tensors
    if target.device.type != "cpu":
        return [again(index) for index in range(len(tensors))]
    return [copied(each) for each in tensors]


def _require_results_kept(
    leaves: Sequence[Any], other: Sequence[Any], inputs: Sequence[torch.Tensor], target: DeviceUnderTest
) -> None:
    owned = {storage_address(each) for each in inputs} | {0}
    for each in other:
        if not _has_memory(each) or storage_address(each) in owned:
            continue
        for number, kept in enumerate(leaves):
            if _has_memory(kept) and have_common_memory(kept, each):
                raise Fault(
                    Reason.STATE,
                    f"output{number} of the first call is written by the second call of what {target.compiler} "
                    "compiled: both results are the same memory",
                )


def _has_memory(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and bool(leaf.numel())


def _are_same(first: Sequence[Array], second: Sequence[Array]) -> bool:
    return len(first) == len(second) and all(_is_same(one, two) for one, two in zip(first, second, strict=True))


def _is_same(one: Array, two: Array) -> bool:
    return one.dtype == two.dtype and one.shape == two.shape and np.array_equal(bits(one), bits(two))
