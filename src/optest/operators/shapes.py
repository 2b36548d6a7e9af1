"""Building blocks of inference: shapes, dimensions and dtype promotion by PyTorch's rules; standard library only.

Arguments that an operator does not accept raise :class:`UnfitArguments`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any

from optest.registry import load_object
from optest.spec import DType, Interval, Kind, OperatorDescriptor, TensorSpec, UnfitArguments, dtype, format_shape
from optest.spec.declared_shapes import Shape as Shape
from optest.spec.declared_shapes import Specs as Specs
from optest.spec.declared_shapes import require_index as require_index
from optest.spec.declared_shapes import require_spec as require_spec
from optest.spec.tensors import dense as dense

Attributes = Mapping[str, Any]
Outputs = tuple[TensorSpec, ...]
Inference = Callable[[Specs, Attributes], Outputs]


def for_each_dim(value: Any, rank: int) -> tuple[int, ...]:
    """Return a list or tuple as a tuple; repeat a number, or the only number of a list, for all ``rank`` dimensions."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return values * rank if len(values) == 1 else values


def slices_of(attributes: Attributes) -> list[tuple[int, Any, Any, Any]]:
    """Return dimension, start, end and step of each slice, with None for bounds that are not set.

    The dimensions are 0, 1, … if ``dim`` is not set.

    Raises:
        ValueError: for lists of different lengths.
    """
    lists = [attributes.get(name) for name in ("dim", "start", "end", "step")]
    count = max((len(values) for values in lists if values is not None), default=1)
    bounds = [values or (None,) * count for values in lists[1:]]
    return list(zip(lists[0] or range(count), *bounds, strict=True))


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the common shape that all broadcast to: sizes are aligned at the end, and a size of 1 repeats.

    Raises:
        UnfitArguments: for sizes that differ and are not 1.
    """
    result = shapes[0] if shapes else ()
    for shape in shapes[1:]:
        if shape == result:
            continue
        rank = max(len(result), len(shape))
        left, right = _with_leading_ones(result, rank), _with_leading_ones(shape, rank)
        for position, (a, b) in enumerate(zip(left, right, strict=True)):
            if a != b and 1 not in (a, b):
                raise UnfitArguments(
                    f"shape {format_shape(shape)} has the size {b} at dimension {position - rank}, "
                    f"expected {a} or 1 to broadcast with {format_shape(result)}"
                )
        result = tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
    return result


def _with_leading_ones(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


def broadcasts_to(shape: Shape, target: Shape) -> bool:
    """Return whether ``shape`` broadcasts to exactly ``target``."""
    if len(shape) > len(target):
        return False
    return all(a in (1, b) for a, b in zip(_with_leading_ones(shape, len(target)), target, strict=True))


def normalize_dim(dim: int, rank: int, name: str = "dim") -> int:
    """Return a dimension counted from the front; negative ones count from the end.

    Raises:
        UnfitArguments: if it is out of range; ``name`` is the attribute in the message.
    """
    # torch accepts dimensions 0 and -1 of a scalar.
    size = max(rank, 1)
    if not -size <= dim < size:
        raise UnfitArguments(f"{name} is {dim}, expected {-size} to {size - 1}, as input has {rank} dimensions")
    return dim % size


def reduced_dims(dims: int | Sequence[int] | None, rank: int) -> frozenset[int]:
    """Return the dimensions that a reduction removes, counted from the front; all for None and for an empty list.

    Raises:
        UnfitArguments: for a dimension that is out of range or named twice.
    """
    # As in torch.sum; numpy.sum reduces nothing for an empty tuple.
    if dims is None or dims == () or dims == []:
        return frozenset(range(rank))
    listed = (dims,) if isinstance(dims, int) else dims
    normalized = [normalize_dim(dim, rank) for dim in listed]
    if len(set(normalized)) < len(normalized):
        raise UnfitArguments(f"dim is {list(listed)}, expected each dimension once")
    return frozenset(normalized)


# Integers by the range that they hold; of two, the later one is the common dtype.
_ORDER = ("bool", "uint8", "int8", "int16", "int32", "int64")


def promote_dtypes(a: DType, b: DType) -> DType:
    """Return the common dtype of two by torch.promote_types.

    Raises:
        UnfitArguments: if torch has none: for float8 and 4-bit integers with any other dtype, and for unsigned integers
            of 16 bits and more with other integers, bool and complex.
    """
    if a == b:
        return a
    names = {a.name, b.name}
    incompatible = UnfitArguments(f"{a} and {b} have no common dtype: expected {a} for both")
    if any(entry.bits < 8 or (entry.is_float and entry.bits == 8) for entry in (a, b)):
        raise incompatible
    if {"uint16", "uint32", "uint64"} & names:
        floating = next((entry for entry in (a, b) if entry.is_float), None)
        if floating is None:
            raise incompatible
        return floating
    if a.is_complex or b.is_complex:
        return dtype("complex128" if names & {"complex128", "float64"} else "complex64")
    if a.is_float and b.is_float:
        # float16 and bfloat16: neither holds the other's values.
        return dtype("float32") if a.bits == b.bits else max(a, b, key=lambda entry: entry.bits)
    if a.is_float or b.is_float:
        return a if a.is_float else b
    if names == {"uint8", "int8"}:
        return dtype("int16")
    return max(a, b, key=lambda entry: _ORDER.index(entry.name))


def promote_tensors(specs: Sequence[TensorSpec]) -> DType:
    """Return the dtype of a result by torch.result_type.

    0-d tensors count only if they are of a higher category than the others (bool < integer < float < complex).

    Raises:
        UnfitArguments: if torch has no common dtype.
    """
    tensors, scalars = _promoted([s for s in specs if s.rank]), _promoted([s for s in specs if not s.rank])
    if tensors is None or scalars is None:
        only = tensors or scalars
        assert only is not None
        return only
    if tensors.is_complex or (tensors.is_float and not scalars.is_complex):
        return tensors
    if tensors.is_float:
        names = {"float64": "complex128", "float32": "complex64", "bfloat16": "complex64"}
        if tensors.name not in names:
            raise UnfitArguments(f"the scalar is complex, expected a real one with {tensors}: it has no complex dtype")
        return dtype(names[tensors.name])
    if tensors.kind is Kind.BOOL or scalars.is_inexact:
        return promote_dtypes(tensors, scalars)
    return tensors


def _promoted(specs: Sequence[TensorSpec]) -> DType | None:
    result: DType | None = None
    for spec in specs:
        result = spec.dtype if result is None else promote_dtypes(result, spec.dtype)
    return result


def as_float(result: DType) -> DType:
    """Return the dtype, or float32, torch's default, for integers and bool."""
    return result if result.is_inexact else dtype("float32")


