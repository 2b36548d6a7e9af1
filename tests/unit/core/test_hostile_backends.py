"""Backends that are wrong in unusual ways: none of them passes, and none breaks optest."""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_kit import Answering, raising, worker_of
from test_every_reason import case_of  # type: ignore[import-not-found]
from texts import says

from optest.backends import BackendDriver
from optest.backends.numpy_reference import NumpyBackend
from optest.core import runner
from optest.core.executors import InProcess
from optest.core.expected import _immutable
from optest.core.messages import encode
from optest.core.runner import why_not_run
from optest.core.worker_process import WorkerProcess
from optest.spec import Evidence, ExpectedError, Fault, Numerics, Reason, Status, TestCase, Verdict

_honest = NumpyBackend()
Arrays = Any


def right(case: TestCase, inputs: Arrays) -> np.ndarray[Any, Any]:
    (out,) = _honest.run(case, inputs)
    return np.array(out)


def verdict_of(answer: Callable[[TestCase, Arrays], Any], **changes: Any) -> Verdict:
    case = case_of(backend="answering", **changes)
    (verdict,) = InProcess(Answering(answer)).execute([case]).verdicts
    encode(verdict)  # whatever it holds can go to the parent and into the journal
    return verdict


# changes of inputs


@pytest.mark.parametrize(
    "hide",
    [
        lambda inputs, before: inputs.__setitem__(0, before),
        lambda inputs, _: inputs.clear(),
        lambda inputs, _: setattr(inputs[0], "dtype", np.int32),
    ],
)
def test_hidden_input_changes_are_detected(hide: Callable[..., Any]) -> None:
    def changes(case: TestCase, inputs: Arrays) -> Any:
        out, before = right(case, inputs), inputs[0].copy()
        inputs[0][...] = 7
        hide(inputs, before)
        return [out]

    verdict = verdict_of(changes)
    assert verdict.reason is Reason.INPUT_MUTATED, verdict


def test_backend_may_reshape_its_inputs() -> None:
    def reshapes(case: TestCase, inputs: Arrays) -> Any:
        out = right(case, inputs)
        inputs[0].shape = (-1,)
        return [out]

    assert verdict_of(reshapes).status is Status.PASSED


def test_attributes_of_case_are_restored() -> None:
    def takes(case: TestCase, inputs: Arrays) -> Any:
        out = right(case, inputs)
        case.attributes["alpha"] = 7.0
        return [out]

    case = case_of(backend="answering", attributes={"alpha": 2.0})
    (verdict,) = InProcess(Answering(takes)).execute([case]).verdicts
    assert verdict.reason is Reason.STATE, verdict
    assert case.attributes == {"alpha": 2.0}


# outputs


def mapped(out: np.ndarray) -> np.ndarray:
    """Return the output as a memory map of a file."""
    with tempfile.TemporaryFile() as file:
        array = np.memmap(file, out.dtype, "w+", shape=out.shape)
    array[...] = out
    return array


class Agreeable(np.ndarray):  # type: ignore[type-arg]
    """Object that is equal to everything."""

    def __eq__(self, other: object) -> Any:
        return np.ones(self.shape, np.bool_)

    def __ne__(self, other: object) -> Any:
        return np.zeros(self.shape, np.bool_)

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        return np.zeros(np.ndarray.__getattribute__(self, "shape"))


class Misshapen(np.ndarray):  # type: ignore[type-arg]
    shape = property(lambda _: (4, 5))  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda case, inputs: [np.zeros((4, 5), np.float32).view(Agreeable)], Reason.DTYPE),
        (lambda case, inputs: {"out": right(case, inputs).view(Agreeable)}, Reason.DTYPE),
        (lambda case, inputs: right(case, inputs).reshape(-1)[:4].view(Misshapen), Reason.DTYPE),
        (lambda case, inputs: [np.ma.masked_array(right(case, inputs), mask=True)], Reason.DTYPE),
        (lambda case, inputs: [right(case, inputs).view(np.matrix)], Reason.DTYPE),
        (lambda case, inputs: [right(case, inputs).view(np.recarray)], Reason.DTYPE),
        (lambda case, inputs: [right(case, inputs).astype(">f4")], Reason.DTYPE),
        (lambda case, inputs: [right(case, inputs).astype(object)], Reason.DTYPE),
        (lambda case, inputs: [right(case, inputs).astype(np.longdouble)], Reason.DTYPE),
        (lambda case, inputs: [np.zeros((4, 5), [("value", np.float32)])], Reason.DTYPE),
        (lambda case, inputs: {"out": right(case, inputs), "output0": right(case, inputs)}, Reason.EXTRA_OUTPUT),
        (lambda case, inputs: (item for item in [right(case, inputs)]), Reason.DTYPE),
        (lambda case, inputs: [np.broadcast_to(right(case, inputs)[0, 0], (4, 5))], Reason.VALUE),
        (lambda case, inputs: [inputs[0]], Reason.VALUE),
    ],
)
def test_invalid_outputs_fail_with_their_reason(answer: Callable[..., Any], reason: Reason) -> None:
    verdict = verdict_of(answer)
    assert (verdict.status, verdict.reason) == (Status.FAILED, reason), verdict


