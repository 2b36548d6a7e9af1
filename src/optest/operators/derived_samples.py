"""Samples that follow from an operator's own: small calls in further layouts, a call with more than 2^20 elements in
more than 65,535 rows, and one with six dimensions, for which kernels have loops of their own; and one of which
invariants are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from math import prod
from typing import Any

from optest.errors import UnknownName
from optest.operators.calls import (
    LARGE_SIZE,
    LAYOUTS_AT_ONCE,
    MILLION,
    Call,
    Layout,
    backwards,
    laid,
    strides_of,
    with_padded_rows,
)
from optest.operators.shapes import batch_inputs
from optest.registry import load_object
from optest.spec import OperatorDescriptor, Sample, TensorSpec, Tier, UnfitArguments, dtype
from optest.spec.invariants import INVARIANTS

_SMALL = 4_096
"""Elements of a tensor that is asked again in other layouts: enough for a tile and a tail."""
_MILLION = 1 << 20
_MOST_ELEMENTS = 1 << 22
"""Of all tensors of a call: more takes a reference in float64 longer than a tenth of a second."""
_MOST_OPERATIONS = 1 << 26
_LEAST_OF_A_ROW = 4
"""Rows of one element would be a vector in disguise."""
_SIX = 6
_PREFERRED = ("float32", "int32", "uint8", "bool")
"""Dtypes in which a large call is cheap."""

Shapes = dict[str, tuple[int, ...]]
PlaceOf = Callable[[Sequence[int]], Layout | None]


def derived_samples(descriptor: OperatorDescriptor, own: Sequence[Sample]) -> list[Sample]:
    """Further layouts, and the first call of each other kind that the operator takes, if it has none of that kind."""
    derived = list(further_layouts(own))
    return [*derived, *_scaled(descriptor, [*own, *derived]), *_with_invariants(descriptor, own)]


def further_layouts(own: Sequence[Sample]) -> Iterator[Sample]:
    """Some small dense calls of an operator again, in layouts that no set of its own has.

    Each kind of layout is asked of another shape and another dtype than ``standard`` asks it of, so that none hangs on
    a single case. Then what a dimension of size 1 may have for a stride: a column of a wider matrix, 0, or anything;
    and strides of 0 where there are no elements.
    """
    usual = _usual_dtypes(own)
    dense: list[Call] = [{"dtypes": usual, **each.case} for each in own if _is_dense_and_small(each)]
    dense += list(_in_another_dtype(dense))
    drawn = [each for each in dense if _is_drawn(each)]
    first = {"dtypes": usual, **own[0].case}
    for layout in _OF_MATRICES:
        yield from _laid_again(dense, layout, [first])
    yield from _laid_again(drawn, _of_matrices(_repeated), [first])  # written values of shared memory would differ
    for layout in _OF_NO_REACH:
        yield from _laid_again(dense, layout, [])


def _usual_dtypes(own: Sequence[Sample]) -> Any:
    return next((each.case["dtypes"] for each in own if "dtypes" in each.case), ["float32"])


def _of_matrices(layout: PlaceOf) -> PlaceOf:
    """The layout where it differs from the dense one, None elsewhere."""
    return lambda shape: layout(shape) if sum(size > 1 for size in shape) > 1 and 0 not in shape else None


def _repeated(shape: Sequence[int]) -> Layout:
    """One row for all."""
    first = next(axis for axis, size in enumerate(shape) if size > 1)
    return laid(shape, [0 if axis == first else stride for axis, stride in enumerate(strides_of(shape))])


def _column(shape: Sequence[int]) -> Layout | None:
    """A column of a wider matrix: dense by its shape alone."""
    return with_padded_rows(shape) if len(shape) > 1 and shape[-1] == 1 and prod(shape) > 1 else None


def _where_size_is_1(stride: int) -> PlaceOf:
    def place(shape: Sequence[int]) -> Layout | None:
        if 1 not in shape or 0 in shape:
            return None
        return laid(shape, [stride if size == 1 else own for size, own in zip(shape, strides_of(shape), strict=True)])

    return place


def _of_nothing(shape: Sequence[int]) -> Layout | None:
    return laid(shape, [0] * len(shape)) if 0 in shape else None


_OF_MATRICES = tuple(map(_of_matrices, (*LAYOUTS_AT_ONCE, backwards)))
_OF_NO_REACH = (_column, _where_size_is_1(0), _where_size_is_1(13), _of_nothing)


def _in_another_dtype(calls: Sequence[Call]) -> Iterator[Call]:
    """Those of 32 bits in a narrower dtype, where other calls with these inputs have it, and drawn values."""
    for usual, narrow in (("float32", "float16"), ("int32", "int8")):
        legal = [each["shapes"].keys() for each in calls if each["dtypes"] == [narrow]]
        for each in calls:
            if each["dtypes"] == [usual] and each["shapes"].keys() in legal and _is_drawn(each):
                yield {**each, "dtypes": [narrow]}


def _is_drawn(stated: Mapping[str, Any]) -> bool:
    return "values" not in str(stated.get("generator"))


def _is_ordinary(sample: Sample) -> bool:
    """Whether it is a call with dense inputs that every check asks and that is not refused."""
    is_dense = not any(isinstance(shape, Mapping) for shape in sample.case["shapes"].values())
    return sample.tier is not Tier.FULL and "expects_error" not in sample.case and is_dense


def _is_dense_and_small(sample: Sample) -> bool:
    return _is_ordinary(sample) and all(prod(shape) <= _SMALL for shape in sample.case["shapes"].values())


def _laid_again(dense: Sequence[Call], layout: PlaceOf, seen: Sequence[Call]) -> Iterator[Sample]:
    """Calls in a layout, so that there are two with those ``seen``: of different shapes and dtypes as far as there are
    such, of random values rather than of chosen ones, with as many inputs in the layout as can be."""
    seen = list(seen)
    again = []
    for each in dense:
        places = {name: place for name, shape in each["shapes"].items() if (place := layout(shape)) is not None}
        if places:
            again.append(("generator" in each, -len(places), each, {**each["shapes"], **places}))
    again.sort(key=lambda each: each[:2])
    while again and len(seen) < 2:
        *_, stated, shapes = min(again, key=lambda each: sum(_likeness(each[2], other) for other in seen))
        seen.append(stated)
        yield Sample(case_set="layouts", case={**stated, "shapes": shapes})


def _likeness(one: Call, other: Call) -> int:
    return 2 * int(one["shapes"] == other["shapes"]) + int(one["dtypes"] == other["dtypes"])


def _scaled(descriptor: OperatorDescriptor, own: Sequence[Sample]) -> Iterator[Sample]:
    for is_there, scaled in (
        (lambda shape: prod(shape) > _MILLION and prod(shape[:-1]) >= LARGE_SIZE, _with_many_rows),
        (lambda shape: len(shape) >= _SIX and prod(shape) > 0, _in_six_dimensions),
    ):
        if not any(each.tier is not Tier.FULL and any(map(is_there, _shapes(each))) for each in own):
            yield from islice(_taken(descriptor, own, scaled), 1)


_OF_ELEMENTS = ("activation", "attention", "contraction", "indexing", "normalization", "pooling", "reduction")
"""Families whose results are computed for the elements of a batch; others have none, or nothing but elements."""
_ELEMENTS = 5
INVARIANT_SET = "invariants"
"""The one derived set that has no own samples."""


def _with_invariants(descriptor: OperatorDescriptor, own: Sequence[Sample]) -> Iterator[Sample]:
    """The first small call on a batch, of which all invariants are asked: one with the batch in the first input and two
    dimensions behind it, if there is such a call: those of a matrix may mean something by themselves."""
    if descriptor.category in _OF_ELEMENTS:
        calls = [{"dtypes": _usual_dtypes(own), **each.case} for each in own if _is_dense_and_small(each)]
        held = [(each, _holding_batch(descriptor, each)) for each in calls if _is_drawn(each)]
        ranked = [
            (next(iter(call["shapes"])) in names, min(rank, 3), call, names) for call, (names, rank) in held if names
        ]
        if ranked:
            _, _, call, names = max(ranked, key=lambda each: each[:2])
            shapes = {key: [_ELEMENTS, *shape[1:]] if key in names else shape for key, shape in call["shapes"].items()}
            case = {**call, "shapes": shapes, "invariants": list(INVARIANTS)}
            yield Sample(case_set=INVARIANT_SET, case=case)


def _holding_batch(descriptor: OperatorDescriptor, call: Call) -> tuple[Sequence[str], int]:
    """The inputs that hold a batch, and the most dimensions of one; none where an attribute names its dimension."""
    kinds, shapes = _dtypes(descriptor, call), call["shapes"]
    if not kinds.keys() >= shapes.keys():
        return [], 0
    specs = {name: TensorSpec(dtype=dtype(kinds[name]), shape=tuple(shape)) for name, shape in shapes.items()}
    given, attributes = _given(descriptor, specs), descriptor.bind(call.get("attributes", {}))
    values = [attributes[each.name] for each in descriptor.attributes if each.names_dimensions]
    dims = {dim for value in values for dim in (value if isinstance(value, tuple) else (value,))}
    for size in sorted({spec.shape[0] for spec in specs.values() if spec.rank and spec.shape[0] > 1}):
        for places in batch_inputs(descriptor, given, attributes, size):
            names = [name for name, spec in specs.items() if any(spec is given[place] for place in places)]
            rank = max(specs[name].rank for name in names)
            return ([], 0) if {0, -rank} & dims else (names, rank)
    return [], 0


def _given(descriptor: OperatorDescriptor, specs: Mapping[str, TensorSpec]) -> list[TensorSpec | None]:
    """The inputs at the places of the signature."""
    signature = descriptor.tensors
    return [*specs.values()] if signature.is_variadic else [specs.get(each.name) for each in signature.inputs]


def _shapes(sample: Sample) -> list[tuple[int, ...]]:
    shapes = sample.case["shapes"].values()
    return [tuple(shape["shape"] if isinstance(shape, Mapping) else shape) for shape in shapes]


def _taken(
    descriptor: OperatorDescriptor, own: Sequence[Sample], scaled: Callable[[Shapes], Shapes | None]
) -> Iterator[Sample]:
    calls = [{"dtypes": _usual_dtypes(own), **each.case} for each in own if _may_be_scaled(each)]
    for each in sorted(calls, key=lambda call: _rank(next(iter(_dtypes(descriptor, call).values()), ""))):
        shapes = scaled({name: tuple(shape) for name, shape in each["shapes"].items()})
        if shapes is not None and _is_taken(descriptor, each, shapes):
            yield Sample(case_set="sizes", case={**each, "shapes": {name: list(s) for name, s in shapes.items()}})


def _rank(name: str) -> int:
    """The cheap dtypes first; else in the order of the operator's own calls."""
    return _PREFERRED.index(name) if name in _PREFERRED else len(_PREFERRED)


