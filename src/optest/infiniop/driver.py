"""Backend driver of :func:`test_operator`: calls a test function, which compares by itself, once for each case."""

from __future__ import annotations

import hashlib
import inspect
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from optest.backends import BackendDriver
from optest.clib.ffi.calls import StatusError
from optest.core.border import Border
from optest.core.verdicts import fault_verdict
from optest.infiniop.comparison import Discrepancy, failures_of_allclose
from optest.infiniop.datatypes import infini_dtype
from optest.infiniop.devices import InfiniDeviceEnum, get_sync_func
from optest.infiniop.liboperators import LIBINFINIOP
from optest.infiniop.scope import CaseScope, case_scope
from optest.spec import (
    BackendTarget,
    Check,
    CheckState,
    Evidence,
    Fault,
    OperatorDescriptor,
    Reason,
    Status,
    TestCase,
    Verdict,
)

_TIMEOUT_S = 300.0
_UNSUPPORTED_STATUSES = ("INFINI_STATUS_NOT_IMPLEMENTED", "INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED")


@dataclass(frozen=True, slots=True)
class _Call:
    """Arguments of the test function and the seed of this call, which draws the same values without the other calls."""

    arguments: tuple[Any, ...]
    dtype: Any
    seed: int


class TestFunction(BackendDriver):
    """Driver that calls the test function; ``cases`` are its calls in order."""

    __test__ = False  # pytest would take the name for a test class
    name = "infiniop"
    kind = "test function"
    reads_inputs = False  # it creates its tensors

    def __init__(self, function: Callable[..., Any], on: InfiniDeviceEnum, seed: int) -> None:
        self.function = function
        self.on = on
        self.seed = seed
        self.handle: Any = None
        self.cases: list[TestCase] = []
        self._calls: dict[str, _Call] = {}
        self._last_verdict = Verdict(status=Status.UNCHECKED)
        self._descriptor = OperatorDescriptor(name=name_of(function), signature="-> out", open_attributes=True)

    def take(self, calls: Iterable[tuple[Sequence[Any], Any]]) -> None:
        """Add a case for each call, given as its arguments and dtype."""
        target = BackendTarget(name=self.name, kind=self.kind, device=self.on.name.lower())
        code = getattr(self.function, "__code__", None)
        for number, (arguments, dtype) in enumerate(calls):
            # A hash, so that neighbouring numbers give unrelated seeds.
            digest = hashlib.blake2b(f"{self.seed}:{number}".encode(), digest_size=6).digest()
            call = _Call(tuple(arguments), dtype, int.from_bytes(digest, "little"))
            arguments_text = ", ".join(map(_argument_text, call.arguments))
            case = TestCase(
                descriptor=self._descriptor,
                inputs=(),
                name=f"{self._descriptor.name}[{_argument_text(_dtype_or_none(call.dtype))}]({arguments_text})",
                attributes={**self._attributes_of(call), "only": number},
                backend=target,
                seed=self.seed,
                timeout_s=_TIMEOUT_S,
                where="" if code is None else f"{code.co_filename}:{code.co_firstlineno}",
            )
            self.cases.append(case)
            self._calls[case.key] = call

    def _attributes_of(self, call: _Call) -> Mapping[str, str]:
        """Return the arguments as text, by the names of the function's parameters."""
        arguments = (*call.arguments, _dtype_or_none(call.dtype))
        try:
            bound = inspect.signature(self.function).bind_partial(None, None, *arguments).arguments
        except (TypeError, ValueError):  # the call itself raises the better message
            return {f"argument{index}": _argument_text(value) for index, value in enumerate(arguments)}
        return {name: _argument_text(value) for name, value in [*bound.items()][2:]}  # without handle and device

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002 - the function creates its inputs
        self._last_verdict = self._run_call(self._calls[case.key])
        return ()

    def own_verdict(self, case: TestCase) -> Verdict:  # noqa: ARG002 - it is the case that ran last
        return self._last_verdict

    def _run_call(self, call: _Call) -> Verdict:
        """Call the function; return its verdict with the guard check, and with undestroyed descriptors if it passed."""
        before = LIBINFINIOP.ledger.kept()
        LIBINFINIOP.take_unseen()  # drop statuses of calls before this case
        with case_scope(call.seed) as scope:
            try:
                try:
                    with Border("the test", Reason.RAISED):
                        verdict = self._call_function(call, scope)
                except Fault as fault:
                    verdict = fault_verdict(fault)
                verdict = _add_guard_check(verdict, scope)
            finally:
                for tensor in scope.tensors:
                    tensor.destroy_desc()
                leaks = LIBINFINIOP.ledger.release(before)
        if leaks and verdict.status is Status.PASSED:
            return replace(verdict, details={"leaks": [asdict(leak) for leak in leaks]})
        return verdict

    def _call_function(self, call: _Call, scope: CaseScope) -> Verdict:
        """Call the test function and return its verdict; raise Fault for failed assertions and ignored statuses."""
        failures: list[Verdict] = []
        try:
            with failures_of_allclose() as failures:
                self.function(self.handle, self.on, *call.arguments, call.dtype, get_sync_func(self.on))
        except Discrepancy as discrepancy:
            return discrepancy.verdict
        except (AssertionError, RuntimeError) as error:
            # When torch cannot initialise a device, it raises an AssertionError if it was built without support for it,
            # a RuntimeError if the machine has none.
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_name == "_lazy_init" and str(frame.f_globals.get("__name__")).startswith("torch."):
                raise Fault(Reason.UNAVAILABLE, f"the test needs a device that torch lacks here: {error}") from None
            if not isinstance(error, AssertionError):
                raise
            if failures:
                return failures[-1]
            raise Fault(Reason.VALUE, str(error).strip() or "an assertion of the test failed") from None
        except StatusError as error:
            if error.name in _UNSUPPORTED_STATUSES:
                raise Fault(Reason.UNSUPPORTED, str(error)) from None
            raise
        unseen = LIBINFINIOP.take_unseen()
        if unseen:
            raise Fault(Reason.RAISED, f"{unseen[0].error()}, and the test ignored it; pass the status to check_error")
        # Scripts return early from cases that they do not support.
        if not scope.calls:
            return Verdict(status=Status.SKIPPED, message="the test returned without calling an operator")
        return Verdict(status=Status.PASSED, evidence=Evidence.EXTERNAL_REPORT)


def _add_guard_check(verdict: Verdict, scope: CaseScope) -> Verdict:
    """Add the guard zone check; a passed verdict fails if memory outside the tensors was written."""
    passed = verdict.status is Status.PASSED
    check = Check(name="guard zones", state=CheckState.DONE)
    try:
        for tensor in scope.tensors:
            tensor.check_guards()
    except Fault as fault:
        if passed:
            return fault_verdict(fault)
        check = Check(name="guard zones", state=CheckState.FAILED, detail=fault.message)
    return replace(verdict, checks=(*verdict.checks, check))


def name_of(function: Callable[..., Any]) -> str:
    """Return the function's name without ``test_``; the name of its file for a function named ``test``."""
    name: str = getattr(function, "__name__", type(function).__name__).removeprefix("test_")
    code = getattr(function, "__code__", None)
    # Scripts name it so in every file.
    return Path(code.co_filename).stem if name == "test" and code is not None else name


def _dtype_or_none(dtype: Any) -> Any:
    return None if dtype is None else infini_dtype(dtype)


def _argument_text(argument: Any) -> str:
    return argument.name if isinstance(argument, Enum) else repr(argument)
