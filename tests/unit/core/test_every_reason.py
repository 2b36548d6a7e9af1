"""A backend that is wrong on purpose reaches each Reason, and a right one none."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import core_kit
import faulty_backend
import numpy as np
import pytest
from core_kit import raising, spec_of, worker_of

from optest.backends import backend_manager
from optest.core.executors import InProcess
from optest.core.results import result_of
from optest.core.runner import why_not_run
from optest.core.verdicts import apply_xfail
from optest.errors import Unavailable
from optest.operators import operators
from optest.registry import load_object
from optest.spec import (
    BackendTarget,
    ExpectedError,
    Layer,
    OperatorDescriptor,
    Reason,
    RunSummary,
    Skip,
    Status,
    TestCase,
    Tolerance,
    ToleranceLayer,
    Verdict,
    Xfail,
)

faulty_backend.register()


def case_of(op: str = "add", backend: str = "faulty", fault: str = "none", **changes: Any) -> TestCase:
    """Return a case of the driver ``backend`` whose inputs and output have the same shape."""
    descriptor = changes.pop("descriptor", None) or operators.get(op)
    spec = spec_of(*changes.pop("shape", (4, 5)))
    return core_kit.case_of(
        descriptor,
        *[spec] * max(descriptor.tensors.required_inputs, 1),
        outputs=changes.pop("outputs", (spec,)),
        backend=BackendTarget(name=backend, kind="faulty"),
        backend_config={backend: {"fault": fault, **changes.pop("config", {})}},
        timeout_s=changes.pop("timeout_s", 200.0),
        **changes,
    )


def run_here(case: TestCase) -> Verdict:
    return InProcess(backend_manager.get(case.backend.name)).execute([case]).verdicts[0]


@pytest.fixture(scope="module")
def in_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[TestCase], Verdict]]:
    with worker_of("faulty", tmp_path_factory.mktemp("worker"), "faulty_backend") as worker:
        yield lambda case: worker.execute([case]).verdicts[0]


IN_PROCESS = [
    ("value", Status.FAILED, Reason.VALUE),
    ("zeros", Status.FAILED, Reason.VALUE),
    ("nan", Status.FAILED, Reason.NAN),
    ("shape", Status.FAILED, Reason.SHAPE),
    ("broadcastable", Status.FAILED, Reason.SHAPE),
    ("dtype", Status.FAILED, Reason.DTYPE),
    ("list", Status.FAILED, Reason.DTYPE),
    ("none returned", Status.FAILED, Reason.MISSING_OUTPUT),
    ("no outputs", Status.FAILED, Reason.MISSING_OUTPUT),
    ("two outputs", Status.FAILED, Reason.EXTRA_OUTPUT),
    ("unknown name", Status.FAILED, Reason.EXTRA_OUTPUT),
    ("mutate", Status.FAILED, Reason.INPUT_MUTATED),
    ("raise", Status.ERROR, Reason.RAISED),
    ("SystemExit", Status.ERROR, Reason.RAISED),
    ("KeyboardInterrupt", Status.ERROR, Reason.RAISED),
    ("MemoryError", Status.ERROR, Reason.OUT_OF_MEMORY),
    ("unsupported", Status.SKIPPED, Reason.UNSUPPORTED),
    ("compile", Status.ERROR, Reason.COMPILE),
    ("device lost", Status.CRASHED, Reason.DEVICE_LOST),
    ("fallback", Status.FAILED, Reason.FALLBACK),
    ("wrong device", Status.FAILED, Reason.WRONG_DEVICE),
]

IN_WORKER = [
    ("exit 0", Status.CRASHED, Reason.EXIT_CODE),
    ("exit 7", Status.CRASHED, Reason.EXIT_CODE),
    ("segfault", Status.CRASHED, Reason.SIGNAL),
    ("abort", Status.CRASHED, Reason.SIGNAL),
    ("fpe", Status.CRASHED, Reason.SIGNAL),
    ("sleep", Status.TIMEOUT, Reason.DEADLINE),
    ("hang in C", Status.TIMEOUT, Reason.DEADLINE),
    ("children", Status.CRASHED, Reason.EXIT_CODE),
]


@pytest.mark.parametrize(("fault", "status", "reason"), IN_PROCESS)
def test_fault_has_its_reason_here_and_in_worker(in_worker: Any, fault: str, status: Status, reason: Reason) -> None:
    for run in (run_here, in_worker):
        verdict = run(case_of(fault=fault))
        assert (verdict.status, verdict.reason) == (status, reason), verdict.message


@pytest.mark.parametrize(("fault", "status", "reason"), IN_WORKER)
def test_death_and_hang_end_the_case_alone(in_worker: Any, fault: str, status: Status, reason: Reason) -> None:
    timeout_s = 1.0 if status is Status.TIMEOUT else 200.0
    verdict = in_worker(case_of(fault=fault, timeout_s=timeout_s))
    assert (verdict.status, verdict.reason) == (status, reason), verdict.message
    assert in_worker(case_of()).status is Status.PASSED


def test_the_honest_backend_passes_with_evidence(in_worker: Any) -> None:
    for verdict in (run_here(case_of()), in_worker(case_of()), in_worker(case_of(fault="garbage"))):
        assert verdict.status is Status.PASSED
        assert verdict.measures[0].compared == 20


def test_crash_and_hang_report_their_location(in_worker: Any) -> None:
    for fault, function, timeout_s in (("segfault", "_segfault", 200.0), ("hang in C", "_hang_in_c", 1.0)):
        verdict = in_worker(case_of(fault=fault, timeout_s=timeout_s))
        assert f"in {function}" in verdict.details["stderr_tail"]


def sleepers(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in command:
                found.append(int(entry.name))
    return found


def test_no_descendant_survives(in_worker: Any) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    in_worker(case_of(fault="children", config={"mark": mark}))
    assert sleepers(mark) == []


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("nothing", Reason.UNWRITTEN),
        ("tail", Reason.UNWRITTEN),
        ("overrun", Reason.OUT_OF_BOUNDS),
        ("underrun", Reason.OUT_OF_BOUNDS),
        ("none", None),
    ],
)
def test_buffers_of_optest_show_what_was_written(fault: str, reason: Reason | None) -> None:
    verdict = run_here(case_of(backend="faulty-buffers", fault=fault))
    assert verdict.reason is reason, verdict.message


def test_a_wrong_element_is_seen_beside_unwritten_ones() -> None:
    verdict = run_here(case_of(backend="faulty-buffers", fault="tail and first"))
    assert verdict.reason is Reason.UNWRITTEN
    assert [(each.mismatched, each.worst_index) for each in verdict.measures] == [(1, (0, 0))]
    assert not run_here(case_of(backend="faulty-buffers", fault="tail")).measures


def test_output_equal_to_poison_is_not_unwritten() -> None:
    """Data whose right result is the poison's own bytes passes: the second poison tells."""
    values = np.frombuffer(np.full(4, 0xA5, dtype=np.uint8).tobytes(), dtype=np.float32)[0]
    descriptor = OperatorDescriptor(
        name="constant", signature="x -> out", reference=lambda inputs, attributes: (np.full((4, 5), values),)
    )
    case = case_of(backend="faulty-buffers", descriptor=descriptor, tolerances=_tolerance())
    verdict = run_here(case)
    assert verdict.status is Status.PASSED, verdict.message


