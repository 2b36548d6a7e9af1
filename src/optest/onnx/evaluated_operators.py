"""Operators that ONNX's evaluator 1.23 lacks, or gets wrong, slowly, or in float32 where float64 is given; these are
run in place of its own.

Source of the formulas: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx.reference.op_run import OpRun
from onnx.reference.ops import op_batch_normalization, op_conv

from optest.operators.real_functions import erf
from optest.spec import Fault, Reason


class BatchNormalization(op_batch_normalization.BatchNormalization_14):  # its own of opset 9 to 13 always trains
    def _run(self, x: Any, *parameters: Any, epsilon: float, momentum: float, **_: int | None) -> tuple[Any, ...]:
        trains = len(self.onnx_node.output) > 1
        return tuple(super()._run(x, *parameters, epsilon, momentum, int(trains)))


class Erf(OpRun):  # its own yields float32
    def _run(self, x: Any) -> tuple[Any]:
        return (_erf(x),)


class Gelu(OpRun):  # its own has constants of float32
    def _run(self, x: Any, approximate: str | None = None) -> tuple[Any]:
        half, one, cubic = (x.dtype.type(each) for each in (0.5, 1, 0.044715))
        if approximate == "tanh":
            return (half * x * (one + np.tanh(x.dtype.type(np.sqrt(2 / np.pi)) * (x + cubic * x * x * x))),)
        return (half * x * (one + _erf(x / x.dtype.type(np.sqrt(2)))),)


class GatherElements(OpRun):  # its own takes 64 rows at most
    def _run(self, data: Any, indices: Any, axis: int = 0) -> tuple[Any]:
        sizes = [*indices.shape]
        sizes[axis] = data.shape[axis]
        inside = tuple(slice(size) for size in sizes)
        return (np.take_along_axis(data[inside], indices, axis),)


class LRN(OpRun):  # its own sums over as many channels as there are samples
    def _run(self, x: Any, alpha: float, beta: float, bias: float, size: int) -> tuple[Any]:
        before, channels = (size - 1) // 2, x.shape[1]
        spans = (slice(max(0, each - before), each - before + size) for each in range(channels))
        sums = np.stack([np.sum(np.square(x[:, each]), axis=1) for each in spans], axis=1)
        return ((x / (bias + alpha / size * sums) ** beta).astype(x.dtype),)


class Conv(op_conv.Conv):  # its own gathers each element by its index
    def _run(self, x: Any, w: Any, b: Any = None, auto_pad: str = "NOTSET", **attributes: Any) -> tuple[Any, ...]:
        if auto_pad != "NOTSET":
            return tuple(super()._run(x, w, b, auto_pad=auto_pad, **attributes))
        groups, rank = attributes["group"] or 1, w.ndim - 2
        pads, strides, steps = (
            attributes[name] or [usual] * count
            for name, usual, count in (("pads", 0, 2 * rank), ("strides", 1, rank), ("dilations", 1, rank))
        )
        x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
        reach = [(size - 1) * step + 1 for size, step in zip(w.shape[2:], steps, strict=True)]
        windows = sliding_window_view(x, reach, axis=tuple(range(2, x.ndim)))  # [batch, channels, *places, *kernel]
        places = (slice(None), slice(None), *(slice(None, None, each) for each in (*strides, *steps)))
        windows = windows[places]
        sizes = windows.shape[2 : x.ndim]
        channels = windows.reshape(len(x), groups, w.shape[1], *windows.shape[2:])
        axes = (1, 0, *range(3, x.ndim + 1), 2, *range(x.ndim + 1, channels.ndim))
        columns = channels.transpose(axes).reshape(groups, len(x) * int(np.prod(sizes)), -1)
        made = columns @ w.reshape(groups, len(w) // groups, -1).swapaxes(1, 2)
        made = np.moveaxis(made.reshape(groups, len(x), *sizes, -1), 0, -2).reshape(len(x), *sizes, len(w))
        return (np.ascontiguousarray(np.moveaxis(made if b is None else made + b, -1, 1)),)


class Softmax(OpRun):  # its own of opsets before 13 does not know that these take all axes from one on as one
    def _run(self, x: Any, axis: int = -1) -> tuple[Any]:
        shape = x.shape
        if self.run_params["opsets"][""] < 13:
            first = next((each.i for each in self.onnx_node.attribute if each.name == "axis"), 1)
            x, axis = x.reshape(int(np.prod(shape[: first % x.ndim])), -1), -1
        return (self._of(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf), axis).reshape(shape),)

    def _of(self, shifted: Any, axis: int) -> Any:
        powers = np.exp(shifted)
        return powers / np.sum(powers, axis=axis, keepdims=True)


class LogSoftmax(Softmax):  # and its own takes the logarithm of 0
    def _of(self, shifted: Any, axis: int) -> Any:
        return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def _erf(x: Any) -> Any:
    return erf(x).astype(x.dtype)


# Operators of ONNX Runtime: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md


class SimplifiedLayerNormalization(OpRun):
    def _run(self, x: Any, gamma: Any, *, axis: int = -1, epsilon: float = 1e-5, **_: Any) -> tuple[Any, ...]:
        return (gamma * _over_root_mean_square(x, epsilon, axis),)


class SkipSimplifiedLayerNormalization(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-12) -> tuple[Any, ...]:
        total = x + skip + (0 if bias is None else bias)
        return (gamma * _over_root_mean_square(total, epsilon), None, None, total)[: len(self.onnx_node.output)]


class SkipLayerNormalization(OpRun):
    op_domain = "com.microsoft"

    def _run(self, x: Any, skip: Any, gamma: Any, *more: Any, epsilon: float = 1e-12) -> tuple[Any, ...]:
        beta, bias = (*more, None, None)[:2]
        total = x + skip + (0 if bias is None else bias)
        centred = total - np.mean(total, axis=-1, keepdims=True)
        y = gamma * _over_root_mean_square(centred, epsilon) + (0 if beta is None else beta)
        return (y, None, None, total)[: len(self.onnx_node.output)]


def _over_root_mean_square(x: Any, epsilon: float, axis: int = -1) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x / np.sqrt(np.mean(np.square(x), axis=axes, keepdims=True) + x.dtype.type(epsilon))


class MatMulNBits(OpRun):
    op_domain = "com.microsoft"

    def _run(self, a: Any, packed: Any, scales: Any, *more: Any, **stated: int) -> tuple[Any]:
        zeros, order, bias = (*more, None, None, None)[:3]
        rows, columns, size, bits = stated["N"], stated["K"], stated["block_size"], stated.get("bits", 4)
        if bits not in (2, 4, 8) or order is not None or stated.get("accuracy_level") == 4:
            raise Fault(Reason.UNSUPPORTED, "no reference for MatMulNBits with g_idx, or that rounds its input to int8")
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


OPERATORS: list[Any] = [each for each in [*vars().values()] if isinstance(each, type) and each.__module__ == __name__]
