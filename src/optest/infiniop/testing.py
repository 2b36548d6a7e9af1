"""``test_operator``, which runs a test function for every case and dtype, and the options of its scripts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
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
from optest.infiniop.liboperators import LIBINFINIOP, check_error, create_handle, destroy_handle
from optest.reporting.explain import explain, headline
from optest.reporting.tally import Tally, skip_text
from optest.settings import resolve
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary, Status, TestCase
from optest.store import JournalWriter, RunDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptOptions:
    """Options of the command line; ``script`` is empty if none was read, ``only_of`` if ``only`` is for every test."""

    script: str = ""
    seed: int = 0
    only: int | None = None
    only_of: str = ""


# Set by get_args; test_operator, which the scripts call without options, takes its defaults from here.
script_options: ContextVar[ScriptOptions] = ContextVar("optest_infiniop_script", default=ScriptOptions())  # noqa: B039


@contextmanager
def exit_on_error() -> Iterator[None]:
    """Turn an OptestError in the block into its message and exit status, an interruption into status 130."""
    # Only in a script whose command line was read; another program handles the exceptions itself.
    try:
        yield
    except KeyboardInterrupt:
        if not script_options.get().script:
            raise
        raise SystemExit(130) from None
    except OptestError as error:
        if not script_options.get().script:
            raise
        sys.stderr.write(f"{error}\n")
        raise SystemExit(error.exit_status) from None


def get_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the options of a test script, by default from the command line, and keep them for test_operator."""
    parser = argparse.ArgumentParser(description="Test an operator of libinfiniop")
    parser.add_argument("--profile", action="store_true", help="also time the operator")
    parser.add_argument("--num_prerun", type=_parse_count(0), default=10, help="calls before timing (10)")
    parser.add_argument("--num_iterations", type=_parse_count(1), default=1000, help="calls to time, 1 or more (1000)")
    parser.add_argument("--debug", action="store_true", help="print the wrong elements")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random values (0)")
    parser.add_argument("--only", type=_parse_only, metavar="[TEST:]N", help="run only case N of a test, from 0")
    for device in InfiniDeviceEnum:
        parser.add_argument(f"--{device.name.lower()}", action="store_true", help=f"run on {InfiniDeviceNames[device]}")
    options = parser.parse_args(arguments)
    only_of, only = options.only or ("", None)
    script = sys.argv[0] if arguments is None else ""
    script_options.set(ScriptOptions(script=script, seed=options.seed, only=only, only_of=only_of))
    return options


def _parse_only(text: str) -> tuple[str, int]:
    test, _, number = text.rpartition(":")
    return test, int(number)


def _parse_count(minimum: int) -> Any:
    def parse(text: str) -> int:
        number = int(text)
        if number < minimum:
            raise argparse.ArgumentTypeError(f"is {number}, expected {minimum} or more")
        return number

    return parse


def get_test_devices(args: argparse.Namespace) -> list[InfiniDeviceEnum]:
    """Return the requested devices, by default the processor; raise Unavailable or UsageError for missing ones."""
    requested = [device for device in InfiniDeviceEnum if getattr(args, device.name.lower(), False)]
    missing: list[Unavailable] = []
    for device in requested:
        try:
            prepare_device(device)
        except Unavailable as error:  # noqa: PERF203 - all missing devices are reported
            missing.append(error)
    with exit_on_error():
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
    """Results of all cases."""

    results: tuple[CaseResult, ...]

    @property
    def leaks(self) -> tuple[Leak, ...]:
        """Descriptors that passed cases did not destroy."""
        return tuple(Leak(**leak) for result in self.results for leak in result.verdict.details.get("leaks", ()))

    def count(self, *statuses: Status) -> int:
        return sum(result.status in statuses for result in self.results)

    @property
    def is_well(self) -> bool:
        """Return whether a case passed and no case is bad."""
        return self.count(Status.PASSED) > 0 and self.count(*BAD_STATUSES) == 0


