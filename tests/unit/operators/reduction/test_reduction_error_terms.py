"""Error terms of reductions: correct float32 kernels pass their rules, sums in 16 bits fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from judged_arrays import measured, rounded, rows, share_of_limit
from judged_arrays import right as right_of_any

from optest.numerics import round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import ErrorBudget, dtype

Array = np.ndarray[Any, Any]
Kernel = Callable[[Array], Array]

f4 = np.float32
right = partial(right_of_any, dim=-1)
WIDTHS = (1, 2, 17, 257, 4096)
DTYPES = ("float32", "float16", "bfloat16")
FILLS = ("normal", "uniform", "offset", "constant", "few", "scaled rows")


def one_by_one(x: Array) -> Array:
    return np.asarray(np.add.accumulate(x, axis=-1, dtype=f4)[..., -1])


def pairwise(x: Array) -> Array:
    return np.asarray(x.sum(-1, dtype=f4))


def chunked(x: Array) -> Array:
    return np.asarray(sum((one_by_one(part) for part in np.array_split(x, 8, axis=-1) if part.shape[-1]), f4(0)))


def two_pass(x: Array, add: Kernel) -> Array:
    n = f4(x.shape[-1])
    centred = x - (add(x) / n)[..., None]
    return np.asarray(add(centred * centred) / (n - f4(1)))


def log_of_sum(x: Array, add: Kernel) -> Array:
    largest = x.max(-1, keepdims=True)
    return np.asarray(largest[..., 0] + np.log(add(np.exp(x - largest))))


def kernels(add: Kernel) -> dict[str, tuple[str, dict[str, Any], Kernel]]:
    """Return correct float32 kernels by label: operator, attributes and function."""
    return {
        "sum": ("sum", {}, add),
        "mean": ("mean", {}, lambda x: add(x) / f4(x.shape[-1])),
        "mean by reciprocal": ("mean", {}, lambda x: add(x) * f4(1 / x.shape[-1])),
        "var": ("var", {}, lambda x: two_pass(x, add)),
        "norm": ("norm", {}, lambda x: np.sqrt(add(x * x))),
        "norm 1": ("norm", {"p": 1.0}, lambda x: add(np.abs(x))),
        "norm 3": ("norm", {"p": 3.0}, lambda x: add(np.abs(x) ** f4(3)) ** f4(1 / 3)),
        "norm 0.5": ("norm", {"p": 0.5}, lambda x: add(np.sqrt(np.abs(x))) ** f4(2)),
        "norm inf": ("norm", {"p": float("inf")}, lambda x: np.abs(x).max(-1)),
        "logsumexp": ("logsumexp", {}, lambda x: log_of_sum(x, add)),
    }


@pytest.mark.parametrize("add", [one_by_one, pairwise, chunked])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("kind", FILLS)
def test_correct_kernels_pass(kind: str, name: str, add: Kernel) -> None:
    for width in WIDTHS:
        x = rows(kind, width, name)
        wide = widen(x).astype(f4)
        for label, (operator, attributes, kernel) in kernels(add).items():
            if label == "var" and width == 1:
                continue
            passed, measure = measured(operator, [x], kernel(wide), dim=-1, **attributes)
            assert passed, (label, width, measure)
            assert share_of_limit(measure) <= 0.81, (label, width, measure)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("width", [2, 17, 257, 4096])
def test_sequential_products_pass(width: int, name: str) -> None:
    for seed in range(5):
        x = rows("factors", width, name, seed)
        value = np.multiply.accumulate(widen(x).astype(f4), axis=-1, dtype=f4)[..., -1]
        passed, measure = measured("prod", [x], value, dim=-1)
        assert passed, measure


def test_products_of_one_repeated_factor_pass() -> None:
    for factor in (1.0 + 2.0**-23, 1.0 + 3 * 2.0**-22, 1.0 - 2.0**-24, 1.0 + 2.0**-18):
        x = np.full((16, 4096), factor, dtype=f4)
        value = np.multiply.accumulate(x, axis=-1, dtype=f4)[..., -1]
        assert measured("prod", [x], value, dim=-1)[0]


def in_16_bits(x: Array, name: str) -> Array:
    """Return the sum along the last axis, accumulated in 16 bits."""
    total = np.zeros(x.shape[:-1], x.dtype)
    for i in range(x.shape[-1]):
        total = round_to(widen(total) + widen(x[..., i]), dtype(name))
    return widen(total)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", ["mean", "norm"])
def test_sums_in_16_bits_fail(operator: str, name: str) -> None:
    x = rows("uniform", 257, name)
    if operator == "mean":
        value = in_16_bits(x, name) / 257.0
    else:
        value = np.sqrt(in_16_bits(round_to(widen(x) ** 2, dtype(name)), name))
    assert not measured(operator, [x], value, dim=-1)[0]


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, -1.0, float("inf"), float("-inf")])
def test_norms_of_zeros_have_a_bound(p: float) -> None:
    x = np.array([[0.0, -0.0, 0.0], [0.0, 1.0, 2.0]], dtype=f4)
    descriptor = operators.get("norm")
    (budget,) = load_object(str(descriptor.terms))([x], descriptor.bind({"p": p, "dim": 1}))
    assert isinstance(budget, ErrorBudget)
    assert np.isfinite(budget.worst).all()
    assert np.isfinite(budget.variance).all()
    assert measured("norm", [x], rounded(right("norm", x, p=p), "float32"), dim=-1, p=p)[0]
