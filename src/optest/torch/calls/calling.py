"""One call of torch made on given tensors, and everything that it yields as a flat list of arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

from optest.spec.calls import Call, Device, TensorRef, TorchName, parse_call
from optest.torch.calls.binding import CannotBind, named_arguments
from optest.torch.calls.descriptors import descriptor_of
from optest.torch.calls.names import constant, find
from optest.torch.calls.stand_ins import in_float64
from optest.torch.calls.written import written_beside, written_results

__all__ = ["TorchCall", "leaves_of", "torch_call"]


@dataclass(frozen=True, slots=True)
class TorchCall:
    """A call of torch: the function, the arguments, and the inputs that it changes."""

    call: Call
    function: Callable[..., Any]
    mutates: tuple[int, ...]
    beside: tuple[int, ...] = ()
    """Those of them that are no result of it, such as running statistics; they stand last among them."""

    into: tuple[int, ...] = ()
    """Inputs that it is given to put its results into, which it returns: ``out=``."""

    constant: tuple[int, ...] = ()
    """Inputs that torch takes no gradient of though they are floating: running statistics."""

    @property
    def changes(self) -> tuple[int, ...]:
        """All inputs that the call writes into."""
        return (*self.mutates, *self.into)

    @property
    def is_for_the_host(self) -> bool:
        """Whether the call itself puts its result on the CPU: by name, or as it has neither a device nor a tensor."""
        devices = [value for value in self.call.values() if isinstance(value, Device)]
        if not devices:
            return not self.call.tensors()
        return any(value.name.startswith("cpu") for value in devices)

    def on(
        self,
        tensors: Sequence[torch.Tensor],
        device: torch.device,
        *,
        dtypes: Mapping[torch.dtype, torch.dtype] | None = None,
    ) -> Callable[[], list[Any]]:
        """The call on these tensors, ready to be made: whatever it returns, then the inputs that it changed.

        Devices in the call are ``device``, save the CPU; ``dtypes`` are put in the place of others.
        """
        args, kwargs = self.call.mapped(lambda value: _live(value, tensors, device, dtypes or {}))
        function = in_float64(self.call.function, self.function) if dtypes else self.function
        changed = [tensors[index] for index in self.mutates]

        def make() -> list[Any]:
            return [*leaves_of(function(*args, **kwargs)), *changed]

        return make


@lru_cache(maxsize=4096)
def torch_call(text: str) -> TorchCall:
    """Read a call.

    Raises:
        NotLiteral: if the text is none.
        NoSuchCallable, NotAnOperator: for its function.
    """
    call = parse_call(text)
    for value in call.values():
        if type(value) is TorchName:
            constant(value.name)
    changed = {int(name.removeprefix("input")) for name in descriptor_of(call.function).mutates}
    if call.kwargs.get("inplace") is True and call.args and isinstance(call.args[0], TensorRef):
        changed.add(call.args[0].index)
    into = written_results(call)
    asked_to = call.operator in _CHANGED_WHERE
    beside = (_also_changed(call) if asked_to else set(written_beside(call))) - changed - set(into)
    named = set(call.tensors())
    beside_results = tuple(sorted(beside & named))
    mutates = (*sorted(changed & named), *beside_results)
    return TorchCall(call, find(call.function), mutates, beside_results, into, _held_constant(call))


_CHANGED_WHERE = {
    "batch_norm": ("training", False, ("running_mean", "running_var")),
    "native_batch_norm": ("training", False, ("running_mean", "running_var")),
    "_native_batch_norm_legit": ("training", False, ("running_mean", "running_var")),
    "_batch_norm_with_update": ("", True, ("running_mean", "running_var")),
    "cudnn_batch_norm": ("training", False, ("running_mean", "running_var")),
    "miopen_batch_norm": ("training", False, ("running_mean", "running_var")),
    "instance_norm": ("use_input_stats", True, ("running_mean", "running_var")),
    "embedding": ("max_norm", None, ("weight",)),
    "embedding_bag": ("max_norm", None, ("weight",)),
}
"""Inputs that a call changes where it is asked to: the argument that asks ("": always), its default, the inputs."""


def _also_changed(call: Call) -> set[int]:
    """The inputs that the call changes beside its result: running statistics in training, weights that are clipped."""
    asks, default, names = _CHANGED_WHERE.get(call.operator, ("", None, ()))
    if not names:
        return set()
    try:
        given = named_arguments(call)
    except CannotBind:
        return set()
    if given.get(asks, default) in (False, None):
        return set()
    return {given[name].index for name in names if isinstance(given.get(name), TensorRef)}


def _held_constant(call: Call) -> tuple[int, ...]:
    """The running statistics that the call reads, or changes without a gradient."""
    _, _, names = _CHANGED_WHERE.get(call.operator, ("", None, ()))
    if "running_mean" not in names:
        return ()
    try:
        given = named_arguments(call)
    except CannotBind:
        return ()
    return tuple(given[name].index for name in names if isinstance(given.get(name), TensorRef))


def leaves_of(returned: Any) -> list[Any]:
    """Tensors and scalars in the order in which tuples, lists and dicts hold them; None is nothing."""
    leaves, _ = pytree.tree_flatten(returned)
    return [leaf for leaf in leaves if leaf is not None]


def _live(
    value: Any, tensors: Sequence[torch.Tensor], device: torch.device, dtypes: Mapping[torch.dtype, torch.dtype]
) -> Any:
    kind = type(value)
    if kind is TensorRef:
        return tensors[value.index]
    if kind is TorchName:
        found = constant(value.name)
        return dtypes.get(found, found) if isinstance(found, torch.dtype) else found
    if kind is Device:
        is_host = value.name.startswith("cpu") and device.type != "meta"
        return torch.device("cpu") if is_host else device
    return value
