"""Write a case as a Python script of torch calls, recorded while the backend's code makes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from optest.backends import Script, ScriptInput
from optest.backends.arguments import in_signature_order
from optest.spec import TestCase, contiguous_strides
from optest.spec.call_names import canonical
from optest.torch.calls.descriptors import CATEGORY
from optest.torch.calls.device_call import parse_case_call
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.calls.refusals import REFUSALS
from optest.torch.operators import TORCH_OPERATORS
from optest.torch.tensors import to_torch, torch_dtype


class Unwritable(ValueError):
    """Error for a call that cannot be written as a short expression."""


@dataclass(slots=True)
class _Call:
    """A recorded call: its text, the variable of its result ("" if that is no new value), and the variables it uses."""

    function: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    variable: str = ""
    changes: bool = False
    text: str = ""
    uses: frozenset[str] = frozenset()
    # Variables whose memory the call writes: a view and its base, if it writes through the view.
    changed: frozenset[str] = frozenset()


_READS_VALUE = (".__bool__()", ".__int__()", ".__float__()", ".__index__()", ".item()", ".tolist()")


@dataclass(slots=True)
class Recording:
    """Recorder of the torch calls that turn ``inputs`` into outputs; ``device`` replaces the device ``meta``."""

    inputs: dict[str, torch.Tensor]
    device: torch.device
    calls: list[_Call] = field(default_factory=list)
    _names: dict[int, str] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)

    def record(self, function: Callable[[], Any]) -> Any:
        """Call ``function`` without arguments, record its torch calls, and return its value."""
        for name, tensor in self.inputs.items():
            self._bind(tensor, name)
        with _Recorder(self):
            return function()

    def lines(self, outputs: Sequence[Any] | None) -> tuple[list[str], list[str]]:
        """Return the calls that ``outputs`` need (None: a call raised), and their expressions; or Unwritable."""
        expressions = [self.expression(output) for output in outputs or ()]
        if outputs is None and not self.calls:
            raise Unwritable("no torch call was made before the error")
        if outputs is None and self.calls[-1].text.endswith(_READS_VALUE):
            raise Unwritable(_DEPENDS_ON_VALUES)
        needed = [] if outputs is not None else [self.calls[-1]]
        used = {root for text in expressions for root in _roots(text)} | {use for call in needed for use in call.uses}
        for call in reversed(self.calls if outputs is not None else self.calls[:-1]):
            if call.variable in used or (call.changes and (call.uses | call.changed) & used):
                needed.append(call)
                used |= call.uses
        lines = [self._line(call) for call in reversed(needed)]
        if len(expressions) == 1 and lines and lines[-1].startswith(f"{expressions[0]} = "):
            return [*lines[:-1], f"out{lines[-1].removeprefix(expressions[0])}"], ["out"]
        return lines, expressions

    def expression(self, value: Any) -> str:
        """Return a Python expression for a value, tensors by name; raise Unwritable if it has no short one."""
        if isinstance(value, torch.Tensor):
            return self._named(value)
        if isinstance(value, torch.device):
            return f'torch.device("{self.device if value.type == "meta" else value}")'
        if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)) or value is None or value is Ellipsis:
            return repr(value) if value is not Ellipsis else "..."
        if isinstance(value, torch.Generator):
            fresh = torch.Generator(value.device).manual_seed(value.initial_seed())
            if not torch.equal(value.get_state(), fresh.get_state()):
                raise Unwritable("a random generator has drawn numbers before the call")
            return f'torch.Generator("{self.device}").manual_seed({value.initial_seed()})'
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return f"slice({', '.join(map(self.expression, parts))})"
        if isinstance(value, list):
            return f"[{', '.join(map(self.expression, value))}]"
        if isinstance(value, tuple):
            inside = ", ".join(map(self.expression, value))
            return f"({inside},)" if len(value) == 1 else f"({inside})"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if isinstance(value, (bool, int, float, complex, str)):
            return repr(value)
        raise Unwritable(f"an argument is a {type(value).__name__}, which has no short expression")

    def _line(self, call: _Call) -> str:
        if call.text == "":
            raise Unwritable(f"{call.function or 'a call'} has an argument that has no short expression")
        return f"{call.variable} = {call.text}" if call.variable else call.text

    def begin(self, function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> _Call:
        """Record a call before it runs: if it raises, or kills the process, it is the one that matters."""
        call = _Call(_public_name(function), arguments, options)
        # A call that cannot be written is an error only if the outputs need it, which is not known yet.
        with suppress(Unwritable):
            call.text, call.uses = self._text(call), frozenset(self._used((arguments, list(options.values()))))
        self.calls.append(call)
        return call

    def end(self, call: _Call, result: Any) -> None:
        """Complete a recorded call: name its new tensors, or note the changed ones; remove it if there are no such."""
        changed = [*call.arguments, *call.options.values()] if result is None else call.arguments[:1]
        call.changes = result is None or canonical(call.function).is_in_place or call.options.get("out") is not None
        tensors = [result] if isinstance(result, torch.Tensor) else _tensors_in(result)
        new = [tensor for tensor in tensors if id(tensor) not in self._names]
        if call.changes:
            call.changed = frozenset(self._aliases([*changed, call.options.get("out")]))
            return
        if not new:
            self.calls.pop()
            return
        call.variable = f"t{len(self._alive) - len(self.inputs)}"
        if isinstance(result, torch.Tensor):
            self._bind(result, call.variable)
            return
        self._alive.append(result)
        for index, tensor in enumerate(result):
            if isinstance(tensor, torch.Tensor) and id(tensor) not in self._names:
                self._names[id(tensor)] = f"{call.variable}[{index}]"

    def _bind(self, tensor: torch.Tensor, name: str) -> None:
        self._names[id(tensor)] = name
        # Keeps the tensor alive: otherwise another one could get its id.
        self._alive.append(tensor)

    def _aliases(self, values: Sequence[Any]) -> Iterable[str]:
        """Yield the variables of all tensors that share memory with a tensor among ``values`` or in their lists."""
        tensors = [x for value in values for x in _tensors_in(value if isinstance(value, list) else [value])]
        changed = {tensor.untyped_storage()._cdata for tensor in tensors}
        for known in self._alive:
            for tensor in [known] if isinstance(known, torch.Tensor) else _tensors_in(known):
                if tensor.untyped_storage()._cdata in changed:
                    yield from _roots(self._named(tensor))

    def _named(self, tensor: torch.Tensor) -> str:
        """Return a tensor's variable, or a literal for an unknown tensor of at most 16 elements."""
        name = self._names.get(id(tensor))
        if name is not None:
            return name
        if tensor.numel() > 16 or tensor.device.type == "meta":
            raise Unwritable("a tensor is neither an input nor the result of a recorded torch call")
        return f"torch.tensor({tensor.tolist()!r}, dtype={tensor.dtype})"

    def _used(self, value: Any) -> Iterable[str]:
        """Yield the variables of the tensors in nested tuples and lists."""
        if isinstance(value, torch.Tensor):
            yield from _roots(self._named(value))
        elif isinstance(value, (tuple, list)):
            for item in value:
                yield from self._used(item)

    def _text(self, call: _Call) -> str:
        """Return the call as Python: methods, subscripts and attributes as they are usually written."""
        if not call.function:
            raise Unwritable("a function of torch has no public name")
        arguments = [self.expression(argument) for argument in call.arguments]
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
    """Return the function's dotted path below ``torch``, "" if it has none."""
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{function}"
    # ``resolve_name`` does not know it.
    if function is torch.autograd.grad:
        return "torch.autograd.grad"
    name = resolve_name(function) or ""
    own_name = getattr(function, "__name__", "")
    # ``resolve_name`` knows only overridable functions, so not the one that ``torch.nn.functional.grouped_mm`` calls.
    if not name and own_name and getattr(torch, own_name, None) is function:
        name = f"torch.{own_name}"
    return name if name.startswith("torch.") else ""


