"""Evaluate a user's function of torch tensors as a reference, in float64 or float32 despite casts in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils import _pytree as pytree

from optest.torch.dispatch_modes import DispatchMode
from optest.torch.tensors import WIDE, as_array, strided_copy, to_read

_SINGLE = (torch.float32, torch.complex64)
_IN_SINGLE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


class _WithoutNarrowing(DispatchMode):
    """Dispatch mode in which tensors, constants and casts of floats narrower than ``kind`` have ``kind``."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self._wide = WIDE if kind == torch.float64 else _IN_SINGLE

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        args, kwargs = pytree.tree_map(self._widen, (args, kwargs or {}))
        return func(*args, **kwargs)

    def _widen(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in self._wide:
            return value.to(self._wide[value.dtype])
        return self._wide.get(value, value) if isinstance(value, torch.dtype) else value


def evaluate_reference(
    call: Callable[[Sequence[Any]], list[Any]], inputs: Sequence[Any], *, without_casts: bool
) -> list[Any]:
    """Return the outputs of ``call`` for copies of the inputs, as arrays.

    ``without_casts``: floats narrower than float32 are replaced by it if that is the widest input dtype; otherwise all
    floats narrower than float64 by float64.
    """
    tensors = [None if array is None else strided_copy(to_read(array)) for array in inputs]
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    is_single = dtypes & set(_SINGLE) and not dtypes & {WIDE[kind] for kind in _SINGLE}
    kind = torch.float32 if is_single else torch.float64
    default = torch.get_default_dtype()
    with torch.no_grad(), ExitStack() as stack:
        if without_casts:
            stack.callback(torch.set_default_dtype, default)
            torch.set_default_dtype(kind)
            stack.enter_context(_WithoutNarrowing(kind))
        return [as_array(output) if isinstance(output, torch.Tensor) else output for output in call(tensors)]
