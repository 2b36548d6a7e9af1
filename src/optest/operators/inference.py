"""Shapes and dtypes of outputs from those of inputs, as PyTorch has them; standard library only.

Every ``infer_*`` takes the input specs in the signature's order, None for an optional input that is left out, and
the bound attributes. What the operator cannot take raises :class:`UnfitArguments`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optest.spec import DType, Kind, TensorSpec, UnfitArguments, dtype, format_shape

__all__ = [
    "broadcast_shapes",
    "infer_add",
    "infer_cast",
    "infer_div",
    "infer_exp",
    "infer_gemm",
    "infer_layer_norm",
    "infer_matmul",
    "infer_same",
    "infer_softmax",
    "infer_sum",
    "infer_transpose",
    "normalize_dim",
    "promote_dtypes",
    "promote_tensors",
    "reduced_dims",
]

Specs = Sequence[TensorSpec | None]
Attributes = Mapping[str, Any]
Shape = tuple[int, ...]


def infer_add(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    left, right = _given(specs, 0, "input"), _given(specs, 1, "other")
    result = promote_tensors((left, right))
    _require_scalar("alpha", attributes.get("alpha", 1.0), result)
    return (_dense(result, broadcast_shapes(left.shape, right.shape)),)


def infer_div(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """True division: integers and bool give float32, torch's default dtype."""
    left, right = _given(specs, 0, "input"), _given(specs, 1, "other")
    return (_dense(_as_float(promote_tensors((left, right))), broadcast_shapes(left.shape, right.shape)),)


