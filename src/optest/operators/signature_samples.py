"""Samples of an operator that states none, in the usual case sets, from the sizes that its signature declares.

Where the signature has names alone, forms of shapes are tried, in sizes that differ. The first that are taken in two
sets of sizes stand, with as many different sizes as can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, combinations, cycle, islice, product
from typing import Any, NamedTuple

from optest.operators.calls import CALM_SIZES, EVERY_FLOAT, LARGE_SIZE, MAIN_FLOATS, SIZES, TILES, Call
from optest.operators.derived_samples import further_layouts
from optest.operators.samples import in_every_layout, in_layouts_at_once, of_every_magnitude, with_special_rows
from optest.spec import Attribute, Kind, OperatorDescriptor, RuleClass, Sample, TensorSpec, Tier, dtype, format_shape
from optest.spec.declared_shapes import OFFSETS, DeclaredSize, DeclaredTensor, read_declaration, shape_of

__all__ = ["SignatureSamples", "Trial", "Try", "signature_samples"]


class Trial(NamedTuple):
    """A call that an operator takes: its outputs, and the most bytes that its reference allocated."""

    outputs: Sequence[TensorSpec] = ()
    memory: float = 0


Try = Callable[[Sequence["TensorSpec | None"], Mapping[str, Any], Mapping[str, Sequence[int]]], "Trial | str"]
"""Call an operator with inputs of these specs, these attributes, and the values of some inputs; or say why not."""

_FORMS = ("R C", "C K", "K C", "C", "R", "C R", "B R C", "B C K", "B C", "B R C K", "R 1", "1", "", "R B")
_PARAMETERS = ("weight", "bias", "gamma", "beta", "scale")
"""Names of inputs that are one row for all others, though broadcasting lets them be whole tensors."""
_SIZES = (
    {"R": 4, "C": 37, "B": 3, "K": 5, "F": 5, "G": 7, "H": 6},
    {"R": 3, "C": 8, "B": 2, "K": 6, "F": 2, "G": 4, "H": 5},
)
_MOST_TRIED = 1000
_POOLS = (
    ((4, 5, 3, 2, 6, 7), 37, 19),
    ((3, 6, 2, 5, 4, 7), 8, 12),
    ((16, 8, 4, 4, 2, 2), 32, 32),
    ((2,), 2, 2),
    ((3,), 3, 3),
)
"""Sizes in order, that of the last dimension of the first input, and one in which offsets end. Some operators take only
sizes that divide each other."""
_MANY = (32_769, LARGE_SIZE)
"""One more than the blocks that 15 and 16 bits count."""
_MOST_ELEMENTS = 1 << 22
_MOST_MEMORY = 1 << 29
_MOST_COMBINATIONS = 16
_RANKS: tuple[tuple[int, ...], ...] = ((), (2, 3), (2, 1, 3, 2))
"""What ``*lead`` stands for, beside one size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureSamples:
    """``samples`` are none where no shapes were taken; ``how`` says what was derived, and what was not and why."""

    samples: Sequence[Sample] = ()
    how: str


