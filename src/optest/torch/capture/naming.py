"""Dotted torch names for recorded calls, and the calls that become no case."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import resolve_name

from optest.spec.call_names import OPERATORS_OF_PYTHON, canonical
from optest.torch.calls.names import NoSuchCallable, NotAnOperator, find_callable
from optest.torch.fact_sheet import facts_of
from optest.torch.tensors import tensors_of


class NamedCall(NamedTuple):
    """A dotted torch name and the arguments in that function's order."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class NoCase(ValueError):
    """A call that becomes no case; the message is a verb phrase that follows "left out, as they"."""


class Unwritten(NoCase):
    """A call that returns uninitialised memory, such as ``torch.empty``."""


SETTINGS = "compute nothing"

# Operator names of Python whose torch function has another name.
_WORDS = {"pos": "positive", "mod": "remainder", "div": "truediv", "idiv": "itruediv", "and": "and_", "or": "or_"}

_PROPERTIES = {
    "T": ("torch.Tensor.t", ()), "mT": ("torch.transpose", (-2, -1)), "H": ("torch.adjoint", ()),
    "mH": ("torch.adjoint", ()), "real": ("torch.real", ()), "imag": ("torch.imag", ()),
    "data": ("torch.Tensor.detach", ()),
}  # fmt: skip
_TORCH_HOMES = ("torch.functional", "torch._C._VariableFunctions", "torch._VF")


def named_torch(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NamedCall:
    """Return the public torch name and the arguments of a call that ``__torch_function__`` received.

    Raises:
        NoCase: if the call is no operator: a property, a setting, a context manager.
    """
    name = _resolved(function)
    module, _, last = name.rpartition(".")
    if last in ("__get__", "__set__", "__delete__"):
        return _named_property(module.rpartition(".")[2], last, args)
    _require_computing(name)
    if module == "torch.Tensor":
        if last.startswith("__"):
            # Name a special method by its function: torch.add for __add__. A reflected operator that commutes keeps
            # its argument order, so that the tensor stays first.
            spelled = canonical(name)
            if spelled.operator not in OPERATORS_OF_PYTHON or spelled.operator == "contains":
                raise NoCase(SETTINGS)
            word = name.rpartition(".")[2].strip("_")
            if spelled.is_reflected:
                word = word[1:]
                if spelled.operator == "sub":
                    word = "rsub"
                elif not facts_of(name).commutes:
                    args = args[::-1]
            name = f"torch.{_WORDS.get(word, word)}"
            _require_known(name)
            return NamedCall(name, args, kwargs)
        if facts_of(name).is_captured_as_function and canonical(name).operator == last and not kwargs:
            return NamedCall(f"torch.{last}", args, kwargs)
    if module in _TORCH_HOMES and callable(getattr(torch, last, None)):
        name = f"torch.{last}"
    _require_known(name)
    return _without_defaults(NamedCall(name, args, kwargs), function)


def named_aten(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NamedCall:
    """Return the name of a dispatched call, as ``torch.ops.aten.add.Tensor``, with its arguments unchanged.

    Raises:
        NoCase: if no operator has that name or it computes nothing.
    """
    name = f"torch.ops.{str(function).removeprefix('torch.ops.')}"
    _require_computing(name)
    _require_known(name)
    return NamedCall(name, args, kwargs)


@lru_cache(maxsize=4096)
def _resolved(function: Callable[..., Any]) -> str:
    name = resolve_name(function)
    if name:
        return f"torch.ops.{name}" if isinstance(function, (OpOverload, OpOverloadPacket)) else str(name)
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}.{getattr(function, '__name__', '?')}"


def _named_property(name: str, method: str, args: tuple[Any, ...]) -> NamedCall:
    """Name a tensor's property by its function, as ``torch.Tensor.t`` for ``T``; NoCase for others and for setters."""
    if method != "__get__" or name not in _PROPERTIES:
        raise NoCase(SETTINGS)
    function, extra = _PROPERTIES[name]
    (tensor,) = args[:1]
    if name == "T" and tensor.dim() != 2:
        return NamedCall("torch.permute", (tensor, tuple(reversed(range(tensor.dim())))), {})
    return NamedCall(function, (tensor, *extra), {})


def _require_computing(name: str) -> None:
    """Raise Unwritten for a function that returns uninitialised memory, NoCase for others that make no case."""
    facts = facts_of(name)
    if facts.is_unwritten:
        raise Unwritten("return uninitialised memory")
    if facts.no_case:
        raise NoCase(facts.no_case)


def _require_known(name: str) -> None:
    """Raise NoCase if no operator has that name."""
    try:
        find_callable(name)
    except (NotAnOperator, NoSuchCallable):
        raise NoCase(SETTINGS) from None


def _without_defaults(call: NamedCall, function: Callable[..., Any]) -> NamedCall:
    """Drop keyword arguments equal to their defaults; make those up to the last tensor positional."""
    # torch.nn.functional passes every argument on, including those that the model did not write.
    parameters = _parameters(function)
    kwargs = {name: value for name, value in call.kwargs.items() if name != "_stacklevel"}
    if parameters is None:
        return call._replace(kwargs=kwargs)
    for name in [name for name in kwargs if name in parameters]:
        value, default = kwargs[name], parameters[name].default
        if type(value) is type(default) and not isinstance(value, torch.Tensor) and value == default:
            del kwargs[name]
    call = call._replace(kwargs=kwargs)
    kwargs, args = dict(kwargs), list(call.args)
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(positional) != len(parameters) or len(args) > len(positional):
        return call
    remaining = positional[len(args) :]
    holds_tensor = [any(True for _ in tensors_of(kwargs.get(p.name))) for p in remaining]
    last = max((end for end, holds in enumerate(holds_tensor, 1) if holds), default=0)
    if any(p.name not in kwargs and p.default is p.empty for p in remaining[:last]):
        return call
    args += [kwargs.pop(p.name, p.default) for p in remaining[:last]]
    return call._replace(args=tuple(args), kwargs=kwargs)


# None for builtins and for *args or **kwargs, whose arguments cannot be reordered.
@lru_cache(maxsize=1024)
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    if not inspect.isfunction(function):
        return None
    parameters = inspect.signature(function).parameters
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()):
        return None
    return parameters
