"""Samples for C libraries beyond an operator's case sets: layouts, memory, threads, wrong calls.

They are derived from a few of the operator's calls, its shape inference, and the mapping.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from math import prod
from typing import Any

from optest.clib.library.attributes import as_c_takes_them
from optest.clib.library.binding import bind_case
from optest.clib.library.case_tensors import with_specs
from optest.clib.library.layouts import Gap
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.mapping_words import SAME
from optest.clib.library.operator_mapping import OperatorMapping
from optest.clib.library.refusals import refusals
from optest.clib.library.sample_calls import Lack, SampleCall, all_but_one, calls_from, in_blocks, large, powers_of_two
from optest.memory.stride_patterns import Pattern, overlapping_patterns, patterns
from optest.spec import OperatorDescriptor, Sample, TestCase, Tier, dtype

_AT_ONCE = 14
# Sizes around the widths of vectors and small blocks.
_BLOCKS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129)
# Elements: far more than libraries give to one thread, with a remainder for every small thread count.
_ENOUGH_FOR_THREADS = 40_961
_THREADS = (1, 2, 3, 4, 7, 16)
_IMAGES = 4  # Dimensions of a batch of images, for which libraries often have special kernels.
_DEEP = 8  # Dimensions: more than kernels with one array per rank expect, and still accepted by libraries.
_BELOW_0 = {"fill": "uniform", "low": -4.0, "high": -0.25}
_MAGNITUDES = (-140, 80)  # Exponents of float32: a subnormal number, and one whose square only a double holds.
_MOST_ROWS = 1 << 16
_FEW_ROWS = 300
_MOST_OF_TABLE = 1 << 20  # Elements, so that tables of wide rows stay cheap.
# Attribute values by type: below and above 1, fractional and integral; lists with different numbers.
_VALUES: Mapping[str, tuple[Any, ...]] = {
    "float": (0.375, 1.75, 11.0),
    "int": (-4, -3, -2, -1, 0, 1, 2, 3, 4),
    "ints": ((2,), (3,), (1, 2), (2, 1), (3, 2), (1, 2, 3), (3, 1, 2)),
    "bool": (False, True),
}

_USUAL = "float32"
Samples = Sequence[tuple[Sample, TestCase]]
Named = Iterator[tuple[str, SampleCall]]  # Calls, each with its case set.


def with_samples_of_c(originals: Samples, mapping: LibraryMapping, lack: Lack) -> list[Sample]:
    """Return an operator's samples and the derived ones; ``lack`` returns why a case cannot be called."""
    alternatives = mapping.entries(originals[0][1].descriptor) if originals else ()
    if not alternatives:
        return [sample for sample, _ in originals]
    retyped = _in_other_dtypes(originals, mapping, lack)
    samples = [
        _with_rounded_attributes(sample, alternatives[0], case.descriptor) for sample, case in (*originals, *retyped)
    ]
    by_entry = _samples_by_entry([*originals, *retyped], mapping, lack)
    is_special = any(sample.case_set == "special" for _, answered in by_entry for sample, _ in answered)
    for entry, answered in by_entry:
        is_limited = bool(entry.dims or entry.layouts)  # most derived calls would be unsupported
        for index, call in enumerate(calls_from(answered, lack)):
            derived_calls = [
                *(_first_call_variants(call, entry, is_special=is_special) if index == 0 else ()),
                *_correct_variants(call, entry),
                *_far_indices(call, entry),
                *(refusals(call, entry, mapping.promised(entry)) if mapping.status else ()),
            ]
            samples += [_sample(name, x) for name, x in derived_calls if not is_limited or x.can_be_called()]
    return samples


def session_sample(samples: Samples, mapping: LibraryMapping, lack: Lack) -> Sample | None:
    """Return a sample that reports faults of the device selection, on a supported call; None without such a call."""
    calls = calls_from(samples, lack)
    if not calls or mapping.get_device is None:
        return None
    return _sample("session", calls[0].configured({"session": True}))