@pytest.mark.parametrize(
    "view",
    [
        lambda out: out[::-1].copy()[::-1],
        np.asfortranarray,
        lambda out: np.repeat(out, 2, axis=1)[:, ::2],
        mapped,
    ],
)
def test_output_layout_does_not_matter(view: Callable[..., Any]) -> None:
    assert verdict_of(lambda case, inputs: [view(right(case, inputs))]).status is Status.PASSED


_KEPT: list[Any] = []


def reference_that_keeps(inputs: Arrays, attributes: Any) -> Any:
    _KEPT[:] = [np.add(*inputs)]
    return _KEPT[0]


def reference_of_torch(inputs: Arrays, attributes: Any) -> Any:
    import torch

    return torch.add(*map(torch.tensor, inputs)).numpy()


@pytest.mark.parametrize("reference", [reference_that_keeps, reference_of_torch])
def test_gc_reaches_no_expected_values(reference: Callable[..., Any]) -> None:
    if reference is reference_of_torch:
        pytest.importorskip("torch")

    def zeroes_everything(case: TestCase, inputs: Arrays) -> Any:
        tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        kept = [item for item in gc.get_objects() if type(item) is tensor and item.shape == (4, 5)]
        for item in (*kept, *_KEPT):
            item[...] = 0
        return [np.zeros((4, 5), np.float32)]

    case = case_of(backend="answering", reference=f"{__name__}:{reference.__name__}")
    (verdict,) = InProcess(Answering(zeroes_everything)).execute([case]).verdicts
    assert (verdict.status, verdict.reason) == (Status.FAILED, Reason.VALUE), verdict


def written_over(array: Any, value: float) -> None:
    """Try to write through an array, its bases and its views."""
    if isinstance(array, np.ndarray):
        written_over(array.base, value)
        with suppress(ValueError):
            array.flags.writeable = True
            array[...] = value


@pytest.mark.parametrize(("op", "changes"), [("add", {}), ("softmax", {}), ("matmul", {"shape": (4, 4)})])
def test_expected_values_are_read_only(op: str, changes: dict[str, Any]) -> None:
    reached = []

    def zeroes_what_is_expected(case: TestCase, inputs: Arrays) -> Any:
        for item in gc.get_objects():
            if type(item).__name__ == "Expected":
                reached.append(item.name)
                written_over(item.value, 0.0)
                for term in item.terms or ():
                    written_over(term, 1e9)
        return [np.zeros_like(inputs[0])]

    verdict = verdict_of(zeroes_what_is_expected, **{"op": op, **changes})
    assert reached
    assert (verdict.status, verdict.reason) == (Status.FAILED, Reason.VALUE), verdict


def test_expected_python_integers_stay_alive() -> None:
    # an array of objects holds addresses: a copy of its bytes would not keep the objects alive
    numbers = _immutable(np.array([2**70 + item for item in range(50)], object))
    gc.collect()
    assert [int(item) for item in numbers] == [2**70 + item for item in range(50)]
    assert all(sys.getrefcount(item) > 1 for item in numbers)


def test_reused_output_buffer_is_detected() -> None:
    buffer, calls = np.zeros((4, 5), np.float32), []

    def reuses(case: TestCase, inputs: Arrays) -> Any:
        calls.append(1)
        buffer[...] = right(case, inputs)
        if len(calls) % 2:
            buffer[...] = np.nextafter(buffer, np.float32(np.inf))
        return [buffer]

    driver = Answering(reuses, Numerics(invariant=True))
    (verdict,) = runner.execute([case_of(backend="answering")], driver).verdicts
    assert verdict.reason is Reason.NONDETERMINISTIC, verdict


# exceptions


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


@pytest.mark.parametrize(
    "error", [GeneratorExit(), Mute(), ValueError("no such file \udcff.bin"), ValueError("x" * 10**7)]
)
def test_long_exceptions_give_short_verdicts(error: BaseException) -> None:
    verdict = verdict_of(raising(error))
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.RAISED)
    assert len(encode(verdict)) < 100_000


def test_fault_details_become_plain_data() -> None:
    details: Any = {"log": object(), 3: np.float32(0.5), "times": (1, np.int64(2)), "raw": b"\xff"}
    verdict = verdict_of(raising(Fault(Reason.COMPILE, "bad \udcff", details=details)))
    assert verdict.reason is Reason.COMPILE
    assert verdict.details["3"] == 0.5
    assert verdict.details["times"] == [1, 2]


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        *((Reason.VALUE, status) for status in (Status.PASSED, Status.XFAILED, Status.UNCHECKED, Status.SKIPPED)),
        (Reason.RAISED, Status.SUSPECT),
    ],
)
def test_fault_with_other_status_is_an_error(reason: Reason, status: Status) -> None:
    def faults(case: TestCase, inputs: Arrays) -> Any:
        raise Fault(reason, "all is well", status=status)  # the constructor refuses

    verdict = verdict_of(faults)
    assert verdict.status is Status.ERROR, verdict
    assert "status" in verdict.message


