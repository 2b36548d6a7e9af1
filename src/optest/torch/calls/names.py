"""Look up dotted torch names: functions, packets of ``torch.ops``, and methods and operators of a tensor."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import torch

from optest.errors import did_you_mean, nearest
from optest.spec.call_names import OPERATORS_OF_PYTHON, canonical, misnamed
from optest.torch.fact_sheet import facts_of


# Compilers trace this statement, but not ``operator.setitem``.
def _setitem(target: Any, key: Any, value: Any) -> None:
    target[key] = value


def _operators_of_python() -> dict[str, Callable[..., Any]]:
    """Return the functions of Python's module ``operator`` that tensors support, by name: ``and_``, ``imul``."""
    functions: dict[str, Callable[..., Any]] = {"index": operator.index}
    for word in dir(operator):
        spelled = canonical(f"torch.{word}")
        is_supported = not spelled.is_in_place or hasattr(torch.Tensor, f"__{word}__")
        if not word.startswith("_") and spelled.operator in OPERATORS_OF_PYTHON and is_supported:
            functions[word] = getattr(operator, word)
    return {**functions, "setitem": _setitem}


_OPERATORS = _operators_of_python()
_TENSOR_MODULES = ("torch", "torch.Tensor")
# Modules in which a close name is searched.
_HOMES = (
    "torch", "torch.nn.functional", "torch.Tensor", "torch.special", "torch.linalg", "torch.fft", "torch.ops.aten",
)  # fmt: skip
# Other modules would give a case file access to everything that they import: ``torch.os.system``.
_OPERATOR_MODULES = (
    "torch", "torch.functional", "torch.nn", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft",
    "torch.sparse", "torch.nested", "torch.masked", "torch.signal", "torch.signal.windows", "torch._VF", "torch._C",
    "torch._C._nn", "torch._C._special", "torch._C._linalg", "torch._C._fft", "torch._C._sparse", "torch._C._nested",
    "torch._C._VariableFunctions",
)  # fmt: skip


class NoSuchCallable(LookupError):
    """Error for a name that torch does not have; the message proposes another one."""


class NotAnOperator(LookupError):
    """Error for a torch name that is no operator: a context manager, a setting, a function that logs."""


@lru_cache(maxsize=4096)
def find_callable(name: str) -> Callable[..., Any]:
    """Return the callable ``torch.X.Y``, else the method ``torch.Tensor.Y``, else Python's operator ``Y``.

    Raises:
        NoSuchCallable: if torch has nothing of that name.
        NotAnOperator: if it is no operator.
    """
    if wrong := misnamed(name):
        raise NoSuchCallable("; ".join(wrong))
    home, _, last = name.rpartition(".")
    if why := facts_of(name).no_operator:
        raise NotAnOperator(f"{name} {why}")
    # torch.__eq__ means the method of a tensor, not that of the module.
    is_special = home == "torch" and last.startswith("__")
    value = None if is_special and canonical(name).operator in OPERATORS_OF_PYTHON else _resolve(name)
    if value is not None:
        if inspect.isclass(value):
            raise NotAnOperator(f"{name} is a class{' for with statements' * hasattr(value, '__enter__')}")
        if callable(value):
            _require_operator(name, value)
            return value  # type: ignore[no-any-return]
    if home in _TENSOR_MODULES:
        method = getattr(torch.Tensor, last, None)
        if callable(method):
            return method  # type: ignore[no-any-return]
        if last in _OPERATORS:
            return _OPERATORS[last]
    if value is not None:
        raise NotAnOperator(f"{name} is {type(value).__name__}, which cannot be called")
    raise NoSuchCallable(_unknown_name_message(name))


@lru_cache(maxsize=4096)
def constant(name: str) -> Any:
    """Return the dtype, layout, memory format or number of that torch name.

    Raises:
        NoSuchCallable: if torch has no such constant; functions and modules are none.
    """
    try:
        value = _resolve(name)
    except NotAnOperator:
        value = None
    # A case file must not pass one function to another.
    if value is None or callable(value) or inspect.ismodule(value):
        raise NoSuchCallable(f"torch {torch.__version__} has no constant {name}")
    return value


def _resolve(name: str) -> Any:
    """Return the object of a dotted name; None if it does not exist, or has special names outside Tensor and torch.ops.

    Raises:
        NotAnOperator: if the name leads through a module that holds no operators.
    """
    value: Any = torch
    parts = name.split(".")[1:]
    if any(part.startswith("__") for part in parts[:-1]):
        return None
    try:
        for part in parts:
            is_ops = value is torch.ops or (inspect.ismodule(value) and value.__name__.startswith("torch.ops"))
            if part.startswith("__") and value is not torch.Tensor and not is_ops:
                return None  # ``torch.load.__call__`` would load a file although ``torch.load`` is refused
            if inspect.ismodule(value) and value.__name__ not in _OPERATOR_MODULES and not is_ops:
                raise NotAnOperator(f"{name} is no operator: {value.__name__} contains none")
            value = getattr(value, part)
    except (AttributeError, RuntimeError):  # torch.ops passes on RuntimeError of its loader
        return None
    return value


