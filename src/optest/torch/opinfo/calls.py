"""Write a sample of OpInfo as a call, in each variant of the operator: function, method, in-place method, operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from optest.spec.calls import Call, Device, NotLiteral, TensorRef, text_of
from optest.torch.calls.call import values_of_call
from optest.torch.calls.names import NoSuchCallable, NotAnOperator, find_callable
from optest.torch.calls.refusals import REFUSALS, first_line
from optest.torch.tensors import strided_copy


class Unwritable(ValueError):
    """Error for a sample that cannot be written as a call; the message is the reason."""


def call_of(
    variant: Variant, info: Any, sample: Any, tensors: Sequence[torch.Tensor], device: str, *, is_refused: bool = False
) -> Call:
    """Return the call of a variant on a sample, on ``device``; raise Unwritable if it is not one call with literals."""
    if variant.is_recorded:
        return _record_call(info.op, sample, tensors, device, is_refused=is_refused)
    numbers = {id(tensor): index for index, tensor in enumerate(tensors)}
    return _literal_call(variant.function, (sample.input, *sample.args), sample.kwargs, numbers, device)


def _record_call(
    wrapper: Callable[..., Any], sample: Any, tensors: Sequence[torch.Tensor], device: str, *, is_refused: bool
) -> Call:
    """Return the one torch call that OpInfo's ``wrapper`` makes for a sample, which may raise if ``is_refused``."""
    recorder, copies = _Recorder(), {id(tensor): strided_copy(tensor.detach()) for tensor in tensors}
    copy = sample.transform(lambda value: copies.get(id(value), value))
    recorder.originals = {id(tensor): tensor for tensor in copies.values()}
    with torch.no_grad(), recorder:
        try:
            wrapper(copy.input, *copy.args, **copy.kwargs)
        except REFUSALS as error:
            if not (is_refused and recorder.is_refused):
                raise Unwritable(f"OpInfo's function raises on the CPU: {first_line(error)[:200]}") from None
    calls = recorder.calls
    if len(calls) != 1:
        names = ", ".join(dict.fromkeys(_dotted_name(function) or "?" for function, _, _ in calls))
        listed = f": {names[:200]}" if names else ""
        raise Unwritable(f"OpInfo's function makes {len(calls)} torch calls, expected 1{listed}")
    function, args, kwargs = calls[0]
    name = _dotted_name(function)
    if name is None:
        name = getattr(function, "__qualname__", function)
        raise Unwritable(f"OpInfo's function calls {name}, which torch does not export by name")
    numbers = {id(tensor): index for index, tensor in enumerate(copies.values())}
    numbers |= {key: numbers[id(original)] for key, original in recorder.originals.items()}
    return _literal_call(name, args, kwargs, numbers, device)


class _Recorder(TorchFunctionMode):  # type: ignore[misc] # torch leaves it without types
    """Recorder of the torch calls that compute, without calls within calls.

    ``originals`` maps ids to tensors of the sample. A clone of one before the first call counts as the tensor itself,
    because wrappers clone their input before they call an in-place function.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any]] = []
        self.originals: dict[int, torch.Tensor] = {}
        # The last call raised.
        self.is_refused = False
        self._kept: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = (func, args, kwargs or {})
        try:
            result = func(*args, **call[2])
        except BaseException:
            self.calls.append(call)
            self.is_refused = True
            raise
        # Keeps the result alive, or another tensor might get its id.
        self._kept.append(result)
        if func is torch.Tensor.clone and not self.calls and id(args[0]) in self.originals:
            self.originals[id(result)] = self.originals[id(args[0])]
            return result
        # Calls that only handle the random state, or read an attribute that is no tensor, compute nothing.
        name = getattr(func, "__name__", "")
        is_attribute = name == "__get__" and not isinstance(result, torch.Tensor)
        if not is_attribute and "rng_state" not in name and "seed" not in name:
            self.calls.append(call)
        return result


def _literal_call(
    function: str, args: Sequence[Any], kwargs: Mapping[str, Any], numbers: Mapping[int, int], device: str
) -> Call:
    positional = [_literal_value(value, f"argument {index}", numbers, device) for index, value in enumerate(args)]
    named = {name: _literal_value(value, name, numbers, device) for name, value in kwargs.items()}
    return Call(function, tuple(positional), named)


def _literal_value(value: Any, argument: str, numbers: Mapping[int, int], device: str) -> Any:
    """Return an argument with tensors by number, the CPU as ``device``, the rest as literals, or raise Unwritable."""

    def leaf(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            if id(item) not in numbers:
                raise Unwritable(f"{argument} is a tensor that is not part of the sample")
            return TensorRef(numbers[id(item)])
        if isinstance(item, torch.device):
            return Device(device if item.type == "cpu" else str(item))
        if isinstance(item, str) and item == "cpu":
            return Device(device)
        if isinstance(item, range):
            return list(item)
        try:
            text_of(item)
        except (TypeError, NotLiteral):
            kind = f"callable ({type(item).__name__})" if callable(item) else type(item).__name__
            raise Unwritable(f"{argument} is a {kind}, expected a literal or a tensor") from None
        return item

    return values_of_call(value, leaf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A form of an operator: function, method, in-place, Python's operator; ``takes(sample)`` is whether it exists."""

    function: str
    kind: str = "function"
    ending: str = ""
    is_recorded: bool = False
    takes: Callable[[Any], bool] = lambda _: True