def _sample(name: str, call: SampleCall) -> Sample:
    return Sample(case_set=name, case=call.case(), tier=Tier.PARITY)


def _with_rounded_attributes(sample: Sample, entry: OperatorMapping, descriptor: OperatorDescriptor) -> Sample:
    """Return the sample with attributes rounded to C's float, so that kernel and reference use the same numbers."""
    current = sample.case.get("attributes", {})
    attributes = as_c_takes_them(current, entry, descriptor)
    if attributes == current:
        return sample
    return dataclasses.replace(sample, case={**sample.case, "attributes": attributes})


def _first_call_variants(call: SampleCall, entry: OperatorMapping, *, is_special: bool) -> Named:
    """Yield calls with extreme integers and many elements; for entries with ``dims``, with all kinds of values."""
    if entry.dims:
        # The operator's samples are spread over its functions, and each function needs such values.
        yield from _fills(call, entry, is_special=is_special)
        return
    # Integers that a float or another integer type cannot hold, in one input at a time, then in all.
    for name in call.dtypes(entry):
        kind = dtype(name)
        if not kind.is_integer:
            continue
        typed = call.of_dtype(name)
        inputs = [
            tensor
            for tensor in call.inputs
            if typed.dtypes_of_inputs[tensor] == name and SAME in entry.dtypes_of.get(tensor, (SAME,))  # not indices
        ]
        beyond = {32: 2**24 + 1, 64: 2**53 + 1}.get(kind.bits, 3)
        for value in (kind.min_int or 1 << (kind.bits - 1), kind.max_int, beyond):
            for names in (*([tensor] for tensor in inputs), *([inputs] if len(inputs) > 1 else ())):
                yield "extremes", typed.with_keys(generator={x: {"fill": "full", "value": value} for x in names})
    yield from (("large", x) for x in large(call))


def _fills(call: SampleCall, entry: OperatorMapping, *, is_special: bool) -> Named:
    """Yield calls with values of both signs, negative, tiny and huge; infinities and NaN only if ``is_special``."""
    for name in call.dtypes(entry):
        typed = call.of_dtype(name)
        yield "signs", _with_fill(typed, {"fill": "randn"})
        for exponent in _MAGNITUDES if name == "float32" else ():
            value = 2.0**exponent
            if value < 1:
                yield "magnitudes", _with_fill(typed, {"fill": "full", "value": value})
            else:  # With only huge values every result of a product would be infinite.
                floats = [tensor for tensor, kind in typed.dtypes_of_inputs.items() if kind == "float32"]
                yield "magnitudes", _with_last(typed, floats, value, 0.5)
        for sized in (typed, *typed.squared(1)):
            yield "signs", _with_fill(sized, dict(_BELOW_0))
        if is_special and dtype(name).is_float:
            for last in ("inf", *(("nan",) if call.base.outputs[0].dtype.is_float else ())):
                yield "special", _with_last(typed, typed.inputs[:1], -0.5, last)


def _with_fill(call: SampleCall, fill: Mapping[str, Any]) -> SampleCall:
    """Return the call with a fill for the inputs that share the first one's dtype; others hold indices or masks."""
    dtypes = call.dtypes_of_inputs
    if len(set(dtypes.values())) == 1:
        return call.with_keys(generator=fill)
    shared = next(iter(dtypes.values()))
    return call.with_keys(generator={name: fill for name, kind in dtypes.items() if kind == shared})


def _with_last(call: SampleCall, names: Iterable[str], usual: Any, last: Any) -> SampleCall:
    filled = {name: {"fill": "data", "values": all_but_one(call.shapes[name], usual, last)} for name in names}
    return call.with_keys(generator=filled)


def _correct_variants(call: SampleCall, entry: OperatorMapping) -> Named:
    """Yield all derived calls except for wrong ones: attributes, ranks, layouts, shapes, in place, sizes."""
    yield from _attribute_values(call, entry, _VALUES)
    for flat in call.flattened():
        yield "ranks", flat
        # An axis means another dimension at each rank.
        yield from _attribute_values(flat, entry, {"int": _VALUES["int"]})
    yield from _layout_variants(call, entry)
    yield from _shape_variants(call, entry)
    yield from _in_place(call, entry)
    yield from _size_variants(call, entry)


