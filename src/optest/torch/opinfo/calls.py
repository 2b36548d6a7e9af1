"""A sample of OpInfo as the text of a call, in each form that the operator has: function, method, in place, sign."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from optest.spec.calls import Call, Device, NotLiteral, TensorRef, text_of
from optest.torch.calls.call import values_of_call
from optest.torch.calls.names import NoSuchCallable, NotAnOperator, find
from optest.torch.calls.refusals import REFUSALS, first_line
from optest.torch.tensors import copied


class Unstatable(ValueError):
    """Something that no call as text can say; the message says what."""


def call_of(
    variant: Variant, info: Any, sample: Any, tensors: Sequence[torch.Tensor], device: str, *, is_refused: bool = False
) -> Call:
    """The call that this form of an operator is on a sample; ``device`` stands for the CPU that it was made on.

    Raises:
        Unstatable: for an argument that is no value, or an OpInfo whose function makes none or several calls of torch.
    """
    if variant.is_recorded:
        return _recorded(info.op, sample, tensors, device, is_refused=is_refused)
    numbers = {id(tensor): index for index, tensor in enumerate(tensors)}
    return _call(variant.function, (sample.input, *sample.args), sample.kwargs, numbers, device)


def _recorded(
    wrapper: Callable[..., Any], sample: Any, tensors: Sequence[torch.Tensor], device: str, *, is_refused: bool
) -> Call:
    """The one call of torch that ``wrapper`` makes of a sample: OpInfo puts arguments in another order so.

    With ``is_refused`` torch may raise in that call.
    """
    recorder, copies = _Recorder(), {id(tensor): copied(tensor.detach()) for tensor in tensors}
    given = sample.transform(lambda value: copies.get(id(value), value))
    recorder.originals = {id(copy): copy for copy in copies.values()}
    with torch.no_grad(), recorder:
        try:
            wrapper(given.input, *given.args, **given.kwargs)
        except REFUSALS as error:
            if not (is_refused and recorder.is_refused):
                raise Unstatable(f"OpInfo's own function refuses it on the CPU: {first_line(error)[:200]}") from None
    calls = recorder.calls
    if len(calls) != 1:
        names = ", ".join(dict.fromkeys(_name_of(function) or "?" for function, _, _ in calls))
        raise Unstatable(
            f"OpInfo's function is no one call of torch, but {len(calls)}{f': {names[:200]}' if names else ''}"
        )
    function, args, kwargs = calls[0]
    name = _name_of(function)
    if name is None:
        raise Unstatable(f"OpInfo's function calls {getattr(function, '__qualname__', function)}, which has no name")
    numbers = {id(copy): index for index, copy in enumerate(copies.values())}
    numbers |= {key: numbers[id(original)] for key, original in recorder.originals.items()}
    return _call(name, args, kwargs, numbers, device)


class _Recorder(TorchFunctionMode):  # type: ignore[misc] # torch leaves it without types
    """Notes every call of torch that computes; calls within calls are not seen. A first copy of a tensor of the
    sample is that tensor: ``originals`` holds both by their identity.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []
        self.originals: dict[int, torch.Tensor] = {}
        self.is_refused = False
        """Whether the last of the calls raised."""
        self._kept: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = (func, args, kwargs or {})
        try:
            result = func(*args, **call[2])
        except BaseException:
            self.calls.append(call)
            self.is_refused = True
            raise
        self._kept.append(result)  # or another tensor might get its identity
        if func is torch.Tensor.clone and not self.calls and id(args[0]) in self.originals:
            self.originals[id(result)] = self.originals[id(args[0])]
        elif not _is_beside_the_call(getattr(func, "__name__", ""), result):
            self.calls.append(call)
        return result


def _is_beside_the_call(name: str, result: Any) -> bool:
    """Whether a call looks after random numbers, or asks for an attribute that is no tensor."""
    return "rng_state" in name or "seed" in name or (name == "__get__" and not isinstance(result, torch.Tensor))


def _call(
    function: str, args: Sequence[Any], kwargs: Mapping[str, Any], numbers: Mapping[int, int], device: str
) -> Call:
    stated = [_value(value, f"argument {place}", numbers, device) for place, value in enumerate(args)]
    named = {name: _value(value, name, numbers, device) for name, value in kwargs.items()}
    return Call(function, tuple(stated), named)


def _value(value: Any, what: str, numbers: Mapping[int, int], device: str) -> Any:
    """A value of a call.

    Raises:
        Unstatable: for anything else.
    """

    def leaf(each: Any) -> Any:
        if isinstance(each, torch.Tensor):
            if id(each) not in numbers:
                raise Unstatable(f"{what} is a tensor that is no part of the sample")
            return TensorRef(numbers[id(each)])
        if isinstance(each, torch.device):
            return Device(device if each.type == "cpu" else str(each))
        if isinstance(each, str) and each == "cpu":
            return Device(device)
        if isinstance(each, range):
            return list(each)
        try:
            text_of(each)
        except (TypeError, NotLiteral):
            raise Unstatable(f"{what} is a {type(each).__name__}{', which is called' * callable(each)}") from None
        return each

    return values_of_call(value, leaf)


# The forms in which OpInfo has an operator, function, method, in place, Python's operator, by their names in torch.


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
    found = [Variant(function=own or f"torch.{info.name.removeprefix('torch.')}", is_recorded=own is None)]
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


def _name_of(function: Any) -> str | None:
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


def _is_on_a_tensor(sample: Any) -> bool:
    return isinstance(sample.input, torch.Tensor)


def _is_binary(sample: Any) -> bool:
    return isinstance(sample.input, torch.Tensor) and len(sample.args) == 1 and not sample.kwargs