def signature_samples(descriptor: OperatorDescriptor, attempt: Try) -> SignatureSamples:
    """Case sets of ordinary calls, attributes, dtypes, layouts, every dimension in many sizes, and special values."""
    inputs = [each.name for each in descriptor.tensors.inputs]
    unknown = [each.name for each in descriptor.attributes if each.is_required and not _values(each)]
    if not inputs:
        return SignatureSamples(how="it has no inputs")
    if unknown:
        line = f"give Attribute(name={unknown[0]!r}, …) a default or choices=(…)"
        return SignatureSamples(how=f"nobody knows a value of {', '.join(unknown)}; {line}")
    variants = descriptor.dtype_variants or tuple([(name,) for name in EVERY_FLOAT])
    variants = tuple([each for each in variants if len(each) in (1, len(inputs))]) or variants
    rows = [dict(zip(inputs, row * len(inputs) if len(row) == 1 else row, strict=False)) for row in variants]
    usual = {each.name: _values(each)[0] for each in descriptor.attributes if each.is_required}
    calls = _Calls(descriptor=descriptor, attempt=attempt, usual=usual, row=rows[0])
    declared = descriptor.tensors.declaration
    calls = replace(calls, tensors=read_declaration(declared)[0]) if declared else _sought(calls)
    if not calls.tensors:
        line = f"{', '.join(f'{name}: T[rows, …]' for name in inputs)} -> out: T[rows, …]"
        return SignatureSamples(how=f"no simple shapes of its inputs are taken; declare them: signature={line!r}")
    by_float = {next((kind for kind in row.values() if dtype(kind).is_float), ""): row for row in reversed(rows)}
    main = [by_float[name] for name in MAIN_FLOATS if name in by_float] or rows[:1]
    calls = replace(calls, row=main[0])
    tried = [(sizes, calls.trial(sizes)) for sizes in map(calls.sizes, _POOLS)]
    bases = [sizes for sizes, trial in tried if isinstance(trial, Trial)]
    if not bases:
        return SignatureSamples(how=f"no sizes of its inputs are taken ({tried[0][1]}); give the descriptor `samples`")

    notes: list[str] = []
    has_law = descriptor.rule is not None and descriptor.rule.kind is not RuleClass.CLOSE
    whole = [calls.call(bases[0], row) for row in main]
    floats = [each.name for each in calls.tensors if dtype(main[0][each.name]).is_float]
    samples = [Sample(case_set="ordinary", case=whole[0], tier=Tier.SMOKE)]
    samples += [Sample(case_set="ordinary", case=calls.call(sizes, row)) for sizes in bases[:2] for row in main]
    for call in whole if floats and has_law else ():  # one tolerance is not for every magnitude
        bare = {key: value for key, value in call.items() if key != "generator"}
        samples += [_refilled(each, call, floats) for each in of_every_magnitude([bare])]
    samples += _of_attributes(calls, bases[0], main, notes)
    samples += [Sample(case_set="dtypes", case=calls.call(bases[0], row)) for row in rows]
    samples += in_every_layout(whole[:1], names=[each.name for each in calls.tensors if each.kind != OFFSETS])
    samples += chain.from_iterable(in_layouts_at_once([call]) for call in whole[:2])
    samples += _of_sizes(calls, bases, main, notes)
    samples += _of_many(calls, bases, _MANY if has_law else (TILES,), notes)
    outputs = next(trial.outputs for _, trial in tried if isinstance(trial, Trial))
    integers = [each.dtype.name for each in outputs if each.dtype.kind in (Kind.INT, Kind.UINT)]
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
    """All values that an attribute may have, none if there is no end of them."""
    return attribute.choices or ((False, True) if attribute.type == "bool" else ())


def _refilled(sample: Sample, call: Call, floats: Sequence[str]) -> Sample:
    """The sample with its fill for floats alone, and the call's for other inputs."""
    stated: Any = sample.case["generator"]
    if "fill" not in stated or "generator" not in call:
        fills = {**call.get("generator", {}), **stated}
    else:
        fills = {**call["generator"], **dict.fromkeys([name for name in floats if name in call["shapes"]], stated)}
    return replace(sample, case={**sample.case, "generator": fills})


def _of_attributes(
    calls: _Calls, sizes: Mapping[str, Any], rows: Sequence[Mapping[str, str]], notes: list[str]
) -> Iterator[Sample]:
    """Calls without optional inputs, with every other value of a bool or a choice, and combinations of these."""
    optional = [each.name for each in calls.tensors if each.is_optional]
    for without in dict.fromkeys([*((name,) for name in optional), tuple(optional)] if optional else []):
        if isinstance(trial := calls.trial(sizes, without=without), Trial):
            yield from (Sample(case_set="optional", case=calls.call(sizes, row, without)) for row in rows)
        else:
            notes.append(f"not without {', '.join(without)}: {trial}")
    usual, attributes = calls.descriptor.bind(calls.usual), calls.descriptor.attributes
    if endless := [each.name for each in attributes if not _values(each) and each.name not in calls.dimensions()]:
        notes.append(f"{', '.join(endless)} only at the default; choices=(…) would be varied")
    others = {each.name: [value for value in _values(each) if value != usual[each.name]] for each in attributes}
    each_alone = [{name: value} for name, values in others.items() for value in values]
    together = product(*([{}, *({name: value} for value in values)] for name, values in others.items() if values))
    several = [dict(chain.from_iterable(map(dict.items, each))) for each in together if sum(map(bool, each)) > 1]
    for changed in (*each_alone, *several[:_MOST_COMBINATIONS]):
        if isinstance(trial := calls.trial(sizes, attributes=changed), Trial):
            for row in rows if len(changed) == 1 else rows[:1]:
                yield Sample(case_set="attributes", case=calls.call(sizes, row, attributes=changed))
        elif len(changed) == 1:
            notes.append(f"never with {', '.join(f'{name}={value}' for name, value in changed.items())}: {trial}")


