"""Calls that torch refuses: on the CPU, while tracing for a compiler, and for tensors of mixed dtypes.

``torch.compile`` first executes the call on tensors without values and wraps a refusal in exceptions of the compiler.
Failures of the compiler itself come in such exceptions, too, and are no refusals.
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
from optest.torch.tensors import cpu_copies, is_inexact

_COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")
# Modules whose exceptions report that a call cannot be traced, not that torch refuses it.
_TRACING = ("torch._subclasses", "torch.fx", *_COMPILER)
# Exceptions with which torch refuses arguments.
REFUSALS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
# Exceptions of torch for a missing kernel or derivative; NotImplementedError is a RuntimeError.
NO_KERNEL = (RuntimeError, TypeError, ValueError)
# Phrases of torch for a missing kernel or too little memory.
_LACKS = ("not implemented", "not supported", "unsupported", "Could not run", "allocate memory")
# "unsupported operation" and "not implemented" of calls that are wrong: writes into overlapping elements, and the
# imaginary part of a real tensor.
_WRONG_CALLS = ("more than one element of the written-to tensor", "tensors with non-complex dtypes")


def is_missing_support(error: Exception) -> bool:
    """Return whether torch's error reports a missing kernel or too little memory, not a wrong call."""
    text = str(error)
    if any(phrase in text for phrase in _WRONG_CALLS):
        return False
    return isinstance(error, NotImplementedError) or any(lack in text for lack in _LACKS)


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message."""
    return str(error).strip().partition("\n")[0]


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then its cause or context, then that one's, and so on."""
    inner: BaseException | None = error
    while inner is not None:
        yield inner
        inner = inner.__cause__ or inner.__context__


def refusal_within(error: BaseException) -> BaseException | None:
    """Return torch's refusal, which is the error or the cause of the compiler's error; None if the compiler failed."""
    inner: BaseException | None = error
    while inner is not None and is_of(inner, _COMPILER):
        if isinstance(inner, torch._dynamo.exc.BackendCompilerFailed):
            return None
        outer, inner = inner, inner.__cause__
        if inner is None and outer.__context__ is not None and is_of(outer.__context__, _COMPILER):
            inner = outer.__context__  # the compiler replaced one of its exceptions by another
    return None if inner is None or is_of(inner, _TRACING) else inner


def is_of(error: BaseException, modules: tuple[str, ...]) -> bool:
    """Return whether the error's class or one of its bases is defined in one of the modules, given by prefix."""
    return any(kind.__module__.startswith(modules) for kind in type(error).__mro__)


def require_refusal(inputs: Sequence[Array], attributes: Mapping[str, Any], expected: ExpectedError) -> None:
    """Check that torch on the CPU refuses the call with the expected error.

    Raises:
        Fault: NOT_REFUSED, WRONG_ERROR; BAD_CASE if torch has no such function.
    """
    try:
        call = torch_call(attributes["call"])
    except (NoSuchCallable, NotAnOperator, NotLiteral) as error:
        raise Fault(Reason.BAD_CASE, str(error)) from None
    refused_on_cpu(call, inputs, expected)


def refused_on_cpu(call: TorchCall, inputs: Sequence[Array], expected: ExpectedError) -> Exception:
    """Return the error of torch on the CPU, which has to be the expected one.

    Raises:
        Fault: NOT_REFUSED, WRONG_ERROR.
    """
    error = _refusal(call, cpu_copies(inputs))
    if error is None:
        message = "torch on the CPU accepts the call, but the case expects it to be refused"
        raise Fault(Reason.NOT_REFUSED, message, details=_BY_REFERENCE)
    raised = f"{type(error).__name__}: {error}"
    if expected.type not in [kind.__name__ for kind in type(error).__mro__]:
        message = f"torch on the CPU refuses the call with {raised!r}, but the case expects {expected.type}"
    elif not expected.matches(raised):
        message = f"torch on the CPU reports {raised!r}, but the case expects {expected.required_text()}"
    else:
        return error
    raise Fault(Reason.WRONG_ERROR, message, details={"exception": raised, **_BY_REFERENCE})


# The reference contradicts the case: the case is wrong, not the device.
_BY_REFERENCE = {"contradicted_by": "torch on the CPU"}


def in_words_of_eager_torch(
    refusal: Exception, eager: Exception, call: TorchCall, inputs: Sequence[Array]
) -> Exception | None:
    """Return ``eager`` with the text of both errors, if a compiled call's ``refusal`` comes from torch's tracing.

    None if torch, tracing the call without a compiler, refuses it with another type or text.
    """
    # Without values, torch has other texts and sometimes types: ValueError for a view that needs a copy.
    from torch._subclasses import FakeTensorMode

    mode = FakeTensorMode()
    with refusals_unlogged(), mode:
        traced = _refusal(call, [mode.from_tensor(tensor) for tensor in cpu_copies(inputs)])
    if type(traced) is not type(refusal) or str(traced) != str(refusal):
        return None
    return type(eager)(f"{eager} (torch's message while tracing: {refusal})")


# torch multiplies no bfloat16 matrix by a float32 one, but the float64 reference hides that. A device may accept such
# a case, and its results are compared then.
@contextmanager
def mixed_dtypes_refused(case: TestCase, inputs: Sequence[Array]) -> Iterator[None]:
    """Turn a refusal within the block into Fault BAD_CASE if torch on the CPU refuses these dtypes together, too."""
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
            f"{type(refusal).__name__}: {str(refusal).strip()}; set one dtype for these tensors, or expects_error if "
            "the call should be refused",
        ) from error


def _dtypes_refused_together(call: TorchCall, inputs: Sequence[Array]) -> tuple[list[str], Exception] | None:
    """Return the dtypes that torch on the CPU refuses only together, and its error; None if it accepts them, has no
    kernel, or refuses their common dtype, too.
    """
    tensors = cpu_copies(inputs)
    kinds = dict.fromkeys(tensors[index].dtype for index in call.call.tensors() if is_inexact(tensors[index]))
    if len(kinds) < 2:
        return None
    refusal = _refusal(call, tensors)
    if refusal is None or is_missing_support(refusal):
        return None
    try:
        common = reduce(torch.promote_types, kinds)
    except RuntimeError:  # float8 dtypes have no common dtype
        return None
    if _refusal(call, [t.to(common) if is_inexact(t) else t for t in cpu_copies(inputs)]) is not None:
        return None
    return [str(kind).removeprefix("torch.") for kind in kinds], refusal


def _refusal(call: TorchCall, tensors: Sequence[torch.Tensor]) -> Exception | None:
    """Execute the call and return its error, None without one."""
    try:
        with torch.no_grad():
            call.on(tensors)()
    except REFUSALS as error:
        return error
    return None


_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")


def _is_no_refusal(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("failed while attempting to run meta for")


# torch logs a refusal while tracing and raises it as well; the verdict reports it.
@contextmanager
def refusals_unlogged() -> Iterator[None]:
    """Suppress torch's log records of refused calls without values, and only these, within the block."""
    _LOGGER.addFilter(_is_no_refusal)
    try:
        yield
    finally:
        _LOGGER.removeFilter(_is_no_refusal)
