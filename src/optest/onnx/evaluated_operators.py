"""Replacements of operators that ONNX's reference evaluator 1.23 lacks, computes wrongly, slowly or only in float32.

Source of the formulas: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx.helper import get_attribute_value
from onnx.reference.op_run import OpRun
from onnx.reference.ops import (
    op_batch_normalization,
    op_conv,
    op_dynamic_quantize_linear,
    op_loop,
    op_negative_log_likelihood_loss,
    op_resize,
)
from onnx.reference.ops.op_rotary_embedding import rotary_embedding

from optest.operators.real_functions import erf
from optest.spec import Fault, Reason


class BatchNormalization(
    op_batch_normalization.BatchNormalization_14
):  # onnx.reference always trains in opsets 9 to 13
    def _run(self, x: Any, *parameters: Any, epsilon: float, momentum: float, **_: int | None) -> tuple[Any, ...]:
        trains = len(self.onnx_node.output) > 1
        return tuple(super()._run(x, *parameters, epsilon, momentum, int(trains)))


class Erf(OpRun):  # onnx.reference returns float32
    def _run(self, x: Any) -> tuple[Any]:
        return (_erf(x),)


class Gelu(OpRun):  # onnx.reference has float32 constants
    def _run(self, x: Any, bias: Any = None, approximate: str | None = None, alpha: float = 1.702) -> tuple[Any]:
        x = x if bias is None else x + bias
        if self.op_type == "QuickGelu":
            return (x / (1 + np.exp(x.dtype.type(-alpha) * x)),)
        half, one, cubic = (x.dtype.type(each) for each in (0.5, 1, 0.044715))
        if approximate == "tanh" or self.op_type == "FastGelu":
            return (half * x * (one + np.tanh(x.dtype.type(np.sqrt(2 / np.pi)) * (x + cubic * x * x * x))),)
        return (half * x * (one + _erf(x / x.dtype.type(np.sqrt(2)))),)


class GatherElements(OpRun):  # onnx.reference accepts 64 rows at most
    def _run(self, data: Any, indices: Any, axis: int = 0) -> tuple[Any]:
        sizes = [*indices.shape]
        sizes[axis] = data.shape[axis]
        inside = tuple(slice(size) for size in sizes)
        return (np.take_along_axis(data[inside], indices, axis),)


class Resize(op_resize.Resize):  # onnx.reference uses fractional sizes with aligned corners
    def _run(self, x: Any, roi: Any, scales: Any = None, sizes: Any = None, **attributes: Any) -> tuple[Any, ...]:
        (made,) = super()._run(x, roi, scales, sizes, **attributes)
        if attributes.get("coordinate_transformation_mode") == "align_corners" and not attributes.get("axes"):
            return tuple(super()._run(x, roi, None, np.array(made.shape), **attributes))
        if attributes["mode"] == "nearest" and np.ndim(scales) == 1:
            exact = np.array([float(Fraction(float(each)).limit_denominator(1024)) for each in scales])
            if not np.array_equal(made, super()._run(x, roi, exact, sizes, **attributes)[0], equal_nan=True):
                raise Fault(Reason.UNSUPPORTED, "no reference for Resize: rounding decides which element is nearest")
        return (made,)


class LRN(OpRun):  # onnx.reference loops over as many channels as there are samples
    def _run(self, x: Any, alpha: float, beta: float, bias: float, size: int) -> tuple[Any]:
        before, channels = (size - 1) // 2, x.shape[1]
        spans = (slice(max(0, each - before), each - before + size) for each in range(channels))
        sums = np.stack([np.sum(np.square(x[:, each]), axis=1) for each in spans], axis=1)
        return ((x / (bias + alpha / size * sums) ** beta).astype(x.dtype),)


class Conv(op_conv.Conv):  # onnx.reference is slow: it gathers element by element
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


class Softmax(OpRun):  # before opset 13 Softmax flattens all axes from ``axis`` on, in onnx.reference not
    def _run(self, x: Any, axis: int = -1) -> tuple[Any]:
        shape = x.shape
        if self.run_params["opsets"][""] < 13:
            first = next((each.i for each in self.onnx_node.attribute if each.name == "axis"), 1)
            x, axis = x.reshape(int(np.prod(shape[: first % x.ndim])), -1), -1
        return (self.of_shifted(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf), axis).reshape(shape),)

    def of_shifted(self, shifted: Any, axis: int) -> Any:
        powers = np.exp(shifted)
        return powers / np.sum(powers, axis=axis, keepdims=True)


class LogSoftmax(Softmax):  # onnx.reference takes the logarithm of 0, as in SoftmaxCrossEntropyLoss
    def of_shifted(self, shifted: Any, axis: int) -> Any:
        return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


class SoftmaxCrossEntropyLoss(OpRun):
    def _run(self, x: Any, target: Any, weight: Any = None, **attributes: Any) -> tuple[Any, ...]:
        shifted = x - np.max(x, axis=1, keepdims=True)
        likelihoods = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
        losses = op_negative_log_likelihood_loss.NegativeLogLikelihoodLoss._run(
            self, likelihoods, target, weight, **attributes
        )
        return (*losses, likelihoods)[: len(self.onnx_node.output)]


class Hardmax(Softmax):  # flattens axes before opset 13, as Softmax does
    def of_shifted(self, shifted: Any, axis: int) -> Any:
        made = np.zeros_like(shifted)
        np.put_along_axis(made, np.argmax(shifted, axis=axis, keepdims=True), 1, axis)
        return made


class Optional(OpRun):  # onnx.reference returns a list with the element; without one it is unsupported
    def _run(self, x: Any = None, **_: Any) -> tuple[Any]:
        if x is None:
            raise Fault(Reason.UNSUPPORTED, "no reference for Optional without an element")
        return (x,)


class Loop(op_loop.Loop):  # onnx.reference treats no condition as false, and stacks scanned outputs wrongly
    def _run(self, most: Any, condition: Any, *given: Any, context: Any = None, **of_body: Any) -> tuple[Any, ...]:
        of_body.pop("body", None)
        trip, goes_on, carried, scanned = 0, condition is None or bool(condition), list(given), list[Any]()
        names, most = self.body.input_names, np.inf if most is None else np.reshape(most, -1)[0]
        while goes_on and trip < most:
            values = (np.array(trip, np.int64), np.array(goes_on), *carried)
            goes_on, *made = self._run_body({**(context or {}), **dict(zip(names, values, strict=True))}, **of_body)
            carried, rows = made[: self.N], made[self.N :]
            scanned.append(rows)
            trip += 1
        if self.K and not scanned:
            raise Fault(Reason.UNSUPPORTED, "no reference for scanned results of a Loop that makes no trip")
        return (*carried, *(np.stack(each) for each in zip(*scanned, strict=True)))


# Default activations, the only ones that onnx.reference computes.
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


# Attribute values that onnx.reference ignores or computes wrongly.
_LEFT_OUT = {
    *(f"{name} auto_pad=SAME_LOWER" for name in ("AveragePool", "LpPool", "MaxPool")),
    *("GridSample mode=cubic", "LSTM input_forget=1", "LpNormalization p=1", "TopK sorted=0"),
    "Resize coordinate_transformation_mode=half_pixel_symmetric",
}


def left_out(node: Any) -> str:
    """Return the settings of a node that ONNX's evaluator 1.23 ignores or computes wrongly, else ""."""
    stated = {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}
    usual = _ACTIVATIONS.get(node.op_type, [])
    activations = [each.decode() for each in stated.get("activations", [])]
    if usual and activations not in ([], usual, usual * 2):
        return f"activations {', '.join(activations)}"
    if usual and ("clip" in stated or (len(node.input) > 4 and node.input[4])):
        return "clip" if "clip" in stated else "sequence_lens"
    steps = {*stated.get("strides", ()), *stated.get("dilations", ())}
    if node.op_type == "MaxPool" and len(node.output) > 1 and steps <= {1}:
        return "indices and steps of 1"
    if node.op_type == "TreeEnsembleClassifier":
        named = (stated.get(f"class_{name}", ()) for name in ("treeids", "nodeids", "ids"))
        leaves = Counter(each[:2] for each in {*zip(*named, strict=False)})
        labels = stated.get("classlabels_int64s") or stated.get("classlabels_strings", ())
        if len(labels) < 3 and 1 in leaves.values():
            return "leaves that vote for one of two classes: ONNX does not define the score of the other"
    words = (f"{name}={value.decode() if isinstance(value, bytes) else value}" for name, value in stated.items())
    return ", ".join(each for each in words if f"{node.op_type} {each}" in _LEFT_OUT)


