"""Class rules: their statistic, accepted and rejected results."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from comparing import ACCUMULATE, COMPOSED, ULP, case_of, verdict_of
from texts import says

from optest.compare import bounds, statistic
from optest.compare.policy import describe_rule
from optest.numerics import numpy_dtype, round_to, ulp, widen
from optest.operators import operators
from optest.operators.attention.attention_reference import (
    scaled_dot_product_attention_reference,
    scaled_dot_product_attention_terms,
)
from optest.registry import load_object
from optest.spec import (
    ErrorBudget,
    Numerics,
    Reason,
    Rule,
    RuleClass,
    Status,
    TensorSpec,
    Terms,
    dtype,
)


def tail_of_chi_square(freedom: int, at: float) -> float:
    """Return P(chi² > at), in closed form for even freedom: exp(-x)·Σ x^i/i!, i < freedom/2, x = at/2."""
    half = Fraction(at) / 2
    term, total = Fraction(1), Fraction(0)
    for index in range(freedom // 2):
        total += term
        term = term * half / (index + 1)
    return math.exp(math.log(total.numerator) - math.log(total.denominator) - at / 2)


@pytest.mark.parametrize("freedom", [2, 4, 6, 10, 16, 32, 64, 100, 250, 500, 1000])
def test_quantile_matches_definition(freedom: int) -> None:
    quantile = statistic.chi_square_quantile(freedom)
    assert tail_of_chi_square(freedom, quantile) <= 1.02e-9
    assert tail_of_chi_square(freedom, quantile / 1.17) > 1e-9  # 16 % too generous at 2, less above


def test_limits_by_number_of_values() -> None:
    limits = [statistic.limit(values) for values in (1, 2, 10, 100, 999, 1000, 10**6)]
    assert limits == sorted(limits, reverse=True)
    assert limits[-2:] == [1.25, 1.25]
    assert 6.0 < limits[0] < 8.0
    assert statistic.distinct_values(np.array(3.0)) == 1
    assert statistic.distinct_values(np.array([1.0, 2.0, 1.0])) == 2
    large = np.random.default_rng(0).standard_normal((300, 300))
    assert statistic.distinct_values(large) >= 1000
    assert statistic.distinct_values(large.T) >= 1000
    assert statistic.distinct_values(np.broadcast_to(large[:1], large.shape)) <= 300
    assert statistic.distinct_values(np.broadcast_to(large[:, :1], large.shape)) <= 300
    assert statistic.stricter_statistic(None, 2.0, None) == (None, None)
    assert statistic.stricter_statistic(1.0, 2.0, None) == (1.0, 2.0)
    assert statistic.stricter_statistic(1.0, 2.0, 1.0) == (1.0, 1.25)
    assert statistic.stricter_statistic(1.9, 2.0, 1.0) == (1.9, 2.0)
    assert math.isnan(statistic.stricter_statistic(math.nan, 2.0, 1.0)[0] or 0)


RNG = np.random.default_rng(11)


def contraction(k: int, name: str, *, rows: int = 32, columns: int = 32, positive: bool = False) -> dict[str, Any]:
    draw = RNG.random if positive else RNG.standard_normal
    a, b = (round_to(draw(shape), dtype(name)) for shape in ((rows, k), (k, columns)))
    return question(a, b, name)


def question(a: Any, b: Any, name: str) -> dict[str, Any]:
    wide, right = widen(a), widen(b)
    return {
        "a": a,
        "b": b,
        "value": wide @ right,
        "entry": name,
        "terms": Terms(np.abs(wide) @ np.abs(right), wide**2 @ right**2, a.shape[1]),
    }


def compare_with(sample: dict[str, Any], actual: Any, numerics: Numerics | None = None) -> Any:
    return verdict_of(
        round_to(np.asarray(actual, dtype=np.float64), dtype(sample["entry"])),
        sample["value"],
        sample["entry"],
        rule=ACCUMULATE,
        terms=sample["terms"],
        numerics=numerics,
        inputs=[sample["a"], sample["b"]],
        operands=(sample["entry"],) * 2,
    )


def single(array: Any) -> Any:
    return widen(array).astype(np.float32)


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("positive", [False, True])
def test_float32_accumulation_passes_and_dropped_product_fails(name: str, positive: bool) -> None:
    sample = contraction(256, name, positive=positive)
    a, b = single(sample["a"]), single(sample["b"])
    assert compare_with(sample, a @ b).status is Status.PASSED
    assert compare_with(sample, a[:, :-1] @ b[:-1]).reason is Reason.VALUE


def test_a_statistic_that_fails_alone_says_so() -> None:
    sample = contraction(64, "bfloat16", rows=64, columns=64)
    step = ulp(sample["value"], dtype("bfloat16"))
    assert compare_with(sample, np.trunc(sample["value"] / step) * step).reason is Reason.VALUE
    hidden = contraction(2048, "float16", rows=48, columns=48, positive=True)
    biased = hidden["value"] + 0.9 * (ulp(hidden["value"], dtype("float16")) / 2)
    verdict = compare_with(hidden, biased)
    assert verdict.reason is Reason.VALUE
    assert verdict.measures[0].statistic > verdict.measures[0].statistic_limit
    within = contraction(64, "float32", positive=True)  # a bias of half the bound, 4·√k·u·Σ|terms|
    verdict = compare_with(within, within["value"] * (1.0 + 16 * 2.0**-24))
    assert (verdict.reason, verdict.measures[0].mismatched) == (Reason.VALUE, 0)
    assert says(verdict.message, "compare.no_single_element_is")


def test_constants_summed_one_by_one_are_right() -> None:
    a, b = np.full((8, 4096), 0.1, np.float32), np.ones((4096, 8), np.float32)
    sample = question(a, b, "float32")
    total = np.cumsum(np.full(4096, 0.1, np.float32), dtype=np.float32)[-1]
    verdict = compare_with(sample, np.full((8, 8), total))
    assert verdict.status is Status.PASSED
    assert "few distinct values" in verdict.measures[0].rule.text
    assert compare_with(sample, np.full((8, 8), total) * 1.001).reason is Reason.VALUE


def test_a_half_accumulator_has_to_be_declared() -> None:
    sample = contraction(128, "float16")
    total = np.zeros((32, 32), np.float16)
    for k in range(128):
        total = total + sample["a"][:, k : k + 1] * sample["b"][k : k + 1]
    assert compare_with(sample, total).reason is Reason.VALUE
    assert compare_with(sample, total, Numerics(accumulator="float16")).status is Status.PASSED


@pytest.mark.parametrize(
    ("inputs", "few"),
    [
        ([np.full((4, 64), 0.1)], True),
        ([np.eye(64)], True),
        ([np.linspace(0, 1, 64)], False),
        ([np.full((4, 64), 0.1 - 0.7j)], True),
        ([1j * np.linspace(0, 1, 64)], False),
        ([0.5 + 1j * np.linspace(0, 1, 64)], False),
        ([np.full((4, 64), 0.1), np.ones((64, 4))], True),
        ([np.linspace(0, 1, 64), np.ones(64)], False),
        ([np.full(64, 0.1), np.ones(64), np.linspace(0, 1, 64)], True),
        ([np.linspace(0, 1, 64), np.linspace(0, 1, 64), np.zeros(64)], False),
        ([np.ones(3), np.ones(3)], False),
        ([np.arange(100_000) % 20, None], False),
        ([np.concatenate([np.zeros(100_000), np.arange(20.0)])], False),
        ([np.broadcast_to(np.linspace(0, 1, 40), (64, 40)), np.broadcast_to(np.linspace(0, 1, 30), (64, 30))], True),
        ([np.broadcast_to(np.linspace(0, 1, 64), (40, 64)), np.broadcast_to(np.linspace(0, 1, 30), (64, 30))], False),
    ],
)
def test_operands_of_few_values(inputs: list[Any], few: bool) -> None:
    assert bounds.few_values(inputs) is few


def test_terms_that_repeat() -> None:
    same, varied = np.full((4, 64), 0.3), RNG.random((4, 64))
    near = 1.0 + 1e-6 * varied
    for terms, repeats in ((same, True), (varied, False), (near, True), (0.0 * same, False)):
        found = Terms(np.abs(terms).sum(-1), (terms**2).sum(-1), 64)
        assert bounds.terms_repeat(found, 64 * 2.0**-24) is repeats
    assert not bounds.terms_repeat(Terms(np.ones(4), np.ones(4), 1), 2.0**-24)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("size", [12, 4096])
def test_truncation_of_an_elementwise_result_is_caught(name: str, size: int) -> None:
    entry = dtype(name)
    value = RNG.uniform(1.0, 200.0, size)
    step = ulp(value, entry)
    rule = Rule(kind=RuleClass.ULP, ulp=3.0)
    assert verdict_of(round_to(value, entry), value, name, rule=rule).status is Status.PASSED
    near = np.trunc(value / step) * step
    near = np.where(value - near <= 0.5 * step + 1e-7 * value, near, near + step)
    assert verdict_of(round_to(near, entry), value, name, rule=rule).status is Status.PASSED
    cut = round_to(np.trunc(value / step) * step, entry)
    assert verdict_of(cut, value, name, rule=rule).reason is Reason.VALUE


def test_budget_widens_ulp_rule_where_values_cancel() -> None:
    value, rule = np.array([1e-6, 1.0]), Rule(kind=RuleClass.ULP, ulp=16.0)
    actual = np.array([1e-6 + 3e-7, 1.0], np.float32)
    assert verdict_of(actual, value, rule=rule).reason is Reason.VALUE
    assert verdict_of(actual, value, rule=rule, terms=ErrorBudget(np.array([8.0, 8.0]))).status is Status.PASSED


@pytest.mark.parametrize("size", [8, 400])
def test_composed_budget_bounds_elements_and_their_sum(size: int) -> None:
    u = 2.0**-24
    value = RNG.uniform(1.0, 2.0, size)
    budget = ErrorBudget(np.full(size, 40.0), np.full(size, 16.0))
    assert verdict_of(value.astype(np.float32), value, rule=COMPOSED, terms=budget).status is Status.PASSED
    assert verdict_of((value + 9 * u).astype(np.float32), value, rule=COMPOSED, terms=budget).status is (
        Status.FAILED if size > 100 else Status.PASSED
    )
    far = value.astype(np.float32)
    far[0] += np.float32(45 * u)
    assert verdict_of(far, value, rule=COMPOSED, terms=budget).reason is Reason.VALUE


def test_terms_may_differ_in_number_by_element() -> None:
    values = RNG.standard_normal(512)
    value, counts = np.cumsum(values), np.arange(1, 513)
    terms = Terms(np.cumsum(np.abs(values)), np.cumsum(values**2), counts)
    single_precision = np.cumsum(values.astype(np.float32), dtype=np.float32)
    exact = np.cumsum(values.astype(np.float32).astype(np.float64))
    assert verdict_of(single_precision, exact, rule=ACCUMULATE, terms=terms).status is Status.PASSED
    off = np.array(single_precision)
    off[3] *= np.float32(1.001)
    assert verdict_of(off, value, rule=ACCUMULATE, terms=terms).reason is Reason.VALUE


@pytest.mark.parametrize(
    ("numerics", "kernel"),
    [
        (Numerics(operands="bfloat16"), lambda a, b: cut(a, "bfloat16") @ cut(b, "bfloat16")),
        (Numerics(accumulator_truncates=True), lambda a, b: truncating(a, b)),
    ],
)
def test_only_declared_numerics_are_allowed(numerics: Numerics, kernel: Any) -> None:
    sample = contraction(300, "float32", positive=True)
    actual = kernel(sample["a"], sample["b"])
    assert compare_with(sample, actual).reason is Reason.VALUE
    assert compare_with(sample, actual, numerics).status is Status.PASSED
    assert compare_with(sample, sample["a"][:, :-6] @ sample["b"][:-6], numerics).reason is Reason.VALUE


def cut(array: Any, name: str) -> Any:
    return round_to(array.astype(np.float64), dtype(name)).astype(np.float32)


def truncating(a: Any, b: Any) -> Any:
    """Sum in float32 and truncate towards zero, as some matrix units do."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        exact = total.astype(np.float64) + a[:, k : k + 1].astype(np.float64) * b[k : k + 1]
        rounded = exact.astype(np.float32)
        total = np.where(np.abs(rounded) > np.abs(exact), np.nextafter(rounded, np.float32(0)), rounded)
    return total