def test_output_is_copied_when_the_call_ends() -> None:
    verdict = run_here(case_of(backend="late"))
    assert verdict.reason is Reason.VALUE, verdict.message


def test_declared_invariance_is_held_against_the_bits() -> None:
    verdict = run_here(case_of(backend="invariant-liar", tolerances=_tolerance()))
    assert verdict.reason is Reason.NONDETERMINISTIC


def _tolerance() -> tuple[ToleranceLayer, ...]:
    return (ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=1e-3)),)


def refused(fault: str, expected: ExpectedError) -> Reason | None:
    return run_here(case_of(fault=fault, expects_error=expected)).reason


def test_single_element_has_its_result_in_batch(in_worker: Any) -> None:
    for run in (run_here, in_worker):
        for fault, reason in (("none", None), ("alone", Reason.INVARIANT)):
            verdict = run(case_of(fault=fault, invariants=("batch",)))
            assert verdict.reason is reason, verdict.message


def test_calls_that_have_to_be_refused() -> None:
    assert refused("raise", ExpectedError(type="ValueError", match="shapes")) is None
    assert refused("raise", ExpectedError(type="Exception")) is None
    assert refused("none", ExpectedError(type="ValueError")) is Reason.NOT_REFUSED
    assert refused("raise", ExpectedError(type="TypeError")) is Reason.WRONG_ERROR
    assert refused("raise", ExpectedError(type="ValueError", match="stride")) is Reason.WRONG_ERROR
    assert refused("raise", ExpectedError(pattern=r"shapes? \w+")) is None
    assert refused("raise", ExpectedError(pattern=r"shapes? \d+")) is Reason.WRONG_ERROR
    assert refused("raise", ExpectedError(match="stride", pattern="shapes")) is Reason.WRONG_ERROR
    assert refused("SystemExit", ExpectedError(type="ValueError")) is Reason.WRONG_ERROR
    assert refused("SystemExit", ExpectedError(type="Exception")) is Reason.WRONG_ERROR
    assert refused("slip", ExpectedError(type="Exception")) is Reason.WRONG_ERROR
    assert refused("slip", ExpectedError(type="NameError")) is None
    assert refused("MemoryError", ExpectedError(type="Exception")) is Reason.OUT_OF_MEMORY


