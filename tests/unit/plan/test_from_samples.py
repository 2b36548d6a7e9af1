"""Samples are built to cases through a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from optest.errors import PlanError, UsageError
from optest.generators import check_fill
from optest.operators import OperatorRegistry
from optest.plan import CaseRequest, PlanHost, build_cases, parse_plan
from optest.plan.from_samples import CasesOfSamples, cases_of_samples, plan_of_cases
from optest.spec import BackendTarget, OperatorDescriptor, Rule, RuleClass, Sample, TensorSpec, Tier

TARGET = BackendTarget(name="torch", kind="torch", device="cpu")


def infer(specs: Any, attributes: Any) -> tuple[TensorSpec, ...]:
    return (TensorSpec(dtype=specs[0].dtype, shape=specs[0].shape),)


def own_samples() -> Iterable[Sample]:
    yield Sample(case_set="ordinary", case={"shapes": {"input": [2, 3]}}, tier=Tier.SMOKE)
    yield Sample(case_set="ordinary", case={"shapes": {"input": [4]}, "dtypes": ["float16"], "tags": ["mine"]})
    yield Sample(case_set="layouts", case={"shapes": {"input": {"shape": [2, 3], "strides": [6, 2]}}})
    yield Sample(case_set="ordinary", case={"shapes": {"input": [5]}, "generator": "special"}, tier=Tier.FULL)
    yield Sample(case_set="ordinary", case={"shapes": {"input": [6]}})
    yield Sample(case_set="refused", case={"shapes": {"input": [2]}, "expects_error": {"type": "Exception"}})


DESCRIPTOR = OperatorDescriptor(
    name="twice",
    signature="input -> out",
    infer=infer,
    samples=own_samples,
    rule=Rule(kind=RuleClass.ULP, source="exact"),
    tags=("of-the-operator",),
)


REGISTRY = OperatorRegistry()
REGISTRY.register(DESCRIPTOR)
HOST = PlanHost(operators=REGISTRY, target=TARGET, check_fill=check_fill)


def built(samples: Iterable[Sample] | None = None, **more: Any) -> CasesOfSamples:
    return cases_of_samples(
        DESCRIPTOR, own_samples() if samples is None else samples, CaseRequest(seed=7), HOST, **more
    )


def test_sample_cases_have_names_and_tags() -> None:
    cases = built().cases
    assert [case.id for case in cases] == [
        "twice/ordinary/1[float32](2x3)",
        "twice/ordinary/2[float16](4)",
        "twice/layouts/1[float32](2x3)",
        "twice/ordinary/3[float32](5)",
        "twice/ordinary/4[float32](6)",
        "twice/refused/1[float32](2)",
    ]
    assert cases[1].tags == ("set:ordinary", "tier:parity", "mine", "of-the-operator")
    assert {case.seed for case in cases} == {7}
    assert {case.backend for case in cases} == {TARGET}
    assert cases[0].where.endswith(":own_samples")
    assert cases[2].inputs[0].spec.strides == (6, 2)
    assert cases[5].expects_error is not None


def test_a_tier_leaves_names_as_they_are() -> None:
    some = [case.id for case in built(wanted=lambda sample, _: sample.tier is not Tier.FULL).cases]
    assert some == [case.id for case in built().cases if "tier:full" not in case.tags]
    assert "twice/ordinary/4[float32](6)" in some
    (last,) = built(wanted=lambda _, head: head == "twice/ordinary/4[").cases
    assert last.id == "twice/ordinary/4[float32](6)"
    assert [case.tags[1] for case in built(wanted=lambda sample, _: sample.tier is Tier.SMOKE).cases] == ["tier:smoke"]


def test_the_written_plan_holds_the_same_cases() -> None:
    samples = built()
    text = plan_of_cases([samples], backend="torch", seed=7)
    again = build_cases(parse_plan(text.encode(), "plan.yaml"), CaseRequest(), HOST)
    of_samples, of_plan = (
        [(case.id, case.key, case.tags, case.expects_error) for case in cases] for cases in (samples.cases, again)
    )
    assert of_plan == of_samples


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"shapes": {"input": [2]}, "shape": [2]}, "unknown key 'shape'"),
        ({"shapes": {"inpt": [2]}}, "unknown tensor 'inpt'"),
        ({"shapes": {"input": [2]}, "dtypes": ["float33"]}, "float33"),
        ({"shapes": {"input": [2]}, "generator": "rand"}, "unknown generator 'rand'"),
        ({"shapes": {"input": {"shape": [2], "strides": [-1]}}}, "before the storage"),
    ],
)
def test_a_wrong_sample_is_named(case: dict[str, Any], message: str) -> None:
    good = Sample(case_set="ordinary", case={"shapes": {"input": [2]}})
    with pytest.raises(PlanError) as caught:
        built([good, good, Sample(case_set="layouts", case=case)])
    (problem,) = caught.value.problems
    assert message in problem.message
    assert "sample twice/layouts/1 of " in problem.file
    assert problem.file.endswith(":own_samples")
    assert "cases[" not in problem.path


@pytest.mark.parametrize("key", ["op", "name"])
def test_a_sample_names_neither_operator_nor_case(key: str) -> None:
    with pytest.raises(UsageError, match=f"sets '{key}'"):
        built([Sample(case_set="ordinary", case={key: "relu", "shapes": {"input": [2]}})])


def test_no_samples_make_no_cases() -> None:
    assert built([]).cases == []


def test_plan_text_is_parsed_only_for_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    # Parsing YAML would take longer than building ten thousand samples.

    def read(*_: object) -> Callable[..., Any]:
        raise AssertionError("the text was read")

    monkeypatch.setattr("optest.plan.yaml_source._compose", read)
    assert len(built().cases) == 6
