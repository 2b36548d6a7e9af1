"""Backends that are wrong in ways that Python and NumPy allow: none of them gets a pass, or optest out of step."""

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
from typing import Any

import numpy as np
import pytest
from test_every_reason import case_of  # type: ignore[import-not-found]
from texts import says

from optest.backends import BackendDriver
from optest.backends.numpy_reference import NumpyBackend
from optest.core import runner
from optest.core.executors import InProcess
from optest.core.expected import _immutable
from optest.core.messages import encode
from optest.core.runner import why_not_run
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.settings import environment
from optest.spec import Evidence, ExpectedError, Fault, Numerics, Reason, Status, TestCase, Verdict

_honest = NumpyBackend()
Arrays = Any


class Answering(BackendDriver):
    """A driver that answers with a function of the case and its inputs."""

    name = "answering"
    kind = "faulty"

    def __init__(self, answer: Callable[[TestCase, Arrays], Any], numerics: Numerics | None = None) -> None:
        self._answer = answer
        self.numerics = numerics or Numerics()

    def run(self, case: TestCase, inputs: Arrays) -> Any:
        return self._answer(case, inputs)


def right(case: TestCase, inputs: Arrays) -> np.ndarray[Any, Any]:
    (out,) = _honest.run(case, inputs)
    return np.array(out)


def verdict_of(answer: Callable[[TestCase, Arrays], Any], **changes: Any) -> Verdict:
    case = case_of(backend="answering", **changes)
    (verdict,) = InProcess(Answering(answer)).execute([case]).verdicts
    encode(verdict)  # whatever it holds can go to the parent and into the journal
    return verdict


# what it does to the inputs


def swaps(case: TestCase, inputs: Arrays) -> Any:
    out, kept = right(case, inputs), inputs[0].copy()
    inputs[0][...] = 7
    inputs[0] = kept
    return [out]


def empties(case: TestCase, inputs: Arrays) -> Any:
    out = right(case, inputs)
    inputs[0][...] = 7
    inputs.clear()
    return [out]


def hides_behind_another_dtype(case: TestCase, inputs: Arrays) -> Any:
    out = right(case, inputs)
    inputs[0][...] = 7
    inputs[0].dtype = np.int32
    return [out]


@pytest.mark.parametrize("answer", [swaps, empties, hides_behind_another_dtype])
def test_a_changed_input_is_found_however_it_is_hidden(answer: Callable[..., Any]) -> None:
    verdict = verdict_of(answer)
    assert verdict.reason is Reason.INPUT_MUTATED, verdict


def test_a_new_shape_of_an_input_is_the_backends_own_business() -> None:
    def reshapes(case: TestCase, inputs: Arrays) -> Any:
        out = right(case, inputs)
        inputs[0].shape = (-1,)
        return [out]

    assert verdict_of(reshapes).status is Status.PASSED


def test_the_cases_attributes_stay_as_the_plan_states_them() -> None:
    def takes(case: TestCase, inputs: Arrays) -> Any:
        out = right(case, inputs)
        case.attributes["alpha"] = 7.0
        return [out]

    case = case_of(backend="answering", attributes={"alpha": 2.0})
    (verdict,) = InProcess(Answering(takes)).execute([case]).verdicts
    assert verdict.reason is Reason.STATE, verdict
    assert case.attributes == {"alpha": 2.0}


# what it returns


def mapped(out: np.ndarray) -> np.ndarray:
    """The output as a program leaves it in a file."""
    with tempfile.TemporaryFile() as file:
        array = np.memmap(file, out.dtype, "w+", shape=out.shape)
    array[...] = out
    return array


class Agreeable(np.ndarray):  # type: ignore[type-arg]
    """Claims to be equal to everything."""

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
        (lambda case, inputs: (each for each in [right(case, inputs)]), Reason.DTYPE),
        (lambda case, inputs: [np.broadcast_to(right(case, inputs)[0, 0], (4, 5))], Reason.VALUE),
        (lambda case, inputs: [inputs[0]], Reason.VALUE),
    ],
)
def test_an_output_is_judged_as_what_it_is(answer: Callable[..., Any], reason: Reason) -> None:
    verdict = verdict_of(answer)
    assert (verdict.status, verdict.reason) == (Status.FAILED, reason), verdict


@pytest.mark.parametrize(
    "view",
    [
        lambda out: out[::-1].copy()[::-1],
        lambda out: np.asfortranarray(out),
        lambda out: np.repeat(out, 2, axis=1)[:, ::2],
        mapped,
    ],
)
def test_the_layout_of_an_output_does_not_matter(view: Callable[..., Any]) -> None:
    assert verdict_of(lambda case, inputs: [view(right(case, inputs))]).status is Status.PASSED