broken_reference = raising(ZeroDivisionError("the reference is broken"))
generator_that_raises = raising(RuntimeError("no data today"))


def mutating_reference(inputs: Any, attributes: Any) -> Any:
    inputs[0][...] = 0
    return (inputs[0],)


def reference_of_another_shape(inputs: Any, attributes: Any) -> Any:
    return (np.zeros(3),)


def generator_of_another_shape(case: Any, rng: Any) -> Any:
    return [np.zeros(3, np.float32)] * 2, None


@pytest.mark.parametrize(
    ("source", "function", "reason"),
    [
        ("reference", "broken_reference", Reason.REFERENCE_FAILED),
        ("reference", "mutating_reference", Reason.REFERENCE_FAILED),
        ("reference", "reference_of_another_shape", Reason.REFERENCE_FAILED),
        ("generator", "generator_that_raises", Reason.BAD_CASE),
        ("generator", "generator_of_another_shape", Reason.BAD_CASE),
    ],
)
def test_failed_source_does_not_blame_backend(source: str, function: str, reason: Reason) -> None:
    verdict = run_here(case_of(**{source: f"{__name__}:{function}"}))
    assert (verdict.status, verdict.reason) == (Status.ERROR, reason), verdict.message


def reference_that_dies(inputs: Any, attributes: Any) -> Any:
    os._exit(9)


def test_reference_that_kills_worker_is_reported(in_worker: Any) -> None:
    load_object(f"{__name__}:reference_that_dies")
    verdict = in_worker(case_of(reference=f"{__name__}:reference_that_dies"))
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.REFERENCE_FAILED), verdict.message


def test_case_without_reference_is_unchecked() -> None:
    driver = faulty_backend.FaultyBackend()
    driver.run = lambda case, inputs: (inputs[0],)  # type: ignore[method-assign]
    case = case_of(descriptor=OperatorDescriptor(name="mystery", signature="x, y -> out"))
    assert InProcess(driver).execute([case]).verdicts[0].status is Status.UNCHECKED


