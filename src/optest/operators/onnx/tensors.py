"""Tensors as ONNX names them, for the names of ONNX that are aliases of an operator: nothing but names is different."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ALIASES", "Alias"]


class Alias(NamedTuple):
    """The operator that the alias stands for, and its tensors under ONNX's names in the operator's order."""

    operator: str
    signature: str


ALIASES = {
    "Abs": Alias("abs", "X -> Y"),
    "Add": Alias("add", "A, B -> C"),
    "And": Alias("logical_and", "A, B -> C"),
    "BitwiseAnd": Alias("bitwise_and", "A, B -> C"),
    "BitwiseNot": Alias("bitwise_not", "X -> Y"),
    "BitwiseOr": Alias("bitwise_or", "A, B -> C"),
    "BitwiseXor": Alias("bitwise_xor", "A, B -> C"),
    "Ceil": Alias("ceil", "X -> Y"),
    "Concat": Alias("concat", "*inputs -> concat_result"),
    "Cos": Alias("cos", "input -> output"),
    "DequantizeLinear": Alias("dequantize", "x, x_scale, x_zero_point? -> y"),
    "Einsum": Alias("einsum", "*Inputs -> Output"),
    "Elu": Alias("elu", "X -> Y"),
    "Equal": Alias("eq", "A, B -> C"),
    "Erf": Alias("erf", "input -> output"),
    "Exp": Alias("exp", "input -> output"),
    "Floor": Alias("floor", "X -> Y"),
    "Gelu": Alias("gelu", "X -> Y"),
    "Gemm": Alias("gemm", "A, B, C? -> Y"),
    "Greater": Alias("gt", "A, B -> C"),
    "GreaterOrEqual": Alias("ge", "A, B -> C"),
    "GroupNormalization": Alias("group_norm", "X, scale?, bias? -> Y"),
    "HardSwish": Alias("hardswish", "X -> Y"),
    "Identity": Alias("clone", "input -> output"),
    "LeakyRelu": Alias("leaky_relu", "X -> Y"),
    "Less": Alias("lt", "A, B -> C"),
    "LessOrEqual": Alias("le", "A, B -> C"),
    "Log": Alias("log", "input -> output"),
    "LogSoftmax": Alias("log_softmax", "input -> output"),
    "MatMul": Alias("matmul", "A, B -> Y"),
    "Max": Alias("maximum", "data_0, data_1 -> max"),
    "Min": Alias("minimum", "data_0, data_1 -> min"),
    "Mul": Alias("mul", "A, B -> C"),
    "Neg": Alias("neg", "X -> Y"),
    "Not": Alias("logical_not", "X -> Y"),
    "Or": Alias("logical_or", "A, B -> C"),
    "QuantizeLinear": Alias("quantize", "x, y_scale, y_zero_point? -> y"),
    "Reciprocal": Alias("reciprocal", "X -> Y"),
    "Relu": Alias("relu", "X -> Y"),
    "RotaryEmbedding": Alias("rope", "X, cos_cache, sin_cache, position_ids? -> Y"),
    "Round": Alias("round", "X -> Y"),
    "Sigmoid": Alias("sigmoid", "X -> Y"),
    "Sign": Alias("sign", "input -> output"),
    "Sin": Alias("sin", "input -> output"),
    "Slice": Alias("slice", "data -> output"),
    "Softmax": Alias("softmax", "input -> output"),
    "Sqrt": Alias("sqrt", "X -> Y"),
    "Sub": Alias("sub", "A, B -> C"),
    "SwiGLU": Alias("swiglu", "A, B? -> Y"),
    "Tanh": Alias("tanh", "input -> output"),
    "Tile": Alias("tile", "input -> output"),
    "TopK": Alias("topk", "X -> Values, Indices"),
    "Where": Alias("where", "condition, X, Y -> output"),
    "Xor": Alias("logical_xor", "A, B -> C"),
}
"""By ONNX's name. Inputs that are an attribute of the operator (K of TopK) are left out."""
