"""Samples derived from an operator's samples: further layouts, a large call, six dimensions, and invariants.

Kernels have separate loops for more than 2^20 elements in more than 65,535 rows, and for more dimensions than a launch
grid has; samples that operators list by hand seldom reach them.
"""

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
    strides_of,
    with_padded_rows,
    with_strides,
)
from optest.operators.shapes import batch_inputs
from optest.registry import load_object
from optest.spec import OperatorDescriptor, Sample, TensorSpec, Tier, UnfitArguments, dtype
from optest.spec.invariants import INVARIANTS

# Most elements of a tensor whose call is repeated in other layouts: enough for a tile and a tail.
_SMALL = 4_096
_MILLION = 1 << 20
# Of all tensors of a call: more takes a reference in float64 longer than a tenth of a second.
_MOST_ELEMENTS = 1 << 22
_MOST_OPERATIONS = 1 << 26
# Rows of one element would make the matrix a vector for the kernel.
_LEAST_OF_A_ROW = 4
_SIX = 6
# Dtypes in which a large call is cheap.
_CHEAP_DTYPES = ("float32", "int32", "uint8", "bool")
# The only derived set whose name no operator uses for its own samples.
INVARIANT_SET = "invariants"
DERIVED_SETS = ("layouts", "sizes", INVARIANT_SET)

Shapes = dict[str, tuple[int, ...]]
LayoutOf = Callable[[Sequence[int]], Layout | None]


def derived_samples(descriptor: OperatorDescriptor, samples: Sequence[Sample]) -> list[Sample]:
    """Return samples to add to an operator's ``samples``: layouts, sizes and invariants that they lack.

    At most one call with many rows, one with six dimensions and one with invariants are added.
    """
    layouts = list(further_layouts(samples))
    return [*layouts, *_scaled_samples(descriptor, [*samples, *layouts]), *_with_invariants(descriptor, samples)]


