"""What a call is called in the file: operators of Python, methods, functions; and what is no call of an operator."""

from __future__ import annotations

from collections.abc import Callable

import numpy
import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from capture_kit import call_of, recorded  # noqa: E402

from optest.torch.calls.names import find_callable  # noqa: E402

pytestmark = pytest.mark.torch

X = torch.rand(2, 3)
Y = torch.rand(2, 3)
M = torch.rand(3, 4)
N = torch.arange(6).reshape(2, 3)
B = N > 2
W, V = torch.rand(3), torch.rand(3)
IMAGE, P, S = torch.rand(1, 1, 4, 4), torch.tensor([1, 0]), torch.rand(2, 2)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: X + Y, "torch.add(2x3, 2x3)"),
        (lambda: X + 2, "torch.add(2x3, 2)"),
        (lambda: 2 + X, "torch.add(2x3, 2)"),
        (lambda: 2 - X, "torch.rsub(2x3, 2)"),
        (lambda: X - 2.5, "torch.sub(2x3, 2.5)"),
        (lambda: X * numpy.int64(2), "torch.mul(2x3, 2)"),
        (lambda: X + numpy.float32(0.5), "torch.add(2x3, 0.5)"),
        (lambda: X.view(numpy.prod(X.shape)), "torch.Tensor.view(2x3, 6)"),
        (lambda: X[numpy.int32(1)], "torch.getitem(2x3, 1)"),
        (lambda: 2 * X, "torch.mul(2x3, 2)"),
        (lambda: X / Y, "torch.div(2x3, 2x3)"),
        (lambda: 2 / X, "torch.truediv(2, 2x3)"),
        (lambda: X // 2, "torch.floordiv(2x3, 2)"),
        (lambda: 2 // X, "torch.floordiv(2, 2x3)"),
        (lambda: X % 2, "torch.remainder(2x3, 2)"),
        (lambda: 2 % X, "torch.remainder(2, 2x3)"),
        (lambda: X**2, "torch.pow(2x3, 2)"),
        (lambda: 2**X, "torch.pow(2, 2x3)"),
        (lambda: X @ M, "torch.matmul(2x3, 3x4)"),
        (lambda: -X, "torch.neg(2x3)"),
        (lambda: abs(X), "torch.abs(2x3)"),
        (lambda: X > Y, "torch.gt(2x3, 2x3)"),
        (lambda: torch.Tensor.lt(X, 2), "torch.lt(2x3, 2)"),
        (lambda: X == Y, "torch.eq(2x3, 2x3)"),
        (lambda: ~B, "torch.invert(2x3)"),
        (lambda: B & B, "torch.and_(2x3, 2x3)"),
        (lambda: B | True, "torch.or_(2x3, True)"),
        (lambda: B ^ B, "torch.xor(2x3, 2x3)"),
        (lambda: N << 1, "torch.lshift(2x3, 1)"),
        (lambda: X[0], "torch.getitem(2x3, 0)"),
        (lambda: X[..., None], "torch.getitem(2x3, (..., None))"),
        (lambda: X[:, 1:], "torch.getitem(2x3, (slice(None, None, None), slice(1, None, None)))"),
        (lambda: X[B], "torch.getitem(2x3, 2x3)"),
        (lambda: X.T, "torch.Tensor.t(2x3)"),
        (lambda: X.mT, "torch.transpose(2x3, -2, -1)"),
        (lambda: X.view(6), "torch.Tensor.view(2x3, 6)"),
        (lambda: X.view(-1, 2), "torch.Tensor.view(2x3, -1, 2)"),
        (lambda: X.float(), "torch.Tensor.float(2x3)"),
        (lambda: X.to(torch.float16), "torch.Tensor.to(2x3, torch.float16)"),
        (lambda: X.to("cpu"), "torch.Tensor.to(2x3, cpu)"),
        (lambda: X.to(memory_format=torch.contiguous_format),
         "torch.Tensor.to(2x3, memory_format=torch.contiguous_format)"),
        (lambda: X.sum(-1, keepdim=True), "torch.Tensor.sum(2x3, -1, keepdim=True)"),
        (lambda: X.permute(1, 0), "torch.Tensor.permute(2x3, 1, 0)"),
        (lambda: torch.permute(X, (1, 0)), "torch.permute(2x3, (1, 0))"),
        (lambda: torch.cat([X, Y], dim=-1), "torch.cat([2x3, 2x3], dim=-1)"),
        (lambda: torch.stack((X, Y)), "torch.stack([2x3, 2x3])"),
        (lambda: torch.einsum("ij,jk->ik", X, M), "torch.einsum(ij,jk->ik, 2x3, 3x4)"),
        (lambda: torch.where(B, X, 0.0), "torch.where(2x3, 2x3, 0.0)"),
        (lambda: X.masked_fill(B, float("-inf")), "torch.Tensor.masked_fill(2x3, 2x3, -inf)"),
        (lambda: torch.arange(3, dtype=torch.int32), "torch.arange(3, dtype=torch.int32)"),
        (lambda: torch.zeros(2, device=X.device), "torch.zeros(2, device=cpu)"),
        (lambda: F.linear(X, Y, None), "torch.nn.functional.linear(2x3, 2x3, None)"),
        (lambda: F.gelu(X, approximate="tanh"), "torch.nn.functional.gelu(2x3, approximate=tanh)"),
        (lambda: F.softmax(X, dim=-1), "torch.nn.functional.softmax(2x3, dim=-1)"),
        (lambda: F.relu(X), "torch.nn.functional.relu(2x3)"),
        (lambda: F.layer_norm(X, (3,), weight=W, bias=V), "torch.nn.functional.layer_norm(2x3, (3,), 3, 3)"),
        (lambda: F.layer_norm(X, (3,), bias=V, eps=1e-6),
         "torch.nn.functional.layer_norm(2x3, (3,), None, 3, eps=1e-06)"),
        (lambda: F.dropout(X, 0.1, training=False), "torch.nn.functional.dropout(2x3, p=0.1, training=False)"),
        (lambda: F.pad(X, (1, 1)), "torch.nn.functional.pad(2x3, (1, 1))"),
        (lambda: F.max_pool2d(IMAGE, 2), "torch.nn.functional.max_pool2d(1x1x4x4, 2, stride=None, padding=0, "
         "dilation=1, ceil_mode=False, return_indices=False)"),
        (lambda: F.scaled_dot_product_attention(X, Y, Y, attn_mask=S),
         "torch.nn.functional.scaled_dot_product_attention(2x3, 2x3, 2x3, attn_mask=2x2)"),
        (lambda: X[:, P], "torch.getitem(2x3, tuple(slice(None, None, None), 2))"),
        (lambda: X[P, P], "torch.getitem(2x3, tuple(2, 2))"),
        (lambda: X[[0, 1]], "torch.getitem(2x3, [0, 1])"),
        (lambda: torch.index_put(X, (P,), Y), "torch.index_put(2x3, [2], 2x3)"),
    ],
)  # fmt: skip
def test_call_is_written_as_in_model(function: Callable[[], object], text: str) -> None:
    assert call_of(function) == text
    assert find_callable(text.partition("(")[0])


