"""test_operator: every case of a test function on every dtype, to the end, with a report that explains each failure."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from pathlib import Path
from typing import Any

from optest.clib.ffi.handles import Leak
from optest.clib.ffi.statuses import StatusError
from optest.core.border import Border
from optest.core.phases import Phase
from optest.core.worker_death import death, overtime
from optest.errors import NothingSelected, UsageError
from optest.infiniop.arguments import as_a_command, chosen
from optest.infiniop.comparison import Discrepancy, failures_of_allclose
from optest.infiniop.datatypes import InfiniDtype, infini_dtype
from optest.infiniop.devices import InfiniDeviceEnum, InfiniDeviceNames, get_sync_func, infini_device
from optest.infiniop.liboperators import LIBINFINIOP, create_handle, destroy_handle
from optest.infiniop.scope import CaseScope, case_scope
from optest.infiniop.status import check_error
from optest.process import fork_and_run
from optest.reporting.explain import explain, headline
from optest.spec import (
    BAD_STATUSES,
    CaseResult,
    Check,
    CheckState,
    Evidence,
    Fault,
    Reason,
    Status,
    Verdict,
)
from optest.store.codec import decode, encode

__all__ = ["OperatorReport", "OperatorTestFailed", "filter_tensor_dtypes_by_device", "test_operator"]

_WITH_BFLOAT16 = {
    InfiniDeviceEnum.CPU,
    InfiniDeviceEnum.NVIDIA,
    InfiniDeviceEnum.METAX,
    InfiniDeviceEnum.ASCEND,
    InfiniDeviceEnum.ILUVATAR,
    InfiniDeviceEnum.CAMBRICON,
}
_TIMEOUT_S = 300.0
"""The usual deadline of a case."""
_LACKS = ("INFINI_STATUS_NOT_IMPLEMENTED", "INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReport:
    """What came out, case by case; ``leaks`` are descriptors that passing cases did not destroy."""

    results: tuple[CaseResult, ...]
    leaks: tuple[Leak, ...] = ()

    def count(self, *statuses: Status) -> int:
        return sum(result.status in statuses for result in self.results)

    @property
    def is_well(self) -> bool:
        """Whether something passed and nothing is wrong."""
        return self.count(Status.PASSED) > 0 and self.count(*BAD_STATUSES) == 0


class OperatorTestFailed(AssertionError):
    """Raised when all cases have run and some are wrong; ``report`` has them all."""

    def __init__(self, message: str, report: OperatorReport) -> None:
        self.report = report
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One call of the test function."""

    number: int
    name: str
    device: InfiniDeviceEnum
    arguments: tuple[Any, ...]
    dtype: Any
    seed: int

    @property
    def id(self) -> str:
        return f"{self.name}[{infini_dtype(self.dtype).name}]({', '.join(map(_shown, self.arguments))})"

    @property
    def own_seed(self) -> int:
        """Of this case alone, so that running it by itself draws the same values."""
        digest = hashlib.blake2b(f"{self.seed}:{self.number}".encode(), digest_size=6).digest()
        return int.from_bytes(digest, "little")

    @property
    def repro(self) -> str:
        if not chosen.script:
            return f"test_operator(…, seed={self.seed}, only={self.number})"
        device = f"--{self.device.name.lower()}"
        return f"python {chosen.script} {device} --seed {self.seed} --only {self.name}:{self.number} --debug"


def test_operator(
    device: Any,
    test_func: Callable[..., Any],
    test_cases: Sequence[Sequence[Any]],
    tensor_dtypes: Sequence[Any],
    *,
    seed: int | None = None,  # noqa: PT028 - the seed fixes a name that ruff takes for a test's
    only: int | None = None,  # noqa: PT028
    stop_at_first: bool = False,  # noqa: PT028
    raise_at_end: bool = True,  # noqa: PT028
) -> OperatorReport:
    """Call ``test_func(handle, device, *case, dtype, sync)`` for every case and dtype; a failure ends no other case.

    A case fails if the function raises, if an output went outside its elements, if a call changed a tensor that the
    header passes as const, if a status of failure was not looked at, or if no operator was called. ``seed`` and
    ``only`` (the number of one case) are those of the command line unless stated. ``stop_at_first`` ends at the first
    failure; with ``raise_at_end=False`` the report says whether all :attr:`~OperatorReport.is_well`.

    In a script whose command line :func:`get_args` read, an error ends the process with a sentence instead: status 1
    for a wrong case, 5 if nothing was shown or something is not there.

    Raises:
        OperatorTestFailed: at the end, if a case is wrong.
        NothingSelected: if no case was run, or every one was skipped.
        Unavailable: without a library.
        StatusError: if the device cannot be selected.
    """
    if only is None and chosen.only_of not in ("", _name_of(test_func)):
        sys.stdout.write(f"{_name_of(test_func)}: left out by --only {chosen.only_of}:{chosen.only}\n")
        return OperatorReport(results=())
    with as_a_command():
        report, summary = _reported(device, test_func, test_cases, tensor_dtypes, seed, only, stop_at_first)
        if raise_at_end:
            _require_well(report, summary)
    return report


