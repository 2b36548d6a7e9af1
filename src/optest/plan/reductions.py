"""Smaller and plainer forms of a case, for the search for the smallest one that still fails.

An entry is a case as a plan states it. What is proposed here need not be a case: building it finds out what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from math import prod
from typing import Any

from optest.plan.repro import case_entry
from optest.spec import OperatorDescriptor, TestCase, contiguous_strides, dtype

Entry = dict[str, Any]
_LEFT_OUT = ("name", "description", "tags", "timeout", "priority", "skip", "xfail")


def reducible_entry(case: TestCase) -> Entry:
    """What a case computes, and what is expected of it, with a dtype and a layout for each tensor."""
    stated = {key: value for key, value in case_entry(case).items() if key not in _LEFT_OUT}
    of_outputs = stated["dtypes"] if isinstance(stated.get("dtypes"), dict) else {}
    dtypes = {**of_outputs, **{each.path: each.spec.dtype.name for each in case.inputs}}
    tensors = stated.get("shapes", {})
    shapes = {path: each if isinstance(each, dict) else {"shape": each} for path, each in tensors.items()}
    return {"attributes": {}, **stated, "dtypes": dtypes, "shapes": shapes}


def _changed(entry: Entry, key: str, changes: Mapping[str, Any]) -> Entry:
    """With these values below a key; ``...`` takes one away."""
    values = {**entry[key], **changes}
    return {**entry, key: {name: value for name, value in values.items() if value is not ...}}


def _all_then_each(changes: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from [changes] if len(changes) > 1 else []
    yield from ({name: value} for name, value in changes.items())


# Layouts, fills, attributes, inputs, dtypes: from what is rare to what is usual


def _plain_layouts(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    """Dense inputs; where one cannot be dense, every second element of a dense one."""
    shapes = {path: tensor["shape"] for path, tensor in entry["shapes"].items() if "offset" in tensor}
    dense = {path: {"shape": shape} for path, shape in shapes.items()}
    spread = {path: [2 * step for step in contiguous_strides(tuple(shape))] for path, shape in shapes.items()}
    wide = {path: {**dense[path], "strides": steps, "offset": 0} for path, steps in spread.items()}
    yield from (_changed(entry, "shapes", some) for changes in (dense, wide) for some in _all_then_each(changes))


def _plain_fills(entry: Entry, descriptor: OperatorDescriptor) -> Iterator[Entry]:
    """Ones, whole numbers in order, what the operator draws; then each input that has none of these by itself."""
    fills, domain = entry.get("generator"), descriptor.domain
    stated = list(fills.values()) if isinstance(fills, Mapping) else [fills]
    takes_ones = isinstance(domain, Mapping) and all(each.low <= 1 <= each.high for each in domain.values())
    plain = ("ones", "arange") if not domain else ("ones",) if takes_ones else ()
    for fill in plain:
        if all(each == fill for each in stated):
            return
        yield {**entry, "generator": fill}
    yield {key: value for key, value in entry.items() if key != "generator"}
    if isinstance(fills, Mapping):
        yield from (_changed(entry, "generator", {path: ...}) for path, fill in fills.items() if fill not in plain)


def _usual_attributes(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    return (_changed(entry, "attributes", some) for some in _all_then_each(dict.fromkeys(entry["attributes"], ...)))


def _fewer_inputs(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    for path in reversed([each for each in entry["shapes"] if each.startswith("input")]):
        keys = [key for key, value in entry.items() if isinstance(value, Mapping) and path in value]
        yield {**entry, **{key: _changed(entry, key, {path: ...})[key] for key in keys}}


def _usual_dtypes(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    """float32 for floats, complex64 for complex numbers, int32 for integers."""
    dtypes = entry["dtypes"]
    kinds = {name: dtype(name) for name in dtypes.values()}
    usual = {name: "complex64" if kind.is_complex else "float32" for name, kind in kinds.items() if kind.is_inexact}
    usual |= {name: "int32" for name, kind in kinds.items() if kind.is_integer}
    for some in _all_then_each({name: other for name, other in usual.items() if name != other}):
        yield {**entry, "dtypes": {path: some.get(name, name) for path, name in dtypes.items()}}


# Dimensions and sizes


def _fewer_dimensions(entry: Entry, descriptor: OperatorDescriptor) -> Iterator[Entry]:
    """Without a dimension of all tensors, counted from the end; of one; then with it and the next one made one."""
    for merges in (False, True):
        for ranks in _all_then_each({path: len(tensor["shape"]) for path, tensor in entry["shapes"].items()}):
            most = max(ranks.values())
            for axis in range(most):
                kept = {
                    path: _without(tensor["shape"], axis - most + ranks.get(path, 0), merges=merges)
                    for path, tensor in entry["shapes"].items()
                }
                names = {
                    dim: dim - (dim > axis) if dim >= 0 else dim + (dim + most < axis) for dim in range(-most, most)
                }
                yield _resized(entry, kept)
                yield _renumbered(_resized(entry, kept), descriptor, {**names, axis: ..., axis - most: ...}, dims=True)


def _without(sizes: Sequence[int], axis: int, *, merges: bool) -> list[int | None]:
    """None for one size, by which the next one is multiplied if it ``merges``."""
    if axis < 0:
        return [*sizes]
    following = [prod(sizes[axis : axis + 2])] if merges else sizes[axis + 1 : axis + 2]
    return [*sizes[:axis], None, *following[: len(sizes) - axis - 1], *sizes[axis + 2 :]]


def _smaller_sizes(entry: Entry, descriptor: OperatorDescriptor) -> Iterator[Entry]:
    """All sizes up to a limit, then one size wherever it stands, with the attributes that are equal to it and without;
    then each by itself."""
    shapes = {path: list(tensor["shape"]) for path, tensor in entry["shapes"].items()}
    sizes = sorted({size for shape in shapes.values() for size in shape}, reverse=True)
    limits = [{size: min(size, most) for size in sizes} for size in sizes[:1] for most in _smaller(size)]
    for new in (*limits, *({size: less} for size in sizes for less in _smaller(size))):
        kept = {path: [new.get(size, size) for size in shape] for path, shape in shapes.items()}
        yield _renumbered(_resized(entry, kept), descriptor, new)
        yield _resized(entry, kept)
        yield _resized(entry, kept, step=-1)
    for path, shape in shapes.items():
        for axis, size in enumerate(shape):
            for less in _smaller(size):
                yield _resized(entry, {**shapes, path: [*shape[:axis], less, *shape[axis + 1 :]]})


def _smaller(size: int) -> Iterator[int]:
    """The usual small sizes and those behind powers of two, where the tails of tiles begin; then less by a half, a
    quarter and so on, at last by 1."""
    behind = (2**power + 1 for power in range(3, size.bit_length()))
    yield from (each for each in (1, 2, 3, 5, 7, *behind) if each < size)
    yield from (size - (size >> bits) for bits in range(1, size.bit_length()))


def _renumbered(entry: Entry, descriptor: OperatorDescriptor, new: Mapping[int, Any], *, dims: bool = False) -> Entry:
    """With other numbers in the attributes that name dimensions, or in all others; ``...`` is left out."""

    def number(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [other for each in value if (other := number(each)) is not ...]
        return new.get(value, value) if type(value) is int else value

    named = {each.name for each in descriptor.attributes if each.names_dimensions}
    stated = {name: value for name, value in entry["attributes"].items() if (name in named) is dims}
    return _changed(entry, "attributes", {name: number(value) for name, value in stated.items()})


def _resized(entry: Entry, kept: Mapping[str, Sequence[int | None]], *, step: int = 1) -> Entry:
    """The entry with these sizes, None for a dimension that is dropped; strides stay, values that are written are cut:
    the first of them stay, or with ``step`` -1 the last."""
    shapes, fills = {}, entry.get("generator")
    for path, tensor in entry["shapes"].items():
        layout, stays = {**tensor, "shape": kept[path]}, [size is not None for size in kept[path]]
        shapes[path] = {key: each if key == "offset" else list(compress(each, stays)) for key, each in layout.items()}
    if isinstance(fills, Mapping):
        data = {path: fill for path, fill in fills.items() if isinstance(fill, Mapping) and fill["fill"] == "data"}
        cut = {path: {**fill, "values": _cut(fill["values"], kept[path], step)} for path, fill in data.items()}
        entry = _changed(entry, "generator", cut)
    return {**entry, "shapes": shapes}


def _cut(values: Any, kept: Sequence[int | None], step: int) -> Any:
    if not kept:
        return values
    first, *rest = kept
    cut = [_cut(each, rest, step) for each in list(values)[::step][: 1 if first is None else first]][::step]
    return cut[0] if first is None else cut


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
