"""Dotted names to what torch calls so: functions, packets of ``torch.ops``, methods and operators of a tensor."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from optest.errors import nearest

__all__ = ["NoSuchCallable", "NotAnOperator", "find"]

_OPERATOR_NAMES = """
abs add and_ concat contains eq floordiv ge getitem gt iadd iand ifloordiv imod imul index inv invert ior ipow isub
itruediv ixor le lshift lt matmul mod mul ne neg not_ or_ pos pow rshift setitem sub truediv xor
"""
_OPERATORS: dict[str, Callable[..., Any]] = {name: getattr(operator, name) for name in _OPERATOR_NAMES.split()}
_SETTINGS = ("_log_api_usage_once", "set_grad_enabled", "_set_grad_enabled", "manual_seed", "is_grad_enabled")
"""Calls that a trace of a model sweeps up beside its operators."""


class NoSuchCallable(LookupError):
    """A name that is nothing of torch's; the message proposes another one."""


class NotAnOperator(LookupError):
    """A name of torch's that computes nothing: a context manager, a setting, a call that logs."""


@lru_cache(maxsize=4096)
def find(name: str) -> Callable[..., Any]:
    """Return what ``torch.X.Y`` names: that itself, else the method ``torch.Tensor.Y``, else Python's operator ``Y``.

    Raises:
        NoSuchCallable: if torch has nothing of that name.
        NotAnOperator: if it is no operator.
    """
    last = name.rpartition(".")[2]
    if last in _SETTINGS:
        raise NotAnOperator(f"{name} computes nothing")
    found = _walk(name)
    if found is not None:
        if inspect.isclass(found):
            raise NotAnOperator(f"{name} is a class{' for with statements' * hasattr(found, '__enter__')}")
        if callable(found):
            return found  # type: ignore[no-any-return]
    if name.count(".") == 1:
        method = getattr(torch.Tensor, last, None)
        if callable(method):
            return method  # type: ignore[no-any-return]
        if last in _OPERATORS:
            return _OPERATORS[last]
    if found is not None:
        raise NotAnOperator(f"{name} is {type(found).__name__}, which cannot be called")
    raise NoSuchCallable(_unknown(name))


def _walk(name: str) -> Any:
    found: Any = torch
    try:
        for part in name.split(".")[1:]:
            found = getattr(found, part)
    except (AttributeError, RuntimeError):  # torch.ops raises what its loader raises
        return None
    return found


def _unknown(name: str) -> str:
    home, _, last = name.rpartition(".")
    owner = _walk(home) if home != "torch" else torch
    if owner is None:
        near = nearest(name, (*_listed("torch.nn.functional"), *_listed("torch.linalg"), *_listed("torch.special")))
        return f"torch {torch.__version__} has no {home}" + (f"; did you mean {near}?" if near else "")
    known = {each for each in dir(owner) if not each.startswith("_")}
    if home == "torch":
        known |= {each for each in dir(torch.Tensor) if not each.startswith("_")} | _OPERATORS.keys()
    near = nearest(last, sorted(known))
    elsewhere = next((each for each in _HOMES if each != home and hasattr(_walk(each), last)), None)
    hint = f"{elsewhere}.{last}" if elsewhere else f"{home}.{near}" if near else None
    return f"torch {torch.__version__} has no {name}" + (f"; did you mean {hint}?" if hint else "")


_HOMES = (
    "torch",
    "torch.nn.functional",
    "torch.Tensor",
    "torch.special",
    "torch.linalg",
    "torch.fft",
    "torch.ops.aten",
)


def _listed(home: str) -> list[str]:
    return [f"{home}.{each}" for each in dir(_walk(home)) if not each.startswith("_")]
