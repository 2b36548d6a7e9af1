"""What a function that torch was asked for is called in a file of cases, and which calls compute nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import resolve_name

from optest.torch.calls.names import NoSuchCallable, NotAnOperator, find
from optest.torch.calls.overlap import UNWRITTEN

__all__ = ["NamedCall", "NoCase", "Unwritten", "named_aten", "named_torch"]


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
_UNINITIALISED = "return memory that nobody has written"
_OF_DUALS = "join or part tensors and their derivatives in forward mode, which no case has"

_OPERATORS = {
    "__eq__": "torch.eq", "__ne__": "torch.ne", "__lt__": "torch.lt", "__le__": "torch.le", "__gt__": "torch.gt",
    "__ge__": "torch.ge", "__invert__": "torch.invert", "__neg__": "torch.neg", "__pos__": "torch.positive",
    "__abs__": "torch.abs", "__and__": "torch.and_", "__or__": "torch.or_", "__xor__": "torch.xor",
    "__add__": "torch.add", "__sub__": "torch.sub", "__mul__": "torch.mul", "__matmul__": "torch.matmul",
    "__truediv__": "torch.truediv", "__div__": "torch.truediv", "__floordiv__": "torch.floordiv",
    "__mod__": "torch.remainder", "__pow__": "torch.pow", "__lshift__": "torch.lshift", "__rshift__": "torch.rshift",
    "__getitem__": "torch.getitem", "__setitem__": "torch.setitem",
    "__iadd__": "torch.iadd", "__isub__": "torch.isub", "__imul__": "torch.imul", "__itruediv__": "torch.itruediv",
    "__idiv__": "torch.itruediv", "__ifloordiv__": "torch.ifloordiv", "__imod__": "torch.imod",
    "__ipow__": "torch.ipow", "__iand__": "torch.iand", "__ior__": "torch.ior", "__ixor__": "torch.ixor",
}  # fmt: skip
_REFLECTED = {
    "__radd__": "torch.add", "__rmul__": "torch.mul", "__rand__": "torch.and_", "__ror__": "torch.or_",
    "__rxor__": "torch.xor", "__rsub__": "torch.rsub",
}  # fmt: skip
"""The tensor stays first."""

_SWAPPED = {
    "__rtruediv__": "torch.truediv", "__rdiv__": "torch.truediv", "__rfloordiv__": "torch.floordiv",
    "__rpow__": "torch.pow", "__rmod__": "torch.remainder", "__rmatmul__": "torch.matmul",
    "__rlshift__": "torch.lshift", "__rrshift__": "torch.rshift",
}  # fmt: skip
_ARITHMETIC = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "matmul",
        "neg",
        "abs",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "remainder",
        "pow",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
    ]
)
"""Methods that Python's operators call; torch has functions that take the same arguments."""

_PROPERTIES = {
    "T": ("torch.Tensor.t", ()), "mT": ("torch.transpose", (-2, -1)), "H": ("torch.adjoint", ()),
    "mH": ("torch.adjoint", ()), "real": ("torch.real", ()), "imag": ("torch.imag", ()),
    "data": ("torch.Tensor.detach", ()),
}  # fmt: skip
_RESIZED = ("resize_", "resize_as_")
_DUAL = ("_make_dual", "_unpack_dual", "_fw_primal")
_NOTHING = frozenset(
    ["requires_grad_", "retain_grad", "backward", "register_hook", "share_memory_", "set_", "__deepcopy__"]
)
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
    _require_computing(last)
    if home == "torch.Tensor":
        if last in _OPERATORS:
            return NamedCall(_OPERATORS[last], args, kwargs)
        if last in _REFLECTED:
            return NamedCall(_REFLECTED[last], args, kwargs)
        if last in _SWAPPED and len(args) == 2:
            return NamedCall(_SWAPPED[last], (args[1], args[0]), kwargs)
        if last in _ARITHMETIC and not kwargs:
            return NamedCall(f"torch.{last}", args, kwargs)
        if last.startswith("__"):
            raise NoCase(SETTINGS)
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
    _require_computing(function._schema.name.rpartition("::")[2])
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


def _require_computing(last: str) -> None:
    if last in UNWRITTEN:
        raise Unwritten(_UNINITIALISED)
    if last in _RESIZED:
        raise NoCase(_UNINITIALISED)
    if last in _DUAL:
        raise NoCase(_OF_DUALS)
    if last in _NOTHING:
        raise NoCase(SETTINGS)


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
    return _with_tensors_in_place(call._replace(kwargs=kwargs), parameters)


def _with_tensors_in_place(call: NamedCall, parameters: Mapping[str, inspect.Parameter]) -> NamedCall:
    """Keyword arguments up to the last tensor among them as positional ones, where all between have a default."""
    kwargs, args = dict(call.kwargs), list(call.args)
    positional = [each for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    if len(positional) != len(parameters) or len(args) > len(positional):
        return call
    rest = positional[len(args) :]
    last = max((place for place, each in enumerate(rest, 1) if _holds_tensor(kwargs.get(each.name))), default=0)
    if any(each.name not in kwargs and each.default is each.empty for each in rest[:last]):
        return call
    args += [kwargs.pop(each.name, each.default) for each in rest[:last]]
    return call._replace(args=tuple(args), kwargs=kwargs)


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_holds_tensor, value))
    return isinstance(value, torch.Tensor)


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
