"""Samples of an operator without samples, in the usual case sets, from the sizes that its signature declares.

If the signature has only names, shapes of several forms are tried, in different sizes. The first forms that fit
in two sets of sizes are used, with as many different sizes as possible.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, combinations, cycle, islice, product
from typing import Any, NamedTuple

from optest.operators.calls import CALM_SIZES, EVERY_FLOAT, LARGE_SIZE, MAIN_FLOATS, SIZES, TILES, Call
from optest.operators.derived_samples import further_layouts
from optest.operators.samples import in_every_layout, in_layouts_at_once, of_every_magnitude, with_special_rows
from optest.registry import load_object
from optest.spec import Attribute, Kind, OperatorDescriptor, RuleClass, Sample, TensorSpec, Tier, dtype, format_shape
from optest.spec.declared_shapes import OFFSETS, DeclaredSize, DeclaredTensor, read_declaration, shape_of


class Trial(NamedTuple):
    """Result of a call that an operator takes: its outputs, the peak of bytes that its reference allocated, how many
    lines of Python that executed with a long dimension, and, of a probe, what it returned."""

    outputs: Sequence[TensorSpec] = ()
    memory: float = 0
    lines: int = 0
    arrays: Sequence[Any] = ()


Try = Callable[..., "Trial | str"]
"""Function that calls an operator with specs, attributes and values of some inputs; a text is its refusal. With True as
a fourth argument it is a probe, with different numbers in floats."""

_FORMS = (
    *("R C", "C K", "K C", "C R", "K R", "R K", "C", "K", "R", "B"),
    *("B R C", "B C K", "B R K", "B C", "B R K C", "R 1", "1", "", "R B"),
)
"""Shapes of an input: a letter is a dimension, 2 before it doubles its size."""
_FIRST_FORMS = ("R C", "B R C", "B R K C", "C", "")
"""Forms of the first input; others differ from them only in letters."""
_MATRICES = re.compile(r"^w(\d|_|$)|weight|proj|kernel|table")
"""Names of inputs that have sizes of their own, as those of a linear layer have, or are one row for all others."""
_ROWS = re.compile(r"gamma|beta|b(\d|_|$)|(?!.*weight).*(bias|mean|var|scale|shift)")
"""Names of inputs that are one row for all others, though broadcasting lets them be whole tensors."""
_LENGTHS = re.compile(r"cu_|len|offs|ptr|table")
"""Names of integers with a structure, such as offsets of sequences or pages, which no simple values have."""
_COUNTS, _STARTS, _SLOTS = re.compile(r"len(s|gths?)?\d*(_|$)"), re.compile(r"cu_|offs|ptr"), re.compile("slot|perm")
"""Names of integers that include the size, that ascend to it, and of which no two are equal."""
_UNIQUE, _COUNT, _PADDED = "unique", "count", "padded"
_UNVARIED = re.compile("drop|seed|tol|iter")
"""Names of numbers with which another random or approximate result would be right as well."""
_SIZES = (
    {"R": 4, "C": 37, "B": 3, "K": 5, "F": 5, "G": 7, "H": 6},
    {"R": 3, "C": 8, "B": 2, "K": 6, "F": 2, "G": 4, "H": 5},
)
_MOST_TRIED = 1500
_POOLS = (
    ((4, 5, 3, 2, 6, 7), 37, 19),
    ((3, 6, 2, 5, 4, 7), 8, 12),
    ((16, 8, 4, 4, 2, 2), 32, 32),
    ((2,), 2, 2),
    ((3,), 3, 3),
)
"""Sizes in order, the last dimension of the first input, and the last offset. Some operators only take sizes that
divide each other."""
_MANY = (32_769, LARGE_SIZE)
"""Sizes of one more than the blocks that 15 and 16 bits count."""
_MOST_ELEMENTS = 1 << 22
_MOST_MEMORY = 1 << 29
_MOST_LINES = 10_000
"""Lines of Python that a reference executes in a trial; to find what roundings change it is called fifty times."""
_MOST_PAIRS = 16
_RANKS: tuple[tuple[int, ...], ...] = ((), (2, 3), (2, 1, 3, 2))
"""Sizes for ``*lead``, in addition to one size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureSamples:
    """Derived samples, none if no shapes are taken; ``how`` lists what was derived, and what was not and why."""

    samples: Sequence[Sample] = ()
    how: str


