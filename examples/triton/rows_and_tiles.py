"""Triton kernels and the functions that launch them, for `optest check --backend triton --function ...`."""

import torch
import triton
import triton.language as tl

import optest


@triton.jit
def softmax_kernel(x, y, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns + at
    value = tl.load(x + row, mask=at < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row, e / tl.sum(e, axis=0), mask=at < columns)


@triton.jit
def layer_norm_kernel(x, weight, bias, y, columns, eps, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0) * columns + at
    value = tl.load(x + row, mask=at < columns, other=0.0).to(tl.float32)
    centred = tl.where(at < columns, value - tl.sum(value, axis=0) / columns, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    w = tl.load(weight + at, mask=at < columns).to(tl.float32)
    b = tl.load(bias + at, mask=at < columns).to(tl.float32)
    tl.store(y + row, centred * scale * w + b, mask=at < columns)


@triton.jit
def matmul_kernel(a, b, c, M, N, K, a_row, a_column, b_row, b_column, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(0, K, BLOCK):
        left = first + tl.arange(0, BLOCK)[None, :]
        right = first + tl.arange(0, BLOCK)[:, None]
        tile_a = tl.load(a + rows * a_row + left * a_column, mask=(rows < M) & (left < K), other=0.0)
        tile_b = tl.load(b + right * b_row + columns * b_column, mask=(right < K) & (columns < N), other=0.0)
        total = tl.dot(tile_a, tile_b, total, input_precision="ieee")
    tl.store(c + rows * N + columns, total, mask=(rows < M) & (columns < N))


FLOATS = ("float32", "float16", "bfloat16")


@optest.kernel("softmax", dtypes=FLOATS, ranks=(1, 2, 3))
def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    if dim not in (-1, x.dim() - 1):
        raise NotImplementedError("it takes the last dimension")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    columns = x.shape[-1]
    if x.numel():
        softmax_kernel[(x.numel() // columns,)](x.contiguous(), y, columns, BLOCK=triton.next_power_of_2(columns))
    return y


@optest.kernel("layer_norm", dtypes=FLOATS)
def layer_norm(x: torch.Tensor, weight=None, bias=None, *, normalized_shape, eps: float = 1e-5) -> torch.Tensor:
    if len(normalized_shape) != 1:
        raise NotImplementedError("it takes the last dimension")
    columns = x.shape[-1]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    weight = torch.ones(columns, device=x.device) if weight is None else weight.contiguous()
    bias = torch.zeros(columns, device=x.device) if bias is None else bias.contiguous()
    if x.numel():
        block = triton.next_power_of_2(columns)
        layer_norm_kernel[(x.numel() // columns,)](x.contiguous(), weight, bias, y, columns, eps, BLOCK=block)
    return y


@optest.kernel("matmul", dtypes=FLOATS, ranks=(2,))
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if c.numel():
        grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
        matmul_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), BLOCK=32)
    return c
