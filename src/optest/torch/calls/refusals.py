"""Calls that torch refuses: on the CPU, while it traces the call for a compiler, and for tensors of mixed dtypes.

``torch.compile`` first makes the call on tensors without values. What torch refuses there comes wrapped in exceptions
of the compiler's own; that the compiler itself failed comes in such exceptions, too, and is no refusal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import torch

from optest.numerics import Array
from optest.spec import ExpectedError, Fault, Reason, TestCase
from optest.spec.calls import NotLiteral, call_text
from optest.torch.calls.call import TorchCall, torch_call
from optest.torch.calls.names import NoSuchCallable, NotAnOperator
from optest.torch.tensors import is_inexact, on_cpu

_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")
_TRACING = ("torch._subclasses", "torch.fx", *_COMPILER)
"""Where classes of exceptions live that say what cannot be traced, not what torch refuses."""

REFUSALS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What torch refuses arguments with."""

NO_KERNEL = (RuntimeError, TypeError, ValueError)
"""What torch says where it has no such kernel, or does not differentiate it; NotImplementedError is a RuntimeError."""

_LACKS = ("not implemented", "not supported", "unsupported", "Could not run", "allocate memory")
"""What torch says of kernels and of memory that it has not got."""

_OF_THE_CALL = ("more than one element of the written-to tensor", "tensors with non-complex dtypes")
"""What it says in such words, though the call is wrong: of tensors that it would change in one place several times, and
of imaginary parts that there are not."""


def is_a_lack(error: Exception) -> bool:
    """Whether an error of torch says that it has no such kernel, or no memory, and nothing of the call."""
    text = str(error)
    if any(phrase in text for phrase in _OF_THE_CALL):
        return False
    return isinstance(error, NotImplementedError) or any(lack in text for lack in _LACKS)


def first_line(error: BaseException) -> str:
    """What an exception says, cut to a line."""
    return str(error).strip().partition("\n")[0]


def refusal_within(error: BaseException) -> BaseException | None:
    """The refusal that an error of a compiled call is, or holds as its cause; None where the compiler failed."""
    found: BaseException | None = error
    while found is not None and is_of(found, _COMPILER):
        if isinstance(found, torch._dynamo.exc.BackendCompilerFailed):
            return None
        outer, found = found, found.__cause__
        if found is None and outer.__context__ is not None and is_of(outer.__context__, _COMPILER):
            found = outer.__context__  # one exception of the compiler's made another one of it
    return None if found is None or is_of(found, _TRACING) else found


def is_of(error: BaseException, modules: tuple[str, ...]) -> bool:
    """Whether the class of an error, or one that it is derived from, is of one of the modules."""
    return any(kind.__module__.startswith(modules) for kind in type(error).__mro__)


def refused(inputs: Sequence[Array], attributes: Mapping[str, Any], expected: ExpectedError) -> None:
    """Whoever is under test, torch on the CPU has to refuse the call as the case says.

    Raises:
        Fault: NOT_REFUSED, WRONG_ERROR; BAD_CASE if torch has no such function.
    """
    try:
        call = torch_call(attributes["call"])
    except (NoSuchCallable, NotAnOperator, NotLiteral) as error:
        raise Fault(Reason.BAD_CASE, str(error)) from None
    refused_on_cpu(call, inputs, expected)


def refused_on_cpu(call: TorchCall, inputs: Sequence[Array], expected: ExpectedError) -> Exception:
    """The error of torch on the CPU, which has to refuse the call as the case says: its refusal is torch's own.

    Raises:
        Fault: NOT_REFUSED, WRONG_ERROR.
    """
    error = _refusal(call, on_cpu(inputs))
    if error is None:
        message = "torch on the CPU accepts the call, but the case expects it to be refused"
        raise Fault(Reason.NOT_REFUSED, message, details=_BY_REFERENCE)
    raised = f"{type(error).__name__}: {error}"
    if expected.type not in [kind.__name__ for kind in type(error).__mro__]:
        message = f"torch on the CPU refuses the call with {raised!r}, but the case expects {expected.type}"
    elif not expected.matches(raised):
        message = f"torch on the CPU says {raised!r}, but the case expects {expected.required_text()}"
    else:
        return error
    raise Fault(Reason.WRONG_ERROR, message, details={"exception": raised, **_BY_REFERENCE})