def signature_samples(
    descriptor: OperatorDescriptor, attempt: Try, sizes: Mapping[str, int] | None = None
) -> SignatureSamples:
    """Return case sets: ordinary calls, attributes, dtypes, layouts, sizes of each dimension and special values.

    Of a user's function, probes tell the ranges of integers and which other numbers of attributes make a difference.
    """
    inputs = [each.name for each in descriptor.tensors.inputs]
    unknown = [each.name for each in descriptor.attributes if each.is_required and not _values(each)]
    if not inputs:
        return SignatureSamples(how="it has no inputs")
    if unknown:
        line = f"give Attribute(name={unknown[0]!r}, …) a default or choices=(…)"
        return SignatureSamples(how=f"no value of {', '.join(unknown)} is known; {line}")
    variants = descriptor.dtype_variants or tuple([(name,) for name in EVERY_FLOAT])
    variants = tuple([each for each in variants if len(each) in (1, len(inputs))]) or variants
    rows = [dict(zip(inputs, row * len(inputs) if len(row) == 1 else row, strict=False)) for row in variants]
    usual = {each.name: _values(each)[0] for each in descriptor.attributes if each.is_required}
    first = [sizes] if sizes else []
    declared = descriptor.tensors.declaration
    has_indices = any(dtype(rows[0][name]).kind in (Kind.INT, Kind.UINT) for name in inputs)
    for least in (0, 1) if has_indices else (0,):
        calls = _Calls(descriptor=descriptor, attempt=attempt, usual=usual, row=rows[0], least=least)
        calls = replace(calls, tensors=read_declaration(declared)[0]) if declared else _sought(calls)
        base = (sizes or calls.sizes(_POOLS[0])) if calls.tensors else {}
        if not calls.is_sought or (base and isinstance(calls.trial(calls.call(base)), Trial)):
            break
    if not calls.tensors:
        index = {name: f"{'offsets' if _LENGTHS.search(name) else 'index'}(rows)" for name in inputs}
        kinds = {name: "T" if dtype(rows[0][name]).is_inexact else index[name] for name in inputs}
        line = f"{', '.join(f'{name}: {kind}[rows, …]' for name, kind in kinds.items())} -> out: T[rows, …]"
        return SignatureSamples(how=f"no simple shapes of its inputs are taken; declare them: signature={line!r}")
    by_float = {next((kind for kind in row.values() if dtype(kind).is_float), ""): row for row in reversed(rows)}
    main = [by_float[name] for name in MAIN_FLOATS if name in by_float] or rows[:1]
    calls = replace(calls, row=main[0])
    tried = [(each, calls.trial(calls.call(each))) for each in [*first, *map(calls.sizes, _POOLS)]]
    bases = [sizes for sizes, trial in tried if isinstance(trial, Trial)]
    if not bases or (sizes and calls.is_sought and isinstance(tried[0][1], str)):
        how = f"no sizes of its inputs are taken ({tried[0][1]}); give the descriptor `samples`"
        if calls.is_sought:
            refused = calls.call(sizes or _SIZES[0])
            given = (f"{x} {refused['dtypes'][x]} {format_shape(tuple(y))}" for x, y in refused["shapes"].items())
            how = f"given {', '.join(given)}, {tried[0][1]}"
        return SignatureSamples(how=how)
    if calls.is_sought:
        calls = _with_ranges(calls, bases[0])
        bases = [each for each in bases if isinstance(calls.trial(calls.call(each)), Trial)]

    notes: list[str] = []
    rule = descriptor.rule  # a rule for close results that knows the condition suits every magnitude
    has_law = rule is not None and (rule.kind is not RuleClass.CLOSE or descriptor.alternatives is not None)
    whole = [calls.call(bases[0], row) for row in main]
    floats = [each.name for each in calls.tensors if dtype(main[0][each.name]).is_float]
    outputs = next(trial.outputs for _, trial in tried if isinstance(trial, Trial))
    integers = [each.dtype.name for each in outputs if each.dtype.kind in (Kind.INT, Kind.UINT)]
    samples = [Sample(case_set="ordinary", case=whole[0], tier=Tier.SMOKE)]
    samples += [Sample(case_set="ordinary", case=calls.call(sizes, row)) for sizes in bases[:2] for row in main]
    for call in whole if floats and has_law else ():  # one tolerance does not suit every magnitude
        bare = {key: value for key, value in call.items() if key != "generator"}
        samples += [_refilled(each, call, floats) for each in of_every_magnitude([bare])]
    samples += _of_attributes(calls, bases, main, notes)
    samples += [Sample(case_set="dtypes", case=calls.call(bases[0], row)) for row in rows]
    drawn = [each.name for each in calls.tensors if each.kind not in (OFFSETS, _UNIQUE, _PADDED)]
    samples += in_every_layout(whole[:1], names=drawn)
    samples += chain.from_iterable(in_layouts_at_once([call]) for call in whole[:2])
    samples += _of_sizes(calls, bases, main, notes)
    samples += _of_many(calls, bases, _MANY if has_law else (TILES,), notes)
    if floats and integers:
        notes.append(f"no NaN and infinities, which {integers[0]} does not have")
    for call in whole if not integers else ():
        names = [name for name in floats if call["shapes"][name]]
        samples += [_refilled(each, call, floats) for each in with_special_rows([call], names)]
    samples += further_layouts(samples)
    if never := [name for name in inputs if name not in whole[0]["shapes"]]:
        notes.append(f"never with {', '.join(never)}, as the signature does not declare its sizes")
    shapes = ", ".join(f"{name} {format_shape(tuple(shape))}" for name, shape in whole[0]["shapes"].items())
    sets = ", ".join(dict.fromkeys(each.case_set for each in samples))
    return SignatureSamples(samples=samples, how="; ".join([f"{sets}; of shapes as {shapes}", *notes]))