def variants_of(info: Any) -> list[Variant]:
    """Return the variants of an operator that differ, the function first."""
    names = (f"torch.{info.name}", info.name, *(f"torch.{alias.name}" for alias in info.aliases))
    function_name = _first_name(info.op, *names)
    fallback = f"torch.{info.name.removeprefix('torch.')}"
    variants = [Variant(function=function_name or fallback, is_recorded=function_name is None)]
    used = {function_name}
    for kind, function, name, takes in (
        ("method", info.method_variant, "torch.Tensor.{}", _is_on_a_tensor),
        ("inplace", info.inplace_variant, "torch.Tensor.{}", _is_on_a_tensor),
        ("operator", info.operator_variant, "torch.Tensor.__{}__", _has_two_operands),
        ("inplace_operator", info.inplace_operator_variant, "torch.{}", _has_two_operands),
    ):
        if not hasattr(function, "__name__"):
            # OpInfo has no such variant, or an anonymous function of torch's tests.
            continue
        path = name.format(function.__name__.strip("_") if kind == "operator" else function.__name__)
        variant_name = _existing(path) if kind == "operator" else _first_name(function, path)
        if variant_name is not None and variant_name not in used:
            used.add(variant_name)
            variants.append(Variant(function=variant_name, kind=kind, ending=f".{kind}", takes=takes))
    return variants


def _dotted_name(function: Any) -> str | None:
    """Return the dotted name of a torch function, for a tensor's attribute that of its aten operator; else None."""
    resolved: str | None = torch.overrides.resolve_name(function)
    if resolved is None:
        return None
    if resolved.endswith(".__get__"):
        attribute = str(resolved).split(".")[-2]
        return _existing(f"torch.ops.aten.{_ATTRIBUTES.get(attribute, attribute)}")
    return _first_name(function, resolved.replace("torch.functional.", "torch."), resolved)


_ATTRIBUTES = {"T": "numpy_T", "H": "matrix_H"}


def _first_name(function: Any, *names: str) -> str | None:
    """Return the first name that refers to the function: of ``names``, torch's resolved one, its ``torch.ops`` path."""
    resolved: str | None = torch.overrides.resolve_name(function)
    of_ops = f"torch.ops.{function}" if type(function).__module__.startswith("torch._ops") else ""
    for name in (*names, resolved or "", of_ops):
        if name.startswith("torch.") and _find_or_none(name) is function:
            return name
    return None


def _existing(name: str) -> str | None:
    return name if _find_or_none(name) is not None else None


@lru_cache(maxsize=4096)
def _find_or_none(name: str) -> Any:
    """Return the callable of that dotted name, None if torch has no such operator."""
    try:
        return find_callable(name)
    except (NoSuchCallable, NotAnOperator):
        return None


def _is_on_a_tensor(sample: Any) -> bool:
    return isinstance(sample.input, torch.Tensor)


def _has_two_operands(sample: Any) -> bool:
    return isinstance(sample.input, torch.Tensor) and len(sample.args) == 1 and not sample.kwargs
