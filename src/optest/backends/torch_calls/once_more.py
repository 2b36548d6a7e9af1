"""What was compiled is called a second time: a model does so, and a compiler has state that a first call does not show.

The second call gets the same values in other memory. What it yields is judged like the first answer where its bits
differ, so a result that is drawn together in another order is none the worse for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from optest.backends.torch_calls.arrays import as_array
from optest.backends.torch_calls.calling import TorchCall
from optest.backends.torch_calls.cpu_tensors import copied
from optest.backends.torch_calls.gradients import changeable
from optest.backends.torch_calls.under_test import UnderTest
from optest.numerics import Array, bits
from optest.spec import Fault, Reason

__all__ = ["HOW", "called_once_more"]

HOW = "called a second time with the same values"
_MOST_COPIED_BYTES = 1 << 26
"""Beyond that the second call gets the very tensors of the first one, but for those that it changes."""

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


def _in_other_memory(
    tensors: Sequence[torch.Tensor], again: Callable[[int], torch.Tensor], asked: UnderTest
) -> Sequence[torch.Tensor]:
    if sum(each.untyped_storage().nbytes() for each in tensors) > _MOST_COPIED_BYTES:
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