def test_nothing_compared_is_not_a_pass() -> None:
    assert run_here(case_of(shape=(0, 5), outputs=(spec_of(0, 5),))).status is Status.PASSED
    assert run_here(case_of(shape=(0, 5), outputs=())).reason is Reason.NOTHING_COMPARED


def test_a_judge_that_breaks_is_optests_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = raising(ZeroDivisionError("in the comparison"))
    monkeypatch.setattr("optest.core.comparison.compare_outputs", broken)
    verdict = run_here(case_of())
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.INTERNAL)
    assert RunSummary.of([result_of(case_of(), verdict)], total=1, duration_s=0.0).exit_status == 3


def test_broken_suspicion_ends_only_the_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.core.verdicts._suspect_if_inconclusive", raising(MemoryError()))
    verdict = run_here(case_of())
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.OUT_OF_MEMORY)


def test_what_a_backend_lacks_is_unavailable() -> None:
    driver = faulty_backend.FaultyBackend()
    driver.run = raising(Unavailable("the driver's runtime", "install it"))  # type: ignore[method-assign]
    (verdict,) = InProcess(driver).execute([case_of()]).verdicts
    assert (verdict.status, verdict.reason) == (Status.SKIPPED, Reason.UNAVAILABLE)


NOT_YET = {Reason.READ_OUT_OF_BOUNDS, Reason.WORKSPACE, Reason.LEAK, Reason.SANITIZER}
"""Reasons that need buffers with real layouts or a library's own protocol, which this tool does not drive yet."""


def test_every_reason_is_reached() -> None:
    folder = Path(__file__).parents[1]
    texts = [path.read_text() for name in ("core", "compare", "backends") for path in (folder / name).glob("test_*.py")]
    named = {reason for reason in Reason if any(f"Reason.{reason.value}" in text for text in texts)}
    assert set(Reason) - named <= NOT_YET


def test_xfail_excuses_its_own_status_alone() -> None:
    excuse = Xfail(reason="known")
    assert run_here(case_of(fault="value", xfail=excuse)).status is Status.XFAILED
    assert run_here(case_of(xfail=excuse)).status is Status.XPASSED
    assert run_here(case_of(fault="raise", xfail=excuse)).status is Status.ERROR


def test_xfail_without_status_covers_failures_and_bad_cases() -> None:
    xfail = Xfail(reason="known", status=None)
    ends = {
        (Reason.VALUE, Status.FAILED): Status.XFAILED,
        (Reason.RAISED, Status.ERROR): Status.XFAILED,
        (Reason.BAD_CASE, Status.ERROR): Status.XFAILED,
        (Reason.INTERNAL, Status.ERROR): Status.ERROR,
        (Reason.REFERENCE_FAILED, Status.ERROR): Status.ERROR,
        (Reason.SIGNAL, Status.CRASHED): Status.CRASHED,
        (Reason.UNSUPPORTED, Status.SKIPPED): Status.SKIPPED,
    }
    for (reason, status), expected in ends.items():
        assert apply_xfail(case_of(xfail=xfail), Verdict(status=status, reason=reason)).status is expected, reason
    bad_case = Verdict(status=Status.ERROR, reason=Reason.BAD_CASE)
    assert apply_xfail(case_of(xfail=Xfail(reason="r", status=Status.ERROR)), bad_case) is bad_case


def test_pass_is_unexpected_if_xfail_is_strict() -> None:
    for strict, status in ((None, Status.XPASSED), (True, Status.XPASSED), (False, Status.PASSED)):
        assert run_here(case_of(xfail=Xfail(reason="known", strict=strict))).status is status


def test_xfail_never_excuses_a_crash(in_worker: Any) -> None:
    excuse = Xfail(reason="known")
    assert in_worker(case_of(fault="segfault", xfail=excuse)).status is Status.CRASHED


def test_a_skipped_case_says_why() -> None:
    refusal = why_not_run(case_of(skip=Skip(reason="not today")), backend_manager.get("faulty"))
    assert refusal is not None
    assert (refusal.status, refusal.message) == (Status.SKIPPED, "not today")
