"""Dotted names to what torch calls so: functions, packets of ``torch.ops``, methods and operators of a tensor."""

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


def _setitem(target: Any, key: Any, value: Any) -> None:
    """The statement that models write; compilers trace it, but not ``operator.setitem``."""
    target[key] = value


def _operators_of_python() -> dict[str, Callable[..., Any]]:
    """What Python's module ``operator`` has and tensors take, by its names there: ``and_``, ``imul``, ``index``."""
    found: dict[str, Callable[..., Any]] = {"index": operator.index}
    for word in dir(operator):
        spelled = canonical(f"torch.{word}")
        is_taken = not spelled.is_in_place or hasattr(torch.Tensor, f"__{word}__")
        if not word.startswith("_") and spelled.operator in OPERATORS_OF_PYTHON and is_taken:
            found[word] = getattr(operator, word)
    return {**found, "setitem": _setitem}


_OPERATORS = _operators_of_python()
_OF_TENSORS = ("torch", "torch.Tensor")


class NoSuchCallable(LookupError):
    """A name that is nothing of torch's; the message proposes another one."""


class NotAnOperator(LookupError):
    """A name of torch's that computes nothing: a context manager, a setting, a call that logs."""


@lru_cache(maxsize=4096)
def find(name: str) -> Callable[..., Any]:
    """Return what ``torch.X.Y`` names: that itself, else the method ``torch.Tensor.Y``, else Python's operator ``Y``.

    ``torch.__eq__`` is the method of a tensor, though the module, too, can be compared.

    Raises:
        NoSuchCallable: if torch has nothing of that name.
        NotAnOperator: if it is no operator.
    """
    if wrong := misnamed(name):
        raise NoSuchCallable("; ".join(wrong))
    home, _, last = name.rpartition(".")
    if why := facts_of(name).no_operator:
        raise NotAnOperator(f"{name} {why}")
    is_of_tensors = home == "torch" and last.startswith("__")
    found = None if is_of_tensors and canonical(name).operator in OPERATORS_OF_PYTHON else _walk(name)
    if found is not None:
        if inspect.isclass(found):
            raise NotAnOperator(f"{name} is a class{' for with statements' * hasattr(found, '__enter__')}")
        if callable(found):
            _require_operator(name, found)
            return found  # type: ignore[no-any-return]
    if home in _OF_TENSORS:
        method = getattr(torch.Tensor, last, None)
        if callable(method):
            return method  # type: ignore[no-any-return]
        if last in _OPERATORS:
            return _OPERATORS[last]
    if found is not None:
        raise NotAnOperator(f"{name} is {type(found).__name__}, which cannot be called")
    raise NoSuchCallable(_unknown(name))


@lru_cache(maxsize=4096)
def constant(name: str) -> Any:
    """Return the dtype, layout, memory format or number that torch calls so.

    Raises:
        NoSuchCallable: if there is none; a function is no constant, so no file of cases can hand one to another.
    """
    try:
        found = _walk(name)
    except NotAnOperator:
        found = None
    if found is None or callable(found) or inspect.ismodule(found):
        raise NoSuchCallable(f"torch {torch.__version__} has no constant {name}")
    return found


def _walk(name: str) -> Any:
    found: Any = torch
    parts = name.split(".")[1:]
    if any(part.startswith("__") for part in parts[:-1]):
        return None
    try:
        for part in parts:
            if part.startswith("__") and not (found is torch.Tensor or (inspect.ismodule(found) and _is_of_ops(found))):
                return None  # ``torch.load.__call__`` would load, whoever refuses ``torch.load``
            if inspect.ismodule(found) and found.__name__ not in _HOLD_OPERATORS and not _is_of_ops(found):
                raise NotAnOperator(f"{name} is no operator: {found.__name__} holds none")
            found = getattr(found, part)
    except (AttributeError, RuntimeError):  # torch.ops raises what its loader raises
        return None
    return found


_HOLD_OPERATORS = (
    "torch", "torch.functional", "torch.nn", "torch.nn.functional", "torch.special", "torch.linalg", "torch.fft",
    "torch.sparse", "torch.nested", "torch.masked", "torch.signal", "torch.signal.windows", "torch._VF", "torch._C",
    "torch._C._nn", "torch._C._special", "torch._C._linalg", "torch._C._fft", "torch._C._sparse", "torch._C._nested",
    "torch._C._VariableFunctions",
)  # fmt: skip
"""Through other modules a file of cases would reach whatever they import: ``torch.os.system``."""


