"""Arguments that inference refuses, and the messages."""

from __future__ import annotations

import re
from typing import Any

import pytest
from references import spec

from optest.operators import operators
from optest.registry import load_object
from optest.spec import TensorSpec, UnfitArguments

Row = tuple[list["TensorSpec | None"], dict[str, Any], str]


def of(*shapes: tuple[int, ...], dtype: str = "float32") -> list[TensorSpec | None]:
    return [spec(shape, dtype) for shape in shapes]


X, ONE, HALF = spec((3, 4)), spec(()), of((2, 5, 8), (2, 5, 8), (2, 5, 8), dtype="float16")

REFUSED: dict[str, list[Row]] = {
    "add": [
        (of((2, 3), (2, 4)), {}, "size 4 at dimension -1, expected 3 or 1 to broadcast"),
        (of((2,), (2,), dtype="int8"), {"alpha": 0.5}, "alpha is 0.5, expected an integer"),
        (of((2,), (2,), dtype="int8"), {"alpha": 300}, "alpha is 300, expected an integer"),
        ([spec((2,), "float8_e5m2"), spec((2,))], {}, "no common dtype"),
        (of((2,)), {}, "other is missing"),
    ],
    "sub": [(of((2,), (2,), dtype="int32"), {"alpha": 0.5}, "alpha is 0.5, expected an integer")],
    "clip": [
        (of((3,), dtype="uint8"), {"min": -1.0}, "min is -1, expected an integer of 0 to 255 for uint8"),
        (of((3,)), {}, "expected at least one of them"),
    ],
    "round": [(of((3,), dtype="int32"), {"decimals": 1}, "decimals is 1, expected 0 for int32")],
    "cast": [(of((2,), dtype="complex64"), {"dtype": "float32"}, "expected complex or bool")],
    "where": [(of((4,), (4,), (4,)), {}, "condition is float32, expected bool")],
    "swiglu": [
        (of((3, 5)), {}, "gate is 3x5, expected an even last dimension"),
        (of(()), {}, "gate is scalar, expected an even last dimension"),
        (of((4,), dtype="int32"), {}, "gate is int32, expected a float dtype"),
        (of((3, 4), (4,)), {}, "up is 4, expected 3x4, with shape as in gate"),
        ([X, spec((3, 4), "float16")], {}, "up is float16, expected float32"),
    ],
    "softplus": [(of((3,)), {"beta": -1.0}, "beta is -1, expected a number above 0")],
    "matmul": [
        (of((2, 3), (4, 5)), {}, "other is 4x5, expected 3 rows"),
        (of((), (4, 5)), {}, "input is a scalar, expected 1 dimension or more"),
        ([spec((2, 3)), spec((3, 2), "float64")], {}, "other is float64, expected float32"),
        (of((3, 3), (3, 3), dtype="int8"), {"out_dtype": "float32"}, "out_dtype is float32, expected int8"),
        (of((3, 3), (3, 3)), {"out_dtype": "float16"}, "out_dtype is float16, expected float32"),
        (of((3, 3), (3, 3)), {"out_dtype": "int32"}, "out_dtype is int32, expected float32"),
        (of((3, 3), (3, 3), dtype="int64"), {"out_dtype": "int32"}, "out_dtype is int32, expected int64"),
    ],
    "gemm": [
        (of((2, 3), (2, 3)), {}, "b is 2x3 with a depth of 2, expected 3"),
        (of((2, 3), (3, 4), (2,)), {}, "c is 2, expected a shape that broadcasts to 2x4"),
        (of((2, 3), (3, 4), (1, 2, 4)), {}, "c is 1x2x4, expected a shape that broadcasts to 2x4"),
        (of((2,), (3, 4)), {}, "a is 2, expected 2 dimensions, or 3 with a batch"),
        (of((2, 2), (2, 2), dtype="int32"), {"beta": 0.5}, "beta is 0.5, expected an integer"),
    ],
    "conv2d": [(of((1, 4, 9, 9), (3, 4, 3, 3)), {"padding": 1.5}, "a list of integers or a string")],
    "sum": [
        (of((2, 3)), {"dim": 2}, "dim is 2, expected -2 to 1"),
        (of((2, 3)), {"dim": [0, -2]}, "expected each dimension once"),
    ],
    "norm": [(of((3,)), {"p": float("nan")}, "p is NaN, expected a number")],
    "cumsum": [
        (
            of((3,)),
            {"dim": 0, "dtype": name},
            f"dtype is {name}, expected an integer of 8 bits and more or a float",
        )
        for name in ("bool", "complex64", "int4")
    ],
    "dot": [([spec((3,)), spec((3,), "float64")], {}, "tensor is float64, expected float32")],
    "softmax": [(of((2, 3)), {"dim": -3}, "dim is -3, expected -2 to 1")],
    "causal_softmax": [(of((3,)), {}, "input is 3, expected 2 dimensions or more")],
    "layer_norm": [
        (of((2, 3)), {"normalized_shape": [2]}, "normalized_shape is 2, expected the last sizes of input"),
        (of((2, 3)), {"normalized_shape": []}, "normalized_shape is empty"),
        (of((2, 3), (2,)), {"normalized_shape": [3]}, "weight is 2, expected 3"),
        (
            [X, None, spec((4,), "float16")],
            {"normalized_shape": [4]},
            "bias is float16, expected float32",
        ),
    ],
    "batch_norm": [
        (of((2, 3), (3,)), {}, "one of running_mean and running_var is missing"),
        (of((3,), (3,), (3,)), {}, "input is 3, expected 2 dimensions or more"),
    ],
    "transpose": [(of((2, 3)), {"dim0": 0, "dim1": 2}, "dim1 is 2, expected -2 to 1")],
    "split": [
        ([X], {"split_size_or_sections": (1, 1)}, "sections is [1, 1], expected sizes that add up to 3"),
    ],
    "pad": [([X], {"pad": (4, 0), "mode": "reflect"}, "at most 3 for a size of 4 in mode reflect")],
    "broadcast_to": [([X], {"size": (3, 5)}, "size at dimension 1 is 5, expected 4 or -1")],
    "max_pool2d": [
        (of((1, 2, 6, 6)), {"kernel_size": 3, "padding": 2}, "half of kernel_size"),
        (of((1, 2, 6, 6)), {"kernel_size": 2, "padding": 2, "dilation": 3}, "half of kernel_size"),
        (of((1, 2, 3, 3)), {"kernel_size": 4}, "expected at most 3x3, the padded input"),
        (of((1, 0, 6, 6)), {"kernel_size": 2}, "no size 0"),
        (of((6, 6)), {"kernel_size": 2}, "3 or 4 dimensions"),
        (of((1, 2, 6, 6)), {"kernel_size": 2, "stride": 0}, "stride is"),
        (of((1, 2, 6, 6)), {"kernel_size": [2, 2, 2]}, "one number or two"),
    ],
    "avg_pool2d": [(of((1, 2, 6, 6)), {"kernel_size": 2, "divisor_override": 0}, "divisor_override is 0")],
    "adaptive_avg_pool2d": [(of((1, 2, 6, 6)), {"output_size": -1}, "output_size is")],
    "sdpa": [
        (of((2, 5, 8), (2, 7, 9), (2, 7, 8)), {}, "key is 2x7x9, expected 2x7x8, with size as in query"),
        (of((2, 5, 8), (2, 7, 8), (2, 6, 8)), {}, "value is 2x6x8, expected 2x7x8, with keys as in key"),
        (of((4, 5, 8), (2, 7, 8), (2, 7, 8)), {}, "broadcast"),
        (of((4, 5, 8), (3, 7, 8), (3, 7, 8)), {"enable_gqa": True}, "divisor of 4"),
        (of((5, 8), (7, 8), (7, 8)), {"enable_gqa": True}, "expected 3 or more with heads"),
        (of((8,), (8,), (8,)), {}, "2 dimensions"),
        (of((2, 5, 8), (2, 7, 8), (2, 7, 8), (5, 6)), {}, "attn_mask is 5x6"),
        (of((2, 5, 8), (2, 7, 8), (2, 7, 8), (7,)), {}, "attn_mask is 7"),
        (of((2, 5, 8), (2, 7, 8), (2, 7, 8), (5, 7)), {"is_causal": True}, "one of them"),
        ([*HALF, spec((5, 5), "int32")], {}, "attn_mask is int32"),
    ],
    "rope": [
        (of((2, 5, 7), (5, 3), (5, 3)), {}, "even number"),
        (of((2, 5, 8), (5, 8), (5, 8)), {}, "cos is 5x8, expected 5x4, as half of rotated"),
        (of((2, 5, 8), (6, 4), (6, 4)), {}, "cos has 6 rows"),
        (of((2, 5, 8), (5, 4), (4, 4)), {}, "sin is 4x4"),
        (of((2, 5, 8), (5, 5), (5, 5)), {"rotary_embedding_dim": 10}, "up to 8"),
        ([*of((2, 5, 8), (2, 5, 4), (2, 5, 4)), spec((2, 5), "int64")], {}, "is 2x5x4, expected a table of rows x 4"),
        ([*of((2, 5, 8), (9, 4), (9, 4)), spec((2, 6), "int64")], {}, "position_ids has 2x6"),
        (of((8,), (4,), (4,)), {}, "2 dimensions"),
    ],
    "quantize": [
        ([X, spec((3,))], {}, "expected 1, or 4 for dimension 1"),
        ([X, spec((3,))], {"axis": 2}, "axis is 2, expected -2 to 1"),
        ([X, X], {}, "scale is 3x4"),
        ([X, spec((), "int8")], {}, "scale is int8, expected a float"),
        ([X, spec((4,)), spec((3,), "int8")], {}, "zero_point is 3, expected 4"),
        ([X, ONE, spec((), "uint8")], {"dtype": "int8"}, "zero_point is uint8, expected int8"),
        ([X, ONE, spec((), "int64")], {}, "which no output can have; set the attribute dtype"),
        ([X, ONE], {"quant_min": 5, "quant_max": 3}, "quant_min and quant_max are 5 and 3"),
        ([X, ONE], {"quant_min": -1}, "quant_min and quant_max are -1"),
        ([spec((3,), "int32"), ONE], {}, "input is int32, expected a float"),
    ],
    "dequantize": [
        ([X, ONE], {}, "input is float32"),
        ([spec((3,), "int8"), ONE, spec((), "uint8")], {}, "zero_point is uint8"),
    ],
    "random_sample": [
        (of(()), {}, "logits is"),
        (of((0,)), {}, "logits is 0"),
        (of((2, 3)), {}, "logits is 2x3"),
        (of((3,)), {"random_value": 1.5}, "random_value is 1.5"),
        (of((3,)), {"random_value": float("nan")}, "random_value is nan"),
        (of((3,)), {"temperature": -1.0}, "temperature is -1"),
        (of((3,)), {"top_p": float("nan")}, "top_p is nan"),
        (of((3,)), {"top_k": -1}, "top_k is -1"),
        (of((129,)), {"dtype": "int8"}, "dtype is int8, expected an integer dtype that holds index 128"),
        (of((3,)), {"dtype": "float32"}, "dtype is float32, expected an integer dtype that holds index 2"),
    ],
}
REFUSED |= {
    "logaddexp": [(of((3,), (3,), dtype="int32"), {}, "the common dtype is int32, expected a float")],
    "take": [(of((3,), (3,)), {}, "index is float32")],
    "kthvalue": [
        (of((2, 3)), {"k": 4}, "k is 4, expected 1 to 3"),
        (of((2, 3)), {"k": 0, "dim": 0}, "k is 0, expected 1 to 2"),
    ],
    "index_add": [
        ([X, spec((2,), "int64"), spec((3, 3))], {"dim": 1}, "source is 3x3, expected 3x2"),
        ([X, spec((2, 1), "int64"), spec((3, 2))], {"dim": 1}, "index is 2x1, expected 1 dimension"),
        ([X, spec((2,), "int16"), spec((3, 2))], {"dim": 1}, "index is int16"),
    ],
    "index_copy": [([X, spec((2,), "int64"), spec((3, 2), "float16")], {"dim": 1}, "source is float16")],
    "scatter": [
        ([X, spec((3, 5), "int64"), spec((3, 5))], {"dim": 0}, "expected no size larger than in src, 3x5, or in input")
    ],
    "cross_entropy": [
        ([X, spec((3,), "int64")], {"label_smoothing": 1.75}, "label_smoothing is 1.75, expected 0 to 1"),
        ([X, spec((4,), "int64")], {}, "target is 4, expected 3"),
        ([X, spec((3,), "int64"), spec((3,))], {}, "weight is 3, expected 4, with classes as in input"),
        ([X, spec((3,))], {}, "target is float32"),
    ],
    "add_rms_norm": [(of((3, 4), (4,)), {"normalized_shape": [4]}, "other is 4, expected 3x4")],
    "normalize": [(of((3,)), {}, "dim is 1, expected -1 to 0")],
    "topksoftmax": [(of((3, 4)), {"topk": 5}, "topk is 5, expected 1 to 4")],
    "topkrouter": [
        (of((3, 36), (36,)), {"topk": 2}, "n_group is 8, expected a divisor of 36 columns with groups of 2 or more"),
        (of((3, 64), (64,)), {"topk": 2, "topk_group": 9}, "topk_group is 9, expected 1 to 8"),
        (of((3, 64), (63,)), {"topk": 2}, "correction_bias is 63, expected 64"),
    ],
    "attention": [
        (of(*[(4, 2, 8)] * 3, *[(4, 5, 8)] * 2), {"pos": 4}, "key_cache has 5 tokens, expected 6 or more"),
        (
            of((4, 2, 8), *[(3, 2, 8)] * 2, *[(3, 5, 8)] * 2),
            {"pos": 1},
            "key has 3 heads, expected a divisor of 4",
        ),
    ],
    "scaled_dot_product_attention": [
        (of(*[(2, 5, 8)] * 3), {"window_size": (3,)}, "window_size is [3], expected two numbers of -1 or more"),
        (of(*[(2, 5, 8)] * 3), {"softcap": -2.0}, "softcap is -2, expected 0 or more"),
    ],
    "varlen_attention": [
        (
            [*of(*[(8, 2, 4)] * 3), spec((3,), "int32"), spec((4,), "int32")],
            {},
            "cu_seqlens_k is 4, expected 3, with offsets as in cu_seqlens_q",
        ),
    ],
    "paged_prefill_attention": [
        (
            [*of((8, 4, 4), *[(6, 3, 2, 4)] * 2), *(spec(each, "int64") for each in ((2, 3), (2,), (3,)))],
            {},
            "key_cache has 3 heads, expected a divisor of 4",
        ),
    ],
    "rotary_embedding": [
        ([spec((5,), "int64"), *of((5, 2, 8), (5, 1, 8), (9, 10))], {}, "9x10, expected rows of an even size up to 8"),
        (
            [spec((5,), "int64"), *of((5, 2, 8), (4, 1, 8), (9, 8))],
            {},
            "key is 4x1x8, expected 5x1x8, with tokens as in positions",
        ),
    ],
    "moe_align": [([spec((5, 2), "int32")], {"block_size": 0, "num_experts": 4}, "block_size is 0 and num_experts 4")],
    "moe_combine": [(of((5, 8), (3, 2)), {}, "input has 5 rows, expected 6")],
    "grouped_matmul": [
        (
            [*of((5, 8), (2, 7, 4)), spec((2,), "int32")],
            {},
            "weight is 2x7x4, expected 2x8x4, with depth as in input",
        ),
        ([*of((5, 8), (2, 8, 4)), spec((3,), "int32")], {}, "offs is 3, expected 2, with experts as in weight"),
    ],
    "top_k_top_p_mask": [(of((5, 0)), {}, "logits has rows of 0 elements, expected 1 or more")],
    "top_k_top_p_sampling": [
        ([spec((5, 7)), spec((5,), "int32")], {"dtype": "int8"}, "dtype is int8, expected int32 or int64"),
    ],
    "paged_caching": [
        ([*of(*[(4, 2, 5, 8)] * 2, *[(6, 3, 8)] * 2), spec((6,), "int64")], {}, "key is 6x3x8, expected 6x2x8"),
        ([*of(*[(0, 2, 5, 8)] * 2, *[(6, 2, 8)] * 2), spec((6,), "int64")], {}, "has 6 elements, expected 0"),
    ],
    "dequantize_awq": [
        (
            [spec((8, 5), "int32"), spec((2, 39)), spec((2, 5), "int32")],
            {},
            "scales is 2x39, expected 2x40, with columns as in qweight",
        ),
        (
            [spec((8, 5), "int32"), spec((3, 40)), spec((3, 5), "int32")],
            {},
            "scales has 3 rows, expected a divisor of 8",
        ),
    ],
    "rms_norm_backward": [
        (of((3, 4), (4, 4)), {"normalized_shape": [4]}, "input is 4x4, expected 3x4"),
        (of((3, 4), (3, 4), (3,)), {"normalized_shape": [4]}, "weight is 3, expected 4, as normalized shape"),
    ],
    "cross_entropy_backward": [
        ([spec((3,)), X, spec((3,), "int64")], {}, "grad_output is 3, expected scalar, as the loss"),
        ([spec(()), X, spec((4,), "int64")], {}, "target is 4, expected 3"),
    ],
    "adamw": [
        (of((3, 4), (3, 4), (4,), (3, 4)), {}, "exp_avg is 4, expected 3x4, with shape as in param"),
        (of(*[(3, 4)] * 4), {"step": 0}, "step is 0, expected 1 or more"),
        (of(*[(3, 4)] * 4), {"beta2": 1.75}, "beta2 is 1.75, expected at least 0 and below 1"),
    ],
    "causal_conv1d": [
        (of((2, 5, 9), (4, 4)), {}, "weight is 4x4, expected 5x4, with dim as in x"),
        ([*of((2, 5, 9), (5, 4)), None, spec((2, 5, 4))], {}, "initial_states is 2x5x4, expected 2x5x3"),
    ],
    "causal_conv1d_update": [
        (of((2, 5), (2, 5, 2), (5, 4)), {}, "conv_state has 2 elements per channel, expected 3 or more")
    ],
    "selective_scan": [
        (of(*[(2, 5, 7)] * 2, (4, 3), *[(2, 3, 7)] * 2), {}, "A is 4x3, expected 5x3"),
        (
            of(*[(2, 6, 7)] * 2, (6, 3), (2, 4, 3, 7), (2, 3, 7)),
            {},
            "B is 2x4x3x7, expected 6x3, 2x3x7, or 2xGROUPS",
        ),
        ([*of(*[(2, 5, 7)] * 2, (5, 3), *[(2, 3, 7)] * 2), spec((5,), "float16")], {}, "D is float16"),
    ],
    "embedding_bag": [
        ([X, spec((7,), "int64")], {}, "indices is 7, expected 2 dimensions"),
        ([X, spec((7,), "int64"), spec((0,), "int64")], {"include_last_offset": True}, "offsets is empty"),
        ([X, spec((2, 3), "int64"), None, spec((2, 3))], {}, "given with mode mean, expected only with mode sum"),
    ],
    "per_token_group_quant_fp8": [([X], {"group_size": 0}, "group_size is 0, expected 1 or more")],
    "fp8_block_scaled_matmul": [
        (
            of((3, 9), (5, 9), (3, 2), (2, 3)),
            {"block_size": [4, 8]},
            "weight_scale is 2x3, expected 2x2, with blocks as in input_scale",
        ),
        (of((3, 9), (5, 8), (3, 2), (2, 2)), {}, "weight is 5x8, expected 5x9, with depth as in input"),
        (of((3, 9), (5, 9), (3, 2), (2, 2)), {"block_size": [4]}, "block_size is [4]"),
    ],
    "dequantize_gptq": [
        ([spec((2, 8), "int32"), spec((3, 1), "int32"), spec((3, 8))], {}, "has 3 rows, expected a divisor of 16"),
        (
            [spec((2, 8), "int32"), spec((2, 2), "int32"), spec((2, 8))],
            {},
            "qzeros has 2 columns, expected 1",
        ),
    ],
    "gptq_gemm": [
        (
            [X, spec((2, 8), "int32"), spec((1, 1), "int32"), spec((1, 8))],
            {},
            "input is 3x4, expected 3x16, with depth as in weights",
        )
    ],
    "awq_gemm": [
        (
            [X, spec((5, 1), "int32"), spec((1, 8)), spec((1, 1), "int32")],
            {},
            "input is 3x4, expected 3x5, with depth as in weights",
        )
    ],
}
DEFAULTS = {"random_sample": {"random_value": 0.5}}


@pytest.mark.parametrize(("operator", "row"), [(name, row) for name, rows in REFUSED.items() for row in rows])
def test_inference_refuses_unfit_arguments(operator: str, row: Row) -> None:
    specs, attributes, message = row
    descriptor = operators.get(operator)
    with pytest.raises(UnfitArguments, match=re.escape(message)):
        load_object(str(descriptor.infer))(specs, descriptor.bind({**DEFAULTS.get(operator, {}), **attributes}))
