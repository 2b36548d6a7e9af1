"""Smaller and plainer forms of a case, for the search for the smallest one that still fails.

An entry is a case as a plan states it. What is proposed here need not be a case: building it finds out what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from optest.plan.repro import case_entry
from optest.spec import OperatorDescriptor, TestCase, contiguous_strides, dtype

__all__ = ["REDUCTIONS", "reducible_entry"]

Entry = dict[str, Any]
_COMPUTED = ("op", "dtypes", "shapes", "attributes", "generator", "reference", "backend_config", "seed", "retries")
_JUDGED = ("expects_error", "invariants")


def reducible_entry(case: TestCase) -> Entry:
    """What a case computes, and what is expected of it, with a dtype for each tensor; without its name and marks."""
    stated = case_entry(case)
    entry = {key: stated[key] for key in (*_COMPUTED, *_JUDGED) if key in stated}
    of_outputs = entry["dtypes"] if isinstance(entry.get("dtypes"), dict) else {}
    entry["dtypes"] = {**of_outputs, **{each.path: each.spec.dtype.name for each in case.inputs}}
    shapes = {
        path: tensor
        if isinstance(tensor, list)
        else {"strides": list(contiguous_strides(tuple(tensor["shape"]))), **tensor}
        for path, tensor in entry.get("shapes", {}).items()
    }
    return {"attributes": {}, **entry, "shapes": shapes}


# Layouts, fills, attributes, inputs, dtypes: from what is rare to what is usual


def _plain_layouts(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    """Dense inputs; where one cannot be dense, smaller strides and offsets."""
    shapes = entry["shapes"]
    laid = {path: tensor for path, tensor in shapes.items() if isinstance(tensor, Mapping)}
    for several in _all_then_each(laid):
        yield {**entry, "shapes": {**shapes, **{path: laid[path]["shape"] for path in several}}}
    for path, tensor in laid.items():
        strides, offset = tensor["strides"], tensor["offset"]
        if offset:
            yield from (
                {**entry, "shapes": {**shapes, path: {**tensor, "offset": new}}} for new in (0, *_smaller(offset))
            )
        for axis, step in enumerate(strides):
            for new in _smaller(abs(step)):
                steps = [*strides[:axis], new if step > 0 else -new, *strides[axis + 1 :]]
                yield {**entry, "shapes": {**shapes, path: {**tensor, "strides": steps}}}


def _plain_fills(entry: Entry, descriptor: OperatorDescriptor) -> Iterator[Entry]:
    """Ones, whole numbers in order, what the operator draws; then each input that has none of these by itself."""
    fills = entry.get("generator")
    stated = list(fills.values()) if isinstance(fills, Mapping) else [fills]
    for fill in _PLAIN if not descriptor.domain else ():
        if all(each == fill for each in stated):
            return
        yield {**entry, "generator": fill}
    yield {key: value for key, value in entry.items() if key != "generator"}
    if isinstance(fills, Mapping):
        for path in [path for path, fill in fills.items() if fill not in _PLAIN]:
            yield {**entry, "generator": {other: fill for other, fill in fills.items() if other != path}}


_PLAIN = ("ones", "arange")


def _usual_attributes(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    stated = entry["attributes"]
    for several in _all_then_each(stated):
        yield {**entry, "attributes": {name: value for name, value in stated.items() if name not in several}}


def _fewer_inputs(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    for path in reversed([each for each in entry["shapes"] if each.startswith("input")]):
        yield {
            key: {name: each for name, each in value.items() if name != path} if isinstance(value, Mapping) else value
            for key, value in entry.items()
        }


def _usual_dtypes(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    """float32 for floats, complex64 for complex numbers, int32 for integers."""
    dtypes = entry["dtypes"]
    usual = {name: _usual(name) for name in dict.fromkeys(dtypes.values())}
    for several in _all_then_each([name for name, other in usual.items() if name != other]):
        yield {**entry, "dtypes": {path: usual[name] if name in several else name for path, name in dtypes.items()}}


def _usual(name: str) -> str:
    kind = dtype(name)
    if kind.is_complex:
        return "complex64"
    return "float32" if kind.is_float else "int32" if kind.is_integer else name


def _all_then_each(names: Any) -> Iterator[Sequence[str]]:
    names = list(names)
    yield from [names] if len(names) > 1 else []
    yield from ([name] for name in names)


# Dimensions and sizes


def _fewer_dimensions(entry: Entry, descriptor: OperatorDescriptor) -> Iterator[Entry]:
    """Without one dimension of all tensors that have most of them; of all, counted from the end; of one tensor."""
    ranks = {path: len(_sizes(tensor)) for path, tensor in entry["shapes"].items()}
    most = max(ranks.values(), default=0)
    for axis in range(most):
        deepest = {path: axis for path, rank in ranks.items() if rank == most}
        yield _without_dimension(entry, deepest, _renamed(entry["attributes"], descriptor, axis, most))
    for back in range(1, most + 1):
        shared = {path: rank - back for path, rank in ranks.items() if rank >= back}
        yield _without_dimension(entry, shared, _renamed(entry["attributes"], descriptor, most - back, most))
    for path, rank in ranks.items() if len(ranks) > 1 else ():
        yield from (_without_dimension(entry, {path: axis}, entry["attributes"]) for axis in range(rank))


def _without_dimension(entry: Entry, axes: Mapping[str, int], attributes: Mapping[str, Any]) -> Entry:
    kept = {
        path: [None if axis == axes.get(path) else size for axis, size in enumerate(_sizes(tensor))]
        for path, tensor in entry["shapes"].items()
    }
    return {**_resized(entry, kept), "attributes": attributes}


def _renamed(attributes: Mapping[str, Any], descriptor: OperatorDescriptor, axis: int, rank: int) -> dict[str, Any]:
    """The attributes where dimension ``axis`` of ``rank`` is no longer there."""

    def place(dim: int) -> int:
        return dim - (dim > axis) if dim >= 0 else dim + (dim + rank < axis)

    named = {each.name for each in descriptor.attributes if each.names_dimensions}
    renamed = dict(attributes)
    for name in named & renamed.keys():
        value = renamed[name]
        if isinstance(value, (list, tuple)):
            renamed[name] = [place(dim) for dim in value if dim % rank != axis]
        elif isinstance(value, int):
            renamed[name] = place(value)
    return renamed


def _smaller_sizes(entry: Entry, descriptor: OperatorDescriptor) -> Iterator[Entry]:
    """One size wherever it stands, with the attributes that are equal to it and without; then each by itself."""
    sizes = {path: _sizes(tensor) for path, tensor in entry["shapes"].items()}
    for size in sorted({each for shape in sizes.values() for each in shape if each > 1}, reverse=True):
        for new in _smaller(size):
            kept = {path: [new if each == size else each for each in shape] for path, shape in sizes.items()}
            resized = _resized(entry, kept)
            numbers = _renumbered(entry["attributes"], descriptor, size, new)
            yield from ({**resized, "attributes": each} for each in (numbers, entry["attributes"]))
            if _has_values(entry):
                yield _resized(entry, kept, from_end=True)
    for path, shape in sizes.items():
        for axis, size in enumerate(shape):
            for new in _smaller(size):
                yield _resized(entry, {**sizes, path: [*shape[:axis], new, *shape[axis + 1 :]]})


def _smaller(size: int) -> Iterator[int]:
    """1, then less by a half, a quarter and so on, at last by 1."""
    yield from [1] if size > 1 else []
    step = size // 2
    while step and size > 2:
        yield size - step
        step //= 2


def _renumbered(attributes: Mapping[str, Any], descriptor: OperatorDescriptor, old: int, new: int) -> dict[str, Any]:
    """The attributes with ``new`` for the number ``old``, but for those that name dimensions."""

    def number(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [number(each) for each in value]
        return new if type(value) is int and value == old else value

    named = {each.name for each in descriptor.attributes if each.names_dimensions}
    return {name: value if name in named else number(value) for name, value in attributes.items()}


def _sizes(tensor: Any) -> list[int]:
    return list(tensor["shape"] if isinstance(tensor, Mapping) else tensor)


def _resized(entry: Entry, kept: Mapping[str, Sequence[int | None]], *, from_end: bool = False) -> Entry:
    """The entry with these sizes, None for a dimension that is dropped; strides stay, values that are written are cut:
    the first of them stay, or the last."""
    shapes: dict[str, Any] = {}
    for path, tensor in entry["shapes"].items():
        sizes = [size for size in kept[path] if size is not None]
        shapes[path] = sizes
        if isinstance(tensor, Mapping):
            strides = [step for step, size in zip(tensor["strides"], kept[path], strict=True) if size is not None]
            shapes[path] = {**tensor, "shape": sizes, "strides": strides}
    resized = {**entry, "shapes": shapes}
    if _has_values(entry):
        resized["generator"] = {
            path: {**fill, "values": _cut(fill["values"], kept[path], from_end=from_end)} if _is_data(fill) else fill
            for path, fill in entry["generator"].items()
        }
    return resized


def _has_values(entry: Entry) -> bool:
    fills = entry.get("generator")
    return isinstance(fills, Mapping) and any(map(_is_data, fills.values()))


def _is_data(fill: Any) -> bool:
    return isinstance(fill, Mapping) and fill.get("fill") == "data"


def _cut(values: Any, kept: Sequence[int | None], *, from_end: bool) -> Any:
    if not kept:
        return values
    first, *rest = kept
    ordered = list(values)[::-1] if from_end else list(values)
    cut = [_cut(each, rest, from_end=from_end) for each in islice(ordered, 1 if first is None else first)]
    if first is None:
        return cut[0]
    return cut[::-1] if from_end else cut


REDUCTIONS: Mapping[str, Callable[[Entry, OperatorDescriptor], Iterator[Entry]]] = {
    "layouts": _plain_layouts,
    "attributes": _usual_attributes,
    "inputs": _fewer_inputs,
    "sizes": _smaller_sizes,
    "dimensions": _fewer_dimensions,
    "dtypes": _usual_dtypes,
    "values": _plain_fills,
}
"""What is made smaller or plainer, in the order in which it is tried; each yields the largest steps first."""
