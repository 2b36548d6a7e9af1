"""What torch was asked for, written down as Python: the calls that a backend makes, by watching it make them.

So there is no second table of operators that could say something else than the backend does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from optest.spec.call_names import canonical

__all__ = ["Recording", "Unwritable"]


class Unwritable(ValueError):
    """Something in a call that no short expression stands for."""


@dataclass(slots=True)
class _Call:
    """One call; ``variable`` is "" while it has no result of its own."""

    function: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    variable: str = ""
    changes: bool = False
    text: str = ""
    uses: frozenset[str] = frozenset()


_ASKS_FOR_A_VALUE = (".__bool__()", ".__int__()", ".__float__()", ".__index__()", ".item()", ".tolist()")


@dataclass(slots=True)
class Recording:
    """The calls that turn ``inputs`` into outputs. ``device`` is written in place of that of ``meta`` tensors."""

    inputs: dict[str, torch.Tensor]
    device: torch.device
    calls: list[_Call] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)

    def record(self, function: Callable[[], Any]) -> Any:
        """Call ``function`` and write down what it asks torch for; what it raises is raised."""
        for name, tensor in self.inputs.items():
            self._bind(tensor, name)
        with _Watch(self):
            return function()

    def lines(self, outputs: Sequence[Any] | None) -> tuple[list[str], list[str]]:
        """The calls that ``outputs`` need, one line each, and an expression for each of them.

        None stands for a last call that raised; there are no expressions then.

        Raises:
            Unwritable: if an argument cannot be written as an expression.
        """
        expressions = [self.expression(each) for each in outputs or ()]
        if outputs is None and not self.calls:
            raise Unwritable("torch was not asked for anything before the error")
        if outputs is None and self.calls[-1].text.endswith(_ASKS_FOR_A_VALUE):
            raise Unwritable("which calls are made depends on values")
        needed = [] if outputs is not None else [self.calls[-1]]
        wanted = {root for each in expressions for root in _roots(each)} | {use for call in needed for use in call.uses}
        for call in reversed(self.calls if outputs is not None else self.calls[:-1]):
            if call.variable in wanted or (call.changes and call.uses & wanted):
                needed.append(call)
                wanted |= call.uses
        lines = [self._line(call) for call in reversed(needed)]
        if len(expressions) == 1 and lines and lines[-1].startswith(f"{expressions[0]} = "):
            return [*lines[:-1], f"out{lines[-1].removeprefix(expressions[0])}"], ["out"]
        return lines, expressions

    def expression(self, value: Any) -> str:
        """Python for a value, tensors by name.

        Raises:
            Unwritable: for what has no short text.
        """
        if isinstance(value, torch.Tensor):
            return self._named(value)
        if isinstance(value, torch.device):
            return f'torch.device("{self.device if value.type == "meta" else value}")'
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)) or value is None or value is Ellipsis:
            return repr(value) if value is not Ellipsis else "..."
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return f"slice({', '.join(self.expression(each) for each in parts)})"
        if isinstance(value, list):
            return f"[{', '.join(self.expression(each) for each in value)}]"
        if isinstance(value, tuple):
            inside = ", ".join(self.expression(each) for each in value)
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, (bool, int, float, complex, str)):
            return repr(value)
        raise Unwritable(f"an argument is a {type(value).__name__}, which no short expression stands for")

    def _line(self, call: _Call) -> str:
        if call.text == "":
            raise Unwritable(f"{call.function or 'a call'} has an argument that no short expression stands for")
        return f"{call.variable} = {call.text}" if call.variable else call.text

    def _begin(self, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> _Call:
        """Written before the call, since one that raises or kills is the one that matters."""
        call = _Call(_public_name(function), arguments, options)
        with suppress(Unwritable):  # said when it turns out that the call is needed
            call.text, call.uses = self._text(call), frozenset(self._used((arguments, list(options.values()))))
        self.calls.append(call)
        return call

    def _end(self, call: _Call, result: Any) -> None:
        """Name what came of it; what is no tensor is written as it stands into the calls that use it."""
        call.changes = canonical(call.function).is_in_place or "out" in call.options
        tensors = [result] if isinstance(result, torch.Tensor) else _tensors_in(result)
        new = [tensor for tensor in tensors if id(tensor) not in self._names]
        if call.changes:
            return
        if not new:
            self.calls.pop()  # facts about a tensor, or the same tensor again
            return
        call.variable = f"t{len(self._alive) - len(self.inputs)}"  # one for each result so far
        if isinstance(result, torch.Tensor):
            self._bind(result, call.variable)
            return
        self._alive.append(result)
        for place, tensor in enumerate(result):
            if isinstance(tensor, torch.Tensor) and id(tensor) not in self._names:
                self._names[id(tensor)] = f"{call.variable}[{place}]"

    def _bind(self, tensor: torch.Tensor, name: str) -> None:
        self._names[id(tensor)] = name
        self._alive.append(tensor)  # an address may be used again when its tensor is gone

    def _named(self, tensor: torch.Tensor) -> str:
        name = self._names.get(id(tensor))
        if name is not None:
            return name
        if tensor.numel() > 16 or tensor.device.type == "meta":
            raise Unwritable("a tensor came from somewhere else than a torch call")
        return f"torch.tensor({tensor.tolist()!r}, dtype={tensor.dtype})"

    def _used(self, value: Any) -> Iterable[str]:
        if isinstance(value, torch.Tensor):
            yield from _roots(self._named(value))
        elif isinstance(value, (tuple, list)):
            for each in value:
                yield from self._used(each)

    def _text(self, call: _Call) -> str:
        if not call.function:
            raise Unwritable("a function of torch has no public name")
        arguments = [self.expression(each) for each in call.arguments]
        options = [f"{name}={self.expression(value)}" for name, value in call.options.items()]
        method = call.function.removeprefix("torch.Tensor.")
        if method == call.function or not arguments:
            return f"{call.function}({', '.join([*arguments, *options])})"
        if method == "__getitem__":
            return f"{arguments[0]}[{arguments[1]}]"
        if method.endswith(".__get__"):
            return f"{arguments[0]}.{method.removesuffix('.__get__')}"
        if method == "__setitem__":
            return f"{arguments[0]}[{arguments[1]}] = {arguments[2]}"
        return f"{arguments[0]}.{method}({', '.join([*arguments[1:], *options])})"


def _public_name(function: Callable[..., Any]) -> str:
    """The path below ``torch`` by which anybody can call the function, "" if there is none."""
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{function}"
    name = resolve_name(function) or ""
    return name if name.startswith("torch.") else ""


class _Watch(TorchFunctionMode):  # type: ignore[misc]  # torch is not followed
    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        call = self._recording._begin(func, args, options)
        result = func(*args, **options)
        self._recording._end(call, result)
        return result


def _tensors_in(result: Any) -> list[torch.Tensor]:
    return [each for each in result if isinstance(each, torch.Tensor)] if isinstance(result, (tuple, list)) else []


def _roots(expression: str) -> Iterable[str]:
    """``t3`` for ``t3[0]``; nothing for a literal."""
    name = expression.partition("[")[0]
    if name.isidentifier():
        yield name
