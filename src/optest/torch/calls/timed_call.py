"""A call of torch made ready to be called again and again, as a benchmark does: compiled where a compiler is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from optest.numerics import Array
from optest.spec import TestCase
from optest.torch.calls.call import TorchCall
from optest.torch.calls.compiled import compiled_function
from optest.torch.calls.device_call import call_of, outputs_of
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.calls.expected_gradients import upstream_gradients
from optest.torch.calls.gradients import Draw, changeable, differentiated

__all__ = ["ReadyCall", "ready_call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyCall:
    """``call`` is what is timed. ``outputs`` makes it once more on the values that the inputs had at first."""

    call: Callable[[], object]
    outputs: Callable[[], list[Any]]
    what: str


def ready_call(
    case: TestCase, inputs: Sequence[Array], tensors: Sequence[torch.Tensor], target: DeviceUnderTest
) -> ReadyCall:
    """Compile the call, if a compiler is asked, and call it once.

    A call in place goes on with what it made of its inputs, as nothing else would be the call alone.

    Raises:
        Fault: COMPILE, FALLBACK, UNSUPPORTED as for an answer.
    """
    call = call_of(case)
    before = {index: tensors[index].clone() for index in call.changes}

    def restored() -> None:
        for index, values in before.items():
            tensors[index].copy_(values)

    make, outputs = _ways(case, call, inputs, tensors, target)
    restored()

    def once_more() -> list[Any]:
        restored()
        return outputs()

    return ReadyCall(call=make, outputs=once_more, what=_what(case, target))


def _ways(
    case: TestCase, call: TorchCall, inputs: Sequence[Array], tensors: Sequence[torch.Tensor], target: DeviceUnderTest
) -> tuple[Callable[[], object], Callable[[], list[Any]]]:
    """The call as it is timed, and as it is judged."""
    if case.attributes.get("grad"):
        above = _remembered(upstream_gradients(call, inputs))

        def make(*given: torch.Tensor) -> list[Any]:
            return call.on(changeable(call, given), target.device)()

        back = make
        if target.compiler is not None:
            back = compiled_function(
                make, tensors, target, lambda function: differentiated(call, function, tensors, above)
            )
        return (
            lambda: differentiated(call, back, tensors, above),
            lambda: outputs_of(differentiated(call, back, tensors, above), tensors, target),
        )
    if target.compiler is None:
        ready = call.on(tensors, target.device)
        return ready, ready
    function = compiled_function(
        lambda *given: call.on(given, target.device)(), tensors, target, lambda function: function(*tensors)
    )
    return (lambda: function(*tensors)), (lambda: list(function(*tensors)))


def _remembered(draw: Draw) -> Draw:
    """Gradients from above are drawn once: drawing them may take longer than the call."""
    drawn: dict[int, torch.Tensor] = {}

    def again(number: int, output: torch.Tensor) -> torch.Tensor:
        if number not in drawn:
            drawn[number] = draw(number, output)
        return drawn[number]

    return again


def _what(case: TestCase, target: DeviceUnderTest) -> str:
    """Empty for the plain call, which the backend's name says."""
    way = "" if target.compiler is None else f" compiled by {target.compiler}"
    if target.fallbacks:
        way = f" eager, since {target.compiler} fell back"
    gradients = " with gradients" if case.attributes.get("grad") else ""
    return f"torch:{target.device}{way}{gradients}" if way or gradients else ""