def test_float64_results_allow_for_a_float64_reference() -> None:
    sample = contraction(500, "float64")
    order = RNG.permutation(500)
    assert compare_with(sample, sample["a"][:, order] @ sample["b"][order]).status is Status.PASSED
    assert compare_with(sample, sample["a"][:, 1:] @ sample["b"][1:]).reason is Reason.VALUE
    value = np.exp(RNG.standard_normal(100))
    assert verdict_of(np.nextafter(value, 9), value, "float64", rule=ULP).status is Status.PASSED
    assert verdict_of(value * (1 + 2.0**-50), value, "float64", rule=ULP).reason is Reason.VALUE


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_squares_that_leave_float64_raise_no_alarm(scale: float) -> None:
    a, b = RNG.standard_normal((40, 64)) * scale, RNG.standard_normal((64, 40))
    with np.errstate(all="ignore"):
        sample = question(a, b, "float64")
    order = RNG.permutation(64)
    assert compare_with(sample, a[:, order] @ b[order]).status is Status.PASSED
    assert compare_with(sample, a[:, 1:] @ b[1:]).reason is Reason.VALUE


def test_actual_arrays_are_only_read() -> None:
    actual, value = np.ones(64, numpy_dtype(dtype("bfloat16"))), np.ones(64)
    actual.flags.writeable = value.flags.writeable = False
    assert verdict_of(actual, value, "bfloat16", rule=ULP).status is Status.PASSED


