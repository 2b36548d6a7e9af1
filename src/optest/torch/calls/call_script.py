"""A call of torch as lines of Python that a person without optest can run: compiled and differentiated as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from optest.backends import Script, ScriptInput
from optest.numerics import Array
from optest.spec import TestCase
from optest.torch.calls.call import TorchCall
from optest.torch.calls.device_call import call_of
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.calls.gradients import differentiated, upstream_gradients
from optest.torch.calls.refusals import REFUSALS
from optest.torch.recording import Recording

__all__ = ["scripted"]

_WIDTH = 110
_MOST_LINES = 4
"""Of the function that makes the call; more are written several to a line."""


def scripted(
    case: TestCase,
    inputs: Sequence[ScriptInput],
    tensors: Sequence[torch.Tensor],
    target: DeviceUnderTest,
    loaded: Callable[[ScriptInput], str],
) -> Script:
    """The script of a case that asks for a compiler, for gradients, or for both.

    ``tensors`` may be of the device ``meta``, which makes the calls without values; ``loaded`` is the line that makes
    an input.

    Raises:
        Unwritable: for what has no short text.
        Fault: UNSUPPORTED where torch gives no gradient.
    """
    call = call_of(case)
    back = _Back.of(call, inputs, tensors, target) if case.attributes.get("grad") else None
    names = [each.name for each in inputs]
    recording = Recording(dict(zip(names, tensors, strict=True)), target.device)
    body, results = _recorded(recording, call, tensors, target, copies=back is not None)
    module = "" if target.compiler is None else _module_of(target.compiler)
    lines = [
        *(
            f"{loaded(each)}{'.requires_grad_()' if back and place in back.wanted else ''}"
            for place, each in enumerate(inputs)
        ),
        f"def call({', '.join(names)}):",
        *body,
        *(
            []
            if target.compiler is None
            else [f'call = torch.compile(call, backend="{target.compiler}", fullgraph=True)']
        ),
        f"outputs = call({', '.join(names)})",
        *(back.lines(names) if back else ()),
    ]
    expressions = [f"outputs[{place}]" for place in range(len(results))]
    return Script(
        imports=("import torch", *((f"import {module}",) if module else ())),
        lines=lines,
        outputs=[*expressions, *back.expressions(names)] if back and results else expressions,
        needs=("torch", *((module,) if module else ())),
        arrays=back.arrays() if back else {},
    )


def _recorded(
    recording: Recording, call: TorchCall, tensors: Sequence[torch.Tensor], target: DeviceUnderTest, *, copies: bool
) -> tuple[list[str], list[str]]:
    """The lines of the function, and an expression for each of its results; none if the call raises."""

    def make() -> list[Any]:
        return call.on(call.changeable(tensors) if copies else tensors, target.device)()

    try:
        with torch.no_grad():
            results = recording.record(make)
    except REFUSALS:
        lines, expressions = recording.lines(None)
    else:
        lines, expressions = recording.lines(results)
        lines = [*lines, f"return [{', '.join(expressions)}]"]
    while len(lines) > _MOST_LINES and (
        pairs := [n for n in range(1, len(lines)) if len(lines[n - 1] + lines[n]) < _WIDTH]
    ):
        place = min(pairs, key=lambda each: len(lines[each - 1] + lines[each]))
        lines[place - 1 : place + 1] = [f"{lines[place - 1]}; {lines[place]}"]
    return [f"    {line}" for line in lines], expressions


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
    def wanted(self) -> frozenset[int]:
        return frozenset(self._gradients)

    def arrays(self) -> dict[str, Array]:
        return {f"above{number}": values for number, values in self._above.items()}

    def lines(self, names: Sequence[str]) -> list[str]:
        sources = ", ".join(f"outputs[{number}]" for number in self._above)
        wanted = ", ".join(names[index] for index in self._gradients)
        return [
            f"above = [{', '.join(map(self._drawn, self._above))}]",
            f"gradients = torch.autograd.grad([{sources}], [{wanted}], above, allow_unused=True)",
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


def _module_of(compiler: str) -> str:
    """The module that has to be imported for torch to know a compiler, "" for those that it always knows."""
    function = torch._dynamo.backends.registry.lookup_backend(compiler)
    module = str(getattr(function, "__module__", "torch"))
    return "" if module.partition(".")[0] in ("torch", "functools") else module
