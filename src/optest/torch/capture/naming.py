"""What a function that torch was asked for is called in a file of cases, and which calls compute nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import resolve_name

from optest.spec.call_names import OPERATORS_OF_PYTHON, canonical
from optest.torch.calls.names import NoSuchCallable, NotAnOperator, find
from optest.torch.fact_sheet import facts_of
from optest.torch.tensors import tensors_of


class NamedCall(NamedTuple):
    """A dotted name of torch's and the arguments in its order."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class NoCase(ValueError):
    """A call that is no case; the message says why, as the end of "left out: "."""


class Unwritten(NoCase):
    """A call whose result is new memory, with whatever lies there."""


SETTINGS = "compute nothing"

# Python's words that torch has a function under another name for, which says more.
_WORDS = {"pos": "positive", "mod": "remainder", "div": "truediv", "idiv": "itruediv", "and": "and_", "or": "or_"}

_PROPERTIES = {
    "T": ("torch.Tensor.t", ()), "mT": ("torch.transpose", (-2, -1)), "H": ("torch.adjoint", ()),
    "mH": ("torch.adjoint", ()), "real": ("torch.real", ()), "imag": ("torch.imag", ()),
    "data": ("torch.Tensor.detach", ()),
}  # fmt: skip
_TORCH_HOMES = ("torch.functional", "torch._C._VariableFunctions", "torch._VF")


def named_torch(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NamedCall:
    """The call as a model makes it.

    Raises:
        NoCase: for what is no operator: a property, a setting, a context manager.
    """
    full = _resolved(function)
    home, _, last = full.rpartition(".")
    if last in ("__get__", "__set__", "__delete__"):
        return _property(home.rpartition(".")[2], last, args)
    _require_computing(full)
    if home == "torch.Tensor":
        if last.startswith("__"):
            # Name a method between underscores by its function: torch.add for __add__, torch.iand. What is reflected
            # and commutes keeps its order, so that the tensor stays first.
            spelled = canonical(full)
            if spelled.operator not in OPERATORS_OF_PYTHON or spelled.operator == "contains":
                raise NoCase(SETTINGS)
            word = full.rpartition(".")[2].strip("_")
            if spelled.is_reflected:
                word = word[1:]
                if spelled.operator == "sub":
                    word = "rsub"
                elif not facts_of(full).commutes:
                    args = args[::-1]
            full = f"torch.{_WORDS.get(word, word)}"
            _require_known(full)
            return NamedCall(full, args, kwargs)
        if facts_of(full).is_captured_as_function and canonical(full).operator == last and not kwargs:
            return NamedCall(f"torch.{last}", args, kwargs)
    if home in _TORCH_HOMES and callable(getattr(torch, last, None)):
        full = f"torch.{last}"
    _require_known(full)
    return _without_defaults(NamedCall(full, args, kwargs), function)


def named_aten(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NamedCall:
    """The call as torch's dispatcher sees it: ``torch.ops.aten.add.Tensor``.

    Raises:
        NoCase: for what cannot be called by such a name.
    """
    name = f"torch.ops.{str(function).removeprefix('torch.ops.')}"
    _require_computing(name)
    _require_known(name)
    return NamedCall(name, args, kwargs)


@lru_cache(maxsize=4096)
def _resolved(function: Callable[..., Any]) -> str:
    found = resolve_name(function)
    if found:
        return f"torch.ops.{found}" if isinstance(function, (OpOverload, OpOverloadPacket)) else str(found)
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}.{getattr(function, '__name__', '?')}"


def _property(name: str, how: str, args: tuple[Any, ...]) -> NamedCall:
    if how != "__get__" or name not in _PROPERTIES:
        raise NoCase(SETTINGS)
    function, more = _PROPERTIES[name]
    (tensor,) = args[:1]
    if name == "T" and tensor.dim() != 2:
        return NamedCall("torch.permute", (tensor, tuple(reversed(range(tensor.dim())))), {})
    return NamedCall(function, (tensor, *more), {})


def _require_computing(name: str) -> None:
    facts = facts_of(name)
    if facts.is_unwritten:
        raise Unwritten("return memory that nobody has written")
    if facts.no_case:
        raise NoCase(facts.no_case)


def _require_known(name: str) -> None:
    try:
        find(name)
    except (NotAnOperator, NoSuchCallable):
        raise NoCase(SETTINGS) from None


def _without_defaults(call: NamedCall, function: Callable[..., Any]) -> NamedCall:
    """The call without what it states although it is so anyway, and with tensors at their places.

    Functions of ``torch.nn.functional`` are seen with all that they pass on, which is more than the model said.
    """
    parameters = _parameters(function)
    kwargs = {name: value for name, value in call.kwargs.items() if name != "_stacklevel"}
    if parameters is None:
        return call._replace(kwargs=kwargs)
    kwargs = {
        name: value
        for name, value in kwargs.items()
        if name not in parameters or not _is_default(value, parameters[name].default)
    }
    # Pass keyword arguments up to the last tensor among them as positional ones, where all between have a default.
    call = call._replace(kwargs=kwargs)
    kwargs, args = dict(call.kwargs), list(call.args)
    positional = [each for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    if len(positional) != len(parameters) or len(args) > len(positional):
        return call
    rest = positional[len(args) :]
    holds_tensor = [any(True for _ in tensors_of(kwargs.get(each.name))) for each in rest]
    last = max((place for place, holds in enumerate(holds_tensor, 1) if holds), default=0)
    if any(each.name not in kwargs and each.default is each.empty for each in rest[:last]):
        return call
    args += [kwargs.pop(each.name, each.default) for each in rest[:last]]
    return call._replace(args=tuple(args), kwargs=kwargs)


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and not isinstance(value, torch.Tensor) and bool(value == default)


@lru_cache(maxsize=1024)
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter] | None:
    if not inspect.isfunction(function):
        return None
    parameters = inspect.signature(function).parameters
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in parameters.values()):
        return None
    return parameters