def further_layouts(samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield small dense calls of ``samples`` in further layouts, two calls for each layout if there are enough.

    They are the layouts of :func:`in_layouts_at_once`, the reverse one, and one row for all, in other shapes and dtypes
    than the first call has; unusual strides of dimensions with size 1 (of a column in a wider matrix, 0, 13); and
    strides of 0 for tensors without elements.
    """
    usual = _first_dtypes(samples)
    dense: list[Call] = [{"dtypes": usual, **sample.case} for sample in samples if _is_dense_and_small(sample)]
    dense += list(_in_narrower_dtype(dense))
    drawn = [call for call in dense if _is_drawn(call)]
    first = {"dtypes": usual, **samples[0].case}
    # `standard` lays out the first call already; another shape and dtype keep a layout from hanging on a single case.
    for layout in (*LAYOUTS_AT_ONCE, backwards):
        yield from _in_layout(dense, _only_matrices(layout), [first])
    # Rows that share memory cannot hold listed values, which differ from row to row.
    yield from _in_layout(drawn, _only_matrices(_rows_at_once), [first])
    for layout_of in (
        _column,
        _with_stride_of_size_1(0),
        _with_stride_of_size_1(13),
        lambda shape: with_strides(shape, [0] * len(shape)) if 0 in shape else None,
    ):
        yield from _in_layout(dense, layout_of, [])


def _first_dtypes(samples: Sequence[Sample]) -> Any:
    """Return the dtypes of the first sample that sets them; float32 if none does."""
    return next((sample.case["dtypes"] for sample in samples if "dtypes" in sample.case), ["float32"])


def _only_matrices(layout: LayoutOf) -> LayoutOf:
    """Return ``layout`` for shapes with elements and two sizes above 1; None for others, for which it is dense."""
    return lambda shape: layout(shape) if sum(size > 1 for size in shape) > 1 and 0 not in shape else None


def _rows_at_once(shape: Sequence[int]) -> Layout:
    """Return a layout with stride 0 in the first dimension above size 1: all its rows share memory."""
    first = next(axis for axis, size in enumerate(shape) if size > 1)
    return with_strides(shape, [0 if axis == first else stride for axis, stride in enumerate(strides_of(shape))])


def _column(shape: Sequence[int]) -> Layout | None:
    # A kernel that takes the shape for a proof of density reads the wrong elements.
    return with_padded_rows(shape) if len(shape) > 1 and shape[-1] == 1 and prod(shape) > 1 else None


def _with_stride_of_size_1(stride: int) -> LayoutOf:
    """Return a layout with ``stride`` in all dimensions of size 1; None for shapes without any, or without elements."""

    def layout(shape: Sequence[int]) -> Layout | None:
        if 1 not in shape or 0 in shape:
            return None
        return with_strides(
            shape, [stride if size == 1 else step for size, step in zip(shape, strides_of(shape), strict=True)]
        )

    return layout


def _in_narrower_dtype(calls: Sequence[Call]) -> Iterator[Call]:
    """Yield float32 and int32 calls with random values in float16 and int8, if another call proves that legal."""
    for usual, narrow in (("float32", "float16"), ("int32", "int8")):
        legal = [call["shapes"].keys() for call in calls if call["dtypes"] == [narrow]]
        for call in calls:
            if call["dtypes"] == [usual] and call["shapes"].keys() in legal and _is_drawn(call):
                yield {**call, "dtypes": [narrow]}


def _is_drawn(call: Mapping[str, Any]) -> bool:
    """Return whether no input of the call has a list of values."""
    return "values" not in str(call.get("generator"))


def _is_ordinary(sample: Sample) -> bool:
    """Return whether the call has dense inputs, runs not only in the full tier, and expects no error."""
    is_dense = not any(isinstance(shape, Mapping) for shape in sample.case["shapes"].values())
    return sample.tier is not Tier.FULL and "expects_error" not in sample.case and is_dense


def _is_dense_and_small(sample: Sample) -> bool:
    return _is_ordinary(sample) and all(prod(shape) <= _SMALL for shape in sample.case["shapes"].values())


def _in_layout(calls: Sequence[Call], layout_of: LayoutOf, seen: Sequence[Call]) -> Iterator[Sample]:
    """Yield calls in a layout until there are two with those ``seen``.

    Preferred are shapes and dtypes unlike those before, then calls without a generator, then many inputs in the layout.
    """
    seen = list(seen)
    candidates = []
    for call in calls:
        layouts = {name: layout for name, shape in call["shapes"].items() if (layout := layout_of(shape)) is not None}
        if layouts:
            candidates.append(("generator" in call, -len(layouts), call, {**call["shapes"], **layouts}))
    candidates.sort(key=lambda candidate: candidate[:2])

    def likeness(candidate: tuple[bool, int, Call, Mapping[str, Any]]) -> int:
        shapes, dtypes = candidate[2]["shapes"], candidate[2]["dtypes"]
        return sum(2 * (shapes == old["shapes"]) + (dtypes == old["dtypes"]) for old in seen)

    while candidates and len(seen) < 2:
        *_, call, shapes = min(candidates, key=likeness)
        seen.append(call)
        yield Sample(case_set="layouts", case={**call, "shapes": shapes})


def _scaled_samples(descriptor: OperatorDescriptor, samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield one call with many rows and one with six dimensions, each unless ``samples`` have such a call."""
    for is_scaled, scale in (
        (lambda shape: prod(shape) > _MILLION and prod(shape[:-1]) >= LARGE_SIZE, _with_many_rows),
        (lambda shape: len(shape) >= _SIX and prod(shape) > 0, _in_six_dimensions),
    ):
        everyday = [sample for sample in samples if sample.tier is not Tier.FULL]
        if not any(is_scaled(shape) for sample in everyday for shape in _input_shapes(sample)):
            yield from islice(_accepted(descriptor, samples, scale), 1)


# Families whose results are computed per element of a batch; others have no batch, or are elementwise.
_BATCHED_FAMILIES = ("activation", "attention", "contraction", "indexing", "normalization", "pooling", "reduction")
_BATCH_SIZE = 5


def _with_invariants(descriptor: OperatorDescriptor, samples: Sequence[Sample]) -> Iterator[Sample]:
    """Yield one small call on a batch with all invariants, if the operator has such a call.

    Preferred are calls with the batch in the first input, and with two dimensions or more after it.
    """
    if descriptor.category not in _BATCHED_FAMILIES:
        return
    usual = _first_dtypes(samples)
    calls = [{"dtypes": usual, **sample.case} for sample in samples if _is_dense_and_small(sample)]
    held = [(call, _batched_inputs(descriptor, call)) for call in calls if _is_drawn(call)]
    # The two dimensions of a matrix may have meanings of their own, hence the rank; above 3 it makes no difference.
    ranked = [(next(iter(call["shapes"])) in names, min(rank, 3), call, names) for call, (names, rank) in held if names]
    if ranked:
        _, _, call, names = max(ranked, key=lambda candidate: candidate[:2])
        shapes = {key: [_BATCH_SIZE, *shape[1:]] if key in names else shape for key, shape in call["shapes"].items()}
        yield Sample(case_set=INVARIANT_SET, case={**call, "shapes": shapes, "invariants": list(INVARIANTS)})


def _batched_inputs(descriptor: OperatorDescriptor, call: Call) -> tuple[Sequence[str], int]:
    """Return the names of the inputs that hold a batch, and their highest rank.

    Return no names if there is no batch, or an attribute names its dimension.
    """
    kinds, shapes = _dtypes_by_input(descriptor, call), call["shapes"]
    if not kinds.keys() >= shapes.keys():
        return [], 0
    specs = {name: TensorSpec(dtype=dtype(kinds[name]), shape=tuple(shape)) for name, shape in shapes.items()}
    arguments, attributes = _specs_in_order(descriptor, specs), descriptor.bind(call.get("attributes", {}))
    values = [attributes[attribute.name] for attribute in descriptor.attributes if attribute.names_dimensions]
    dims = {dim for value in values for dim in (value if isinstance(value, tuple) else (value,))}
    for size in sorted({spec.shape[0] for spec in specs.values() if spec.rank and spec.shape[0] > 1}):
        for indices in batch_inputs(descriptor, arguments, attributes, size):
            names = [name for name, spec in specs.items() if any(spec is arguments[index] for index in indices)]
            rank = max(specs[name].rank for name in names)
            return ([], 0) if {0, -rank} & dims else (names, rank)
    return [], 0


def _specs_in_order(descriptor: OperatorDescriptor, specs: Mapping[str, TensorSpec]) -> list[TensorSpec | None]:
    """Return the specs in the signature's order, with None for optional inputs that are left out."""
    signature = descriptor.tensors
    if signature.is_variadic:
        return [*specs.values()]
    return [specs.get(parameter.name) for parameter in signature.inputs]


def _input_shapes(sample: Sample) -> list[tuple[int, ...]]:
    shapes = sample.case["shapes"].values()
    return [tuple(shape["shape"] if isinstance(shape, Mapping) else shape) for shape in shapes]


def _accepted(
    descriptor: OperatorDescriptor, samples: Sequence[Sample], scale: Callable[[Shapes], Shapes | None]
) -> Iterator[Sample]:
    """Yield scaled calls that inference accepts and that are not too large, those in cheap dtypes first."""

    def cost(call: Call) -> int:
        name = next(iter(_dtypes_by_input(descriptor, call).values()), "")
        return _CHEAP_DTYPES.index(name) if name in _CHEAP_DTYPES else len(_CHEAP_DTYPES)

    # A longer sum of integer-exact values would leave the range in which it is exact.
    calls = [
        {"dtypes": _first_dtypes(samples), **sample.case}
        for sample in samples
        if _is_ordinary(sample)
        and not any(0 in shape for shape in _input_shapes(sample))
        and _is_drawn(sample.case)
        and "integer-exact" not in str(sample.case.get("generator"))
    ]
    for call in sorted(calls, key=cost):
        shapes = scale({name: tuple(shape) for name, shape in call["shapes"].items()})
        if shapes is not None and _is_accepted(descriptor, call, shapes):
            yield Sample(case_set="sizes", case={**call, "shapes": {name: list(s) for name, s in shapes.items()}})


def _dtypes_by_input(descriptor: OperatorDescriptor, call: Mapping[str, Any]) -> dict[str, str]:
    """Return the dtype of each input by name.

    A call lists them in order, as one for all, or by name. Inputs that are not named get their dtypes from the first
    combination of the operator that fits.
    """
    names, dtypes = list(call["shapes"]), call["dtypes"]
    if not isinstance(dtypes, Mapping):
        listed = [dtypes] if isinstance(dtypes, str) else list(dtypes)
        return dict(zip(names, listed * len(names) if len(listed) == 1 else listed, strict=False))
    inputs = [parameter.name for parameter in descriptor.tensors.inputs]
    for variant in descriptor.dtype_variants:
        by_name = dict(zip(inputs, variant * len(inputs) if len(variant) == 1 else variant, strict=False))
        if all(by_name.get(name) == kind for name, kind in dtypes.items()):
            return {**by_name, **dtypes}
    return dict(dtypes)


def _with_many_rows(shapes: Shapes) -> Shapes | None:
    """Lengthen the first dimension of the first input, and of inputs that share it, to 65,537 rows or more.

    The first input then has more than 2^20 elements; vectors become matrices. Return None for scalars and rows of fewer
    than four elements.
    """
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
    """Add leading dimensions to the inputs of the highest rank, up to six; return None if all are scalars."""
    rank = max(map(len, shapes.values()), default=0)
    if not rank:
        return None
    front = (2, 3, 2, 2, 2)[: _SIX - rank]
    return {name: (*front, *shape) if len(shape) == rank else shape for name, shape in shapes.items()}


def _is_accepted(descriptor: OperatorDescriptor, call: Mapping[str, Any], shapes: Shapes) -> bool:
    """Return whether inference accepts the call in these shapes, and it is small enough to run in every check."""
    kinds = _dtypes_by_input(descriptor, call)
    if not kinds.keys() >= shapes.keys() or descriptor.infer is None:
        return False
    specs = {name: TensorSpec(dtype=dtype(kinds[name]), shape=shape) for name, shape in shapes.items()}
    arguments = _specs_in_order(descriptor, specs)
    try:
        attributes = descriptor.bind(call.get("attributes", {}))
        outputs = load_object(descriptor.infer)(arguments, attributes)
    except (UnfitArguments, UnknownName):
        return False
    elements = sum(spec.elements for spec in (*specs.values(), *outputs))
    operations = load_object(descriptor.operations)(arguments, attributes) if descriptor.operations is not None else 0
    return elements <= _MOST_ELEMENTS and (operations or 0) <= _MOST_OPERATIONS