def _cycle_from_second(dtypes: Sequence[str]) -> Iterator[str]:
    return cycle((*dtypes[1:], dtypes[0]))


def _attribute_values(call: SampleCall, entry: OperatorMapping, values: Mapping[str, Sequence[Any]]) -> Named:
    """Yield calls with other valid values of each attribute, cycling through the dtypes."""
    if "nan" in repr(call.sample.get("generator")):
        return  # such a sample tests that its attribute's value keeps a NaN from the result
    dtypes = _cycle_from_second(call.dtypes(entry))
    for attribute in call.base.descriptor.attributes:
        usual = call.base.attributes.get(attribute.name)
        others = (*attribute.choices, *values.get(attribute.type.partition("|")[0], ()))
        for changed in (call.with_attribute(attribute.name, value) for value in others if value != usual):
            if changed is not None:
                yield "attribute-values", changed.of_dtype(next(dtypes))


def _layout_variants(call: SampleCall, entry: OperatorMapping) -> Named:
    """Yield calls with each tensor in every layout, then with all changed at once; dtypes alternate."""
    dtypes = _cycle_from_second(call.dtypes(entry))
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


def _shape_variants(call: SampleCall, entry: OperatorMapping) -> Named:
    """Yield calls with sizes of 1, more dimensions and square matrices, also in the layouts that matter there."""
    for small in call.resized(1):
        yield "size-1", small
        for tensor, place in _places(small, entry):
            if "size is 1" in place.name or place.name == "padded rows":
                yield "size-1", small.laid({tensor: place})
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
    """Return whether an input has no separate memory because an output starts as it."""
    return any(start.input == tensor for start in entry.starts)


def _laid_at_once(call: SampleCall, first: int, step: int) -> SampleCall:
    """Return the call with a layout for each tensor: pattern ``turn``, shifted by ``step`` for each further tensor."""
    places = {}
    for index, (name, shape) in enumerate(call.shapes.items()):
        candidates = list(patterns(shape))
        if candidates:
            places[name] = candidates[(first + step * index) % len(candidates)]
    return call.laid(places)


def _in_place(call: SampleCall, entry: OperatorMapping) -> Named:
    """Yield calls whose output is an input: dense, in layouts that both have, and large enough for threads."""
    dtypes = call.dtypes(entry)
    for index, (output, tensor) in enumerate((out, name) for out in call.outputs for name in entry.in_place):
        if tensor not in call.inputs or call.shapes[tensor] != call.shapes[output]:
            continue
        config = {"call": {"in_place": {f"output:{output}": f"input:{tensor}"}}}
        for name in dtypes:
            yield "in-place", call.of_dtype(name).configured(config)
        for place in patterns(call.shapes[tensor]):
            laid = call.laid({tensor: place, output: place})
            yield "in-place", laid.of_dtype(dtypes[index % len(dtypes)]).configured(config)
        for grown in call.grown(_ENOUGH_FOR_THREADS)[:1]:
            yield "in-place", grown.configured(config)


