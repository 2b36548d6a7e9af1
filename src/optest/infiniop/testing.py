"""test_operator: every case of a test function on every dtype, to the end, as a run of optest's engine; and the command
line of a script that calls it: which devices, profiling, and which case of which seed to run again."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from optest.clib.ffi.handles import Leak
from optest.core.executors import Executor, InProcess
from optest.core.forked import InForks
from optest.core.interruption import Interruption
from optest.core.provenance import run_info
from optest.core.session import Policy, Session
from optest.errors import NothingSelected, OptestError, Unavailable, UsageError
from optest.infiniop.datatypes import InfiniDtype, infini_dtype
from optest.infiniop.devices import InfiniDeviceEnum, InfiniDeviceNames, infini_device, prepare_device
from optest.infiniop.driver import TestFunction, name_of
from optest.infiniop.functions import check_error
from optest.infiniop.liboperators import LIBINFINIOP, create_handle, destroy_handle
from optest.reporting.explain import explain, headline
from optest.reporting.tally import Tally, skip_text
from optest.settings import resolve
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary, Status, TestCase
from optest.store import JournalWriter, RunDirectory


@dataclass(slots=True)
class Chosen:
    """What the command line says of the cases; ``script`` is empty as long as none was read.

    ``only`` is the number of the one case to run, of the test called ``only_of``, or of each if that is empty.
    """

    script: str = ""
    seed: int = 0
    only: int | None = None
    only_of: str = ""


chosen = Chosen()
"""Of the last :func:`get_args`; the defaults of :func:`test_operator`."""


@contextmanager
def as_a_command() -> Iterator[None]:
    """In a script that read its command line, an error of optest's ends it with a sentence and its exit status, and an
    interruption with 130."""
    try:
        yield
    except KeyboardInterrupt:
        if not chosen.script:
            raise
        raise SystemExit(130) from None
    except OptestError as error:
        if not chosen.script:
            raise
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_status) from None


def get_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options of a test script; ``arguments`` are those of its command line unless stated."""
    parser = argparse.ArgumentParser(description="Test an operator of libinfiniop")
    parser.add_argument("--profile", action="store_true", help="time the operator too")
    parser.add_argument("--num_prerun", type=_count(0), default=10, help="calls before timing (10)")
    parser.add_argument("--num_iterations", type=_count(1), default=1000, help="calls to time, 1 or more (1000)")
    parser.add_argument("--debug", action="store_true", help="print the elements that are off")
    parser.add_argument("--seed", type=int, default=0, help="which random values (0)")
    parser.add_argument("--only", type=_one, metavar="[TEST:]N", help="run case N of a test alone, from 0")
    for device in InfiniDeviceEnum:
        parser.add_argument(f"--{device.name.lower()}", action="store_true", help=f"on {InfiniDeviceNames[device]}")
    found = parser.parse_args(arguments)
    chosen.script = sys.argv[0] if arguments is None else ""
    chosen.seed = found.seed
    chosen.only_of, chosen.only = found.only or ("", None)
    return found


def _one(text: str) -> tuple[str, int]:
    test, _, number = text.rpartition(":")
    return test, int(number)


def _count(least: int) -> Any:
    def count(text: str) -> int:
        number = int(text)
        if number < least:
            raise argparse.ArgumentTypeError(f"is {number}, expected {least} or more")
        return number

    return count


def get_test_devices(args: argparse.Namespace) -> list[InfiniDeviceEnum]:
    """The devices that were asked for, the processor if none was; what a device needs is imported now.

    Raises:
        Unavailable: naming the device that this machine lacks, and why.
        UsageError: naming all of them, if it lacks several.
    """
    requested = [device for device in InfiniDeviceEnum if getattr(args, device.name.lower(), False)]
    missing: list[Unavailable] = []
    for device in requested:
        try:
            prepare_device(device)
        except Unavailable as error:  # noqa: PERF203 - each device is asked by itself
            missing.append(error)
    with as_a_command():
        if len(missing) == 1:
            raise missing[0]
        if missing:
            raise UsageError("\n".join(map(str, missing)))
    return requested or [InfiniDeviceEnum.CPU]