def test_quotients_are_never_integer_exact() -> None:
    """The mean of 1, 4 and -1: |quotients| add up to 2, and a kernel that multiplies by 1/3 may be an ulp off."""
    x, terms = np.array([1.0, 4.0, -1.0], np.float32), Terms(2.0, 2.0, 5)
    one_ulp_off = np.asarray(np.nextafter(np.float32(4.0 / 3.0), np.float32(9.0)))
    sample: dict[str, Any] = {"rule": ACCUMULATE, "inputs": [x], "fill": "integer-exact"}
    for divided, name, reason in ((False, "integer-exact", Reason.VALUE), (True, "accumulate", None)):
        verdict = verdict_of(one_ulp_off, np.asarray(4.0 / 3.0), terms=terms._replace(divided=divided), **sample)
        assert (verdict.reason, verdict.measures[0].rule.name) == (reason, name)


@pytest.mark.parametrize(("op", "attributes"), [("mean", {}), ("avg_pool2d", {"kernel_size": 3})])
def test_means_say_that_they_divide(op: str, attributes: dict[str, Any]) -> None:
    descriptor = operators.get(op)
    terms = load_object(str(descriptor.terms))([np.ones((1, 1, 3, 3), np.float32)], descriptor.bind(attributes))
    assert terms[0].divided