test_operator.__test__ = False  # type: ignore[attr-defined]  # pytest would take the name for a test


def _reported(
    device: Any,
    test_func: Callable[..., Any],
    test_cases: Sequence[Sequence[Any]],
    tensor_dtypes: Sequence[Any],
    seed: int | None,
    only: int | None,
    stop_at_first: bool,
) -> tuple[OperatorReport, str]:
    """Run what is asked for, print each result and the summary."""
    known = infini_device(device)
    asked = _asked(known, test_func, test_cases, tensor_dtypes, chosen.seed if seed is None else seed)
    wanted = chosen.only if only is None else only
    if wanted is not None and not 0 <= wanted < len(asked):
        raise UsageError(f"only is {wanted}, but should be from 0 to {len(asked) - 1}")
    check_error(LIBINFINIOP.infinirtSetDevice(int(known), 0))
    results: list[CaseResult] = []
    leaks: list[Leak] = []
    handle = create_handle()
    # A device's context does not live on in a fork; a test that is part of a program may keep what it finds there.
    judged = _verdict_of_fork if chosen.script and known is InfiniDeviceEnum.CPU else _verdict
    try:
        for each in asked if wanted is None else [asked[wanted]]:
            verdict = judged(each, test_func, handle, leaks)
            results.append(_result(each, verdict))
            _tell(results[-1])
            if stop_at_first and verdict.status in BAD_STATUSES:
                break
    finally:
        destroy_handle(handle)
    report = OperatorReport(results=tuple(results), leaks=tuple(leaks))
    summary = _summary(report, _name_of(test_func), known, asked)
    sys.stdout.write(f"{summary}\n")
    sys.stdout.flush()
    return report, summary


def filter_tensor_dtypes_by_device(device: Any, tensor_dtypes: Sequence[Any]) -> list[Any]:
    """Those that the device has: all but BF16 for Moore, Kunlun, Hygon and QY. Numbers of the header, torch dtypes."""
    if infini_device(device) in _WITH_BFLOAT16:
        return list(tensor_dtypes)
    return [dtype for dtype in tensor_dtypes if infini_dtype(dtype) is not InfiniDtype.BF16]


def _asked(
    device: InfiniDeviceEnum,
    test_func: Callable[..., Any],
    test_cases: Sequence[Sequence[Any]],
    tensor_dtypes: Sequence[Any],
    seed: int,
) -> list[_Asked]:
    dtypes = filter_tensor_dtypes_by_device(device, tensor_dtypes)
    name = _name_of(test_func)
    return [
        _Asked(number=number, name=name, device=device, arguments=tuple(case), dtype=dtype, seed=seed)
        for number, (case, dtype) in enumerate(product(test_cases, dtypes))
    ]


def _name_of(test_func: Callable[..., Any]) -> str:
    """``gemm`` of ``test_gemm``; a function that is only called ``test`` has the name of its file."""
    name: str = getattr(test_func, "__name__", type(test_func).__name__).removeprefix("test_")
    code = getattr(test_func, "__code__", None)
    return Path(code.co_filename).stem if name == "test" and code is not None else name


def _shown(argument: Any) -> str:
    return argument.name if isinstance(argument, Enum) else repr(argument)


@dataclass(frozen=True, slots=True)
class _AnswerOfFork:
    verdict: Verdict
    leaks: list[Leak]


