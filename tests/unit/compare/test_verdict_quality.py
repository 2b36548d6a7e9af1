"""A small part of benchmarks/verdict_quality.py: no false alarm, and the faults that values can show are rejected."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from optest.spec import Status

ALWAYS = {"zeros", "exp without shift", "eps × 10", "16-bit accumulation", "not moved"}
"""Faults that are rejected wherever they change the result."""

USUALLY = {"one element × 1.5", "two rows exchanged", "2 ulp of bias", "truncated", "a product dropped"}


@pytest.fixture(scope="module")
def quality() -> ModuleType:
    path = Path(__file__).parents[3] / "benchmarks" / "verdict_quality.py"
    spec = importlib.util.spec_from_file_location("verdict_quality", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "operator",
    [
        "add", "div", "exp", "gelu", "cast", "relu", "sum", "matmul", "gemm", "softmax", "layer_norm", "transpose",
    ],
)  # fmt: skip
def test_correct_implementations_pass_and_wrong_ones_do_not(quality: ModuleType, operator: str) -> None:
    asked: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for number in range(12):
        question = quality.draw(operator, np.random.default_rng((2026, number)))
        for name, actual in quality.correct(question):
            verdict = question.judge(actual)
            assert verdict.status is Status.PASSED, (number, name, verdict.message)
        for name, actual in quality.wrong(question):
            if np.array_equal(quality._comparable(actual), quality._comparable(question.rounded), equal_nan=True):
                continue
            asked[name] += 1
            missed[name] += question.judge(actual).status is Status.PASSED
    assert asked["zeros"] >= 8
    for name in asked:
        if name in ALWAYS:
            assert missed[name] == 0, name
        elif name in USUALLY:
            assert missed[name] <= 1 + asked[name] // 4, name


@pytest.mark.parametrize("fill", ["normal", "integer-exact"])
def test_dropped_product_is_found_with_suitable_inputs(quality: ModuleType, fill: str) -> None:
    """A fault below half an ulp of a positive sum shows with these inputs."""
    for name in ("float32", "float16", "bfloat16"):
        rng = np.random.default_rng(7)
        entry = quality.dtype(name)
        a, b = (quality.values(rng, fill, shape, entry, 4096) for shape in ((16, 4096), (4096, 16)))
        question = quality.make("matmul", [a, b], {}, entry, "dense", fill, rng)
        wrong = dict(quality.wrong(question))
        assert question.judge(wrong["a product dropped"]).status is Status.FAILED
        assert all(question.judge(actual).status is Status.PASSED for _, actual in quality.correct(question))