def test_in_place_call_is_recorded_before_change() -> None:
    def run() -> None:
        x = X.clone()
        x += 1
        x.mul_(2)
        x[0] = 5
        x[:, N[0]] = Y

    ops = [case["op"] for case in recorded(run).cases()]
    assert ops == [
        "torch.Tensor.clone", "torch.Tensor.add_", "torch.Tensor.mul_", "torch.setitem", "torch.getitem",
        "torch.setitem",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "function",
    [
        lambda: X.shape, lambda: X.size(0), lambda: X.dim(), lambda: X.device, lambda: X.is_contiguous(),
        lambda: len(X), lambda: X.requires_grad, lambda: torch.is_tensor(X), lambda: repr(X), lambda: X.numpy(),
        lambda: X.tolist(), lambda: X.is_floating_point(), lambda: X.stride(), lambda: X.data_ptr(),
        lambda: torch.is_grad_enabled(), lambda: torch.manual_seed(0), lambda: torch.finfo(X.dtype),
        lambda: torch.set_grad_enabled(True), lambda: torch._C._log_api_usage_once("x"),
        lambda: X.requires_grad_(False),
    ],
)  # fmt: skip
def test_questions_and_settings_are_no_cases(function: Callable[[], object]) -> None:
    assert recorded(function).cases() == []


def test_context_managers_are_not_swept_up() -> None:
    def run() -> None:
        with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.inference_mode(False):
            X.abs()

    recorder = recorded(run)
    assert [case["op"] for case in recorder.cases()] == ["torch.abs"]
    assert {reason for _, reason in recorder.left_out} <= {"compute nothing"}


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda: torch.rand(2), "torch.rand"),
        (lambda: F.dropout(X, 0.5), "torch.nn.functional.dropout"),
        (lambda: torch.empty(2).bernoulli_(0.5), "torch.Tensor.bernoulli_"),
        (lambda: torch.multinomial(X[0], 1), "torch.multinomial"),
    ],
)
def test_what_draws_random_numbers_is_left_out(function: Callable[[], object], name: str) -> None:
    recorder = recorded(function)
    assert recorder.left_out[name, "draw random numbers, so no result is the right one"] == 1
    assert all(case["op"] == "torch.getitem" for case in recorder.cases())


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_forward_mode_tensors_become_no_case() -> None:
    recorder = recorded(lambda: torch.func.jvp(torch.exp, (X,), (Y,)))
    assert [case["op"] for case in recorder.cases()] == ["torch.exp"]
    assert any("forward mode" in reason for name, reason in recorder.left_out if "_make_dual" in name)


def test_zeros_without_memory_are_not_read() -> None:
    """Torch 2.13 ends the process where one of a forward derivative is read below functorch."""
    zeros = torch._efficientzerotensor((2, 3))
    recorder = recorded(lambda: (torch._efficientzerotensor((2, 3)), torch.ops.aten.add(zeros, X)), "aten")
    assert not [case for case in recorder.cases() if "zero" in case["op"]]
    assert {reason for _, reason in recorder.left_out} >= {
        "return zeros without memory, as derivatives in forward mode are",
        "take zeros without memory, as derivatives in forward mode are",
    }


def test_unwritten_and_nonfinite_results_are_left_out() -> None:
    recorder = recorded(lambda: (torch.empty(2), torch.empty_like(X), torch.full((2, 2), float("-inf"))))
    assert recorder.cases() == []
    assert {name for name, _ in recorder.left_out} == {"torch.empty", "torch.empty_like", "torch.full"}


def test_making_parameters_is_left_out() -> None:
    recorder = recorded(lambda: torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3), torch.nn.LSTM(3, 3)))
    assert recorder.cases() == []


def test_the_dispatcher_is_another_level() -> None:
    ops = [case["op"] for case in recorded(lambda: F.linear(X, Y), "aten").cases()]
    assert ops == ["torch.ops.aten.t.default", "torch.ops.aten.mm.default"]
    assert call_of(lambda: X + 1, "aten") == "torch.ops.aten.add.Tensor(2x3, 1)"
    assert call_of(lambda: X.sum(-1, keepdim=True), "aten") == "torch.ops.aten.sum.dim_IntList(2x3, [-1], True)"
