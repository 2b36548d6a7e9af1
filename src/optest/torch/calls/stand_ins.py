"""Functions that torch has in 32 and 16 bits alone, made of others here, so that float64 is their truth, too."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from optest.spec import Fault, Reason
from optest.spec.call_names import canonical

__all__ = ["in_float64", "is_grouped"]

_NAMES = {"self": "one", "input": "one", "mat_a": "one", "mat2": "other", "mat_b": "other"}


def in_float64(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """What computes ``function`` of that name in float64: itself, where torch has it there."""
    return _grouped_mm if is_grouped(name) else function


def is_grouped(name: str) -> bool:
    """Whether it is a matrix product of groups, ``torch.nn.functional.grouped_mm``."""
    return canonical(name).operator == "_grouped_mm"


def _grouped_mm(*args: Any, **named: Any) -> torch.Tensor:
    """The product of each group; ``offs`` are the ends of groups in the dimension that the operands have no groups for.

    Raises:
        Fault: BAD_CASE where they do not ascend, UNSUPPORTED for a bias, and where elements of the result belong to no
            group, into which torch writes nothing.
    """
    named = {_NAMES.get(name, name): value for name, value in named.items()}
    given = dict(zip(("one", "other", "offs", "bias"), args, strict=False)) | named
    one, other, offs = given["one"], given["other"], given.get("offs")
    if given.get("bias") is not None:
        raise Fault(Reason.UNSUPPORTED, "the product of groups is known here without a bias alone")
    if offs is None:
        return one @ other
    groups = list(pairwise([0, *offs.tolist()]))
    if any(begin > end for begin, end in groups):
        raise Fault(Reason.BAD_CASE, "the ends of groups have to ascend")
    if one.dim() == other.dim():
        return torch.stack([one[:, begin:end] @ other[begin:end] for begin, end in groups])
    if groups[-1][1] != (one.shape[0] if one.dim() == 2 else other.shape[1]):
        raise Fault(Reason.UNSUPPORTED, "the groups end before the operand does, and torch writes nothing behind them")
    if one.dim() == 2:
        return torch.cat([one[begin:end] @ other[group] for group, (begin, end) in enumerate(groups)])
    return torch.cat([one[group] @ other[:, begin:end] for group, (begin, end) in enumerate(groups)], dim=1)
