"""How many elements the outputs of a call have at most, from its name and shapes alone, where that is plain to see."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from optest.spec import TensorSpec
from optest.spec.calls import Call, TensorRef
from optest.torch.calls.calling import torch_call

__all__ = ["elements_at_most"]

_NO_MORE_THAN_GIVEN = """
cat stack hstack vstack softmax log_softmax layer_norm rms_norm dropout clone contiguous detach
index_copy index_add cumsum cumprod sort argsort topk flip roll tril triu to float half bfloat16 double int long bool
view reshape flatten transpose permute squeeze unsqueeze
"""
"""Each output is made of elements of the tensors that the call is given, each of them once."""

_NONE_GROWS = frozenset(_NO_MORE_THAN_GIVEN.split())


def elements_at_most(text: str, specs: Sequence[TensorSpec]) -> int | None:
    """The most that any one output of the call may have; None where it is not known."""
    call = torch_call(text).call
    name = call.operator
    if name in _NONE_GROWS:
        return sum(spec.elements for spec in specs)
    if name == "scaled_dot_product_attention":
        return _of_attention(call, specs)
    if name in _PRODUCTS:
        return _of_product(name, call, specs)
    if not _is_element_by_element(name):
        return None
    if specs and all(spec.shape == specs[0].shape for spec in specs):
        return specs[0].elements
    try:
        shape = np.broadcast_shapes(*(spec.shape for spec in specs))
    except ValueError:
        return None
    return int(np.prod(shape, dtype=object))


@lru_cache(maxsize=1024)
def _is_element_by_element(name: str) -> bool:
    """Whether torch says of the operator that it yields what its operands are broadcast to, or less."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return False
    overloads = [getattr(packet, each) for each in packet.overloads()]
    return any({torch.Tag.pointwise, torch.Tag.reduction} & set(each.tags) for each in overloads)


_PRODUCTS = ("linear", "matmul", "mm", "bmm", "embedding")


def _of_product(name: str, call: Call, specs: Sequence[TensorSpec]) -> int | None:
    """One element for every row of the one operand and column of the other, as if each batch met each other one."""
    if len(call.args) < 2 or not all(isinstance(each, TensorRef) for each in call.args[:2]):
        return None
    first, second = (specs[each.index] for each in call.args[:2] if isinstance(each, TensorRef))
    if name == "embedding":
        return first.elements * second.shape[-1] if second.shape else None
    summed = first.shape[-1] if first.shape else 0
    return first.elements // summed * (second.elements // summed) if summed else None


def _of_attention(call: Call, specs: Sequence[TensorSpec]) -> int | None:
    """One row as long as a value for every query, if keys and values are not broadcast to more batches than these."""
    if len(call.args) < 3 or not all(isinstance(each, TensorRef) for each in call.args[:3]):
        return None
    query, key, value = (specs[each.index].shape for each in call.args[:3] if isinstance(each, TensorRef))
    if not len(query) == len(key) == len(value) >= 2 or not query[-1]:
        return None
    if any(one > most for shape in (key, value) for one, most in zip(shape[:-2], query[:-2], strict=True)):
        return None
    return int(np.prod(query, dtype=object)) // query[-1] * value[-1]
