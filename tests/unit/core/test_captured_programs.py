"""Captured programs: a message for each way in which the graph can be wrong."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from core_kit import raising
from texts import says

from optest.api import cases
from optest.api.checking import check
from optest.backends import BackendDriver, backend_manager
from optest.backends.abilities import Program, ProgramNode
from optest.core.runner import execute
from optest.core.wire import case_from_wire, case_to_wire
from optest.operators import operators
from optest.spec import Evidence, Fault, Reason, Status, TensorSpec, TestCase, Verdict, dtype
from optest.spec.case import GRAPH

Values = Callable[[], Sequence[Any]]


def program(*nodes: ProgramNode, shape: tuple[int, ...] = (2, 3), kind: str = "float32", **more: Any) -> Program:
    """Return a program of x, y and the constant c that returns r."""
    spec = TensorSpec(dtype=dtype(kind), shape=shape)
    return Program(nodes=nodes, inputs={"x": spec, "y": spec}, outputs=[("r", spec)], constants={"c": 2.0}, **more)


ADD = ProgramNode("add", ["x", "y"], ["r"])
TWICE = (ProgramNode("mul", ["x", "c"], ["t"]), ProgramNode("add", ["t", "y"], ["r"]))
DEAD = ProgramNode("exp", ["x"], ["e"])


class Capturing(BackendDriver):
    """Driver that captures by ``capture``; it must not be run for values."""

    name, kind = "capturing", "cpu"

    def __init__(self, capture: Callable[[TestCase, Values], Program]) -> None:
        self.capture = capture
        self.asked: list[TestCase] = []

    def captured_program(self, case: TestCase, values: Values) -> Program:
        self.asked.append(case)
        return self.capture(case, values)

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        raise AssertionError("was called")


def judged(capture: Callable[[TestCase, Values], Program]) -> tuple[Verdict, Capturing]:
    (case,) = cases(op="add", dtype="float32", shape=("input0=2x3", "input1=1x3"))
    driver = Capturing(capture)
    return execute([replace(case, mode=GRAPH)], driver).verdicts[0], driver


@pytest.mark.parametrize(
    "right",
    [
        program(ADD),
        program(*TWICE, is_optimized=True),
        program(DEAD, ADD),
        program(DEAD._replace(has_effects=True), ADD, is_optimized=True),
        program(ADD._replace(inputs=["x", "", "y"], outputs=["r", ""])),
    ],
)
def test_well_formed_program_passes(right: Program) -> None:
    verdict, driver = judged(lambda *_: right)
    assert (verdict.status, verdict.evidence) == (Status.PASSED, Evidence.SPECS_COMPARED), verdict.message
    assert (verdict.message, [item.name for item in verdict.checks]) == ("captured: float32 2x3", ["capture"])
    shapes = [[item.spec.shape for item in case.inputs] for case in driver.asked]
    assert shapes == [[(2, 3), (1, 3)]] * 2 + [[(3, 4), (1, 4)]] + [[(2, 3), (1, 3)]]


@pytest.mark.parametrize(
    ("wrong", "reason", "words"),
    [
        (program(ADD, shape=(3, 2)), Reason.SHAPE, "out: the captured shape is 3x2, expected 2x3"),
        (program(ADD, kind="float16"), Reason.DTYPE, "out: the captured dtype is float16, expected float32"),
        (replace(program(ADD), outputs=[]), Reason.MISSING_OUTPUT, "out is not captured"),
        (program(*reversed(TWICE)), Reason.INVARIANT, "node 0 (add) reads 't', which is no input, no constant and no"),
        (program(ADD, ADD), Reason.INVARIANT, "node 1 (add) computes 'r', which exists already"),
        (program(ADD._replace(outputs=["x"])), Reason.INVARIANT, "node 0 (add) computes 'x', which exists already"),
        (program(DEAD), Reason.INVARIANT, "no node computes the output 'r'"),
        (program(DEAD, ADD, is_optimized=True), Reason.INVARIANT, "the optimiser kept node 0 (exp), which no output"),
    ],
)
def test_malformed_graph_fails(wrong: Program, reason: Reason, words: str) -> None:
    verdict, _ = judged(lambda *_: wrong)
    assert (verdict.status, verdict.reason, words in verdict.message) == (Status.FAILED, reason, True), verdict.message


def test_capture_with_state_fails() -> None:
    kept: list[ProgramNode] = []

    def growing(case: TestCase, _: Values) -> Program:
        kept.append(ADD._replace(outputs=[f"r{len(kept)}"]))
        return replace(program(*kept), outputs=[(f"r{len(kept) - 1}", case.inputs[0].spec)])

    verdict, _ = judged(growing)
    again = "captured again, the program has `add(input0: float32[2x3], input1: float32[2x3])` instead of `outputs"
    assert (verdict.reason, again in verdict.message) == (Reason.INVARIANT, True), verdict.message


def test_value_names_do_not_matter() -> None:
    names = count()

    def renamed(case: TestCase, _: Values) -> Program:
        name = f"r{next(names)}"
        return replace(program(ADD._replace(outputs=[name])), outputs=[(name, case.inputs[0].spec)])

    assert judged(renamed)[0].status is Status.PASSED


@pytest.mark.parametrize("refuses", [False, True])
def test_capture_changed_by_other_call_fails(refuses: bool) -> None:
    """The driver's cache holds the constants of the previous call."""
    scales = [2.0]

    def scaled(case: TestCase, _: Values) -> Program:
        if case.inputs[0].spec.shape != (2, 3):
            scales[:] = [3.0]
            if refuses:
                raise ValueError("sizes")
        return replace(program(*TWICE), constants={"c": scales[0]})

    verdict, _ = judged(scaled)
    words = "captured after a call with other sizes, the program has `mul(input0: float32[2x3], float64()#"
    assert (verdict.reason, verdict.message.startswith(words)) == (Reason.INVARIANT, True), verdict.message


