"""Diagnoses of wrong outputs: reported if they explain every element, and only then."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import yaml
from texts import says, says_exactly

from optest.api import cases
from optest.backends import BackendDriver
from optest.core import diagnosis
from optest.core.runner import execute
from optest.spec import CheckState, Numerics, Reason, Status, TestCase, Verdict

Kernel = Callable[..., Any]
Diagnose = Callable[..., Verdict]


class Device(BackendDriver):
    name, kind = "device", "cpu"
    reads_inputs = False
    numerics = Numerics(accumulator="float64")

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.calls = 0

    def run(self, case: TestCase, inputs: Any) -> Any:
        self.calls += 1
        with np.errstate(all="ignore"):
            return {case.descriptor.tensors.outputs[0]: self.kernel(*inputs)}


@pytest.fixture
def verdict_of(tmp_path: Path) -> Diagnose:
    def verdict_of(kernel: Kernel | Device, op: str, *shapes: Any, dtype: str = "float32", **entry: Any) -> Verdict:
        entry.setdefault("shapes", {f"input{place}": list(shape) for place, shape in enumerate(shapes)})
        plan = tmp_path / "plan.yaml"
        plan.write_text(yaml.safe_dump({"version": 1, "cases": [{"op": op, "dtypes": dtype, **entry}]}))
        (case,) = cases(plan=str(plan))
        return execute([case], kernel if isinstance(kernel, Device) else Device(kernel)).verdicts[0]

    return verdict_of


def diagnosis_of(verdict: Verdict) -> str:
    assert verdict.status is Status.FAILED
    return "; ".join(verdict.details.get("diagnosis", ()))


def softmax(x: Any, axis: int) -> Any:
    wide = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return (wide / wide.sum(axis, keepdims=True)).astype(x.dtype)


def log(x: Any, base: float) -> Any:
    return (np.log(x.astype(np.float64)) / np.log(base)).astype(x.dtype)


def gelu_by_tanh(x: Any) -> Any:
    wide = x.astype(np.float64)
    return (wide / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))).astype(x.dtype)


def product(x: Any, y: Any) -> Any:
    return (x.astype(np.float64) @ y.astype(np.float64)).astype(x.dtype)


def silu(x: Any) -> Any:
    return (x / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)


def apart(table: Any, elements: int) -> Any:
    """Return the rows of a matrix as if each began ``elements`` after the previous one."""
    places = np.arange(len(table))[:, None] * elements + np.arange(table.shape[1])
    return table.reshape(-1)[np.minimum(places, table.size - 1)]


def zeros_below(x: Any) -> Any:
    return np.where(np.arange(len(x))[:, None] < len(x) - 2, softmax(x, 1), 0).astype(x.dtype)


def tiles_before(x: Any) -> Any:
    return np.concatenate([x[:, :16], x[:, : x.shape[1] - 16]], 1)


def attend(query: Any, key: Any, value: Any, seen: Any = True) -> Any:
    scores = query.astype(np.float64) @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
    return (softmax(np.where(seen, scores, -np.inf), -1) @ value).astype(query.dtype)


def unbiased(x: Any) -> Any:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    return (centred / np.sqrt(wide.var(1, keepdims=True, ddof=1) + 1e-5)).astype(x.dtype)


NEGATIVE = {"generator": {"fill": "uniform", "low": -9.0, "high": -1.0}}
INDEXED = {"dtype": ["float32", "int64"]}
POSITIVE = {"generator": {"fill": "uniform", "low": 1.5, "high": 9.0}}


@pytest.mark.parametrize(
    ("kernel", "op", "shapes", "entry", "words"),
    [
        (
            lambda x: np.sum(x, 1, dtype=np.float64).astype(x.dtype),
            "mean",
            [(6, 8)],
            {"attributes": {"dim": 1}},
            "is 8",
        ),
        (lambda x: log(x, 2.0), "log", [(64,)], POSITIVE, "1/ln(2)"),
        (lambda x: x, "neg", [(64,)], {}, "ratio is -1"),
        (lambda x: (x * 0.5625).astype(x.dtype), "clone", [(64,)], {}, "0.5625 = 9/16"),
        (lambda x: np.argmax(x, 1) + 1, "argmax", [(40, 30)], {"attributes": {"dim": 1}}, "difference is 1"),
        (lambda x: softmax(x, -1), "softmax", [(4, 5)], {"attributes": {"dim": 0}}, "dim were -1, its default, not 0"),
        (lambda x: softmax(x * math.log(2), -1), "softmax", [(2, 3, 5)], {}, "by ln 2"),
        (lambda x: softmax(x.astype(np.float64) * math.log(2), -1).astype(x.dtype), "softmax", [(2, 3, 5)], {}, "ln 2"),
        (lambda x, y: x + y, "add", [(9,), (9,)], {"attributes": {"alpha": 3.0}}, "alpha were 1.0"),
        (lambda x, y: y - x, "sub", [(9,), (9,)], {}, "exchanged"),
        (lambda x, y, _: product(x, y.T), "linear", [(3, 4), (5, 4), (5,)], {}, "bias were ignored"),
        (lambda x, y: product(x, y.reshape(5, 4).T), "matmul", [(3, 4), (4, 5)], {}, "other were transposed"),
        (
            lambda x: np.var(x.astype(np.float64), 1).astype(x.dtype),
            "var",
            [(9, 6)],
            {"attributes": {"dim": 1}},
            "ratio",
        ),
        *(
            (gelu_by_tanh, "gelu", [(65,)], {"dtype": each}, "tanh not none")
            for each in ("float32", "float16", "bfloat16")
        ),
        (lambda x: np.exp(x).astype(np.float16).astype(x.dtype), "exp", [(64,)], {}, "float16"),
        (lambda x: np.sqrt(x.astype(ml_dtypes.bfloat16).astype(x.dtype)), "sqrt", [(64,)], POSITIVE, "bfloat16"),
        (lambda x: x, "cumsum", [(5, 6)], {"attributes": {"dim": 1}}, "out were input, returned unchanged"),
        (lambda x: silu(x[:, 4:]) * x[:, :4], "swiglu", [(5, 8)], {}, "the halves of gate were exchanged"),
        (lambda x: silu(x[:, ::2]) * x[:, 1::2], "swiglu", [(5, 8)], {}, "the halves of gate were interleaved"),
        (lambda x, i: x[(i - 1) % 7], "embedding", [(7, 5), (6,)], INDEXED, "indices were shifted by one (-1"),
        (lambda x, i: apart(x, 6)[i], "embedding", [(7, 5), (6,)], INDEXED, "weight were 6 elements apart, not 5"),
        (
            zeros_below,
            "softmax",
            [(6, 5)],
            {"attributes": {"dim": 1}},
            "the last 2 of 6 along dimension 0 of out were 0",
        ),
        (
            lambda x: np.concatenate([x[:, at : at + 8].cumsum(1, float) for at in (0, 8)], 1).astype(x.dtype),
            "cumsum",
            [(5, 15)],
            {"attributes": {"dim": 1}},
            "as if every 8 elements along dimension 1 started anew, without the elements before them",
        ),
        (
            lambda x: np.exp(x) / np.exp(x).sum(0, keepdims=True),
            "softmax",
            [(6, 8)],
            {"attributes": {"dim": 0}, "generator": {"fill": "uniform", "low": 80.0, "high": 100.0}},
            "as if the maximum were not subtracted before exp in float32",
        ),
        (
            lambda x: np.log(np.exp(x).sum(dtype=x.dtype)).reshape(()),
            "logsumexp",
            [(6, 8)],
            {"generator": {"fill": "uniform", "low": -120.0, "high": -110.0}},
            "as if the maximum were not subtracted before exp in float32",
        ),
        (
            lambda x: 36 - np.argmax(x[:, ::-1], 1),
            "argmax",
            [(40, 37)],
            {"attributes": {"dim": 1}, "generator": {"fill": "randint", "low": 0, "high": 4}},
            "as if the index were that of the last of equal elements, not of the first",
        ),
        (
            lambda x: np.sum(x.astype(np.int32), 1, np.int32).astype(np.int64),
            "sum",
            [(3, 9)],
            {"attributes": {"dim": [1]}, "dtype": "int64"},
            "as if integers were computed in 32 bits, which wrap",
        ),
        (
            lambda x, y: tiles_before(product(x, y)),
            "matmul",
            [(4, 9), (9, 20)],
            {},
            "as if the last 4 of 20 along dimension 1 of out were those 16 before",
        ),
        (lambda x, y: product(x[:, :32], y[:32]), "matmul", [(4, 35), (35, 3)], {}, "the last 3 of 35 along dimension"),
        (
            lambda q, k, v: attend(q, np.tile(k, (1, 3, 1, 1)), np.tile(v, (1, 3, 1, 1))),
            "scaled_dot_product_attention",
            [(1, 6, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8)],
            {"attributes": {"enable_gqa": True}},
            "head h of query read head h % 2 of key and value, not h // 3",
        ),
        (
            lambda q, k, v: attend(q, k, v, np.tri(3, 7, 4) > 0),
            "scaled_dot_product_attention",
            [(2, 3, 8), (2, 7, 8), (2, 7, 8)],
            {"attributes": {"is_causal": True}},
            "counted from the other end",
        ),
        (
            lambda q, k, v: attend(q, k, v, np.eye(6, 4) > 0),
            "scaled_dot_product_attention",
            [(2, 6, 8), (2, 4, 8), (2, 4, 8)],
            {"attributes": {"window_size": [0, 0]}},
            "a query that sees no key were 0 / 0",
        ),
        (
            lambda x: np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]).reshape(1, 2, 5, 2, 4, 2).max((3, 5)),
            "max_pool2d",
            [(1, 2, 8, 6)],
            {"attributes": {"kernel_size": [2, 2], "stride": [2, 2], "padding": [1, 1]}, **NEGATIVE},
            "padding, which does not count, were zeros",
        ),
        (
            lambda x: ((x * x).mean(1) - x.mean(1) ** 2) * np.float32(64 / 63),
            "var",
            [(40, 64)],
            {"attributes": {"dim": 1}, "generator": {"fill": "uniform", "low": 300, "high": 301}},
            "the mean of squares minus the square of the mean",
        ),
        (
            lambda x: (x / np.sqrt((x.astype(float) ** 2).mean(1, keepdims=True) + 1e-5)).astype(x.dtype),
            "layer_norm",
            [(6, 8)],
            {"attributes": {"normalized_shape": [8]}},
            "the mean were not subtracted",
        ),
        (
            lambda x: softmax(np.pad(x, ((0, 0), (0, 27))), 1)[:, :37],
            "softmax",
            [(4, 37)],
            {"attributes": {"dim": 1}, "generator": "randn"},
            "as if dimension 1 of 37 were padded with 0, not with -inf, to 64 or more",
        ),
        (
            lambda x: np.maximum(x.max(0), 0),
            "amax",
            [(4, 9)],
            {"attributes": {"dim": [0]}},
            "as if dimension 0 of input were padded with 0",
        ),
        (
            lambda x: (x / np.sqrt((x.astype(float) ** 2).mean(1, keepdims=True) + 2.0**-10)).astype(x.dtype),
            "rms_norm",
            [(6, 8)],
            {"attributes": {"normalized_shape": [8]}, "generator": {"fill": "randn", "std": 0.05}},
            "as if eps were 0.0009765625 not None",
        ),
        (
            unbiased,
            "layer_norm",
            [(6, 257)],
            {
                "attributes": {"normalized_shape": [257]},
                "generator": {"fill": "uniform", "low": 84.0, "high": 92.0},
            },
            "as if the variance were divided by n - 1 not n",
        ),
        (
            lambda q, k, v, mask: attend(q, k, v),  # the same as with ones or zeros in its place
            "scaled_dot_product_attention",
            [(2, 2, 9, 8), (2, 2, 17, 8), (2, 2, 17, 8), (9, 17)],
            {},
            "as if attn_mask were ignored",
        ),
    ],
)
def test_fitting_hypothesis_is_named(
    verdict_of: Diagnose, kernel: Kernel, op: str, shapes: Any, entry: dict[str, Any], words: str
) -> None:
    sentence = diagnosis_of(verdict_of(kernel, op, *shapes, **entry))
    assert words in sentence
    assert sentence == words or not words.startswith("as if"), "and nothing else"


def test_input_ignored_in_one_of_two_outputs(verdict_of: Diagnose) -> None:
    class OfTwo(Device):
        def run(self, case: TestCase, inputs: Any) -> Any:
            x, y, weight = inputs
            wide = x.astype(np.float64)
            normal = wide / np.sqrt(np.square(wide).mean(1, keepdims=True) + 1e-5) * weight
            return {"out": normal.astype(x.dtype), "residual": x + y}

    entry = {"attributes": {"normalized_shape": [8], "eps": 1e-5}}
    verdict = verdict_of(OfTwo(lambda: None), "add_rms_norm", (6, 8), (6, 8), (8,), **entry)
    assert says_exactly(diagnosis_of(verdict), "core.as_if_other_were")


def test_strides_that_are_ignored(verdict_of: Diagnose) -> None:
    kernel: Kernel = lambda x: np.negative(np.ascontiguousarray(x.T).reshape(x.shape))  # noqa: E731
    verdict = verdict_of(kernel, "neg", shapes={"input0": {"shape": [4, 6], "strides": [1, 4]}})
    assert says(diagnosis_of(verdict), "core.strides_of_input_were")


def test_ignored_keepdim_is_only_a_wrong_shape(verdict_of: Diagnose) -> None:
    verdict = verdict_of(lambda x: x.max(1), "amax", (4, 6), attributes={"dim": 1, "keepdim": True})
    assert verdict.reason is Reason.SHAPE
    assert "values are right" in diagnosis_of(verdict)


def test_diagnosis_accepts_outputs_of_another_shape(verdict_of: Diagnose) -> None:
    verdict = verdict_of(lambda x: x.sum(1)[:-1], "sum", (9, 4), attributes={"dim": [1]})
    assert verdict.reason is Reason.SHAPE
    assert not [check for check in verdict.checks if "raised" in check.detail]


def test_diagnosis_accepts_inputs_without_elements(verdict_of: Diagnose) -> None:
    wrong = verdict_of(lambda a, b, c: c, "gemm", (3, 0), (0, 5), (3, 5), attributes={"beta": -1.5})
    assert "(1/beta)" in diagnosis_of(wrong)
    assert not [check for check in wrong.checks if "raised" in check.detail]


def test_varying_result_is_diagnosed(verdict_of: Diagnose) -> None:
    noise = np.random.default_rng(7)
    kernel: Kernel = lambda x, y: x + y + noise.normal(size=x.shape).astype(x.dtype)  # noqa: E731
    assert "another result" in diagnosis_of(verdict_of(kernel, "add", (64,), (64,)))


@pytest.mark.parametrize(
    "kernel",
    [
        lambda x, y: x + y + np.linspace(-1, 1, x.size).astype(x.dtype),
        lambda x, y: np.where(np.arange(x.size) == 3, 7, x + y).astype(x.dtype),
        lambda x, y: x * y,
    ],
)
def test_nothing_is_told_where_nothing_fits(verdict_of: Diagnose, kernel: Kernel) -> None:
    assert diagnosis_of(verdict_of(kernel, "add", (64,), (64,))) == ""


def test_larger_errors_are_no_narrow_arithmetic(verdict_of: Diagnose) -> None:
    """Attention in float16 has a budget that allows numbers unrelated to the result."""
    shapes = [(1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8)]
    noise: Kernel = lambda query, *_: np.random.default_rng(1).normal(size=query.shape).astype(query.dtype)  # noqa: E731
    assert diagnosis_of(verdict_of(noise, "scaled_dot_product_attention", *shapes, dtype="float16")) == ""


def product_in(dtype: Any) -> Kernel:
    """Return a kernel for a matrix product of which every step is rounded."""

    def kernel(x: Any, y: Any) -> Any:
        total = np.zeros((len(x), y.shape[1]), dtype)
        for place in range(x.shape[1]):
            total = (total + (x[:, place, None].astype(dtype) * y[place].astype(dtype)).astype(dtype)).astype(dtype)
        return total.astype(x.dtype)

    return kernel


@pytest.mark.parametrize(("dtype", "words"), [("float16", "accumulated in float16"), ("bfloat16", "in bfloat16")])
def test_sums_of_a_narrow_dtype(verdict_of: Diagnose, dtype: str, words: str) -> None:
    narrow = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    assert words in diagnosis_of(verdict_of(product_in(narrow), "matmul", (9, 7), (7, 9), dtype=dtype))


def test_single_element_is_no_narrow_sum(verdict_of: Diagnose) -> None:
    def kernel(x: Any, y: Any) -> Any:
        total = product(x, y)
        total[3, 4] *= np.float16(1.004)
        return total

    assert diagnosis_of(verdict_of(kernel, "matmul", (9, 33), (33, 7), dtype="float16")) == ""


def test_wrong_shape_of_few_elements_is_not_explained(verdict_of: Diagnose) -> None:
    kernel: Kernel = lambda x, y: np.zeros((1, 2), x.dtype)  # noqa: E731
    assert diagnosis_of(verdict_of(kernel, "add", (2,), (2,))) == ""


def test_another_call_needs_more_than_four_elements(verdict_of: Diagnose) -> None:
    assert diagnosis_of(verdict_of(lambda x, y: x + 0 * y, "add", (4,), (4,))) == ""
    assert "alpha were 0.0" in diagnosis_of(verdict_of(lambda x, y: x + 0 * y, "add", (5,), (5,)))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_few_elements_agree_by_chance(verdict_of: Diagnose, size: int) -> None:
    assert diagnosis_of(verdict_of(lambda x: x * 2, "clone", (size,))) == ""


def test_what_underflows_is_not_cut_to_whole_numbers(verdict_of: Diagnose) -> None:
    def padded_with_0(x: Any) -> Any:
        powers = np.exp(x)
        return (powers / (powers.sum(1, keepdims=True) + 15)).astype(x.dtype)

    far_below = {"generator": "uniform(low=-110.0, high=-95.0)", "attributes": {"dim": 1}}
    assert "whole numbers" not in diagnosis_of(verdict_of(padded_with_0, "softmax", (4, 65), **far_below))
    assert says(diagnosis_of(verdict_of(np.trunc, "clone", (64,))), "core.cut_to_whole_numbers")


def test_another_number_in_a_formula_is_no_rounding(verdict_of: Diagnose) -> None:
    """Relative errors of 1e-5, but all to one side."""
    kernel: Kernel = lambda x: np.exp(x + np.float32(1e-5) * np.abs(x))  # noqa: E731
    assert "approximate" not in diagnosis_of(verdict_of(kernel, "exp", (64,)))


def test_failed_diagnosis_is_a_check(verdict_of: Diagnose, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(diagnosis, "describe_multiple", broken)
    verdict = verdict_of(lambda x: x, "neg", (64,))
    assert (verdict.status, verdict.reason) == (Status.FAILED, Reason.VALUE)
    assert [check.state for check in verdict.checks if check.name == "diagnosis"] == [CheckState.INCONCLUSIVE]


def test_a_pass_costs_nothing(verdict_of: Diagnose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "_diagnosis", lambda *_: pytest.fail("diagnosed"))
    device = Device(np.negative)
    assert verdict_of(device, "neg", (64,)).status is Status.PASSED
    assert device.calls == 1


def test_searches_of_one_operator_end(verdict_of: Diagnose, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    right = diagnosis.expected_of_other_inputs
    monkeypatch.setattr(diagnosis, "expected_of_other_inputs", lambda *given: asked.append(1) or right(*given))
    noise = Device(lambda x, y: x + y + np.linspace(-1, 1, x.size).astype(x.dtype))
    for seed in range(20):
        verdict_of(noise, "add", (64,), (64,), seed=seed)
    first = len(asked)
    verdict_of(noise, "add", (64,), (64,), seed=99)
    assert first == len(asked) > 0
    assert noise.calls == 21 + 1


def test_call_without_better_fit_is_not_named(verdict_of: Diagnose) -> None:
    """Without c beta changes nothing; eps 0 is as far off as the default where another eps was used."""
    half = verdict_of(lambda a, b: product(a, b).astype("f2"), "gemm", (5, 65), (65, 3))
    assert "beta" not in diagnosis_of(half)

    def normalised(x: Any, weight: Any) -> Any:
        wide = x.astype(np.float64)
        return (wide / np.sqrt(np.mean(wide * wide, -1, keepdims=True) + 2.7e-6) * weight).astype(x.dtype)

    other = verdict_of(normalised, "rms_norm", (3, 16), (16,), attributes={"normalized_shape": [16]})
    assert "eps" not in "; ".join(other.details.get("diagnosis", ()))


def test_cancellation_is_no_narrower_dtype(verdict_of: Diagnose) -> None:
    """E[x²] - m² in float32: multiples of an ulp of 90,000, which float16 holds, but nothing was rounded to it."""

    def variance(x: Any) -> Any:
        return (np.mean(x * x, 1, dtype=x.dtype) - np.mean(x, 1, dtype=x.dtype) ** 2).astype(x.dtype)

    far = {"generator": {"fill": "randn", "mean": -300.0, "std": 2.0}, "attributes": {"dim": [1], "correction": 0.0}}
    assert "float16" not in diagnosis_of(verdict_of(variance, "var", (16, 1024), **far))
