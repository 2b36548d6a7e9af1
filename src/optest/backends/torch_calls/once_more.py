"""What was compiled is called a second time: a model does so, and a compiler has state that a first call does not show.

The second call gets the same values in other memory. What it yields is judged like the first answer where its bits
differ, so a result that is drawn together in another order is none the worse for that. Further calls get half the
values of one input: whoever kept the values of the first call is found by that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from optest.backends.torch_calls.arrays import as_array
from optest.backends.torch_calls.calling import TorchCall
from optest.backends.torch_calls.cpu_tensors import copied, on_cpu
from optest.backends.torch_calls.gradients import changeable
from optest.backends.torch_calls.under_test import UnderTest
from optest.numerics import Array, bits
from optest.spec import Fault, Reason

__all__ = ["HOW", "called_once_more", "require_inputs_read"]

HOW = "called a second time with the same values"
_MOST_COPIED_BYTES = 1 << 26
"""Beyond that the second call gets the very tensors of the first one, but for those that it changes."""

_MOST_HALVED_BYTES = 1 << 22
"""What a compiler keeps does not depend on sizes, and long calls are not made once more for each input."""

_CPU = torch.device("cpu")
_REPLAYS = "cudagraphs"
"""Torch's own compilers of this name promise no result beyond the next call."""


def called_once_more(
    call: TorchCall,
    tensors: Sequence[torch.Tensor],
    again: Callable[[int], torch.Tensor],
    leaves: Sequence[Any],
    first: Sequence[Array],
    asked: UnderTest,
) -> list[Array] | None:
    """What the compiled call yields when it is called again, None where that has the bits of the first answer.

    ``again`` puts an input on the device once more; ``leaves`` and ``first`` are the first answer.

    Raises:
        Fault: RAISED if the second call raises, STATE if it writes into the results of the first one.
    """
    if asked.compiled is None:
        return None
    given = changeable(call, _in_other_memory(tensors, again, asked))
    try:
        other = asked.compiled(given)
        asked.synchronize()
    except Exception as error:
        said = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        raise Fault(Reason.RAISED, f"{HOW}, what {asked.compiler} compiled raises {said}") from error
    if _REPLAYS not in str(asked.compiler):
        _require_results_kept(leaves, other, [*tensors, *given], asked)
    second = [as_array(leaf) for leaf in other]
    return None if _are_same(first, second) else second


def require_inputs_read(
    call: TorchCall,
    inputs: Sequence[Array],
    tensors: Sequence[torch.Tensor],
    again: Callable[[int], torch.Tensor],
    first: Sequence[Array],
    asked: UnderTest,
) -> None:
    """Call what was compiled with half the values of each floating input in turn: its results have to follow them.

    Torch on the CPU is asked only where they do not. Nothing is known of inputs that are large, empty or zero.

    Raises:
        Fault: STATE where results are those of other values, since a compiler kept the ones that it first saw; RAISED
            where the call refuses values that torch on the CPU takes.
    """
    if asked.compiled is None or _bytes_of(tensors) > _MOST_HALVED_BYTES:
        return
    for index in dict.fromkeys(call.call.tensors()):
        if not tensors[index].is_floating_point() or not tensors[index].numel():
            continue
        given = changeable(call, _in_other_memory(tensors, again, asked))
        _halve(given[index])
        try:
            found = [as_array(leaf) for leaf in asked.compiled(given)]
        except Exception as error:
            if not _is_taken_by_torch(call, inputs, index):
                continue
            said = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
            raise Fault(
                Reason.RAISED,
                f"with half the values of input{index}, what {asked.compiler} compiled raises {said}; torch does not",
                details={"input": index},
            ) from error
        if _are_same(first, found) and _are_of_other_values(first, call, inputs, index):
            raise Fault(
                Reason.STATE,
                f"with half the values of input{index}, what {asked.compiler} compiled yields what it yielded before: "
                "it kept the values that it was compiled with",
                details={"input": index},
            )


_FOLLOWS = 0.01
"""Of the largest result: other values change results by more than any rounding."""


def _are_of_other_values(first: Sequence[Array], call: TorchCall, inputs: Sequence[Array], index: int) -> bool:
    """Whether results that did not follow the values of an input are those that torch on the CPU has for other ones.

    What is wrong for the first values, too, is no matter of what was kept: the comparison says so.
    """
    with torch.no_grad():
        plain, halved = call.on(on_cpu(inputs), _CPU)(), _by_torch(call, inputs, index)
    found = zip(first, plain, halved, strict=False)
    return any(_differ(one, other) and _is_nearly(array, one) for array, one, other in found)


def _is_taken_by_torch(call: TorchCall, inputs: Sequence[Array], index: int) -> bool:
    try:
        _by_torch(call, inputs, index)
    except Exception:  # noqa: BLE001 - whatever torch raises, it does not take them
        return False
    return True


def _by_torch(call: TorchCall, inputs: Sequence[Array], index: int) -> list[Any]:
    """What torch on the CPU yields with half the values of one input."""
    halved = on_cpu(inputs)
    _halve(halved[index])
    with torch.no_grad():
        return call.on(halved, _CPU)()


def _is_nearly(array: Array, wanted: torch.Tensor) -> bool:
    return array.shape == tuple(wanted.shape) and not _differ(wanted, torch.from_numpy(array.astype(np.float64)))


def _differ(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    if one.shape != other.shape:
        return True
    if not one.is_floating_point() or not one.numel():
        return False
    apart = (one.double() - other.double()).abs().nan_to_num(0.0, 0.0, 0.0).max()
    return bool(apart > _FOLLOWS * one.double().abs().nan_to_num(0.0, 0.0, 0.0).max())


def _halve(tensor: torch.Tensor) -> None:
    """All of its memory, so that elements which share a place are halved once."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    tensor.as_strided((1 + reach,), (1,)).mul_(0.5)


def _bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(each.untyped_storage().nbytes() for each in tensors)


def _in_other_memory(
    tensors: Sequence[torch.Tensor], again: Callable[[int], torch.Tensor], asked: UnderTest
) -> Sequence[torch.Tensor]:
    if _bytes_of(tensors) > _MOST_COPIED_BYTES:
        return tensors
    if asked.device.type != "cpu":
        return [again(index) for index in range(len(tensors))]
    return [copied(each) for each in tensors]


def _require_results_kept(
    leaves: Sequence[Any], other: Sequence[Any], inputs: Sequence[torch.Tensor], asked: UnderTest
) -> None:
    owned = {_storage(each) for each in inputs} | {0}
    kept = {_storage(each): number for number, each in enumerate(leaves) if _has_memory(each)}
    for each in other:
        if _has_memory(each) and _storage(each) not in owned and _storage(each) in kept:
            raise Fault(
                Reason.STATE,
                f"output{kept[_storage(each)]} of the first call is written by the second call of what "
                f"{asked.compiler} compiled: both results are the same memory",
            )


def _has_memory(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and bool(leaf.numel())


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _are_same(first: Sequence[Array], second: Sequence[Array]) -> bool:
    return len(first) == len(second) and all(
        one.dtype == two.dtype and one.shape == two.shape and np.array_equal(bits(one), bits(two))
        for one, two in zip(first, second, strict=True)
    )
