"""Random calls of twelve operators: dtypes, sizes, attributes, values and memory layouts are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from width_calls import cases_of

from optest.memory.stride_patterns import overlapping_patterns, patterns
from optest.operators import operators
from optest.operators.calls import ROWS_OF_EVERY_SIGN, call, full, normal, uniform, with_strides
from optest.spec import BackendTarget, Sample, TestCase

__all__ = ["DRAWN", "drawn_case"]

Call = dict[str, Any]
Random = np.random.Generator

# 16 bits twice: rounding has the most effect there.
_DTYPES = ("float32", "float32", "float16", "float16", "bfloat16", "bfloat16", "float64")
_FILLS: dict[str, Callable[[Random], Any]] = {
    "normal": lambda _: normal(0.0, 1.0),
    "positive": lambda _: uniform(0.0, 1.0),
    "constant": lambda rng: full(float(rng.choice([0.1, 1.0 / 3.0, -0.7, 1.0]))),
    "near-constant": lambda _: normal(1.003, 1e-4),
    "scaled": lambda rng: normal(0.0, 2.0 ** int(rng.integers(-6, 6))),
    "signs": lambda _: ROWS_OF_EVERY_SIGN,
    "one-hot": lambda _: "eye",
    "integer-exact": lambda _: "integer-exact",
}


def drawn_case(operator: str, rng: Random, target: BackendTarget) -> TestCase:
    """Draw a case of an operator of :data:`DRAWN`."""
    fill = str(rng.choice(list(_FILLS)))
    drawn = DRAWN[operator](rng, fill)
    fills = {name: _FILLS[fill](rng) for name in drawn["shapes"]}
    shapes = {name: _layout(shape, rng, may_overlap=fill != "one-hot") for name, shape in drawn["shapes"].items()}
    sample = {
        **drawn,
        "shapes": shapes,
        "dtypes": [str(rng.choice(_DTYPES))],
        "generator": {**fills, **drawn.get("generator", {})},
        "seed": int(rng.integers(2**31)),
    }
    (case,) = cases_of(operators.get(operator), [Sample(case_set="drawn", case=sample)], target)
    return case


def _layout(shape: list[int], rng: Random, *, may_overlap: bool) -> Any:
    """Return a shape as it is in half of the draws, else with strides and an offset."""
    if rng.random() < 0.5:
        return shape
    choices = [*patterns(shape), *(overlapping_patterns(shape) if may_overlap else ())]
    pattern = choices[rng.integers(len(choices))]
    return with_strides(shape, pattern.strides, offset=pattern.offset)


def _size(rng: Random, low: int, high: int) -> int:
    """Draw a size whose logarithm is evenly distributed."""
    return round(2.0 ** rng.uniform(np.log2(low), np.log2(high)))


def _vectors(rng: Random, *names: str) -> Call:
    shape = (_size(rng, 2, 64), _size(rng, 2, 64))
    return call(**dict.fromkeys(names, shape))


def _quotient(rng: Random, _: str) -> Call:
    return {**_vectors(rng, "input", "other"), "generator": {"other": uniform(0.25, 4.0)}}


def _gelu(rng: Random, _: str) -> Call:
    return {**_vectors(rng, "input"), "attributes": {"approximate": str(rng.choice(["none", "tanh"]))}}


def _cast(rng: Random, _: str) -> Call:
    return {**_vectors(rng, "input"), "attributes": {"dtype": str(rng.choice(["float16", "bfloat16", "float32"]))}}


def _transpose(rng: Random, _: str) -> Call:
    return {**_vectors(rng, "input"), "attributes": {"dim0": 0, "dim1": 1}}


def _sum(rng: Random, _: str) -> Call:
    depth = _size(rng, 2, 65_536 if rng.random() < 0.3 else 2048)
    return call({"dim": -1}, input=(max(4, min(256, 262_144 // depth)), depth))


def _contraction(rng: Random) -> tuple[int, int, int]:
    """Draw rows, depth and columns: few rows and columns of great depth, so that the work stays small."""
    depth = _size(rng, 2, 65_536 if rng.random() < 0.3 else 1024)
    side = 32 if depth <= 1024 else 12 if depth <= 8192 else 6
    return _size(rng, 4, side), depth, side


def _matmul(rng: Random, _: str) -> Call:
    rows, depth, columns = _contraction(rng)
    return call(input=(rows, depth), other=(depth, columns))


def _gemm(rng: Random, fill: str) -> Call:
    rows, depth, columns = _contraction(rng)
    is_exact = fill == "integer-exact"
    attributes = {
        "alpha": float(rng.choice([1.0, 2.0] if is_exact else [1.0, 2.0, 0.3])),
        "beta": 1.0 if is_exact else float(rng.choice([1.0, 0.5])),
        "trans_a": bool(rng.random() < 0.3),
        "trans_b": bool(rng.random() < 0.3),
    }
    a = (depth, rows) if attributes["trans_a"] else (rows, depth)
    b = (columns, depth) if attributes["trans_b"] else (depth, columns)
    c = {"c": (rows, columns)} if rng.random() < 0.6 else {}
    return call(attributes, a=a, b=b, **c)


def _softmax(rng: Random, fill: str) -> Call:
    drawn = call({"dim": -1}, input=(_size(rng, 4, 32), _size(rng, 2, 4096)))
    if fill in ("normal", "positive") and rng.random() < 0.5:
        drawn["generator"] = {"input": uniform(84.0, 92.0)}  # exp without the shift overflows
    return drawn


def _layer_norm(rng: Random, fill: str) -> Call:
    rows, width = _size(rng, 4, 32), _size(rng, 8, 4096)
    affine = {"weight": (width,), "bias": (width,)} if rng.random() < 0.5 else {}
    fills = dict.fromkeys(affine, normal(0.0, 1.0))
    if fill in ("normal", "positive") and rng.random() < 0.5:
        fills["input"] = normal(0.0, 1e-3)  # eps matters
    return {**call({"normalized_shape": [width]}, input=(rows, width), **affine), "generator": fills}


DRAWN: dict[str, Callable[[Random, str], Call]] = {
    "add": lambda rng, _: _vectors(rng, "input", "other"),
    "div": _quotient,
    "exp": lambda rng, _: _vectors(rng, "input"),
    "gelu": _gelu,
    "cast": _cast,
    "relu": lambda rng, _: _vectors(rng, "input"),
    "sum": _sum,
    "matmul": _matmul,
    "gemm": _gemm,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "transpose": _transpose,
}
"""Calls without dtypes and layouts, by operator, for a random generator and the name of a fill."""
