"""test_operator runs every case, gives every failure a reason, and passes nothing without evidence."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from texts import refusal, says, says_exactly

from optest.clib.ffi.calls import StatusError
from optest.errors import NothingSelected, UsageError
from optest.infiniop import (
    LIBINFINIOP,
    InfiniDeviceEnum,
    InfiniDtype,
    InfiniLib,
    TestTensor,
    TestWorkspace,
    check_error,
    debug,
    driver,
    filter_tensor_dtypes_by_device,
    get_args,
    infiniopOperatorDescriptor_t,
    profile_operation,
)
from optest.infiniop import test_operator as run_operator
from optest.infiniop.testing import OperatorReport, OperatorTestFailed, ScriptOptions, script_options
from optest.spec import CaseResult, Reason, Status
from optest.store import RunDirectory, read_journal

pytestmark = pytest.mark.cxx

CPU, F32 = InfiniDeviceEnum.CPU, InfiniDtype.F32


def create_twice(handle: Any, y: TestTensor, x: TestTensor) -> Any:
    descriptor = infiniopOperatorDescriptor_t()
    create = LIBINFINIOP.infiniopCreateTwiceDescriptor
    check_error(create(handle, ctypes.byref(descriptor), y.descriptor, x.descriptor))
    return descriptor


def make_test(function: str, *, judge: bool = True, status: bool = True) -> Any:
    """A test function over one of the tiny library's operators; y = 2 x is right."""

    def test_twice(handle, device, size, tensor_dtype, sync):
        x = TestTensor((size,), None, tensor_dtype, device)
        y = TestTensor((size,), None, tensor_dtype, device, mode="zeros")
        descriptor = create_twice(handle, y, x)
        needed = ctypes.c_size_t()
        check_error(LIBINFINIOP.infiniopGetTwiceWorkspaceSize(descriptor, ctypes.byref(needed)))
        workspace = TestWorkspace(needed.value, device)
        code = getattr(LIBINFINIOP, function)(descriptor, workspace.data(), workspace.size(), y.data(), x.data(), None)
        if status:
            check_error(code)
        if judge:
            debug(y, 2 * x.logical_array(), rtol=0, verbose=False)
        check_error(LIBINFINIOP.infiniopDestroyTwiceDescriptor(descriptor))

    return test_twice


def report_of(test: Any, cases: Any, dtypes: list[Any] | None = None, **options: Any) -> OperatorReport:
    return run_operator(CPU, test, cases, dtypes or [F32], raise_at_end=False, **options)


def result_of(test: Any, case: tuple[Any, ...] = ()) -> CaseResult:
    (result,) = report_of(test, [case]).results
    return result


def test_correct_operator_passes(lib: InfiniLib, capsys: pytest.CaptureFixture[str]) -> None:
    report = run_operator(CPU, make_test("infiniopTwice"), [(5,), (0,), (1,)], [F32])
    assert (report.is_well, report.count(Status.PASSED), report.leaks) == (True, 3, ())
    out = capsys.readouterr().out
    assert "PASSED  twice[F32](5)  infiniop:cpu" in out
    assert says(out, "infiniop.twice_on_cpu_passed")
    assert lib.aliveNow() == 0, "tensor descriptors that the test leaves to Python are destroyed with its case"


def test_wrong_operators_have_reasons(lib: InfiniLib) -> None:
    assert result_of(make_test("infiniopThrice"), (5,)).reason is Reason.VALUE
    assert result_of(make_test("infiniopOverrun"), (5,)).reason is Reason.OUT_OF_BOUNDS
    assert result_of(make_test("infiniopScratch"), (5,)).reason is Reason.WORKSPACE
    assert result_of(make_test("infiniopMutate"), (5,)).reason is Reason.INPUT_MUTATED
    assert result_of(make_test("infiniopLacking"), (5,)).reason is Reason.UNSUPPORTED
    assert result_of(make_test("infiniopLacking", status=False, judge=False), (5,)).reason is Reason.RAISED
    assert result_of(make_test("infiniopTwice"), (5,)).reason is None
    overrun = result_of(make_test("infiniopOverrun"), (5,))
    assert says(overrun.verdict.message, "infiniop.bytes_behind_the_end_of")  # names the parameter of C


