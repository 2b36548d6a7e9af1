"""The torch calls of the contraction family."""

from __future__ import annotations

import torch

from optest.backends.torch_operators.calls import Attributes, Tensors, TorchCall, factor

__all__ = ["CALLS"]


def _gemm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    a, b, c = tensors if len(tensors) == 3 else (*tensors, None)
    a = a.t() if attributes.get("trans_a") else a
    b = b.t() if attributes.get("trans_b") else b
    alpha, beta = factor(attributes.get("alpha", 1.0), a.dtype), factor(attributes.get("beta", 1.0), a.dtype)
    if c is None:
        c, beta = a.new_zeros(()), 0  # addmm applies alpha before it rounds; alpha * (a @ b) would round twice
    return torch.addmm(c, a, b, alpha=alpha, beta=beta)


CALLS: dict[str, TorchCall] = {
    "matmul": lambda tensors, _: torch.matmul(tensors[0], tensors[1]),
    "gemm": _gemm,
}
