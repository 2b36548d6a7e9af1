"""Products of matrices: matmul, bmm, gemm and linear."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.calls import EVERY_FLOAT, MAIN_FLOATS, Call, call
from optest.operators.contraction.helpers import (
    ACCUMULATING,
    OUT_DTYPE,
    accumulator,
    beyond_16_bits,
    operations_of,
    require_dtype,
    result_dtype,
    special_operands,
    with_out_dtype,
    zeros_times_special,
)
from optest.operators.describe import FLOAT8, FLOATS, INTEGERS, NUMBERS, accumulate, attribute, in_module
from optest.operators.samples import (
    error_samples,
    in_every_layout,
    in_layouts_at_once,
    integer_exact,
    of_one_element,
    standard_samples,
    variations,
    zero_mean,
)
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Specs,
    broadcast_shapes,
    broadcasts_to,
    dense,
    length_of_dim,
    optional_spec,
    require_rank,
    require_same_dtype,
    require_scalar,
    require_spec,
)
from optest.spec import OperatorDescriptor, Sample, Tier, UnfitArguments, format_shape
from optest.spec.declared_shapes import match_declaration

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="matmul",
        signature="input, other -> out",
        aliases=("MatMul: A, B -> Y",),
        dtype_variants=(*NUMBERS, *FLOAT8),
        operations="matmul_operations",
        description="Matrix product; vectors and batches as in torch.matmul. Integers keep their dtype and wrap.",
    ),
    OperatorDescriptor(
        name="bmm",
        signature="input, mat2 -> out",
        dtype_variants=(*NUMBERS, *FLOAT8),
        operations="bmm_operations",
        description="Products of the matrices of two batches of equal size; nothing broadcasts.",
    ),
    OperatorDescriptor(
        name="gemm",
        signature="a, b, c? -> out",
        aliases=("Gemm: A, B, C? -> Y",),
        attributes=(
            attribute("alpha: float = 1.0", "Factor of the product."),
            attribute("beta: float = 1.0", "Factor of c; with 0, c is not read."),
            attribute("trans_a|transA: bool = False", "Transpose a."),
            attribute("trans_b|transB: bool = False", "Transpose b."),
            OUT_DTYPE,
        ),
        sum_length="gemm_length",
        operations="gemm_operations",
        rule=accumulate("terms are alpha·products and beta·c; K + 1 for alpha ≠ 1, + 1 for c, + 1 for beta ≠ 1"),
        description="alpha · a @ b + beta · c for matrices, or for batches of them in the first of three dimensions; "
        "c broadcasts.",
    ),
    OperatorDescriptor(
        name="linear",
        signature="input, weight, bias? -> out",
        operations="linear_operations",
        rule=accumulate("terms are the products; + 1 for the bias"),
        description="input @ weightᵀ + bias over the last dimension; weight has a row for each output feature.",
    ),
    twin="contraction_reference",
    sum_length="..shapes:length_of_dim",
    attributes=(OUT_DTYPE,),
    dtype_variants=(*FLOATS, *INTEGERS, *FLOAT8, *ACCUMULATING),
    rule=accumulate("terms are the products"),
)


def infer_matmul(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output of torch.matmul: vectors are rows on the left, columns on the right; batches broadcast."""
    left, right = require_spec(specs, 0, "input"), require_spec(specs, 1, "other")
    require_same_dtype(left, right, "other")
    if not (left.shape and right.shape):
        name = "other" if left.shape else "input"
        raise UnfitArguments(f"{name} is a scalar, expected 1 dimension or more")
    is_row, is_column = len(left.shape) == 1, len(right.shape) == 1
    a = (1, *left.shape) if is_row else left.shape
    b = (*right.shape, 1) if is_column else right.shape
    if a[-1] != b[-2]:
        raise UnfitArguments(
            f"other is {format_shape(right.shape)}, expected {a[-1]} rows, "
            f"as input {format_shape(left.shape)} has {a[-1]} columns"
        )
    batch = broadcast_shapes(a[:-2], b[:-2])
    rows = () if is_row else a[-2:-1]
    columns = () if is_column else b[-1:]
    return (dense(result_dtype(left.dtype, attributes), (*batch, *rows, *columns)),)


