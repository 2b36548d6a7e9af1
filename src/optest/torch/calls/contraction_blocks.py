"""Large contractions in float64, block by block: of operands of hundreds of megabytes only a few are ever widened.

What is cut is never summed over: a block of the result is the call itself on some rows or columns of its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from optest.spec.calls import TensorRef
from optest.torch.calls.call import TorchCall
from optest.torch.fact_sheet import facts_of
from optest.torch.tensors import WIDE, to_read

_BLOCK = 1 << 21
"""Elements of the operands of one block: 16 MiB in float64."""

_WITH_BIAS = 3
"""Operands of a linear layer, whose second one is transposed."""

Shown = Callable[[torch.Tensor], torch.Tensor]
"""What is made of every operand in float64 before the call; it may write into it."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """A dimension of the result, and the same one of operands: by input number."""

    of_result: int
    of_operand: Mapping[int, int]


def in_blocks(call: TorchCall, inputs: Sequence[Any], shown: Sequence[Shown]) -> list[torch.Tensor] | None:
    """The call's result in float64 once for each of ``shown``, which follow each other on the same memory.

    None for what is no plain contraction of real tensors, or has no dimension that could be cut.
    """
    tensors = [to_read(array) for array in inputs]
    if any(each.dtype not in _REAL for each in tensors):
        return None
    operands = _operands(call)
    if operands is None or any(tensors[index].dim() == 0 for index in operands):
        return None
    cut = _cut(operands, tensors, is_linear=facts_of(call.call.function).operands_in_blocks == _WITH_BIAS)
    if cut is None:
        return None
    uncut = [None if index in cut.of_operand else each for index, each in enumerate(tensors)]
    whole = [[None if each is None else each.clone() for each in turn] for turn in _in_turns(uncut, shown)]

    def block(step: tuple[int, int]) -> list[torch.Tensor]:
        parts = [
            each.narrow(cut.of_operand[index], *step) if index in cut.of_operand else None
            for index, each in enumerate(tensors)
        ]
        made = []
        with torch.no_grad():
            for place, own in enumerate(_in_turns(parts, shown)):
                given = [kept if part is None else part for kept, part in zip(whole[place], own, strict=True)]
                made += call.on([each for each in given if each is not None], dtypes=WIDE)()
        return made

    blocks = _side_by_side(block, list(_steps(cut, tensors)))
    return [torch.cat(each, dim=cut.of_result) for each in zip(*blocks, strict=True)]


def _side_by_side(block: Callable[[tuple[int, int]], list[torch.Tensor]], steps: list[Any]) -> list[Any]:
    """Each block by one thread: threads that share a block wait for each other many times in it, and count as busy."""
    threads = torch.get_num_threads()
    if threads == 1:
        return [block(step) for step in steps]
    try:
        with ThreadPoolExecutor(min(threads, len(steps)), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(block, steps))
    finally:
        torch.set_num_threads(threads)  # not all of what this sets belongs to one thread


_REAL = (torch.float16, torch.bfloat16, torch.float32)


def _in_turns(tensors: Sequence[torch.Tensor | None], shown: Sequence[Shown]) -> Iterator[list[torch.Tensor | None]]:
    """The tensors in float64 as each of ``shown`` makes them of what the last one left, in one memory."""
    wide = [
        None if each is None else each.to(torch.float64, memory_format=torch.contiguous_format, copy=True)
        for each in tensors
    ]
    for show in shown:
        wide = [None if each is None else show(each) for each in wide]
        yield wide


def _steps(cut: _Cut, tensors: Sequence[torch.Tensor]) -> Iterator[tuple[int, int]]:
    """Where each block starts along what is cut, and how long it is."""
    parts = [(tensors[index], axis) for index, axis in cut.of_operand.items()]
    size = parts[0][0].shape[parts[0][1]]
    each = sum(tensor.numel() // max(size, 1) for tensor, _ in parts)
    step = max(1, _BLOCK // max(each, 1))
    for start in range(0, size, step):
        yield start, min(step, size - start)


def _cut(operands: list[int], tensors: Sequence[torch.Tensor], *, is_linear: bool) -> _Cut | None:
    """Where to cut: through what is common to both operands, else through the larger one."""
    first, second, *rest = operands
    left, right = tensors[first], tensors[second]
    if is_linear:
        if right.dim() == 2 and right.numel() >= left.numel():
            return _Cut(-1, {second: 0, **dict.fromkeys(rest, 0)})
        return _Cut(0, {first: 0}) if left.dim() > 1 and right.dim() == 2 else None
    if left.dim() == right.dim() > 2 and left.shape[0] == right.shape[0] > 1:
        return _Cut(0, {first: 0, second: 0})
    if right.numel() >= left.numel():
        return _Cut(-1, {second: -1}) if right.dim() > 1 else None
    return _Cut(-2 if right.dim() > 1 else -1, {first: -2}) if left.dim() > 1 else None


def _operands(call: TorchCall) -> list[int] | None:
    """The inputs of a plain product in order, all different; None if the call says anything else."""
    most = 0 if call.call.spelled.is_reflected else facts_of(call.call.function).operands_in_blocks
    stated = dict(call.call.kwargs)
    given = [*call.call.args, *([stated.pop("bias")] if most == _WITH_BIAS and "bias" in stated else [])]
    found = [each.index for each in given if isinstance(each, TensorRef)]
    plain = not stated and not call.changes and len(found) == len([each for each in given if each is not None])
    return found if plain and 2 <= len(found) <= most and len(set(found)) == len(found) else None