@pytest.mark.parametrize("op", [each.name for each in operators if each.alternatives is not None])
def test_the_rule_says_what_else_is_right(op: str) -> None:
    descriptor = operators.get(op)
    case = case_of(None, ("float32",) * 2, outputs=(TensorSpec(dtype=dtype("float32"), shape=(4,)),))
    assert descriptor.rule is not None
    assert descriptor.rule.formula
    assert descriptor.rule.formula in describe_rule(replace(case, descriptor=descriptor))


def summed_one_by_one(a: Any, b: Any, name: str) -> Any:
    total = np.zeros((a.shape[0], b.shape[1]), numpy_dtype(dtype(name)))
    for k in range(a.shape[1]):
        product = np.outer(widen(a[:, k]), widen(b[k]))
        total = round_to(widen(total) + product, dtype(name))
    return widen(total)


@pytest.mark.parametrize(("name", "k"), [("bfloat16", 64), ("bfloat16", 1000), ("float16", 256), ("float16", 2500)])
def test_a_narrow_accumulator_loses_digits_and_no_products(name: str, k: int) -> None:
    sample = contraction(k, name)
    a, b = sample["a"], sample["b"]
    numerics = Numerics(accumulator=name)
    assert compare_with(sample, summed_one_by_one(a, b, name), numerics).status is Status.PASSED
    for kept in (0, k // 2, k * 15 // 16):
        assert compare_with(sample, widen(a[:, :kept]) @ widen(b[:kept]), numerics).reason is Reason.VALUE


@pytest.mark.parametrize(("name", "k"), [("bfloat16", 1000), ("float16", 4096)])
def test_sum_that_may_be_lost_is_suspect(name: str, k: int) -> None:
    a, b = np.full((8, k), 0.25, numpy_dtype(dtype(name))), np.ones((k, 8), numpy_dtype(dtype(name)))
    sample = question(a, b, name)
    for actual in (summed_one_by_one(a, b, name), sample["value"], 0.0 * sample["value"]):
        verdict = compare_with(sample, actual, Numerics(accumulator=name))
        assert verdict.status is Status.SUSPECT
        assert "zeros pass too" in verdict.message
    assert compare_with(sample, 0.0 * sample["value"]).reason is Reason.VALUE  # by float32


@pytest.mark.parametrize("entry", ["float32", "bfloat16"])
@pytest.mark.parametrize("rule", [ACCUMULATE, COMPOSED])
def test_infinity_beside_numbers(entry: str, rule: object) -> None:
    rng = np.random.default_rng(0)
    terms = rng.standard_normal((5000, 64))
    value = terms.sum(1)
    total, squares = np.abs(terms).sum(1), (terms * terms).sum(1)
    odd = {3: np.inf, 77: -np.inf, 1000: np.nan}
    for index, special in odd.items():
        value[index] = total[index] = squares[index] = special
    wanted = Terms(np.abs(total), squares, 64) if rule is ACCUMULATE else ErrorBudget(np.abs(total), np.abs(total))
    right = round_to(value, dtype(entry))
    assert verdict_of(right, value, entry, rule=rule, terms=wanted).status is Status.PASSED
    truncated = np.where(np.isfinite(value), value * (1 + 2.0**-7), value)
    wrong = verdict_of(round_to(truncated, dtype(entry)), value, entry, rule=rule, terms=wanted)
    assert wrong.reason is Reason.VALUE


def test_nan_variance_does_not_blame_kernel() -> None:
    value = np.linspace(1.0, 2.0, 2000)
    budget = ErrorBudget(np.ones(2000), np.full(2000, np.nan))
    verdict = verdict_of(value.astype(np.float32), value, rule=COMPOSED, terms=budget)
    assert (verdict.status, verdict.reason) == (Status.ERROR, Reason.REFERENCE_FAILED)


Array = np.ndarray[Any, Any]


ATTRIBUTES = {"scale": None, "is_causal": False, "enable_gqa": False, "dropout_p": 0.0}


SHAPES = [(2, 3, 17, 5, 8), (1, 1, 16, 64, 32), (1, 1, 1, 300, 64), (1, 4, 33, 257, 16), (1, 2, 64, 64, 64)]


SMALL = SHAPES[:2]


def drawn(shape: tuple[int, ...], size: float, seed: int) -> list[Array]:
    batch, heads, queries, keys, width = shape
    random = np.random.default_rng(seed)
    lengths = (queries, keys, keys)
    return [(size * random.standard_normal((batch, heads, each, width))).astype(np.float32) for each in lengths]


def cut_operands(array: Array, unit: str) -> Array:
    """Round to 11 bits for tf32, else to the dtype ``unit``."""
    if unit == "tf32":
        mantissa, exponent = np.frexp(array.astype(np.float64))
        return np.ldexp(np.rint(mantissa * 2.0**11) / 2.0**11, exponent).astype(np.float32)
    return round_to(array.astype(np.float64), dtype(unit)).astype(np.float32)


def kernel(inputs: list[Array], unit: str, *, scale: float = 1.0, keys: int | None = None) -> Array:
    """Compute in float32 with the operands of both products cut_operands; the last keys may be omitted."""
    query, key, value = inputs[0], inputs[1][..., :keys, :], inputs[2][..., :keys, :]
    scores = (
        cut_operands(query, unit)
        @ cut_operands(key, unit).swapaxes(-1, -2)
        * np.float32(scale / np.sqrt(query.shape[-1]))
    )
    shifted = np.exp(scores - scores.max(-1, keepdims=True))
    total = shifted.sum(-1, keepdims=True)
    return np.asarray(cut_operands(shifted, unit) @ cut_operands(value, unit) / total)


def compare_attention(inputs: list[Array], actual: Array, operands: str) -> Any:
    (expected,) = scaled_dot_product_attention_reference(inputs, ATTRIBUTES)
    (terms,) = scaled_dot_product_attention_terms(inputs, ATTRIBUTES)
    how: dict[str, Any] = {"numerics": Numerics(operands=operands), "operands": ("float32",) * 3}
    return verdict_of(actual, expected, rule=COMPOSED, terms=terms, **how)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [0.1, 1.0, 3.0])
