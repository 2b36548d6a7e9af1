"""Evaluation of a user's function of torch tensors as a reference, in float64 or float32 despite casts in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch.utils import _pytree as pytree

from optest.torch.dispatch_modes import DispatchMode
from optest.torch.tensors import WIDE, as_array, copied, to_read

_SINGLE = (torch.float32, torch.complex64)
_IN_SINGLE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


class _WithoutNarrowing(DispatchMode):
    """Give every operator ``kind`` in place of narrower floats, for tensors, constants and casts."""

    def __init__(self, kind: torch.dtype) -> None:
        super().__init__()
        self._wide = WIDE if kind == torch.float64 else _IN_SINGLE

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        args, kwargs = pytree.tree_map(self._widened, (args, kwargs or {}))
        return func(*args, **kwargs)

    def _widened(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in self._wide:
            return value.to(self._wide[value.dtype])
        return self._wide.get(value, value) if isinstance(value, torch.dtype) else value


def evaluated(call: Callable[[Sequence[Any]], list[Any]], inputs: Sequence[Any], *, without_casts: bool) -> list[Any]:
    """Return the outputs of ``call`` for copies of the inputs; ``without_casts`` leaves out casts to floats narrower
    than float32, if the widest input has that dtype, or else narrower than float64."""
    tensors = [None if each is None else copied(to_read(each)) for each in inputs]
    given = {each.dtype for each in tensors if each is not None}
    is_single = given & set(_SINGLE) and not given & {WIDE[each] for each in _SINGLE}
    kind = torch.float32 if is_single else torch.float64
    default = torch.get_default_dtype()
    with torch.no_grad(), ExitStack() as stack:
        if without_casts:
            stack.callback(torch.set_default_dtype, default)
            torch.set_default_dtype(kind)
            stack.enter_context(_WithoutNarrowing(kind))
        return [as_array(each) if isinstance(each, torch.Tensor) else each for each in call(tensors)]