def _values(attribute: Attribute) -> Sequence[Any]:
    """Return all values of a bool or a choice, none for other attributes."""
    return attribute.choices or ((False, True) if attribute.type == "bool" else ())


def _refilled(sample: Sample, call: Call, floats: Sequence[str]) -> Sample:
    """Return the sample with its fill for floats only, and the fills of the call for other inputs."""
    fills, fill = call.get("generator", {}), sample.case["generator"]
    by_name = (
        dict.fromkeys([name for name in floats if name in call["shapes"]], fill) if fills and "fill" in fill else fill
    )
    return replace(sample, case={**sample.case, "generator": {**fills, **by_name}})


def _of_attributes(
    calls: _Calls, bases: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, str]], notes: list[str]
) -> Iterator[Sample]:
    """Yield calls without optional inputs, with every other value of a bool or a choice, and with pairs of values; and
    with other numbers that change what a user's function returns, and always in the same way."""
    sizes, small = bases[0], bases[min(1, len(bases) - 1)]
    optional = tuple(each.name for each in calls.tensors if each.is_optional)
    usual, attributes = calls.descriptor.bind(calls.usual), calls.descriptor.attributes
    endless = [each.name for each in attributes if not _values(each) and each.name not in calls.dimensions()]
    plain, numbers = calls.trial(calls.call(small), "") if calls.is_sought else "", dict[str, Any]()
    for name, number in [(each, number) for each in endless for number in _other_numbers(each, usual[each])]:
        if name not in numbers and isinstance(plain, Trial):
            trial, again = (calls.trial(calls.call(small, attributes={name: number}), "") for _ in range(2))
            numbers |= {name: number} if _are_alike(trial, again) and not _are_alike(trial, plain) else {}
    if fixed := [name for name in endless if name not in numbers]:
        example = f"--attr {fixed[0]}={next(iter(_other_numbers(fixed[0], usual[fixed[0]])), '…')} sets another"
        how = example if calls.is_sought else "choices=(…) would be varied"
        notes.append(f"{', '.join(fixed)} only at the default; {how}")
    others = [(each.name, value) for each in attributes for value in _values(each) if value != usual[each.name]]
    pairs = [dict(pair) for pair in combinations(others, 2) if pair[0][0] != pair[1][0]]
    changes = [*({name: value} for name, value in [*others, *numbers.items()]), *pairs[:_MOST_PAIRS]]
    left_out = dict.fromkeys([*zip(optional, strict=True), *([optional] if optional else [])])
    tried: list[tuple[str, dict[str, Any]]] = [("optional", {"without": each}) for each in left_out]
    tried += [("attributes", {"attributes": each}) for each in changes]
    for case_set, change in tried:
        trial = calls.trial(calls.call(sizes, **change))
        probes = [calls.trial(calls.call(small, **change), "") for _ in range(2)] if calls.is_sought else []
        if probes and not isinstance(probes[0], str) and not _are_alike(*probes):
            trial = "two calls have two results"
        if isinstance(trial, Trial):
            yield from (Sample(case_set=case_set, case=calls.call(sizes, row, **change)) for row in rows)
        else:
            notes.append(f"not {', '.join(map(str, change.values()))}: {trial}")


