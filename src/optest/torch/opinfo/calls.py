"""A sample of OpInfo as the text of a call: arguments as values, or the one call that a wrapper of torch's makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from optest.spec.calls import Call, Device, NotLiteral, TensorRef, TorchName, text_of
from optest.torch.calls.refusals import REFUSALS
from optest.torch.opinfo.variants import Variant, name_of
from optest.torch.tensors import copied

__all__ = ["Unstatable", "call_of", "first_line"]


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


def first_line(error: BaseException) -> str:
    """What an exception says, cut to a line."""
    return str(error).strip().partition("\n")[0][:200]


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
                raise Unstatable(f"OpInfo's own function refuses it on the CPU: {first_line(error)}") from None
    calls = recorder.calls
    if len(calls) != 1:
        names = ", ".join(dict.fromkeys(name_of(function) or "?" for function, _, _ in calls))
        raise Unstatable(
            f"OpInfo's function is no one call of torch, but {len(calls)}{f': {names[:200]}' if names else ''}"
        )
    function, args, kwargs = calls[0]
    name = name_of(function)
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
    if isinstance(value, torch.Tensor):
        if id(value) not in numbers:
            raise Unstatable(f"{what} is a tensor that is no part of the sample")
        return TensorRef(numbers[id(value)])
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return TorchName(str(value))
    if isinstance(value, torch.device):
        return Device(device if value.type == "cpu" else str(value))
    if isinstance(value, slice):
        return slice(*(_value(each, what, numbers, device) for each in (value.start, value.stop, value.step)))
    if isinstance(value, (list, range)):
        return [_value(each, what, numbers, device) for each in value]
    if type(value) in (tuple, torch.Size):
        return tuple([_value(each, what, numbers, device) for each in value])
    plain = value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
    if isinstance(plain, str) and plain == "cpu":
        return Device(device)
    try:
        text_of(plain)
    except (TypeError, NotLiteral):
        kind = type(value).__name__
        raise Unstatable(f"{what} is a {kind}{', which is called' * callable(value)}") from None
    return plain
