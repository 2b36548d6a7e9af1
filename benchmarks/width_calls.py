"""Calls of every operator that takes floats, in a width: the dimension that a kernel loops over has that size.

Elementwise operators get ``n`` elements, reductions and normalisations ``n`` along their dimension, contractions ``n``
products for each output, attention ``n`` keys, pooling windows of ``n``. Other sizes stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from optest.generators.fills import check_fill
from optest.operators import operators
from optest.operators.calls import call
from optest.operators.catalogue import DESCRIPTORS
from optest.plan import CaseRequest, PlanHost
from optest.plan.from_samples import cases_of_samples
from optest.spec import BackendTarget, OperatorDescriptor, RuleClass, Sample, TestCase

__all__ = ["CALLS", "DTYPES", "WIDTHS", "cases_of", "cases_of_width", "float_operators"]

DTYPES = ("float32", "float16", "bfloat16")
WIDTHS = (1, 17, 4096, 65_536)

Calls = Callable[[int, str], list[dict[str, Any]]]


def _in_one_dtype(dtype: str, attributes: Mapping[str, Any] | None = None, **shapes: Any) -> dict[str, Any]:
    return call(attributes, dtypes=[dtype], **shapes)


def _unary(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, input=(n,))]


def _binary(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, input=(n,), other=(n,))]


def _along_dim(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, {"dim": 1}, input=(3, n))]


def _with(attributes: Mapping[str, Any] | None = None, **shape_of: Callable[[int], tuple[int, ...]]) -> Calls:
    """Return one call with these attributes and with shapes that are functions of the width."""
    return lambda n, dtype: [_in_one_dtype(dtype, attributes, **{name: shape(n) for name, shape in shape_of.items()})]


def _cast(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, {"dtype": result}, input=(n,)) for result in (*DTYPES, "int32") if result != dtype]


def _rounded(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, {"decimals": decimals}, input=(n,)) for decimals in (0, 2)]


def _quotient(n: int, dtype: str) -> list[dict[str, Any]]:
    modes: tuple[dict[str, Any], ...] = ({}, {"rounding_mode": "floor"})
    return [_in_one_dtype(dtype, mode, input=(n,), other=(n,)) for mode in modes]


def _gelu(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, {"approximate": form}, input=(n,)) for form in ("none", "tanh")]


def _variance(n: int, dtype: str) -> list[dict[str, Any]]:
    # One value has no variance unless the correction is 0.
    return [_in_one_dtype(dtype, {"dim": 1, "correction": 0 if n == 1 else 1}, input=(3, n))]


def _norms(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, {"dim": 1, "p": p}, input=(3, n)) for p in (1.0, 2.0, 3.0)]


def _layer_norm(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, {"normalized_shape": [n]}, input=(2, n), weight=(n,), bias=(n,))]


def _rms_norm(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, {"normalized_shape": [n]}, input=(2, n), weight=(n,))]


def _batch_norm(n: int, dtype: str) -> list[dict[str, Any]]:
    # Two batches, so that a channel has more than one value. Training ignores running statistics.
    affine = {"weight": (3,), "bias": (3,)}
    running = {"running_mean": (3,), "running_var": (3,)}
    return [
        _in_one_dtype(dtype, input=(2, 3, n), **running, **affine),
        _in_one_dtype(dtype, {"training": True}, input=(2, 3, n), **running, **affine),
    ]


def _convolution(n: int, dtype: str) -> list[dict[str, Any]]:
    # n input channels, and n positions.
    return [
        _in_one_dtype(dtype, input=(1, n, 5), weight=(2, n, 3), bias=(2,)),
        _in_one_dtype(dtype, {"padding": 1}, input=(1, 2, n), weight=(3, 2, 3), bias=(3,)),
    ]


def _convolution_2d(n: int, dtype: str) -> list[dict[str, Any]]:
    return [
        _in_one_dtype(dtype, input=(1, n, 3, 3), weight=(2, n, 2, 2), bias=(2,)),
        _in_one_dtype(dtype, {"padding": 1}, input=(1, 2, 3, n), weight=(3, 2, 3, 3), bias=(3,)),
    ]


def _window(n: int, dtype: str) -> list[dict[str, Any]]:
    # Windows of n elements, and n windows.
    return [
        _in_one_dtype(dtype, {"kernel_size": [1, n], "stride": [1, 1]}, input=(1, 2, 3, n + 2)),
        _in_one_dtype(dtype, {"kernel_size": [2, 2], "stride": [1, 1]}, input=(1, 2, 2, n + 1)),
    ]


def _split(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, {"split_size_or_sections": max(1, n // 2), "dim": 1}, input=(2, n))]


def _indexed(name: str) -> Calls:
    def calls(n: int, dtype: str) -> list[dict[str, Any]]:
        if name == "embedding":
            return [call(dtypes=[dtype, "int64"], weight=(n, 3), indices=(7,))]
        if name == "index_select":
            return [call({"dim": 1}, dtypes=[dtype, "int64"], input=(2, n), index=(n,))]
        if name == "gather":
            return [call({"dim": 1}, dtypes=[dtype, "int64"], input=(2, n), index=(2, n))]
        few = call({"dim": 1}, dtypes=[dtype, "int64", dtype], input=(2, n), index=(2, n), src=(2, n))
        return [few, call({"dim": 1}, dtypes=[dtype, "int64", dtype], input=(2, 3), index=(2, n), src=(2, n))]

    return calls


def _indexed_once(name: str) -> Calls:
    """Return calls with indices into a width, or with as many indices; no element is written twice."""

    def calls(n: int, dtype: str) -> list[dict[str, Any]]:
        few = min(n, 5)
        if name == "take":
            return [call(dtypes=[dtype, "int64"], input=(n,), index=(7,))]
        if name == "cross_entropy":
            return [call(dtypes=[dtype, "int64"], input=(2, n), target=(2,))]
        if name == "index_add":
            return [call({"dim": 1}, dtypes=[dtype, "int64", dtype], input=(2, 3), index=(n,), source=(2, n))]
        if name == "index_copy":
            return [call({"dim": 1}, dtypes=[dtype, "int64", dtype], input=(2, n), index=(few,), source=(2, few))]
        return [call({"dim": 1}, dtypes=[dtype, "int64", dtype], input=(2, n), index=(2, few), src=(2, few))]

    return calls


def _add_rms_norm(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, {"normalized_shape": [n]}, input=(2, n), other=(2, n), weight=(n,))]


def _attention(n: int, dtype: str) -> list[dict[str, Any]]:
    # Three tokens after the n tokens of the caches.
    new, cache = (1, 3, 8), (1, n + 3, 8)
    return [_in_one_dtype(dtype, {"pos": n}, query=(2, 3, 8), key=new, value=new, key_cache=cache, value_cache=cache)]


def _paged_attention(n: int, dtype: str) -> list[dict[str, Any]]:
    # One block of n tokens for each of two sequences.
    dtypes, cache = [dtype, dtype, dtype, "int64", "int64"], (2, 1, n, 8)
    return [
        call(dtypes=dtypes, query=(2, 2, 8), key_cache=cache, value_cache=cache, block_tables=(2, 1), seq_lens=(2,))
    ]


def _paged_caching(n: int, dtype: str) -> list[dict[str, Any]]:
    few, cache = min(n, 5), (1, 1, n, 3)
    new = (few, 1, 3)
    dtypes = [dtype, dtype, dtype, dtype, "int64"]
    return [call(dtypes=dtypes, key_cache=cache, value_cache=cache, key=new, value=new, slot_mapping=(few,))]


def _condition(n: int, dtype: str) -> list[dict[str, Any]]:
    return [call(dtypes=["bool", dtype, dtype], condition=(n,), input=(n,), other=(n,))]


def _quantize(n: int, dtype: str) -> list[dict[str, Any]]:
    return [call(dtypes=[dtype, "float32", "int8"], input=(2, n), scale=(), zero_point=())]


def _dequantize(n: int, dtype: str) -> list[dict[str, Any]]:
    return [call({"dtype": dtype}, dtypes=["int8", "float32", "int8"], input=(2, n), scale=(n,), zero_point=(n,))]


def _dequantize_awq(n: int, dtype: str) -> list[dict[str, Any]]:
    return [call(dtypes=["int32", dtype, "int32"], qweight=(n, 2), scales=(1, 16), zeros=(1, 2))]


def _rope(n: int, dtype: str) -> list[dict[str, Any]]:
    return [
        _in_one_dtype(dtype, {"interleaved": kind}, input=(1, 2, n, 8), cos=(n, 4), sin=(n, 4))
        for kind in (False, True)
    ]


def _data(*values: Any) -> dict[str, Any]:
    return {"fill": "data", "values": list(values)}


def _paged_prefill(n: int, dtype: str) -> list[dict[str, Any]]:
    # Three tokens after n others of one sequence, in one block.
    cache, fills = (
        (2, 1, n + 3, 8),
        {"block_tables": _data([0]), "seq_lens": _data(n + 3), "cu_seqlens_q": _data(0, 3)},
    )
    shapes = {"block_tables": (1, 1), "seq_lens": (1,), "cu_seqlens_q": (2,)}
    dtypes = [*[dtype] * 3, *["int64"] * 3]
    return [{**call(dtypes=dtypes, query=(3, 2, 8), key_cache=cache, value_cache=cache, **shapes), "generator": fills}]


def _varlen_attention(n: int, dtype: str) -> list[dict[str, Any]]:
    fills = {"cu_seqlens_q": _data(0, 3), "cu_seqlens_k": _data(0, n)}
    shapes = {"query": (3, 2, 8), "key": (n, 2, 8), "value": (n, 2, 8), "cu_seqlens_q": (2,), "cu_seqlens_k": (2,)}
    return [{**call(dtypes=[*[dtype] * 3, "int32", "int32"], **shapes), "generator": fills}]


def _grouped_matmul(n: int, dtype: str) -> list[dict[str, Any]]:
    shapes = {"input": (9, n), "weight": (3, n, 4), "offs": (3,)}
    return [{**call(dtypes=[dtype, dtype, "int32"], **shapes), "generator": {"offs": _data(3, 4, 9)}}]


def _embedding_bag(n: int, dtype: str) -> list[dict[str, Any]]:
    base = call({"mode": "mean"}, dtypes=[dtype, "int64", "int64"], weight=(7, 3), indices=(n,), offsets=(1,))
    return [{**base, "generator": {"offsets": _data(0)}}]


def _top_k_top_p(n: int, dtype: str) -> list[dict[str, Any]]:
    return [call(dtypes=[dtype, "int32", "float32"], logits=(3, n), top_k=(3,), top_p=(3,))]


def _norm_backward(n: int, dtype: str) -> list[dict[str, Any]]:
    return [_in_one_dtype(dtype, {"normalized_shape": [n]}, grad_output=(2, n), input=(2, n), weight=(n,))]


def _quantized_matmul(name: str) -> Calls:
    """Return calls with ``n`` products for each output, 8 times as many if int32 packs them."""

    def calls(n: int, dtype: str) -> list[dict[str, Any]]:
        if name == "fp8_block_scaled_matmul":
            scales = {"input_scale": (3, 1), "weight_scale": (1, 1)}
            dtypes = ["float8_e4m3fn", "float8_e4m3fn", "float32", "float32"]
            return [call({"block_size": [4, n]}, dtypes=dtypes, input=(3, n), weight=(4, n), **scales)]
        if name == "awq_gemm":
            packed = {"qweight": (n, 1), "scales": (1, 8), "qzeros": (1, 1)}
            return [call(dtypes=[dtype, "int32", dtype, "int32"], input=(3, n), **packed)]
        packed = {"qweight": (n, 8), "qzeros": (1, 1), "scales": (1, 8)}
        if name == "dequantize_gptq":
            return [call(dtypes=["int32", "int32", dtype], **packed)]
        return [call(dtypes=[dtype, "int32", "int32", dtype], input=(3, 8 * n), **packed)]

    return calls


def _selective_scan(n: int, dtype: str) -> list[dict[str, Any]]:
    dtypes = [dtype] if dtype == "float32" else [dtype, dtype, "float32", dtype, dtype]
    return [call(dtypes=dtypes, u=(1, 2, n), delta=(1, 2, n), A=(2, 3), B=(1, 3, n), C=(1, 3, n))]


def _same(names: str, calls: Calls) -> dict[str, Calls]:
    """Return a table with the same calls for several operators, whose names are separated by blanks."""
    return dict.fromkeys(names.split(), calls)


CALLS: dict[str, Calls] = {
    **_same(
        "logical_not neg abs sign exp log log1p expm1 sqrt rsqrt reciprocal sin cos tanh erf erfinv digamma", _unary
    ),
    **_same("floor ceil trunc relu leaky_relu sigmoid silu softplus elu selu hardswish", _unary),
    **_same("add sub mul floor_divide remainder fmod eq ne lt le gt ge maximum minimum logaddexp", _binary),
    **_same("logical_and logical_or logical_xor", _binary),
    **_same("sum mean prod logsumexp cumsum softmax log_softmax", _along_dim),
    **_same("max min amax amin argmax argmin all any", _along_dim),
    "div": _quotient,
    "pow": _with(input=lambda n: (n,), exponent=lambda n: (n,)),
    "round": _rounded,
    "clip": _with({"min": -0.5, "max": 0.75}, input=lambda n: (n,)),
    "where": _condition,
    "cast": _cast,
    "gelu": _gelu,
    "swiglu": _with(gate=lambda n: (n,), up=lambda n: (n,)),
    "dot": _with(input=lambda n: (n,), tensor=lambda n: (n,)),
    "var": _variance,
    "norm": _norms,
    "causal_softmax": lambda n, dtype: [_in_one_dtype(dtype, input=(min(n, 3), n))],
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _with({"num_groups": 2}, input=lambda n: (2, 4, n), weight=lambda _: (4,), bias=lambda _: (4,)),
    "batch_norm": _batch_norm,
    "matmul": _with(input=lambda n: (4, n), other=lambda n: (n, 4)),
    "bmm": _with(input=lambda n: (2, 3, n), mat2=lambda n: (2, n, 3)),
    "gemm": _with({"alpha": 0.7, "beta": 1.3}, a=lambda n: (3, n), b=lambda n: (n, 4), c=lambda _: (3, 4)),
    "linear": _with(input=lambda n: (3, n), weight=lambda n: (4, n), bias=lambda _: (4,)),
    "einsum": _with({"equation": "ik,kj->ij"}, operands0=lambda n: (3, n), operands1=lambda n: (n, 4)),
    "conv1d": _convolution,
    "conv2d": _convolution_2d,
    "max_pool2d": _window,
    "avg_pool2d": _window,
    "adaptive_avg_pool2d": _with({"output_size": [1, 2]}, input=lambda n: (1, 2, 3, n)),
    "scaled_dot_product_attention": _with(
        query=lambda _: (1, 2, 3, 8), key=lambda n: (1, 2, n, 8), value=lambda n: (1, 2, n, 8)
    ),
    "rope": _rope,
    "transpose": _with({"dim0": 0, "dim1": 1}, input=lambda n: (2, n)),
    "permute": _with({"dims": [1, 0]}, input=lambda n: (2, n)),
    "reshape": lambda n, dtype: [_in_one_dtype(dtype, {"shape": [n, 2]}, input=(2, n))],
    "broadcast_to": lambda n, dtype: [_in_one_dtype(dtype, {"size": [2, n]}, input=(n,))],
    "tile": _with({"dims": [2, 2]}, input=lambda n: (2, n)),
    "flip": _with({"dims": [1]}, input=lambda n: (2, n)),
    "roll": _with({"shifts": [5], "dims": [1]}, input=lambda n: (2, n)),
    "tril": _with({"diagonal": 1}, input=lambda n: (3, n)),
    "triu": _with({"diagonal": 1}, input=lambda n: (3, n)),
    "concat": _with({"dim": 1}, tensors0=lambda n: (2, n), tensors1=lambda _: (2, 3)),
    "split": _split,
    "slice": _with({"dim": [1], "start": [0], "end": [-1], "step": [2]}, input=lambda n: (2, n + 1)),
    "pad": _with({"pad": [2, 3], "value": 0.5}, input=lambda n: (2, n)),
    "gather": _indexed("gather"),
    "index_select": _indexed("index_select"),
    "scatter_add": _indexed("scatter_add"),
    "embedding": _indexed("embedding"),
    "topk": lambda n, dtype: [_in_one_dtype(dtype, {"k": min(n, 5)}, input=(2, n))],
    "sort": _with(input=lambda n: (2, n)),
    **_same("clone zeros_like ones_like", _unary),
    "conv3d": _with(input=lambda n: (1, n, 2, 2, 3), weight=lambda n: (2, n, 1, 2, 2), bias=lambda _: (2,)),
    "random_sample": _with({"random_value": 0.3, "top_p": 0.9, "top_k": 8}, logits=lambda n: (n,)),
    **{name: _indexed_once(name) for name in ("take", "index_add", "index_copy", "scatter", "cross_entropy")},
    "kthvalue": lambda n, dtype: [_in_one_dtype(dtype, {"k": (n + 1) // 2, "dim": 1}, input=(2, n))],
    "topksoftmax": lambda n, dtype: [_in_one_dtype(dtype, {"topk": min(n, 5)}, input=(2, n))],
    "topkrouter": lambda n, dtype: [
        call({"topk": 8}, dtypes=[dtype, "float32"], input=(min(n, 17), 256), correction_bias=(256,))
    ],
    "add_rms_norm": _add_rms_norm,
    "normalize": _with({"dim": 1}, input=lambda n: (2, n)),
    "attention": _attention,
    "paged_attention": _paged_attention,
    "paged_caching": _paged_caching,
    "quantize": _quantize,
    "dequantize": _dequantize,
    "dequantize_awq": _dequantize_awq,
    "gelu_and_mul": _with(gate=lambda n: (n,), up=lambda n: (n,)),
    "rotary_embedding": lambda n, dtype: [
        call(
            dtypes=["int64", dtype, dtype, dtype], positions=(n,), query=(n, 2, 8), key=(n, 1, 8), cos_sin_cache=(33, 8)
        )
    ],
    "paged_prefill_attention": _paged_prefill,
    "varlen_attention": _varlen_attention,
    "grouped_matmul": _grouped_matmul,
    "embedding_bag": _embedding_bag,
    "moe_combine": lambda n, dtype: [
        call(dtypes=[dtype, "float32", "int32"], input=(10, n), topk_weights=(5, 2), inv_permuted_idx=(5, 2))
    ],
    **_same("top_k_top_p_mask top_k_top_p_sampling", _top_k_top_p),
    "cross_entropy_backward": lambda n, dtype: [
        call(dtypes=[dtype, dtype, "int64"], grad_output=(), input=(2, n), target=(2,))
    ],
    **_same("rms_norm_backward layer_norm_backward", _norm_backward),
    "adamw": _with(**{name: lambda n: (n,) for name in ("param", "grad", "exp_avg", "exp_avg_sq")}),
    "merge_attention_states": lambda n, dtype: [
        call(
            dtypes=[dtype, "float32", dtype, "float32"],
            prefix_output=(3, 2, n),
            prefix_lse=(2, 3),
            suffix_output=(3, 2, n),
            suffix_lse=(2, 3),
        )
    ],
    "per_token_quant_int8": _with(input=lambda n: (2, n)),
    "per_token_group_quant_fp8": lambda n, dtype: [_in_one_dtype(dtype, {"group_size": n}, input=(2, n))],
    **{
        name: _quantized_matmul(name)
        for name in ("fp8_block_scaled_matmul", "awq_gemm", "dequantize_gptq", "gptq_gemm")
    },
    "causal_conv1d": _with(x=lambda n: (1, 2, n), weight=lambda _: (2, 4), bias=lambda _: (2,)),
    "causal_conv1d_update": _with(
        x=lambda n: (2, n), conv_state=lambda n: (2, n, 3), weight=lambda n: (n, 4), bias=lambda n: (n,)
    ),
    "selective_scan": _selective_scan,
}
"""Functions from a width and a dtype to calls, by operator; without bitwise_*, which take no floats."""


def float_operators() -> list[OperatorDescriptor]:
    """Return the operators of the catalogue that take floats.

    Raises:
        KeyError: if one of them has no calls here.
    """
    floats = [x for x in DESCRIPTORS if any(set(variant) & set(DTYPES) for variant in x.dtype_variants)]
    missing = [x.name for x in floats if x.name not in CALLS]
    if missing:
        raise KeyError(f"no calls of a width for {', '.join(missing)}")
    return floats


def _integer_exact(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the call with values whose sums are exact in any order; indices stay as they are."""
    dtypes = entry["dtypes"]
    kinds = dtypes * len(entry["shapes"]) if len(dtypes) == 1 else dtypes
    exact = {name: "integer-exact" for name, kind in zip(entry["shapes"], kinds, strict=True) if "float" in kind}
    return {**entry, "generator": {**exact, **entry.get("generator", {})}}


def cases_of_width(descriptor: OperatorDescriptor, dtype: str, width: int, target: BackendTarget) -> list[TestCase]:
    """Build the cases of an operator in a dtype and a width, with the seed 0.

    Sums and contractions get each case a second time, with values whose sums are exact in any order.
    """
    calls = CALLS[descriptor.name](width, dtype)
    samples = [Sample(case_set="widths", case=x) for x in calls]
    if descriptor.rule is not None and descriptor.rule.kind is RuleClass.ACCUMULATE:
        samples += [Sample(case_set="integer-exact", case=_integer_exact(x)) for x in calls]
    return cases_of(descriptor, samples, target)


def cases_of(descriptor: OperatorDescriptor, samples: Iterable[Sample], target: BackendTarget) -> list[TestCase]:
    """Build the cases of samples of an operator, with the seed 0 unless a sample has a seed."""
    host = PlanHost(operators=operators, target=target, check_fill=check_fill)
    return list(cases_of_samples(descriptor, samples, CaseRequest(seed=0), host).cases)