def _erf(x: Any) -> Any:
    return erf(x).astype(x.dtype)


# Operators of ONNX Runtime: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md


class _OfOnnxRuntime(OpRun):
    """Base class of ONNX Runtime's operators; a node with unknown attributes, inputs or outputs is unsupported."""

    # Class attributes are the defaults of a node's; `off` has the accepted values of attributes without support.

    op_domain, op_schema = "com.microsoft", None  # else OpRun uses the schema of ONNX's operator of this name
    most_inputs = 0
    off: ClassVar[Mapping[str, Any]] = {}

    def _run(self, *inputs: Any, **attributes: Any) -> tuple[Any, ...]:
        most, names = self.most_inputs, self.onnx_node.output
        self._refuse(f"{k}={v}" for k, v in attributes.items() if not hasattr(type(self), k) and v != self.off.get(k))
        self._refuse(f"input {index}" for index, x in enumerate(inputs) if index >= most and x is not None)
        outputs = [*self._outputs(*inputs[:most], *[None] * (most - len(inputs))), *[None] * len(names)][: len(names)]
        self._refuse(f"output {name}" for name, x in zip(names, outputs, strict=True) if name and x is None)
        return tuple(np.empty(0) if x is None else x for x in outputs)

    def _refuse(self, unsupported: Iterable[str]) -> None:
        if words := ", ".join(unsupported):
            raise Fault(Reason.UNSUPPORTED, f"no reference for {self.op_type} with {words}")


