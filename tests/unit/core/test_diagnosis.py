"""Diagnoses of wrong outputs: reported if they explain every element, and only then."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import core_kit
import ml_dtypes
import numpy as np
import pytest
from core_kit import Calls, Kernel, planned_case, raising
from texts import says, says_exactly

from optest.core import diagnosis
from optest.spec import CheckState, Numerics, Reason, Status, TestCase, Verdict

Diagnose = Callable[..., Verdict]
BFLOAT16 = ml_dtypes.bfloat16


class Device(Calls):
    reads_inputs = False
    numerics = Numerics(accumulator="float64")


@pytest.fixture
def verdict_of(tmp_path: Path) -> Diagnose:
    def judge(kernel: Kernel | Device, op: str, *shapes: Any, dtype: str = "float32", **entry: Any) -> Verdict:
        entry.setdefault("shapes", {f"input{index}": list(shape) for index, shape in enumerate(shapes)})
        driver = kernel if isinstance(kernel, Device) else Device(kernel)
        return core_kit.verdict_of(driver, planned_case(tmp_path, op, dtype, **entry))

    return judge


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


def by_rms(x: Any, eps: float) -> Any:
    return (x / np.sqrt((x.astype(float) ** 2).mean(1, keepdims=True) + eps)).astype(x.dtype)


def unbiased(x: Any) -> Any:
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    return (centred / np.sqrt(wide.var(1, keepdims=True, ddof=1) + 1e-5)).astype(x.dtype)


def within(low: float, high: float) -> dict[str, Any]:
    return {"fill": "uniform", "low": low, "high": high}


def row(
    words: str, op: str, shapes: list[Any], kernel: Kernel, dtype: Any = "float32", generator: Any = None, **more: Any
) -> Any:
    """Return a row for an operator with the attributes ``more``."""
    entry = {"dtype": dtype, "generator": generator, "attributes": more}
    return pytest.param(words, op, shapes, kernel, {key: value for key, value in entry.items() if value})


INDEXED = ["float32", "int64"]
ATTENTION = "scaled_dot_product_attention"


@pytest.mark.parametrize(
    ("words", "op", "shapes", "kernel", "entry"),
    [
        row("is 8", "mean", [(6, 8)], lambda x: np.sum(x, 1, dtype=np.float64).astype(x.dtype), dim=1),
        row("1/ln(2)", "log", [(64,)], lambda x: log(x, 2.0), generator=within(1.5, 9.0)),
        row("ratio is -1", "neg", [(64,)], lambda x: x),
        row("0.5625 = 9/16", "clone", [(64,)], lambda x: (x * 0.5625).astype(x.dtype)),
        row("difference is 1", "argmax", [(40, 30)], lambda x: np.argmax(x, 1) + 1, dim=1),
        row("dim were -1, its default, not 0", "softmax", [(4, 5)], lambda x: softmax(x, -1), dim=0),
        row("by ln 2", "softmax", [(2, 3, 5)], lambda x: softmax(x * math.log(2), -1)),
        row("ln 2", "softmax", [(2, 3, 5)], lambda x: softmax(x.astype(float) * math.log(2), -1).astype(x.dtype)),
        row("alpha were 1.0", "add", [(9,), (9,)], lambda x, y: x + y, alpha=3.0),
        row("alpha were 0.0", "add", [(5,), (5,)], lambda x, y: x + 0 * y),
        row("exchanged", "sub", [(9,), (9,)], lambda x, y: y - x),
        row("bias were ignored", "linear", [(3, 4), (5, 4), (5,)], lambda x, y, _: product(x, y.T)),
        row("other were transposed", "matmul", [(3, 4), (4, 5)], lambda x, y: product(x, y.reshape(5, 4).T)),
        row("ratio", "var", [(9, 6)], lambda x: np.var(x.astype(np.float64), 1).astype(x.dtype), dim=1),
        row("tanh not none", "gelu", [(65,)], gelu_by_tanh),
        row("tanh not none", "gelu", [(65,)], gelu_by_tanh, "float16"),
        row("tanh not none", "gelu", [(65,)], gelu_by_tanh, "bfloat16"),
        row("float16", "exp", [(64,)], lambda x: np.exp(x).astype(np.float16).astype(x.dtype)),
        row("bfloat16", "sqrt", [(64,)], lambda x: np.sqrt(x.astype(BFLOAT16).astype(x.dtype)), None, within(1.5, 9.0)),
        row("out were input, returned unchanged", "cumsum", [(5, 6)], lambda x: x, dim=1),
        row("the halves of gate were exchanged", "swiglu", [(5, 8)], lambda x: silu(x[:, 4:]) * x[:, :4]),
        row("the halves of gate were interleaved", "swiglu", [(5, 8)], lambda x: silu(x[:, ::2]) * x[:, 1::2]),
        row("indices were shifted by one (-1", "embedding", [(7, 5), (6,)], lambda x, i: x[(i - 1) % 7], INDEXED),
        row("weight were 6 elements apart, not 5", "embedding", [(7, 5), (6,)], lambda x, i: apart(x, 6)[i], INDEXED),
        row("the last 2 of 6 along dimension 0 of out were 0", "softmax", [(6, 5)], zeros_below, dim=1),
        row(
            "as if every 8 elements along dimension 1 started anew, without the elements before them",
            "cumsum",
            [(5, 15)],
            lambda x: np.concatenate([x[:, at : at + 8].cumsum(1, float) for at in (0, 8)], 1).astype(x.dtype),
            dim=1,
        ),
        row(
            "as if the maximum were not subtracted before exp in float32",
            "softmax",
            [(6, 8)],
            lambda x: np.exp(x) / np.exp(x).sum(0, keepdims=True),
            generator=within(80.0, 100.0),
            dim=0,
        ),
        row(
            "as if the maximum were not subtracted before exp in float32",
            "logsumexp",
            [(6, 8)],
            lambda x: np.log(np.exp(x).sum(dtype=x.dtype)).reshape(()),
            generator=within(-120.0, -110.0),
        ),
        row(
            "as if the index were that of the last of equal elements, not of the first",
            "argmax",
            [(40, 37)],
            lambda x: 36 - np.argmax(x[:, ::-1], 1),
            generator={"fill": "randint", "low": 0, "high": 4},
            dim=1,
        ),
        row(
            "as if integers were computed in 32 bits, which wrap",
            "sum",
            [(3, 9)],
            lambda x: np.sum(x.astype(np.int32), 1, np.int32).astype(np.int64),
            "int64",
            dim=[1],
        ),
        row(
            "as if the last 4 of 20 along dimension 1 of out were those 16 before",
            "matmul",
            [(4, 9), (9, 20)],
            lambda x, y: tiles_before(product(x, y)),
        ),
        row("last 3 of 35 along dimension", "matmul", [(4, 35), (35, 3)], lambda x, y: product(x[:, :32], y[:32])),
        row(
            "head h of query read head h % 2 of key and value, not h // 3",
            ATTENTION,
            [(1, 6, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8)],
            lambda q, k, v: attend(q, np.tile(k, (1, 3, 1, 1)), np.tile(v, (1, 3, 1, 1))),
            enable_gqa=True,
        ),
        row(
            "counted from the other end",
            ATTENTION,
            [(2, 3, 8), (2, 7, 8), (2, 7, 8)],
            lambda q, k, v: attend(q, k, v, np.tri(3, 7, 4) > 0),
            is_causal=True,
        ),
        row(
            "a query that sees no key were 0 / 0",
            ATTENTION,
            [(2, 6, 8), (2, 4, 8), (2, 4, 8)],
            lambda q, k, v: attend(q, k, v, np.eye(6, 4) > 0),
            window_size=[0, 0],
        ),
        row(
            "padding, which does not count, were zeros",
            "max_pool2d",
            [(1, 2, 8, 6)],
            lambda x: np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]).reshape(1, 2, 5, 2, 4, 2).max((3, 5)),
            generator=within(-9.0, -1.0),
            kernel_size=[2, 2],
            stride=[2, 2],
            padding=[1, 1],
        ),
        row(
            "the mean of squares minus the square of the mean",
            "var",
            [(40, 64)],
            lambda x: ((x * x).mean(1) - x.mean(1) ** 2) * np.float32(64 / 63),
            generator=within(300, 301),
            dim=1,
        ),
        row("the mean were not subtracted", "layer_norm", [(6, 8)], lambda x: by_rms(x, 1e-5), normalized_shape=[8]),
        row(
            "as if dimension 1 of 37 were padded with 0, not with -inf, to 64 or more",
            "softmax",
            [(4, 37)],
            lambda x: softmax(np.pad(x, ((0, 0), (0, 27))), 1)[:, :37],
            generator="randn",
            dim=1,
        ),
        row(
            "as if dimension 0 of input were padded with 0",
            "amax",
            [(4, 9)],
            lambda x: np.maximum(x.max(0), 0),
            dim=[0],
        ),
        row(
            "as if eps were 0.0009765625 not None",
            "rms_norm",
            [(6, 8)],
            lambda x: by_rms(x, 2.0**-10),
            generator={"fill": "randn", "std": 0.05},
            normalized_shape=[8],
        ),
        row(
            "as if the variance were divided by n - 1 not n",
            "layer_norm",
            [(6, 257)],
            unbiased,
            generator=within(84.0, 92.0),
            normalized_shape=[257],
        ),
        # the same as with ones or zeros in place of the mask
        row(
            "as if attn_mask were ignored",
            ATTENTION,
            [(2, 2, 9, 8), (2, 2, 17, 8), (2, 2, 17, 8), (9, 17)],
            lambda q, k, v, mask: attend(q, k, v),
        ),
    ],
)
def test_fitting_hypothesis_is_named(
    verdict_of: Diagnose, words: str, op: str, shapes: Any, kernel: Kernel, entry: dict[str, Any]
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


def one_element_off(out: Any) -> Any:
    out[3, 4] *= np.float16(1.004)
    return out


def noise_of(like: Any) -> Any:
    return np.random.default_rng(1).normal(size=like.shape).astype(like.dtype)


@pytest.mark.parametrize(
    ("op", "shapes", "kernel", "dtype"),
    [
        ("add", [(64,), (64,)], lambda x, y: x + y + np.linspace(-1, 1, x.size).astype(x.dtype), "float32"),
        ("add", [(64,), (64,)], lambda x, y: np.where(np.arange(x.size) == 3, 7, x + y).astype(x.dtype), "float32"),
        ("add", [(64,), (64,)], lambda x, y: x * y, "float32"),
        # few elements agree by chance
        ("add", [(2,), (2,)], lambda x, y: np.zeros((1, 2), x.dtype), "float32"),
        ("add", [(4,), (4,)], lambda x, y: x + 0 * y, "float32"),
        *(("clone", [(size,)], lambda x: x * 2, "float32") for size in (1, 2, 3)),
        # in float16 the budget of attention allows numbers unrelated to the result
        (ATTENTION, [(1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8)], lambda query, *_: noise_of(query), "float16"),
        ("matmul", [(9, 33), (33, 7)], lambda x, y: one_element_off(product(x, y)), "float16"),
    ],
)
def test_nothing_is_told_where_nothing_fits(
    verdict_of: Diagnose, op: str, shapes: Any, kernel: Kernel, dtype: str
) -> None:
    assert diagnosis_of(verdict_of(kernel, op, *shapes, dtype=dtype)) == ""


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
    monkeypatch.setattr(diagnosis, "describe_multiple", raising(RuntimeError("no")))
    verdict = verdict_of(lambda x: x, "neg", (64,))
    assert (verdict.status, verdict.reason) == (Status.FAILED, Reason.VALUE)
    assert [check.state for check in verdict.checks if check.name == "diagnosis"] == [CheckState.INCONCLUSIVE]


def test_a_pass_costs_nothing(verdict_of: Diagnose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "_diagnosis", lambda *_: pytest.fail("diagnosed"))
    device = Device(np.negative)
    assert verdict_of(device, "neg", (64,)).status is Status.PASSED
    assert len(device.shapes) == 1


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
    assert len(noise.shapes) == 21 + 1


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