_KEPT: list[Any] = []


def reference_that_keeps(inputs: Arrays, attributes: Any) -> Any:
    _KEPT[:] = [np.add(*inputs)]
    return _KEPT[0]


def reference_of_torch(inputs: Arrays, attributes: Any) -> Any:
    import torch

    return torch.add(*map(torch.tensor, inputs)).numpy()


@pytest.mark.parametrize("reference", [reference_that_keeps, reference_of_torch])
def test_expected_values_share_no_memory_with_what_gc_reaches(reference: Callable[..., Any]) -> None:
    if reference is reference_of_torch:
        pytest.importorskip("torch")

    def zeroes_everything(case: TestCase, inputs: Arrays) -> Any:
        tensor = getattr(sys.modules.get("torch"), "Tensor", None)
        kept = [each for each in gc.get_objects() if type(each) is tensor and each.shape == (4, 5)]
        for each in (*kept, *_KEPT):
            each[...] = 0
        return [np.zeros((4, 5), np.float32)]

    case = case_of(backend="answering", reference=f"{__name__}:{reference.__name__}")
    (verdict,) = InProcess(Answering(zeroes_everything)).execute([case]).verdicts
    assert (verdict.status, verdict.reason) == (Status.FAILED, Reason.VALUE), verdict


def written_over(array: Any, value: float) -> None:
    """Try all that NumPy allows: the array itself, and what lies below it."""
    if isinstance(array, np.ndarray):
        written_over(array.base, value)
        with suppress(ValueError):
            array.flags.writeable = True
            array[...] = value


@pytest.mark.parametrize(("op", "changes"), [("add", {}), ("softmax", {}), ("matmul", {"shape": (4, 4)})])
def test_what_is_expected_cannot_be_written_over(op: str, changes: dict[str, Any]) -> None:
    found = []

    def zeroes_what_is_expected(case: TestCase, inputs: Arrays) -> Any:
        for each in gc.get_objects():
            if type(each).__name__ == "Expected":
                found.append(each.name)
                written_over(each.value, 0.0)
                for term in each.terms or ():
                    written_over(term, 1e9)
        return [np.zeros_like(inputs[0])]

    verdict = verdict_of(zeroes_what_is_expected, **{"op": op, **changes})
    assert found
    assert (verdict.status, verdict.reason) == (Status.FAILED, Reason.VALUE), verdict


def test_expected_integers_of_python_stay_alive() -> None:
    """Their array has addresses, which are not kept as bytes: nobody would hold what lies there."""
    numbers = _immutable(np.array([2**70 + each for each in range(50)], object))
    gc.collect()
    assert [int(each) for each in numbers] == [2**70 + each for each in range(50)]
    assert all(sys.getrefcount(each) > 1 for each in numbers)


def test_a_reused_output_buffer_does_not_pass_for_the_same_bits() -> None:
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


# what it raises


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


@pytest.mark.parametrize(
    "error", [GeneratorExit(), Mute(), ValueError("no such file \udcff.bin"), ValueError("x" * 10**7)]
)
def test_any_exception_is_a_verdict_of_ordinary_size(error: BaseException) -> None:
    def raises(case: TestCase, inputs: Arrays) -> Any:
        raise error

    verdict = verdict_of(raises)
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.RAISED)
    assert len(encode(verdict)) < 100_000


def test_details_of_a_fault_become_plain_data() -> None:
    def faults(case: TestCase, inputs: Arrays) -> Any:
        details: Any = {"log": object(), 3: np.float32(0.5), "times": (1, np.int64(2)), "raw": b"\xff"}
        raise Fault(Reason.COMPILE, "bad \udcff", details=details)

    verdict = verdict_of(faults)
    assert verdict.reason is Reason.COMPILE
    assert verdict.details["3"] == 0.5
    assert verdict.details["times"] == [1, 2]


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (Reason.VALUE, Status.PASSED),
        (Reason.VALUE, Status.XFAILED),
        (Reason.VALUE, Status.UNCHECKED),
        (Reason.VALUE, Status.SKIPPED),
        (Reason.RAISED, Status.SUSPECT),
    ],
)
def test_a_fault_cannot_claim_another_status_than_a_failure(reason: Reason, status: Status) -> None:
    def faults(case: TestCase, inputs: Arrays) -> Any:
        raise Fault(reason, "all is well", status=status)

    verdict = verdict_of(faults)
    assert verdict.status is Status.ERROR, verdict
    assert "status" in verdict.message


@pytest.mark.parametrize("answer", [False, True, 0, b"no"])
def test_unsupported_is_said_in_words(answer: object) -> None:
    driver = Answering(lambda case, inputs: [right(case, inputs)])
    driver.unsupported = lambda case: answer  # type: ignore[method-assign, assignment, return-value]
    verdict = why_not_run(case_of(backend="answering"), driver)
    assert verdict is not None
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.RAISED)


