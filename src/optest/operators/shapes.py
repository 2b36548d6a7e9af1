"""Shapes, dimensions and dtype promotion as PyTorch has them; standard library only.

What the operators' inference is made of. What an operator cannot take raises :class:`UnfitArguments`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from optest.registry import load_object
from optest.spec import DType, Interval, Kind, OperatorDescriptor, TensorSpec, UnfitArguments, dtype, format_shape
from optest.spec.declared_shapes import Shape as Shape
from optest.spec.declared_shapes import Specs as Specs
from optest.spec.declared_shapes import given as given
from optest.spec.declared_shapes import require_index as require_index
from optest.spec.tensors import dense as dense

Attributes = Mapping[str, Any]
Outputs = tuple[TensorSpec, ...]
"""What inference gives."""
Inference = Callable[[Specs, Attributes], Outputs]


def for_each_dim(stated: Any, rank: int) -> tuple[int, ...]:
    """A number for each of ``rank`` dimensions, where one may be stated for all of them."""
    values = tuple(stated) if isinstance(stated, (tuple, list)) else (stated,)
    return values * rank if len(values) == 1 else values


def stated_slices(attributes: Attributes) -> list[tuple[int, Any, Any, Any]]:
    """Dimension, start, end and step of each slice that is stated, None for a bound that is not.

    Raises:
        ValueError: for lists of different lengths.
    """
    stated = [attributes.get(name) for name in ("dim", "start", "end", "step")]
    count = max((len(values) for values in stated if values is not None), default=1)
    bounds = [values or (None,) * count for values in stated[1:]]
    return list(zip(stated[0] or range(count), *bounds, strict=True))


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


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    if len(shape) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(_padded(shape, len(target)), target, strict=True))


def normalize_dim(dim: int, rank: int, name: str = "dim") -> int:
    """A dimension counted from the front; a scalar counts as having one dimension, as in torch."""
    size = max(rank, 1)
    if not -size <= dim < size:
        raise UnfitArguments(f"{name} is {dim}, but should be {-size} to {size - 1}, as input has {rank} dimensions")
    return dim % size


def reduced_dims(dims: int | Sequence[int] | None, rank: int) -> frozenset[int]:
    """Which dimensions a reduction removes; None and no dimension at all mean every one, as in torch.sum."""
    if dims is None or dims == () or dims == []:
        return frozenset(range(rank))
    stated = (dims,) if isinstance(dims, int) else dims
    normalized = [normalize_dim(dim, rank) for dim in stated]
    if len(set(normalized)) < len(normalized):
        raise UnfitArguments(f"dim is {list(stated)}, but should name each dimension once")
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
    if whole.is_complex or (whole.is_float and not scalars.is_complex):
        return whole
    if whole.is_float:
        names = {"float64": "complex128", "float32": "complex64", "bfloat16": "complex64"}
        if whole.name not in names:
            raise UnfitArguments(
                f"the scalar beside {whole} is complex, but should be real: there is no complex {whole}"
            )
        return dtype(names[whole.name])
    if whole.kind is Kind.BOOL or scalars.is_inexact:
        return promote_dtypes(whole, scalars)
    return whole


def _promoted(specs: Sequence[TensorSpec]) -> DType | None:
    result: DType | None = None
    for spec in specs:
        result = spec.dtype if result is None else promote_dtypes(result, spec.dtype)
    return result


def as_float(result: DType) -> DType:
    return result if result.is_inexact else dtype("float32")


def all_given(specs: Specs, *names: str) -> list[TensorSpec]:
    """The first inputs, which go by these names."""
    return [given(specs, index, name) for index, name in enumerate(names)]


def optional(specs: Specs, index: int) -> TensorSpec | None:
    """An input that may be left out."""
    return specs[index] if len(specs) > index else None


def rows_of(specs: Specs, index: int) -> int:
    """The first size of an input, 1 where it has none or is left out."""
    spec = optional(specs, index)
    return spec.shape[0] if spec is not None and spec.rank else 1


def below(size: int) -> Interval:
    """Of indices; where there is no legal one, 0, which only an index tensor without elements may have."""
    return Interval(low=0.0, high=float(max(size - 1, 0)))


def require_dimensions(spec: TensorSpec, name: str, least: int) -> None:
    if spec.rank < least:
        words = "a dimension" if least == 1 else f"{least} dimensions"
        raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, but should have {words} or more")


def require_rank(spec: TensorSpec, name: str, *ranks: int) -> None:
    if spec.rank not in ranks:
        words = f"{' or '.join(map(str, ranks))} dimension{'s' * (ranks != (1,))}"
        raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, but should have {words}")


def require_shape(spec: TensorSpec, name: str, shape: Shape, why: str = "") -> None:
    if spec.shape != shape:
        raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, but should be {format_shape(shape)}{why}")


def require_float(spec: TensorSpec, name: str) -> None:
    if not spec.dtype.is_float:
        raise UnfitArguments(f"{name} is {spec.dtype}, but should be a float dtype")


def length_of_dim(specs: Specs, attributes: Attributes) -> int:
    """How many elements of the first input lie along ``dim``, the last one if none is stated."""
    spec = specs[0]
    return spec.shape[normalize_dim(attributes.get("dim", -1), spec.rank)] if spec is not None and spec.rank else 1


def infer_same(specs: Specs, _attributes: Attributes) -> Outputs:
    spec = given(specs, 0, "input")
    return (dense(spec.dtype, spec.shape),)


def infer_float(specs: Specs, _attributes: Attributes) -> Outputs:
    """Integers and bool give float32, torch's default dtype."""
    spec = given(specs, 0, "input")
    return (dense(as_float(spec.dtype), spec.shape),)


