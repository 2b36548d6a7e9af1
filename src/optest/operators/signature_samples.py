"""Samples for an operator without samples, in the usual case sets, from the sizes that its signature declares.

If the signature has only names, shapes of several forms are tried. The first forms that the operator accepts in two
sets of sizes are used, with as many different sizes as possible.
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
    """Result of a trial call that the operator accepts.

    Attributes:
        outputs: specs of the outputs.
        memory: peak of bytes that the reference allocated; infinite if unknown.
        lines: lines of Python that the reference executed.
        arrays: values of the outputs, for a probe only.
    """

    outputs: Sequence[TensorSpec] = ()
    memory: float = 0
    lines: int = 0
    arrays: Sequence[Any] = ()


# Function that calls an operator with specs, attributes and values of some inputs. It returns the error message if the
# operator refuses the call. With True as a fourth argument it is a probe: floats get different numbers.
Try = Callable[..., "Trial | str"]

# Shapes of an input: a letter is a dimension, 2 before it doubles its size.
_FORMS = (
    *("R C", "C K", "K C", "C R", "K R", "R K", "C", "K", "R", "B"),
    *("B R C", "B C K", "B R K", "B C", "B R K C", "R 1", "1", "", "R B"),
)
# Forms of the first input; other forms differ from them only in letters.
_FIRST_FORMS = ("R C", "B R C", "B R K C", "C", "")
# Names of inputs with sizes that no other input has, such as weights of a linear layer, or of one row.
_MATRICES = re.compile(r"^w(\d|_|$)|weight|proj|kernel|table")
# Names of inputs that are one row, although broadcasting would also accept full tensors.
_ROWS = re.compile(r"gamma|beta|b(\d|_|$)|(?!.*weight).*(bias|mean|var|scale|shift)")
# Names of integers with a structure, such as offsets of sequences or pages; random values do not have it.
_LENGTHS = re.compile(r"cu_|len|offs|ptr|table")
# Names of integers up to and including the size, of integers that ascend to it, and of distinct integers.
_COUNTS, _STARTS, _SLOTS = re.compile(r"len(s|gths?)?\d*(_|$)"), re.compile(r"cu_|offs|ptr"), re.compile("slot|perm")
_UNIQUE, _COUNT, _PADDED = "unique", "count", "padded"
# Names of numbers that change random or approximate results, which would still be right.
_UNVARIED = re.compile("drop|seed|tol|iter")
# Two sets: sizes that fit a wrong form by chance in one of them do not fit in the other.
_SIZES = (
    {"R": 4, "C": 37, "B": 3, "K": 5, "F": 5, "G": 7, "H": 6},
    {"R": 3, "C": 8, "B": 2, "K": 6, "F": 2, "G": 4, "H": 5},
)
_MOST_TRIED = 1500
# Sizes in order, the last dimension of the first input, and the last offset. Some operators only accept sizes that
# divide each other.
_POOLS = (
    ((4, 5, 3, 2, 6, 7), 37, 19),
    ((3, 6, 2, 5, 4, 7), 8, 12),
    ((16, 8, 4, 4, 2, 2), 32, 32),
    ((2,), 2, 2),
    ((3,), 3, 3),
)
# One more than the numbers of blocks that 15 and 16 bits count.
_MANY = (32_769, LARGE_SIZE)
_MOST_ELEMENTS = 1 << 22
_MOST_MEMORY = 1 << 29
# Lines of Python that a reference executes in a trial. The sampler of rounding errors calls it fifty times.
_MOST_LINES = 10_000
_MOST_PAIRS = 16
# Sizes for ``*lead``, in addition to one size.
_RANKS: tuple[tuple[int, ...], ...] = ((), (2, 3), (2, 1, 3, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureSamples:
    """Derived samples, empty if no shapes were accepted; ``how`` lists the case sets, and missing ones with reasons."""

    samples: Sequence[Sample] = ()
    how: str


def signature_samples(
    descriptor: OperatorDescriptor, attempt: Try, sizes: Mapping[str, int] | None = None
) -> SignatureSamples:
    """Derive case sets by trial calls: ordinary calls, attributes, dtypes, layouts, sizes and special values.

    For a user's function, probes also find the ranges of integers and the numbers of attributes that change its result.

    Args:
        descriptor: operator without samples.
        attempt: function that makes a trial call.
        sizes: sizes by dimension to try first.
    """
    inputs = [parameter.name for parameter in descriptor.tensors.inputs]
    required = [attribute for attribute in descriptor.attributes if attribute.is_required]
    unknown = [attribute.name for attribute in required if not _legal_values(attribute)]
    if not inputs:
        return SignatureSamples(how="it has no inputs")
    if unknown:
        line = f"give Attribute(name={unknown[0]!r}, …) a default or choices=(…)"
        return SignatureSamples(how=f"no value of {', '.join(unknown)} is known; {line}")
    variants = descriptor.dtype_variants or tuple([(name,) for name in EVERY_FLOAT])
    variants = tuple([variant for variant in variants if len(variant) in (1, len(inputs))]) or variants
    rows = [dict(zip(inputs, row * len(inputs) if len(row) == 1 else row, strict=False)) for row in variants]
    usual = {attribute.name: _legal_values(attribute)[0] for attribute in required}
    declared = descriptor.tensors.declaration
    has_indices = any(dtype(rows[0][name]).kind in (Kind.INT, Kind.UINT) for name in inputs)
    # Some functions have no use for a 0 among their integers, such as numbers of heads or of steps.
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
        return SignatureSamples(how=f"no simple shapes of its inputs are accepted; declare them: signature={line!r}")
    by_float = {next((kind for kind in row.values() if dtype(kind).is_float), ""): row for row in reversed(rows)}
    main = [by_float[name] for name in MAIN_FLOATS if name in by_float] or rows[:1]
    calls = replace(calls, row=main[0])
    candidates = [*([sizes] if sizes else []), *map(calls.sizes, _POOLS)]
    tried = [(candidate, calls.trial(calls.call(candidate))) for candidate in candidates]
    bases = [candidate for candidate, trial in tried if isinstance(trial, Trial)]
    if not bases or (sizes and calls.is_sought and isinstance(tried[0][1], str)):
        how = f"no sizes of its inputs are accepted ({tried[0][1]}); give the descriptor `samples`"
        if calls.is_sought:
            refused = calls.call(sizes or _SIZES[0])
            tensors = (f"{x} {refused['dtypes'][x]} {format_shape(tuple(y))}" for x, y in refused["shapes"].items())
            how = f"given {', '.join(tensors)}, {tried[0][1]}"
        return SignatureSamples(how=how)
    if calls.is_sought:
        calls = _with_ranges(calls, bases[0])
        bases = [base for base in bases if isinstance(calls.trial(calls.call(base)), Trial)]

    notes: list[str] = []
    # Only a rule that knows the function's condition suits every magnitude; one tolerance for close results does not.
    rule = descriptor.rule
    suits_all = rule is not None and (rule.kind is not RuleClass.CLOSE or descriptor.alternatives is not None)
    ordinary = [calls.call(bases[0], row) for row in main]
    floats = [tensor.name for tensor in calls.tensors if dtype(main[0][tensor.name]).is_float]
    outputs = next(trial.outputs for _, trial in tried if isinstance(trial, Trial))
    integers = [spec.dtype.name for spec in outputs if spec.dtype.kind in (Kind.INT, Kind.UINT)]
    samples = [Sample(case_set="ordinary", case=ordinary[0], tier=Tier.SMOKE)]
    samples += [Sample(case_set="ordinary", case=calls.call(base, row)) for base in bases[:2] for row in main]
    for call in ordinary if floats and suits_all else ():
        bare = {key: value for key, value in call.items() if key != "generator"}
        samples += [_refilled(sample, call, floats) for sample in of_every_magnitude([bare])]
    samples += _of_attributes(calls, bases, main, notes)
    samples += [Sample(case_set="dtypes", case=calls.call(bases[0], row)) for row in rows]
    drawn = [tensor.name for tensor in calls.tensors if tensor.kind not in (OFFSETS, _UNIQUE, _PADDED)]
    samples += in_every_layout(ordinary[:1], names=drawn)
    samples += chain.from_iterable(in_layouts_at_once([call]) for call in ordinary[:2])
    samples += _of_sizes(calls, bases, main, notes)
    samples += _of_many(calls, bases, _MANY if suits_all else (TILES,), notes)
    if floats and integers:
        notes.append(f"no NaN and infinities, which {integers[0]} does not have")
    for call in ordinary if not integers else ():
        names = [name for name in floats if call["shapes"][name]]
        samples += [_refilled(sample, call, floats) for sample in with_special_rows([call], names)]
    samples += further_layouts(samples)
    if never := [name for name in inputs if name not in ordinary[0]["shapes"]]:
        notes.append(f"never with {', '.join(never)}: the signature does not declare its sizes")
    shapes = ", ".join(f"{name} {format_shape(tuple(shape))}" for name, shape in ordinary[0]["shapes"].items())
    sets = ", ".join(dict.fromkeys(sample.case_set for sample in samples))
    return SignatureSamples(samples=samples, how="; ".join([f"{sets}; of shapes as {shapes}", *notes]))


def _legal_values(attribute: Attribute) -> Sequence[Any]:
    """Return all values of a bool or a choice, none for other attributes."""
    return attribute.choices or ((False, True) if attribute.type == "bool" else ())


def _refilled(sample: Sample, call: Call, floats: Sequence[str]) -> Sample:
    """Return the sample with its fill for ``floats`` only, and the fills of ``call`` for other inputs."""
    fills, by_name = call.get("generator", {}), sample.case["generator"]
    if fills and "fill" in by_name:
        by_name = dict.fromkeys([name for name in floats if name in call["shapes"]], by_name)
    return replace(sample, case={**sample.case, "generator": {**fills, **by_name}})


def _of_attributes(
    calls: _Calls, bases: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, str]], notes: list[str]
) -> Iterator[Sample]:
    """Yield calls without optional inputs, with other values of bools and choices, and with pairs of such values.

    For a user's function, also yield calls with numbers that change its result reproducibly. Add to ``notes`` the
    attributes that stay at their defaults, and the refused calls.
    """
    sizes, small = bases[0], bases[min(1, len(bases) - 1)]
    optional = tuple(tensor.name for tensor in calls.tensors if tensor.is_optional)
    usual, attributes = calls.descriptor.bind(calls.usual), calls.descriptor.attributes
    dimensions = calls.dimensions()
    unbounded = [a.name for a in attributes if not _legal_values(a) and a.name not in dimensions]
    plain, numbers = calls.trial(calls.call(small), "") if calls.is_sought else "", dict[str, Any]()
    for name, number in ((key, value) for key in unbounded for value in _other_numbers(key, usual[key])):
        if name not in numbers and isinstance(plain, Trial):
            trial, repetition = (calls.trial(calls.call(small, attributes={name: number}), "") for _ in range(2))
            numbers |= {name: number} if _are_alike(trial, repetition) and not _are_alike(trial, plain) else {}
    if fixed := [name for name in unbounded if name not in numbers]:
        example = f"--attr {fixed[0]}={next(iter(_other_numbers(fixed[0], usual[fixed[0]])), '…')} sets another"
        how = example if calls.is_sought else "choices=(…) would be varied"
        notes.append(f"{', '.join(fixed)} only at the default; {how}")
    choices = [(a.name, value) for a in attributes for value in _legal_values(a) if value != usual[a.name]]
    pairs = [dict(pair) for pair in combinations(choices, 2) if pair[0][0] != pair[1][0]]
    changes = [*({name: value} for name, value in [*choices, *numbers.items()]), *pairs[:_MOST_PAIRS]]
    left_out = dict.fromkeys([*zip(optional, strict=True), *([optional] if optional else [])])
    candidates: list[tuple[str, dict[str, Any]]] = [("optional", {"without": names}) for names in left_out]
    candidates += [("attributes", {"attributes": change}) for change in changes]
    for case_set, change in candidates:
        trial = calls.trial(calls.call(sizes, **change))
        probes = [calls.trial(calls.call(small, **change), "") for _ in range(2)] if calls.is_sought else []
        if probes and not isinstance(probes[0], str) and not _are_alike(*probes):
            trial = "two equal calls return different results"
        if isinstance(trial, Trial):
            yield from (Sample(case_set=case_set, case=calls.call(sizes, row, **change)) for row in rows)
        else:
            notes.append(f"not {', '.join(map(str, change.values()))}: {trial}")


def _of_sizes(
    calls: _Calls, bases: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, str]], notes: list[str]
) -> Iterator[Sample]:
    """Yield calls with one dimension at a time in sizes from 0; the first input's last dimension gets most of them.

    Add to ``notes`` the dimensions that have only one size, or are never 0.
    """
    base, words, descriptor = bases[min(1, len(bases) - 1)], calls.dimensions(), calls.descriptor
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
                # Without inference, a case with an empty output has to declare the outputs itself.
                if descriptor.infer is None and any(0 in spec.shape for spec in trial.outputs):
                    names = descriptor.tensors.output_names(len(trial.outputs)) or ()
                    outputs = dict(zip(names, trial.outputs, strict=True))
                    call["shapes"] |= {name: list(spec.shape) for name, spec in outputs.items()}
                    call["dtypes"] |= {name: spec.dtype.name for name, spec in outputs.items()}
                yield Sample(case_set="sizes", case=call)
        if len(refused) == len(numbers):
            notes.append(f"{words[name]} only {usual}: {next(iter(refused.values()))}")
        elif empty := refused.get(0, refused.get((0,))):
            notes.append(f"{words[name]} never 0: {empty}")


def _of_many(
    calls: _Calls, bases: Sequence[Mapping[str, Any]], numbers: Sequence[int], notes: list[str]
) -> Iterator[Sample]:
    """Yield calls with one dimension at a time so long that kernels use several blocks.

    Two short trials predict memory and time; sizes beyond the limits of the reference are left out and noted.
    """
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
        # The memory of frameworks is unknown (infinite). With quadratic growth, 4,099 may still fit.
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
    """Builder of calls from the sizes of an operator's dimensions.

    Attributes:
        descriptor: the operator.
        attempt: function that makes a trial call.
        usual: values of required attributes.
        row: default dtype of each input.
        tensors: inputs with named dimensions, declared or found by trials.
        least: smallest integer in inputs of indices.
    """

    descriptor: OperatorDescriptor
    attempt: Try
    usual: Mapping[str, Any]
    row: Mapping[str, str]
    tensors: Sequence[DeclaredTensor] = ()
    least: int = 0

    @property
    def is_sought(self) -> bool:
        """Return whether the operator is a user's function, whose signature has only names."""
        return self.descriptor.category == "function"

    @property
    def last(self) -> str:
        """Name of the last dimension of the first input, which kernels cut into tiles; empty if there is none."""
        sizes = next((tensor.sizes for tensor in self.tensors if tensor.sizes), [])
        return next((size.name for size in reversed(sizes) if not size.name.isdigit()), "")

    def dimensions(self) -> dict[str, str]:
        """Return the description of each dimension for messages, by its name in :attr:`tensors`, in order."""
        # Reversed: a dimension that several inputs share is described by the first of them.
        words = {
            size.name: size.name if self.descriptor.tensors.declaration else f"dimension {index} of {tensor.name}"
            for tensor in reversed(self.tensors)
            for index, size in enumerate(tensor.sizes)
        }
        in_order = dict.fromkeys(size.name for tensor in self.tensors for size in tensor.sizes)
        return {name: words[name] for name in in_order if not name.isdigit()}

    def sizes(self, pool: tuple[tuple[int, ...], int, int]) -> dict[str, Any]:
        """Return sizes from a pool for all dimensions, except those that an attribute of their name sets."""
        numbers, last, end = pool
        ends = {tensor.limit for tensor in self.tensors if tensor.kind == OFFSETS}
        several = {size.name for tensor in self.tensors for size in tensor.sizes if size.is_several}
        bound, rest = self.descriptor.bind(self.usual), cycle(numbers)
        fixed = {a.name for a in self.descriptor.attributes if a.is_size and bound[a.name] is not None}
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
        """Return a call with these sizes in the form of a plan, with fills for indices, lengths and offsets.

        Values of offsets or unique indices are empty if they do not fit the sizes; :meth:`trial` refuses such calls.
        """
        bound: dict[str, Any] = {**self.usual, **(attributes or {})}
        domain = self.descriptor.domain
        known = {**self.descriptor.bind(bound), **sizes}
        present = [tensor for tensor in self.tensors if tensor.name not in without]
        shapes = {tensor.name: list(shape_of(tensor, known)) for tensor in present}
        dtypes = {name: (row or self.row)[name] for name in shapes}
        ranges = domain if isinstance(domain, Mapping) else shapes
        integers = [name for name, kind in dtypes.items() if not dtype(kind).is_inexact]
        # If all inputs are integers, they are numbers to compute with.
        indices = [name for name in integers if name not in ranges and len(integers) < len(shapes)]
        least = min((size for shape in shapes.values() for size in shape if size), default=1)
        fills: dict[str, Any] = {}
        for tensor in present:
            end = int(tensor.limit) if tensor.limit.isdigit() else known.get(tensor.limit, least)
            if tensor.kind == OFFSETS:  # of sequences with different lengths, one of them empty
                ends = [0, *accumulate(islice(cycle((1, 3, 0, 2)), max(0, shapes[tensor.name][0] - 1)))]
                values = [end * at // max(1, ends[-1]) for at in ends] if ends[-1] or not end else []
                fills[tensor.name] = {"fill": "data", "values": values}
            elif tensor.kind in (_UNIQUE, _PADDED):
                count = shapes[tensor.name][0]
                values = [end - 1 - at * (end // count) for at in range(count)] if count <= end else []
                if tensor.kind == _PADDED and values[1:]:
                    values[count // 2] = -1
                fills[tensor.name] = {"fill": "data", "values": values}
            elif tensor.name in indices:
                end = max(self.least + 1, end + (tensor.kind == _COUNT))
                fills[tensor.name] = {"fill": "randint", "low": self.least, "high": end}
        call = {"shapes": shapes, "dtypes": dtypes, "attributes": bound, "generator": fills}
        return {key: value for key, value in call.items() if value}

    def trial(self, call: Call, lowered: str | None = None) -> Trial | str:
        """Try a call; return its result, or the message with which the operator refuses it.

        With ``lowered`` it is a probe: integers have their largest values, those of the input ``lowered`` (if it is not
        empty) one less.
        """
        fills = call.get("generator", {})
        values = {name: fill["values"] for name, fill in fills.items() if "values" in fill}
        shapes = {name: tuple(shape) for name, shape in call["shapes"].items()}
        if [] in values.values() or min(chain((0,), *shapes.values())) < 0:
            return "there are no such shapes"
        for name in fills.keys() - values if self.least or lowered is not None else ():
            values[name] = [self.least if lowered is None else fills[name]["high"] - 1] * math.prod(shapes[name])
        if lowered:
            values[lowered] = [value - (value == max(values[lowered])) for value in values[lowered]]
        specs = {name: TensorSpec(dtype=dtype(call["dtypes"][name]), shape=shape) for name, shape in shapes.items()}
        inputs = [specs.get(parameter.name) for parameter in self.descriptor.tensors.inputs]
        bound = self.descriptor.bind(call.get("attributes", {}))
        return self.attempt(inputs, bound, values, *([] if lowered is None else [True]))


def _other_numbers(name: str, usual: Any) -> Sequence[Any]:
    """Return numbers to try for an attribute; none if its default is no number, or its name suggests randomness."""
    if type(usual) not in (int, float) or _UNVARIED.search(name):
        return ()
    numbers = (2 * usual, usual // 2, usual + 1) if type(usual) is int else (2 * usual, usual / 2, usual + 0.5, 1.0)
    return [number for number in ((0.125,) if "eps" in name else ()) + numbers if number != usual]


def _are_alike(a: Trial | str, b: Trial | str) -> bool:
    """Return whether two probes have the same results except for rounding; False if one was refused."""
    if isinstance(a, str) or isinstance(b, str) or len(a.arrays) != len(b.arrays):
        return False
    is_close = partial(load_object("numpy:allclose"), rtol=1e-9, atol=1e-12, equal_nan=True)
    return all(x.shape == y.shape and is_close(x, y) for x, y in zip(a.arrays, b.arrays, strict=True))


def _with_ranges(calls: _Calls, sizes: Mapping[str, Any]) -> _Calls:
    """Return calls with a range for each integer input: the largest size of another input that changes the result.

    If no size does, it is the largest one that is accepted. Lengths include it, starts of sequences ascend to it, and
    slots contain -1 if the function ignores negative ones.
    """
    # Lengths first: the other inputs' results depend on them.
    for indices in sorted(calls.tensors, key=lambda tensor: not _COUNTS.search(tensor.name)):
        name = indices.name
        if dtype(calls.row[name]).kind not in (Kind.INT, Kind.UINT):
            continue
        known = {
            size.name: size.of(sizes) for tensor in calls.tensors if tensor is not indices for size in tensor.sizes
        }
        limits = sorted(known, key=known.__getitem__, reverse=True)
        kinds = [OFFSETS] * bool(_STARTS.search(name)) + [_UNIQUE] * bool(_SLOTS.search(name))
        kinds = [*(kinds if len(indices.sizes) == 1 else []), *([_COUNT] if _COUNTS.search(name) else []), ""]
        accepted: list[_Calls] = []
        for kind, limit in product(kinds, limits):
            ranged = indices._replace(kind=kind, limit=limit)
            changed = replace(calls, tensors=[ranged if tensor is indices else tensor for tensor in calls.tensors])
            trial, lowered = (changed.trial(changed.call(sizes), probe) for probe in ("", name))
            accepted += [changed] if isinstance(trial, Trial) else []
            if isinstance(trial, Trial) and isinstance(lowered, Trial) and not _are_alike(trial, lowered):
                accepted = [changed]
                break
        calls = (accepted or [calls])[0]
        is_slots = [tensor.name == name and tensor.kind == _UNIQUE for tensor in calls.tensors]
        tensors = [
            tensor._replace(kind=_PADDED) if is_slot else tensor
            for is_slot, tensor in zip(is_slots, calls.tensors, strict=True)
        ]
        probes, call = [], replace(calls, tensors=tensors).call(sizes)
        # A function that counts negative slots from the end returns different results for -1 and -2.
        for padding in (-1, -2) if any(is_slots) else ():
            values = call["generator"][name]["values"]
            values[:] = [padding if value < 0 else value for value in values]
            probes.append(calls.trial(call, ""))
        calls = replace(calls, tensors=tensors) if probes and _are_alike(*probes) else calls
    return calls


def _sought(calls: _Calls) -> _Calls:
    """Return calls with the first accepted forms of required inputs, with as many different sizes as possible.

    A form has a letter for each dimension, and equal letters are equal sizes: a product accepts "R C" and "C K".
    """
    inputs = calls.descriptor.tensors.inputs
    names = [parameter.name for parameter in inputs if not parameter.optional and not parameter.variadic]
    if all(len(variant) not in (1, len(names)) for variant in calls.descriptor.dtype_variants or [("",)]):
        names = [parameter.name for parameter in inputs]

    if not calls.is_sought and any(_LENGTHS.search(name) and not dtype(calls.row[name]).is_inexact for name in names):
        return calls

    def shaped(forms: Sequence[str]) -> _Calls:
        sizes = [[DeclaredSize(False, 1 + ("2" in name), name[-1], 0) for name in form.split()] for form in forms]
        tensors = [DeclaredTensor(name, False, "", "", "", row, False) for name, row in zip(names, sizes, strict=True)]
        return replace(calls, tensors=tensors)

    def is_accepted(forms: Sequence[str]) -> bool:
        # Unintended broadcasting adds dimensions to outputs; a lookup legally adds those of its indices.
        built = shaped(forms)
        most = max(len(form.split()) for form in forms)
        most += sum(len(form.split()) for form, is_index in zip(forms, integers, strict=True) if is_index)
        trials = (built.trial(built.call(sizes)) for sizes in _SIZES)
        return all(
            isinstance(trial, Trial) and all(out.rank <= most and out.elements for out in trial.outputs)
            for trial in trials
        )

    def forms_of(index: int, forms: Sequence[str]) -> Sequence[str]:
        """Return the forms to try for an input; its name and dtype decide which are left out, and which come first."""
        name = names[index]
        if _ROWS.match(name) and not (name == "b" and "a" in names):
            return [form for form in forms if " " not in form or form == "R 1"]
        if integers[index]:
            return sorted(forms, key=lambda form: " " in form or form != "R")
        if _MATRICES.search(name):
            return sorted(forms, key=lambda form: 2 * ("B" in form) + (form in ("R C", "R 1")))
        return forms

    integers = [dtype(calls.row[name]).kind in (Kind.INT, Kind.UINT) for name in names]
    forms: list[str] = []
    # Functions that cut rows in halves accept even sizes only, hence the second iteration.
    for last, halves in (("C", []), ("2C", ["R C", "C"])):
        first, every = ([form.replace("C", last) for form in group] for group in (_FIRST_FORMS, _FORMS))
        every = [*halves, *every]
        rest = [forms_of(index, every) for index in range(1, len(names))]
        likely = (islice(product([form], *rest), _MOST_TRIED >> rank) for rank, form in enumerate(first))
        pairs = chain.from_iterable(product(pair, repeat=len(names)) for pair in combinations(every, 2))
        unlikely = islice((candidate for candidate in pairs if candidate[0] in first), _MOST_TRIED)
        candidates = chain(chain.from_iterable(likely), unlikely)
        forms = forms or list(next((candidate for candidate in candidates if is_accepted(candidate)), ()))
    dimensions = [(at, index) for at, form in enumerate(forms) for index in range(len(form.split())) if at]
    # Up to three dimensions get another size together, as of a weight and its bias: in relu(x @ w.T + b) the rows of w
    # are the elements of b, but no rows of x.
    for chosen in chain.from_iterable(combinations(dimensions, count) for count in (1, 2, 3)):
        used = [term[-1] for term in " ".join(forms).split()]
        letter, *further = {forms[at].split()[index][-1] for at, index in chosen}
        fresh = next((unused for unused in "FGH" if unused not in used), letter)
        split = [form.split() for form in forms]
        for at, index in chosen:
            split[at][index] = split[at][index][:-1] + fresh
        candidate = [" ".join(terms) for terms in split]
        if not further and letter != "1" and used.count(letter) > len(chosen) and is_accepted(candidate):
            forms = candidate
    # Attention accepts more heads of queries than of keys and values.
    for index in range(1, len(forms[0].split()) - 1) if forms else ():
        first = forms[0].split()
        shared = sum(first[index] in form.split() for form in forms)
        first[index] = f"2{first[index]}"
        if shared > 2 and is_accepted(more_heads := [" ".join(first), *forms[1:]]):
            forms = more_heads
    return shaped(forms or ["R C"] * len(names)) if forms or calls.is_sought else calls
