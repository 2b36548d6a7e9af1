"""The program that a backend captures of a call: what can be wrong with its graph, each with a message of its own."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
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
    """A program of x, y and the constant c that returns r."""
    made = TensorSpec(dtype=dtype(kind), shape=shape)
    return Program(nodes=nodes, inputs={"x": made, "y": made}, outputs=[("r", made)], constants={"c": 2.0}, **more)


ADD = ProgramNode("add", ["x", "y"], ["r"])
TWICE = (ProgramNode("mul", ["x", "c"], ["t"]), ProgramNode("add", ["t", "y"], ["r"]))
DEAD = ProgramNode("exp", ["x"], ["e"])


class Capturing(BackendDriver):
    """Captures what ``capture`` says of a call, and has to be asked for values by nobody."""

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
def test_a_program_in_order_passes(right: Program) -> None:
    found, driver = judged(lambda *_: right)
    assert (found.status, found.evidence) == (Status.PASSED, Evidence.SPECS_COMPARED), found.message
    assert (found.message, [each.name for each in found.checks]) == ("captured: float32 2x3", ["capture"])
    shapes = [[each.spec.shape for each in case.inputs] for case in driver.asked]
    assert shapes == [[(2, 3), (1, 3)]] * 2 + [[(3, 4), (1, 4)]] + [[(2, 3), (1, 3)]]


@pytest.mark.parametrize(
    ("wrong", "reason", "words"),
    [
        (program(ADD, shape=(3, 2)), Reason.SHAPE, "out: the shape is captured as 3x2, but should be 2x3"),
        (program(ADD, kind="float16"), Reason.DTYPE, "out: the dtype is captured as float16, but should be float32"),
        (replace(program(ADD), outputs=[]), Reason.MISSING_OUTPUT, "out is not captured"),
        (program(*reversed(TWICE)), Reason.INVARIANT, "node 0 (add) takes 't', which is no input, no constant and no"),
        (program(ADD, ADD), Reason.INVARIANT, "node 1 (add) makes 'r', which is there already"),
        (program(ADD._replace(outputs=["x"])), Reason.INVARIANT, "node 0 (add) makes 'x', which is there already"),
        (program(DEAD), Reason.INVARIANT, "no node makes the output 'r'"),
        (program(DEAD, ADD, is_optimized=True), Reason.INVARIANT, "the optimiser left node 0 (exp), which no output"),
    ],
)
def test_what_is_wrong_with_a_graph(wrong: Program, reason: Reason, words: str) -> None:
    found, _ = judged(lambda *_: wrong)
    assert (found.status, found.reason, words in found.message) == (Status.FAILED, reason, True), found.message


def test_a_capture_that_keeps_state() -> None:
    kept: list[ProgramNode] = []

    def growing(case: TestCase, _: Values) -> Program:
        kept.append(ADD._replace(outputs=[f"r{len(kept)}"]))
        return replace(program(*kept), outputs=[(f"r{len(kept) - 1}", case.inputs[0].spec)])

    found, _ = judged(growing)
    again = "captured again, the program has `add(input0: float32[2x3], input1: float32[2x3])` in place of `outputs"
    assert (found.reason, again in found.message) == (Reason.INVARIANT, True), found.message


def test_names_of_values_make_no_difference() -> None:
    names = count()

    def renamed(case: TestCase, _: Values) -> Program:
        name = f"r{next(names)}"
        return replace(program(ADD._replace(outputs=[name])), outputs=[(name, case.inputs[0].spec)])

    assert judged(renamed)[0].status is Status.PASSED


@pytest.mark.parametrize("refuses", [False, True])
def test_a_capture_that_another_call_changes(refuses: bool) -> None:
    """The cache holds the constants of the call before, whether or not that one was refused."""
    scales = [2.0]

    def scaled(case: TestCase, _: Values) -> Program:
        if case.inputs[0].spec.shape != (2, 3):
            scales[:] = [3.0]
            if refuses:
                raise ValueError("sizes")
        return replace(program(*TWICE), constants={"c": scales[0]})

    found, _ = judged(scaled)
    words = "captured after a call with other sizes, the program has `mul(input0: float32[2x3], float64()#"
    assert (found.reason, found.message.startswith(words)) == (Reason.INVARIANT, True), found.message


def test_a_program_that_is_specialised_on_values() -> None:
    def folded(case: TestCase, values: Values) -> Program:
        return replace(program(*TWICE), constants={"c": float(values()[0].sum())})

    found, driver = judged(folded)
    assert found.message.startswith("captured with other values of the inputs, the program has `mul("), found.message
    shaped, _ = judged(lambda case, values: program(ADD, shape=np.broadcast_shapes(*(each.shape for each in values()))))
    assert (shaped.status, len(driver.asked)) == (Status.PASSED, 5)


def test_a_capture_that_fails() -> None:
    def refused(case: TestCase, _: Values) -> Program:
        raise Fault(Reason.UNSUPPORTED, "nothing is captured op by op")

    assert (judged(refused)[0].status, judged(refused)[0].reason) == (Status.SKIPPED, Reason.UNSUPPORTED)
    raised, _ = judged(lambda *_: [])  # type: ignore[arg-type, return-value]
    assert (raised.status, raised.reason) == (Status.ERROR, Reason.RAISED)
    assert says(raised.message, "core.the_backend_capture_raised")


def test_a_driver_without_the_ability_is_asked_nothing() -> None:
    (case,) = cases(op="add", dtype="float32", shape=("input0=2x3", "input1=3"))
    asked = case_from_wire(case_to_wire(replace(case, mode=GRAPH)), operators.get)
    (found,) = execute([asked], backend_manager.get("numpy")).verdicts
    assert (found.status, found.message) == (Status.SKIPPED, "backend numpy offers no capture of it")


@pytest.mark.parametrize(
    ("name", "variant"),
    [("jax", "jit"), ("onnxruntime", "disabled"), ("onnxruntime", "all"), ("onnx-reference", None)],
)
def test_frameworks_capture_without_running(name: str, variant: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx" if name == "onnx-reference" else name)

    def run(*_: object) -> None:
        raise AssertionError("was called")

    monkeypatch.setattr(backend_manager.get(name), "run", run)
    given = {"backend": name, "variant": variant, "op": ("softmax", "clip", "where"), "group": "validation"}
    outcome = check({**given, "case_set": ("graph",), "isolate": "none", "jobs": 1}, stream=io.StringIO())
    captured = [each for each in outcome.results if each.mode == GRAPH]
    assert len(captured) == len(outcome.results) > 9
    assert {each.status for each in captured} <= {Status.PASSED, Status.SKIPPED}
    assert {each.operator for each in captured if each.status is Status.PASSED} == {"softmax", "clip", "where"}


def test_each_level_of_onnxruntime_captures_its_own_program() -> None:
    pytest.importorskip("onnxruntime")
    driver: Any = backend_manager.get("onnxruntime")
    (case,) = cases(op="cross_entropy", dtype="float32,int64", shape=("input0=4x37", "input1=4"))
    plain, optimized = (
        driver.captured_program(replace(case, backend=replace(case.backend, variant=variant)), None)
        for variant in ("disabled", "all")
    )
    assert (plain.is_optimized, optimized.is_optimized) == (False, True)
    assert "Transpose" in {each.operation for each in plain.nodes} - {each.operation for each in optimized.nodes}


def test_what_jax_captures() -> None:
    pytest.importorskip("jax")
    driver: Any = backend_manager.get("jax")
    (case,) = cases(op="gelu", dtype="float32", shape=("input0=2x3",))
    with pytest.raises(Fault, match="op by op"):
        driver.captured_program(replace(case, backend=replace(case.backend, variant="op_by_op")), None)
    found = driver.captured_program(replace(case, backend=replace(case.backend, variant="jit")), None)
    assert "mul" in [each.operation for each in found.nodes]
    assert set(found.nodes[0].inputs) <= {*found.inputs, *found.constants}
