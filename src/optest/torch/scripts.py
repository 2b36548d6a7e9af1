"""Lines of Python that make what a backend made, for a person without optest: recorded while torch makes it.

So there is no second table of operators that could say something else than the backend does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from optest.backends import Script, ScriptInput
from optest.backends.arguments import at_their_places
from optest.numerics import Array
from optest.spec import TestCase, contiguous_strides
from optest.spec.call_names import canonical
from optest.torch.calls.call import TorchCall
from optest.torch.calls.descriptors import CATEGORY
from optest.torch.calls.device_call import call_of
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.calls.gradients import differentiated, upstream_gradients
from optest.torch.calls.refusals import REFUSALS
from optest.torch.operators import TORCH_OPERATORS
from optest.torch.tensors import to_torch, torch_dtype


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
    changed: frozenset[str] = frozenset()
    """Variables in the memory that it writes: of what is changed through a view, the view and its base."""


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
        used = {root for each in expressions for root in _roots(each)} | {use for call in needed for use in call.uses}
        for call in reversed(self.calls if outputs is not None else self.calls[:-1]):
            if call.variable in used or (call.changes and (call.uses | call.changed) & used):
                needed.append(call)
                used |= call.uses
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
        if isinstance(value, torch.Generator):
            fresh = torch.Generator(value.device).manual_seed(value.initial_seed())
            if not torch.equal(value.get_state(), fresh.get_state()):
                raise Unwritable("a generator has drawn before")
            return f'torch.Generator("{self.device}").manual_seed({value.initial_seed()})'
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
        changed = [*call.arguments, *call.options.values()] if result is None else call.arguments[:1]
        call.changes = result is None or canonical(call.function).is_in_place or call.options.get("out") is not None
        tensors = [result] if isinstance(result, torch.Tensor) else _tensors_in(result)
        new = [tensor for tensor in tensors if id(tensor) not in self._names]
        if call.changes:
            call.changed = frozenset(self._aliases([*changed, call.options.get("out")]))
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

    def _aliases(self, values: Sequence[Any]) -> Iterable[str]:
        tensors = [each for value in values for each in _tensors_in(value if isinstance(value, list) else [value])]
        changed = {each.untyped_storage()._cdata for each in tensors}
        for known in self._alive:
            for tensor in [known] if isinstance(known, torch.Tensor) else _tensors_in(known):
                if tensor.untyped_storage()._cdata in changed:
                    yield from _roots(self._named(tensor))

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
    if function is torch.autograd.grad:  # torch does not list it
        return "torch.autograd.grad"
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


# A case as a script: its calls as they stand or, compiled or differentiated, in a function.


_WIDTH = 110
_MOST_LINES = 4
"""Of the function that makes the call; more are written several to a line."""


def script_of(
    case: TestCase, inputs: Sequence[ScriptInput], target: DeviceUnderTest, *, may_run: bool, modules: Sequence[str]
) -> Script:
    """The torch calls of a case; ``modules`` are those that have to be imported beside torch.

    Where nothing may run, they are made on tensors without values, which starts no kernel.

    Raises:
        Inexpressible, Unwritable: for what torch has no tensor for, or no short text.
        Fault: UNSUPPORTED where torch gives no gradient.
    """
    tensors = [_tensor(each, target.device, with_values=may_run) for each in inputs]
    names = [each.name for each in inputs]
    recording = Recording(dict(zip(names, tensors, strict=True)), target.device)
    back: _Back | None = None
    if case.descriptor.category != CATEGORY:
        operator = TORCH_OPERATORS[case.descriptor.name]
        lines, outputs = _recorded(recording, lambda: operator(at_their_places(case, tensors), case.attributes))
    else:
        call = call_of(case)
        back = _Back.of(call, inputs, tensors, target) if case.attributes.get("grad") else None
        lines, outputs = _recorded(
            recording, lambda: call.on(call.changeable(tensors) if back else tensors, target.device)()
        )
    if back is None and target.compiler is None:
        return _script(inputs, target, lines, outputs, modules)
    function = [f"def call({', '.join(names)}):", *_body(lines, outputs)]
    if target.compiler is not None:
        function.append(f'call = torch.compile(call, backend="{target.compiler}", fullgraph=True)')
        # Torch knows other compilers than its own only once their module is imported.
        backend = torch._dynamo.backends.registry.lookup_backend(target.compiler)
        module = str(getattr(backend, "__module__", "torch"))
        modules = modules if module.partition(".")[0] in ("torch", "functools") else (module, *modules)
    function += [f"outputs = call({', '.join(names)})", *(back.lines(names) if back else ())]
    results = [f"outputs[{place}]" for place in range(len(outputs))]
    if back and results:
        results += back.expressions(names)
    return _script(inputs, target, function, results, modules, back)


def _script(
    inputs: Sequence[ScriptInput],
    target: DeviceUnderTest,
    lines: Sequence[str],
    outputs: Sequence[str],
    modules: Sequence[str],
    back: _Back | None = None,
) -> Script:
    loaded = [
        f"{_loaded(each, target.device)}{'.requires_grad_()' if back and place in back.differentiated_inputs else ''}"
        for place, each in enumerate(inputs)
    ]
    return Script(
        imports=("import torch", *(f"import {name}" for name in modules)),
        lines=[*loaded, *lines],
        outputs=outputs,
        needs=("torch", *modules),
        arrays=back.arrays() if back else {},
    )


def _tensor(each: ScriptInput, device: torch.device, *, with_values: bool) -> torch.Tensor:
    if with_values:
        return to_torch(each.array, device, offset=each.spec.offset)
    strides = each.spec.strides or contiguous_strides(each.spec.shape)
    return torch.empty_strided(each.spec.shape, strides, dtype=torch_dtype(each.spec.dtype), device="meta")


def _loaded(each: ScriptInput, device: torch.device) -> str:
    """``input0 = torch.from_numpy(saved["input0.bfloat16"]).view(torch.bfloat16)`` and so on."""
    spec = each.spec
    text = f"{each.name} = torch.from_numpy({each.source})"
    if each.array.dtype.isbuiltin != 1:
        text += f".view({torch_dtype(spec.dtype)})"
    if device.type != "cpu":
        text += f'.to("{device}")'
    return text if spec.is_dense else f"{text}.as_strided({spec.shape}, {spec.strides}, {spec.offset})"


def _recorded(recording: Recording, make: Callable[[], Any]) -> tuple[list[str], list[str]]:
    """The lines of what is made, and an expression for each of its results; none if it raises."""
    try:
        with torch.no_grad():
            made = recording.record(make)
    except REFUSALS as error:
        if isinstance(error, NotImplementedError) and any(each.is_meta for each in recording.inputs.values()):
            raise Unwritable("which calls are made depends on values") from None
        return recording.lines(None)
    return recording.lines(made if isinstance(made, (tuple, list)) else (made,))


def _body(lines: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """The lines of a function that returns what they make, unless they raise."""
    found = [*lines, f"return [{', '.join(outputs)}]"] if outputs else list(lines)
    while len(found) > _MOST_LINES and (
        pairs := [n for n in range(1, len(found)) if len(found[n - 1] + found[n]) < _WIDTH]
    ):
        place = min(pairs, key=lambda each: len(found[each - 1] + found[each]))
        found[place - 1 : place + 1] = [f"{found[place - 1]}; {found[place]}"]
    return [f"    {line}" for line in found]


class _Back:
    """The way back: which outputs it begins at, which inputs it ends at, and what comes from above."""

    def __init__(
        self, above: Mapping[int, Array], gradients: Mapping[int, torch.Tensor | None], dtypes: Mapping[int, str]
    ) -> None:
        self._above, self._gradients, self._dtypes = above, gradients, dtypes

    @classmethod
    def of(
        cls, call: TorchCall, inputs: Sequence[ScriptInput], tensors: Sequence[torch.Tensor], target: DeviceUnderTest
    ) -> _Back:
        draw = upstream_gradients(call, [each.array for each in inputs])
        above: dict[int, Array] = {}
        dtypes: dict[int, str] = {}

        def kept(number: int, output: torch.Tensor) -> torch.Tensor:
            wide = torch.complex64 if output.is_complex() else torch.float32  # which hold these numbers exactly
            values = draw(number, torch.empty(output.shape, dtype=wide))
            above[number], dtypes[number] = values.numpy(), str(output.dtype)
            return values.to(device=output.device, dtype=output.dtype)

        found = differentiated(call, call.on_copies(target.device), tensors, kept)
        return cls(above, found.gradients, dtypes)

    @property
    def differentiated_inputs(self) -> frozenset[int]:
        return frozenset(self._gradients)

    def arrays(self) -> dict[str, Array]:
        return {f"above{number}": values for number, values in self._above.items()}

    def lines(self, names: Sequence[str]) -> list[str]:
        sources = ", ".join(f"outputs[{number}]" for number in self._above)
        inputs = ", ".join(names[index] for index in self._gradients)
        return [
            f"above = [{', '.join(map(self._drawn, self._above))}]",
            f"gradients = torch.autograd.grad([{sources}], [{inputs}], above, allow_unused=True)",
        ]

    def _drawn(self, number: int) -> str:
        return f'torch.from_numpy(saved["above{number}"]).to(outputs[{number}].device, {self._dtypes[number]})'

    def expressions(self, names: Sequence[str]) -> list[str]:
        """Which inputs have a gradient, then each of the gradients, as the outputs of the case are."""
        found = [
            f"torch.zeros_like({names[index]})"
            if each is None
            else f"gradients[{place}]{'.to_dense()' * each.is_sparse}"
            for place, (index, each) in enumerate(self._gradients.items())
        ]
        return ["torch.tensor([each is not None for each in gradients])", *found]