def _of_sizes(
    calls: _Calls, bases: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, str]], notes: list[str]
) -> Iterator[Sample]:
    """Yield calls with one dimension in sizes from 0, most of them for the last one of the first input."""
    base, where, descriptor = bases[min(1, len(bases) - 1)], calls.dimensions(), calls.descriptor
    for name, usual in base.items():
        is_last = name == calls.last
        numbers: list[Any] = list(SIZES if is_last else CALM_SIZES)
        numbers = [*_RANKS, *((number,) for number in numbers)] if isinstance(usual, tuple) else numbers
        refused = {}
        for number in numbers:
            for row in rows[:2] if is_last else rows[:1]:
                call = calls.call({**base, name: number}, row)
                trial = calls.trial(call)
                if isinstance(trial, str):
                    refused[number] = trial
                    break
                if descriptor.infer is None and any(0 in each.shape for each in trial.outputs):
                    names = descriptor.tensors.output_names(len(trial.outputs)) or ()
                    outputs = dict(zip(names, trial.outputs, strict=True))  # no inference has their shapes
                    call["shapes"] |= {name: list(each.shape) for name, each in outputs.items()}
                    call["dtypes"] |= {name: each.dtype.name for name, each in outputs.items()}
                yield Sample(case_set="sizes", case=call)
        if len(refused) == len(numbers):
            notes.append(f"{where[name]} only {usual}: {next(iter(refused.values()))}")
        elif empty := refused.get(0, refused.get((0,))):
            notes.append(f"{where[name]} never 0: {empty}")