# what it leaves behind in the process


def libm() -> Any:
    return ctypes.CDLL(ctypes.util.find_library("m"))


@pytest.fixture
def floats_as_they_were() -> Iterator[None]:
    yield
    libm().fesetround(0)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of rounding modes are the machine's own")
@pytest.mark.parametrize("mode", [0x400, 0x800, 0xC00])
@pytest.mark.usefixtures("floats_as_they_were")
def test_a_rounding_mode_that_is_left_behind_is_reset_and_noted(mode: int) -> None:
    def rounds(case: TestCase, inputs: Arrays) -> Any:
        out = right(case, inputs)
        assert libm().fesetround(mode) == 0
        return [out]

    verdict = verdict_of(rounds)
    assert verdict.status is Status.PASSED, verdict
    assert any("floating-point mode" in check.name for check in verdict.checks)
    assert libm().fegetround() == 0


def test_numpys_error_mode_is_put_back() -> None:
    before = np.geterr()

    def strict(case: TestCase, inputs: Arrays) -> Any:
        np.seterr(all="raise")
        return [right(case, inputs)]

    assert verdict_of(strict).status is Status.PASSED
    assert np.geterr() == before


def test_an_exit_in_this_process_is_no_exit_of_optest() -> None:
    def leaves(case: TestCase, inputs: Arrays) -> Any:
        os._exit(0)

    verdict = verdict_of(leaves)
    assert (verdict.status, verdict.reason) == (Status.CRASHED, Reason.EXIT_CODE)


def test_a_forked_child_of_the_backend_ends_where_the_backend_ends() -> None:
    def forks(case: TestCase, inputs: Arrays) -> Any:
        os.fork()
        return [right(case, inputs)]

    owner = os.getpid()
    verdict = verdict_of(forks)
    if os.getpid() != owner:  # the hole: two processes go on
        os.kill(os.getpid(), signal.SIGKILL)
    assert verdict.status is Status.PASSED


@pytest.mark.parametrize("fault", ["writes into every pipe", "closes every pipe"])
def test_a_worker_whose_pipes_are_spoilt_is_replaced(tmp_path: Any, fault: str) -> None:
    options = WorkerOptions(driver="faulty", scratch=tmp_path, environment=environment(), plugins=("faulty_backend",))
    worker = WorkerProcess(options, "worker")
    try:
        spoilt = worker.execute([case_of(fault=fault, shape=(4, 5))]).verdicts[0]
        after = worker.execute([case_of(shape=(6, 5))]).verdicts[0]
    finally:
        worker.close()
    assert spoilt.reason is Reason.STATE
    assert after.status is Status.PASSED


@pytest.mark.parametrize(
    "changes", [{"reference": "faulty_backend:dies_where_damage_was_done"}, {"fault": "heap of another"}]
)
def test_what_an_earlier_case_left_behind_is_no_fault_of_this_one(tmp_path: Any, changes: dict[str, Any]) -> None:
    """It runs once more where nothing came before it; that something was broken fails the run all the same."""
    options = WorkerOptions(driver="faulty", scratch=tmp_path, environment=environment(), plugins=("faulty_backend",))
    worker = WorkerProcess(options, "worker")
    try:
        worker.execute([case_of(fault="damage")])
        after = worker.execute([case_of(shape=(6, 5), **changes)]).verdicts[0]
    finally:
        worker.close()
    assert after.status is Status.SUSPECT
    assert says(after.message, "core.passed_at_attempt_after")


class Into(BackendDriver):
    """Writes into optest's buffers and has nothing else."""

    name = "into"
    kind = "faulty"

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def run_into(self, case: TestCase, inputs: Arrays, outputs: Arrays) -> None:
        if self._error is not None:
            raise self._error
        outputs[0][...] = right(case, inputs)


def test_a_driver_with_run_into_alone_is_asked_for_refusals_too() -> None:
    case = case_of(backend="into", expects_error=ExpectedError(type="ValueError"))
    assert InProcess(Into()).execute([case]).verdicts[0].reason is Reason.NOT_REFUSED
    refused = InProcess(Into(ValueError("no"))).execute([case]).verdicts[0]
    assert refused.evidence is Evidence.RAISED_AS_EXPECTED
    nowhere = case_of(backend="into", expects_error=ExpectedError(type="ValueError"), outputs=())
    unknown = InProcess(Into()).execute([nowhere]).verdicts[0]
    assert (unknown.reason, "not known" in unknown.message) == (Reason.UNSUPPORTED, True)


@pytest.mark.torch
def test_flush_to_zero_that_a_framework_leaves_behind_is_reset() -> None:
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
