"""References of popular kernels against other definitions: autograd, torch's optimizer, explicit sums, packing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from references import by_torch, expected_all
from sample_questions import widened_as_kernels_do, wrong_answers

from optest.numerics import numpy_dtype
from optest.operators.quantization.fp8_reference import per_token_group_quant_fp8_alternatives
from optest.spec import dtype

torch = pytest.importorskip("torch")
Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(5)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


def as_torch(name: str, *inputs: Array | None, **attributes: Any) -> None:
    for ours, theirs in zip(
        expected_all(name, *inputs, **attributes), by_torch(name, *inputs, **attributes), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("eps", [1e-5, 0.5])
@pytest.mark.parametrize("name", ["rms_norm_backward", "layer_norm_backward"])
def test_norm_gradients_equal_autograd(name: str, eps: float) -> None:
    grad, x, weight = normal(3, 4, 5), normal(3, 4, 5) + 2.0, normal(4, 5)
    as_torch(name, grad, x, weight, normalized_shape=[4, 5], eps=eps)
    as_torch(name, grad, x, normalized_shape=[5], eps=eps)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_cross_entropy_and_gradient_equal_torch(reduction: str, smoothing: float, is_weighted: bool) -> None:
    logits, weight = normal(6, 5, 2), RANDOM.uniform(0.5, 2.0, 5) if is_weighted else None
    target = RANDOM.integers(0, 5, (6, 2))
    options = {"reduction": reduction, "label_smoothing": smoothing, "ignore_index": 3}
    as_torch("cross_entropy", logits, target, weight, **options)
    grad = normal(6, 2) if reduction == "none" else normal()
    as_torch("cross_entropy_backward", np.asarray(grad), logits, target, weight, **options)


@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_adamw_equals_torch_optimizer(decay: float) -> None:
    param, mean, square = normal(3, 4), np.zeros((3, 4)), np.zeros((3, 4))
    weight = torch.nn.Parameter(torch.from_numpy(param.copy()))
    optimizer = torch.optim.AdamW([weight], lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=decay, foreach=False)
    options = {"lr": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": decay}
    for step in range(1, 5):
        grad = normal(3, 4)
        param, mean, square = expected_all("adamw", param, grad, mean, square, step=step, **options)
        weight.grad = torch.from_numpy(grad)
        optimizer.step()
        np.testing.assert_allclose(param, weight.detach().numpy(), rtol=1e-12)


def stepped(inputs: Any, attributes: Any, variant: str) -> tuple[Any, ...]:
    """Compute a step of AdamW in float32 by a formula of fused kernels."""
    param, grad, mean, square = map(widened_as_kernels_do, inputs)
    number = np.result_type(param, mean).type
    names = ("lr", "beta1", "beta2", "eps", "weight_decay")
    lr, first, second, eps, decay = (number(attributes[each]) for each in names)
    left = [number(1 - attributes[each] ** attributes["step"]) for each in ("beta1", "beta2")]
    grad = (-grad if attributes["maximize"] else grad).astype(number)
    mean = mean + (grad - mean) * (1 - first) if variant == "lerp" else first * mean + (1 - first) * grad
    square = second * square + (1 - second) * grad * grad
    if variant == "apex":
        return param - lr * ((mean / left[0]) / (np.sqrt(square / left[1]) + eps) + decay * param), mean, square
    root = np.sqrt(left[1])
    return param * (1 - lr * decay) - lr * root / left[0] * (mean / (np.sqrt(square) + eps * root)), mean, square


@pytest.mark.parametrize("variant", ["apex", "lerp"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.heavy)])
def test_adamw_accepts_equivalent_formulas(variant: str, seed: int) -> None:
    assert wrong_answers("adamw", lambda *call: stepped(*call, variant), seed) == []


@pytest.mark.parametrize("activation", [None, "silu"])
def test_causal_convolution_equals_explicit_sum(activation: str | None) -> None:
    x, weight, bias, state = normal(2, 3, 9), normal(3, 4), normal(3), normal(2, 3, 3)
    sequence = np.concatenate([state, x], -1)
    rows = np.stack([(sequence[..., t : t + 4] * weight).sum(-1) + bias for t in range(9)], -1)
    right = rows / (1 + np.exp(-rows)) if activation else rows
    options = {"activation": activation}
    out, last = expected_all("causal_conv1d", x, weight, bias, state, return_final_states=True, **options)
    np.testing.assert_allclose(out, right, rtol=1e-12)
    np.testing.assert_array_equal(last, sequence[..., -3:])
    token, moved = expected_all("causal_conv1d_update", x[..., 0], state, weight, bias, **options)
    np.testing.assert_allclose(token, right[..., 0], rtol=1e-12)
    np.testing.assert_array_equal(moved, sequence[..., 1:4])


def test_selective_scan_equals_explicit_sum() -> None:
    u, delta, z = normal(2, 4, 7), RANDOM.uniform(0.1, 1.0, (2, 4, 7)), normal(2, 4, 7)
    a, b, c, d = -RANDOM.uniform(0.1, 2.0, (4, 3)), normal(2, 2, 3, 7), normal(2, 3, 7), normal(4)
    sequence = np.repeat(b, 2, 1)
    elapsed = delta.cumsum(-1)
    decay = np.exp(a[:, :, None, None] * (elapsed[:, :, None, :, None] - elapsed[:, :, None, None, :]))
    terms = decay * (delta * u)[:, :, None, None, :] * sequence[:, :, :, None, :] * np.tri(7)
    right = (terms.sum(-1) * c[:, None]).sum(2) + u * d[:, None]
    out, last = expected_all("selective_scan", u, delta, a, b, c, d, z, return_last_state=True)
    np.testing.assert_allclose(out, right * z / (1 + np.exp(-z)), rtol=1e-11)
    np.testing.assert_allclose(last, terms.sum(-1)[..., -1], rtol=1e-11)
    bias = normal(4)
    (soft,) = expected_all("selective_scan", u, delta, a, b, c, None, None, bias, delta_softplus=True)
    steps = np.logaddexp(0, delta + bias[:, None])
    (same,) = expected_all("selective_scan", u, steps, a, b, c)
    np.testing.assert_allclose(soft, same, rtol=1e-12)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_embedding_bag_equals_torch(mode: str, padding: int | None) -> None:
    weight, indices = normal(5, 3), RANDOM.integers(0, 5, 9)
    as_torch("embedding_bag", weight, indices, np.array([0, 4, 4, 6]), mode=mode, padding_idx=padding)
    ends = np.array([0, 4, 9])
    as_torch("embedding_bag", weight, indices, ends, mode=mode, padding_idx=padding, include_last_offset=True)
    as_torch("embedding_bag", weight, indices.reshape(3, 3), mode=mode, padding_idx=padding)


def packed(values: Array, places: Any) -> Array:
    """Pack eight columns of four bits into an int32, column i into nibble ``places[i]``."""
    groups = values.reshape(len(values), -1, 8).astype(np.uint32) << (4 * np.asarray(places, np.uint32))
    return np.bitwise_or.reduce(groups, -1).view(np.int32)


WEIGHTS, ZEROS = RANDOM.integers(0, 16, (24, 16)), RANDOM.integers(1, 16, (3, 16))
SCALES = RANDOM.uniform(0.01, 1.0, (3, 16)).astype(np.float32)
DEQUANTIZED = (WEIGHTS - np.repeat(ZEROS, 8, 0)) * np.repeat(SCALES, 8, 0).astype(np.float64)


def test_gptq_unpacks_packed_weights() -> None:
    # Checkpoints of the first format store zero points minus one.
    weight = packed(WEIGHTS.T, range(8)).T.copy()
    (out,) = expected_all("dequantize_gptq", weight, packed(ZEROS - 1, range(8)), SCALES)
    np.testing.assert_array_equal(out, DEQUANTIZED)
    second = packed(ZEROS, range(8))
    (out,) = expected_all("dequantize_gptq", weight, second, SCALES, use_v2_format=True)
    np.testing.assert_array_equal(out, DEQUANTIZED)
    order = RANDOM.permutation(np.repeat(np.arange(3, dtype=np.int32), 8))
    (out,) = expected_all("dequantize_gptq", weight, second, SCALES, order, use_v2_format=True)
    np.testing.assert_array_equal(out, (WEIGHTS - ZEROS[order]) * SCALES[order].astype(np.float64))
    x = normal(2, 24).astype(np.float32)
    (product,) = expected_all("gptq_gemm", x, weight, second, SCALES, use_v2_format=True)
    np.testing.assert_allclose(product, x.astype(np.float64) @ DEQUANTIZED, rtol=1e-12)


def test_awq_multiplies_packed_weights() -> None:
    places = [0, 4, 1, 5, 2, 6, 3, 7]
    x = normal(2, 24).astype(np.float32)
    (product,) = expected_all("awq_gemm", x, packed(WEIGHTS, places), SCALES, packed(ZEROS, places))
    np.testing.assert_allclose(product, x.astype(np.float64) @ DEQUANTIZED, rtol=1e-12)


FLOAT8 = numpy_dtype(dtype("float8_e4m3fn"))


def test_float8_blocks_have_separate_scales() -> None:
    a, b = (normal(*shape).astype(np.float32).astype(FLOAT8) for shape in ((3, 21), (7, 21)))
    a_scale, b_scale = (RANDOM.uniform(0.1, 9.0, shape).astype(np.float32) for shape in ((3, 3), (2, 3)))
    right = np.zeros((3, 7))
    for i, j, k in np.ndindex(3, 7, 21):
        right[i, j] += float(a[i, k]) * float(b[j, k]) * float(a_scale[i, k // 8]) * float(b_scale[j // 4, k // 8])
    (out,) = expected_all("fp8_block_scaled_matmul", a, b, a_scale, b_scale, block_size=[4, 8])
    np.testing.assert_allclose(out, right, rtol=1e-12)


def test_float8_groups_fill_their_range() -> None:
    x = normal(3, 37).astype(np.float32)
    out, scale = expected_all("per_token_group_quant_fp8", x, group_size=16)
    assert scale.shape == (3, 3)
    for group in range(3):
        part = slice(16 * group, 16 * group + 16)
        np.testing.assert_allclose(np.abs(out[:, part]).max(1), 448.0)
        np.testing.assert_allclose(out[:, part] * scale[:, group, None], x[:, part], rtol=1e-12)


def test_scale_near_power_of_two_rounds_either_way() -> None:
    x = np.array([[3.5, -1.0]], np.float32)
    options = {"group_size": 2, "eps": 1e-10, "use_ue8m0": True}
    _, scale = expected_all("per_token_group_quant_fp8", x, **options)
    assert scale == 2.0**-7
    for power, is_right in ((-7, True), (-6, True), (-8, False), (-5, False)):
        output = (x * 2.0**-power).astype(FLOAT8), np.array([[2.0**power]], np.float32)
        masks = per_token_group_quant_fp8_alternatives([x], options, output)
        assert [bool(each.all()) for each in masks] == [is_right, is_right]
    mixed = (x * 2.0**6).astype(FLOAT8), np.array([[2.0**-7]], np.float32)
    out, _ = per_token_group_quant_fp8_alternatives([x], options, mixed)
    assert not out.any(), "by another scale than is given"