_WITHOUT_BFLOAT16 = (InfiniDeviceEnum.MOORE, InfiniDeviceEnum.KUNLUN, InfiniDeviceEnum.HYGON, InfiniDeviceEnum.QY)
_SKIP_ROWS = 10
_NOTHING_RAN = NothingSelected.exit_status


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorReport:
    """What came out, case by case."""

    results: tuple[CaseResult, ...]

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """Descriptors that passing cases did not destroy."""
        return tuple(Leak(**leak) for result in self.results for leak in result.verdict.details.get("leaks", ()))

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
    header passes as const, or if a status of failure was not looked at; it is skipped if no operator was called.
    ``seed`` and ``only`` (the number of one case) are those of the command line unless stated. ``stop_at_first`` ends
    at the first failure; with ``raise_at_end=False`` the report says whether all :attr:`~OperatorReport.is_well`. It is
    a run of optest, whose journal ``optest report latest`` reads.

    In a script whose command line :func:`get_args` read, an error ends the process with a sentence instead: status 1
    for a wrong case, 5 if nothing was shown or something is not there, 130 if it was interrupted.

    Raises:
        OperatorTestFailed: at the end, if a case is wrong.
        NothingSelected: if no case was run, or every one was skipped.
        Unavailable: without a library.
        StatusError: if the device cannot be selected.
        UsageError: if the run's folder cannot be made.
    """
    if only is None and chosen.only_of not in ("", name_of(test_func)):
        sys.stdout.write(f"{name_of(test_func)}: left out by --only {chosen.only_of}:{chosen.only}\n")
        return OperatorReport(results=())
    with as_a_command():
        driver = TestFunction(test_func, infini_device(device), chosen.seed if seed is None else seed)
        driver.take(product(test_cases, filter_tensor_dtypes_by_device(driver.on, tensor_dtypes)))
        name = "test_cases" if not test_cases else "tensor_dtypes"
        why = f"{name} is empty" if not (test_cases and tensor_dtypes) else "the device has none of the dtypes"
        lines = _Lines(driver, f"{_title(driver)}: there is no case, since {why}")
        _run(driver, _chosen(driver.cases, chosen.only if only is None else only), lines, maxfail=int(stop_at_first))
        if raise_at_end and lines.exit_status == _NOTHING_RAN:
            raise NothingSelected(f"nothing was shown: {lines.summary}")
        if raise_at_end and lines.exit_status and chosen.script:
            raise SystemExit(lines.exit_status)  # the summary has been printed
        if raise_at_end and lines.exit_status:
            raise OperatorTestFailed(lines.summary, lines.report)
    return lines.report


test_operator.__test__ = False  # type: ignore[attr-defined]  # pytest would take the name for a test


def filter_tensor_dtypes_by_device(device: Any, tensor_dtypes: Sequence[Any]) -> list[Any]:
    """Those that the device has: all but BF16 for Moore, Kunlun, Hygon and QY. Numbers of the header, torch dtypes."""
    lacks = infini_device(device) in _WITHOUT_BFLOAT16
    return [dtype for dtype in tensor_dtypes if not (lacks and infini_dtype(dtype) is InfiniDtype.BF16)]


def _chosen(cases: Sequence[TestCase], only: int | None) -> Sequence[TestCase]:
    if only is None:
        return cases
    if not 0 <= only < len(cases):
        raise UsageError(f"only is {only}, expected from 0 to {len(cases) - 1}")
    return cases[only : only + 1]


def _run(driver: TestFunction, cases: Sequence[TestCase], lines: _Lines, maxfail: int) -> None:
    """Run these cases; their results are journaled and told as they come."""
    check_error(LIBINFINIOP.infinirtSetDevice(int(driver.on), 0))
    driver.handle = create_handle()
    try:
        if cases:
            _run_in_session(driver, cases, lines, maxfail)
        else:
            lines.close()
    finally:
        destroy_handle(driver.handle)


def _run_in_session(driver: TestFunction, cases: Sequence[TestCase], lines: _Lines, maxfail: int) -> None:
    interruption = Interruption()
    executor: Executor = InProcess(driver, interrupted=interruption)
    isolation = "none"
    # A device's context does not live on in a fork; a test that is part of a program may keep what it finds there.
    if chosen.script and driver.on is InfiniDeviceEnum.CPU:
        executor, isolation = InForks(InProcess(driver, interrupted=interruption)), "case"
    directory = RunDirectory.begin(Path(resolve({})["runs_dir"]))
    info = run_info(
        driver,
        directory,
        total=len(cases),
        target=cases[0].backend.label(),
        seed=driver.seed,
        plan=chosen.script,
        isolation=isolation,
    )
    directory.write_info(info)
    with JournalWriter(directory.journal_path) as journal:
        session = Session(
            info=info,
            cases=cases,
            driver=driver,
            make_executor=lambda _: executor,
            journal=journal,
            listener=lines,
            policy=Policy(maxfail=maxfail, isolation=isolation, dedupe=False),
            repro=lambda case: _repro(driver, case),
            interruption=interruption,
        )
        summary = session.run()
    if session.failure is not None:
        raise session.failure
    if summary.interrupted:
        raise KeyboardInterrupt


class _Lines:
    """Prints each result as it comes, and what they add up to, which it keeps."""

    def __init__(self, driver: TestFunction, why_no_case: str) -> None:
        self.driver = driver
        self.report = OperatorReport(results=())
        self.summary = why_no_case
        self.exit_status = _NOTHING_RAN

    def on_start(self, info: RunInfo) -> None:
        pass

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:  # noqa: ARG002 - the protocol
        lines = explain(result) if result.status in BAD_STATUSES else [headline(result)]
        if result.status is Status.SKIPPED:
            lines.append(f"  {result.verdict.message}")
        sys.stdout.write("\n".join(lines) + "\n")

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        self.exit_status = summary.exit_status
        self.report = OperatorReport(results=tuple(results))
        tally = Tally()
        for result in results:
            tally.add(result)
        left_out = len(self.driver.cases) - tally.finished
        counted = tally.phrase() + f", {left_out} not run" * (left_out > 0)
        lines = [f"{_title(self.driver)}: {counted} (seed {self.driver.seed})"]
        lines += [f"  {count} skipped: {skip_text(why)}" for why, count in tally.skips.most_common(_SKIP_ROWS)]
        lines += [f"  not destroyed by the test: {leak.what} made at {leak.made_at}" for leak in self.report.leaks]
        self.summary = "\n".join(lines)
        self.close()

    def close(self) -> None:
        sys.stdout.write(f"{self.summary}\n")
        sys.stdout.flush()


def _repro(driver: TestFunction, case: TestCase) -> str:
    number = case.attributes["only"]
    if not chosen.script:
        return f"test_operator(…, seed={case.seed}, only={number})"
    device, name = driver.on.name.lower(), case.descriptor.name
    return f"python {chosen.script} --{device} --seed {case.seed} --only {name}:{number} --debug"


def _title(driver: TestFunction) -> str:
    return f"{name_of(driver.function)} on {InfiniDeviceNames[driver.on]}"
