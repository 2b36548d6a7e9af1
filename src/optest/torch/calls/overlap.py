"""Calls whose results torch leaves open: changes of a tensor whose elements share memory, and memory as it is found."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch

from optest.spec import TensorSpec, TestCase
from optest.spec.calls import TensorRef
from optest.torch.calls.calling import TorchCall

__all__ = ["UNWRITTEN", "has_overlap", "have_common_memory", "why_no_one_result"]

UNWRITTEN = frozenset(["empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"])
"""Operators that return memory which nobody has written."""

_SAME_VALUE = ("fill", "zero")
"""Every element gets one value, so the order does not matter; ``setitem`` of a number is such a call, too."""

_MOST_LOOKED_AT = 1 << 20


def why_no_one_result(case: TestCase, call: TorchCall) -> str | None:
    """Why the call has no one right result; None if it has. What is to be refused is asked all the same.

    A stride of 0 is left to torch, which refuses to change such a tensor, save with one value.
    """
    if case.expects_error is not None:
        return None
    if call.call.operator in UNWRITTEN:
        return f"{call.call.function} returns memory that nobody has written, so no result is the right one"
    if not call.changes or _sets_one_value(call):
        return None
    for index in call.changes:
        spec = case.inputs[index].spec
        if has_overlap(spec) and 0 not in (spec.strides or ()):
            return (
                f"it changes input{index}, several of whose elements lie in one place (strides "
                f"{list(spec.strides or ())}): torch leaves open how often each is changed"
            )
    return None


def _sets_one_value(call: TorchCall) -> bool:
    name = call.call.operator
    if name == "setitem":
        return not isinstance(call.call.args[-1], TensorRef)
    return name in _SAME_VALUE


def has_overlap(spec: TensorSpec) -> bool:
    """Whether two elements of the tensor lie in one place; of very large ones only what their number says."""
    if spec.strides is None or not spec.elements:
        return False
    steps = sorted((stride, size) for size, stride in zip(spec.shape, spec.strides, strict=True) if size > 1)
    reach = 0
    for stride, size in steps:
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return False
    span = 1 + sum(stride * (size - 1) for stride, size in steps)
    if spec.elements > span or spec.elements > _MOST_LOOKED_AT:
        return spec.elements > span
    places = np.zeros(1, np.int64)
    for stride, size in steps:
        places = np.add.outer(places, np.arange(size) * stride).ravel()
    return len(np.unique(places)) < prod(size for _, size in steps)


def have_common_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a byte belongs to both; large tensors that lie among each other are taken for such."""
    first, last, another, last_of_other = *_bytes_from_to(one), *_bytes_from_to(other)
    if last <= another or last_of_other <= first:
        return False
    if one.nbytes + other.nbytes > _MOST_LOOKED_AT:
        return True
    return bool(np.isin(_addresses(one), _addresses(other)).any())


def _bytes_from_to(tensor: torch.Tensor) -> tuple[int, int]:
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


def _addresses(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    width = tensor.element_size()
    places: np.ndarray[Any, Any] = tensor.data_ptr() + np.arange(width)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        places = np.add.outer(places, np.arange(size) * stride * width).ravel()
    return places
