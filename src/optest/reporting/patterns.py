"""Patterns of failures: properties that only the failing cases of an operator have (a dtype, strided inputs, sizes that
are no multiple of 4), layouts of inputs and outputs, and tiles at whose edges elements become wrong."""

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

# Fewer passed cases do not distinguish one property from another.
_MIN_PASSES = 3
# Largest probability that a property separates failures by chance.
_MAX_CHANCE = 1e-3
# Minimum share of failures among the cases with a property other than a size.
_MIN_SHARE = 0.75
# With a smaller share of passes, an operator is wrong nearly everywhere: a property would explain the passes.
_MIN_PASS_SHARE = 0.05
_MANY_FAILURES = 5
_SHOWN_VALUES = 2
# Common name of all properties of sizes. Of many sizes, one separates failures by accident: these rank last.
_SIZE = "size"
# Minimum number of different failing sizes for a common factor: 65536 by itself is a multiple of every power of two.
_MIN_SIZES = 4
_MULTIPLES = (4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Facts that may distinguish the cases of an operator.

    ``words`` are properties that a case has or has not, ``values`` the dtype and the attributes, ``amounts`` numbers of
    elements and dimensions, ``inputs`` the kinds (floats, integers, bool) of the inputs by name.
    """

    words: frozenset[str]
    inputs: dict[str, str]
    values: dict[str, Any]
    amounts: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Property:
    """Property of cases: the name of an attribute, input, fact or "size", its description, and a predicate."""

    name: str
    words: str
    holds: Callable[[_Facts], bool]


def pattern_of(
    failed: Sequence[CaseResult],
    passed: Sequence[CaseResult],
    diagnosis: Sequence[str] = (),
    others: Sequence[CaseResult] = (),
) -> str:
    """Return a text about the property that all of ``failed`` and none of ``passed`` have; "" if there is none.

    All results are of one operator; ``others`` fail in other ways, and are counted in the text. An attribute that the
    ``diagnosis`` names comes first, sizes come last. Without a separating property, two that no passed case has both of
    are taken, or one that few passed cases have, in which the fault has no effect. If all cases fail, the text is
    ``all 12 cases``.
    """
    # Of empty tensors nothing is compared.
    passed = [result for result in passed if all(map(math.prod, result.shapes.values()))]
    count, total = len(failed), len(failed) + len(passed)
    if len(passed) < max(_MIN_PASSES, _MIN_PASS_SHARE * total):
        return f"all {total} cases" if count >= _MANY_FAILURES and not passed else ""
    wrong, right = [_facts_of_case(result) for result in failed], [_facts_of_case(result) for result in passed]
    named = {word for sentence in diagnosis for word in sentence.split()}
    shared = sorted(
        (prop for prop in _properties(wrong, right) if all(map(prop.holds, wrong))),
        key=lambda prop: (prop.name not in named, prop.name == _SIZE),
    )
    without_sizes = [prop for prop in shared if prop.name != _SIZE]
    # One of many sizes separates few passes by chance.
    if len(passed) <= _MIN_PASSES:
        shared = without_sizes
    separating = [prop for prop in shared if not any(map(prop.holds, right))]
    # An attribute that the diagnosis names explains more than a size that changes with it.
    if separating and separating[0].name in named:
        separating = [prop for prop in separating if prop.name != _SIZE]
    if count == 1:  # one case has many properties that no other has
        if not 0 < len(separating) <= 2:
            return ""
        return "only " + "; also: only ".join(prop.words for prop in separating)
    rest = [_facts_of_case(result) for result in others]

    def case_counts(properties: Sequence[_Property]) -> str:
        """Return how many cases with all of the properties fail in this way, and how many without them pass."""
        more = sum(all(prop.holds(facts) for prop in properties) for facts in (*rest, *right))
        of_all = f"{count} of {count + more}" if more else f"all {count}"
        passing = sum(not all(prop.holds(facts) for prop in properties) for facts in right)
        return f"{of_all} such cases, none of {passing} others"

    if separating:
        also = f"; also: only {separating[1].words}" if len(separating) > 1 else ""
        return f"only {separating[0].words} ({case_counts(separating[:1])}){also}"

    def only_both(properties: Sequence[_Property]) -> str:
        """Return a text about the first two properties that no passed case has both of, "" if there are none."""
        for first, second in combinations(properties, 2) if count >= _MIN_PASSES else ():
            if not any(first.holds(facts) and second.holds(facts) for facts in right):
                return f"only {first.words} and {second.words} ({case_counts((first, second))})"
        return ""

    if both := only_both(without_sizes):
        return both
    for chosen in (*((prop,) for prop in without_sizes), *combinations(without_sizes, 2)):
        cases = count + sum(all(prop.holds(facts) for prop in chosen) for facts in right)
        # (cases / total) ** count is the probability that all failures have the property by chance.
        is_named = chosen[0].name in named and chosen[0].name not in wrong[0].inputs and total - cases >= _MIN_PASSES
        if is_named or (count >= _MIN_SHARE * cases and (cases / total) ** count <= _MAX_CHANCE):
            words = " and ".join(prop.words for prop in chosen)
            return f"only {words} ({case_counts(chosen)})"
    return only_both(shared) if count >= _MANY_FAILURES else ""


def telling_parameters(failed: Sequence[CaseResult], passed: Sequence[CaseResult]) -> dict[int, str]:
    """Return the parameter that explains each failure of an operator best, "dtype" or an attribute, by ``id()`` of it.

    That is the parameter with the largest log-likelihood ratio: cases with this dtype, or with another value of the
    attribute than the usual one, fail more often than all cases. It is "" if chance may explain that.
    """
    values = [_facts_of_case(result).values for result in (*failed, *passed)]
    rate, best = len(failed) / len(values), [(-math.log(_MAX_CHANCE), "")] * len(failed)
    for name in dict.fromkeys(name for facts in values for name in facts):
        usual = Counter(facts.get(name) for facts in values).most_common(1)[0][0]
        kinds = [facts.get(name) if name == "dtype" else facts.get(name) == usual for facts in values]
        failing, total = Counter(kinds[: len(failed)]), Counter(kinds)
        for index, kind in enumerate(kinds[: len(failed)]):
            parts = ((failing[kind], rate), (total[kind] - failing[kind], 1 - rate))
            exponent = sum(part * math.log(part / total[kind] / share) for part, share in parts if part)
            best[index] = max(best[index], (exponent if failing[kind] > rate * total[kind] else 0.0, name))
    return {id(result): name for result, (_, name) in zip(failed, best, strict=True)}


def _properties(wrong: Sequence[_Facts], right: Sequence[_Facts]) -> Iterator[_Property]:
    """Yield properties of the first failure that may separate ``wrong`` from ``right``, the most informative first."""
    yield from _value_properties("dtype", wrong, right)
    has_few_sizes = len({facts.amounts["elements in the last dimension"] for facts in wrong}) < _MIN_SIZES
    for words in sorted(wrong[0].words.difference(_SIZE_WORDS[1::2] if has_few_sizes else ()), key=_WORDS.index):
        name = _SIZE if words in _SIZE_WORDS else words
        yield _Property(name=name, words=words, holds=lambda facts, words=words: words in facts.words)  # type: ignore[misc]
    for name in dict.fromkeys(name for facts in (*wrong, *right) for name in facts.inputs):
        kind, passing_kinds = wrong[0].inputs.get(name), {facts.inputs.get(name) for facts in right}
        of_kind = f" of {kind}" if passing_kinds - {kind, None} else ""
        words = f"with {name}{of_kind}" if kind else f"without {name}"
        if passing_kinds - {kind}:
            yield _Property(
                name=name,
                words=words,
                holds=lambda facts, name=name, kind=kind: facts.inputs.get(name) == kind,  # type: ignore[misc]
            )
    for name in sorted(set(wrong[0].values) - {"dtype"}):
        yield from _value_properties(name, wrong, right)
    for name in wrong[0].amounts:
        yield from _amount_properties(name, wrong, right)


def _value_properties(name: str, wrong: Sequence[_Facts], right: Sequence[_Facts]) -> Iterator[_Property]:
    """Yield the property that a dtype or attribute has one of the failing values, or not the only passing one."""
    bad = list(dict.fromkeys(facts.values.get(name) for facts in wrong))
    good = list(dict.fromkeys(facts.values.get(name) for facts in right))
    seen = {*bad, *good}
    if 2 * len(seen) > len(wrong) + len(right) and all(isinstance(value, (str, type(None))) for value in seen):
        return  # nearly every case has its own text, such as the name of a file or of a value in a model
    if len(good) == 1 and good[0] not in bad and len(bad) > 1:
        words = (
            f"in other dtypes than {good[0]}" if name == "dtype" else f"with {name} other than {value_text(good[0])}"
        )
        yield _Property(name=name, words=words, holds=lambda facts: facts.values.get(name) != good[0])
    elif len(bad) <= _SHOWN_VALUES and set(good) - set(bad):
        listed = " or ".join(map(value_text, bad))
        words = f"in {listed}" if name == "dtype" else f"with {name}={listed}"
        yield _Property(name=name, words=words, holds=lambda facts: facts.values.get(name) in bad)


def _amount_properties(name: str, wrong: Sequence[_Facts], right: Sequence[_Facts]) -> Iterator[_Property]:
    """Yield the property that an amount is larger, or smaller, in all failing cases than in all passing ones."""
    bad = [facts.amounts[name] for facts in wrong if name in facts.amounts]
    good = [facts.amounts[name] for facts in right if name in facts.amounts]
    if len(bad) < len(wrong) or len(good) < len(right):
        return
    if (largest := max(good)) < min(bad):
        words = f"with more than {largest:,.0f} {name}"
        yield _Property(name=_SIZE, words=words, holds=lambda facts: facts.amounts[name] > largest)
    if (smallest := min(good)) > max(bad):
        words = f"with fewer than {smallest:,.0f} {name}"
        yield _Property(name=_SIZE, words=words, holds=lambda facts: facts.amounts[name] < smallest)


_STRIDED, _OFFSET, _SCALAR, _NOT_LAST = (
    "with a strided input",
    "with an input that has an offset",
    "with a scalar",
    "with a dim that is not the last",
)
_BROADCAST, _ONE_ELEMENT = "with inputs of different shapes", "with one element"
_SIZE_WORDS = tuple(f"if the last size is {no}a multiple of {factor}" for factor in _MULTIPLES for no in ("not ", ""))
# The more informative properties first.
_WORDS = (_STRIDED, _OFFSET, _SCALAR, _NOT_LAST, _ONE_ELEMENT, _BROADCAST, *_SIZE_WORDS)


def _facts_of_case(result: CaseResult) -> _Facts:
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
    for factor in _MULTIPLES if first else ():
        has[f"if the last size is {'not ' if first[-1] % factor else ''}a multiple of {factor}"] = first[-1] > 0
    elements = max(map(math.prod, shapes), default=0)
    # Dtypes of masks and indices separate nothing; imported results may have dtypes unknown to optest.
    floats = [name for name in result.dtypes if name.startswith(("float", "bfloat", "complex"))]
    return _Facts(
        inputs={name: _kind(spec[0]) for name, _, spec, *_ in result.case.get("inputs", ())},
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
    """Return lists as tuples, None, numbers and texts as they are, and other values as texts."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _is_not_last(dim: Any, rank: int) -> bool:
    """Return whether the attribute ``dim`` is one or several integers without the last dimension."""
    dims = dim if isinstance(dim, tuple) else (dim,)
    return rank > 1 and all(isinstance(axis, int) for axis in dims) and rank - 1 not in [axis % rank for axis in dims]


def layouts_of(result: CaseResult) -> dict[str, TensorSpec]:
    """Return the inputs that are not contiguous from the start of their storage, by their paths in the call."""
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
    """Return ``strides`` and ``offset``, by name, of the outputs for which the configuration of a case has strides."""
    config = (result.case.get("backend_config") or {}).get(result.backend) or {}
    outputs = config.get("outputs")
    named = outputs.items() if isinstance(outputs, Mapping) else ()
    return {name: layout for name, layout in named if isinstance(layout, Mapping) and layout.get("strides")}


def layout_text(spec: TensorSpec) -> str:
    """Return ``float16 2x3x8, strides [48, 16, 1], offset 3``; without strides or an offset that the tensor lacks."""
    strides = "" if spec.strides is None else f", strides {list(spec.strides)}"
    return f"{spec.dtype.name} {format_shape(spec.shape)}{strides}" + (f", offset {spec.offset}" if spec.offset else "")


def layouts_data(result: CaseResult) -> Mapping[str, Mapping[str, Any]]:
    """Return :func:`layouts_of` as plain data: strides (None for contiguous) and offset in elements, by input."""
    return {
        path: {"strides": None if spec.strides is None else list(spec.strides), "offset": spec.offset}
        for path, spec in layouts_of(result).items()
    }


_MIN_TILE = 8
# Share of the changes at the clearest edge that make an edge: at others, elements of a wrong tile are right by chance.
_EDGE_SHARE = 0.5


def tile_of(picture: Picture) -> tuple[int, int]:
    """Return the number of rows and columns of the tiles at whose edges elements become wrong.

    Both are powers of two; 0 if there are no edges, or none at multiples of 8 and of two cells of the picture.
    """
    grid, (high, wide) = picture.grid(), picture.cell
    rows, columns = _edge_distance(grid, high), _edge_distance(list(zip(*grid, strict=True)), wide)
    if picture.folded:
        flat = _power_of_two_in(math.gcd(rows * picture.columns, columns))
        rows, columns = (flat // picture.columns, 0) if flat >= picture.columns else (0, flat)
        return (rows if rows >= 2 * high or high == 1 else 0, _without_small(columns, wide))
    return _without_small(_power_of_two_in(rows), high), _without_small(_power_of_two_in(columns), wide)


def _without_small(tile: int, cell: int) -> int:
    # Every change is at a multiple of the cells of the picture: one cell is no tile.
    return tile if tile >= max(_MIN_TILE, 2 * cell) else 0


def _edge_distance(lines: Sequence[Sequence[int]], cell: int) -> int:
    """Return the greatest common divisor, in elements, of the positions of all edges; 0 if there are none.

    An edge is between two lines of cells of which many turn from right to wrong or back.
    """
    changes = [
        sum((level > LIMIT) != (below > LIMIT) for level, below in zip(*pair, strict=True) if level and below)
        for pair in pairwise(lines)
    ]
    minimum = _EDGE_SHARE * max(changes, default=0)
    return math.gcd(*(index * cell for index, count in enumerate(changes, 1) if count and count >= minimum))


def _power_of_two_in(number: int) -> int:
    return number & -number  # the largest that divides it
