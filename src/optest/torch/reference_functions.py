"""Evaluation of a user's function of torch tensors as a reference, in float64 despite casts in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils import _pytree as pytree

from optest.torch.dispatch_modes import DispatchMode
from optest.torch.tensors import WIDE, as_array, copied, to_read


class _InFloat64(DispatchMode):
    """Give every operator float64 in place of narrower floats, for tensors, constants and casts."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        args, kwargs = pytree.tree_map(_wide, (args, kwargs or {}))
        return func(*args, **kwargs)


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype in WIDE:
        return value.to(WIDE[value.dtype])
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def evaluated(call: Callable[[Sequence[Any]], list[Any]], inputs: Sequence[Any], *, in_float64: bool) -> list[Any]:
    """Return the outputs of ``call`` for copies of the inputs; ``in_float64`` leaves out casts to narrower floats."""
    tensors = [None if each is None else copied(to_read(each)) for each in inputs]
    default = torch.get_default_dtype()
    with torch.no_grad(), ExitStack() as stack:
        if in_float64:
            stack.callback(torch.set_default_dtype, default)
            torch.set_default_dtype(torch.float64)
            stack.enter_context(_InFloat64())
        return [as_array(each) for each in call(tensors)]
