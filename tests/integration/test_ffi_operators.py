"""Every operator of libinfiniop's mapping on the example library: right where it is right, and faults are told."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ffi_plans import ffi_case, run_ffi_plan
from library_faults import headers_of, in_rounds

from optest.api.report import Report
from optest.clib.library.mapping_file import mapping_path, read_mapping
from optest.spec import CheckState, Reason, Status

pytestmark = [
    pytest.mark.cxx,
]
FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
UNSIGNED = ("uint16", "uint32", "uint64")
"""Which arithmetic of optest does not have."""
NARROW_EPS = 9.999999747378752e-06
"""1e-5 as C's float."""


def case(op: str, *, dtypes: list[str], out: Any = None, **stated: Any) -> dict[str, Any]:
    """``out`` is the layout of the output."""
    further = {key: stated.pop(key) for key in ("attributes", "generator", "expects_error") if key in stated}
    shapes = {name: shape for name, shape in stated.items() if shape is not None}
    config = {"ffi": {"outputs": {"out": out}}} if out is not None else {}
    return {"op": op, "dtypes": dtypes, "shapes": shapes, "backend_config": config, **further}


def answered(folder: Path, cases: list[dict[str, Any]], library: Path, **config: Any) -> Report:
    place = {"mapping": "infiniop", "library": str(library), "headers": str(headers_of(library))}
    return run_ffi_plan(folder, cases, **place, **config)


def strided(*shape: int, last: int = 2) -> dict[str, Any]:
    """Gaps between all elements, rows backwards where there are rows."""
    strides = [last]
    for size in shape[:0:-1]:
        strides.insert(0, strides[0] * size + 1)
    if len(shape) > 1 and shape[0] > 1:
        return {"shape": list(shape), "strides": [-strides[0], *strides[1:]], "offset": strides[0] * (shape[0] - 1)}
    return {"shape": list(shape), "strides": strides}


def layout(*shape: int) -> dict[str, Any]:
    """Of an output: the same without its shape."""
    return {key: value for key, value in strided(*shape).items() if key != "shape"}


def _elementwise(dtype: str) -> list[dict[str, Any]]:
    x, y = strided(3, 4, 5), {"shape": [3, 4, 5], "strides": [1, 3, 12]}
    binary = [case(op, dtypes=[dtype], input=x, other=y, out=layout(3, 4, 5)) for op in ("add", "sub", "mul")]
    clipped = [
        case("clip", dtypes=[dtype], input=x, out=layout(3, 4, 5), attributes=bounds)
        for bounds in ({"min": 1.0, "max": 3.0}, {"max": 2.0}, {"min": 3.0, "max": 1.0})
    ]
    return clipped if dtype in UNSIGNED else [*binary, *clipped]


def _of_floats(dtype: str) -> list[dict[str, Any]]:
    one = ("relu", "gelu", "silu", "sigmoid", "tanh")
    rows, out = strided(3, 4, 5), layout(3, 4, 5)
    norm = {"normalized_shape": [5], "eps": NARROW_EPS}
    turned = {"input": strided(2, 3, 4, 6), "cos": strided(9, 3), "sin": {"shape": [9, 3], "strides": [1, 9]}}
    image = strided(2, 3, 7, 6)
    walk = {"stride": [1, 2], "padding": [1, 0], "dilation": [2, 1]}
    cube = {"stride": 2, "padding": [0, 1, 2], "dilation": [1, 2, 1]}
    drawn = {"random_value": 0.8125, "top_p": 0.75, "top_k": 20, "temperature": 0.5}
    factors = {"alpha": 0.5, "beta": -1.5}
    return [
        *(case(op, dtypes=[dtype], input=rows, out=out) for op in one),
        case("swiglu", dtypes=[dtype], gate=rows, up={"shape": [3, 4, 5], "strides": [1, 3, 12]}, out=out),
        case("gemm", dtypes=[dtype], a=strided(3, 7), b=strided(7, 4), c=[3, 4], attributes=factors, out=layout(3, 4)),
        case("gemm", dtypes=[dtype], a=strided(2, 3, 7), b=[2, 7, 4], c=[2, 3, 4], attributes=factors),
        case("gemm", dtypes=[dtype], a=strided(7, 3), b=[4, 7], attributes={"trans_a": True, "trans_b": True}),
        case("bmm", dtypes=[dtype], input=strided(2, 3, 7), mat2=strided(2, 7, 4)),
        case("softmax", dtypes=[dtype], input=rows, attributes={"dim": -2}, out=out),
        case("causal_softmax", dtypes=[dtype], input=rows, out=out),
        case("rms_norm", dtypes=[dtype], input=rows, weight=strided(5), attributes=norm, out=out),
        case("rms_norm", dtypes=[dtype], input=rows, weight=[5], attributes={"normalized_shape": [5]}),
        case("layer_norm", dtypes=[dtype], input=rows, weight=strided(5), bias=[5], attributes=norm, out=out),
        case("layer_norm", dtypes=[dtype], input=rows, weight=[5], attributes={**norm, "statistics": True}),
        case("conv1d", dtypes=[dtype], input=strided(2, 3, 9), weight=[4, 3, 2], bias=strided(4)),
        case("conv2d", dtypes=[dtype], input=image, weight=strided(4, 3, 3, 2), bias=[4], attributes=walk),
        case("conv3d", dtypes=[dtype], input=strided(1, 2, 5, 6, 4), weight=[3, 2, 2, 2, 3], attributes=cube),
        *(
            case("rope", dtypes=[dtype, dtype, dtype, index], **turned, position_ids=places, attributes=pairs)
            for index, places in (("int64", [4]), ("uint8", strided(2, 4)), ("int16", strided(4)))
            for pairs in ({"interleaved": True}, {"interleaved": False})
        ),
        case("rope", dtypes=[dtype], input=strided(3, 4, 6), cos=[4, 3], sin=strided(4, 3), out=layout(3, 4, 6)),
        case("random_sample", dtypes=[dtype], logits=strided(37), attributes=drawn),
        case("random_sample", dtypes=[dtype], logits=[65], attributes={"random_value": 0.9375, "dtype": "uint8"}),
    ]