def test_program_specialised_on_values_fails() -> None:
    def folded(case: TestCase, values: Values) -> Program:
        return replace(program(*TWICE), constants={"c": float(values()[0].sum())})

    verdict, driver = judged(folded)
    expected = "captured with other values of the inputs, the program has `mul("
    assert verdict.message.startswith(expected), verdict.message
    shaped, _ = judged(lambda case, values: program(ADD, shape=np.broadcast_shapes(*(item.shape for item in values()))))
    assert (shaped.status, len(driver.asked)) == (Status.PASSED, 5)


def test_failing_capture() -> None:
    refused, _ = judged(raising(Fault(Reason.UNSUPPORTED, "nothing is captured op by op")))
    assert (refused.status, refused.reason) == (Status.SKIPPED, Reason.UNSUPPORTED)
    raised, _ = judged(lambda *_: [])  # type: ignore[arg-type, return-value]
    assert (raised.status, raised.reason) == (Status.ERROR, Reason.RAISED)
    assert says(raised.message, "core.the_backend_capture_raised")


def test_driver_without_capture_is_skipped() -> None:
    (case,) = cases(op="add", dtype="float32", shape=("input0=2x3", "input1=3"))
    asked = case_from_wire(case_to_wire(replace(case, mode=GRAPH)), operators.get)
    (verdict,) = execute([asked], backend_manager.get("numpy")).verdicts
    assert (verdict.status, verdict.message) == (Status.SKIPPED, "backend numpy offers no capture for this operator")


@pytest.mark.parametrize(
    ("name", "variant"),
    [("jax", "jit"), ("onnxruntime", "disabled"), ("onnxruntime", "all"), ("onnx-reference", None)],
)
def test_frameworks_capture_without_running(name: str, variant: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx" if name == "onnx-reference" else name)

    monkeypatch.setattr(backend_manager.get(name), "run", raising(AssertionError("was called")))
    given = {"backend": name, "variant": variant, "op": ("softmax", "clip", "where"), "group": "validation"}
    outcome = check({**given, "case_set": ("graph",), "isolate": "none", "jobs": 1}, stream=io.StringIO())
    captured = [item for item in outcome.results if item.mode == GRAPH]
    assert len(captured) == len(outcome.results) > 9
    assert {item.status for item in captured} <= {Status.PASSED, Status.SKIPPED}
    assert {item.operator for item in captured if item.status is Status.PASSED} == {"softmax", "clip", "where"}


def test_onnxruntime_levels_capture_different_programs() -> None:
    pytest.importorskip("onnxruntime")
    driver: Any = backend_manager.get("onnxruntime")
    (case,) = cases(op="cross_entropy", dtype="float32,int64", shape=("input0=4x37", "input1=4"))
    plain, optimized = (
        driver.captured_program(replace(case, backend=replace(case.backend, variant=variant)), None)
        for variant in ("disabled", "all")
    )
    assert (plain.is_optimized, optimized.is_optimized) == (False, True)
    assert "Transpose" in {item.operation for item in plain.nodes} - {item.operation for item in optimized.nodes}


def test_jax_captured_program() -> None:
    pytest.importorskip("jax")
    driver: Any = backend_manager.get("jax")
    (case,) = cases(op="gelu", dtype="float32", shape=("input0=2x3",))
    with pytest.raises(Fault, match="op_by_op captures no program"):
        driver.captured_program(replace(case, backend=replace(case.backend, variant="op_by_op")), None)
    program_of_jax = driver.captured_program(replace(case, backend=replace(case.backend, variant="jit")), None)
    assert "mul" in [item.operation for item in program_of_jax.nodes]
    assert set(program_of_jax.nodes[0].inputs) <= {*program_of_jax.inputs, *program_of_jax.constants}
