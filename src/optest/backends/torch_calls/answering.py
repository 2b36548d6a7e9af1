"""A case that is a call of torch, asked of a device or a compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from optest.backends.torch_calls.arrays import as_array
from optest.backends.torch_calls.calling import TorchCall, torch_call
from optest.backends.torch_calls.compiled import compiled, differentiated_by
from optest.backends.torch_calls.cpu_tensors import copied, on_cpu
from optest.backends.torch_calls.devices import kept_on_device, require_on_device
from optest.backends.torch_calls.expected_gradients import gradients_from_above
from optest.backends.torch_calls.gradients import Draw, changeable, differentiated
from optest.backends.torch_calls.left_alone import require_left_alone, require_memory_as_on_cpu
from optest.backends.torch_calls.lint import require_legal_positions
from optest.backends.torch_calls.masks import require_chosen_elements
from optest.backends.torch_calls.names import NoSuchCallable, NotAnOperator
from optest.backends.torch_calls.under_test import UnderTest
from optest.numerics import Array
from optest.spec import ExpectedError, Fault, Reason, TestCase
from optest.spec.calls import NotLiteral

__all__ = ["answer", "call_of", "why_no_operator", "with_gradients"]


def call_of(case: TestCase) -> TorchCall:
    """The call of a case.

    Raises:
        Fault: BAD_CASE if torch has no such function, or the text is no call.
    """
    try:
        return torch_call(case.attributes["call"])
    except (NoSuchCallable, NotAnOperator, NotLiteral) as error:
        raise Fault(Reason.BAD_CASE, str(error)) from None


def why_no_operator(case: TestCase) -> str | None:
    """Why there is nothing to test in a call that a trace swept up; None if there is.

    Raises:
        Fault: BAD_CASE for a name that torch does not have, and for data that cannot be right.
    """
    try:
        torch_call(case.attributes["call"])
    except NotAnOperator as error:
        return f"not an operator: {error}"
    except (NoSuchCallable, NotLiteral) as error:
        raise Fault(Reason.BAD_CASE, str(error)) from None
    require_legal_positions(case)
    require_chosen_elements(case)
    return None


def answer(
    case: TestCase, inputs: Sequence[Array], place: Callable[[int, Array], torch.Tensor], asked: UnderTest
) -> list[Array]:
    """Make the call on the device and return all that it yields; ``place`` puts an input there, by its number.

    Raises:
        Fault: WRONG_DEVICE, COMPILE, FALLBACK, and NOT_REFUSED or WRONG_ERROR where torch on the CPU does not refuse
            what the case says is refused; INPUT_MUTATED, OUT_OF_BOUNDS and STATE for what it does to memory.
    """
    call = call_of(case)
    if case.expects_error is not None:
        _require_refusal_on_cpu(call, inputs, case.expects_error)
    tensors = [place(index, array) for index, array in enumerate(inputs)]
    with kept_on_device(asked):
        if case.attributes.get("grad") and case.expects_error is None:
            leaves = with_gradients(call, tensors, gradients_from_above(call, inputs), asked)
            require_left_alone(call, tensors, tensors, lambda index: place(index, inputs[index]))
        else:
            # What is refused may be asked to resize an output, which memory of NumPy's would refuse for another reason.
            given = changeable(call, tensors) if case.expects_error is None else [copied(each) for each in tensors]
            leaves = _results(call, given, asked, refuses=case.expects_error is not None)
            if case.expects_error is None:
                require_left_alone(call, tensors, given, lambda index: place(index, inputs[index]))
                require_memory_as_on_cpu(call, inputs, given, leaves)
        asked.synchronize()
    for leaf in leaves:
        require_on_device(leaf, asked, is_for_the_host=call.is_for_the_host)
    try:
        return [as_array(leaf) for leaf in leaves]
    except KeyError as error:
        raise Fault(Reason.DTYPE, f"an output has the dtype {error}, which optest does not know") from None


def _results(call: TorchCall, tensors: Sequence[torch.Tensor], asked: UnderTest, *, refuses: bool) -> list[Any]:
    with torch.no_grad():
        if asked.compiler is None:
            return call.on(tensors, asked.device)()
        return compiled(lambda *given: call.on(given, asked.device)(), tensors, asked, refuses=refuses)


def with_gradients(call: TorchCall, tensors: Sequence[torch.Tensor], upstream: Draw, asked: UnderTest) -> list[Any]:
    """What the call yields, which inputs have a gradient, and the gradients."""

    def make(*given: torch.Tensor) -> list[Any]:
        return call.on(changeable(call, given), asked.device)()

    if asked.compiler is None:
        found = differentiated(call, make, tensors, upstream)
    else:
        found = differentiated_by(
            make, tensors, asked, lambda function: differentiated(call, function, tensors, upstream)
        )
    exists = torch.tensor(found.has_gradient(), device=asked.device)
    return [*found.leaves, exists, *found.dense(tensors)]


_REFUSALS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What torch refuses arguments with."""


def _require_refusal_on_cpu(call: TorchCall, inputs: Sequence[Array], wanted: ExpectedError) -> None:
    """The case is about a refusal that torch itself makes, so torch on the CPU has to make it too."""
    try:
        with torch.no_grad():
            call.on(on_cpu(inputs), torch.device("cpu"))()
    except _REFUSALS as error:
        said = f"{type(error).__name__}: {error}"
        if wanted.type not in [kind.__name__ for kind in type(error).__mro__]:
            message = f"torch on the CPU refuses the call with {said!r}, but the case expects {wanted.type}"
        elif not wanted.is_said_by(said):
            message = f"torch on the CPU says {said!r}, but the case expects {wanted.wanted_text()}"
        else:
            return
        raise Fault(Reason.WRONG_ERROR, message, details={"exception": said}) from None
    raise Fault(Reason.NOT_REFUSED, "torch on the CPU accepts the call, but the case expects it to be refused")
