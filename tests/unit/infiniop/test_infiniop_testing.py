"""test_operator: to the end, with a reason for every failure, and nothing passes that was not shown."""

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
from optest.infiniop.testing import OperatorReport, OperatorTestFailed, chosen
from optest.spec import Reason, Status
from optest.store import RunDirectory, read_journal

pytestmark = pytest.mark.cxx

CPU, F32 = InfiniDeviceEnum.CPU, InfiniDtype.F32


def asked(function: str, *, judge: bool = True, status: bool = True) -> Any:
    """A test function over one of the tiny library's operators; y = 2 x is right."""

    def test_twice(handle, device, size, tensor_dtype, sync):
        x = TestTensor((size,), None, tensor_dtype, device)
        y = TestTensor((size,), None, tensor_dtype, device, mode="zeros")
        descriptor = infiniopOperatorDescriptor_t()
        create = LIBINFINIOP.infiniopCreateTwiceDescriptor
        check_error(create(handle, ctypes.byref(descriptor), y.descriptor, x.descriptor))
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


def reported(
    test: Any, cases: list[tuple[Any, ...]], dtypes: list[Any] | None = None, **options: Any
) -> OperatorReport:
    return run_operator(CPU, test, cases, dtypes or [F32], raise_at_end=False, **options)


def reason_of(function: str, **options: Any) -> Reason | None:
    (result,) = reported(asked(function, **options), [(5,)]).results
    return result.reason


def test_a_right_operator_passes(lib: InfiniLib, capsys: pytest.CaptureFixture[str]) -> None:
    report = run_operator(CPU, asked("infiniopTwice"), [(5,), (0,), (1,)], [F32])
    assert report.is_well
    assert report.count(Status.PASSED) == 3
    assert report.leaks == ()
    out = capsys.readouterr().out
    assert "PASSED  twice[F32](5)  infiniop:cpu" in out
    assert says(out, "infiniop.twice_on_cpu_passed")
    assert lib.aliveNow() == 0, "tensor descriptors that the test leaves to Python are destroyed with its case"


def test_what_is_wrong_has_its_reason(lib: InfiniLib) -> None:
    assert reason_of("infiniopThrice") is Reason.VALUE
    assert reason_of("infiniopOverrun") is Reason.OUT_OF_BOUNDS
    assert reason_of("infiniopScratch") is Reason.WORKSPACE
    assert reason_of("infiniopMutate") is Reason.INPUT_MUTATED
    assert reason_of("infiniopLacking") is Reason.UNSUPPORTED
    assert reason_of("infiniopLacking", status=False, judge=False) is Reason.RAISED
    assert reason_of("infiniopTwice") is None


