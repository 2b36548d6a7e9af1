"""Tensors as C libraries take them: dtypes, ranks and layouts of the mapping; without descriptors, one increment or one
leading dimension.

Nothing is copied to make a layout fit: a layout that the function cannot express is a :class:`Gap`.
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

# Layouts that a library may require of a tensor.
_LAYOUTS = {
    "dense": "row-major, without gaps",
    "rows": "the innermost stride is 1",
    "matrix": "one of the two innermost strides is 1, as in BLAS",
}


class Gap(Exception):
    """A property of a tensor that a function cannot take; often worded to follow the tensor's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A dimension, or several evenly spaced ones walked as one."""

    size: int
    stride: int  # in elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """A matrix as it is passed to BLAS."""

    rows: int  # as stored
    columns: int  # as stored
    leading: int  # distance between stored lines, in elements
    is_transposed: bool  # the stored matrix is the transpose of the operand


def strides_of(spec: TensorSpec) -> tuple[int, ...]:
    """Return the strides in elements, computed if the tensor is dense without explicit ones."""
    return contiguous_strides(spec.shape) if spec.strides is None else spec.strides


def reaches(shape: Sequence[int], reached: Sequence[int]) -> bool:
    """Return whether a tensor of ``shape`` broadcasts to ``reached``."""
    sizes = zip(shape[::-1], reached[::-1], strict=False)
    return len(shape) <= len(reached) and all(size in (1, target) for size, target in sizes)


def axes_of(spec: TensorSpec, dims: Sequence[str]) -> tuple[Axis, ...]:
    """Return the axes of a tensor by the mapping's names, ``n...`` merging all others; raise Gap if they do not fit."""
    shape, strides = spec.shape, strides_of(spec)
    variadic = next((index for index, name in enumerate(dims) if name.endswith("...")), None)
    if variadic is None:
        if len(shape) != len(dims):
            raise Gap(f"has {plural(len(shape), 'dimension')}, expected {len(dims)}")
        return tuple(Axis(size=size, stride=stride) for size, stride in zip(shape, strides, strict=True))
    behind = len(dims) - variadic - 1
    if len(shape) < len(dims) - 1:
        raise Gap(f"has {plural(len(shape), 'dimension')}, expected {len(dims) - 1} or more")
    end = len(shape) - behind
    single = [Axis(size=size, stride=stride) for size, stride in zip(shape, strides, strict=True)]
    return (*single[:variadic], _merge_dimensions(shape[variadic:end], strides[variadic:end]), *single[end:])


def _merge_dimensions(shape: Sequence[int], strides: Sequence[int]) -> Axis:
    """Merge dimensions into one axis; raise a gap unless each stride equals the extent of the next dimension."""
    size = prod(shape)
    walked = [(count, stride) for count, stride in zip(shape, strides, strict=True) if count != 1]
    if size <= 1 or not walked:
        return Axis(size=size, stride=1)
    for (_, outer), (count, inner) in pairwise(walked):
        if outer != count * inner:
            raise Gap(f"has strides {list(strides)}, which no single increment expresses")
    return Axis(size=size, stride=walked[-1][1])


def increment_of(axis: Axis, allowed: str) -> int:
    """Return a vector's step in elements if ``allowed``, else 1 for at most one element, else raise Gap."""
    fits = {"any": True, "nonzero": axis.stride != 0, "positive": axis.stride > 0}[allowed]
    if fits:
        return axis.stride
    if axis.size <= 1:
        return 1
    required = "positive" if allowed == "positive" else "other than 0"
    raise Gap(f"has the increment {axis.stride}, expected one that is {required}")


def matrix_of(rows: Axis, columns: Axis, *, by_rows: bool = True) -> Matrix:
    """Return how a matrix is stored by rows or columns, untransposed if both fit; raise Gap if neither does."""
    lines, steps = (rows, columns) if by_rows else (columns, rows)
    for outer, inner, transposed in ((lines, steps, False), (steps, lines, True)):
        if _is_unit(inner) and (outer.stride >= max(1, inner.size) or outer.size <= 1):
            # A single line has no next one: keep its stride if it is legal, else take the least legal one.
            leading = max(outer.stride, inner.size, 1) if outer.size <= 1 else outer.stride
            stored = (columns.size, rows.size) if transposed else (rows.size, columns.size)
            return Matrix(rows=stored[0], columns=stored[1], leading=leading, is_transposed=transposed)
    strides = f"has strides [{rows.stride}, {columns.stride}] for {rows.size}x{columns.size}"
    if not _is_unit(rows) and not _is_unit(columns):
        raise Gap(f"{strides}, but one of them should be 1")
    raise Gap(f"{strides}, but rows (or columns) should not overlap")


def _is_unit(axis: Axis) -> bool:
    return axis.stride == 1 or axis.size <= 1


Tensors = Mapping[str, TensorSpec]  # Tensor specs by name.


def tensors_of(case: TestCase) -> dict[str, TensorSpec]:
    """Return the specs of inputs and outputs by name."""
    return {**{arg.name: arg.spec for arg in case.inputs}, **outputs_of(case)}


def outputs_of(case: TestCase) -> dict[str, TensorSpec]:
    """Return the specs of the case's outputs by name."""
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    return dict(zip(names, case.outputs, strict=False))


def require_dtypes(tensors: Tensors, entry: OperatorMapping, free: Collection[str] = ()) -> str:
    """Return the dtype that all tensors except ``free`` ones share; raise Gap if the operator lacks it."""
    function = entry.any_function
    alike: list[str] = []
    for tensor, spec in tensors.items():
        kind, allowed = spec.dtype.name, entry.dtypes_of.get(tensor)
        if tensor in free:
            alike += [] if alike else [kind]  # a free tensor counts only if it is the first
        elif allowed is None or (SAME in allowed and kind not in allowed):
            alike.append(kind)
        elif kind not in allowed:
            raise Gap(f"{function} takes {tensor} of {' or '.join(allowed)}, but the case has {kind}")
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
    """Raise a gap for a rank or a layout that the mapping's operator does not take."""
    for tensor, allowed in entry.ranks.items():
        if tensor in tensors and tensors[tensor].rank not in {rank.among(tensors) for rank in allowed}:
            raise Gap(f"{entry.any_function} takes no {tensor} of {tensors[tensor].rank} dimensions")
    for tensor, needed in entry.layouts.items():
        if tensor in tensors and not has_layout(tensors[tensor], needed):
            raise Gap(f"{entry.any_function} takes no {tensor} {tensors[tensor]}, but {needed}: {_LAYOUTS[needed]}")


def has_layout(spec: TensorSpec, needed: str) -> bool:
    """Return whether a tensor has a layout of the mapping's ``layouts``; a tensor without dimensions has each."""
    if needed == "dense":
        return spec.is_dense
    innermost = strides_of(spec)[-2:]
    return not innermost or 1 in (innermost if needed == "matrix" else innermost[-1:])
