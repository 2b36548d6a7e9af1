"""Caches between cases never return a value for a case that differs in anything a user can change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import core_kit
import numpy as np
import pytest
from core_kit import Calls, spec_of

from optest.core import runner
from optest.core.expected import make_inputs
from optest.core.results import result_of
from optest.core.wire import case_from_wire, case_to_wire
from optest.operators import operators
from optest.spec import (
    Fill,
    Interval,
    Layer,
    OperatorDescriptor,
    Reason,
    Rule,
    RuleClass,
    Status,
    TestCase,
    Tolerance,
    ToleranceLayer,
    Verdict,
)
from optest.store import codec


def slipping(slip: float) -> Calls:
    return Calls(lambda left, right: left + right + np.float32(slip))


def case_of(descriptor: OperatorDescriptor | None = None, size: int = 4, **changes: Any) -> TestCase:
    spec = spec_of(size)
    return core_kit.case_of(descriptor or operators.get("add"), spec, spec, outputs=(spec,), **changes)


def verdict_of(case: TestCase, slip: float = 0.0) -> Verdict:
    return core_kit.verdict_of(slipping(slip), case)


def difference(inputs: Sequence[Any], attributes: Any) -> Any:
    return inputs[0].astype(np.float64) - inputs[1].astype(np.float64)


def test_descriptor_override_uses_its_reference() -> None:
    case = case_of()
    assert verdict_of(case).status is Status.PASSED
    other = replace(case, descriptor=replace(case.descriptor, reference=difference))
    assert other.key == case.key
    assert verdict_of(other).reason is Reason.VALUE
    assert verdict_of(case).status is Status.PASSED


def test_reference_of_case_is_used() -> None:
    case = case_of()
    assert verdict_of(case).status is Status.PASSED
    other = replace(case, reference=f"{__name__}:difference")
    assert verdict_of(other).reason is Reason.VALUE


def test_overridden_rule_is_used() -> None:
    case = case_of()
    assert verdict_of(case, 1e-5).reason is Reason.VALUE
    loose = replace(case.descriptor, rule=Rule(kind=RuleClass.ULP, ulp=1e4))
    assert verdict_of(replace(case, descriptor=loose), 1e-5).status is Status.PASSED
    assert verdict_of(case, 1e-5).reason is Reason.VALUE


def test_equal_signatures_keep_their_tolerances() -> None:
    def with_atol(atol: float) -> TestCase:
        layer = ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=0.0, atol=atol))
        return case_of(tolerances=(layer,))

    loose, tight = with_atol(1e-3), with_atol(1e-6)
    assert loose.key == tight.key
    for _ in range(2):
        assert verdict_of(loose, 1e-4).status is Status.PASSED
        assert verdict_of(tight, 1e-4).reason is Reason.VALUE
    shared = runner.execute([loose, tight], slipping(1e-4)).verdicts
    assert [item.status for item in shared] == [Status.PASSED, Status.FAILED]


def test_changed_domain_is_drawn_from() -> None:
    domain: dict[str, Interval] = {}
    descriptor = replace(operators.get("add"), domain=domain)
    case = case_of(descriptor, size=8)
    assert (make_inputs(case)[0][0] < 0).any()
    domain["input"] = Interval(low=0.5)
    assert (make_inputs(case)[0][0] >= 0.5).all()


def test_changed_fill_is_drawn_from() -> None:
    fill = Fill(kind="uniform", parameters={})
    case = case_of(fill=[fill, Fill(kind="uniform")])
    before = make_inputs(case)[0][0]
    fill.parameters["low"], fill.parameters["high"] = 10.0, 11.0  # type: ignore[index] # a user may all the same
    assert (make_inputs(case)[0][0] >= 10.0).all()
    assert (before <= 1.0).all()


def test_cases_from_one_wire_share_nothing_mutable() -> None:
    wire = case_to_wire(case_of())
    one, other = (case_from_wire(case_to_wire(case_from_wire(wire, operators.get)), operators.get) for _ in range(2))
    for mine, yours in zip(one.inputs, other.inputs, strict=True):
        assert mine.fill.parameters is not yours.fill.parameters
    assert one.attributes is not other.attributes


def test_small_inputs_are_separate_and_read_only() -> None:
    left, right = (np.array(item) for item in make_inputs(case_of())[0])
    inputs, _ = make_inputs(case_of())
    assert not np.shares_memory(inputs[0], inputs[1])
    assert not any(item.flags.writeable for item in inputs)
    np.testing.assert_array_equal(inputs[0], left)
    np.testing.assert_array_equal(inputs[1], right)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_numbers_survive_encoding(value: float) -> None:
    """JSON writers replace NaN by null, so that the codec checks every number."""
    verdict = verdict_of(case_of())
    measure = verdict.measures[0]
    results = [
        result_of(case_of(), replace(verdict, measures=(replace(measure, **{field: value}),)))
        for field in ("worst_bound", "worst_used", "rmse", "statistic", "cosine", "max_rel_error", "worst_ulp")
    ]
    results.append(result_of(case_of(), replace(verdict, details={"deep": [{"er": value}]})))
    results.append(result_of(replace(case_of(), attributes={"alpha": value}), verdict))
    results.append(
        result_of(case_of(), verdict, timings=replace(runner.execute([case_of()], slipping(0.0)).timings, run_s=value))
    )
    for result in results:
        line = codec.encode(result)
        word = codec.spell_float(value).encode()
        assert b'"' + word + b'"' in line, line
        assert codec.encode(codec.decode(line, type(result))) == line


def test_shared_tolerance_stays_shared_behind_wire() -> None:
    # the comparison caches by the identity of the layer; 1 and 1.0 must not be confused

    def sent(rtol: float) -> ToleranceLayer:
        stated = ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=rtol, atol=0.5), where="a.yaml:3")
        (layer,) = case_from_wire(case_to_wire(case_of(tolerances=(stated,))), operators.get).tolerances
        assert layer == stated
        return layer

    assert sent(0.25) is sent(0.25)
    assert sent(0.25) is not sent(0.5)
    assert type(sent(1).tolerance.rtol) is int
    assert type(sent(1.0).tolerance.rtol) is float