def _is_of_ops(module: Any) -> bool:
    return str(module.__name__).startswith("torch.ops") or module is torch.ops


def _require_operator(name: str, found: Any) -> None:
    """Refuse what is no operator though it stands beside them: a file of cases could load, save or set things.

    Raises:
        NotAnOperator: for such a function.
    """
    home, _, last = name.rpartition(".")
    if "from_file" in name.split("."):
        raise NotAnOperator(f"{name} opens a file and writes to it")
    if home.startswith("torch.ops.profiler"):
        raise NotAnOperator(f"{name} records what is called and computes nothing")
    if home.startswith("torch.ops") and not type(found).__module__.startswith("torch._ops"):
        raise NotAnOperator(f"{name} is no operator of torch.ops")
    has_to_be_listed = home == "torch._C" or (home == "torch" and inspect.isfunction(found))
    is_unlisted = has_to_be_listed and found not in _overridable()
    if is_unlisted or home == "torch.ops" or (home == "torch" and last == "import_ir_module"):
        raise NotAnOperator(f"{name} is no operator")
    if inspect.isbuiltin(found) and last.startswith("set_"):
        raise NotAnOperator(f"{name} sets something and computes nothing")
    if not str(getattr(found, "__module__", None) or "torch").startswith("torch"):
        raise NotAnOperator(f"{name} is not of torch's own")


@lru_cache(maxsize=1)
def _overridable() -> frozenset[Any]:
    """What torch takes for operators: what a tensor of another kind may do differently."""
    return frozenset(each for several in torch.overrides.get_overridable_functions().values() for each in several)


def _unknown(name: str) -> str:
    if canonical(name).is_foreign:
        # An operator of torch's that is called so is another one, so what is proposed is of the same namespace.
        namespace, _, word = canonical(name).operator.partition("::")
        near = nearest(word, sorted(_registered(namespace)))
        meant = f"; did you mean torch.ops.{namespace}.{near}?" if near and near != word else f"; {_OF_ONES_OWN}"
        return f"torch {torch.__version__} has no {name}{meant}"
    home, _, last = name.rpartition(".")
    owner = _walk(home) if home != "torch" else torch
    if owner is None:
        listed = (*_listed("torch.nn.functional"), *_listed("torch.linalg"), *_listed("torch.special"))
        return f"torch {torch.__version__} has no {home}" + did_you_mean(name, listed, text="; did you mean {}?")
    known = {each for each in dir(owner) if not each.startswith("_")}
    if home in _OF_TENSORS:
        known |= {each for each in dir(torch.Tensor) if not each.startswith("_")} | _OPERATORS.keys()
    if home.startswith("torch.ops."):
        known = _registered(home.removeprefix("torch.ops."))
    near = nearest(last, sorted(known))
    elsewhere = next((each for each in _HOMES if each != home and hasattr(_walk(each), last)), None)
    hint = f"{elsewhere}.{last}" if elsewhere else f"{home}.{near}" if near else None
    return f"torch {torch.__version__} has no {name}" + (f"; did you mean {hint}?" if hint else "")


def _registered(namespace: str) -> set[str]:
    """The operators of ``torch.ops.NAMESPACE``, whose attributes are made as they are asked for."""
    names = (name.partition("::") for name in torch._C._dispatch_get_all_op_names())
    return {last.partition(".")[0] for home, _, last in names if home == namespace}


_OF_ONES_OWN = "an operator of one's own is known where OPTEST_PLUGINS names the module that registers it"


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


# How many operators torch has, so that a run can say which share of them it asked for.
#
# torch itself lists what a tensor of another kind has to answer (``torch.overrides``); a function, its method and its
# in-place form are one operator: ``torch.add``, ``torch.Tensor.add``, ``torch.add_`` and ``+``.


def declared_operators(names: Iterable[str]) -> tuple[int, list[str]]:
    """The number of torch's operators, and which of these names are not among them (those that make tensors of
    nothing, operators of ``torch.ops`` that are no aten ones)."""
    known = _known()
    return len(known), sorted(name for name in names if canonical(name).operator not in known)


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    listed = torch.overrides.get_overridable_functions()
    return frozenset(
        name
        for home, functions in listed.items()
        if inspect.ismodule(home) or home is torch.Tensor
        for name in (canonical(f"torch.{getattr(function, '__name__', '')}").operator for function in functions)
        if name and name != "get"  # of a property
    )
