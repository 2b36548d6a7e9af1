"""Execute the torch call of a case on a device or by a compiler: once for its results, or repeatedly for timing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from optest.numerics import Array
from optest.spec import ExpectedError, Fault, Reason, TestCase
from optest.spec.calls import NotLiteral
from optest.torch.calls.call import TorchCall, torch_call
from optest.torch.calls.compiled import compiled_function, differentiated_by, run_compiled
from optest.torch.calls.device_under_test import DeviceUnderTest, kept_on_device, require_on_device
from optest.torch.calls.gradients import (
    Draw,
    can_be_differentiated,
    differentiate,
    has_floating_input,
    upstream_gradients,
)
from optest.torch.calls.indices import require_chosen_elements, require_legal_positions
from optest.torch.calls.memory_effects import compare_strides, require_inputs_unchanged, require_memory_as_on_cpu
from optest.torch.calls.names import NoSuchCallable, NotAnOperator
from optest.torch.calls.other_right_results import why_no_one_result
from optest.torch.calls.recompiled_calls import FirstCall, require_later_calls_right
from optest.torch.calls.refusals import NO_KERNEL, REFUSALS, in_words_of_eager_torch, refused_on_cpu
from optest.torch.tensors import as_array, strided_copy


def parse_case_call(case: TestCase) -> TorchCall:
    """Return the parsed call of a case.

    Raises:
        Fault: BAD_CASE if torch has no such function, the text is no call, or its function is not the case's op.
    """
    try:
        return _parse_call(case)
    except (NoSuchCallable, NotAnOperator, NotLiteral) as error:
        raise Fault(Reason.BAD_CASE, str(error)) from None


def _parse_call(case: TestCase) -> TorchCall:
    call = torch_call(case.attributes["call"])
    function = call.call.function
    if function != case.descriptor.name:
        raise Fault(Reason.BAD_CASE, f"the function of `call` is {function}, expected the op, {case.descriptor.name}")
    return call


def why_no_operator(case: TestCase) -> str | None:
    """Return the reason to skip a call that is no operator or has no unique correct result; None to run it.

    Raises:
        Fault: BAD_CASE for a name that torch does not have, positions out of range, or a mask that selects nothing.
    """
    try:
        call = _parse_call(case)
    except NotAnOperator as error:
        return f"not an operator: {error}"
    except (NoSuchCallable, NotLiteral) as error:
        raise Fault(Reason.BAD_CASE, str(error)) from None
    require_legal_positions(case)
    require_chosen_elements(case)
    return why_no_one_result(case, call)


def run_on_device(
    case: TestCase, inputs: Sequence[Array], place: Callable[[int, Array], torch.Tensor], target: DeviceUnderTest
) -> list[Array]:
    """Execute the call on the device and return its outputs; ``place(number, array)`` copies an input to the device.

    Check inputs, memory, strides and devices of the results, and later calls of compiled code.

    Raises:
        Fault: WRONG_DEVICE, COMPILE, FALLBACK; INPUT_MUTATED, OUT_OF_BOUNDS and STATE for memory; SHAPE, DTYPE.
    """
    call = parse_case_call(case)
    tensors = [place(index, array) for index, array in enumerate(inputs)]

    def reload(index: int) -> torch.Tensor:
        return place(index, inputs[index])

    upstream: Draw | None = None
    with kept_on_device(target):
        if case.expects_error is not None:
            leaves = _results_of_refused(call, inputs, tensors, target, case.expects_error)
        elif case.attributes.get("grad"):
            leaves, upstream = _with_gradients_if_any(call, inputs, tensors, target)
            require_inputs_unchanged(call, tensors, tensors, reload)
        else:
            passed = call.changeable(tensors)
            leaves = _results(call, passed, target, refuses=False)
            require_inputs_unchanged(call, tensors, passed, reload)
            require_memory_as_on_cpu(call, inputs, passed, leaves)
            if target.compiler is not None or target.device.type != "cpu":
                must_be_same = target.same_strides or bool(case.attributes.get("same_strides"))
                compare_strides(call, inputs, leaves, target, must_be_same=must_be_same)
        target.synchronize()
    for leaf in leaves:
        require_on_device(leaf, target, is_for_the_host=call.is_for_the_host)
    try:
        results = [as_array(leaf) for leaf in leaves]
    except KeyError as error:
        raise Fault(Reason.DTYPE, f"an output has the dtype {error}, which optest does not know") from None
    if case.expects_error is None and target.compiled is not None:
        require_later_calls_right(
            FirstCall(
                call=call,
                inputs=inputs,
                tensors=tensors,
                reload=reload,
                leaves=leaves,
                results=results,
                target=target,
                compiled=target.compiled,
                upstream=upstream,
            )
        )
    return results


def _results(call: TorchCall, tensors: Sequence[torch.Tensor], target: DeviceUnderTest, *, refuses: bool) -> list[Any]:
    with torch.no_grad():
        if target.compiler is None:
            return call.on(tensors, target.device)()
        return run_compiled(lambda *args: call.on(args, target.device)(), tensors, target, refuses=refuses)


def _results_of_refused(
    call: TorchCall,
    inputs: Sequence[Array],
    tensors: Sequence[torch.Tensor],
    target: DeviceUnderTest,
    expected: ExpectedError,
) -> list[Any]:
    """Return the results of a call that should be refused, or raise the refusal.

    A compiled call's refusal gets eager torch's text as well, if both refuse for the same reason.
    """
    # Copies, since torch cannot resize memory of NumPy: a wrong reason for a refusal.
    copies = [strided_copy(tensor) for tensor in tensors]
    try:
        return _results(call, copies, target, refuses=True)
    except REFUSALS as refusal:
        if target.compiler is None:
            raise
        in_eager_words = in_words_of_eager_torch(refusal, refused_on_cpu(call, inputs, expected), call, inputs)
        if in_eager_words is None:
            raise
        raise in_eager_words from None


def _with_gradients_if_any(
    call: TorchCall, inputs: Sequence[Array], tensors: Sequence[torch.Tensor], target: DeviceUnderTest
) -> tuple[list[Any], Draw | None]:
    """Return results and gradients, and the upstream gradients; only results and None if torch on the CPU cannot
    differentiate the call, either.
    """
    if not has_floating_input(call, inputs):
        return _results(call, call.changeable(tensors), target, refuses=False), None
    try:
        upstream = upstream_gradients(call, inputs)
        make = call.on_copies(target.device)
        if target.compiler is None:
            derivative = differentiate(call, make, tensors, upstream)
        else:
            derivative = differentiated_by(
                make,
                tensors,
                target,
                lambda function, args: differentiate(call, function, args, upstream),
                lambda result: result.outputs(tensors, target.device),
            )
        return derivative.outputs(tensors, target.device), upstream
    except (*NO_KERNEL, Fault):
        if can_be_differentiated(call, inputs):
            raise
    return _results(call, call.changeable(tensors), target, refuses=False), None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyCall:
    """A call to be timed; ``outputs`` repeats it on the original inputs, ``what`` describes compiler and gradients."""

    call: Callable[[], object]
    outputs: Callable[[], list[Any]]
    what: str


def prepare_timed_call(
    case: TestCase, inputs: Sequence[Array], tensors: Sequence[torch.Tensor], target: DeviceUnderTest
) -> ReadyCall:
    """Prepare the call for timing; with a compiler, compile it by executing it once.

    Raises:
        Fault: BAD_CASE, COMPILE, FALLBACK, UNSUPPORTED as for :func:`answer`.
    """
    # An in-place call continues with its changed inputs: to restore them would add to its time.
    call = parse_case_call(case)
    before = {index: tensors[index].clone() for index in call.changes}

    def restore() -> None:
        for index, values in before.items():
            tensors[index].copy_(values)

    timed, outputs = _timed_and_checked(case, call, inputs, tensors, target)
    restore()

    def repeat() -> list[Any]:
        restore()
        return outputs()

    return ReadyCall(call=timed, outputs=repeat, what=_setup_text(case, target))


def _timed_and_checked(
    case: TestCase, call: TorchCall, inputs: Sequence[Array], tensors: Sequence[torch.Tensor], target: DeviceUnderTest
) -> tuple[Callable[[], object], Callable[[], list[Any]]]:
    """Return the call to be timed, and one that lists its outputs for the comparison; both with gradients if set."""
    if case.attributes.get("grad"):
        upstream = _cached(upstream_gradients(call, inputs))
        execute = call.on_copies(target.device)
        if target.compiler is not None:
            execute = compiled_function(
                execute, tensors, target, lambda function: differentiate(call, function, tensors, upstream)
            )
        return (
            lambda: differentiate(call, execute, tensors, upstream),
            lambda: differentiate(call, execute, tensors, upstream).outputs(tensors, target.device),
        )
    if target.compiler is None:
        ready = call.on(tensors, target.device)
        return ready, ready
    function = compiled_function(
        lambda *args: call.on(args, target.device)(), tensors, target, lambda function: function(*tensors)
    )
    return (lambda: function(*tensors)), (lambda: list(function(*tensors)))


# To draw upstream gradients may take longer than the call.
def _cached(draw: Draw) -> Draw:
    drawn: dict[int, torch.Tensor] = {}

    def cached(number: int, output: torch.Tensor) -> torch.Tensor:
        if number not in drawn:
            drawn[number] = draw(number, output)
        return drawn[number]

    return cached


def _setup_text(case: TestCase, target: DeviceUnderTest) -> str:
    """Describe device, compiler and gradients of a timed call; "" for a plain call."""
    mode = "" if target.compiler is None else f" compiled by {target.compiler}"
    if target.fallbacks:
        mode = f" eager, since {target.compiler} fell back"
    gradients = " with gradients" if case.attributes.get("grad") else ""
    return f"torch:{target.device}{mode}{gradients}" if mode or gradients else ""
