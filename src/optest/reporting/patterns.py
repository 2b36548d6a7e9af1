"""What tells one case from another: which cases of an operator fail where others pass (one dtype, strided inputs,
sizes that are no multiple of 4), how inputs lie in memory that are not row after row from the start, and the tiles at
whose edges an output turns wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from optest.spec import LIMIT, CaseResult, Picture, TensorSpec, dtype
from optest.spec.signature import value_text
from optest.spec.tensors import format_shape

_LEAST_PASSES = 3
"""Fewer cases that pass do not tell one property from another."""
_CHANCE = 1e-3
"""Largest probability that a property separates failures by chance."""
_SHARE = 0.75
"""Least share of failures among the cases with a property, other than a size, that separates them."""
_FEW_PASSES = 0.05
"""Of the cases of an operator, fewer passes than these say only that it is wrong nearly everywhere."""
_MANY = 5
_SHOWN_VALUES = 2
_SIZES = {"size"}
"""Name of all properties of sizes: with many sizes, one of them separates failures by accident."""
_LEAST_SIZES = 4
"""Minimum number of different failing sizes for a common factor: 65536 by itself is a multiple of every power."""
_MULTIPLES = (4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What can tell one case of an operator from another. ``words`` hold alone or not, ``values`` are one of many,
    ``amounts`` are more or less. ``inputs`` are the kinds of the given inputs, by name."""

    words: frozenset[str]
    inputs: dict[str, str]
    values: dict[str, Any]
    amounts: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Property:
    name: str
    words: str
    holds: Callable[[_Facts], bool]


def pattern_of(
    failed: Sequence[CaseResult],
    passed: Sequence[CaseResult],
    diagnosis: Sequence[str] = (),
    others: Sequence[CaseResult] = (),
) -> str:
    """Return the property that all of ``failed`` and none of ``passed``, cases of one operator, have; else "".
    ``others`` fail in other ways, and are counted.

    An attribute that the ``diagnosis`` names comes first, sizes come last. Properties other than sizes may also hold
    for a few cases that pass, in which the fault has no effect; the text has their number.
    """
    passed = [each for each in passed if all(map(math.prod, each.shapes.values()))]  # in others nothing is compared
    count, total = len(failed), len(failed) + len(passed)
    if len(passed) < max(_LEAST_PASSES, _FEW_PASSES * total):
        return f"all {total} cases" if count >= _MANY and not passed else ""
    wrong, right = [_facts(each) for each in failed], [_facts(each) for each in passed]
    named = {word for sentence in diagnosis for word in sentence.split()}
    shared = sorted(
        (each for each in _properties(wrong, right) if all(map(each.holds, wrong))),
        key=lambda each: (each.name not in named, each.name in _SIZES),
    )
    if len(passed) <= _LEAST_PASSES:
        shared = [each for each in shared if each.name not in _SIZES]
    passes = [sum(map(each.holds, right)) for each in shared]
    parting = [each for each, passing in zip(shared, passes, strict=True) if not passing]
    if parting and parting[0].name in named:
        parting = [each for each in parting if each.name not in _SIZES]
    if count == 1:  # one case has many properties that no other has
        return "only " + "; also: only ".join(each.words for each in parting) if 0 < len(parting) <= 2 else ""
    rest = [_facts(each) for each in others]

    def such(properties: Sequence[_Property]) -> str:
        """Return how many of the cases with all of the properties fail in this way."""
        more = sum(all(each.holds(facts) for each in properties) for facts in (*rest, *right))
        of_all = f"{count} of {count + more}" if more else f"all {count}"
        passing = sum(not all(each.holds(facts) for each in properties) for facts in right)
        return f"{of_all} such cases, none of {passing} others"

    if parting:
        also = f"; also: only {parting[1].words}" if len(parting) > 1 else ""
        return f"only {parting[0].words} ({such(parting[:1])}){also}"
    kept = [each for each in shared if each.name not in _SIZES]

    def only_both(properties: Sequence[_Property]) -> str:
        """Return the first two properties that no passing case has both of."""
        for one, other in combinations(properties, 2) if count >= _LEAST_PASSES else ():
            if not any(one.holds(facts) and other.holds(facts) for facts in right):
                return f"only {one.words} and {other.words} ({such((one, other))})"
        return ""

    if both := only_both(kept):
        return both
    for chosen in (*((each,) for each in kept), *combinations(kept, 2)):
        most = count + sum(all(each.holds(facts) for each in chosen) for facts in right)
        is_named = chosen[0].name in named and chosen[0].name not in wrong[0].inputs and total - most >= _LEAST_PASSES
        if is_named or (count >= _SHARE * most and (most / total) ** count <= _CHANCE):
            words = " and ".join(each.words for each in chosen)
            return f"only {words} ({such(chosen)})"
    return only_both(shared) if count >= _MANY else ""