def _of_many(
    calls: _Calls, bases: Sequence[Mapping[str, Any]], numbers: Sequence[int], notes: list[str]
) -> Iterator[Sample]:
    """Yield calls with one dimension so long that kernels use several blocks, within the memory of the reference."""
    for name, words in calls.dimensions().items():
        for base in reversed(bases if name in bases[0] else []):
            by_number = {
                number: calls.call({**base, name: (number,) if isinstance(base[name], tuple) else number})
                for number in (257, 1025, TILES, *numbers)
            }
            small = calls.trial(by_number[257])
            loops = isinstance(small, Trial) and 4 * small.lines > _MOST_LINES
            larger = small if loops else calls.trial(by_number[1025])
            if isinstance(small, Trial) and isinstance(larger, Trial):
                break
        else:
            continue
        # memory of frameworks is unknown; quadratic growth has room for 4,099
        is_linear = larger.memory < 6 * max(1.0, small.memory)
        has_room = math.isinf(larger.memory) or 16 * larger.memory <= _MOST_MEMORY
        elements = {number: sum(map(math.prod, call["shapes"].values())) for number, call in by_number.items()}
        has_time = {n: (larger.lines - small.lines) * (n - 257) <= 768 * _MOST_LINES for n in by_number}
        has_time = dict.fromkeys(by_number, False) if loops else has_time
        is_small = {n: elements[n] <= _MOST_ELEMENTS and has_time[n] for n in by_number}
        few = [n for n in numbers if (is_linear or (n <= TILES and has_room)) and is_small[n]]
        if len(few) < len(numbers):
            why = "may take too much memory" if has_time[numbers[len(few)]] else "loops over it"
            notes.append(f"{words} not {numbers[len(few)]:,}: its reference {why}")
            few += [TILES if has_room and is_small[TILES] else 1025 if has_time[1025] else 257]
        yield from (Sample(case_set="sizes", case=by_number[number]) for number in dict.fromkeys(few))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """Calls of an operator by the sizes of its dimensions; ``row`` are the dtypes of its inputs unless others are
    given, ``usual`` its required attributes."""

    descriptor: OperatorDescriptor
    attempt: Try
    usual: Mapping[str, Any]
    row: Mapping[str, str]
    tensors: Sequence[DeclaredTensor] = ()
    least: int = 0
    """Smallest integer that is taken."""

    @property
    def is_sought(self) -> bool:
        """Return whether the calls are sought by trying a user's function."""
        return self.descriptor.category == "function"

    @property
    def last(self) -> str:
        """Last dimension of the first input, which kernels cut into tiles."""
        sizes = next((each.sizes for each in self.tensors if each.sizes), [])
        return next((size.name for size in reversed(sizes) if not size.name.isdigit()), "")

    def dimensions(self) -> dict[str, str]:
        """Return the names of dimensions in messages, by their names in :attr:`tensors`."""
        words = {
            size.name: size.name if self.descriptor.tensors.declaration else f"dimension {place} of {each.name}"
            for each in reversed(self.tensors)
            for place, size in enumerate(each.sizes)
        }
        in_order = dict.fromkeys(size.name for each in self.tensors for size in each.sizes)
        return {name: words[name] for name in in_order if not name.isdigit()}

    def sizes(self, pool: tuple[tuple[int, ...], int, int]) -> dict[str, Any]:
        """Return sizes for all dimensions, except those whose size is the attribute of that name."""
        numbers, last, end = pool
        ends = {each.limit for each in self.tensors if each.kind == OFFSETS}
        several = {size.name for each in self.tensors for size in each.sizes if size.is_several}
        bound, rest = self.descriptor.bind(self.usual), cycle(numbers)
        fixed = {each.name for each in self.descriptor.attributes if each.is_size and bound[each.name] is not None}
        names = [name for name in self.dimensions() if name not in fixed]
        sizes = {name: end if name in ends else last if name == self.last else next(rest) for name in names}
        return {name: (size,) if name in several else size for name, size in sizes.items()}

    def call(
        self,
        sizes: Mapping[str, Any],
        row: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> Call:
        """Return a call with these sizes, as a case of a plan."""
        bound: dict[str, Any] = {**self.usual, **(attributes or {})}
        domain = self.descriptor.domain
        known = {**self.descriptor.bind(bound), **sizes}
        present = [each for each in self.tensors if each.name not in without]
        shapes = {each.name: list(shape_of(each, known)) for each in present}
        dtypes = {name: (row or self.row)[name] for name in shapes}
        ranges = domain if isinstance(domain, Mapping) else shapes
        whole = [name for name, kind in dtypes.items() if not dtype(kind).is_inexact]
        indices = [name for name in whole if name not in ranges and len(whole) < len(shapes)]
        least = min((size for shape in shapes.values() for size in shape if size), default=1)
        fills: dict[str, Any] = {}
        for each in present:
            end = int(each.limit) if each.limit.isdigit() else known.get(each.limit, least)
            if each.kind == OFFSETS:  # of sequences of several lengths; none if they do not fit
                ends = [0, *accumulate(islice(cycle((1, 3, 0, 2)), max(0, shapes[each.name][0] - 1)))]
                values = [end * at // max(1, ends[-1]) for at in ends] if ends[-1] or not end else []
                fills[each.name] = {"fill": "data", "values": values}
            elif each.kind in (_UNIQUE, _PADDED):
                count = shapes[each.name][0]
                values = [end - 1 - at * (end // count) for at in range(count)] if count <= end else []
                if each.kind == _PADDED and values[1:]:
                    values[count // 2] = -1
                fills[each.name] = {"fill": "data", "values": values}
            elif each.name in indices:
                end = max(self.least + 1, end + (each.kind == _COUNT))
                fills[each.name] = {"fill": "randint", "low": self.least, "high": end}
        call = {"shapes": shapes, "dtypes": dtypes, "attributes": bound, "generator": fills}
        return {key: value for key, value in call.items() if value}

    def trial(self, call: Call, lowered: str | None = None) -> Trial | str:
        """Try a call; return its outputs and memory, or why the operator refuses it. With ``lowered`` it is a probe:
        integers have their largest values, those of this input less by 1."""
        fills = call.get("generator", {})
        values = {name: fill["values"] for name, fill in fills.items() if "values" in fill}
        shapes = {name: tuple(shape) for name, shape in call["shapes"].items()}
        if [] in values.values() or min(chain((0,), *shapes.values())) < 0:
            return "there are no such shapes"
        for name in fills.keys() - values if self.least or lowered is not None else ():
            values[name] = [self.least if lowered is None else fills[name]["high"] - 1] * math.prod(shapes[name])
        if lowered:
            values[lowered] = [each - (each == max(values[lowered])) for each in values[lowered]]
        specs = {name: TensorSpec(dtype=dtype(call["dtypes"][name]), shape=shape) for name, shape in shapes.items()}
        given = [specs.get(each.name) for each in self.descriptor.tensors.inputs]
        bound = self.descriptor.bind(call.get("attributes", {}))
        return self.attempt(given, bound, values, *([] if lowered is None else [True]))


def _other_numbers(name: str, usual: Any) -> Sequence[Any]:
    """Return numbers to try for an attribute, none unless its default is a number."""
    if type(usual) not in (int, float) or _UNVARIED.search(name):
        return ()
    numbers = (2 * usual, usual // 2, usual + 1) if type(usual) is int else (2 * usual, usual / 2, usual + 0.5, 1.0)
    return [each for each in ((0.125,) if "eps" in name else ()) + numbers if each != usual]


def _are_alike(one: Trial | str, other: Trial | str) -> bool:
    """Return whether two probes return the same except for roundings; False if one is refused."""
    if isinstance(one, str) or isinstance(other, str) or len(one.arrays) != len(other.arrays):
        return False
    is_close = partial(load_object("numpy:allclose"), rtol=1e-9, atol=1e-12, equal_nan=True)
    return all(a.shape == b.shape and is_close(a, b) for a, b in zip(one.arrays, other.arrays, strict=True))


def _with_ranges(calls: _Calls, sizes: Mapping[str, Any]) -> _Calls:
    """Return calls whose integers reach the largest size of another input that is taken and makes a difference, or at
    least is taken. Lengths include it, starts of sequences ascend to it, and -1 is among slots if it is ignored."""
    for own in sorted(calls.tensors, key=lambda each: not _COUNTS.search(each.name)):
        if dtype(calls.row[own.name]).kind not in (Kind.INT, Kind.UINT):
            continue
        known = {size.name: size.of(sizes) for each in calls.tensors if each is not own for size in each.sizes}
        limits = sorted(known, key=known.__getitem__, reverse=True)
        kinds = [OFFSETS] * bool(_STARTS.search(own.name)) + [_UNIQUE] * bool(_SLOTS.search(own.name))
        kinds = [*(kinds if len(own.sizes) == 1 else []), *([_COUNT] if _COUNTS.search(own.name) else []), ""]
        taken: list[_Calls] = []
        for kind, limit in product(kinds, limits):
            tensors = [each._replace(kind=kind, limit=limit) if each is own else each for each in calls.tensors]
            changed = replace(calls, tensors=tensors)
            trial, lowered = (changed.trial(changed.call(sizes), name) for name in ("", own.name))
            taken += [changed] if isinstance(trial, Trial) else []
            if isinstance(trial, Trial) and isinstance(lowered, Trial) and not _are_alike(trial, lowered):
                taken = [changed]
                break
        calls = (taken or [calls])[0]
        is_padded = [each.name == own.name and each.kind == _UNIQUE for each in calls.tensors]
        tensors = [
            each._replace(kind=_PADDED) if may else each for may, each in zip(is_padded, calls.tensors, strict=True)
        ]
        ignored, call = [], replace(calls, tensors=tensors).call(sizes)
        for padding in (-1, -2) if any(is_padded) else ():  # which differ where they count from the end
            values = call["generator"][own.name]["values"]
            values[:] = [padding if each < 0 else each for each in values]
            ignored.append(calls.trial(call, ""))
        calls = replace(calls, tensors=tensors) if ignored and _are_alike(*ignored) else calls
    return calls


def _sought(calls: _Calls) -> _Calls:
    """Return calls with the first forms of required inputs that are taken, and as many different sizes as possible.

    A form has a letter for each dimension, and equal letters are equal sizes: a product takes "R C" and "C K".
    """
    inputs = calls.descriptor.tensors.inputs
    names = [each.name for each in inputs if not each.optional and not each.variadic]
    if all(len(each) not in (1, len(names)) for each in calls.descriptor.dtype_variants or [("",)]):
        names = [each.name for each in inputs]

    if not calls.is_sought and any(_LENGTHS.search(name) and not dtype(calls.row[name]).is_inexact for name in names):
        return calls

    def shaped(forms: Sequence[str]) -> _Calls:
        sizes = [[DeclaredSize(False, 1 + ("2" in name), name[-1], 0) for name in form.split()] for form in forms]
        tensors = [DeclaredTensor(name, False, "", "", "", row, False) for name, row in zip(names, sizes, strict=True)]
        return replace(calls, tensors=tensors)

    def is_taken(forms: Sequence[str]) -> bool:
        """Return whether calls are taken, and without unintended broadcasting, which adds dimensions to outputs; a
        lookup adds those of its indices."""
        built = shaped(forms)
        most = max(len(form.split()) for form in forms)
        most += sum(len(form.split()) for form, is_whole in zip(forms, whole, strict=True) if is_whole)
        trials = (built.trial(built.call(sizes)) for sizes in _SIZES)
        return all(
            isinstance(each, Trial) and all(out.rank <= most and out.elements for out in each.outputs)
            for each in trials
        )

    def forms_of(place: int, forms: Sequence[str]) -> Sequence[str]:
        """Return forms of an input, the likely ones of its name first."""
        name = names[place]
        if _ROWS.match(name) and not (name == "b" and "a" in names):
            return [form for form in forms if " " not in form or form == "R 1"]
        if whole[place]:
            return sorted(forms, key=lambda form: " " in form or form != "R")
        if _MATRICES.search(name):
            return sorted(forms, key=lambda form: 2 * ("B" in form) + (form in ("R C", "R 1")))
        return forms

    whole = [dtype(calls.row[name]).kind in (Kind.INT, Kind.UINT) for name in names]
    found: Sequence[str] = ()
    for last, halves in (("C", []), ("2C", ["R C", "C"])):  # functions that cut rows in halves take even sizes only
        first, every = ([form.replace("C", last) for form in forms] for forms in (_FIRST_FORMS, _FORMS))
        every = [*halves, *every]
        rest = [forms_of(place, every) for place in range(1, len(names))]
        likely = (islice(product([form], *rest), _MOST_TRIED >> place) for place, form in enumerate(first))
        pairs = chain.from_iterable(product(pair, repeat=len(names)) for pair in combinations(every, 2))
        tried = chain(chain.from_iterable(likely), islice((each for each in pairs if each[0] in first), _MOST_TRIED))
        found = found or next((each for each in tried if is_taken(each)), ())
    forms = list(found)
    places = [(at, index) for at, form in enumerate(forms) for index in range(len(form.split())) if at]
    # Together, as of a weight and its bias: rows of x are no rows of w in relu(x @ w.T + b).
    for chosen in chain.from_iterable(combinations(places, count) for count in (1, 2, 3)):
        used = [each[-1] for each in " ".join(forms).split()]
        letter, *others = {forms[at].split()[index][-1] for at, index in chosen}
        fresh = next((each for each in "FGH" if each not in used), letter)
        split = [form.split() for form in forms]
        for at, index in chosen:
            split[at][index] = split[at][index][:-1] + fresh
        candidate = [" ".join(each) for each in split]
        if not others and letter != "1" and used.count(letter) > len(chosen) and is_taken(candidate):
            forms = candidate
    for index in range(1, len(forms[0].split()) - 1) if forms else ():
        first = forms[0].split()
        shared = sum(first[index] in form.split() for form in forms)
        first[index] = f"2{first[index]}"
        if shared > 2 and is_taken(fewer_heads := [" ".join(first), *forms[1:]]):
            forms = fewer_heads  # of keys and values than of queries
    return shaped(forms or ["R C"] * len(names)) if forms or calls.is_sought else calls
