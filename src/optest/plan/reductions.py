"""Smaller and simpler forms of a case, for the search for the smallest case that still fails.

An entry is a case in the form of a plan. A proposed entry may be invalid: building its case shows whether it is.
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
    """Return the plan entry of a case without labels, limits and marks, with a dtype and a layout for each tensor."""
    entry = {key: value for key, value in case_entry(case).items() if key not in _LEFT_OUT}
    output_dtypes = entry["dtypes"] if isinstance(entry.get("dtypes"), dict) else {}
    dtypes = {**output_dtypes, **{x.path: x.spec.dtype.name for x in case.inputs}}
    shapes = {path: x if isinstance(x, dict) else {"shape": x} for path, x in entry.get("shapes", {}).items()}
    return {"attributes": {}, **entry, "dtypes": dtypes, "shapes": shapes}


def _with_changes(entry: Entry, key: str, changes: Mapping[str, Any]) -> Entry:
    """Return the entry with these values in the mapping at ``key``; the value ``...`` removes a name."""
    values = {**entry[key], **changes}
    return {**entry, key: {name: value for name, value in values.items() if value is not ...}}


def _all_then_each(changes: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield all changes together, if there are several, then each on its own."""
    yield from [changes] if len(changes) > 1 else []
    yield from ({name: value} for name, value in changes.items())


# Layouts, fills, attributes, inputs, dtypes: replace unusual values by usual ones.


