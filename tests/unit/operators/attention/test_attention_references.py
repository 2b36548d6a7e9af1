"""References, inference and domains of attention and rope against torch and definitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from references import drawn, expected, inferred, spec, terms_of

from optest.numerics import widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import Interval

Array = np.ndarray[Any, Any]


def with_terms(operator: str, *inputs: Array | None, **attributes: Any) -> tuple[Array, Any]:
    return expected(operator, *inputs, **attributes), terms_of(operator, *inputs, **attributes)


def attention_of_torch(inputs: Sequence[Array | None], attributes: dict[str, Any]) -> Array:
    """Return torch's attention without the fused kernel, which replaces NaN by zeros."""
    torch = pytest.importorskip("torch")
    from torch.nn.attention import SDPBackend, sdpa_kernel

    tensors = [
        None if a is None else torch.from_numpy(a if a.dtype == np.bool_ else widen(a).astype(np.float64))
        for a in (*inputs, None)[:4]
    ]
    with sdpa_kernel(SDPBackend.MATH):
        query, key, value, mask = tensors
        output = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, **attributes)
    return np.asarray(output.numpy())


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["bool", "float32"])
def test_query_without_key_gives_zeros(kind: str) -> None:
    q, k, v = (drawn((1, 2, 4, 8), seed=seed) for seed in range(3))
    mask = np.ones((4, 4), bool)
    mask[1] = False
    attn_mask = mask if kind == "bool" else np.where(mask, np.float32(0), np.float32(-np.inf))
    output, budget = with_terms("sdpa", q, k, v, attn_mask)
    assert (output[:, :, 1] == 0).all()
    assert np.isfinite(budget.worst).all()
    np.testing.assert_allclose(output, attention_of_torch([q, k, v, attn_mask], {}), rtol=1e-12)


@pytest.mark.torch
@pytest.mark.parametrize("where", ["query", "key", "value"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_spread_as_in_torch(where: str, value: float) -> None:
    inputs = [drawn((1, 1, 4, 3), seed=seed) for seed in range(3)]
    inputs[("query", "key", "value").index(where)][0, 0, 2, 1] = value
    for attributes in ({}, {"is_causal": True}):
        output, budget = with_terms("sdpa", *inputs, **attributes)
        np.testing.assert_allclose(output, attention_of_torch(inputs, attributes), rtol=1e-12)
        finite = np.isfinite(output)
        assert np.isfinite(budget.worst[finite]).all()
        assert np.isfinite(budget.variance[finite]).all()


def test_attention_without_keys_gives_zeros() -> None:
    output, _ = with_terms("sdpa", drawn((1, 2, 3, 4)), drawn((1, 2, 0, 4)), drawn((1, 2, 0, 5)))
    assert output.shape == (1, 2, 3, 5)
    assert (output == 0).all()


def test_attention_infers_bool_masks() -> None:
    query = spec((2, 5, 8), "float16")
    assert inferred("sdpa", query, query, query, spec((5, 5), "bool")) == [("float16", (2, 5, 8))]


def rotation(x: Array, cos: Array, sin: Array, pairs: list[tuple[int, int]]) -> Array:
    """Return each pair, as a complex number, rotated by the angle of its column."""
    out = x.astype(np.float64)
    for column, (a, b) in enumerate(pairs):
        turned = (x[..., a] + 1j * x[..., b]) * (cos[..., column] + 1j * sin[..., column])
        out[..., a], out[..., b] = turned.real, turned.imag
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("size", [0, 2, 6, 8])
@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16"])
def test_rope_rotates_complex_numbers(interleaved: bool, size: int, name: str) -> None:
    half = (size or 8) // 2
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + half) for i in range(half)]
    x, cos, sin = drawn((2, 3, 5, 8), name), drawn((5, half), name, 1), drawn((5, half), name, 2)
    wide = [widen(a).astype(np.float64) for a in (x, cos, sin)]
    output, terms = with_terms("rope", x, cos, sin, interleaved=interleaved, rotary_embedding_dim=size)
    np.testing.assert_allclose(output, rotation(*wide, pairs), rtol=1e-13, atol=1e-14)
    assert (output[..., 2 * half :] == wide[0][..., 2 * half :]).all()
    assert (terms.absolute[..., 2 * half :] == 0).all()
    assert (terms.absolute[..., : 2 * half] >= np.abs(output[..., : 2 * half]) * (1 - 1e-12)).all()


def test_rope_positions_select_table_rows() -> None:
    x, cos, sin = drawn((2, 3, 5, 8)), drawn((33, 4), seed=1), drawn((33, 4), seed=2)
    positions = np.random.default_rng(0).integers(0, 33, (2, 5))
    output, _ = with_terms("rope", x, cos, sin, positions)
    for batch in range(2):
        rows = positions[batch]
        expected_output, _ = with_terms("rope", x[batch], cos[rows], sin[rows])
        assert np.array_equal(output[batch], expected_output)
    shared, _ = with_terms("rope", x, cos, sin, positions[0])
    assert np.array_equal(shared[0], output[0])
    by_rows, _ = with_terms("rope", x, cos[positions], sin[positions])
    assert np.array_equal(by_rows, output)


def test_rope_keeps_vector_lengths() -> None:
    angles = np.arange(5)[:, None] / 10000.0 ** (np.arange(4) / 4.0)
    x = drawn((2, 5, 8), "float64")
    output, _ = with_terms("rope", x, np.cos(angles), np.sin(angles))
    np.testing.assert_allclose(np.linalg.norm(output, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-14)
    assert np.array_equal(output[:, 0], x[:, 0])


def test_rope_domain_is_the_table_rows() -> None:
    descriptor = operators.get("rope")
    specs = [spec((2, 5, 8)), spec((33, 4)), spec((33, 4))]
    assert load_object(descriptor.domain)(specs, {}) == {"position_ids": Interval(low=0, high=32)}