_BY_REFERENCE = {"contradicted_by": "torch on the CPU"}
"""The reference says otherwise than the case, so no device has to change."""


def in_words_of_eager_torch(
    refusal: Exception, eager: Exception, call: TorchCall, inputs: Sequence[Array]
) -> Exception | None:
    """The refusal of a compiled call with the text of torch on the CPU before its own, None where that is not the same.

    Torch without a compiler has other words, and sometimes another type, for some refusals where tensors have no
    values: of a view that needs a copy it says ValueError there. What says exactly these is torch itself, before any
    compiler was asked.
    """
    from torch._subclasses import FakeTensorMode

    mode = FakeTensorMode()
    with refusals_unlogged(), mode:
        traced = _refusal(call, [mode.from_tensor(each) for each in on_cpu(inputs)])
    if type(traced) is not type(refusal) or str(traced) != str(refusal):
        return None
    return type(eager)(f"{eager} (while it is traced, torch says: {refusal})")


# Tensors whose dtypes torch does not take together: the reference, made in float64, does not show that.
#
# Torch multiplies no bfloat16 matrix by a float32 one. With both in float64 it does, so such a case has expected values
# though its data is wrong; a device may take it all the same, and is judged then.


@contextmanager
def mixed_dtypes_refused(case: TestCase, inputs: Sequence[Array]) -> Iterator[None]:
    """While inside, a device that refuses dtypes which torch on the CPU does not take together, either, is right.

    Raises:
        Fault: BAD_CASE, in torch's words on the CPU; whatever else is raised inside.
    """
    try:
        yield
    except (Fault, *REFUSALS) as error:
        if isinstance(error, Fault) and error.reason is not Reason.COMPILE:
            raise
        call = torch_call(case.attributes["call"])
        mixed = _dtypes_refused_together(call, inputs)
        if mixed is None:
            raise
        dtypes, refusal = mixed
        raise Fault(
            Reason.BAD_CASE,
            f"torch on the CPU refuses {call_text(call.call)} of {' and '.join(dtypes)}: "
            f"{type(refusal).__name__}: {str(refusal).strip()}; state one dtype for these tensors, or expects_error if "
            "the call should be refused",
        ) from error


def _dtypes_refused_together(call: TorchCall, inputs: Sequence[Array]) -> tuple[list[str], Exception] | None:
    """The dtypes and what torch on the CPU says of them; None where one dtype for all would not be taken, either."""
    tensors = on_cpu(inputs)
    kinds = dict.fromkeys(tensors[index].dtype for index in call.call.tensors() if is_inexact(tensors[index]))
    if len(kinds) < 2:
        return None
    refusal = _refusal(call, tensors)
    if refusal is None or is_a_lack(refusal):
        return None
    try:
        common = reduce(torch.promote_types, kinds)
    except RuntimeError:  # of float8, which has none
        return None
    if _refusal(call, [each.to(common) if is_inexact(each) else each for each in on_cpu(inputs)]) is not None:
        return None
    return [str(kind).removeprefix("torch.") for kind in kinds], refusal


def _refusal(call: TorchCall, tensors: Sequence[torch.Tensor]) -> Exception | None:
    try:
        with torch.no_grad():
            call.on(tensors)()
    except REFUSALS as error:
        return error
    return None


# What torch logs while it traces a call that it refuses: the refusal is raised as well, and a verdict says it.

_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")
_TEXT = "failed while attempting to run meta for"


def _is_no_refusal(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_TEXT)


@contextmanager
def refusals_unlogged() -> Iterator[None]:
    """Keep off the terminal that a kernel without values raised; whatever else torch logs is logged."""
    _LOGGER.addFilter(_is_no_refusal)
    try:
        yield
    finally:
        _LOGGER.removeFilter(_is_no_refusal)
