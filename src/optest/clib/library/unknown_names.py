"""What a mapping names and optest's operator does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from optest.clib.library.mapping_words import SIZE
from optest.clib.library.operator_mapping import OperatorMapping
from optest.errors import did_you_mean
from optest.spec import OperatorDescriptor, UnfitArguments

__all__ = ["unknown_names"]

_OF_TENSORS = ("elements", "ndim", "shape", "strides", "dtype", "descriptor")


def unknown_names(entry: OperatorMapping, descriptor: OperatorDescriptor) -> list[str]:
    """Each as a sentence with the nearest name, the operator's tensors and attributes first."""
    inputs, outputs = [each.name for each in descriptor.tensors.inputs], list(descriptor.tensors.outputs)
    attributes = [each.name for each in descriptor.attributes]
    made = entry.read.made_tensors
    known = {
        "input": inputs,
        "scalar": inputs,
        "output": outputs,
        "attribute": attributes,
        "count": attributes,
        "tensor": [*inputs, *outputs],
    }
    named = [(each.kind, each.name) for each in entry.read.roles if each.kind in known and each.kind != "tensor"]
    named += [("attribute", name) for name in made]
    passed = entry.read.passed
    named += [("attribute", each.name) for each in passed if each.kind == "count"]
    named += [("tensor", each.name) for each in passed if each.kind in _OF_TENSORS and each.name not in made]
    named += list(_of_keys(entry))
    wrong = dict.fromkeys((kind, name) for kind, name in named if name not in known[kind])
    return [_unknown(descriptor.name, kind, name, known[kind]) for kind, name in wrong] or list(
        _unfit(entry, descriptor)
    )


def _of_keys(entry: OperatorMapping) -> Iterator[tuple[str, str]]:
    """What the keys beside the calls name, by kind."""
    start = entry.starts_as
    if start is not None:
        yield from (("output", start.output), ("input", start.input))
        yield from (("attribute", name) for name in start.without)
    yield from (("input", name) for name in (*entry.in_place, *entry.arange, *entry.indexes))
    yield from (("input", counting.of) for counting in entry.arange.values())
    tensors = (*entry.dims, *entry.swapped, *entry.dtypes_of, *entry.ranks, *entry.layouts)
    yield from (("tensor", name) for name in tensors)
    yield from (("attribute", name) for name in sorted(entry.read.stated_attributes))
    yield from (("tensor", rank.tensor) for ranks in entry.ranks.values() for rank in ranks if rank.tensor)
    yield from (("tensor", place.tensor) for place in entry.indexes.values())
    for rule in entry.implied.values():
        texts = [each for each in (rule if isinstance(rule, list) else [rule]) if isinstance(each, str)]
        yield from (("tensor", size["name"]) for size in map(SIZE.fullmatch, texts) if size)


def _unfit(entry: OperatorMapping, descriptor: OperatorDescriptor) -> Iterator[str]:
    """Values that the operator does not take."""
    for name, value in entry.always.items():
        try:
            descriptor.attribute(name).read(value)
        except UnfitArguments as error:  # noqa: PERF203 - each value is read by itself
            yield f"always: {error}"


def _unknown(operator: str, kind: str, name: Any, known: Sequence[str]) -> str:
    hint = did_you_mean(name, known, text="did you mean {}? ")
    what = {"scalar": "input", "count": "attribute"}.get(kind, kind)
    return f"{operator} has no {what} {name!r}; {hint}it has {', '.join(dict.fromkeys(known)) or 'none'}"
