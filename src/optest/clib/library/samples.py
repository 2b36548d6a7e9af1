"""What a check asks of a C library beyond an operator's own case sets: every layout, memory, threads, wrong calls.

All of it follows from a few of the operator's own calls, from its inference, and from what the mapping says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle
from math import prod
from typing import Any

from optest.clib.library.attributes import as_c_takes_them
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.mapping_words import SAME
from optest.clib.library.operator_mapping import OperatorMapping
from optest.clib.library.refusals import refusals
from optest.clib.library.sample_calls import SampleCall, all_but_one, calls_from, in_blocks, large, powers_of_two
from optest.clib.library.samples_by_entry import in_its_dtypes, own_by_entry
from optest.memory.stride_patterns import Pattern, overlapping_patterns, patterns
from optest.spec import OperatorDescriptor, Sample, TestCase, Tier, dtype

_AT_ONCE = 14
_BLOCKS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129)
"""Around the widths of vectors and small blocks."""
_ENOUGH_FOR_THREADS = 40_961
"""Elements: far beyond what libraries give to one thread, and a remainder for every small number of threads."""
_THREADS = (1, 2, 3, 4, 7, 16)
_IMAGES = 4
"""Dimensions of a batch of images, for which kernels like to have a way of their own."""
_DEEP = 8
"""Dimensions: more than kernels with an array for each rank foresee, and what libraries still take."""
_BELOW_0 = {"fill": "uniform", "low": -4.0, "high": -0.25}
_MAGNITUDES = (-140, 80)
"""Exponents of float32: a subnormal number, and one whose square only a double holds."""
_MOST_ROWS = 1 << 16
_FEW_ROWS = 300
_MOST_OF_TABLE = 1 << 20
"""Elements: with more rows than a few, so that tables of wide rows stay cheap."""
_VALUES: Mapping[str, tuple[Any, ...]] = {
    "float": (0.375, 1.75, 11.0),
    "int": (-4, -3, -2, -1, 0, 1, 2, 3, 4),
    "ints": ((2,), (3,), (1, 2), (2, 1), (3, 2), (1, 2, 3), (3, 1, 2)),
    "bool": (False, True),
}
"""For attributes, by type: below and above 1, not whole and whole; numbers of a list that are not all alike."""

Named = Iterator[tuple[str, SampleCall]]
"""Calls, each with the case set that it belongs to."""


def with_samples_of_c(
    own: Sequence[tuple[Sample, TestCase]], mapping: LibraryMapping, lack: Callable[[TestCase], str | None]
) -> list[Sample]:
    """The samples of one operator's own case sets, and those that follow; ``lack`` says why a case cannot be called."""
    alternatives = mapping.entries(own[0][1].descriptor) if own else ()
    if not alternatives:
        return [sample for sample, _ in own]
    further = in_its_dtypes(own, mapping, lack)
    samples = [_as_c_gets_it(sample, alternatives[0], case.descriptor) for sample, case in (*own, *further)]
    by_entry = own_by_entry([*own, *further], mapping, lack)
    is_special = any(sample.case_set == "special" for _, answered in by_entry for sample, _ in answered)
    for entry, answered in by_entry:
        is_limited = bool(entry.dims or entry.layouts)  # in what it can be told: most of it would be gaps
        for index, call in enumerate(calls_from(answered, lack)):
            derived = [
                *(_of_first(call, entry, is_special=is_special) if index == 0 else ()),
                *_derived(call, entry),
                *_far_indices(call, entry),
                *(refusals(call, entry, mapping.promised(entry)) if mapping.status else ()),
            ]
            samples += [_sample(name, each) for name, each in derived if not is_limited or each.can_be_called()]
    return samples


def session_sample(
    own: Sequence[tuple[Sample, TestCase]], mapping: LibraryMapping, lack: Callable[[TestCase], str | None]
) -> Sample | None:
    """The one case of a check that reports what the library did wrong before any case, on a call that it takes."""
    calls = calls_from(own, lack)
    if not calls or mapping.get_device is None:
        return None
    return _sample("session", calls[0].configured({"session": True}))


def _sample(name: str, call: SampleCall) -> Sample:
    return Sample(case_set=name, case=call.case(), tier=Tier.PARITY)


def _as_c_gets_it(sample: Sample, entry: OperatorMapping, descriptor: OperatorDescriptor) -> Sample:
    """A number that C takes as a float is asked as the float that it becomes, so that both sides compute with it."""
    stated = sample.case.get("attributes", {})
    attributes = as_c_takes_them(stated, entry, descriptor)
    return (
        sample if attributes == stated else dataclasses.replace(sample, case={**sample.case, "attributes": attributes})
    )


