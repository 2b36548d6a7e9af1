"""The forms in which OpInfo has an operator, function, method, in place, Python's operator, by their names in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from optest.torch.calls.names import NoSuchCallable, NotAnOperator, find

__all__ = ["Variant", "name_of", "variants_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One form of an operator.

    ``is_recorded`` is one whose call is seen only by making it; ``takes`` says whether the form exists for a sample.
    """

    function: str
    kind: str = "function"
    ending: str = ""
    is_recorded: bool = False
    takes: Callable[[Any], bool] = lambda _: True


def variants_of(info: Any) -> list[Variant]:
    """The function first, then the forms in which the same samples are asked as well."""
    names = (f"torch.{info.name}", info.name, *(f"torch.{alias.name}" for alias in info.aliases))
    own = _named(info.op, *names)
    found = [Variant(function=own or _as_a_name(info.name), is_recorded=own is None)]
    taken = {own}
    for kind, function, name, takes in (
        ("method", info.method_variant, "torch.Tensor.{}", _is_on_a_tensor),
        ("inplace", info.inplace_variant, "torch.Tensor.{}", _is_on_a_tensor),
        ("operator", info.operator_variant, "torch.Tensor.__{}__", _is_binary),
        ("inplace_operator", info.inplace_operator_variant, "torch.{}", _is_binary),
    ):
        if not hasattr(function, "__name__"):
            continue  # there is none, or torch's tests made one up
        word = name.format(function.__name__.strip("_") if kind == "operator" else function.__name__)
        stated = _found(word) if kind == "operator" else _named(function, word)
        if stated is not None and stated not in taken:
            taken.add(stated)
            found.append(Variant(function=stated, kind=kind, ending=f".{kind}", takes=takes))
    return found


def name_of(function: Any) -> str | None:
    """The dotted name under which a call finds a function of torch, None if there is none."""
    resolved: str | None = torch.overrides.resolve_name(function)
    if resolved is None:
        return None
    if resolved.endswith(".__get__"):
        attribute = str(resolved).split(".")[-2]
        return _found(f"torch.ops.aten.{_ATTRIBUTES.get(attribute, attribute)}")
    return _named(function, resolved.replace("torch.functional.", "torch."), resolved)


_ATTRIBUTES = {"T": "numpy_T", "H": "matrix_H"}


def _named(function: Any, *names: str) -> str | None:
    """The first of the names that is this function's, or the one that torch resolves it to."""
    resolved: str | None = torch.overrides.resolve_name(function)
    of_ops = f"torch.ops.{function}" if type(function).__module__.startswith("torch._ops") else ""
    for name in (*names, resolved or "", of_ops):
        if name.startswith("torch.") and _lookup(name) is function:
            return name
    return None


def _found(name: str) -> str | None:
    return name if _lookup(name) is not None else None


@lru_cache(maxsize=4096)
def _lookup(name: str) -> Any:
    try:
        return find(name)
    except (NoSuchCallable, NotAnOperator):
        return None


def _as_a_name(name: str) -> str:
    return name if name.startswith("torch.") else f"torch.{name}"


def _is_on_a_tensor(sample: Any) -> bool:
    return isinstance(sample.input, torch.Tensor)


def _is_binary(sample: Any) -> bool:
    return isinstance(sample.input, torch.Tensor) and len(sample.args) == 1 and not sample.kwargs
