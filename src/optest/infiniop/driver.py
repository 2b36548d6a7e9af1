"""The backend of :func:`test_operator`: a test function, called once for each case, which compares by itself."""

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
_LACKS = ("INFINI_STATUS_NOT_IMPLEMENTED", "INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED")


@dataclass(frozen=True, slots=True)
class _Call:
    """What the test function is given, and the seed of this call alone: by itself it draws the same values."""

    arguments: tuple[Any, ...]
    dtype: Any
    seed: int


class TestFunction(BackendDriver):
    """Calls the function in place of a backend; ``cases`` are what it is called with, in order."""

    __test__ = False  # pytest would take the name for a test class
    name = "infiniop"
    kind = "test function"
    reads_inputs = False

    def __init__(self, function: Callable[..., Any], on: InfiniDeviceEnum, seed: int) -> None:
        self.function = function
        self.on = on
        self.seed = seed
        self.handle: Any = None
        self.cases: list[TestCase] = []
        self._calls: dict[str, _Call] = {}
        self._last = Verdict(status=Status.UNCHECKED)
        self._descriptor = OperatorDescriptor(name=name_of(function), signature="-> out", open_attributes=True)

    def take(self, calls: Iterable[tuple[Sequence[Any], Any]]) -> None:
        """Make the case of each call: arguments and dtype."""
        target = BackendTarget(name=self.name, kind=self.kind, device=self.on.name.lower())
        code = getattr(self.function, "__code__", None)
        for number, (arguments, dtype) in enumerate(calls):
            digest = hashlib.blake2b(f"{self.seed}:{number}".encode(), digest_size=6).digest()
            call = _Call(tuple(arguments), dtype, int.from_bytes(digest, "little"))
            words = ", ".join(map(_shown, call.arguments))
            case = TestCase(
                descriptor=self._descriptor,
                inputs=(),
                name=f"{self._descriptor.name}[{_shown(_known(call.dtype))}]({words})",
                attributes={**self._named(call), "only": number},
                backend=target,
                seed=self.seed,
                timeout_s=_TIMEOUT_S,
                where="" if code is None else f"{code.co_filename}:{code.co_firstlineno}",
            )
            self.cases.append(case)
            self._calls[case.key] = call

    def _named(self, call: _Call) -> Mapping[str, str]:
        """The arguments by the names of the function's parameters, as text."""
        given = (*call.arguments, _known(call.dtype))
        try:
            bound = inspect.signature(self.function).bind_partial(None, None, *given).arguments
        except (TypeError, ValueError):  # the call will say so
            return {f"argument{index}": _shown(each) for index, each in enumerate(given)}
        return {name: _shown(value) for name, value in [*bound.items()][2:]}

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:  # noqa: ARG002 - the function makes its own
        self._last = self._judged(self._calls[case.key])
        return ()

    def own_verdict(self, case: TestCase) -> Verdict:  # noqa: ARG002 - it is the one that was run last
        return self._last

    def _judged(self, call: _Call) -> Verdict:
        """What the function says, what the memory says, and what was left undestroyed."""
        before = LIBINFINIOP.ledger.kept()
        LIBINFINIOP.take_unseen()  # of calls that were made before, which are not this case's
        with case_scope(call.seed) as scope:
            try:
                verdict = _with_memory(_of_faults(lambda: self._called(call, scope)), scope)
            finally:
                for tensor in scope.tensors:
                    tensor.destroy_desc()
                left = LIBINFINIOP.ledger.release(before)
        if left and verdict.status is Status.PASSED:
            return replace(verdict, details={"leaks": [asdict(leak) for leak in left]})
        return verdict

    def _called(self, call: _Call, scope: CaseScope) -> Verdict:
        failures: list[Verdict] = []
        try:
            with failures_of_allclose() as failures:
                self.function(self.handle, self.on, *call.arguments, call.dtype, get_sync_func(self.on))
        except Discrepancy as discrepancy:
            return discrepancy.verdict
        except (AssertionError, RuntimeError) as error:
            # Where torch could not begin with a device at all, it raises an AssertionError if it was built without, a
            # RuntimeError if the machine has none.
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_name == "_lazy_init" and str(frame.f_globals.get("__name__")).startswith("torch."):
                raise Fault(Reason.UNAVAILABLE, f"the test needs a device that torch lacks here: {error}") from None
            if not isinstance(error, AssertionError):
                raise
            if failures:
                return failures[-1]
            raise Fault(Reason.VALUE, str(error).strip() or "the test's assertion does not hold") from None
        except StatusError as error:
            if error.name in _LACKS:
                raise Fault(Reason.UNSUPPORTED, str(error)) from None
            raise
        unseen = LIBINFINIOP.take_unseen()
        if unseen:
            raise Fault(Reason.RAISED, f"{unseen[0].error()}, and nobody looked at it; give it to check_error")
        if not scope.calls:  # scripts return early from cases that they do not mean
            return Verdict(status=Status.SKIPPED, message="the test returned without a call of an operator")
        return Verdict(status=Status.PASSED, evidence=Evidence.EXTERNAL_REPORT)


def _of_faults(judge: Callable[[], Verdict]) -> Verdict:
    try:
        with Border("the test", Reason.RAISED):
            return judge()
    except Fault as fault:
        return fault_verdict(fault)


def _with_memory(verdict: Verdict, scope: CaseScope) -> Verdict:
    """A pass that wrote outside its tensors is none; a failure is told about it too."""
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
    """``gemm`` of ``test_gemm``; a function that is only called ``test`` has the name of its file."""
    name: str = getattr(function, "__name__", type(function).__name__).removeprefix("test_")
    code = getattr(function, "__code__", None)
    return Path(code.co_filename).stem if name == "test" and code is not None else name


def _known(dtype: Any) -> Any:
    return None if dtype is None else infini_dtype(dtype)


def _shown(argument: Any) -> str:
    return argument.name if isinstance(argument, Enum) else repr(argument)