def _require_operator(name: str, function: Any) -> None:
    """Raise NotAnOperator if a function of torch's operator modules loads, saves, sets or imports instead."""
    home, _, last = name.rpartition(".")
    if "from_file" in name.split("."):
        raise NotAnOperator(f"{name} opens a file and writes to it")
    if home.startswith("torch.ops.profiler"):
        raise NotAnOperator(f"{name} records calls and computes nothing")
    if home.startswith("torch.ops") and not type(function).__module__.startswith("torch._ops"):
        raise NotAnOperator(f"{name} is no operator of torch.ops")
    has_to_be_listed = home == "torch._C" or (home == "torch" and inspect.isfunction(function))
    is_unlisted = has_to_be_listed and function not in _overridable()
    if is_unlisted or home == "torch.ops" or (home == "torch" and last == "import_ir_module"):
        raise NotAnOperator(f"{name} is no operator")
    if inspect.isbuiltin(function) and last.startswith("set_"):
        raise NotAnOperator(f"{name} changes a setting and computes nothing")
    if not str(getattr(function, "__module__", None) or "torch").startswith("torch"):
        raise NotAnOperator(f"{name} is not defined by torch")


@lru_cache(maxsize=1)
def _overridable() -> frozenset[Any]:
    """Return the functions that a tensor subclass can override, which are torch's operators."""
    return frozenset(function for group in torch.overrides.get_overridable_functions().values() for function in group)


def _unknown_name_message(name: str) -> str:
    """Return "torch VERSION has no NAME" with the closest existing name, or how to register a user-defined operator."""
    if canonical(name).is_foreign:
        # Propose names of the same namespace only: an aten operator of that name is another operator.
        namespace, _, word = canonical(name).operator.partition("::")
        near = nearest(word, sorted(_registered(namespace)))
        advice = f"did you mean torch.ops.{namespace}.{near}?"
        if not near or near == word:
            advice = "for a user-defined operator, set OPTEST_PLUGINS to the module that registers it"
        return f"torch {torch.__version__} has no {name}; {advice}"
    home, _, last = name.rpartition(".")
    owner = _resolve(home) if home != "torch" else torch
    if owner is None:
        modules = ("torch.nn.functional", "torch.linalg", "torch.special")
        listed = [f"{module}.{word}" for module in modules for word in sorted(_public_names(_resolve(module)))]
        return f"torch {torch.__version__} has no {home}" + did_you_mean(name, listed, text="; did you mean {}?")
    known = _public_names(owner)
    if home in _TENSOR_MODULES:
        known |= _public_names(torch.Tensor) | _OPERATORS.keys()
    if home.startswith("torch.ops."):
        known = _registered(home.removeprefix("torch.ops."))
    near = nearest(last, sorted(known))
    elsewhere = next((module for module in _HOMES if module != home and hasattr(_resolve(module), last)), None)
    hint = f"{elsewhere}.{last}" if elsewhere else f"{home}.{near}" if near else None
    return f"torch {torch.__version__} has no {name}" + (f"; did you mean {hint}?" if hint else "")


# dir(torch.ops.NAMESPACE) lists only the operators that have been used.
def _registered(namespace: str) -> set[str]:
    names = (name.partition("::") for name in torch._C._dispatch_get_all_op_names())
    return {last.partition(".")[0] for home, _, last in names if home == namespace}


def _public_names(owner: Any) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def declared_operators(names: Iterable[str]) -> tuple[int, list[str]]:
    """Return the number of torch's operators, and those of ``names`` that are not among them: operators that create
    tensors, and those of ``torch.ops`` outside aten.
    """
    known = _overridable_operators()
    return len(known), sorted(name for name in names if canonical(name).operator not in known)


# A function, its method and its in-place form are one operator: torch.add, torch.Tensor.add, torch.add_ and +.
@lru_cache(maxsize=1)
def _overridable_operators() -> frozenset[str]:
    listed = torch.overrides.get_overridable_functions()
    return frozenset(
        name
        for home, functions in listed.items()
        if inspect.ismodule(home) or home is torch.Tensor
        for name in (canonical(f"torch.{getattr(function, '__name__', '')}").operator for function in functions)
        if name and name != "get"  # of a property
    )
