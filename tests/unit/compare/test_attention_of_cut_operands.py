"""Attention on units that cut float32 operands: allowed if declared, in that precision only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparing import COMPOSED, verdict_of
from texts import says

from optest.numerics import round_to
from optest.operators.attention.attention_reference import (
    scaled_dot_product_attention_reference,
    scaled_dot_product_attention_terms,
)
from optest.spec import Numerics, Reason, Status, dtype

Array = np.ndarray[Any, Any]
ATTRIBUTES = {"scale": None, "is_causal": False, "enable_gqa": False, "dropout_p": 0.0}
SHAPES = [(2, 3, 17, 5, 8), (1, 1, 16, 64, 32), (1, 1, 1, 300, 64), (1, 4, 33, 257, 16), (1, 2, 64, 64, 64)]
SMALL = SHAPES[:2]


def drawn(shape: tuple[int, ...], size: float, seed: int) -> list[Array]:
    batch, heads, queries, keys, width = shape
    random = np.random.default_rng(seed)
    lengths = (queries, keys, keys)
    return [(size * random.standard_normal((batch, heads, each, width))).astype(np.float32) for each in lengths]


def cut(array: Array, unit: str) -> Array:
    """Round to 11 bits for tf32, else to the dtype ``unit``."""
    if unit == "tf32":
        mantissa, exponent = np.frexp(array.astype(np.float64))
        return np.ldexp(np.rint(mantissa * 2.0**11) / 2.0**11, exponent).astype(np.float32)
    return round_to(array.astype(np.float64), dtype(unit)).astype(np.float32)


def kernel(inputs: list[Array], unit: str, *, scale: float = 1.0, keys: int | None = None) -> Array:
    """Compute in float32 with the operands of both products cut; the last keys may be omitted."""
    query, key, value = inputs[0], inputs[1][..., :keys, :], inputs[2][..., :keys, :]
    scores = cut(query, unit) @ cut(key, unit).swapaxes(-1, -2) * np.float32(scale / np.sqrt(query.shape[-1]))
    shifted = np.exp(scores - scores.max(-1, keepdims=True))
    total = shifted.sum(-1, keepdims=True)
    return np.asarray(cut(shifted, unit) @ cut(value, unit) / total)


def compare_attention(inputs: list[Array], actual: Array, operands: str) -> Any:
    (expected,) = scaled_dot_product_attention_reference(inputs, ATTRIBUTES)
    (terms,) = scaled_dot_product_attention_terms(inputs, ATTRIBUTES)
    return verdict_of(
        actual,
        expected,
        rule=COMPOSED,
        terms=terms,
        numerics=Numerics(operands=operands),
        operands=("float32",) * 3,
    )


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