def required_inputs(specs: Specs, *names: str) -> list[TensorSpec]:
    """Return the first inputs, which have these names in messages.

    Raises:
        UnfitArguments: for one that is left out.
    """
    return [require_spec(specs, index, name) for index, name in enumerate(names)]


def optional_spec(specs: Specs, index: int) -> TensorSpec | None:
    """Return the input at ``index``; None if it is left out."""
    return specs[index] if len(specs) > index else None


def first_size(specs: Specs, index: int) -> int:
    """Return the first size of the input at ``index``; 1 if it is a scalar or left out."""
    spec = optional_spec(specs, index)
    return spec.shape[0] if spec is not None and spec.rank else 1


def index_range(size: int) -> Interval:
    """Return the range of indices into ``size`` elements, 0 to size − 1."""
    # For a size of 0 there is no legal index; [0, 0] suits an index tensor without elements.
    return Interval(low=0.0, high=float(max(size - 1, 0)))


def require_dimensions(spec: TensorSpec, name: str, least: int) -> None:
    """Raise UnfitArguments if the input has fewer than ``least`` dimensions."""
    if spec.rank < least:
        words = "a dimension" if least == 1 else f"{least} dimensions"
        raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, expected {words} or more")


def require_rank(spec: TensorSpec, name: str, *ranks: int) -> None:
    """Raise UnfitArguments if the input's number of dimensions is none of ``ranks``."""
    if spec.rank not in ranks:
        words = f"{' or '.join(map(str, ranks))} dimension{'s' * (ranks != (1,))}"
        raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, expected {words}")