def test_failure_is_explained_and_run_continues(lib: InfiniLib, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, right = make_test("infiniopThrice"), make_test("infiniopTwice")

    def test_some(handle, device, size, *further):
        (wrong if size == 7 else right)(handle, device, size, *further)

    with pytest.raises(OperatorTestFailed) as caught:
        run_operator(CPU, test_some, [(3,), (7,), (4,)], [F32], seed=11)
    assert [result.status for result in caught.value.report.results] == [Status.PASSED, Status.FAILED, Status.PASSED]
    out = capsys.readouterr().out
    assert "FAILED  some[F32](7)  infiniop:cpu" in out
    assert says(out, "infiniop.out_all_elements_are")
    assert "  reproduce: test_operator(…, seed=11, only=1)" in out
    assert says_exactly(str(caught.value), "infiniop.some_on_cpu_passed")


def test_stop_at_first_ends_the_run(lib: InfiniLib) -> None:
    report = report_of(make_test("infiniopThrice"), [(3,), (7,)], stop_at_first=True)
    assert (len(report.results), report.is_well) == (1, False)


def test_only_draws_the_same_values(lib: InfiniLib) -> None:
    drawn: list[bytes] = []

    def test_drawn(handle, device, size, tensor_dtype, sync):
        drawn.append(TestTensor((size,), None, tensor_dtype, device).logical_array().tobytes())
        LIBINFINIOP.aliveNow()

    report_of(test_drawn, [(3,), (4,)], [F32, InfiniDtype.F16], seed=5)
    report_of(test_drawn, [(3,), (4,)], [F32, InfiniDtype.F16], seed=5, only=2)
    report_of(test_drawn, [(3,), (4,)], [F32, InfiniDtype.F16], seed=6, only=2)
    assert len(drawn) == 6
    assert drawn[4] == drawn[2]
    assert drawn[5] != drawn[2]
    with refusal(UsageError, "infiniop.only_is_but_should"):
        report_of(test_drawn, [(3,), (4,)], [F32, InfiniDtype.F16], only=4)


def test_command_line_selects_case_and_exit_status(
    lib: InfiniLib, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["twice.py", "--seed", "9", "--only", "1"])
    get_args()
    for device, function, status, said in (
        (CPU, "infiniopThrice", 1, ""),
        (CPU, "infiniopLacking", 5, "no case ran to a verdict"),
        (InfiniDeviceEnum.NVIDIA, "infiniopTwice", 3, "infinirtSetDevice returned 5"),
    ):
        with pytest.raises(SystemExit) as exit_info:
            run_operator(device, make_test(function), [(3,), (7,)], [F32])
        output = capsys.readouterr()
        assert exit_info.value.code == status
        assert said in output.err
        if status == 1:
            assert "FAILED  twice[F32](7)" in output.out
            assert says(output.out, "infiniop.again_python_twice_py")
            assert says(output.out, "infiniop.failed_not_run_seed")


def test_only_selects_one_test(
    lib: InfiniLib, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["twice.py", "--only", "twice:1"])
    get_args()

    def test_other(handle, device, size, tensor_dtype, sync):
        raise AssertionError

    assert report_of(test_other, [(1,)]).results == ()
    assert len(report_of(make_test("infiniopTwice"), [(3,), (7,)]).results) == 1
    assert says(capsys.readouterr().out, "infiniop.other_left_out_by")


@pytest.mark.parametrize(
    ("error", "reason", "status"),
    [
        (AssertionError("too far off"), Reason.VALUE, Status.FAILED),
        (ValueError("bad"), Reason.RAISED, Status.ERROR),
        (SystemExit(0), Reason.RAISED, Status.ERROR),
        (KeyboardInterrupt(), Reason.RAISED, Status.ERROR),
        (MemoryError(), Reason.OUT_OF_MEMORY, Status.ERROR),
    ],
)
def test_exception_of_test_is_a_result(lib: InfiniLib, error, reason, status) -> None:
    def test_raising(handle, device, tensor_dtype, sync):
        raise error

    result = result_of(test_raising)
    assert (result.reason, result.status) == (reason, status)


def test_interruption_ends_the_run(lib: InfiniLib) -> None:
    def test_interrupted(handle, device, tensor_dtype, sync):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        report_of(test_interrupted, [()])
    assert lib.aliveNow() == 0, "the handle is destroyed all the same"


def test_test_without_calls_is_skipped(lib: InfiniLib) -> None:
    def test_idle(handle, device, tensor_dtype, sync):
        TestTensor((2,), None, tensor_dtype, device).descriptor  # noqa: B018

    result = result_of(test_idle)
    assert result.status is Status.SKIPPED, "scripts return early from unsupported cases"
    said = r"idle on CPU: 1 skipped \(seed 0\)\n  1 skipped: the test returned without calling"
    with pytest.raises(NothingSelected, match=said):
        run_operator(CPU, test_idle, [()], [F32])
    with refusal(NothingSelected, "infiniop.nothing_was_shown_idle"):
        run_operator(CPU, test_idle, [], [F32])
    with refusal(NothingSelected, "infiniop.since_tensor_dtypes_is"):
        run_operator(CPU, test_idle, [()], [])
    with pytest.raises(NothingSelected, match="1 skipped: UNSUPPORTED: infiniopLacking returned 2"):
        run_operator(CPU, make_test("infiniopLacking"), [(3,)], [F32])


def test_unselectable_device_ends_the_run(lib: InfiniLib) -> None:
    with pytest.raises(StatusError, match="infinirtSetDevice returned 5"):
        run_operator(InfiniDeviceEnum.NVIDIA, make_test("infiniopTwice"), [(3,)], [F32])


def test_leaked_descriptors_are_reported_and_destroyed(lib: InfiniLib, capsys: pytest.CaptureFixture[str]) -> None:
    def test_leaving(handle, device, tensor_dtype, sync):
        x = TestTensor((2,), None, tensor_dtype, device)
        create_twice(handle, x, x)

    report = report_of(test_leaving, [()])
    assert report.is_well
    (leak,) = report.leaks
    assert leak.what == "Twice descriptor"
    assert says(capsys.readouterr().out, "infiniop.not_destroyed_by_the", __file__=__file__)
    assert lib.aliveNow() == 0


def test_timed_calls_are_not_watched(lib: InfiniLib) -> None:
    def test_profiled(handle, device, tensor_dtype, sync):
        x = TestTensor((2,), None, tensor_dtype, device)
        y = TestTensor((2,), None, tensor_dtype, device, mode="empty")
        descriptor = create_twice(handle, y, x)
        before = x.logical_array().copy()

        def mutate() -> None:
            check_error(LIBINFINIOP.infiniopMutate(descriptor, None, 0, y.data(), x.data(), None))

        profile_operation("mutate", mutate, device, 0, 2)
        assert not np.array_equal(x.actual_array(), before)
        check_error(LIBINFINIOP.infiniopDestroyTwiceDescriptor(descriptor))

    assert report_of(test_profiled, [()]).is_well


def test_run_has_a_journal(lib: InfiniLib, tmp_path: Path) -> None:
    report_of(make_test("infiniopThrice"), [(3,), (3,)])
    journal = read_journal(RunDirectory.open(tmp_path / "runs", "latest").journal_path)
    assert [each.id for each in journal.results] == ["twice[F32](3)"] * 2, "equal cases draw other values"
    assert [each.key for each in journal.results] != [journal.results[0].key] * 2
    first = journal.results[0]
    assert first.attributes == {"size": "3", "tensor_dtype": "F32", "only": 0}
    assert first.where.startswith(f"{__file__}:")
    assert journal.summary is not None
    assert journal.summary.exit_status == 1


def test_device_missing_in_torch_is_a_skip(lib: InfiniLib) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("needs a machine without CUDA")

    def test_on_cuda(handle, device, tensor_dtype, sync):
        torch.ones(3, device="cuda")

    result = result_of(test_on_cuda)
    assert (result.reason, result.status) == (Reason.UNAVAILABLE, Status.SKIPPED)
    assert says(result.verdict.message, "infiniop.the_test_needs_device")


def test_bfloat16_is_filtered_by_device() -> None:
    dtypes = [InfiniDtype.F16, InfiniDtype.BF16, 19, "torch.bfloat16"]
    assert filter_tensor_dtypes_by_device(InfiniDeviceEnum.MOORE, dtypes) == [InfiniDtype.F16]
    assert filter_tensor_dtypes_by_device(InfiniDeviceEnum.NVIDIA, dtypes) == dtypes


def test_function_named_test_takes_file_name(lib: InfiniLib) -> None:
    def test(handle, device, layout, tensor_dtype, sync):
        LIBINFINIOP.aliveNow()

    assert result_of(test, (InfiniDtype.I8,)).id == "test_infiniop_testing[F32](I8)"


def test_torch_assertion_has_measures(lib: InfiniLib) -> None:
    torch = pytest.importorskip("torch")

    def test_close(handle, device, size, tensor_dtype, sync):
        ones = torch.ones(size)
        assert torch.allclose(ones + torch.arange(size) * 1e-3, ones, rtol=0, atol=1.5e-3)

    result = result_of(test_close, (4,))
    (measure,) = result.verdict.measures
    assert (result.reason, measure.mismatched, measure.worst_index) == (Reason.VALUE, 2, (3,))


def test_crash_and_hang_in_script_end_one_case(lib: InfiniLib, monkeypatch: pytest.MonkeyPatch) -> None:
    script_options.set(ScriptOptions(script="twice.py"))
    monkeypatch.setattr(driver, "_TIMEOUT_S", 3.0)
    twice = make_test("infiniopTwice")

    def test_dies(handle, device, size, tensor_dtype, sync):
        if size == 2:
            faulthandler.disable()  # pytest's would print where the fork dies
            ctypes.memset(0, 1, 1)
        if size == 3:
            time.sleep(60)
        twice(handle, device, size, tensor_dtype, sync)

    results = report_of(test_dies, [(1,), (2,), (3,), (4,)]).results
    assert [result.reason for result in results] == [None, Reason.SIGNAL, Reason.DEADLINE, None]
    assert results[1].status is Status.CRASHED
    assert results[1].verdict.details["signal"] == "SIGSEGV"
    assert results[3].isolation == "case"


def test_interrupted_script_prints_summary(
    lib: InfiniLib, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script_options.set(ScriptOptions(script="twice.py"))

    def test_stopped(handle, device, tensor_dtype, sync):
        time.sleep(0.2)  # exceptions in the hooks of the parent's fork are ignored
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)

    with pytest.raises(SystemExit) as exit_info:
        report_of(test_stopped, [(), ()])
    assert exit_info.value.code == 130
    assert says(capsys.readouterr().out, "infiniop.stopped_on_cpu_nothing")


def test_missing_dtype_is_none(lib: InfiniLib) -> None:
    dtypes = []

    def test_bare(handle, device, size, tensor_dtype, sync):
        dtypes.append(tensor_dtype)

    (result,) = report_of(test_bare, [(3,)], [None]).results
    assert (dtypes, result.id) == ([None], "bare[None](3)")