class OperatorTestFailed(AssertionError):
    """Some cases are bad; raised after all cases have run, with their ``report``."""

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
    """Call ``test_func(handle, device, *case, dtype, sync)`` for every case and dtype, also after a failure.

    A case fails if the function raises, if memory outside a tensor's elements was written, if a call changed a tensor
    that the header declares const, or if a failure status was not checked; it is skipped if no operator was called.
    ``seed`` and ``only`` (the number of one case) default to the command line's. ``stop_at_first`` ends at the first
    failure; with ``raise_at_end=False`` the report says whether all :attr:`~OperatorReport.is_well`. The run's journal
    is shown by ``optest report latest``.

    In a script whose command line :func:`get_args` read, an error prints a message and exits: status 1 for a wrong
    case, 5 if nothing ran or something is missing, 130 for an interruption.

    Raises:
        OperatorTestFailed: at the end, if a case is wrong.
        NothingSelected: if no case ran, or every case was skipped.
        Unavailable: without a library.
        StatusError: if the device cannot be selected.
        UsageError: if the run's directory cannot be created.
    """
    chosen = script_options.get()
    if only is None and chosen.only_of not in ("", name_of(test_func)):
        sys.stdout.write(f"{name_of(test_func)}: not run because of --only {chosen.only_of}:{chosen.only}\n")
        return OperatorReport(results=())
    with exit_on_error():
        driver = TestFunction(test_func, infini_device(device), chosen.seed if seed is None else seed)
        driver.take(product(test_cases, filter_tensor_dtypes_by_device(driver.on, tensor_dtypes)))
        name = "test_cases" if not test_cases else "tensor_dtypes"
        why = f"{name} is empty" if not (test_cases and tensor_dtypes) else "the device supports none of the dtypes"
        printer = _ResultPrinter(driver, f"{_title(driver)}: no cases; {why}")
        cases, number = driver.cases, chosen.only if only is None else only
        if number is not None and not 0 <= number < len(cases):
            raise UsageError(f"only is {number}, expected from 0 to {len(cases) - 1}")
        cases = cases if number is None else cases[number : number + 1]
        _run_on_device(driver, cases, printer, maxfail=int(stop_at_first))
        if raise_at_end and printer.exit_status == _NOTHING_RAN:
            raise NothingSelected(f"no case ran to a verdict: {printer.summary}")
        if raise_at_end and printer.exit_status and chosen.script:
            raise SystemExit(printer.exit_status)  # the summary was printed before
        if raise_at_end and printer.exit_status:
            raise OperatorTestFailed(printer.summary, printer.report)
    return printer.report


test_operator.__test__ = False  # type: ignore[attr-defined]  # pytest would take the name for a test


def filter_tensor_dtypes_by_device(device: Any, tensor_dtypes: Sequence[Any]) -> list[Any]:
    """Return the dtypes that the device supports: all except BF16 on Moore, Kunlun, Hygon and QY."""
    lacks_bf16 = infini_device(device) in _WITHOUT_BFLOAT16
    return [dtype for dtype in tensor_dtypes if not (lacks_bf16 and infini_dtype(dtype) is InfiniDtype.BF16)]


def _run_on_device(driver: TestFunction, cases: Sequence[TestCase], printer: _ResultPrinter, maxfail: int) -> None:
    """Select the device, create the handle and run the cases; results are journaled and printed as they arrive."""
    check_error(LIBINFINIOP.infinirtSetDevice(int(driver.on), 0))
    driver.handle = create_handle()
    try:
        if cases:
            _run_in_session(driver, cases, printer, maxfail)
        else:
            printer.close()
    finally:
        destroy_handle(driver.handle)


def _run_in_session(driver: TestFunction, cases: Sequence[TestCase], printer: _ResultPrinter, maxfail: int) -> None:
    """Run the cases in a journaled session; a script's cases on the CPU run in forks. Raise its failure."""
    interruption, script = Interruption(), script_options.get().script
    executor: Executor = InProcess(driver, interrupted=interruption)
    isolation = "none"
    # A device's context does not survive a fork, and a test that is part of a program may need its process's state.
    if script and driver.on is InfiniDeviceEnum.CPU:
        executor, isolation = InForks(InProcess(driver, interrupted=interruption)), "case"
    directory = RunDirectory.begin(Path(resolve({})["runs_dir"]))
    info = run_info(
        driver,
        directory,
        total=len(cases),
        target=cases[0].backend.label(),
        seed=driver.seed,
        plan=script,
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
            listener=printer,
            policy=Policy(maxfail=maxfail, isolation=isolation, dedupe=False),
            repro=lambda case: _reproduction_command(driver, case),
            interruption=interruption,
        )
        summary = session.run()
    if session.failure is not None:
        raise session.failure
    if summary.interrupted:
        raise KeyboardInterrupt


class _ResultPrinter:
    """Listener that prints each result and a summary, and keeps report, summary and exit status."""

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
        not_run = len(self.driver.cases) - tally.finished
        counted = tally.phrase() + f", {not_run} not run" * (not_run > 0)
        lines = [f"{_title(self.driver)}: {counted} (seed {self.driver.seed})"]
        lines += [f"  {count} skipped: {skip_text(why)}" for why, count in tally.skips.most_common(_SKIP_ROWS)]
        lines += [f"  not destroyed by the test: {leak.what} created at {leak.made_at}" for leak in self.report.leaks]
        self.summary = "\n".join(lines)
        self.close()

    def close(self) -> None:
        sys.stdout.write(f"{self.summary}\n")
        sys.stdout.flush()


def _reproduction_command(driver: TestFunction, case: TestCase) -> str:
    number, script = case.attributes["only"], script_options.get().script
    if not script:
        return f"test_operator(…, seed={case.seed}, only={number})"
    device, name = driver.on.name.lower(), case.descriptor.name
    return f"python {script} --{device} --seed {case.seed} --only {name}:{number} --debug"


def _title(driver: TestFunction) -> str:
    return f"{name_of(driver.function)} on {InfiniDeviceNames[driver.on]}"
