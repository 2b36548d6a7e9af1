"""The strides of results: no value depends on them, but the view that a model takes next may, and so does its speed.

Torch promises no strides of an operator in general, and a compiler may choose others. So they are told, and a case
fails by them only where it is asked to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from optest.numerics import Array
from optest.spec import Check, CheckState, Fault, Reason
from optest.torch.calls.allowed import STRIDES
from optest.torch.calls.calling import TorchCall
from optest.torch.calls.cpu_tensors import on_cpu, to_read
from optest.torch.calls.tracing_log import refusals_unlogged
from optest.torch.calls.under_test import UnderTest

__all__ = ["compare_strides"]

_CPU, _META = torch.device("cpu"), torch.device("meta")
_HAS_NOT = (RuntimeError, NotImplementedError, TypeError, ValueError)
_Strides = list[tuple[tuple[int, ...], tuple[int, ...]] | None]
"""Of each result its shape, and its strides, 0 where there is one element alone; None where none leads anywhere."""


def compare_strides(
    call: TorchCall, inputs: Sequence[Array], leaves: Sequence[Any], asked: UnderTest, *, must_be_same: bool
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
        of_cpu = _strides_of(call.on(on_cpu(inputs), _CPU)())
    told = [
        f"output{number} has the strides {list(one[1])}, torch on the CPU gives it {list(other[1])}"
        for number, (one, other) in enumerate(zip(found, of_cpu, strict=False))
        if one is not None and other is not None and one[0] == other[0] and one[1] != other[1]
    ]
    if told and must_be_same:
        raise Fault(Reason.SHAPE, "; ".join(told))
    asked.notes += [Check(name=STRIDES, state=CheckState.NOTE, detail=each) for each in told]


def _without_values(call: TorchCall, inputs: Sequence[Array]) -> _Strides | None:
    tensors = [to_read(each) for each in inputs]
    meta = [torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=_META) for each in tensors]
    try:
        with torch.no_grad(), refusals_unlogged():
            return _strides_of(call.on(meta, _META)())
    except _HAS_NOT:
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
