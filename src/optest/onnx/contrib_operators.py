"""ONNX Runtime's own operators, which onnx.reference lacks: those of optimised and quantised language models.

Source of the definitions: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_attention, op_rotary_embedding

from optest.operators.real_functions import erf
from optest.spec import Fault, Reason


class _Contrib(OpRun):
    op_domain = "com.microsoft"

    def require(self, is_known: bool, what: str) -> None:
        if not is_known:
            raise Fault(Reason.UNSUPPORTED, f"no reference for {self.op_domain}.{type(self).__name__} with {what}")


class SimplifiedLayerNormalization(_Contrib):
    op_domain = ""

    def _run(self, x: Any, gamma: Any, *, axis: int = -1, epsilon: float = 1e-5, **_: Any) -> tuple[Any, ...]:
        self.require(axis in (-1, x.ndim - 1), "several axes")
        return (gamma * _over_root_mean_square(x, epsilon),)


class SkipSimplifiedLayerNormalization(_Contrib):
    def _run(self, x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-12) -> tuple[Any, ...]:
        total = x + skip + (0 if bias is None else bias)
        return (gamma * _over_root_mean_square(total, epsilon), None, None, total)[: len(self.onnx_node.output)]


class SkipLayerNormalization(_Contrib):
    def _run(
        self, x: Any, skip: Any, gamma: Any, beta: Any = None, bias: Any = None, *, epsilon: float = 1e-12
    ) -> tuple[Any, ...]:
        total = x + skip + (0 if bias is None else bias)
        centred = total - np.mean(total, axis=-1, keepdims=True)
        y = gamma * _over_root_mean_square(centred, epsilon) + (0 if beta is None else beta)
        return (y, None, None, total)[: len(self.onnx_node.output)]


def _over_root_mean_square(x: Any, epsilon: float) -> Any:
    return x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + x.dtype.type(epsilon))


class Gelu(_Contrib):
    def _run(self, x: Any, bias: Any = None, **_: Any) -> tuple[Any]:
        x = x if bias is None else x + bias
        return (x / 2 * (1 + erf(x / np.sqrt(x.dtype.type(2))).astype(x.dtype)),)


class BiasGelu(_Contrib):
    _run = Gelu._run


class FastGelu(_Contrib):
    def _run(self, x: Any, bias: Any = None) -> tuple[Any]:
        x = x if bias is None else x + bias
        return (x / 2 * (1 + np.tanh(x.dtype.type(np.sqrt(2 / np.pi)) * (x + x.dtype.type(0.044715) * x * x * x))),)


class FusedMatMul(_Contrib):
    def _run(self, a: Any, b: Any, *, alpha: float = 1.0, **stated: int) -> tuple[Any]:
        self.require(not stated.get("transBatchA") and not stated.get("transBatchB"), "transposed batches")
        a = a.swapaxes(-1, -2) if stated.get("transA") else a
        b = b.swapaxes(-1, -2) if stated.get("transB") else b
        return (a.dtype.type(alpha) * (a @ b),)


class MatMulNBits(_Contrib):
    def _run(
        self, a: Any, packed: Any, scales: Any, zeros: Any = None, order: Any = None, bias: Any = None, **stated: int
    ) -> tuple[Any]:
        rows, columns, size, bits = stated["N"], stated["K"], stated["block_size"], stated.get("bits", 4)
        self.require(bits in (2, 4, 8) and order is None, f"{bits} bits or g_idx")
        self.require(stated.get("accuracy_level") != 4, "accuracy_level=4, which rounds the input to int8")
        blocks, zero = -(-columns // size), np.array(1 << (bits - 1), a.dtype)
        if zeros is not None and zeros.dtype == np.uint8:
            zeros = _unpacked(zeros.reshape(rows, -1), bits)[:, :blocks]
        zero = zero if zeros is None else zeros.reshape(rows, blocks, 1).astype(a.dtype)
        weights = _unpacked(packed.reshape(rows, blocks, -1), bits).astype(a.dtype) - zero
        weights = (weights * scales.reshape(rows, blocks, 1)).reshape(rows, -1)[:, :columns]
        return (a @ weights.T + (0 if bias is None else bias),)


def _unpacked(packed: Any, bits: int) -> Any:
    """Return the numbers of ``bits`` in each byte along the last axis, the lowest bits first."""
    parts = (packed[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


class GroupQueryAttention(_Contrib):
    def _run(self, query: Any, key: Any, value: Any, *more: Any, num_heads: int, **stated: Any) -> tuple[Any, ...]:
        past_key, past_value, lengths, _, cos, sin, *others = (*more, None, None)[: max(len(more), 6)]
        is_plain = all(stated.get(name, 0) in (0, -1) for name in ("local_window_size", "softcap", "smooth_softmax"))
        self.require(is_plain and not any(each is not None for each in others), "a window, softcap, sink or bias")
        groups, tokens = stated["kv_num_heads"], query.shape[1]
        if key is None:
            width = query.shape[2] // (num_heads + 2 * groups)
            query, key, value = np.split(query, [num_heads * width, (num_heads + groups) * width], axis=2)
        split = zip((query, key, value), (num_heads, groups, groups), strict=True)
        query, key, value = (x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2) for x, count in split)
        past = 0 if past_key is None else past_key.shape[2]
        self.require(bool(np.all(lengths + 1 == past + tokens)), "sequences of several lengths")
        if stated.get("do_rotary"):
            positions = np.arange(past, past + tokens)[None].repeat(len(query), 0)
            how = (positions, stated.get("rotary_interleaved"), 2 * cos.shape[-1])
            query, key = (op_rotary_embedding.rotary_embedding(x, cos, sin, *how) for x in (query, key))
        kept = {"past_key": past_key, "past_value": past_value} if past else {}
        made, *present, _ = op_attention._compute_attention(
            query, key, value, scale=stated.get("scale") or None, is_causal=True, **kept
        )
        return (made.swapaxes(1, 2).reshape(len(query), tokens, -1), *present)[: len(self.onnx_node.output)]


OPERATORS: list[Any] = _Contrib.__subclasses__()