def telling_parameters(failed: Sequence[CaseResult], passed: Sequence[CaseResult]) -> dict[int, str]:
    """By the id of each failure of an operator the parameter that tells most of it, ``dtype`` or an attribute; empty
    where chance may explain how many cases with that dtype, or without the attribute's usual value, fail."""
    values = [_facts(each).values for each in (*failed, *passed)]
    rate, told = len(failed) / len(values), [(-math.log(_CHANCE), "")] * len(failed)
    for name in dict.fromkeys(name for each in values for name in each):
        usual = Counter(each.get(name) for each in values).most_common(1)[0][0]
        kinds = [each.get(name) if name == "dtype" else each.get(name) == usual for each in values]
        wrong, such = Counter(kinds[: len(failed)]), Counter(kinds)
        for place, kind in enumerate(kinds[: len(failed)]):
            parts = ((wrong[kind], rate), (such[kind] - wrong[kind], 1 - rate))
            exponent = sum(part * math.log(part / such[kind] / share) for part, share in parts if part)
            told[place] = max(told[place], (exponent if wrong[kind] > rate * such[kind] else 0.0, name))
    return {id(each): name for each, (_, name) in zip(failed, told, strict=True)}


def _properties(wrong: Sequence[_Facts], right: Sequence[_Facts]) -> Iterator[_Property]:
    """Properties that the failures may share, those that say most first."""
    yield from _of_values("dtype", wrong, right)
    has_few = len({facts.amounts["elements in the last dimension"] for facts in wrong}) < _LEAST_SIZES
    for words in sorted(wrong[0].words.difference(_OF_SIZES[1::2] if has_few else ()), key=_WORDS.index):
        name = "size" if words in _OF_SIZES else words
        yield _Property(name=name, words=words, holds=lambda facts, words=words: words in facts.words)  # type: ignore[misc]
    for name in dict.fromkeys(name for facts in (*wrong, *right) for name in facts.inputs):
        kind, others = wrong[0].inputs.get(name), {facts.inputs.get(name) for facts in right}
        of_kind = f" of {kind}" if others - {kind, None} else ""
        words = f"with {name}{of_kind}" if kind else f"without {name}"
        if others - {kind}:
            yield _Property(
                name=name,
                words=words,
                holds=lambda facts, name=name, kind=kind: facts.inputs.get(name) == kind,  # type: ignore[misc]
            )
    for name in sorted(set(wrong[0].values) - {"dtype"}):
        yield from _of_values(name, wrong, right)
    for name in wrong[0].amounts:
        yield from _of_amounts(name, wrong, right)


def _of_values(name: str, wrong: Sequence[_Facts], right: Sequence[_Facts]) -> Iterator[_Property]:
    bad = list(dict.fromkeys(facts.values.get(name) for facts in wrong))
    good = list(dict.fromkeys(facts.values.get(name) for facts in right))
    seen = {*bad, *good}
    if 2 * len(seen) > len(wrong) + len(right) and all(isinstance(each, (str, type(None))) for each in seen):
        return  # names of the cases' own, as of files and of values in a model
    if len(good) == 1 and good[0] not in bad and len(bad) > 1:
        words = (
            f"in other dtypes than {good[0]}" if name == "dtype" else f"with {name} other than {value_text(good[0])}"
        )
        yield _Property(name=name, words=words, holds=lambda facts: facts.values.get(name) != good[0])
    elif len(bad) <= _SHOWN_VALUES and set(good) - set(bad):
        listed = " or ".join(map(value_text, bad))
        words = f"in {listed}" if name == "dtype" else f"with {name}={listed}"
        yield _Property(name=name, words=words, holds=lambda facts: facts.values.get(name) in bad)


def _of_amounts(name: str, wrong: Sequence[_Facts], right: Sequence[_Facts]) -> Iterator[_Property]:
    bad = [facts.amounts[name] for facts in wrong if name in facts.amounts]
    good = [facts.amounts[name] for facts in right if name in facts.amounts]
    if len(bad) < len(wrong) or len(good) < len(right):
        return
    if (most := max(good)) < min(bad):
        words = f"with more than {most:,.0f} {name}"
        yield _Property(name="size", words=words, holds=lambda facts: facts.amounts[name] > most)
    if (least := min(good)) > max(bad):
        words = f"with fewer than {least:,.0f} {name}"
        yield _Property(name="size", words=words, holds=lambda facts: facts.amounts[name] < least)


_STRIDED, _OFFSET, _SCALAR, _NOT_LAST = (
    "with a strided input",
    "with an input that has an offset",
    "with a scalar",
    "with a dim that is not the last",
)
_BROADCAST, _ONE_ELEMENT = "with inputs of different shapes", "with one element"
_OF_SIZES = tuple(f"where the last size is {no}a multiple of {each}" for each in _MULTIPLES for no in ("not ", ""))
_WORDS = (_STRIDED, _OFFSET, _SCALAR, _NOT_LAST, _ONE_ELEMENT, _BROADCAST, *_OF_SIZES)
"""What a case has or has not, the more telling first."""


