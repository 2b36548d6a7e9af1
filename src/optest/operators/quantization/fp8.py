"""Operators on float8 in blocks: per_token_group_quant_fp8 and fp8_block_scaled_matmul."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from optest.operators.calls import CALM_SIZES, LARGE_SIZE, MAIN_FLOATS, call, full, reshaped, uniform
from optest.operators.describe import accumulate, attribute, composed, in_module
from optest.operators.samples import error_samples, in_every_layout, in_layouts_at_once, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, require_dimensions, required_inputs
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype, format_shape
from optest.spec.declared_shapes import match_declaration

_FLOAT8, _FLOAT32 = dtype("float8_e4m3fn"), dtype("float32")

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="per_token_group_quant_fp8",
        signature="input -> out, scale",
        attributes=(
            attribute(
                "group_size: int = 128",
                "Number of elements of a row that share a scale; the last group may have fewer.",
            ),
            attribute("eps: float = 1e-10", "Lower limit of the maximum of a group."),
            attribute("use_ue8m0: bool = False", "Round scales up to powers of two."),
        ),
        dtype_variants=tuple((name,) for name in MAIN_FLOATS),
        alternatives="per_token_group_quant_fp8_alternatives",
        rule=composed(
            "|scale|·5; |out|·11, as by the inverse of the scale; with use_ue8m0 also the neighbouring power of two"
        ),
        description="Rows in groups, each divided by scale = max(|x|, eps) / 448 and rounded to float8_e4m3fn, as in "
        "vLLM and DeepGEMM. scale is float32, with a column for each group.",
    ),
    OperatorDescriptor(
        name="fp8_block_scaled_matmul",
        signature="input, weight, input_scale, weight_scale -> out",
        aliases=("w8a8_block_fp8_matmul: A, B, As, Bs -> out", "fp8_gemm_nt"),
        attributes=(
            attribute("block_size: ints = (128, 128)", "Rows and columns of weight that share a scale."),
            attribute(
                "out_dtype|output_dtype: dtype = 'bfloat16'",
                "Dtype of the result.",
                choices=("bfloat16", "float16", "float32"),
            ),
        ),
        dtype_variants=(("float8_e4m3fn", "float8_e4m3fn", "float32", "float32"),),
        domain={name: Interval(low=2.0**-9, high=1.0) for name in ("input_scale", "weight_scale")},
        generator={"input_scale": "uniform", "weight_scale": "uniform"},
        sum_length="..shapes:length_of_dim",
        operations="operations_of_product",
        rule=accumulate("products times both scales"),
        description="input @ weightᵀ of rows x depth and columns x depth in float8_e4m3fn. input has one "
        "scale per row and block of the depth, and weight one per block of columns and depth (the layout of "
        "DeepSeek-V3 and DeepGEMM). The last block of each dimension may be smaller. Sums are accumulated in float32.",
    ),
)


def infer_per_token_group_quant_fp8(specs: Specs, attributes: Attributes) -> Outputs:
    (spec,) = required_inputs(specs, "input")
    require_dimensions(spec, "input", 1)
    size = attributes.get("group_size", 128)
    if size < 1:
        raise UnfitArguments(f"group_size is {size}, expected 1 or more")
    return (dense(_FLOAT8, spec.shape), dense(_FLOAT32, (*spec.shape[:-1], -(-spec.shape[-1] // size))))


def infer_fp8_block_scaled_matmul(specs: Specs, attributes: Attributes) -> Outputs:
    block = tuple(attributes.get("block_size", (128, 128)))
    if len(block) != 2 or min(block) < 1:
        raise UnfitArguments(f"block_size is {list(block)}, expected two sizes of 1 or more")
    tensors = "input: [rows, depth], weight: [columns, depth]"
    scales = "input_scale: [rows, blocks], weight_scale: [column_blocks, blocks]"
    result = dtype(attributes.get("out_dtype", "bfloat16"))
    n, outputs = match_declaration(specs, f"{tensors}, {scales} -> R[rows, columns]", R=result)
    expected = (-(-n.columns // block[0]), -(-n.depth // block[1]))
    if (n.column_blocks, n.blocks) != expected:
        actual = format_shape((n.column_blocks, n.blocks))
        raise UnfitArguments(f"weight_scale is {actual}, expected {format_shape(expected)}, a scale for each block")
    return outputs


def operations_of_product(specs: Specs, _attributes: Attributes) -> int:
    """Return 2 · rows · depth · columns."""
    a, b = required_inputs(specs, "input", "weight")
    return 2 * a.elements * (b.shape[0] if b.rank else 1)


def _groups(*shape: int, generator: Any = None, **attributes: Any) -> dict[str, Any]:
    """Return a per_token_group_quant_fp8 call for input of `shape`."""
    return call({"group_size": 16, **attributes}, generator=generator, input=shape)


def per_token_group_quant_fp8_samples() -> Iterator[Sample]:
    calls = [_groups(5, 48), _groups(3, 37), _groups(2, 3, 256, group_size=128), _groups(4, 64, use_ue8m0=True)]
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", calls, dtypes=MAIN_FLOATS)
    yield from in_every_layout(calls[:2])
    for name in MAIN_FLOATS:
        yield from in_layouts_at_once(calls[1:3], dtype=name)
    lengths = (0, 1, 7, 16, 17, 63, 65, 257, 1025)
    sizes = [_groups(3, n, use_ue8m0=rounded) for n in lengths for rounded in (False, True)]
    sizes += [_groups(n, 16, group_size=8) for n in (0, 1, 17, 129)]
    sizes += [_groups(37), _groups(1, 1), _groups(3, 5, group_size=1)]
    yield from variations("sizes", sizes, dtypes=MAIN_FLOATS)
    yield from variations("sizes", [_groups(LARGE_SIZE, 16, group_size=8), _groups(2, 4099, group_size=128)])
    fills: list[Any] = ["zeros", full(-3.5), {"fill": "randn", "std": 1e-6}, {"fill": "randn", "std": 200.0}]
    fills += [uniform(-9.0, -1.0), full(2.0**-12)]
    cases = [_groups(4, 48, generator=fill, use_ue8m0=rounded) for fill in fills for rounded in (False, True)]
    yield from variations("special", cases, dtypes=MAIN_FLOATS)
    small = [_groups(4, 48, generator={"fill": "randn", "std": 1e-3}, eps=eps) for eps in (0.5, 1e-4)]
    yield from variations("epsilon", small, dtypes=MAIN_FLOATS)
    # One large element per group: the others become small or subnormal float8 numbers.
    outlier = {"fill": "data", "values": [[1e-3] * 15 + [448.0], [448.0, *[0.25] * 15], [-448.0, *[1.0] * 15]]}
    yield from variations("special", [_groups(3, 16, generator=outlier)], dtypes=MAIN_FLOATS)
    yield from error_samples(call(input=()), _groups(3, 16, group_size=0))


def _scaled_matmul(
    rows: int, columns: int, depth: int, block: Sequence[int] = (8, 16), **attributes: Any
) -> dict[str, Any]:
    """Return an fp8_block_scaled_matmul call with scales for blocks of `block` columns x depth."""
    blocks = -(-depth // block[1])
    shapes: dict[str, Any] = {"input": (rows, depth), "weight": (columns, depth)}
    scales = {"input_scale": (rows, blocks), "weight_scale": (-(-columns // block[0]), blocks)}
    kinds = ("float8_e4m3fn", "float8_e4m3fn", "float32", "float32")
    return call({"block_size": list(block), **attributes}, dtypes=kinds, **shapes, **scales)


def fp8_block_scaled_matmul_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_scaled_matmul(5, 24, 48), tier=Tier.SMOKE)
    for result in ("bfloat16", "float16", "float32"):
        calls = [_scaled_matmul(5, 24, 48, out_dtype=result), _scaled_matmul(7, 37, 65, (16, 8), out_dtype=result)]
        full_blocks = _scaled_matmul(3, 300, 257, (128, 128), out_dtype=result)
        yield from variations("ordinary", [*calls, full_blocks])
        yield from in_layouts_at_once(calls)
        # Scales that differ widely make the scale of a wrong block visible; integers make a lost product visible.
        far = {name: {"fill": "uniform", "low": 2.0**-9, "high": 8.0} for name in ("input_scale", "weight_scale")}
        yield from variations("scales", [{**case, "generator": far} for case in calls])
        # Products and sums of small integers are exact in every order.
        small = {name: {"fill": "randint", "low": -4, "high": 5} for name in ("input", "weight")}
        halves = {name: {"fill": "full", "value": 0.5} for name in ("input_scale", "weight_scale")}
        yield from variations("integer-exact", [{**case, "generator": {**small, **halves}} for case in calls])
        # Products of numbers near the largest float8.
        near_limit = {name: {"fill": "uniform", "low": 200.0, "high": 448.0} for name in ("input", "weight")}
        yield from variations("large", [{**calls[0], "generator": near_limit}])
    yield from in_every_layout([_scaled_matmul(5, 24, 48), _scaled_matmul(3, 17, 33, out_dtype="float32")])
    for n in CALM_SIZES:
        sizes = [_scaled_matmul(n, 9, 17), _scaled_matmul(5, n, 17, (16, 8)), _scaled_matmul(5, 9, n, (4, 32))]
        yield from variations("sizes", [*sizes, _scaled_matmul(3, n, 33, out_dtype="float32")])
    large = [
        _scaled_matmul(2, 129, 1025, (128, 128)),
        _scaled_matmul(129, 130, 4, (128, 128)),
        _scaled_matmul(3, 1025, 65, (64, 32)),
    ]
    yield from variations("sizes", [_scaled_matmul(1, 1, 1), _scaled_matmul(1025, 3, 65), *large])
    wrong = [{"weight": [24, 47]}, {"input_scale": [5, 2]}, {"weight_scale": [2, 3]}, {"input": [48]}]
    ordinary = _scaled_matmul(5, 24, 48)
    yield from error_samples(*(reshaped(ordinary, **shapes) for shapes in wrong))