def _of_first(call: SampleCall, entry: OperatorMapping, *, is_special: bool) -> Named:
    """What is asked of one call: numbers at the limits of integers, and millions of them; where the operator's own
    samples are spread over functions, which all have to meet them, values of every kind."""
    if entry.dims:
        yield from _fills(call, entry, is_special=is_special)
        return
    # Integers that another integer type or a float does not hold: each input in turn, then all of them.
    for name in call.dtypes(entry):
        kind = dtype(name)
        if not kind.is_integer:
            continue
        typed = call.of_dtype(name)
        inputs = [
            each
            for each in call.inputs
            if typed.dtypes_of_inputs[each] == name and SAME in entry.dtypes_of.get(each, (SAME,))  # no positions
        ]
        beyond = {32: 2**24 + 1, 64: 2**53 + 1}.get(kind.bits, 3)
        for value in (kind.min_int or 1 << (kind.bits - 1), kind.max_int, beyond):
            for names in (*([each] for each in inputs), *([inputs] if len(inputs) > 1 else ())):
                yield "extremes", typed.with_keys(generator={each: {"fill": "full", "value": value} for each in names})
    yield from (("large", each) for each in large(call))


def _fills(call: SampleCall, entry: OperatorMapping, *, is_special: bool) -> Named:
    """Numbers of both signs, none above 0, tiny and huge ones; special ones where one of the operator's functions is
    asked for them at all, since another may answer those samples, or all of them may meet a NaN."""
    for name in call.dtypes(entry):
        typed = call.of_dtype(name)
        yield "signs", _with_fill(typed, {"fill": "randn"})
        for exponent in _MAGNITUDES if name == "float32" else ():
            yield "magnitudes", _of_magnitude(typed, 2.0**exponent)
        for sized in (typed, *typed.squared(1)):
            yield "signs", _with_fill(sized, dict(_BELOW_0))
        if is_special and dtype(name).is_float:
            for last in ("inf", *(("nan",) if call.base.outputs[0].dtype.is_float else ())):
                yield "special", _with_last(typed, typed.inputs[:1], -0.5, last)


def _with_fill(call: SampleCall, fill: Mapping[str, Any]) -> SampleCall:
    """A fill for the inputs of the first one's dtype: others count places or say what is meant."""
    dtypes = call.dtypes_of_inputs
    if len(set(dtypes.values())) == 1:
        return call.with_keys(generator=fill)
    shared = next(iter(dtypes.values()))
    return call.with_keys(generator={each: fill for each, own in dtypes.items() if own == shared})


def _of_magnitude(call: SampleCall, value: float) -> SampleCall:
    """One value everywhere; beside a huge one a usual one, or all results of a product would be infinite."""
    if value < 1:
        return _with_fill(call, {"fill": "full", "value": value})
    return _with_last(call, [name for name, own in call.dtypes_of_inputs.items() if own == "float32"], value, 0.5)


def _with_last(call: SampleCall, names: Iterable[str], usual: Any, last: Any) -> SampleCall:
    filled = {name: {"fill": "data", "values": all_but_one(call.shapes[name], usual, last)} for name in names}
    return call.with_keys(generator=filled)


def _derived(call: SampleCall, entry: OperatorMapping) -> Named:
    yield from _attribute_values(call, entry, _VALUES)
    for flat in call.flattened():
        yield "ranks", flat
        yield from _attribute_values(flat, entry, {"int": _VALUES["int"]})  # an axis means another in every rank
    yield from _layouts(call, entry)
    yield from _other_shapes(call, entry)
    yield from _in_place(call, entry)
    yield from _sizes(call, entry)


def _taking_turns(dtypes: Sequence[str]) -> Iterator[str]:
    return cycle((*dtypes[1:], dtypes[0]))


def _attribute_values(call: SampleCall, entry: OperatorMapping, values: Mapping[str, Sequence[Any]]) -> Named:
    """Every attribute in turn with other values that the operator takes; dtypes take turns."""
    if "nan" in repr(call.sample.get("generator")):
        return  # it shows what an attribute's own value keeps from the result
    dtypes = _taking_turns(call.dtypes(entry))
    for attribute in call.base.descriptor.attributes:
        usual = call.base.attributes.get(attribute.name)
        others = (*attribute.choices, *values.get(attribute.type.partition("|")[0], ()))
        for changed in (call.with_attribute(attribute.name, value) for value in others if value != usual):
            if changed is not None:
                yield "attribute-values", changed.of_dtype(next(dtypes))


def _layouts(call: SampleCall, entry: OperatorMapping) -> Named:
    """Each tensor in turn in every layout, then all of them at once; dtypes take turns."""
    dtypes = _taking_turns(call.dtypes(entry))
    for tensor, shape in call.shapes.items():
        if _is_started(tensor, entry):
            continue
        is_input = tensor in call.inputs
        for place in (*patterns(shape), *(overlapping_patterns(shape) if is_input else ())):
            name = "input-layouts" if is_input else "output-layouts"
            yield name, call.laid({tensor: place}).of_dtype(next(dtypes))
    for turn in range(_AT_ONCE):
        for step in (0, 3):
            yield "layouts-at-once", _laid_at_once(call, turn, step).of_dtype(next(dtypes))