def _facts(result: CaseResult) -> _Facts:
    shapes = list(result.shapes.values())
    specs = layouts_of(result).values()
    attributes = {name: _hashable(value) for name, value in result.attributes.items()}
    first = shapes[0] if shapes else ()
    has = {
        _STRIDED: any(not spec.is_dense and spec.strides is not None for spec in specs),
        _OFFSET: any(spec.offset and spec.lowest_index for spec in specs),
        _SCALAR: () in shapes,
        _NOT_LAST: _is_not_last(attributes.get("dim"), len(first)),
        _ONE_ELEMENT: bool(shapes) and all(math.prod(shape) == 1 for shape in shapes),
        _BROADCAST: len(set(shapes)) > 1,
    }
    for each in _MULTIPLES if first else ():
        has[f"where the last size is {'not ' if first[-1] % each else ''}a multiple of {each}"] = first[-1] > 0
    elements = max(map(math.prod, shapes), default=0)
    # Dtypes of masks and indices separate nothing; imported results may have dtypes unknown to optest.
    floats = [name for name in result.dtypes if name.startswith(("float", "bfloat", "complex"))]
    kinds = {name: _kind(spec[0]) for name, _, spec, *_ in result.case.get("inputs", ())}
    return _Facts(
        inputs=kinds,
        words=frozenset(words for words, holds in has.items() if holds),
        values={**attributes, "dtype": ",".join(dict.fromkeys(floats or result.dtypes))},
        amounts={
            "elements": elements,
            "dimensions": max(map(len, shapes), default=0),
            "elements in the last dimension": first[-1] if first else 0,
        },
    )


def _kind(name: str) -> str:
    return "integers" if name.startswith(("int", "uint")) else "bool" if name == "bool" else "floats"


def _hashable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _is_not_last(dim: Any, rank: int) -> bool:
    dims = dim if isinstance(dim, tuple) else (dim,)
    return rank > 1 and all(isinstance(each, int) for each in dims) and rank - 1 not in [each % rank for each in dims]


def layouts_of(result: CaseResult) -> dict[str, TensorSpec]:
    """The inputs with strides or an offset of their own, by their place in the call."""
    layouts = {}
    for _, path, spec, *_ in result.case.get("inputs", ()):
        if len(spec) > 2:
            name, shape, strides, offset = spec
            tensor = TensorSpec(
                dtype=dtype(name),
                shape=tuple(shape),
                strides=None if strides is None else tuple(strides),
                offset=offset,
            )
            if not tensor.is_plain:
                layouts[path] = tensor
    return layouts


def output_layouts(result: CaseResult) -> Mapping[str, Mapping[str, Any]]:
    """Return ``strides`` and ``offset`` of the outputs for which the configuration of a case has strides, by name."""
    config = (result.case.get("backend_config") or {}).get(result.backend) or {}
    outputs = config.get("outputs")
    named = outputs.items() if isinstance(outputs, Mapping) else ()
    return {name: each for name, each in named if isinstance(each, Mapping) and each.get("strides")}


def layout_text(spec: TensorSpec) -> str:
    """``float16 2x3x8, strides [48, 16, 1], offset 3``."""
    strides = "" if spec.strides is None else f", strides {list(spec.strides)}"
    return f"{spec.dtype.name} {format_shape(spec.shape)}{strides}" + (f", offset {spec.offset}" if spec.offset else "")


def layouts_data(result: CaseResult) -> Mapping[str, Mapping[str, Any]]:
    """The same as plain data: strides (None: row after row) and offset in elements, by input."""
    return {
        path: {"strides": None if spec.strides is None else list(spec.strides), "offset": spec.offset}
        for path, spec in layouts_of(result).items()
    }


_LEAST_TILE = 8
_CLEAR = 0.5
"""Of the changes at the clearest edge: with fewer, elements of a wrong tile are right by chance."""


def tile_of(picture: Picture) -> tuple[int, int]:
    """Rows and columns of the tiles at whose edges elements turn wrong, the largest powers of two; 0 for none."""
    grid, (high, wide) = picture.grid(), picture.cell
    rows, columns = _tile(grid, high), _tile(list(zip(*grid, strict=True)), wide)
    if picture.folded:
        flat = _power(math.gcd(rows * picture.columns, columns))
        rows, columns = (flat // picture.columns, 0) if flat >= picture.columns else (0, flat)
        return (rows if rows >= 2 * high or high == 1 else 0, _known(columns, wide))
    return _known(_power(rows), high), _known(_power(columns), wide)


def _known(tile: int, cell: int) -> int:
    """Every change is at a multiple of a cell: that is no tile."""
    return tile if tile >= max(_LEAST_TILE, 2 * cell) else 0


def _tile(lines: Sequence[Sequence[int]], cell: int) -> int:
    """What divides all places where a line of cells differs from the one before it, in elements; 0 if none does."""
    changes = [
        sum((one > LIMIT) != (other > LIMIT) for one, other in zip(*pair, strict=True) if one and other)
        for pair in pairwise(lines)
    ]
    clear = _CLEAR * max(changes, default=0)
    return math.gcd(*(place * cell for place, count in enumerate(changes, 1) if count and count >= clear))


def _power(number: int) -> int:
    """The largest power of two that divides it."""
    return number & -number