def test_a_failure_ends_no_other_case_and_explains_itself(lib: InfiniLib, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, right = asked("infiniopThrice"), asked("infiniopTwice")

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


def test_the_seeds_way_is_to_stop_at_the_first(lib: InfiniLib) -> None:
    report = reported(asked("infiniopThrice"), [(3,), (7,)], stop_at_first=True)
    assert len(report.results) == 1
    assert not report.is_well


def test_one_case_alone_draws_what_it_drew_among_all(lib: InfiniLib) -> None:
    drawn: list[bytes] = []

    def test_drawn(handle, device, size, tensor_dtype, sync):
        drawn.append(TestTensor((size,), None, tensor_dtype, device).logical_array().tobytes())
        LIBINFINIOP.aliveNow()

    reported(test_drawn, [(3,), (4,)], [F32, InfiniDtype.F16], seed=5)
    reported(test_drawn, [(3,), (4,)], [F32, InfiniDtype.F16], seed=5, only=2)
    reported(test_drawn, [(3,), (4,)], [F32, InfiniDtype.F16], seed=6, only=2)
    assert len(drawn) == 6
    assert drawn[4] == drawn[2]
    assert drawn[5] != drawn[2]
    with refusal(UsageError, "infiniop.only_is_but_should"):
        reported(test_drawn, [(3,), (4,)], [F32, InfiniDtype.F16], only=4)


def test_the_command_line_says_which_case_and_gets_a_status(
    lib: InfiniLib, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["twice.py", "--seed", "9", "--only", "1"])
    get_args()
    with pytest.raises(SystemExit) as ended:
        run_operator(CPU, asked("infiniopThrice"), [(3,), (7,)], [F32])
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert "FAILED  twice[F32](7)" in out
    assert says(out, "infiniop.again_python_twice_py")
    assert says(out, "infiniop.failed_not_run_seed")
    with pytest.raises(SystemExit) as ended:
        run_operator(CPU, asked("infiniopLacking"), [(3,), (7,)], [F32])
    assert ended.value.code == 5
    assert "nothing was shown" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        run_operator(InfiniDeviceEnum.NVIDIA, asked("infiniopTwice"), [(3,), (7,)], [F32])
    assert ended.value.code == 3
    assert "infinirtSetDevice returned 5" in capsys.readouterr().err


def test_only_one_test_of_a_script_is_run(
    lib: InfiniLib, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["twice.py", "--only", "twice:1"])
    get_args()

    def test_other(handle, device, size, tensor_dtype, sync):
        raise AssertionError

    assert reported(test_other, [(1,)]).results == ()
    assert len(reported(asked("infiniopTwice"), [(3,), (7,)]).results) == 1
    assert says(capsys.readouterr().out, "infiniop.other_left_out_by")


def test_a_fault_of_memory_names_the_tensor_as_c_does(lib: InfiniLib) -> None:
    (result,) = reported(asked("infiniopOverrun"), [(5,)]).results
    assert says(result.verdict.message, "infiniop.bytes_behind_the_end_of")


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
def test_whatever_a_test_raises_is_a_result(lib: InfiniLib, error, reason, status) -> None:
    def test_raising(handle, device, tensor_dtype, sync):
        raise error

    (result,) = reported(test_raising, [()]).results
    assert (result.reason, result.status) == (reason, status)


def test_an_interruption_is_the_users(lib: InfiniLib) -> None:
    def test_interrupted(handle, device, tensor_dtype, sync):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        reported(test_interrupted, [()])
    assert lib.aliveNow() == 0, "the handle is destroyed all the same"


def test_a_test_that_calls_nothing_shows_nothing(lib: InfiniLib) -> None:
    def test_idle(handle, device, tensor_dtype, sync):
        TestTensor((2,), None, tensor_dtype, device).descriptor  # noqa: B018

    (result,) = reported(test_idle, [()]).results
    assert result.status is Status.SKIPPED, "scripts return early from cases that they do not mean"
    with pytest.raises(
        NothingSelected, match=r"idle on CPU: 1 skipped \(seed 0\)\n  1 skipped: the test returned without a call"
    ):
        run_operator(CPU, test_idle, [()], [F32])
    with refusal(NothingSelected, "infiniop.nothing_was_shown_idle"):
        run_operator(CPU, test_idle, [], [F32])
    with refusal(NothingSelected, "infiniop.since_tensor_dtypes_is"):
        run_operator(CPU, test_idle, [()], [])
    with pytest.raises(NothingSelected, match="1 skipped: UNSUPPORTED: infiniopLacking returned 2"):
        run_operator(CPU, asked("infiniopLacking"), [(3,)], [F32])


def test_a_device_that_cannot_be_selected_ends_the_run(lib: InfiniLib) -> None:
    with pytest.raises(StatusError, match="infinirtSetDevice returned 5"):
        run_operator(InfiniDeviceEnum.NVIDIA, asked("infiniopTwice"), [(3,)], [F32])


def test_descriptors_that_a_passing_test_leaves_are_told_and_destroyed(
    lib: InfiniLib, capsys: pytest.CaptureFixture[str]
) -> None:
    def test_leaving(handle, device, tensor_dtype, sync):
        x = TestTensor((2,), None, tensor_dtype, device)
        made = infiniopOperatorDescriptor_t()
        create = LIBINFINIOP.infiniopCreateTwiceDescriptor
        check_error(create(handle, ctypes.byref(made), x.descriptor, x.descriptor))

    report = reported(test_leaving, [()])
    assert report.is_well
    (leak,) = report.leaks
    assert leak.what == "Twice descriptor"
    assert says(capsys.readouterr().out, "infiniop.not_destroyed_by_the", __file__=__file__)
    assert lib.aliveNow() == 0


def test_timed_calls_are_not_watched(lib: InfiniLib) -> None:
    def test_profiled(handle, device, tensor_dtype, sync):
        x = TestTensor((2,), None, tensor_dtype, device)
        y = TestTensor((2,), None, tensor_dtype, device, mode="empty")
        made = infiniopOperatorDescriptor_t()
        create = LIBINFINIOP.infiniopCreateTwiceDescriptor
        check_error(create(handle, ctypes.byref(made), y.descriptor, x.descriptor))
        before = x.logical_array().copy()

        def mutate() -> None:
            check_error(LIBINFINIOP.infiniopMutate(made, None, 0, y.data(), x.data(), None))

        profile_operation("mutate", mutate, device, 0, 2)
        assert not np.array_equal(x.actual_array(), before)
        check_error(LIBINFINIOP.infiniopDestroyTwiceDescriptor(made))

    assert reported(test_profiled, [()]).is_well


def test_it_is_a_run_with_a_journal(lib: InfiniLib, tmp_path: Path) -> None:
    reported(asked("infiniopThrice"), [(3,), (3,)])
    journal = read_journal(RunDirectory.open(tmp_path / "runs", "latest").journal_path)
    assert [each.id for each in journal.results] == ["twice[F32](3)"] * 2, "equal cases draw other values"
    assert [each.key for each in journal.results] != [journal.results[0].key] * 2
    first = journal.results[0]
    assert first.attributes == {"size": "3", "tensor_dtype": "F32", "only": 0}
    assert first.where.startswith(f"{__file__}:")
    assert journal.summary is not None
    assert journal.summary.exit_status == 1


def test_a_device_that_torch_has_not_is_no_fault_of_the_operator(lib: InfiniLib) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("needs a machine without CUDA")

    def test_on_cuda(handle, device, tensor_dtype, sync):
        torch.ones(3, device="cuda")

    (result,) = reported(test_on_cuda, [()]).results
    assert (result.reason, result.status) == (Reason.UNAVAILABLE, Status.SKIPPED)
    assert says(result.verdict.message, "infiniop.the_test_needs_device")


def test_bfloat16_is_left_out_where_the_device_has_none() -> None:
    dtypes = [InfiniDtype.F16, InfiniDtype.BF16, 19, "torch.bfloat16"]
    assert filter_tensor_dtypes_by_device(InfiniDeviceEnum.MOORE, dtypes) == [InfiniDtype.F16]
    assert filter_tensor_dtypes_by_device(InfiniDeviceEnum.NVIDIA, dtypes) == dtypes


def test_a_function_that_is_only_called_test_has_the_name_of_its_file(lib: InfiniLib) -> None:
    def test(handle, device, layout, tensor_dtype, sync):
        LIBINFINIOP.aliveNow()

    (result,) = reported(test, [(InfiniDtype.I8,)]).results
    assert result.id == "test_infiniop_testing[F32](I8)"


def test_an_assertion_of_torch_says_what_is_off(lib: InfiniLib) -> None:
    torch = pytest.importorskip("torch")

    def test_close(handle, device, size, tensor_dtype, sync):
        ones = torch.ones(size)
        assert torch.allclose(ones + torch.arange(size) * 1e-3, ones, rtol=0, atol=1.5e-3)

    (result,) = reported(test_close, [(4,)]).results
    assert result.reason is Reason.VALUE
    assert result.verdict.measures[0].mismatched == 2
    assert result.verdict.measures[0].worst_index == (3,)


def test_a_crash_in_a_script_ends_one_case(lib: InfiniLib, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "script", "twice.py")
    twice = asked("infiniopTwice")

    def test_dies(handle, device, size, tensor_dtype, sync):
        if size == 2:
            faulthandler.disable()  # pytest's would print where the fork dies
            ctypes.memset(0, 1, 1)
        twice(handle, device, size, tensor_dtype, sync)

    report = reported(test_dies, [(1,), (2,), (3,)])
    assert [each.status for each in report.results] == [Status.PASSED, Status.CRASHED, Status.PASSED]
    assert report.results[1].reason is Reason.SIGNAL
    assert report.results[1].verdict.details["signal"] == "SIGSEGV"


def test_a_hang_in_a_script_ends_one_case(lib: InfiniLib, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "script", "twice.py")
    monkeypatch.setattr(driver, "_TIMEOUT_S", 3.0)
    twice = asked("infiniopTwice")

    def test_hangs(handle, device, size, tensor_dtype, sync):
        if size == 2:
            time.sleep(60)
        twice(handle, device, size, tensor_dtype, sync)

    report = reported(test_hangs, [(2,), (3,)])
    assert [each.reason for each in report.results] == [Reason.DEADLINE, None]
    assert report.results[1].isolation == "case"


def test_an_interrupted_script_says_how_far_it_came(
    lib: InfiniLib, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(chosen, "script", "twice.py")

    def test_stopped(handle, device, tensor_dtype, sync):
        time.sleep(0.2)  # exceptions in the hooks of the parent's fork are ignored
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)

    with pytest.raises(SystemExit) as ended:
        reported(test_stopped, [(), ()])
    assert ended.value.code == 130
    assert says(capsys.readouterr().out, "infiniop.stopped_on_cpu_nothing")


def test_a_test_without_dtypes_gets_none(lib: InfiniLib) -> None:
    given = []

    def test_bare(handle, device, size, tensor_dtype, sync):
        given.append(tensor_dtype)

    (result,) = reported(test_bare, [(3,)], [None]).results
    assert (given, result.id) == ([None], "bare[None](3)")
