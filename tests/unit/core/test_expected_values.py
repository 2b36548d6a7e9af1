"""Sources of expected outputs, and their protection against the code under test."""

from __future__ import annotations

import dataclasses
from typing import Any

import core_kit
import numpy as np
import pytest
from core_kit import Answering, raising, spec_of, values_of
from test_every_reason import case_of  # type: ignore[import-not-found]
from test_hostile_backends import right  # type: ignore[import-not-found]
from texts import says

from optest.core.runner import execute
from optest.operators import operators
from optest.spec import (
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
)


def matmul(fill: str, **changes: Any) -> TestCase:
    specs = (spec_of(4, 5), spec_of(5, 6))
    return core_kit.case_of("matmul", *specs, fill=Fill(kind=fill), outputs=(spec_of(4, 6),), **changes)


def topk(descriptor: OperatorDescriptor, spec: TensorSpec, fill: str) -> TestCase:
    """Return a case of the three largest elements of each row."""
    shape = (*spec.shape[:-1], 3)
    outputs = (spec_of(*shape), spec_of(*shape, kind="int64"))
    return core_kit.case_of(descriptor, spec, fill=Fill(kind=fill), outputs=outputs, attributes={"k": 3})


def tolerance_in(layer: Layer, rtol: float, output: str | None = None) -> tuple[ToleranceLayer, ...]:
    return (ToleranceLayer(layer=layer, tolerance=Tolerance(rtol=rtol), output=output),)


def off_by_one_ulp(case: TestCase, inputs: Any) -> Any:
    return [np.nextafter(right(case, inputs), np.float32(np.inf))]


def verdict_of(case: TestCase, answer: Any) -> Verdict:
    return execute([case], Answering(answer)).verdicts[0]


def test_plan_default_does_not_relax_integer_exact_sums() -> None:
    relaxed = matmul("integer-exact", tolerances=tolerance_in(Layer.PLAN, 0.1))
    assert verdict_of(relaxed, off_by_one_ulp).reason is Reason.VALUE
    assert verdict_of(relaxed, right).status is Status.PASSED


def test_tolerance_for_another_output_keeps_terms() -> None:
    case = matmul("randn", tolerances=tolerance_in(Layer.CASE, 0.1, output="no such output"))
    verdict = verdict_of(case, right)
    assert verdict.status is Status.PASSED, verdict
    assert verdict.measures[0].rule is not None
    assert verdict.measures[0].rule.name == "accumulate"


@pytest.mark.parametrize("first_has_tolerance", [True, False])
def test_cases_of_one_execution_keep_their_rules(first_has_tolerance: bool) -> None:
    cases = [matmul("randn", tolerances=tolerance_in(Layer.CASE, 0.1)), matmul("randn")]
    if not first_has_tolerance:
        cases.reverse()
    verdicts = execute(cases, Answering(right)).verdicts
    rules = [verdict.measures[0].rule.name for verdict in verdicts]
    assert sorted(rules) == ["accumulate", "tolerance"], verdicts


def test_reference_cannot_change_backend_inputs() -> None:
    def wipes(inputs: Any, attributes: Any) -> Any:
        pointer = inputs[0].ctypes.data  # as a framework does whose tensor shares our memory
        import ctypes

        ctypes.memset(pointer, 0, inputs[0].nbytes)
        return [inputs[0].astype(np.float64)]

    case = case_of(descriptor=own(wipes), backend="answering")
    seen = []

    def zeros(case: TestCase, inputs: Any) -> Any:
        seen.append(inputs[0].copy())
        return [np.zeros((4, 5), np.float32)]

    verdict_of(case, zeros)
    assert seen[0].any()


def test_negative_count_of_terms_blames_operator() -> None:
    descriptor = own(
        lambda inputs, _: [inputs[0].astype(np.float64)],
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
    details = [check.detail for check in verdict.checks if check.name == "expected values"]
    assert details == ["from the generator, not the reference"]


def own(reference: Any, **more: Any) -> OperatorDescriptor:
    return OperatorDescriptor(
        name="own", signature="x -> out", reference=reference, **{"rule": Rule(kind=RuleClass.ULP, ulp=1), **more}
    )


@pytest.mark.parametrize("shape", [(4, 5), (1,), (1001, 1000)])
def test_nothing_but_nan_from_finite_inputs_is_suspect(shape: tuple[int, ...]) -> None:
    case = case_of(descriptor=own(lambda *_: [np.full(shape, np.nan)]), backend="answering", shape=shape)
    verdict = verdict_of(case, lambda *_: [np.full(shape, np.nan, np.float32)])
    assert verdict.status is Status.SUSPECT, verdict
    assert says(verdict.message, "core.every_element_should_be")


@pytest.mark.parametrize(("value", "status"), [(np.nan, Status.SKIPPED), (1.0, Status.SUSPECT)])
def test_drawn_results_without_a_number_are_skipped(value: float, status: Status) -> None:
    """An operator that is its own reference stays suspect, whoever chose the inputs."""

    def scaled(inputs: Any, _attributes: Any) -> Any:
        return [inputs[0] * np.float32(value), *[ReferenceNote("itself", itself_on="cpu")] * (value == 1)]

    case = case_of(descriptor=own(scaled), backend="answering", tags=("set:sizes",))
    verdict = verdict_of(case, lambda _, inputs: scaled(inputs, {})[:1])
    assert verdict.status is status, verdict


def test_nan_that_was_asked_for_is_no_suspect() -> None:
    nan = values_of(float("nan"))
    case = case_of(backend="answering", shape=(1,))
    case = dataclasses.replace(case, inputs=tuple(dataclasses.replace(each, fill=nan) for each in case.inputs))
    assert verdict_of(case, lambda *_: [np.full(1, np.nan, np.float32)]).status is Status.PASSED


@pytest.mark.parametrize("reason", [Reason.UNAVAILABLE, Reason.REFERENCE_FAILED, Reason.BAD_CASE, Reason.INTERNAL])
def test_an_expected_failure_excuses_the_backend_alone(reason: Reason) -> None:
    case = case_of(backend="answering", xfail=Xfail(reason="the kernel raises", status=Status.ERROR))
    assert verdict_of(case, raising(Fault(reason, "not the backend's", status=Status.ERROR))).status is Status.ERROR


def _sevens(inputs: Any, attributes: Any) -> Any:
    return np.full((2, 3), 7.0), np.full((2, 3), 7)


def test_ties_are_free_with_built_in_reference_only() -> None:
    """`alternatives` speaks for the operator; it must not excuse what differs from a reference that a user stated."""
    case = topk(operators.get("topk"), spec_of(2, 5), "ones")

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
    case = topk(descriptor, spec_of(5), "randn")
    monkeypatch.setattr("optest.core.verdicts.add_diagnosis", lambda _, verdict: verdict)
    wrong = [np.full(3, 9.0, np.float32), np.full(3, 4)]
    for count in (1, 2):  # another comparison asks anew
        assert verdict_of(case, lambda case, inputs: wrong).reason is Reason.VALUE
        assert len(given) == count