class SimplifiedLayerNormalization(OpRun):
    def _run(self, x: Any, gamma: Any, *, axis: int = -1, epsilon: float = 1e-5, **_: Any) -> tuple[Any, ...]:
        return (gamma * _over_root_mean_square(x, epsilon, axis),)


class SkipLayerNormalization(_OfOnnxRuntime):
    most_inputs, epsilon = 5, 1e-12

    def _outputs(self, x: Any, skip: Any, gamma: Any, *more: Any) -> tuple[Any, ...]:
        *beta, bias = more
        total = x + skip + (0 if bias is None else bias)
        centred = total - np.mean(total, axis=-1, keepdims=True) if beta else total
        y = gamma * _over_root_mean_square(centred, self.epsilon) + sum(each for each in beta if each is not None)
        return y, None, None, total


class SkipSimplifiedLayerNormalization(SkipLayerNormalization):
    most_inputs = 4  # no beta


def _over_root_mean_square(x: Any, epsilon: float, axis: int = -1) -> Any:
    axes = tuple(range(axis % x.ndim, x.ndim))
    return x / np.sqrt(np.mean(np.square(x), axis=axes, keepdims=True) + x.dtype.type(epsilon))


class MatMulNBits(_OfOnnxRuntime):
    most_inputs, bits, accuracy_level, of = 6, 4, 0, ""
    N = K = block_size = 0

    def _outputs(self, a: Any, packed: Any, scales: Any, zeros: Any, order: Any, bias: Any) -> tuple[Any]:
        rows, columns, size, bits = self.N, self.K, self.block_size, self.bits
        if bits not in (2, 4, 8) or order is not None:
            self._refuse([f"g_idx or {bits} bits"])
        if self.accuracy_level == 4 and a.dtype != np.float64:
            # Kernels may round the input to int8 in blocks. The float32 reference does so, too, and the float64 one
            # does not, so that the allowed error covers such kernels.
            padded = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, -columns % size)]).reshape(*a.shape[:-1], -1, size)
            step = np.max(np.abs(padded), axis=-1, keepdims=True) / a.dtype.type(127)
            a = (np.rint(padded / np.where(step, step, 1)) * step).reshape(*a.shape[:-1], -1)[..., :columns]
        blocks, zero = -(-columns // size), np.array(1 << (bits - 1), a.dtype)
        if zeros is not None and zeros.dtype == np.uint8:
            zeros = _unpacked(zeros.reshape(rows, -1), bits)[:, :blocks]
        zero = zero if zeros is None else zeros.reshape(rows, blocks, 1).astype(a.dtype)
        weights = _unpacked(packed.reshape(rows, blocks, -1), bits).astype(a.dtype) - zero
        weights = (
            getattr(np, self.of)(weights) if self.of else weights
        )  # np.square or np.ones_like, if the error of the sum is estimated
        weights = (weights * scales.reshape(rows, blocks, 1)).reshape(rows, -1)[:, :columns]
        return (a @ weights.T + (0 if bias is None else bias),)


def _unpacked(packed: Any, bits: int) -> Any:
    """Return the numbers of ``bits`` in each byte along the last axis, the lowest bits first."""
    parts = (packed[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)
    return parts.reshape(*packed.shape[:-1], -1)


class FusedMatMul(_OfOnnxRuntime):
    most_inputs, alpha, transA, transB, transBatchA, transBatchB = 2, 1.0, 0, 0, 0, 0  # noqa: N815 - of ONNX

    def _outputs(self, a: Any, b: Any) -> tuple[Any]:
        a, b = (np.moveaxis(x, 0, -2) if on else x for x, on in ((a, self.transBatchA), (b, self.transBatchB)))
        a, b = (np.swapaxes(x, -1, -2) if on else x for x, on in ((a, self.transA), (b, self.transB)))
        return (a.dtype.type(self.alpha) * (a @ b),)


class FusedGemm(_OfOnnxRuntime):
    most_inputs, alpha, beta, transA, transB, activation, activation_alpha = 3, 1.0, 1.0, 0, 0, "", 0.01  # noqa: N815

    def _outputs(self, a: Any, b: Any, c: Any) -> tuple[Any]:
        y = (a.T if self.transA else a) @ (b.T if self.transB else b) * a.dtype.type(self.alpha)
        return (_activated(self, y if c is None else y + a.dtype.type(self.beta) * c, [self.activation_alpha]),)


class FusedConv(_OfOnnxRuntime, Conv):
    most_inputs, group, auto_pad, activation, activation_params = 4, 1, "NOTSET", "", ()
    kernel_shape = pads = strides = dilations = ()

    def _outputs(self, x: Any, w: Any, b: Any, added: Any) -> tuple[Any]:
        names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
        (y,) = Conv._run(self, x, w, b, **{name: getattr(self, name) for name in names})
        return (_activated(self, y if added is None else y + added, self.activation_params),)


def _activated(node: Any, x: Any, parameters: Any) -> Any:
    if node.activation in ("", "Relu"):
        return np.maximum(x, 0) if node.activation else x
    if node.activation == "LeakyRelu":
        return np.where(x < 0, x.dtype.type(parameters[0]) * x, x)
    if node.activation != "Clip":
        node._refuse([f"activation={node.activation}"])
    return np.clip(x, *(x.dtype.type(each) for each in parameters))


class MatMulIntegerToFloat(_OfOnnxRuntime):
    most_inputs = 7

    def _outputs(self, *inputs: Any) -> tuple[Any]:
        a, b, a_scale, b_scale, a_zero, b_zero, bias = inputs
        a, b = (x.astype(np.int64) - (0 if zero is None else zero) for x, zero in ((a, a_zero), (b, b_zero)))
        return ((a @ b).astype(a_scale.dtype) * (a_scale * b_scale) + (0 if bias is None else bias),)


class DynamicQuantizeMatMul(MatMulIntegerToFloat):
    most_inputs = 5

    def _outputs(self, *inputs: Any) -> tuple[Any]:
        a, b, b_scale, b_zero, bias = inputs
        a, a_scale, a_zero = op_dynamic_quantize_linear.DynamicQuantizeLinear._run(self, a)
        return super()._outputs(a, b, a_scale, b_scale, a_zero, b_zero, bias)


class RotaryEmbedding(_OfOnnxRuntime):
    most_inputs, num_heads, rotary_embedding_dim, interleaved = 4, 0, 0, 0
    off: ClassVar[Mapping[str, Any]] = {"is_packed_batching": 0, "scale": 1.0}

    def _outputs(self, x: Any, positions: Any, cos: Any, sin: Any) -> tuple[Any]:
        if positions.ndim == 1:  # the position of the first token
            positions = np.broadcast_to(positions + np.arange(x.shape[-2]), (len(x), x.shape[-2]))
        heads = self.num_heads or x.shape[-1] // (2 * cos.shape[-1])
        return (rotary_embedding(x, cos, sin, positions, self.interleaved, self.rotary_embedding_dim, heads),)


class MultiHeadAttention(_OfOnnxRuntime):
    most_inputs, num_heads, scale, mask_filter_value, unidirectional = 8, 0, 0.0, -1e4, 0

    def _outputs(self, query: Any, key: Any, value: Any, bias: Any, mask: Any, total: Any, *past: Any) -> Any:
        if self.unidirectional or bias is not None or np.ndim(key) != 3 or np.ndim(mask) not in (0, 2):
            self._refuse(
                ["a bias, a causal mask, a mask of another shape than [batch, keys], or packed or cached keys"]
            )
        if mask is not None:
            total = (0 if total is None else total) + np.where(mask[:, None, None] > 0, 0.0, self.mask_filter_value)
        return _attention_with_past(self, (query, key, value), past, total)


class GroupQueryAttention(_OfOnnxRuntime):
    most_inputs, num_heads, kv_num_heads, local_window_size = 9, 0, 0, -1
    scale, softcap, do_rotary, rotary_interleaved = 0.0, 0.0, 0, 0
    off: ClassVar[Mapping[str, Any]] = {"causal": 1, "smooth_softmax": 0, "qk_output": 0, "kv_cache_bit_width": 0}

    def _outputs(self, query: Any, key: Any, value: Any, *more: Any) -> Any:
        *past, last, length, cos, sin = more
        heads, shared = self.num_heads, self.kv_num_heads
        if key is None:
            size = query.shape[-1] // (heads + 2 * shared)
            query, key, value = np.split(query, np.array([heads, heads + shared]) * size, axis=-1)
        first = 0 if past[0] is None else past[0].shape[2]
        positions = np.arange(first, first + query.shape[1])
        if np.any(last != positions[-1]) or np.any(length != positions[-1] + 1):
            self._refuse([f"a total length other than {positions[-1] + 1}, the length of past and new tokens"])
        if self.do_rotary:
            table = (cos, sin, np.tile(positions, (len(query), 1)), self.rotary_interleaved, 2 * cos.shape[-1])
            query, key = rotary_embedding(query, *table, heads), rotary_embedding(key, *table, shared)
        behind = positions[:, None] - np.arange(positions[-1] + 1)
        is_seen = (behind >= 0) & ((behind < self.local_window_size) | (self.local_window_size < 0))
        return _attention_with_past(self, (query, key, value), past, np.where(is_seen, 0.0, -np.inf))


def _attention_with_past(node: Any, given: tuple[Any, Any, Any], past: Any, bias: Any) -> tuple[Any, Any, Any]:
    """Return the attention output, and the keys and values with the past ones prepended."""
    heads, shared, softcap = node.num_heads, getattr(node, "kv_num_heads", node.num_heads), getattr(node, "softcap", 0)
    counts = zip(given, (heads, shared, shared), strict=True)
    query, key, value = (np.swapaxes(x.reshape(*x.shape[:2], count, -1), 1, 2) for x, count in counts)
    if past[0] is not None:
        key, value = (np.concatenate(pair, axis=2) for pair in zip(past, (key, value), strict=True))
    keys, values = (np.repeat(x, heads // shared, axis=1) for x in (key, value))
    scores = query @ np.swapaxes(keys, -1, -2) * query.dtype.type(node.scale or query.shape[-1] ** -0.5)
    scores = float(softcap) * np.tanh(scores / float(softcap)) if softcap else scores
    scores = scores if bias is None else scores + bias.astype(query.dtype)
    powers = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    y = np.swapaxes(powers / np.sum(powers, axis=-1, keepdims=True) @ values, 1, 2)
    return y.reshape(*y.shape[:2], -1), key, value


OPERATORS: list[Any] = [each for each in [*vars().values()] if isinstance(each, type) and each.__module__ == __name__]
OPERATORS += [type(x, (Gelu,), {"op_domain": "com.microsoft"}) for x in ("Gelu", "BiasGelu", "FastGelu", "QuickGelu")]