def infer_bmm(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output of a product of two batches of matrices, of the dtype that ``result_dtype`` returns."""
    result = result_dtype(require_spec(specs, 0, "input").dtype, attributes)
    declared = "input: T[batch, rows, depth], mat2: T[batch, depth, columns] -> R[batch, rows, columns]"
    return match_declaration(specs, declared, R=result)[1]


def infer_gemm(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output of gemm for matrices or batches of them, of the dtype that ``result_dtype`` returns.

    Raises:
        UnfitArguments: for shapes or dtypes that do not fit, and for factors that the result's dtype does not hold.
    """
    a, b = require_spec(specs, 0, "a"), require_spec(specs, 1, "b")
    c = optional_spec(specs, 2)
    require_same_dtype(a, b, "b")
    for name, spec in (("a", a), ("b", b)):
        if spec.rank not in (2, 3):
            raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, expected 2 dimensions, or 3 with a batch")
    if a.shape[:-2] != b.shape[:-2]:
        raise UnfitArguments(f"b is {format_shape(b.shape)}, expected the batch of a, {format_shape(a.shape)}")
    rows, depth = reversed(a.shape[-2:]) if attributes.get("trans_a") else a.shape[-2:]
    depth_of_b, columns = reversed(b.shape[-2:]) if attributes.get("trans_b") else b.shape[-2:]
    if depth != depth_of_b:
        raise UnfitArguments(
            f"b is {format_shape(b.shape)} with a depth of {depth_of_b}, expected {depth}, "
            f"as a is {format_shape(a.shape)}"
        )
    result, shape = result_dtype(a.dtype, attributes), (*a.shape[:-2], rows, columns)
    if c is not None:
        require_dtype(c, result, "c")
        if not broadcasts_to(c.shape, shape):
            raise UnfitArguments(
                f"c is {format_shape(c.shape)}, expected a shape that broadcasts to {format_shape(shape)}"
            )
    for name in ("alpha", "beta"):
        require_scalar(name, attributes.get(name, 1.0), result)
    return (dense(result, shape),)


def infer_linear(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output of linear; a weight of one dimension is a single row, whose dimension the output lacks."""
    result = result_dtype(require_spec(specs, 0, "input").dtype, attributes)
    require_rank(require_spec(specs, 1, "weight"), "weight", 1, 2)
    declared = "input: T[*lead, depth], weight: T[*features, depth], bias?: R[*features] -> R[*lead, *features]"
    return match_declaration(specs, declared, R=result)[1]


def gemm_length(specs: Specs, attributes: Attributes) -> int:
    """Return the number of products in an output element of gemm."""
    spec = require_spec(specs, 0, "a")
    return spec.shape[-2 if attributes.get("trans_a") else -1] if spec.rank > 1 else 1


matmul_operations = operations_of(infer_matmul, length_of_dim)
bmm_operations = operations_of(infer_bmm, length_of_dim)
gemm_operations = operations_of(infer_gemm, gemm_length)
linear_operations = operations_of(infer_linear, length_of_dim)

_DTYPES = (*NUMBERS, *FLOAT8)
_DEPTHS = (0, 1, 7, 15, 16, 17, 31, 33, 63, 65, 127, 129, 1023, 1025)
_NAN = {"fill": "full", "value": "nan"}


def _float8_products(base_call: Call) -> Iterator[Sample]:
    """Yield samples of a call with two operands of 8-bit floats and a wider result."""
    # Every unit that multiplies 8-bit floats has these results.
    for narrow, wide in (("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"), ("float8_e4m3fn", "bfloat16")):
        yield with_out_dtype(base_call, narrow, wide)


def matmul_samples() -> Iterator[Sample]:
    calls = [call(input=(5, 7), other=(7, 3)), call(input=(33, 65), other=(65, 17)), call(input=(1, 9), other=(9, 64))]
    yield from standard_samples(
        calls, _DTYPES, sized=lambda n: call(input=(3, n), other=(n, 5)), sizes=_DEPTHS, special=False
    )
    yield from special_operands(calls[:2], "input", "other")
    yield from zeros_times_special(calls[0], "input", "other")
    yield from _float8_products(call(input=(5, 65), other=(65, 3)))
    yield from variations("sizes", (call(input=(n, 9), other=(9, 4)) for n in (0, 15, 17, 65)), dtypes=("float32",))
    yield from variations("sizes", (call(input=(4, 9), other=(9, n)) for n in (0, 1, 15, 17, 65)), dtypes=("float32",))
    yield from in_layouts_at_once([call(input=(6, 6), other=(6, 6))])
    # A vector on either side of a square: the shape reveals neither a swap nor a transposition.
    square = [call(input=(6,), other=(6, 6)), call(input=(6, 6), other=(6,)), call(input=(6,), other=(2, 6, 6))]
    yield from variations("broadcast", square, dtypes=("float32", "float16"))
    batched = call(input=(2, 5, 7), other=(2, 7, 3))
    yield from in_every_layout([batched])
    yield from in_layouts_at_once([batched, call(input=(2, 3, 5, 7), other=(2, 3, 7, 4))], dtype="float16")
    yield from variations("sizes", [call(input=(17, 3, 4), other=(17, 4, 2))], dtypes=("float32", "float16"))
    yield from variations("sizes", [call(input=(3, 9), other=(9, 1025))], dtypes=("float32", "float16"))
    yield from beyond_16_bits(call(input=(257, 9), other=(9, 257)), call(input=(65_537, 2), other=(2, 1)))
    shapes = [
        ((7,), (7,)),
        ((7,), (7, 3)),
        ((5, 7), (7,)),
        ((7,), (2, 7, 3)),
        ((2, 5, 7), (7,)),
        ((2, 5, 7), (7, 3)),
        ((5, 7), (2, 7, 3)),
        ((2, 1, 5, 7), (3, 7, 4)),
        ((2, 1, 5, 7), (1, 3, 7, 4)),
        ((2, 3, 5, 7), (2, 3, 7, 4)),
        ((3, 1, 2, 5, 7), (1, 4, 2, 7, 3)),
        ((3, 2, 5, 7), (3, 1, 7, 4)),
        ((3, 1, 5, 7), (3, 2, 7, 4)),
        ((2, 3, 1, 5, 7), (3, 4, 7, 2)),
        ((1, 3, 2, 5, 7), (2, 1, 1, 7, 3)),
        ((3, 1, 2, 7), (4, 7, 2)),
        ((0, 5, 7), (7, 3)),
    ]
    yield from variations(
        "broadcast", (call(input=a, other=b) for a, b in shapes), dtypes=("float32", "bfloat16", "int32")
    )
    yield from accumulator([call(input=(5, 65), other=(65, 3))])
    yield from integer_exact([*calls, call(input=(17, 1025), other=(1025, 9)), call(input=(2, 3, 33), other=(33, 16))])
    yield from zero_mean([call(input=(16, 1025), other=(1025, 17))], dtypes=EVERY_FLOAT)
    yield from error_samples(
        call(input=(3, 4), other=(5, 6)), call(input=(2, 3, 4), other=(3, 4, 5)), call(input=(), other=(3, 4))
    )
    yield from variations("long", [call(input=(4, 65536), other=(65536, 4))], dtypes=("float32", "float16"))
    yield from of_one_element(call(input=(1, 1), other=(1, 1)), call(input=(1,), other=(1,)))
    yield from beyond_16_bits(call(input=(65_537, 1, 2), other=(65_537, 2, 1)))
    yield from variations(
        "long", [call(input=(256, 4096), other=(4096, 256))], dtypes=("float32", "bfloat16"), tier=Tier.FULL
    )
    # Tiles of 16 to 64 that are cut off on both sides, with several blocks of the sum.
    yield from variations("sizes", [call(input=(100, 136), other=(136, 148))], dtypes=("float32", "float16"))


def bmm_samples() -> Iterator[Sample]:
    calls = [call(input=(2, 5, 7), mat2=(2, 7, 3)), call(input=(3, 17, 33), mat2=(3, 33, 16))]
    yield from standard_samples(
        calls, _DTYPES, sized=lambda n: call(input=(2, 3, n), mat2=(2, n, 5)), sizes=_DEPTHS, special=False
    )
    yield from special_operands(calls[:1], "input", "mat2")
    yield from zeros_times_special(calls[0], "input", "mat2")
    yield from _float8_products(call(input=(2, 5, 65), mat2=(2, 65, 3)))
    wide = [call(input=(2, 1025, 3), mat2=(2, 3, 4)), call(input=(2, 4, 3), mat2=(2, 3, 1025))]
    yield from variations("sizes", wide, dtypes=("float32", "float16"))
    yield from beyond_16_bits(
        call(input=(70, 31, 5), mat2=(70, 5, 33)), call(input=(65_537, 1, 2), mat2=(65_537, 2, 1))
    )
    edges = [((0, 3, 4), (0, 4, 5)), ((1, 1, 4), (1, 4, 1)), ((17, 2, 3), (17, 3, 2)), ((2, 0, 4), (2, 4, 5))]
    yield from variations("sizes", (call(input=a, mat2=b) for a, b in edges), dtypes=("float32", "int32"))
    yield from accumulator([call(input=(2, 5, 65), mat2=(2, 65, 3))])
    yield from integer_exact([*calls, call(input=(2, 3, 1025), mat2=(2, 1025, 9))])
    yield from zero_mean([call(input=(2, 16, 1025), mat2=(2, 1025, 17))])
    yield from of_one_element(call(input=(1, 1, 1), mat2=(1, 1, 1)))
    yield from error_samples(
        call(input=(2, 3, 4), mat2=(1, 4, 5)), call(input=(2, 3, 4), mat2=(2, 5, 4)), call(input=(3, 4), mat2=(4, 5))
    )


def gemm_samples() -> Iterator[Sample]:
    scaled = {"alpha": 0.5, "beta": -1.5}
    calls = [
        call(a=(5, 7), b=(7, 3), c=(5, 3)),
        call(scaled, a=(33, 65), b=(65, 17), c=(33, 17)),
        call({"alpha": 0.7}, a=(5, 17), b=(17, 3)),
    ]
    yield from standard_samples(
        calls, _DTYPES, sized=lambda n: call(scaled, a=(3, n), b=(n, 5), c=(3, 5)), sizes=_DEPTHS, special=False
    )
    yield from special_operands(calls[:1], "a", "b", "c")
    yield from zeros_times_special(call(a=(5, 7), b=(7, 3)), "a", "b")
    yield from _float8_products(call(a=(5, 65), b=(65, 3)))
    yield from variations("sizes", [call(scaled, a=(1025, 3), b=(3, 4), c=(1025, 4))], dtypes=("float32", "float16"))
    yield from beyond_16_bits(
        call(scaled, a=(257, 9), b=(9, 257), c=(257, 257)), call({"trans_b": True}, a=(2, 3), b=(65_537, 3), c=(2, 1))
    )
    yield from variations("attributes", _gemm_attributes(), dtypes=("float32", "float16"))
    batched = [
        call(scaled, a=(3, 5, 7), b=(3, 7, 4), c=(3, 5, 4)),
        call({"trans_a": True, "trans_b": True}, a=(2, 7, 5), b=(2, 4, 7), c=(4,)),
        call({"alpha": 0.7}, a=(4, 3, 33), b=(4, 33, 2)),
    ]
    yield from variations("batched", batched, dtypes=("float32", "float16", "float64"))
    yield from variations("batched", _batches(scaled), dtypes=("float32",))
    yield from variations("batched", batched[:1], dtypes=("bfloat16",))
    whole_batch = call({"alpha": 2.0, "beta": 3.0, "trans_b": True}, a=(3, 5, 7), b=(3, 4, 7), c=(3, 5, 4))
    yield from variations("batched", [whole_batch], dtypes=[name for (name,) in INTEGERS])
    yield from variations("batched", [call(a=(3, 5, 7), b=(3, 7, 4))], dtypes=[name for (name,) in FLOAT8])
    yield from in_every_layout([call(scaled, a=(3, 5, 7), b=(3, 7, 4), c=(3, 5, 4))])
    yield from in_layouts_at_once([call(a=(3, 6, 6), b=(3, 6, 6), c=(3, 6, 6))])
    yield from integer_exact([call(a=(3, 17, 129), b=(3, 129, 33), c=(3, 17, 33))])
    yield from zero_mean([call(a=(2, 16, 1025), b=(2, 1025, 17))])
    tenths = call({"alpha": 0.1, "beta": -0.3}, a=(5, 7), b=(7, 3), c=(5, 3))
    yield from variations("attributes", [tenths], dtypes=("float64", "bfloat16"))
    integral = {"alpha": 2.0, "beta": -3.0, "trans_a": True, "trans_b": True}
    yield from variations("attributes", [call(integral, a=(7, 5), b=(3, 7), c=(3,))], dtypes=("int32", "int8"))
    # With beta = 0, c must not be read.
    transposed = {"beta": 0.0, "alpha": 0.5, "trans_b": True}
    unread = [
        call({"beta": 0.0}, a=(5, 7), b=(7, 3), c=(5, 3), generator={"c": _NAN}),
        call(transposed, a=(5, 7), b=(3, 7), c=(3,), generator={"c": _NAN}),
        call({"beta": 0.0}, a=(2, 5, 7), b=(2, 7, 3), c=(2, 5, 3), generator={"c": _NAN}),
    ]
    yield from variations("beta", unread, dtypes=MAIN_FLOATS)
    # As BLAS defines it; torch leaves open whether a and b are read with alpha = 0.
    for name in ("a", "b"):
        product = call({"alpha": 0.0}, a=(5, 7), b=(7, 3), c=(5, 3), generator={name: _NAN})
        yield from variations("beta", [product], dtypes=("float32",), tier=Tier.FULL)
    added = [call(scaled, a=(5, 7), b=(7, 3), c=c) for c in ((), (1,), (3,), (1, 3), (5, 1), (1, 1))]
    yield from variations("broadcast", added, dtypes=("float32", "bfloat16"))
    # A depth of 1 with a full c, and a single column: libraries have separate kernels for both.
    single = [call({"alpha": 0.7}, a=(5, 1), b=(1, 3), c=(5, 3)), call(scaled, a=(5, 7), b=(7, 1), c=(5, 1))]
    yield from variations("attributes", single, dtypes=("float32", "float16"))
    yield from accumulator([call({"trans_b": True}, a=(5, 65), b=(3, 65), c=(5, 3))])
    yield from accumulator([call(a=(5, 65), b=(65, 3)), call(a=(2, 5, 65), b=(2, 65, 3))])
    transposed_sum = call({"trans_a": True}, a=(1025, 5), b=(1025, 3), c=(3,))
    yield from integer_exact([calls[0], transposed_sum, call(a=(16, 33), b=(33, 17))])
    yield from zero_mean([call(a=(16, 1025), b=(1025, 17), c=(16, 17))])
    yield from of_one_element(call(scaled, a=(1, 1), b=(1, 1), c=(1, 1)), call(a=(1, 1), b=(1, 1)))
    yield from error_samples(
        call(a=(3, 4), b=(5, 6)),
        call({"trans_b": True}, a=(3, 4), b=(4, 6)),
        call(a=(3, 4), b=(4, 6), c=(3,)),
        call(a=(2, 3, 4), b=(4, 5)),
        call(a=(2, 3, 4), b=(1, 4, 5)),
        call(a=(2, 3, 4), b=(2, 4, 5), c=(1, 2, 3, 5)),
    )
    yield from variations("long", [call(scaled, a=(4, 65536), b=(65536, 4), c=(4,))], dtypes=("float32", "float16"))


def _batches(scaled: dict[str, float]) -> Iterator[dict[str, Any]]:
    """Yield batched calls: with c of several shapes, transposed, empty, beyond a tile, and more than 16 bits count."""
    yield from (call(scaled, a=(3, 5, 7), b=(3, 7, 4), c=c) for c in ((3, 1, 4), (5, 1), (1, 5, 4)))
    for trans_a, trans_b in ((True, False), (False, True), (True, True)):
        yield call({"trans_a": trans_a, "trans_b": trans_b}, a=(3, 6, 6), b=(3, 6, 6), c=(3, 6, 6))
    yield call(a=(0, 5, 7), b=(0, 7, 4))
    yield call(a=(1, 5, 0), b=(1, 0, 4))
    yield call(a=(65, 2, 3), b=(65, 3, 2), c=(65, 2, 2))
    yield call(scaled, a=(2, 65, 33), b=(2, 33, 67), c=(67,))
    yield call(a=(65_537, 1, 2), b=(65_537, 2, 1))


def _gemm_attributes() -> Iterator[dict[str, Any]]:
    for trans_a in (False, True):
        for trans_b in (False, True):
            for alpha, beta in ((1.0, 1.0), (-0.3, 2.5)):
                attributes = {"alpha": alpha, "beta": beta, "trans_a": trans_a, "trans_b": trans_b}
                a, b = ((7, 5) if trans_a else (5, 7)), ((3, 7) if trans_b else (7, 3))
                yield call(attributes, a=a, b=b, c=(5, 3))
    # Squares: the shape reveals neither a forgotten transposition nor a column that is taken for a row.
    square: dict[str, Any] = {"a": (6, 6), "b": (6, 6), "c": (6, 6)}
    yield from (call({"trans_a": a, "trans_b": b}, **square) for a, b in ((True, False), (False, True), (True, True)))
    for trans_a, trans_b in ((True, False), (False, True)):
        a, b = ((9, 5) if trans_a else (5, 9)), ((11, 9) if trans_b else (9, 11))
        yield call({"trans_a": trans_a, "trans_b": trans_b}, a=a, b=b)
    yield call(a=(6, 6), b=(6, 6), c=(6, 1))
    yield from (call({"alpha": alpha, "beta": beta}, **square) for alpha, beta in ((0.0, 1.0), (1.0, 0.0), (0.0, 2.0)))


def linear_samples() -> Iterator[Sample]:
    calls = [
        call(input=(5, 7), weight=(3, 7), bias=(3,)),
        call(input=(2, 17, 33), weight=(16, 33)),
        call(input=(65, 129), weight=(31, 129), bias=(31,)),
    ]
    yield from standard_samples(
        calls, _DTYPES, sized=lambda n: call(input=(3, n), weight=(5, n), bias=(5,)), sizes=_DEPTHS, special=False
    )
    yield from special_operands(calls[:1], "input", "weight", "bias")
    yield from zeros_times_special(call(input=(5, 7), weight=(3, 7)), "input", "weight")
    yield from _float8_products(call(input=(5, 65), weight=(3, 65)))
    wide = call(input=(3, 9), weight=(1025, 9), bias=(1025,))
    yield from variations("sizes", [wide], dtypes=("float32", "float16"))
    yield from beyond_16_bits(
        call(input=(2, 129, 9), weight=(257, 9), bias=(257,)), call(input=(65_537, 3), weight=(2, 3), bias=(2,))
    )
    forms = [
        call(input=(7,), weight=(3, 7), bias=(3,)),
        call(input=(7,), weight=(7,)),
        call(input=(5, 7), weight=(7,)),
        call(input=(2, 3, 5, 7), weight=(4, 7), bias=(4,)),
        # The shape reveals neither a transposed weight nor a bias that is added by row.
        call(input=(7, 7), weight=(7, 7), bias=(7,)),
        call(input=(0, 7), weight=(3, 7), bias=(3,)),
        call(input=(5, 7), weight=(0, 7)),
    ]
    yield from variations("attributes", forms, dtypes=("float32", "bfloat16"))
    yield from accumulator([call(input=(5, 65), weight=(3, 65), bias=(3,)), call(input=(5, 65), weight=(3, 65))])
    yield from integer_exact([*calls, call(input=(3, 1025), weight=(9, 1025), bias=(9,))])
    yield from zero_mean([call(input=(16, 1025), weight=(17, 1025), bias=(17,))])
    yield from of_one_element(call(input=(1, 1), weight=(1, 1), bias=(1,)), call(input=(1,), weight=(1, 1)))
    yield from error_samples(
        call(input=(3, 4), weight=(4, 5)),
        call(input=(3, 4), weight=(5, 4), bias=(4,)),
        call(input=(3, 4), weight=(2, 5, 4)),
    )