def _of_any(dtype: str) -> list[dict[str, Any]]:
    layouts = {"input": strided(3, 4, 5), "out": layout(3, 4, 5)}
    return [
        *(case(op, dtypes=[dtype], **layouts) for op in ("clone", "zeros_like", "ones_like")),
        case("clone", dtypes=[dtype], input={"shape": [3, 4], "strides": [0, 1]}),
    ]


RIGHT = [
    *(each for dtype in (*FLOATS, *INTEGERS) for each in _elementwise(dtype)),
    *(each for dtype in FLOATS for each in _of_floats(dtype)),
    *(each for dtype in (*FLOATS, *INTEGERS, "bool", "float8_e4m3fn") for each in _of_any(dtype)),
    *(case("clone", dtypes=[dtype], input=strided(3, 4)) for dtype in ("complex64", "complex128")),
]


LACKING = {"softplus", "log_softmax", "add_rms_norm", "normalize", "topksoftmax", "topkrouter", "paged_attention"}
LACKING |= {"dequantize_awq", "attention", "paged_caching"}
"""What the mapping has and the example's library does not."""


def test_every_operator_passes_in_its_dtypes_and_odd_layouts(c_library: Path, tmp_path: Path) -> None:
    outcome = answered(tmp_path, RIGHT, c_library, threads=[1, 3])
    assert [(each.id, each.verdict.message) for each in outcome.results if each.status is not Status.PASSED] == []
    threads = [check.state for each in outcome.results for check in each.verdict.checks if check.name == "threads"]
    assert set(threads) == {CheckState.DONE}, "their number changes no bit"
    known = read_mapping(mapping_path("infiniop", "."))
    assert {each["op"] for each in RIGHT} == set(known.operators) - LACKING


@pytest.mark.heavy
def test_no_sanitizer_has_anything_to_say(c_library: Path, tmp_path: Path) -> None:
    subprocess.run(["make", "-s", "-j2", "asan"], cwd=c_library, check=True, timeout=600)
    outcome = answered(tmp_path, RIGHT, c_library / "asan", sanitizer="asan", probes="guards")
    if {each.reason for each in outcome.results} == {Reason.UNAVAILABLE}:
        pytest.skip(outcome.results[0].verdict.message)
    assert [(each.id, each.verdict.message) for each in outcome.results if each.status is not Status.PASSED] == []


def test_what_the_library_lacks_is_unavailable_for_its_cases_alone(c_library: Path, tmp_path: Path) -> None:
    asked = [case("softplus", dtypes=["float32"], input=[5]), case("relu", dtypes=["float32"], input=[5])]
    results = answered(tmp_path, asked, c_library).results
    assert [each.reason for each in results] == [Reason.UNAVAILABLE, None]
    assert "infiniopCreateSoftplusDescriptor" in results[0].verdict.message