def _dtypes(descriptor: OperatorDescriptor, call: Mapping[str, Any]) -> dict[str, str]:
    """The dtype of each input by name: a call states them by name, in order, one for all, or some of them, and the
    operator's first combination that fits has the others."""
    names, stated = list(call["shapes"]), call["dtypes"]
    if not isinstance(stated, Mapping):
        listed = [stated] if isinstance(stated, str) else list(stated)
        return dict(zip(names, listed * len(names) if len(listed) == 1 else listed, strict=False))
    places = [parameter.name for parameter in descriptor.tensors.inputs]
    for variant in descriptor.dtype_variants:
        whole = dict(zip(places, variant * len(places) if len(variant) == 1 else variant, strict=False))
        if all(whole.get(name) == kind for name, kind in stated.items()):
            return {**whole, **stated}
    return dict(stated)


def _may_be_scaled(sample: Sample) -> bool:
    """Whether it is an ordinary call of drawn values."""
    has_elements = not any(0 in shape for shape in _shapes(sample))
    is_exact = "integer-exact" in str(sample.case.get("generator"))
    return _is_ordinary(sample) and has_elements and _is_drawn(sample.case) and not is_exact


def _with_many_rows(shapes: Shapes) -> Shapes | None:
    """The first dimension of the first input, and of all that share it, so long that rows and elements are enough; in
    place of a vector a matrix."""
    first = next(iter(shapes.values()), ())
    if len(first) == 1:
        return {name: MILLION if shape == first else shape for name, shape in shapes.items()}
    rest = prod(first[1:])
    if not first or rest < _LEAST_OF_A_ROW:
        return None
    rows = max(LARGE_SIZE, -(-(_MILLION + 1) // rest))
    return {
        name: (rows, *shape[1:]) if len(shape) == len(first) and shape[0] == first[0] else shape
        for name, shape in shapes.items()
    }


def _in_six_dimensions(shapes: Shapes) -> Shapes | None:
    """More dimensions in front of those inputs that have most of them."""
    rank = max(map(len, shapes.values()), default=0)
    if not rank:
        return None
    front = (2, 3, 2, 2, 2)[: _SIX - rank]
    return {name: (*front, *shape) if len(shape) == rank else shape for name, shape in shapes.items()}


def _is_taken(descriptor: OperatorDescriptor, call: Mapping[str, Any], shapes: Shapes) -> bool:
    """Whether inference accepts the call, and it is small enough to be asked in every check."""
    kinds = _dtypes(descriptor, call)
    if not kinds.keys() >= shapes.keys() or descriptor.infer is None:
        return False
    specs = {name: TensorSpec(dtype=dtype(kinds[name]), shape=shape) for name, shape in shapes.items()}
    given = _given(descriptor, specs)
    try:
        attributes = descriptor.bind(call.get("attributes", {}))
        outputs = load_object(descriptor.infer)(given, attributes)
    except (UnfitArguments, UnknownName):
        return False
    elements = sum(spec.elements for spec in (*specs.values(), *outputs))
    operations = load_object(descriptor.operations)(given, attributes) if descriptor.operations is not None else None
    return elements <= _MOST_ELEMENTS and (operations or 0) <= _MOST_OPERATIONS
