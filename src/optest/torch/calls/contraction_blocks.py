"""Large contractions in float64, block by block, so that only a few megabytes of the operands are widened at a time.

The split dimension is never one that is summed over: a block of the result is the call on a slice of its operands.
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

# Elements of the operands of one block: 16 MiB in float64.
_BLOCK = 1 << 21
# Operands of a linear layer with bias; its second operand is transposed.
_WITH_BIAS = 3
_REAL = (torch.float16, torch.bfloat16, torch.float32)

# Applied to each float64 operand before the call; may write into it and return it.
Transform = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Split:
    """A dimension of the result and the same dimension of operands, by input number."""

    of_result: int
    of_operand: Mapping[int, int]


def in_blocks(call: TorchCall, inputs: Sequence[Any], transforms: Sequence[Transform]) -> list[torch.Tensor] | None:
    """Return the call's float64 result after each of ``transforms``, which are applied to the operands cumulatively.

    None if the call is no plain contraction of real tensors of 16 or 32 bits, or has no dimension to split.
    """
    tensors = [to_read(array) for array in inputs]
    if any(tensor.dtype not in _REAL for tensor in tensors):
        return None
    operands = _operands(call)
    if operands is None or any(tensors[index].dim() == 0 for index in operands):
        return None
    split = _choose_split(operands, tensors, is_linear=facts_of(call.call.function).operands_in_blocks == _WITH_BIAS)
    if split is None:
        return None
    unsplit = [None if index in split.of_operand else tensor for index, tensor in enumerate(tensors)]
    # Clones, since each transform may write into the result of the one before.
    shared = [[None if t is None else t.clone() for t in operands] for operands in _transformed(unsplit, transforms)]

    def block(span: tuple[int, int]) -> list[torch.Tensor]:
        parts = [
            tensor.narrow(split.of_operand[index], *span) if index in split.of_operand else None
            for index, tensor in enumerate(tensors)
        ]
        results = []
        with torch.no_grad():
            for common, sliced in zip(shared, _transformed(parts, transforms), strict=True):
                operands = [kept if part is None else part for kept, part in zip(common, sliced, strict=True)]
                results += call.on([t for t in operands if t is not None], dtypes=WIDE)()
        return results

    blocks = _run_blocks(block, list(_block_ranges(split, tensors)))
    return [torch.cat(parts, dim=split.of_result) for parts in zip(*blocks, strict=True)]


def _run_blocks(block: Callable[[tuple[int, int]], list[torch.Tensor]], spans: list[Any]) -> list[Any]:
    """Return ``block`` of every span, computed in parallel with one thread per block."""
    # Threads that share a block wait for each other many times in it, and count as busy.
    threads = torch.get_num_threads()
    if threads == 1:
        return [block(span) for span in spans]
    try:
        with ThreadPoolExecutor(min(threads, len(spans)), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(block, spans))
    finally:
        torch.set_num_threads(threads)  # set_num_threads in a worker also changes process-wide settings


def _transformed(
    tensors: Sequence[torch.Tensor | None], transforms: Sequence[Transform]
) -> Iterator[list[torch.Tensor | None]]:
    """Copy the tensors to float64; apply each transform to the results of the one before, and yield these."""
    wide = [
        None if t is None else t.to(torch.float64, memory_format=torch.contiguous_format, copy=True) for t in tensors
    ]
    for transform in transforms:
        wide = [None if t is None else transform(t) for t in wide]
        yield wide


def _block_ranges(split: _Split, tensors: Sequence[torch.Tensor]) -> Iterator[tuple[int, int]]:
    """Yield start and length of each block along the split dimension, of about _BLOCK elements."""
    parts = [(tensors[index], axis) for index, axis in split.of_operand.items()]
    size = parts[0][0].shape[parts[0][1]]
    slice_elements = sum(tensor.numel() // max(size, 1) for tensor, _ in parts)
    step = max(1, _BLOCK // max(slice_elements, 1))
    for start in range(0, size, step):
        yield start, min(step, size - start)


def _choose_split(operands: list[int], tensors: Sequence[torch.Tensor], *, is_linear: bool) -> _Split | None:
    """Choose the dimension along which to split: a shared leading batch dimension, else columns of the right or rows
    of the left operand, whichever is larger; None if the chosen operand has no such dimension.
    """
    first, second, *rest = operands
    left, right = tensors[first], tensors[second]
    if is_linear:
        if right.dim() == 2 and right.numel() >= left.numel():
            return _Split(-1, {second: 0, **dict.fromkeys(rest, 0)})
        return _Split(0, {first: 0}) if left.dim() > 1 and right.dim() == 2 else None
    if left.dim() == right.dim() > 2 and left.shape[0] == right.shape[0] > 1:
        return _Split(0, {first: 0, second: 0})
    if right.numel() >= left.numel():
        return _Split(-1, {second: -1}) if right.dim() > 1 else None
    return _Split(-2 if right.dim() > 1 else -1, {first: -2}) if left.dim() > 1 else None


def _operands(call: TorchCall) -> list[int] | None:
    """Return the input numbers of a plain product in order; None for any other call or if an input is used twice."""
    most = 0 if call.call.spelled.is_reflected else facts_of(call.call.function).operands_in_blocks
    kwargs = dict(call.call.kwargs)
    arguments = [*call.call.args, *([kwargs.pop("bias")] if most == _WITH_BIAS and "bias" in kwargs else [])]
    indices = [argument.index for argument in arguments if isinstance(argument, TensorRef)]
    is_plain = not kwargs and not call.changes and len(indices) == sum(a is not None for a in arguments)
    return indices if is_plain and 2 <= len(indices) <= most and len(set(indices)) == len(indices) else None