def require_same_dtype(first: TensorSpec, spec: TensorSpec, name: str) -> None:
    if spec.dtype is not first.dtype and spec.dtype != first.dtype:
        raise UnfitArguments(f"{name} is {spec.dtype}, but should be {first.dtype}, as the first input")


def require_scalar(name: str, value: float, result: DType) -> None:
    """Integers can only be multiplied by an integer that their dtype holds."""
    if result.is_inexact or result.kind is Kind.BOOL:
        return
    if value != int(value) or not result.min_int <= value <= result.max_int:
        raise UnfitArguments(
            f"{name} is {value:g}, but should be an integer of {result.min_int} to {result.max_int} for {result}"
        )


# Batches: inputs whose first dimension is that of the outputs, element for element


def batch_size(outputs: Sequence[Shape]) -> int:
    """The first dimension that outputs of these shapes share; 0 where they share none."""
    sizes = {shape[0] if shape else 0 for shape in outputs}
    return sizes.pop() if len(sizes) == 1 else 0


def resized(spec: TensorSpec, size: int) -> TensorSpec:
    """The dense tensor with another first dimension."""
    return TensorSpec(dtype=spec.dtype, shape=(size, *spec.shape[1:]))


def batch_inputs(
    descriptor: OperatorDescriptor, specs: Specs, attributes: Attributes, size: int
) -> list[tuple[int, ...]]:
    """The sets of inputs that may hold a batch of ``size``, by their places; one where inference tells: the fewest
    with which all outputs become longer and shorter, and nothing else, not even the range of indices.

    So weights are left alone that happen to have as many rows: of ``[n, n] @ [n, n]`` it is the first matrix. Without
    inference each input with that first dimension stands for itself.
    """
    places = [place for place, spec in enumerate(specs) if spec is not None and spec.shape[:1] == (size,)]
    if descriptor.infer is None:
        return [(place,) for place in places]
    infer = load_object(descriptor.infer)
    domain = load_object(descriptor.domain)

    def call(chosen: Sequence[int], rows: int) -> tuple[list[Shape], Any]:
        given = [resized(spec, rows) if spec is not None and at in chosen else spec for at, spec in enumerate(specs)]
        try:
            outputs = [spec.shape for spec in infer(given, attributes)]
            return outputs, domain(given, attributes) if callable(domain) else None
        except UnfitArguments:
            return [], None

    outputs, ranges = call((), size)
    for count in range(1, len(places) + 1 if outputs else 0):
        for chosen in combinations(places, count):
            if all(call(chosen, n) == ([(n, *shape[1:]) for shape in outputs], ranges) for n in (1, 2 * size + 1)):
                return [chosen]
    return []
