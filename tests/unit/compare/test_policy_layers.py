"""Choice of the tolerance rule among the layers of DESIGN §4.5, as a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from comparing import ACCUMULATE, COMPOSED, EXACT, MOVEMENT, ULP, case_of, expect, stated, verdict_of
from texts import says, says_exactly

from optest.compare.policy import NAMING_LAYERS, Allowance, describe_rule, resolve, tolerance_of_layers
from optest.spec import (
    ErrorBudget,
    Layer,
    Numerics,
    OperatorDescriptor,
    Reason,
    Rule,
    RuleClass,
    Status,
    TensorSpec,
    Terms,
    Tolerance,
    ToleranceLayer,
    dtype,
)

PROBE = OperatorDescriptor(name="probe", signature="x -> values, indices")


def resolved(*layers: ToleranceLayer, rule: Rule | None = ULP, entry: str = "float32", numerics: Numerics) -> Allowance:
    case = case_of(rule, (entry,), layers=layers)
    terms = {
        RuleClass.ACCUMULATE: Terms(np.ones(4), np.ones(4), 8),
        RuleClass.COMPOSED: ErrorBudget(np.ones(4)),
    }.get(rule.kind if rule else RuleClass.EXACT)
    return resolve(case, expect(np.ones(4), entry, terms=terms), 0, numerics, None)


@pytest.mark.parametrize("layer", list(Layer))
def test_every_layer_replaces_the_class_rule(layer: Layer) -> None:
    allowance = resolved(stated(1e-3, layer=layer), numerics=Numerics())
    assert (allowance.used.name, allowance.used.layer) == ("tolerance", layer.phrase)
    assert (allowance.rtol, allowance.atol, allowance.mismatch_ratio) == (1e-3, 0.0, 0.0)


@pytest.mark.parametrize("lower", list(Layer))
@pytest.mark.parametrize("higher", list(Layer))
def test_higher_layer_inherits_omitted_fields(lower: Layer, higher: Layer) -> None:
    if lower >= higher:
        return
    layers = (stated(atol=0.5, layer=higher), stated(rtol=0.25, atol=0.125, layer=lower))
    for order in (layers, layers[::-1]):
        allowance = resolved(*order, numerics=Numerics())
        assert (allowance.rtol, allowance.atol) == (0.25, 0.5)
        assert allowance.used.layer == higher.phrase


@pytest.mark.parametrize("layer", list(Layer))
@pytest.mark.parametrize(
    ("rule", "entry"),
    [(MOVEMENT, "float32"), (EXACT, "float32"), (ULP, "int32"), (None, "bool"), (ACCUMULATE, "int64")],
)
def test_exact_output_is_relaxed_only_by_name(layer: Layer, rule: Rule | None, entry: str) -> None:
    allowance = resolved(stated(1.0, 1.0, layer=layer), rule=rule, entry=entry, numerics=Numerics())
    is_naming = layer in {Layer.OPERATOR, Layer.CASE, Layer.COMMAND_LINE}
    assert (allowance.used.name == "tolerance") == (layer in NAMING_LAYERS) == is_naming


def test_tolerance_without_numbers_allows_nothing() -> None:
    layers = (stated(atol=1.0, layer=Layer.CASE), stated(rtol=1.0, layer=Layer.PLAN))
    assert resolved(*layers, rule=EXACT, numerics=Numerics()).rtol == 0.0
    assert resolved(*layers, rule=ULP, numerics=Numerics()).rtol == 1.0
    assert verdict_of([1.0000001], [1.0], layers=(stated(),)).reason is Reason.VALUE
    assert verdict_of([1.0], [1.0], layers=(stated(),)).status is Status.PASSED


@pytest.mark.parametrize("layer", list(Layer))
def test_integer_exact_inputs_are_relaxed_only_by_name(layer: Layer) -> None:
    how = {"rule": ACCUMULATE, "fill": "integer-exact", "layers": (stated(1.0, layer=layer),)}
    terms = Terms(np.full(4, 200.0), np.full(4, 200.0), 64)
    verdict = verdict_of(np.full(4, 101.0, np.float32), np.full(4, 100.0), terms=terms, **how)
    assert (verdict.status is Status.PASSED) == (layer in NAMING_LAYERS)


def test_entry_for_one_output_precedes_general_entry() -> None:
    own = ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=0.5), output="indices", where="plan.yaml:7")
    every = stated(rtol=0.1, atol=0.2)

    def found(index: int, name: str) -> Allowance:
        allowance = tolerance_of_layers((every, own), PROBE, index, name, one_answer=False)
        assert allowance is not None
        return allowance

    assert (found(1, "indices").rtol, found(1, "indices").atol) == (0.5, 0.2)
    assert "plan.yaml:7" in found(1, "indices").used.text
    assert found(0, "values").rtol == 0.1
    positional = ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=0.75), output="output1")
    assert tolerance_of_layers((positional,), PROBE, 0, "values", one_answer=False) is None
    assert tolerance_of_layers((positional,), PROBE, 1, "indices", one_answer=False) is not None


@pytest.mark.parametrize(
    ("rule", "entry", "numerics", "words"),
    [
        (ACCUMULATE, "float16", Numerics(), "float16 in, float32 accumulate, k=8: |err| <= 4·√k·u·Σ|terms| + ½ulp, z"),
        (ACCUMULATE, "float16", Numerics(accumulator="float16"), "float16 in, float16 accumulate, k=8"),
        (ACCUMULATE, "float32", Numerics(accumulator="float16"), "float32 in, float32 accumulate, k=8"),
        (ACCUMULATE, "float64", Numerics(), "float64 in, float64 accumulate, k=8"),
        (ACCUMULATE, "float32", Numerics(accumulator_truncates=True), "float32 accumulate (truncating), k=8"),
        (ACCUMULATE, "float32", Numerics(direct=False), "float32 accumulate (not direct), k=8: |err| <= 16·4·√k"),
        (ULP, "bfloat16", Numerics(), "0.5 ulp of float32 + ½ulp, rms <= 1.25 x that of correct rounding"),
        (ULP, "float32", Numerics(), "0.5 ulp of float32"),
        (ULP, "float64", Numerics(), "0.5 + 1 (the reference is float64 too) ulp of float64"),
        (COMPOSED, "float32", Numerics(), "|err| <= u·(budget of the operator) + ½ulp"),
    ],
)
def test_the_rule_says_from_what_it_was_computed(rule: Rule, entry: str, numerics: Numerics, words: str) -> None:
    allowance = resolved(rule=rule, entry=entry, numerics=numerics)
    assert words in allowance.used.text
    assert (allowance.used.name, allowance.used.layer) == (rule.kind.value, "operator")


@pytest.mark.parametrize(
    ("processor", "ceiling", "words"),
    [
        ("cpu", 2.0, "2 ulp of float32 on a CPU (16 elsewhere)"),
        ("accelerator", 16.0, "16 ulp of float32 (2 on a CPU)"),
        (None, 16.0, "16 ulp of float32 (2 on a CPU)"),
    ],
)
def test_ceiling_by_processor(processor: str | None, ceiling: float, words: str) -> None:
    rule = Rule(kind=RuleClass.ULP, ulp=16.0, cpu_ulp=2.0)
    allowance = resolved(rule=rule, entry="float32", numerics=Numerics(processor=processor))
    assert allowance.law is not None
    assert allowance.law.ulps == ceiling
    assert words in allowance.used.text


def test_operands_that_are_cut_are_named() -> None:
    case = case_of(ACCUMULATE, ("float32", "float32"))
    terms = Terms(np.ones(4), np.ones(4), 8)
    allowance = resolve(case, expect(np.ones(4), terms=terms), 0, Numerics(operands="tf32"), None)
    assert says(allowance.used.text, "compare.tf_operands_err_terms")
    plain = resolve(case, expect(np.ones(4), terms=terms), 0, Numerics(), None)
    assert allowance.law is not None
    assert plain.law is not None
    assert allowance.law.per_term > 100 * plain.law.per_term


def test_rules_are_described_before_anything_ran() -> None:
    assert "4·√k·u·Σ|terms|" in describe_rule(case_of(ACCUMULATE))
    assert says_exactly(describe_rule(case_of(EXACT, ("int32",))), "compare.one_right_answer_operator")
    assert "rtol=0.5" in describe_rule(case_of(ULP, layers=(stated(0.5),)))
    assert says(describe_rule(case_of(None)), "compare.no_tolerance_is_stated")


@pytest.mark.parametrize("layer", list(Layer))
def test_indices_next_to_values_are_relaxed_by_name(layer: Layer) -> None:
    """A tolerance for all outputs is meant for the values: with rtol=0.01 a wrong index of 5000 would be right."""
    outputs = tuple(TensorSpec(dtype=dtype(name), shape=(4,)) for name in ("float32", "int64"))

    def rule_of_indices(*layers: ToleranceLayer) -> str:
        case = replace(case_of(ULP, ("float32",), layers=layers), descriptor=replace(PROBE, rule=ULP), outputs=outputs)
        expected = replace(expect(np.ones(4, np.int64), "int64"), name="indices")
        return resolve(case, expected, 1, Numerics(), None).used.name

    assert rule_of_indices(stated(1e-2, layer=layer)) == "exact"
    named = replace(stated(1e-2, layer=layer), output="indices")
    assert rule_of_indices(named) == ("tolerance" if layer in NAMING_LAYERS else "exact")