def _other_shapes(call: SampleCall, entry: OperatorMapping) -> Named:
    """Sizes of 1, more dimensions and square matrices, each also in the layouts that matter there."""
    for one in call.resized(1):
        yield "size-1", one
        for tensor, place in _places(one, entry):
            if "size is 1" in place.name or place.name == "padded rows":
                yield "size-1", one.laid({tensor: place})
    for deep in (*call.deepened(_IMAGES), *call.deepened(_DEEP)):
        yield "ranks", deep
        for step in (0, 3):
            yield "ranks", _laid_at_once(deep, 5, step)
        for tensor, place in _places(deep, entry):
            if "channels last" in place.name:
                yield "ranks", deep.laid({tensor: place})
    for square in call.squared(6):
        yield "squares", square
        for tensor, place in _places(square, entry):
            if "transposed" in place.name or "order" in place.name:
                yield "squares", square.laid({tensor: place})
        for turn in range(0, _AT_ONCE, 2):
            yield "squares", _laid_at_once(square, turn, 0)


def _places(call: SampleCall, entry: OperatorMapping) -> Iterator[tuple[str, Pattern]]:
    for tensor, shape in call.shapes.items():
        if not _is_started(tensor, entry):
            yield from ((tensor, place) for place in patterns(shape))


def _is_started(tensor: str, entry: OperatorMapping) -> bool:
    """Whether an input has no memory of its own, because an output starts as it."""
    return any(start.input == tensor for start in entry.starts)


def _laid_at_once(call: SampleCall, turn: int, step: int) -> SampleCall:
    """One layout for each tensor: the same for all, or with ``step`` others."""
    places = {}
    for index, (name, shape) in enumerate(call.shapes.items()):
        found = list(patterns(shape))
        if found:
            places[name] = found[(turn + step * index) % len(found)]
    return call.laid(places)


def _in_place(call: SampleCall, entry: OperatorMapping) -> Named:
    """An output is an input: dense, and in layouts that both have."""
    dtypes = call.dtypes(entry)
    for index, (output, given) in enumerate((out, name) for out in call.outputs for name in entry.in_place):
        if given not in call.inputs or call.shapes[given] != call.shapes[output]:
            continue
        config = {"call": {"in_place": {f"output:{output}": f"input:{given}"}}}
        for name in dtypes:
            yield "in-place", call.of_dtype(name).configured(config)
        for place in patterns(call.shapes[given]):
            laid = call.laid({given: place, output: place})
            yield "in-place", laid.of_dtype(dtypes[index % len(dtypes)]).configured(config)
        for grown in call.grown(_ENOUGH_FOR_THREADS)[:1]:
            yield "in-place", grown.configured(config)


def _sizes(call: SampleCall, entry: OperatorMapping) -> Named:
    """Every size of the call around the widths of blocks, against pages that nobody may touch, and with threads."""
    dtypes = call.dtypes(entry)
    pages = {"guard": "pages"}
    for name in dtypes:
        yield "pages", call.of_dtype(name).configured(pages)
    for turn in range(6):
        yield "pages", _laid_at_once(call, turn, turn % 2).configured(pages)
    for empty in call.resized(0):
        if all(0 in empty.shapes[name] for name in (*empty.outputs, *entry.dtypes_of) if name in empty.shapes):
            yield "sizes", empty
            yield from (("sizes", each) for each in _with_strides_of_0(empty))
    for size, name in zip(_BLOCKS, cycle(dtypes), strict=False):
        for resized in call.resized(size):
            yield "sizes", resized.of_dtype(name)
    for size in _BLOCKS[4::3]:
        for resized in call.resized(size)[:2]:
            yield "pages", resized.configured(pages)
    for each, name in zip(powers_of_two(call), cycle(dtypes), strict=False):
        yield "sizes", each.of_dtype(name)
    for each, name in zip(in_blocks(call), cycle(dtypes), strict=False):
        yield "blocks", each.of_dtype(name)
    for grown in call.grown(_ENOUGH_FOR_THREADS):
        yield "threads", grown.configured({"threads": list(_THREADS)})
        yield "threads", _laid_at_once(grown.of_dtype(dtypes[-1]), 3, 0)


def _with_strides_of_0(empty: SampleCall) -> Iterator[SampleCall]:
    """Yield a call whose tensors without elements have the products of their sizes as strides, of which some are 0:
    libraries that compute strides themselves have these."""
    places = {
        name: Pattern("strides of 0", tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))))
        for name, shape in empty.shapes.items()
        if 0 in shape[1:]
    }
    if places:
        yield empty.laid(places)


def _far_indices(call: SampleCall, entry: OperatorMapping) -> Named:
    """The last row that an index of each dtype reaches, as far as tables are small."""
    for tensor, place in entry.indexes.items():
        if tensor not in call.inputs or place.tensor not in call.shapes:
            continue
        table = call.shapes[place.tensor]
        old = table[place.axis]
        is_cheap = prod(table) // old * _MOST_ROWS <= _MOST_OF_TABLE
        for name in entry.dtypes_of.get(tensor, ()):
            reached = dtype(name).max_int + 1
            rows = reached if reached <= _MOST_ROWS and is_cheap else min(reached, _FEW_ROWS)
            for grown in call.with_sizes({old: rows}):
                last = grown.with_keys(generator={tensor: {"fill": "full", "value": rows - 1}})
                yield "indices", last.with_dtypes({tensor: name})
