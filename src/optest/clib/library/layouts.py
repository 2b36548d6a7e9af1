"""Tensors as libraries take them: dtypes, ranks and layouts of the mapping, and for those without descriptors one
increment, one leading dimension, or a gap in words.

Nothing is copied to make a layout fit: one that the function cannot express is a :class:`Gap`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from optest.clib.library.mapping_words import SAME
from optest.clib.library.operator_mapping import OperatorMapping
from optest.errors import plural
from optest.spec import TensorSpec, TestCase, contiguous_strides

_LAYOUTS = {
    "dense": "row-major, without gaps",
    "rows": "the innermost stride is 1",
    "matrix": "one of the two innermost strides is 1, as in BLAS",
}
"""What a library may need of the layout of a tensor."""


class Gap(Exception):
    """What a function cannot be told about a tensor, in words that follow the tensor's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A dimension, or several that lie evenly in memory and are walked as one; ``stride`` counts elements."""

    size: int
    stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A matrix as BLAS sees it: as it is stored, whether it is multiplied transposed, and the leading dimension."""

    rows: int
    columns: int
    leading: int
    is_transposed: bool


def strides_of(spec: TensorSpec) -> tuple[int, ...]:
    """In elements, also of a tensor that is dense without stating them."""
    return contiguous_strides(spec.shape) if spec.strides is None else spec.strides


def reaches(shape: Sequence[int], reached: Sequence[int]) -> bool:
    """Whether strides of 0 give a tensor of ``shape`` the other one."""
    sizes = zip(shape[::-1], reached[::-1], strict=False)
    return len(shape) <= len(reached) and all(size in (1, other) for size, other in sizes)


def dense(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(dtype=spec.dtype, shape=spec.shape)


def axes_of(spec: TensorSpec, dims: Sequence[str]) -> tuple[Axis, ...]:
    """The dimensions of a tensor by the names that a mapping gives them; ``n...`` takes all that no other name has.

    Raises:
        Gap: for another number of dimensions, or some that have to be walked as one and do not lie evenly.
    """
    shape, strides = spec.shape, strides_of(spec)
    many = next((place for place, name in enumerate(dims) if name.endswith("...")), None)
    if many is None:
        if len(shape) != len(dims):
            raise Gap(f"has {plural(len(shape), 'dimension')}, expected {len(dims)}")
        return tuple(Axis(size=size, stride=stride) for size, stride in zip(shape, strides, strict=True))
    behind = len(dims) - many - 1
    if len(shape) < len(dims) - 1:
        raise Gap(f"has {plural(len(shape), 'dimension')}, expected {len(dims) - 1} or more")
    end = len(shape) - behind
    single = [Axis(size=size, stride=stride) for size, stride in zip(shape, strides, strict=True)]
    return (*single[:many], _as_one(shape[many:end], strides[many:end]), *single[end:])


def _as_one(shape: Sequence[int], strides: Sequence[int]) -> Axis:
    """Dimensions walked in row-major order as one, if each is as long as a step of the one before."""
    size = prod(shape)
    walked = [(count, stride) for count, stride in zip(shape, strides, strict=True) if count != 1]
    if size <= 1 or not walked:
        return Axis(size=size, stride=1)
    for (_, outer), (count, inner) in pairwise(walked):
        if outer != count * inner:
            raise Gap(f"has strides {list(strides)}, which one increment does not walk in order")
    return Axis(size=size, stride=walked[-1][1])


def increment_of(axis: Axis, allowed: str) -> int:
    """The step from one element of a vector to the next, in elements.

    ``allowed`` is ``any``, ``nonzero`` or ``positive``. A vector of one element or none has no step; where its stride
    is not allowed, 1 stands for it.

    Raises:
        Gap: for a step that is not allowed.
    """
    fits = {"any": True, "nonzero": axis.stride != 0, "positive": axis.stride > 0}[allowed]
    if fits:
        return axis.stride
    if axis.size <= 1:
        return 1
    required = "positive" if allowed == "positive" else "other than 0"
    raise Gap(f"has the increment {axis.stride}, expected one that is {required}")


def matrix_of(rows: Axis, columns: Axis, *, by_rows: bool = True) -> Matrix:
    """How a matrix is stored, seen in the order of the call; as it lies where both ways would do.

    Raises:
        Gap: for strides that no leading dimension expresses.
    """
    lines, steps = (rows, columns) if by_rows else (columns, rows)
    for outer, inner, transposed in ((lines, steps, False), (steps, lines, True)):
        if _is_unit(inner) and (outer.stride >= max(1, inner.size) or outer.size <= 1):
            # A single line has no distance to the next: its stride stands where it is legal, else the least that is.
            leading = max(outer.stride, inner.size, 1) if outer.size <= 1 else outer.stride
            stored = (columns.size, rows.size) if transposed else (rows.size, columns.size)
            return Matrix(rows=stored[0], columns=stored[1], leading=leading, is_transposed=transposed)
    strides = f"has strides [{rows.stride}, {columns.stride}] for {rows.size}x{columns.size}"
    if not _is_unit(rows) and not _is_unit(columns):
        raise Gap(f"{strides}, but one of them should be 1")
    raise Gap(f"{strides}, but lines should lie one behind the other, at a distance of a line or more")


def _is_unit(axis: Axis) -> bool:
    return axis.stride == 1 or axis.size <= 1


Tensors = Mapping[str, TensorSpec]
"""By name."""


def tensors_of(case: TestCase) -> dict[str, TensorSpec]:
    """Inputs and outputs by name."""
    return {**{each.name: each.spec for each in case.inputs}, **outputs_of(case)}


def outputs_of(case: TestCase) -> dict[str, TensorSpec]:
    """By name, as far as the case has them."""
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    return dict(zip(names, case.outputs, strict=False))


def require_dtypes(tensors: Tensors, entry: OperatorMapping, free: Collection[str] = ()) -> str:
    """The dtype that the tensors share; those that are ``free``, since C is told theirs in a wrong call, may have any.

    Raises:
        Gap: for a dtype, or a mixture of them, that the operator does not have.
    """
    function = entry.any_function
    alike: list[str] = []
    for tensor, spec in tensors.items():
        own, allowed = spec.dtype.name, entry.dtypes_of.get(tensor)
        if tensor in free:
            alike += [] if alike else [own]
        elif allowed is None or (SAME in allowed and own not in allowed):
            alike.append(own)
        elif own not in allowed:
            raise Gap(f"{function} takes {tensor} of {' or '.join(allowed)}, but the case has {own}")
    shared = list(dict.fromkeys(alike))
    if len(shared) > 1:
        raise Gap(f"{function} takes tensors of one dtype, but the case has {', '.join(sorted(shared))}")
    name = shared[0] if shared else next(iter(entry.dtypes), "")
    has_any = len(free) == len(tensors) and len(set(entry.functions.values())) < 2
    if entry.dtypes and name not in entry.dtypes and not has_any:
        known = ", ".join(dict.fromkeys(entry.functions.values())) or f"{function} for {', '.join(entry.dtypes)}"
        raise Gap(f"there is no function for {name}; there is {known}")
    return name or next((spec.dtype.name for spec in tensors.values()), "float32")


def require_promised(tensors: Tensors, entry: OperatorMapping) -> None:
    """Raise a gap for a number of dimensions, or a way to lie in memory, that the operator does not take."""
    for tensor, allowed in entry.ranks.items():
        if tensor in tensors and tensors[tensor].rank not in {each.among(tensors) for each in allowed}:
            raise Gap(f"{entry.any_function} takes no {tensor} of {tensors[tensor].rank} dimensions")
    for tensor, needed in entry.layouts.items():
        if tensor in tensors and not has_layout(tensors[tensor], needed):
            raise Gap(f"{entry.any_function} takes no {tensor} {tensors[tensor]}, but {needed}: {_LAYOUTS[needed]}")


def has_layout(spec: TensorSpec, needed: str) -> bool:
    """Return whether a tensor lies as a word of ``layouts`` says; one without dimensions always does."""
    if needed == "dense":
        return spec.is_dense
    innermost = strides_of(spec)[-2:]
    return not innermost or 1 in (innermost if needed == "matrix" else innermost[-1:])