def test_who_declares_it_may_cut(shape: tuple[int, ...], size: float) -> None:
    for seed in range(4):
        inputs = drawn(shape, size, seed)
        for unit in ("tf32", "bfloat16"):
            verdict = compare_attention(inputs, kernel(inputs, unit), unit)
            assert verdict.status is Status.PASSED, (unit, seed, verdict.measures)
            assert compare_attention(inputs, kernel(inputs, "float32"), unit).status is Status.PASSED


@pytest.mark.parametrize("shape", SMALL)
def test_who_does_not_may_not(shape: tuple[int, ...]) -> None:
    inputs = drawn(shape, 1.0, 0)
    assert compare_attention(inputs, kernel(inputs, "tf32"), "float32").reason is Reason.VALUE
    assert compare_attention(inputs, kernel(inputs, "bfloat16"), "tf32").reason is Reason.VALUE


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_cutting_hides_no_other_fault(shape: tuple[int, ...]) -> None:
    inputs = drawn(shape, 1.0, 0)
    assert compare_attention(inputs, kernel(inputs, "tf32", scale=1.05), "tf32").reason is Reason.VALUE
    assert compare_attention(inputs, kernel(inputs, "tf32", keys=-1), "tf32").reason is Reason.VALUE


def test_the_rule_names_them() -> None:
    inputs = drawn(SHAPES[0], 1.0, 0)
    text = compare_attention(inputs, kernel(inputs, "tf32"), "tf32").measures[0].rule.text
    assert "(tf32 operands)" in text
    assert says(text, "compare.what_cutting_operands_to")