@pytest.mark.parametrize("answer", [False, True, 0, b"no"])
def test_unsupported_must_return_text(answer: object) -> None:
    driver = Answering(right)
    driver.unsupported = lambda case: answer  # type: ignore[method-assign, assignment, return-value]
    verdict = why_not_run(case_of(backend="answering"), driver)
    assert verdict is not None
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.RAISED)


# changes of the process


def libm() -> Any:
    return ctypes.CDLL(ctypes.util.find_library("m"))


@pytest.fixture
def floats_as_they_were() -> Iterator[None]:
    yield
    libm().fesetround(0)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of rounding modes are the machine's own")
@pytest.mark.parametrize("mode", [0x400, 0x800, 0xC00])
@pytest.mark.usefixtures("floats_as_they_were")
def test_changed_rounding_mode_is_reset_and_noted(mode: int) -> None:
    def rounds(case: TestCase, inputs: Arrays) -> Any:
        out = right(case, inputs)
        assert libm().fesetround(mode) == 0
        return [out]

    verdict = verdict_of(rounds)
    assert verdict.status is Status.PASSED, verdict
    assert any("floating-point mode" in check.name for check in verdict.checks)
    assert libm().fegetround() == 0


def test_numpy_error_mode_is_restored() -> None:
    before = np.geterr()

    def strict(case: TestCase, inputs: Arrays) -> Any:
        np.seterr(all="raise")
        return [right(case, inputs)]

    assert verdict_of(strict).status is Status.PASSED
    assert np.geterr() == before


def test_exit_in_process_does_not_end_optest() -> None:
    def leaves(case: TestCase, inputs: Arrays) -> Any:
        os._exit(0)

    verdict = verdict_of(leaves)
    assert (verdict.status, verdict.reason) == (Status.CRASHED, Reason.EXIT_CODE)


def test_forked_child_of_backend_ends() -> None:
    def forks(case: TestCase, inputs: Arrays) -> Any:
        os.fork()
        return [right(case, inputs)]

    owner = os.getpid()
    verdict = verdict_of(forks)
    if os.getpid() != owner:  # the hole: two processes go on
        os.kill(os.getpid(), signal.SIGKILL)
    assert verdict.status is Status.PASSED


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    with worker_of("faulty", tmp_path, "faulty_backend") as executor:
        yield executor


@pytest.mark.parametrize("fault", ["writes into every pipe", "closes every pipe"])
def test_worker_with_broken_pipes_is_replaced(worker: WorkerProcess, fault: str) -> None:
    spoilt = worker.execute([case_of(fault=fault, shape=(4, 5))]).verdicts[0]
    after = worker.execute([case_of(shape=(6, 5))]).verdicts[0]
    assert spoilt.reason is Reason.STATE
    assert after.status is Status.PASSED


@pytest.mark.parametrize(
    "changes", [{"reference": "faulty_backend:dies_where_damage_was_done"}, {"fault": "heap of another"}]
)
def test_damage_by_earlier_case_makes_pass_suspect(worker: WorkerProcess, changes: dict[str, Any]) -> None:
    worker.execute([case_of(fault="damage")])
    after = worker.execute([case_of(shape=(6, 5), **changes)]).verdicts[0]
    assert after.status is Status.SUSPECT
    assert says(after.message, "core.passed_at_attempt_after")


class Into(BackendDriver):
    """Driver with `run_into` only."""

    name = "into"
    kind = "faulty"

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def run_into(self, case: TestCase, inputs: Arrays, outputs: Arrays) -> None:
        if self._error is not None:
            raise self._error
        outputs[0][...] = right(case, inputs)


def test_run_into_is_called_for_error_cases() -> None:
    case = case_of(backend="into", expects_error=ExpectedError(type="ValueError"))
    assert InProcess(Into()).execute([case]).verdicts[0].reason is Reason.NOT_REFUSED
    refused = InProcess(Into(ValueError("no"))).execute([case]).verdicts[0]
    assert refused.evidence is Evidence.RAISED_AS_EXPECTED
    nowhere = case_of(backend="into", expects_error=ExpectedError(type="ValueError"), outputs=())
    unknown = InProcess(Into()).execute([nowhere]).verdicts[0]
    assert (unknown.reason, "not known" in unknown.message) == (Reason.UNSUPPORTED, True)


@pytest.mark.torch
def test_flush_to_zero_is_reset() -> None:
    import torch

    def flushes(case: TestCase, inputs: Arrays) -> Any:
        out = right(case, inputs)
        if not torch.set_flush_denormal(True):
            pytest.skip("this processor does not flush")
        return [out]

    verdict = verdict_of(flushes)
    assert verdict.status is Status.PASSED
    assert any("flush-to-zero" in check.detail for check in verdict.checks)
    assert np.float32(1e-40) * np.float32(0.5) > 0
