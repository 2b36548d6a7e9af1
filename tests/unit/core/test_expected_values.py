"""Sources of expected outputs, and their protection against the code under test."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from test_every_reason import case_of  # type: ignore[import-not-found]
from test_hostile_backends import Answering, right  # type: ignore[import-not-found]
from texts import says

from optest.core.runner import execute
from optest.operators import operators
from optest.spec import (
    Argument,
    Fault,
    Fill,
    Layer,
    OperatorDescriptor,
    Reason,
    ReferenceNote,
    Rule,
    RuleClass,
    Status,
    TensorSpec,
    Terms,
    TestCase,
    Tolerance,
    ToleranceLayer,
    Verdict,
    Xfail,
    dtype,
)


def matmul(fill: str, **changes: Any) -> TestCase:
    descriptor = operators.get("matmul")
    specs = [TensorSpec(dtype=dtype("float32"), shape=shape) for shape in ((4, 5), (5, 6))]
    return TestCase(
        descriptor=descriptor,
        inputs=tuple(
            Argument(name=descriptor.tensors.input_name(index), path=f"input{index}", spec=spec, fill=Fill(kind=fill))
            for index, spec in enumerate(specs)
        ),
        outputs=(TensorSpec(dtype=dtype("float32"), shape=(4, 6)),),
        attributes=descriptor.bind({}),
        **changes,
    )


def tolerance_in(layer: Layer, rtol: float, output: str | None = None) -> tuple[ToleranceLayer, ...]:
    return (ToleranceLayer(layer=layer, tolerance=Tolerance(rtol=rtol), output=output),)


def off_by_one_ulp(case: TestCase, inputs: Any) -> Any:
    return [np.nextafter(right(case, inputs), np.float32(np.inf))]


def verdict_of(case: TestCase, answer: Any) -> Verdict:
    return execute([case], Answering(answer)).verdicts[0]


def test_plan_default_does_not_relax_integer_exact_sums() -> None:
    relaxed = matmul("integer-exact", tolerances=tolerance_in(Layer.PLAN, 0.1))
    assert verdict_of(relaxed, off_by_one_ulp).reason is Reason.VALUE
    assert verdict_of(relaxed, lambda case, inputs: [right(case, inputs)]).status is Status.PASSED


def test_tolerance_for_another_output_keeps_terms() -> None:
    case = matmul("randn", tolerances=tolerance_in(Layer.CASE, 0.1, output="no such output"))
    verdict = verdict_of(case, lambda case, inputs: [right(case, inputs)])
    assert verdict.status is Status.PASSED, verdict
    assert verdict.measures[0].rule is not None
    assert verdict.measures[0].rule.name == "accumulate"


@pytest.mark.parametrize("first_has_tolerance", [True, False])
def test_cases_of_one_execution_keep_their_rules(first_has_tolerance: bool) -> None:
    cases = [matmul("randn", tolerances=tolerance_in(Layer.CASE, 0.1)), matmul("randn")]
    if not first_has_tolerance:
        cases.reverse()
    verdicts = execute(cases, Answering(lambda case, inputs: [right(case, inputs)])).verdicts
    rules = [verdict.measures[0].rule.name for verdict in verdicts]
    assert sorted(rules) == ["accumulate", "tolerance"], verdicts


def test_reference_cannot_change_backend_inputs() -> None:
    def wipes(inputs: Any, attributes: Any) -> Any:
        pointer = inputs[0].ctypes.data  # as a framework does whose tensor shares our memory
        import ctypes

        ctypes.memset(pointer, 0, inputs[0].nbytes)
        return [inputs[0].astype(np.float64)]

    spec = TensorSpec(dtype=dtype("float32"), shape=(4, 5))
    case = case_of(
        "relu",
        backend="answering",
        descriptor=OperatorDescriptor(
            name="wiped", signature="x -> out", reference=wipes, rule=Rule(kind=RuleClass.ULP)
        ),
        outputs=(spec,),
    )
    seen = []

    def zeros(case: TestCase, inputs: Any) -> Any:
        seen.append(inputs[0].copy())
        return [np.zeros((4, 5), np.float32)]

    verdict_of(case, zeros)
    assert seen[0].any()


def test_negative_count_of_terms_blames_operator() -> None:
    descriptor = OperatorDescriptor(
        name="negative",
        signature="x -> out",
        reference=lambda inputs, _: [inputs[0].astype(np.float64)],
        rule=Rule(kind=RuleClass.ACCUMULATE),
        terms=lambda *_: Terms(absolute=1e30, squared=1e30, count=-4),
    )
    verdict = verdict_of(case_of(descriptor=descriptor, backend="answering"), lambda *_: [np.zeros((4, 5), np.float32)])
    assert verdict.reason is Reason.REFERENCE_FAILED, verdict


def knows_better(case: TestCase, rng: Any) -> Any:
    inputs = [np.ones(argument.spec.shape, np.float32) for argument in case.inputs]
    return inputs, [np.full(case.inputs[0].spec.shape, 7.0)]


def test_check_names_generator_as_source() -> None:
    case = case_of(backend="answering", generator="test_expected_values:knows_better")
    verdict = verdict_of(case, lambda *_: [np.full((4, 5), 7.0, np.float32)])
    assert verdict.status is Status.PASSED
    assert [check.detail for check in verdict.checks if check.name == "expected values"] == [
        "from the generator, not the reference"
    ]


def nothing(inputs: Any, attributes: Any) -> Any:
    return [np.full(inputs[0].shape, np.nan)]


@pytest.mark.parametrize("shape", [(4, 5), (1,), (1001, 1000)])
def test_nothing_but_nan_from_finite_inputs_is_suspect(shape: tuple[int, ...]) -> None:
    descriptor = OperatorDescriptor(
        name="lost", signature="x -> out", reference=nothing, rule=Rule(kind=RuleClass.ULP, ulp=1)
    )
    spec = TensorSpec(dtype=dtype("float32"), shape=shape)
    case = case_of(descriptor=descriptor, backend="answering", shape=shape, outputs=(spec,))
    verdict = verdict_of(case, lambda *_: [np.full(shape, np.nan, np.float32)])
    assert verdict.status is Status.SUSPECT, verdict
    assert says(verdict.message, "core.every_element_should_be")


@pytest.mark.parametrize(("value", "status"), [(np.nan, Status.SKIPPED), (1.0, Status.SUSPECT)])
def test_drawn_results_without_a_number_are_skipped(value: float, status: Status) -> None:
    """An operator that is its own reference stays suspect, whoever chose the inputs."""

    def scaled(inputs: Any, _attributes: Any) -> Any:
        return [inputs[0] * np.float32(value), *[ReferenceNote("itself", itself_on="cpu")] * (value == 1)]

    rule = Rule(kind=RuleClass.ULP, ulp=1)
    descriptor = OperatorDescriptor(name="lost", signature="x -> out", reference=scaled, rule=rule)
    case = case_of(descriptor=descriptor, backend="answering", tags=("set:sizes",))
    verdict = verdict_of(case, lambda _, inputs: scaled(inputs, {})[:1])
    assert verdict.status is status, verdict


def test_nan_that_was_asked_for_is_no_suspect() -> None:
    nan = Fill(kind="data", parameters={"values": [float("nan")]})
    case = case_of(backend="answering", shape=(1,), outputs=(TensorSpec(dtype=dtype("float32"), shape=(1,)),))
    case = dataclasses.replace(case, inputs=tuple(dataclasses.replace(each, fill=nan) for each in case.inputs))
    assert verdict_of(case, lambda *_: [np.full(1, np.nan, np.float32)]).status is Status.PASSED


@pytest.mark.parametrize("reason", [Reason.UNAVAILABLE, Reason.REFERENCE_FAILED, Reason.BAD_CASE, Reason.INTERNAL])
def test_an_expected_failure_excuses_the_backend_alone(reason: Reason) -> None:
    case = case_of(backend="answering", xfail=Xfail(reason="the kernel raises", status=Status.ERROR))

    def faults(case: TestCase, inputs: Any) -> Any:
        raise Fault(reason, "not the backend's", status=Status.ERROR)

    assert verdict_of(case, faults).status is Status.ERROR


_VECTOR = TensorSpec(dtype=dtype("float32"), shape=(5,))


def _sevens(inputs: Any, attributes: Any) -> Any:
    return np.full((2, 3), 7.0), np.full((2, 3), 7)


def test_ties_are_free_with_built_in_reference_only() -> None:
    """`alternatives` speaks for the operator; it must not excuse what differs from a reference that a user stated."""
    descriptor = operators.get("topk")
    spec = TensorSpec(dtype=dtype("float32"), shape=(2, 5))
    case = TestCase(
        descriptor=descriptor,
        inputs=(Argument(name="input", path="input0", spec=spec, fill=Fill(kind="ones")),),
        outputs=(
            TensorSpec(dtype=dtype("float32"), shape=(2, 3)),
            TensorSpec(dtype=dtype("int64"), shape=(2, 3)),
        ),
        attributes=descriptor.bind({"k": 3}),
    )

    def last_ones(case: TestCase, inputs: Any) -> Any:
        return [np.ones((2, 3), np.float32), np.broadcast_to(np.array([4, 3, 2]), (2, 3)).copy()]

    assert verdict_of(case, last_ones).status is Status.PASSED
    theirs = dataclasses.replace(case, reference=f"{__name__}:_sevens")
    assert verdict_of(theirs, last_ones).reason is Reason.VALUE


def test_a_comparison_makes_alternatives_once_for_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may cost more than the reference: gradients are computed some thirty times for them."""
    given: list[Any] = []

    def nothing_else(inputs: Any, attributes: Any, actual: Any) -> Any:
        given.append([np.array(each) for each in actual])
        return [None, None]

    descriptor = dataclasses.replace(operators.get("topk"), alternatives=nothing_else)
    case = TestCase(
        descriptor=descriptor,
        inputs=(Argument(name="input", path="input0", spec=_VECTOR, fill=Fill(kind="randn")),),
        outputs=(dataclasses.replace(_VECTOR, shape=(3,)), TensorSpec(dtype=dtype("int64"), shape=(3,))),
        attributes=descriptor.bind({"k": 3}),
    )
    monkeypatch.setattr("optest.core.verdicts.add_diagnosis", lambda _, verdict: verdict)
    wrong = [np.full(3, 9.0, np.float32), np.full(3, 4)]
    for count in (1, 2):  # another comparison asks anew
        assert verdict_of(case, lambda case, inputs: wrong).reason is Reason.VALUE
        assert len(given) == count