class _Recorder(TorchFunctionMode):  # type: ignore[misc]  # torch is not followed
    """Mode that records each torch function call, before and after it runs."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        options = kwargs or {}
        call = self._recording.begin(func, args, options)
        result = func(*args, **options)
        self._recording.end(call, result)
        return result


def _tensors_in(result: Any) -> list[torch.Tensor]:
    return [item for item in result if isinstance(item, torch.Tensor)] if isinstance(result, (tuple, list)) else []


def _roots(expression: str) -> Iterable[str]:
    """Yield the variable of an expression: ``t3`` for ``t3[0]``, nothing for a literal."""
    name = expression.partition("[")[0]
    if name.isidentifier():
        yield name


_DEPENDS_ON_VALUES = "the calls depend on the values of a tensor"


def script_of(
    case: TestCase, inputs: Sequence[ScriptInput], target: DeviceUnderTest, *, may_run: bool, modules: Sequence[str]
) -> Script:
    """Return the script of a case: its torch calls or, if the target has a compiler, a compiled function of them.

    ``modules`` are imported in addition to torch. Unless ``may_run``, the calls are recorded on tensors without values,
    which starts no kernel.

    Raises:
        Inexpressible: for an input that torch cannot hold.
        Unwritable: for a call that has no short text, or a case with gradients.
    """
    if case.attributes.get("grad"):
        raise Unwritable("gradients are drawn and differentiated by optest")
    tensors = [_input_tensor(tensor, target.device, with_values=may_run) for tensor in inputs]
    names = [tensor.name for tensor in inputs]
    recording = Recording(dict(zip(names, tensors, strict=True)), target.device)
    if case.descriptor.category == CATEGORY:
        call = parse_case_call(case)
        lines, outputs = _record_lines(recording, lambda: call.on(tensors, target.device)())
    else:
        operator = TORCH_OPERATORS[case.descriptor.name]
        lines, outputs = _record_lines(recording, lambda: operator(in_signature_order(case, tensors), case.attributes))
    if target.compiler is not None:
        body = [*lines, f"return [{', '.join(outputs)}]"] if outputs else lines
        lines = [
            f"def call({', '.join(names)}):",
            *(f"    {line}" for line in body),
            f'call = torch.compile(call, backend="{target.compiler}", fullgraph=True)',
            f"outputs = call({', '.join(names)})",
        ]
        outputs = [f"outputs[{index}]" for index in range(len(outputs))]
        # torch knows another package's compiler only once its module is imported.
        backend = torch._dynamo.backends.registry.lookup_backend(target.compiler)
        module = str(getattr(backend, "__module__", "torch"))
        modules = modules if module.partition(".")[0] in ("torch", "functools") else (module, *modules)
    return Script(
        imports=("import torch", *(f"import {name}" for name in modules)),
        lines=[*(_load_line(tensor, target.device) for tensor in inputs), *lines],
        outputs=outputs,
        needs=("torch", *modules),
    )


def _input_tensor(source: ScriptInput, device: torch.device, *, with_values: bool) -> torch.Tensor:
    """Return an input as a tensor on the device, or as a ``meta`` tensor without values."""
    spec = source.spec
    if with_values:
        return to_torch(source.array, device, offset=spec.offset)
    strides = spec.strides or contiguous_strides(spec.shape)
    return torch.empty_strided(spec.shape, strides, dtype=torch_dtype(spec.dtype), device="meta")


def _load_line(source: ScriptInput, device: torch.device) -> str:
    """Return the line that loads an input: ``x = torch.from_numpy(saved["x.bfloat16"]).view(torch.bfloat16)``."""
    spec = source.spec
    text = f"{source.name} = torch.from_numpy({source.source})"
    if source.array.dtype.isbuiltin != 1:
        text += f".view({torch_dtype(spec.dtype)})"
    if device.type != "cpu":
        text += f'.to("{device}")'
    return text if spec.is_dense else f"{text}.as_strided({spec.shape}, {spec.strides}, {spec.offset})"


def _record_lines(recording: Recording, call: Callable[[], Any]) -> tuple[list[str], list[str]]:
    """Record ``call``; return its lines and an expression for each output, no expressions if torch refuses it."""
    try:
        with torch.no_grad():
            outputs = recording.record(call)
    except REFUSALS as error:
        # Kernels of ``meta`` tensors raise this if they would have to read elements.
        if isinstance(error, NotImplementedError) and any(tensor.is_meta for tensor in recording.inputs.values()):
            raise Unwritable(_DEPENDS_ON_VALUES) from None
        return recording.lines(None)
    return recording.lines(outputs if isinstance(outputs, (tuple, list)) else (outputs,))