GAPS = {
    "rotary_embedding_dim": case(
        "rope", dtypes=["float32"], input=[2, 4, 8], cos=[4, 2], sin=[4, 2], attributes={"rotary_embedding_dim": 4}
    ),
    "does not take the attribute groups": case(
        "conv1d", dtypes=["float32"], input=[1, 4, 9], weight=[4, 2, 3], attributes={"groups": 2}
    ),
    "as padding, but it is 'same'": case(
        "conv1d", dtypes=["float32"], input=[1, 4, 9], weight=[4, 4, 3], attributes={"padding": "same"}
    ),
    "(5,) for normalized_shape, but the case has (3, 5)": case(
        "layer_norm", dtypes=["float32"], input=[2, 3, 5], weight=[3, 5], attributes={"normalized_shape": [3, 5]}
    ),
    "too coarse for float64; write 9.999999747378752e-06": case(
        "layer_norm", dtypes=["float64"], input=[2, 5], weight=[5], attributes={"normalized_shape": [5]}
    ),
    "needs the input weight": case(
        "rms_norm", dtypes=["float32"], input=[2, 5], attributes={"normalized_shape": [5], "eps": 0.5}
    ),
    "takes no input of 4 dimensions": case("causal_softmax", dtypes=["float32"], input=[2, 2, 3, 4]),
    "one dtype, but the case has float16, float32": case(
        "layer_norm",
        dtypes=["float16", "float32"],
        input=[2, 5],
        weight=[5],
        attributes={"normalized_shape": [5]},
    ),
    "one dtype, but the case has float32, int32": case("clip", dtypes=["int32"], input=[5], attributes={"min": 0.5}),
}


def test_what_c_cannot_be_told_is_a_gap_in_words(c_library: Path, tmp_path: Path) -> None:
    results = answered(tmp_path, list(GAPS.values()), c_library).results
    assert [each.reason for each in results] == [Reason.UNSUPPORTED] * len(GAPS)
    for said, result in zip(GAPS, results, strict=True):
        assert said in result.verdict.message


NORM = {"normalized_shape": [70], "eps": 0.25}
ROWS = {"input": [4, 70], "weight": [70], "bias": [70]}
HEADS = {"shape": [2, 3, 4, 6], "strides": [72, 1, 18, 3]}
ROTATED = {"input": [2, 3, 4, 6], "cos": [9, 3], "sin": [9, 3], "position_ids": [4]}
TURNED = ["float32", "float32", "float32", "int32"]
DRAW = {"random_value": 0.9375}
IMAGE = {"input": [1, 2, 8, 7], "weight": [3, 2, 3, 2], "bias": [3]}
HIDDEN = {"fill": "data", "values": [[1.0, 2.0, "nan"], [0.5, 1.0, "inf"]]}

PADDED = {"shape": [4, 5], "strides": [7, 1]}
TRANSPOSED = {"shape": [4, 5], "strides": [1, 4]}
SPECIAL = {"fill": "data", "values": [-float("inf"), -3.0, -1e-40, 0.0, 0.5, 2.0, float("inf"), float("nan")]}
BY_FREED_MEMORY = (
    *(Reason.STATE, Reason.READ_OUT_OF_BOUNDS, Reason.OUT_OF_BOUNDS),
    *(Reason.VALUE, Reason.NAN, Reason.UNWRITTEN, Reason.NONDETERMINISTIC, Reason.SIGNAL),
)
"""What strides do that are read after they were freed is up to whoever has that memory now."""