def _plain_layouts(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    """Yield entries with dense inputs, then with every second element of a dense tensor in place of other layouts."""
    shapes = {path: tensor["shape"] for path, tensor in entry["shapes"].items() if "offset" in tensor}
    dense = {path: {"shape": shape} for path, shape in shapes.items()}
    spread = {path: [2 * step for step in contiguous_strides(tuple(shape))] for path, shape in shapes.items()}
    wide = {path: {**dense[path], "strides": steps, "offset": 0} for path, steps in spread.items()}
    yield from (_with_changes(entry, "shapes", some) for changes in (dense, wide) for some in _all_then_each(changes))


def _plain_fills(entry: Entry, descriptor: OperatorDescriptor) -> Iterator[Entry]:
    """Yield entries with all inputs filled by ones, by a range, by the operator's default; then single ones by that."""
    fills, domain = entry.get("generator"), descriptor.domain
    current = list(fills.values()) if isinstance(fills, Mapping) else [fills]
    # Ones and ranges could be outside the values for which the operator is defined.
    takes_ones = isinstance(domain, Mapping) and all(x.low <= 1 <= x.high for x in domain.values())
    plain = ("ones", "arange") if not domain else ("ones",) if takes_ones else ()
    for fill in plain:
        if all(x == fill for x in current):
            return
        yield {**entry, "generator": fill}
    yield {key: value for key, value in entry.items() if key != "generator"}
    if isinstance(fills, Mapping):
        yield from (_with_changes(entry, "generator", {path: ...}) for path, fill in fills.items() if fill not in plain)


def _default_attributes(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    removed = dict.fromkeys(entry["attributes"], ...)
    return (_with_changes(entry, "attributes", some) for some in _all_then_each(removed))


def _fewer_inputs(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    # From the last one: mostly trailing inputs are optional.
    for path in reversed([x for x in entry["shapes"] if x.startswith("input")]):
        keys = [key for key, value in entry.items() if isinstance(value, Mapping) and path in value]
        yield {**entry, **{key: _with_changes(entry, key, {path: ...})[key] for key in keys}}


def _usual_dtypes(entry: Entry, _: OperatorDescriptor) -> Iterator[Entry]:
    """Yield entries with float32 for floats, complex64 for complex numbers, int32 for integers."""
    dtypes = entry["dtypes"]
    kinds = {name: dtype(name) for name in dtypes.values()}
    usual = {name: "complex64" if kind.is_complex else "float32" for name, kind in kinds.items() if kind.is_inexact}
    usual |= {name: "int32" for name, kind in kinds.items() if kind.is_integer}
    for some in _all_then_each({name: x for name, x in usual.items() if name != x}):
        yield {**entry, "dtypes": {path: some.get(name, name) for path, name in dtypes.items()}}


# Dimensions and sizes


def _fewer_dimensions(entry: Entry, descriptor: OperatorDescriptor) -> Iterator[Entry]:
    """Yield entries without one dimension, dropped or merged into the next one, of all tensors and of each."""
    for merges in (False, True):
        for ranks in _all_then_each({path: len(tensor["shape"]) for path, tensor in entry["shapes"].items()}):
            most = max(ranks.values())
            for axis in range(most):
                kept = {
                    path: _drop_size(tensor["shape"], axis - most + ranks.get(path, 0), merges=merges)
                    for path, tensor in entry["shapes"].items()
                }
                # Attributes that name a later dimension, from either end, count one less.
                names: dict[int, Any] = {
                    dim: dim - (dim > axis) if dim >= 0 else dim + (dim + most < axis) for dim in range(-most, most)
                }
                # The failure may need the attributes as they are, or as they follow from the new rank.
                yield _resized(entry, kept)
                names |= {axis: ..., axis - most: ...}
                yield _with_numbers(_resized(entry, kept), descriptor, names, dims=True)


def _drop_size(sizes: Sequence[int], axis: int, *, merges: bool) -> list[int | None]:
    """Return the sizes with None at ``axis``; with ``merges`` the next size is multiplied by the dropped one."""
    if axis < 0:
        return [*sizes]
    following = [prod(sizes[axis : axis + 2])] if merges else sizes[axis + 1 : axis + 2]
    return [*sizes[:axis], None, *following[: len(sizes) - axis - 1], *sizes[axis + 2 :]]


def _smaller_sizes(entry: Entry, descriptor: OperatorDescriptor) -> Iterator[Entry]:
    """Yield entries with all sizes limited, then with one size replaced in all tensors, then in one dimension only."""
    shapes = {path: list(tensor["shape"]) for path, tensor in entry["shapes"].items()}
    sizes = sorted({size for shape in shapes.values() for size in shape}, reverse=True)
    limits = [{size: min(size, most) for size in sizes} for size in sizes[:1] for most in _smaller(size)]
    for new in (*limits, *({size: less} for size in sizes for less in _smaller(size))):
        kept = {path: [new.get(size, size) for size in shape] for path, shape in shapes.items()}
        # An attribute of the same value may be the size of a tensor, or not.
        yield _with_numbers(_resized(entry, kept), descriptor, new)
        yield _resized(entry, kept)
        yield _resized(entry, kept, step=-1)
    for path, shape in shapes.items():
        for axis, size in enumerate(shape):
            for less in _smaller(size):
                yield _resized(entry, {**shapes, path: [*shape[:axis], less, *shape[axis + 1 :]]})


def _smaller(size: int) -> Iterator[int]:
    """Yield smaller sizes: 1, 2, 3, 5, 7, powers of two plus one, then the size less a half, a quarter … and 1."""
    # The tails of tiles begin after powers of two.
    tails = (2**power + 1 for power in range(3, size.bit_length()))
    yield from (x for x in (1, 2, 3, 5, 7, *tails) if x < size)
    yield from (size - (size >> bits) for bits in range(1, size.bit_length()))


def _with_numbers(entry: Entry, descriptor: OperatorDescriptor, new: Mapping[int, Any], *, dims: bool = False) -> Entry:
    """Return the entry with integers in attributes that (with ``dims``) name dimensions replaced, ``...`` removed."""

    def number(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [replaced for x in value if (replaced := number(x)) is not ...]
        return new.get(value, value) if type(value) is int else value

    named = {x.name for x in descriptor.attributes if x.names_dimensions}
    values = {name: value for name, value in entry["attributes"].items() if (name in named) is dims}
    return _with_changes(entry, "attributes", {name: number(value) for name, value in values.items()})


def _resized(entry: Entry, kept: Mapping[str, Sequence[int | None]], *, step: int = 1) -> Entry:
    """Return the entry with these sizes, without dimensions that are None; explicit values are cut to the sizes.

    They keep their first elements, or with ``step`` -1 their last; strides stay.
    """
    shapes, fills = {}, entry.get("generator")
    for path, tensor in entry["shapes"].items():
        layout, stays = {**tensor, "shape": kept[path]}, [size is not None for size in kept[path]]
        shapes[path] = {key: x if key == "offset" else list(compress(x, stays)) for key, x in layout.items()}
    if isinstance(fills, Mapping):
        data = {path: fill for path, fill in fills.items() if isinstance(fill, Mapping) and fill["fill"] == "data"}
        cut = {path: {**fill, "values": _cut(fill["values"], kept[path], step)} for path, fill in data.items()}
        entry = _with_changes(entry, "generator", cut)
    return {**entry, "shapes": shapes}


def _cut(values: Any, kept: Sequence[int | None], step: int) -> Any:
    if not kept:
        return values
    first, *rest = kept
    cut = [_cut(x, rest, step) for x in list(values)[::step][: 1 if first is None else first]][::step]
    return cut[0] if first is None else cut


# Simplifications in the order in which they are tried; each yields its largest steps first.
REDUCTIONS: Mapping[str, Callable[[Entry, OperatorDescriptor], Iterator[Entry]]] = {
    "layouts": _plain_layouts,
    "attributes": _default_attributes,
    "inputs": _fewer_inputs,
    "sizes": _smaller_sizes,
    "dimensions": _fewer_dimensions,
    "dtypes": _usual_dtypes,
    "values": _plain_fills,
}
