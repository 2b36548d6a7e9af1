"""A case that is a call of torch, asked of a device or a compiler: once, or again and again as a benchmark does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from optest.numerics import Array
from optest.spec import ExpectedError, Fault, Reason, TestCase
from optest.spec.calls import NotLiteral
from optest.torch.calls.call import TorchCall, torch_call
from optest.torch.calls.compiled import compiled, compiled_function, differentiated_by
from optest.torch.calls.device_under_test import DeviceUnderTest, kept_on_device, require_on_device
from optest.torch.calls.gradients import (
    Draw,
    can_be_differentiated,
    differentiated,
    has_floating_input,
    upstream_gradients,
)
from optest.torch.calls.indices import require_chosen_elements, require_legal_positions
from optest.torch.calls.memory_effects import compare_strides, require_inputs_unchanged, require_memory_as_on_cpu
from optest.torch.calls.names import NoSuchCallable, NotAnOperator
from optest.torch.calls.other_right_results import why_no_one_result
from optest.torch.calls.recompiled_calls import FirstCall, require_later_calls_right
from optest.torch.calls.refusals import NO_KERNEL, REFUSALS, in_words_of_eager_torch, refused_on_cpu
from optest.torch.tensors import as_array, copied


def call_of(case: TestCase) -> TorchCall:
    """The call of a case.

    Raises:
        Fault: BAD_CASE if torch has no such function, the text is no call, or it is a call of another operator.
    """
    try:
        return _call_of_its_operator(case)
    except (NoSuchCallable, NotAnOperator, NotLiteral) as error:
        raise Fault(Reason.BAD_CASE, str(error)) from None


def _call_of_its_operator(case: TestCase) -> TorchCall:
    call = torch_call(case.attributes["call"])
    called = call.call.function
    if called != case.descriptor.name:
        message = f"op is {case.descriptor.name}, but `call` is one of {called}: whose rules would hold?"
        raise Fault(Reason.BAD_CASE, message)
    return call


def why_no_operator(case: TestCase) -> str | None:
    """Why there is nothing to test in a call: a trace swept it up, or it has no one right result. None if there is.

    Raises:
        Fault: BAD_CASE for a name that torch does not have, and for data that cannot be right.
    """
    try:
        call = _call_of_its_operator(case)
    except NotAnOperator as error:
        return f"not an operator: {error}"
    except (NoSuchCallable, NotLiteral) as error:
        raise Fault(Reason.BAD_CASE, str(error)) from None
    require_legal_positions(case)
    require_chosen_elements(case)
    return why_no_one_result(case, call)


def answer(
    case: TestCase, inputs: Sequence[Array], place: Callable[[int, Array], torch.Tensor], target: DeviceUnderTest
) -> list[Array]:
    """Make the call on the device and return all that it yields; ``place`` puts an input there, by its number.

    Raises:
        Fault: WRONG_DEVICE, COMPILE, FALLBACK; INPUT_MUTATED, OUT_OF_BOUNDS and STATE for what it does to memory.
    """
    call = call_of(case)
    tensors = [place(index, array) for index, array in enumerate(inputs)]
    upstream: Draw | None = None
    with kept_on_device(target):
        if case.expects_error is not None:
            leaves = _results_of_refused(call, inputs, tensors, target, case.expects_error)
        elif case.attributes.get("grad"):
            leaves, upstream = _with_gradients_if_any(call, inputs, tensors, target)
            require_inputs_unchanged(call, tensors, tensors, lambda index: place(index, inputs[index]))
        else:
            given = call.changeable(tensors)
            leaves = _results(call, given, target, refuses=False)
            require_inputs_unchanged(call, tensors, given, lambda index: place(index, inputs[index]))
            require_memory_as_on_cpu(call, inputs, given, leaves)
            if target.compiler is not None or target.device.type != "cpu":
                must_be_same = target.same_strides or bool(case.attributes.get("same_strides"))
                compare_strides(call, inputs, leaves, target, must_be_same=must_be_same)
        target.synchronize()
    for leaf in leaves:
        require_on_device(leaf, target, is_for_the_host=call.is_for_the_host)
    try:
        found = [as_array(leaf) for leaf in leaves]
    except KeyError as error:
        raise Fault(Reason.DTYPE, f"an output has the dtype {error}, which optest does not know") from None
    if case.expects_error is None and target.compiled is not None:
        require_later_calls_right(
            FirstCall(
                call=call,
                inputs=inputs,
                tensors=tensors,
                again=lambda index: place(index, inputs[index]),
                leaves=leaves,
                results=found,
                target=target,
                compiled=target.compiled,
                upstream=upstream,
            )
        )
    return found


def _results(call: TorchCall, tensors: Sequence[torch.Tensor], target: DeviceUnderTest, *, refuses: bool) -> list[Any]:
    with torch.no_grad():
        if target.compiler is None:
            return call.on(tensors, target.device)()
        return compiled(lambda *given: call.on(given, target.device)(), tensors, target, refuses=refuses)


def _results_of_refused(
    call: TorchCall,
    inputs: Sequence[Array],
    tensors: Sequence[torch.Tensor],
    target: DeviceUnderTest,
    expected: ExpectedError,
) -> list[Any]:
    """What a call yields that torch on the CPU refuses as it is ``wanted``; whatever refuses it, too, is raised."""
    # It may be asked to resize an output, which memory of NumPy's would refuse for another reason.
    given = [copied(each) for each in tensors]
    try:
        return _results(call, given, target, refuses=True)
    except REFUSALS as refusal:
        if target.compiler is None:
            raise
        same = in_words_of_eager_torch(refusal, refused_on_cpu(call, inputs, expected), call, inputs)
        if same is None:
            raise
        raise same from None


def _with_gradients_if_any(
    call: TorchCall, inputs: Sequence[Array], tensors: Sequence[torch.Tensor], target: DeviceUnderTest
) -> tuple[list[Any], Draw | None]:
    """What the call yields, and its gradients for what comes from above, unless torch on the CPU has none, either."""
    if not has_floating_input(call, inputs):
        return _results(call, call.changeable(tensors), target, refuses=False), None
    try:
        upstream = upstream_gradients(call, inputs)
        make = call.on_copies(target.device)
        if target.compiler is None:
            found = differentiated(call, make, tensors, upstream)
        else:
            found = differentiated_by(
                make,
                tensors,
                target,
                lambda function, given: differentiated(call, function, given, upstream),
                lambda other: other.outputs(tensors, target.device),
            )
        return found.outputs(tensors, target.device), upstream
    except (*NO_KERNEL, Fault):
        if can_be_differentiated(call, inputs):
            raise
    return _results(call, call.changeable(tensors), target, refuses=False), None


# A call made ready to be called again and again: compiled where a compiler is asked.


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
        make = back = call.on_copies(target.device)
        if target.compiler is not None:
            back = compiled_function(
                make, tensors, target, lambda function: differentiated(call, function, tensors, above)
            )
        return (
            lambda: differentiated(call, back, tensors, above),
            lambda: differentiated(call, back, tensors, above).outputs(tensors, target.device),
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