def require_shape(spec: TensorSpec, name: str, shape: Shape, why: str = "") -> None:
    """Raise UnfitArguments, with ``why`` at the end of its message, if the input has another shape."""
    if spec.shape != shape:
        raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, expected {format_shape(shape)}{why}")


def require_float(spec: TensorSpec, name: str) -> None:
    """Raise UnfitArguments if the input's dtype is no real float dtype."""
    if not spec.dtype.is_float:
        raise UnfitArguments(f"{name} is {spec.dtype}, expected a float dtype")


def length_of_dim(specs: Specs, attributes: Attributes) -> int:
    """Return the first input's size along the attribute ``dim``, by default the last; 1 for a scalar."""
    spec = specs[0]
    return spec.shape[normalize_dim(attributes.get("dim", -1), spec.rank)] if spec is not None and spec.rank else 1


def infer_same(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return one dense output with the shape and dtype of the input."""
    spec = require_spec(specs, 0, "input")
    return (dense(spec.dtype, spec.shape),)


def infer_float(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return one dense output with the shape of the input, in float32 for integers and bool."""
    spec = require_spec(specs, 0, "input")
    return (dense(as_float(spec.dtype), spec.shape),)


def require_same_dtype(first: TensorSpec, spec: TensorSpec, name: str) -> None:
    """Raise UnfitArguments if ``spec``, called ``name``, has another dtype than the first input."""
    # Most dtypes are the same object; the identity test spares a slower comparison.
    if spec.dtype is not first.dtype and spec.dtype != first.dtype:
        raise UnfitArguments(f"{name} is {spec.dtype}, expected {first.dtype}, as the first input")


def require_scalar(name: str, value: float, result: DType) -> None:
    """Raise UnfitArguments if ``result`` is an integer dtype that does not hold the factor ``value`` exactly."""
    if result.is_inexact or result.kind is Kind.BOOL:
        return
    if value != int(value) or not result.min_int <= value <= result.max_int:
        raise UnfitArguments(
            f"{name} is {value:g}, expected an integer of {result.min_int} to {result.max_int} for {result}"
        )


# Batches: inputs whose first dimension is that of the outputs, element for element


def batch_size(outputs: Sequence[Shape]) -> int:
    """Return the first size that all outputs share; 0 if they differ or one is a scalar."""
    sizes = {shape[0] if shape else 0 for shape in outputs}
    return sizes.pop() if len(sizes) == 1 else 0


def resized(spec: TensorSpec, size: int) -> TensorSpec:
    """Return a dense tensor like ``spec`` with ``size`` as its first size."""
    return TensorSpec(dtype=spec.dtype, shape=(size, *spec.shape[1:]))


def batch_inputs(
    descriptor: OperatorDescriptor, specs: Specs, attributes: Attributes, size: int
) -> list[tuple[int, ...]]:
    """Return the sets of inputs, as tuples of indices, that may hold a batch of ``size`` in their first dimension.

    With inference it is at most one set: the smallest whose first sizes all outputs follow, with no other change to
    them or to the ranges of indices. Without inference each input with that first size is a set by itself.
    """
    candidates = [index for index, spec in enumerate(specs) if spec is not None and spec.shape[:1] == (size,)]
    if descriptor.infer is None:
        return [(index,) for index in candidates]
    infer = load_object(descriptor.infer)
    domain = load_object(descriptor.domain)

    def call(chosen: Sequence[int], rows: int) -> tuple[list[Shape], Any]:
        changed = [resized(spec, rows) if spec is not None and i in chosen else spec for i, spec in enumerate(specs)]
        try:
            outputs = [spec.shape for spec in infer(changed, attributes)]
            return outputs, domain(changed, attributes) if callable(domain) else None
        except UnfitArguments:
            return [], None

    # Weights that happen to have as many rows are no batch: for `[n, n] @ [n, n]` the result is the first matrix.
    outputs, ranges = call((), size)
    for count in range(1, len(candidates) + 1 if outputs else 0):
        for chosen in combinations(candidates, count):
            # Longer and shorter: a size of 1 could broadcast, so one change alone is inconclusive.
            if all(call(chosen, n) == ([(n, *shape[1:]) for shape in outputs], ranges) for n in (1, 2 * size + 1)):
                return [chosen]
    return []