def infer_exp(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = _given(specs, 0, "input")
    return (_dense(_as_float(spec.dtype), spec.shape),)


def infer_same(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """One output like the first input: elementwise functions that keep the dtype."""
    spec = _given(specs, 0, "input")
    return (_dense(spec.dtype, spec.shape),)


def infer_cast(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec, target = _given(specs, 0, "input"), dtype(attributes["dtype"])
    if spec.dtype.is_complex and not target.is_complex and target.kind is not Kind.BOOL:
        raise UnfitArguments(f"dtype is {target} for a {spec.dtype} input, but should be complex or bool")
    return (_dense(target, spec.shape),)


def infer_sum(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Integers and bool add up in int64, as in torch."""
    spec = _given(specs, 0, "input")
    dims = reduced_dims(attributes.get("dim"), spec.rank)
    result = spec.dtype if spec.dtype.is_inexact else dtype("int64")
    if attributes.get("keepdim"):
        return (_dense(result, tuple(1 if i in dims else size for i, size in enumerate(spec.shape))),)
    return (_dense(result, tuple(size for i, size in enumerate(spec.shape) if i not in dims)),)


def infer_matmul(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """torch.matmul: vectors are rows on the left and columns on the right, leading dimensions broadcast."""
    left, right = _given(specs, 0, "input"), _given(specs, 1, "other")
    _require_same_dtype(left, right, "other")
    for name, spec in (("input", left), ("other", right)):
        if spec.rank == 0:
            raise UnfitArguments(f"{name} is a scalar, but should have 1 dimension or more")
    a = left.shape if left.rank > 1 else (1, *left.shape)
    b = right.shape if right.rank > 1 else (*right.shape, 1)
    if a[-1] != b[-2]:
        raise UnfitArguments(
            f"other is {format_shape(right.shape)}, but should have {a[-1]} rows, "
            f"as input {format_shape(left.shape)} has {a[-1]} columns"
        )
    batch = broadcast_shapes(a[:-2], b[:-2])
    rows = a[-2:-1] if left.rank > 1 else ()
    columns = b[-1:] if right.rank > 1 else ()
    return (_dense(left.dtype, (*batch, *rows, *columns)),)


def infer_gemm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    a, b = _given(specs, 0, "a"), _given(specs, 1, "b")
    c = specs[2] if len(specs) > 2 else None
    _require_same_dtype(a, b, "b")
    for name, spec in (("a", a), ("b", b)):
        if spec.rank != 2:
            raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, but should have 2 dimensions")
    rows, depth = reversed(a.shape) if attributes.get("trans_a") else a.shape
    other_depth, columns = reversed(b.shape) if attributes.get("trans_b") else b.shape
    if depth != other_depth:
        raise UnfitArguments(
            f"b is {format_shape(b.shape)} with a depth of {other_depth}, but should have {depth}, "
            f"as a is {format_shape(a.shape)}"
        )
    if c is not None:
        _require_same_dtype(a, c, "c")
        if not _broadcasts_to(c.shape, (rows, columns)):
            raise UnfitArguments(
                f"c is {format_shape(c.shape)}, but should broadcast to {format_shape((rows, columns))}"
            )
    for name in ("alpha", "beta"):
        _require_scalar(name, attributes.get(name, 1.0), a.dtype)
    return (_dense(a.dtype, (rows, columns)),)


def infer_softmax(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = _given(specs, 0, "input")
    normalize_dim(attributes.get("dim", -1), spec.rank)
    return (_dense(spec.dtype, spec.shape),)


def infer_layer_norm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = _given(specs, 0, "input")
    normalized = tuple(attributes["normalized_shape"])
    if not normalized:
        raise UnfitArguments("normalized_shape is empty, but should have 1 size or more")
    if spec.shape[max(0, spec.rank - len(normalized)) :] != normalized:
        raise UnfitArguments(
            f"normalized_shape is {format_shape(normalized)}, but should be the last sizes of input "
            f"{format_shape(spec.shape)}"
        )
    for index, name in ((1, "weight"), (2, "bias")):
        parameter = specs[index] if len(specs) > index else None
        if parameter is None:
            continue
        if parameter.shape != normalized:
            raise UnfitArguments(
                f"{name} is {format_shape(parameter.shape)}, but should be {format_shape(normalized)}, "
                "as normalized_shape"
            )
        if parameter.dtype != spec.dtype and not (spec.dtype.bits == 16 and parameter.dtype.name == "float32"):
            wide = " or float32" if spec.dtype.bits == 16 else ""
            raise UnfitArguments(f"{name} is {parameter.dtype}, but should be {spec.dtype}{wide}, as input")
    return (_dense(spec.dtype, spec.shape),)


def infer_transpose(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = _given(specs, 0, "input")
    first = normalize_dim(attributes["dim0"], spec.rank, "dim0")
    second = normalize_dim(attributes["dim1"], spec.rank, "dim1")
    shape = list(spec.shape)
    if shape:
        shape[first], shape[second] = shape[second], shape[first]
    return (_dense(spec.dtype, tuple(shape)),)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape to which all stretch: sizes are aligned at the end, and a size of 1 repeats."""
    result = shapes[0] if shapes else ()
    for shape in shapes[1:]:
        if shape == result:
            continue
        rank = max(len(result), len(shape))
        left, right = _padded(result, rank), _padded(shape, rank)
        for position, (a, b) in enumerate(zip(left, right, strict=True)):
            if a != b and 1 not in (a, b):
                raise UnfitArguments(
                    f"shape {format_shape(shape)} has the size {b} at dimension {position - rank}, "
                    f"but should have {a} or 1 to broadcast with {format_shape(result)}"
                )
        result = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
    return result


def _padded(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def _broadcasts_to(shape: Shape, target: Shape) -> bool:
    if len(shape) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(_padded(shape, len(target)), target, strict=True))


def normalize_dim(dim: int, rank: int, name: str = "dim") -> int:
    """A dimension counted from the front; a scalar counts as having one dimension, as in torch."""
    size = max(rank, 1)
    if not -size <= dim < size:
        raise UnfitArguments(f"{name} is {dim}, but should be {-size} to {size - 1}, as input has {rank} dimensions")
    return dim % size


def reduced_dims(dims: Sequence[int] | None, rank: int) -> frozenset[int]:
    """Which dimensions a reduction removes; None and no dimension at all mean every one, as in torch.sum."""
    if not dims:
        return frozenset(range(rank))
    normalized = [normalize_dim(dim, rank) for dim in dims]
    if len(set(normalized)) < len(normalized):
        raise UnfitArguments(f"dim is {list(dims)}, but should name each dimension once")
    return frozenset(normalized)


_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64")


def promote_dtypes(a: DType, b: DType) -> DType:
    """The common dtype of two, by torch.promote_types.

    Raises:
        UnfitArguments: where torch has none: float8 and 4-bit integers with anything else, and unsigned integers
            of 16 bits and more with other integers, bool and complex.
    """
    if a == b:
        return a
    names = {a.name, b.name}
    if any(each.bits < 8 or (each.is_float and each.bits == 8) for each in (a, b)):
        raise _no_promotion(a, b)
    wide_unsigned = {"uint16", "uint32", "uint64"} & names
    if wide_unsigned:
        other = next((each for each in (a, b) if each.is_float), None)
        if other is None:
            raise _no_promotion(a, b)
        return other
    if a.is_complex or b.is_complex:
        return dtype("complex128" if names & {"complex128", "float64"} else "complex64")
    if a.is_float and b.is_float:
        return dtype("float32") if a.bits == b.bits else max(a, b, key=lambda each: each.bits)
    if a.is_float or b.is_float:
        return a if a.is_float else b
    if names == {"uint8", "int8"}:
        return dtype("int16")
    return max(a, b, key=lambda each: _ORDER.index(each.name))


def _no_promotion(a: DType, b: DType) -> UnfitArguments:
    return UnfitArguments(f"dtype is {b} beside {a}, but should be {a}: they have no common dtype")


def promote_tensors(specs: Sequence[TensorSpec]) -> DType:
    """The dtype of a result, by torch.result_type: 0-d tensors count only where they are of a higher category
    (bool < integer < float < complex)."""
    whole, scalars = _promoted([s for s in specs if s.rank]), _promoted([s for s in specs if not s.rank])
    if whole is None or scalars is None:
        found = whole or scalars
        assert found is not None
        return found
    if whole.is_complex:
        return whole
    if whole.is_float:
        return _complex_of(whole) if scalars.is_complex else whole
    if whole.kind is Kind.BOOL or scalars.is_inexact:
        return promote_dtypes(whole, scalars)
    return whole


def _complex_of(part: DType) -> DType:
    names = {"float64": "complex128", "float32": "complex64", "bfloat16": "complex64"}
    if part.name not in names:
        raise UnfitArguments(f"the scalar beside {part} is complex, but should be real: there is no complex {part}")
    return dtype(names[part.name])


def _promoted(specs: Sequence[TensorSpec]) -> DType | None:
    result: DType | None = None
    for spec in specs:
        result = spec.dtype if result is None else promote_dtypes(result, spec.dtype)
    return result


def _as_float(result: DType) -> DType:
    return result if result.is_inexact else dtype("float32")


def _dense(result: DType, shape: Shape) -> TensorSpec:
    return TensorSpec(dtype=result, shape=shape)


def _given(specs: Specs, index: int, name: str) -> TensorSpec:
    spec = specs[index] if index < len(specs) else None
    if spec is None:
        raise UnfitArguments(f"{name} is missing, but should be given")
    return spec


def _require_same_dtype(first: TensorSpec, spec: TensorSpec, name: str) -> None:
    if spec.dtype != first.dtype:
        raise UnfitArguments(f"{name} is {spec.dtype}, but should be {first.dtype}, as the first input")


def _require_scalar(name: str, value: float, result: DType) -> None:
    """Integers can only be multiplied by an integer that their dtype holds."""
    if result.is_inexact or result.kind is Kind.BOOL:
        return
    if value != int(value) or not result.min_int <= value <= result.max_int:
        raise UnfitArguments(
            f"{name} is {value:g}, but should be an integer of {result.min_int} to {result.max_int} for {result}"
        )