def _of_sizes(
    calls: _Calls, bases: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, str]], notes: list[str]
) -> Iterator[Sample]:
    """Every dimension in turn in sizes from 0, most of them for the last one of the first input."""
    base, where = bases[min(1, len(bases) - 1)], calls.dimensions()
    for name, usual in base.items():
        is_last = name == calls.last
        numbers: list[Any] = [*(SIZES if is_last else CALM_SIZES)]
        numbers = [*_RANKS, *((number,) for number in numbers)] if isinstance(usual, tuple) else numbers
        refused = {}
        for number in numbers:
            sizes = {**base, name: number}
            trial = calls.trial(sizes)
            if isinstance(trial, str):
                refused[number] = trial
                continue
            is_declared = calls.descriptor.infer is not None or all(0 not in each.shape for each in trial.outputs)
            for row in rows[:2] if is_last else rows[:1]:
                call = calls.call(sizes, row, outputs=() if is_declared else trial.outputs)
                yield Sample(case_set="sizes", case=call)
        if len(refused) == len(numbers):
            notes.append(f"{where[name]} only {usual}: {next(iter(refused.values()))}")
        elif empty := refused.get(0, refused.get((0,))):
            notes.append(f"{where[name]} never 0: {empty}")


def _of_many(
    calls: _Calls, bases: Sequence[Mapping[str, Any]], numbers: Sequence[int], notes: list[str]
) -> Iterator[Sample]:
    """Every dimension in turn so long that kernels take more than one block, if its reference is as cheap as that."""
    few, more = SIZES[-3] + 2, SIZES[-1]  # 257 and 1025
    for name, where in calls.dimensions().items():
        if not any(name in base for base in bases):
            continue
        for base in reversed(bases):
            placed = [{**base, name: (n,) if isinstance(base[name], tuple) else n} for n in (few, more, *numbers)]
            one, other = (calls.trial(sizes) for sizes in placed[:2])
            if isinstance(one, Trial) and isinstance(other, Trial):
                break
        else:
            continue
        growth = max(1.0, other.memory / max(1.0, one.memory))
        for number, sizes in zip(numbers, placed[2:], strict=True):
            call = calls.call(sizes)
            memory = other.memory * growth ** (math.log(number / more) / math.log(more / few))
            if not memory <= _MOST_MEMORY or sum(map(math.prod, call["shapes"].values())) > _MOST_ELEMENTS:
                notes.append(f"{where} not {number:,}: the reference would take too much memory, as far as NumPy tells")
                yield Sample(case_set="sizes", case=calls.call(placed[1]))
                break
            yield Sample(case_set="sizes", case=call)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """Calls of an operator by the sizes of its dimensions; ``row`` are the dtypes of its inputs unless others are
    given, ``usual`` its required attributes."""

    descriptor: OperatorDescriptor
    attempt: Try
    usual: Mapping[str, Any]
    row: Mapping[str, str]
    tensors: Sequence[DeclaredTensor] = ()

    @property
    def last(self) -> str:
        """The last dimension of the first input, which kernels cut into tiles."""
        return next((each.sizes[-1].name for each in self.tensors if each.sizes), "")

    def dimensions(self) -> dict[str, str]:
        """What each is called, by its name in :attr:`tensors`."""
        found: dict[str, str] = {}
        for each in self.tensors:
            for place, size in enumerate(each.sizes):
                words = size.name if self.descriptor.tensors.declaration else f"dimension {place} of {each.name}"
                found.setdefault(size.name, words)
        return {name: words for name, words in found.items() if not name.isdigit()}

    def sizes(self, pool: tuple[tuple[int, ...], int, int]) -> dict[str, Any]:
        """Sizes of all dimensions, except those that have the name of an attribute, which is their size."""
        numbers, last, end = pool
        ends = {each.limit for each in self.tensors if each.kind == OFFSETS}
        several = {size.name for each in self.tensors for size in each.sizes if size.is_several}
        attributes, rest = self.descriptor.bind(self.usual), cycle(numbers)
        names = [name for name in self.dimensions() if not isinstance(attributes.get(name), int)]
        found = {name: end if name in ends else last if name == self.last else next(rest) for name in names}
        return {name: (size,) if name in several else size for name, size in found.items()}

    def trial(
        self,
        sizes: Mapping[str, Any],
        row: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
    ) -> Trial | str:
        """What the operator gives for a call, or why it does not take it."""
        bound = self.descriptor.bind({**self.usual, **(attributes or {})})
        shapes = self._shapes(sizes, without, bound)
        offsets = self._offsets(shapes, sizes)
        if min((size for shape in shapes.values() for size in shape), default=0) < 0 or None in offsets.values():
            return "there are no such shapes"
        dtypes = row or self.row
        specs = {name: TensorSpec(dtype=dtype(dtypes[name]), shape=tuple(shape)) for name, shape in shapes.items()}
        return self.attempt([specs.get(each.name) for each in self.descriptor.tensors.inputs], bound, offsets)

    def call(
        self,
        sizes: Mapping[str, Any],
        row: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
        attributes: Mapping[str, Any] | None = None,
        outputs: Sequence[TensorSpec] = (),
    ) -> Call:
        """The call as a plan states it; ``outputs`` are those that hold nothing and have to be declared."""
        stated = {**self.usual, **(attributes or {})}
        shapes = self._shapes(sizes, without, self.descriptor.bind(stated))
        dtypes = {name: (row or self.row)[name] for name in shapes}
        fills: dict[str, Any] = {}
        domain = self.descriptor.domain
        if isinstance(domain, Mapping) and any(dtype(kind).is_inexact for kind in dtypes.values()):
            least = min((size for shape in shapes.values() for size in shape if size), default=1)
            whole = [name for name, kind in dtypes.items() if not dtype(kind).is_inexact and name not in domain]
            fills = {name: {"fill": "randint", "low": 0, "high": least} for name in whole}
        fills |= {name: {"fill": "data", "values": each} for name, each in self._offsets(shapes, sizes).items()}
        kinds: Any = [*dtypes.values()] if len({*dtypes.values()}) > 1 else [*dtypes.values()][:1]
        if named := dict(zip(self.descriptor.tensors.outputs, outputs, strict=False)):
            kinds = {**dtypes, **{name: each.dtype.name for name, each in named.items()}}
            shapes |= {name: list(each.shape) for name, each in named.items()}
        call = {"shapes": shapes, "dtypes": kinds, "attributes": stated, "generator": fills}
        return {key: value for key, value in call.items() if value}

    def _shapes(
        self, sizes: Mapping[str, Any], without: Sequence[str], bound: Mapping[str, Any]
    ) -> dict[str, list[int]]:
        known = {**bound, **sizes}
        return {each.name: list(shape_of(each, known)) for each in self.tensors if each.name not in without}

    def _offsets(self, shapes: Mapping[str, Sequence[int]], sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Where sequences begin, some of them empty; None where no sequence is there to hold the elements."""
        found: dict[str, Any] = {}
        for each in self.tensors:
            if each.kind == OFFSETS and each.name in shapes:
                ends = [0, *accumulate(islice(cycle((1, 3, 0, 2)), max(0, shapes[each.name][0] - 1)))]
                end = sizes[each.limit]
                found[each.name] = [end * at // ends[-1] for at in ends] if ends[-1] else None if end else [0]
        return found


def _sought(calls: _Calls) -> _Calls:
    """With the first forms of required inputs that are taken, and as many different sizes in them as can be."""
    inputs = calls.descriptor.tensors.inputs
    names = [each.name for each in inputs if not each.optional and not each.variadic]
    if all(len(each) not in (1, len(names)) for each in calls.descriptor.dtype_variants or [("",)]):
        names = [each.name for each in inputs]

    def shaped(forms: Sequence[str]) -> _Calls:
        sizes = [[DeclaredSize(False, 1, letter, 0) for letter in form.split()] for form in forms]
        return replace(
            calls,
            tensors=[
                DeclaredTensor(name, False, "", "", "", own, False) for name, own in zip(names, sizes, strict=True)
            ],
        )

    def is_taken(forms: Sequence[str]) -> bool:
        return all(isinstance(shaped(forms).trial(sizes), Trial) for sizes in _SIZES)

    ordered = [sorted(_FORMS, key=lambda form: form != "C") if name in _PARAMETERS else _FORMS for name in names]
    pairs = chain.from_iterable(product(pair, repeat=len(names)) for pair in combinations(_FORMS, 2))
    tried = chain(islice(product(*ordered), _MOST_TRIED), islice(pairs, 2 * _MOST_TRIED))
    forms = [form.split() for form in next(filter(is_taken, tried), ())]
    if not forms:
        return calls
    for form in forms[1:]:
        for place, letter in enumerate(form):
            used = [*chain.from_iterable(forms)]
            fresh = next((each for each in "FGH" if each not in used), letter)
            if letter != "1" and used.count(letter) > 1:
                form[place] = fresh
                if not is_taken([" ".join(each) for each in forms]):
                    form[place] = letter
    return shaped([" ".join(each) for each in forms])