FAULTS: dict[str, tuple[dict[str, Any], Reason | tuple[Reason, ...]]] = {
    "add_ignores_strides_of_b": (ffi_case("add", PADDED, TRANSPOSED), Reason.VALUE),
    "add_merges_by_output": (ffi_case("relu", PADDED), Reason.READ_OUT_OF_BOUNDS),
    "add_writes_where_empty": (ffi_case("add", [0, 3], [0, 3]), Reason.OUT_OF_BOUNDS),
    "add_i64_through_double": (
        ffi_case("add", [2], [2], dtype="int64", generator={"fill": "full", "value": 2**53 + 1}),
        Reason.VALUE,
    ),
    "add_accepts_any_shape": (
        ffi_case("add", [4, 5], [4, 6], expects_error={"type": "StatusError"}),
        Reason.NOT_REFUSED,
    ),
    "mul_accepts_any_dtype": (
        ffi_case("mul", [3], [3], dtype=["float32", "float64"], expects_error={"type": "StatusError"}),
        Reason.NOT_REFUSED,
    ),
    "gelu_refuses_with_success": (
        ffi_case("gelu", [17], dtype="int32", expects_error={"type": "StatusError"}),
        Reason.NOT_REFUSED,
    ),
    "mul_skips_0d": (ffi_case("mul", [], []), Reason.UNWRITTEN),
    "mul_writes_before_the_first": (ffi_case("mul", [3], [3]), Reason.OUT_OF_BOUNDS),
    "mul_ignores_strides_of_output": (
        ffi_case("mul", [3, 5], [3, 5], backend_config={"ffi": {"outputs": {"out": {"strides": [8, 1]}}}}),
        Reason.OUT_OF_BOUNDS,
    ),
    "relu_writes_one_too_many": (ffi_case("relu", [17]), Reason.OUT_OF_BOUNDS),
    "relu_nan_becomes_0": (ffi_case("relu", [8], generator=SPECIAL), Reason.NAN),
    "sigmoid_last_needs_its_neighbour": (ffi_case("sigmoid", [17]), Reason.READ_OUT_OF_BOUNDS),
    "swiglu_changes_input": (ffi_case("swiglu", [4, 5], [4, 5]), Reason.INPUT_MUTATED),
    "softmax_needs_zeroed_workspace": (ffi_case("softmax", [3, 5]), Reason.WORKSPACE),
    "softmax_exits_on_f64": (ffi_case("softmax", [3, 5], dtype="float64"), Reason.EXIT_CODE),
    "gelu_aborts_on_nan": (ffi_case("gelu", [8], generator=SPECIAL), Reason.SIGNAL),
    "gemm_ignores_alpha": (ffi_case("gemm", [3, 5], [5, 4], attributes={"alpha": 2.0}), Reason.VALUE),
    "sub_f64_through_f32": (ffi_case("sub", [400], [400], dtype="float64"), Reason.VALUE),
    "gelu_f16_through_bf16": (ffi_case("gelu", [400], dtype="float16"), Reason.VALUE),
    "threads_drop_remainder": (
        ffi_case("add", [5001], [5001], backend_config={"ffi": {"threads": [1, 2]}}),
        Reason.UNWRITTEN,
    ),
    "add_keeps_tensor_descriptor": (ffi_case("add", [4, 5], [4, 5]), BY_FREED_MEMORY),
    "rms_norm_shares_eps": (ffi_case("rms_norm", [4, 5], [5], attributes={"normalized_shape": [5]}), Reason.STATE),
    "layer_norm_starts_from_last_call": (
        ffi_case("layer_norm", [4, 5], [5], [5], attributes={"normalized_shape": [5]}),
        Reason.STATE,
    ),
    "gemm_remembers_b_by_address": (ffi_case("gemm", [3, 5], [5, 4]), Reason.STATE),
    "gemm_reads_c_where_beta_is_0": (ffi_case("gemm", [3, 5], [5, 4]), Reason.UNWRITTEN),
    "conv_unpacks_weight_once": (ffi_case("conv1d", [1, 2, 8], [3, 2, 3]), Reason.WORKSPACE),
    "mul_descriptor_leaks": (ffi_case("mul", [4, 5], [4, 5]), Reason.LEAK),
    "sub_aligns_pointers": (ffi_case("sub", [4, 5], [4, 5]), Reason.READ_OUT_OF_BOUNDS),
    "silu_looks_past_the_end": (ffi_case("silu", [4, 5]), Reason.READ_OUT_OF_BOUNDS),
    "clip_ignores_strides_of_max": (
        case("clip", dtypes=["float32"], input=[40], attributes={"min": 0.25, "max": 0.5}),
        Reason.READ_OUT_OF_BOUNDS,
    ),
    "clip_u64_as_signed": (
        case(
            "clip",
            dtypes=["uint64"],
            input=[4],
            attributes={"max": 100},
            generator={"fill": "data", "values": [1, 2**63 + 5, 200, 2**64 - 1]},
        ),
        Reason.VALUE,
    ),
    "rms_norm_ignores_stride_of_weight": (
        case("rms_norm", dtypes=["float32"], input=[4, 5], weight=strided(5), attributes={"normalized_shape": [5]}),
        Reason.READ_OUT_OF_BOUNDS,
    ),
    "layer_norm_dense_batches": (
        case("layer_norm", dtypes=["float32"], **{**ROWS, "input": strided(4, 70)}, attributes=NORM),
        Reason.READ_OUT_OF_BOUNDS,
    ),
    "layer_norm_leaves_deviation": (case("layer_norm", dtypes=["float32"], **ROWS, attributes=NORM), Reason.UNWRITTEN),
    "causal_softmax_ignores_batch_stride": (
        case("causal_softmax", dtypes=["float32"], input={"shape": [2, 3, 4], "strides": [20, 4, 1]}),
        Reason.READ_OUT_OF_BOUNDS,
    ),
    "causal_softmax_multiplies_mask": (
        case("causal_softmax", dtypes=["float32"], input=[2, 3], generator={"input": HIDDEN}),
        Reason.NAN,
    ),
    "causal_softmax_leaves_hidden": (case("causal_softmax", dtypes=["float32"], input=[3, 7]), Reason.UNWRITTEN),
    "rope_swaps_algorithms": (case("rope", dtypes=TURNED, **ROTATED), Reason.VALUE),
    "rope_ignores_stride_of_heads": (
        case("rope", dtypes=TURNED, **{**ROTATED, "input": HEADS}),
        Reason.READ_OUT_OF_BOUNDS,
    ),
    "rope_ignores_stride_of_positions": (
        case(
            "rope",
            dtypes=TURNED,
            **{**ROTATED, "position_ids": strided(4)},
            generator={"position_ids": {"fill": "data", "values": [8, 1, 5, 2]}},
        ),
        Reason.RAISED,
    ),
    "conv_ignores_innermost_stride": (
        case("conv2d", dtypes=["float32"], **{**IMAGE, "input": strided(1, 2, 8, 7)}),
        Reason.READ_OUT_OF_BOUNDS,
    ),
    "conv_ignores_dilation": (
        case("conv2d", dtypes=["float32"], **IMAGE, attributes={"dilation": [2, 3]}),
        Reason.VALUE,
    ),
    "conv_adds_to_output": (case("conv2d", dtypes=["float32"], **IMAGE), Reason.UNWRITTEN),
    "random_sample_ignores_stride": (
        case("random_sample", dtypes=["float32"], logits=strided(37), attributes=DRAW),
        Reason.READ_OUT_OF_BOUNDS,
    ),
    "random_sample_ignores_topk": (
        case("random_sample", dtypes=["float32"], logits=[65], attributes={**DRAW, "top_k": 5}),
        Reason.VALUE,
    ),
    "random_sample_writes_64_bits": (
        case("random_sample", dtypes=["float32"], logits=[65], attributes={**DRAW, "dtype": "int16"}),
        Reason.OUT_OF_BOUNDS,
    ),
    "rearrange_moves_at_most_4_bytes": (case("clone", dtypes=["float64"], input=[9]), Reason.UNWRITTEN),
    "zeros_leaves_last_element": (case("zeros_like", dtypes=["uint8"], input=[3, 4]), Reason.UNWRITTEN),
    "ones_bf16_is_f16": (case("ones_like", dtypes=["bfloat16"], input=[3, 4]), Reason.VALUE),
    "ones_fills_gaps": (
        case("ones_like", dtypes=["float32"], input=[3, 4], out=layout(3, 4)),
        Reason.OUT_OF_BOUNDS,
    ),
}


@pytest.mark.heavy
@in_rounds(FAULTS)
def test_faults_are_told(
    together: tuple[str, ...], c_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFINIOP_FAULT", ",".join(together))
    results = answered(tmp_path, [FAULTS[name][0] for name in together], c_library / "broken").results
    told = {name: result.verdict for name, result in zip(together, results, strict=True)}
    unlike = {
        name: verdict.message
        for name, verdict in told.items()
        if verdict.reason is not (reason := FAULTS[name][1])
        and not (isinstance(reason, tuple) and verdict.reason in reason)
    }
    assert unlike == {}
    if "layer_norm_leaves_deviation" in together:  # an output of C that the case did not ask for
        assert "of output std " in told["layer_norm_leaves_deviation"].message
    if "mul_skips_0d" in together:
        said = "1 of 1 elements of output out were never written; the first at []"
        assert told["mul_skips_0d"].message == said


def test_without_their_faults_these_cases_pass(c_library: Path, tmp_path: Path) -> None:
    outcome = answered(tmp_path, [asked for asked, _ in FAULTS.values()], c_library / "broken")
    assert [(each.id, each.verdict.message) for each in outcome.results if each.status is not Status.PASSED] == []