def _size_variants(call: SampleCall, entry: OperatorMapping) -> Named:
    """Yield calls with sizes around block widths, empty tensors, page placement, and several threads."""
    dtypes = call.dtypes(entry)
    pages = {"guard": "pages"}
    for name in dtypes:
        yield "pages", call.of_dtype(name).configured(pages)
    for turn in range(6):
        yield "pages", _laid_at_once(call, turn, turn % 2).configured(pages)
    for empty in call.resized(0):
        if all(0 in empty.shapes[name] for name in (*empty.outputs, *entry.dtypes_of) if name in empty.shapes):
            yield "sizes", empty
            yield from (("sizes", x) for x in _with_strides_of_0(empty))
    for size, name in zip(_BLOCKS, cycle(dtypes), strict=False):
        for resized in call.resized(size):
            yield "sizes", resized.of_dtype(name)
    for size in _BLOCKS[4::3]:
        for resized in call.resized(size)[:2]:
            yield "pages", resized.configured(pages)
    for x, name in zip(powers_of_two(call), cycle(dtypes), strict=False):
        yield "sizes", x.of_dtype(name)
    for item, name in zip(in_blocks(call), cycle(dtypes), strict=False):
        yield "blocks", item.of_dtype(name)
    for grown in call.grown(_ENOUGH_FOR_THREADS):
        yield "threads", grown.configured({"threads": list(_THREADS)})
        yield "threads", _laid_at_once(grown.of_dtype(dtypes[-1]), 3, 0)


def _with_strides_of_0(empty: SampleCall) -> Iterator[SampleCall]:
    """Yield the empty call with products of its sizes as strides, some of them 0, as libraries compute them."""
    places = {
        name: Pattern("strides of 0", tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))))
        for name, shape in empty.shapes.items()
        if 0 in shape[1:]
    }
    if places:
        yield empty.laid(places)


def _far_indices(call: SampleCall, entry: OperatorMapping) -> Named:
    """Yield calls with the last row that an index of each dtype reaches, as far as tables stay small."""
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


def _in_other_dtypes(samples: Samples, mapping: LibraryMapping, lack: Lack) -> list[tuple[Sample, TestCase]]:
    """Return float32 samples in other dtypes, if the functions depend on the dtype and would get few samples."""
    # Most catalogue samples are float32 and int64: a library of doubles would get almost none of them.
    alternatives = mapping.entries(samples[0][1].descriptor)
    has_usual = any(_USUAL in entry.functions for entry in alternatives)
    if any(entry.function for entry in alternatives) or (
        has_usual and not any(entry.dtypes_of for entry in alternatives)
    ):
        return []
    converted: dict[str, tuple[Sample, TestCase]] = {}
    for entry in alternatives:
        shared = _USUAL if has_usual else next(iter(entry.functions))
        for sample, case in samples:
            dtypes = _dtypes_in(case, entry, shared)
            if dtypes is None or not case.outputs:
                continue
            retyped = {**sample.case, "dtypes": dtypes}
            typed = zip(case.inputs, dtypes, strict=True)
            typed_case = with_specs(case, {x.name: dataclasses.replace(x.spec, dtype=dtype(name)) for x, name in typed})
            if typed_case is not None and lack(typed_case) is None:
                converted.setdefault(repr(retyped), (dataclasses.replace(sample, case=retyped), typed_case))
    return list(converted.values())


def _dtypes_in(case: TestCase, entry: OperatorMapping, shared: str) -> list[str] | None:
    """Return the input dtypes for the function; None if unchanged, or if a shared dtype is not float32."""
    current = [arg.spec.dtype.name for arg in case.inputs]
    if any(arg.spec.dtype.name != _USUAL for arg in case.inputs if arg.name not in entry.dtypes_of):
        return None
    dtypes = []
    for arg, name in zip(case.inputs, current, strict=True):
        allowed = [shared if x == SAME else x for x in entry.dtypes_of.get(arg.name, (SAME,))]
        dtypes.append(name if name in allowed else allowed[0])
    return None if dtypes == current else dtypes


def _samples_by_entry(samples: Samples, mapping: LibraryMapping, lack: Lack) -> list[tuple[OperatorMapping, Samples]]:
    """Return the entries with the samples that each can call; drop samples that no entry can."""
    alternatives = mapping.entries(samples[0][1].descriptor)
    answered: list[list[tuple[Sample, TestCase]]] = [[] for _ in alternatives]
    for sample, case in samples:
        if case.outputs and lack(case) is None:
            with suppress(Gap):  # an unusable configuration is reported with every case
                answered[alternatives.index(bind_case(case, mapping).entry)].append((sample, case))
    return list(zip(alternatives, answered, strict=True))