def _verdict_of_fork(asked: _Asked, test_func: Callable[..., Any], handle: Any, leaks: list[Leak]) -> Verdict:
    """The same in a fork of this process, in which nothing has run yet: a crash or a hang ends one case alone."""

    def ask() -> bytes:
        lost: list[Leak] = []
        return encode(_AnswerOfFork(_verdict(asked, test_func, handle, lost), lost))

    fork = fork_and_run(ask)
    try:
        answer = fork.read(_TIMEOUT_S)
    except TimeoutError:
        fork.end()
        return overtime(Phase.RUN, _TIMEOUT_S, "")
    except BaseException:
        fork.end()
        raise
    returncode, signal = fork.end()
    if returncode or not answer:
        return death(Phase.RUN, returncode, signal, "")
    decoded = decode(answer, _AnswerOfFork)
    leaks += decoded.leaks
    return decoded.verdict


def _verdict(asked: _Asked, test_func: Callable[..., Any], handle: Any, leaks: list[Leak]) -> Verdict:
    """What the test function says, and what the memory says."""
    before = LIBINFINIOP.held()
    LIBINFINIOP.take_unseen()  # of calls that were made before, which are not this case's
    with case_scope(asked.own_seed) as scope:
        try:
            with Border("the test", Reason.RAISED, let_through=lambda: True):
                verdict = _answer(asked, test_func, handle, scope)
        except Fault as fault:
            verdict = _of_fault(fault)
        verdict = _with_memory(verdict, scope)
        for tensor in scope.tensors:
            tensor.destroy_desc()
        left = LIBINFINIOP.release(before)
    if left and verdict.status is Status.PASSED:
        leaks += left
    return verdict


def _answer(asked: _Asked, test_func: Callable[..., Any], handle: Any, scope: CaseScope) -> Verdict:
    failures: list[Verdict] = []
    try:
        with failures_of_allclose() as failures:
            test_func(handle, asked.device, *asked.arguments, asked.dtype, get_sync_func(asked.device))
    except Discrepancy as discrepancy:
        return discrepancy.verdict
    except AssertionError as error:
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


def _of_fault(fault: Fault) -> Verdict:
    return Verdict(status=fault.status, reason=fault.reason, message=fault.message, details=fault.details)


def _with_memory(verdict: Verdict, scope: CaseScope) -> Verdict:
    """A pass that wrote outside its tensors is none; a failure is told about it too."""
    try:
        for tensor in scope.tensors:
            tensor.check_guards()
    except Fault as fault:
        if verdict.status is Status.PASSED:
            return _of_fault(fault)
        check = Check(name="guard zones", state=CheckState.FAILED, detail=fault.message)
        return Verdict(
            status=verdict.status,
            reason=verdict.reason,
            message=verdict.message,
            measures=verdict.measures,
            checks=(*verdict.checks, check),
            details=verdict.details,
        )
    return verdict


def _result(asked: _Asked, verdict: Verdict) -> CaseResult:
    return CaseResult(
        id=asked.id,
        key=f"{asked.name}:{asked.number}",
        operator=asked.name,
        target=f"infiniop:{asked.device.name.lower()}",
        reference="",
        mode="test function",
        verdict=verdict,
        seed=asked.seed,
        dtypes=(infini_dtype(asked.dtype).name,),
        backend="infiniop",
        repro=asked.repro,
    )


def _tell(result: CaseResult) -> None:
    lines = explain(result) if result.status in BAD_STATUSES else [headline(result)]
    if result.status is Status.SKIPPED:
        lines.append(f"  {result.verdict.message}")
    sys.stdout.write("\n".join(lines) + "\n")


def _summary(report: OperatorReport, name: str, device: InfiniDeviceEnum, asked: Sequence[_Asked]) -> str:
    passed, skipped = report.count(Status.PASSED), report.count(Status.SKIPPED)
    parts = [f"{passed} of {len(report.results)} passed"]
    wrong = report.count(*BAD_STATUSES)
    parts += [f"{wrong} wrong"] * (wrong > 0) + [f"{skipped} skipped"] * (skipped > 0)
    if len(report.results) < len(asked):
        parts.append(f"{len(asked) - len(report.results)} not run")
    seed = f"seed {asked[0].seed}" if asked else "no case"
    lines = [f"{name} on {InfiniDeviceNames[device]}: {', '.join(parts)} ({seed})"]
    lines += [f"  not destroyed by the test: {leak.what} made at {leak.made_at}" for leak in report.leaks]
    return "\n".join(lines)


def _require_well(report: OperatorReport, summary: str) -> None:
    if report.count(*BAD_STATUSES) and chosen.script:
        raise SystemExit(1)  # the summary has been printed
    if report.count(*BAD_STATUSES):
        raise OperatorTestFailed(summary, report)
    if not report.count(Status.PASSED):
        raise NothingSelected(f"nothing was shown: {summary}")
