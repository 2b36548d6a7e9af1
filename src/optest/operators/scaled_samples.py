"""Samples that follow from an operator's own: calls with more than 2^20 elements in more than 65,535 rows, and with six
dimensions. Kernels have loops of their own for both, so every operator that can take such a call is asked one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from optest.errors import UnknownName
from optest.operators.samples import LARGE_SIZE, MILLION
from optest.registry import load_object
from optest.spec import OperatorDescriptor, Sample, TensorSpec, Tier, UnfitArguments, dtype

__all__ = ["scaled_samples"]

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


def scaled_samples(descriptor: OperatorDescriptor, own: Sequence[Sample]) -> Iterator[Sample]:
    """The first call of each kind that the operator takes, if no call of its own is of that kind."""
    for is_there, scaled in ((_is_large, _with_many_rows), (_has_six_dimensions, _in_six_dimensions)):
        if any(each.tier is not Tier.FULL and any(map(is_there, _shapes(each).values())) for each in own):
            continue
        found = next(_taken(descriptor, own, scaled), None)
        if found is not None:
            yield found


def _is_large(shape: Sequence[int]) -> bool:
    return prod(shape) > _MILLION and prod(shape[:-1]) >= LARGE_SIZE


def _has_six_dimensions(shape: Sequence[int]) -> bool:
    return len(shape) >= _SIX and prod(shape) > 0


def _taken(
    descriptor: OperatorDescriptor, own: Sequence[Sample], scaled: Callable[[Shapes], Shapes | None]
) -> Iterator[Sample]:
    usual = next((each.case["dtypes"] for each in own if "dtypes" in each.case), ["float32"])
    calls = [{"dtypes": usual, **each.case} for each in own if _may_be_scaled(each)]
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
    case = sample.case
    shapes = case["shapes"].values()
    is_plain = not any(isinstance(shape, Mapping) or 0 in shape for shape in shapes)
    drawn = "values" not in str(case.get("generator")) and "integer-exact" not in str(case.get("generator"))
    return sample.tier is not Tier.FULL and is_plain and drawn and "expects_error" not in case


def _shapes(sample: Sample) -> dict[str, tuple[int, ...]]:
    shapes = sample.case["shapes"].items()
    return {name: tuple(shape["shape"] if isinstance(shape, Mapping) else shape) for name, shape in shapes}


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
    signature = descriptor.tensors
    given: list[TensorSpec | None] = [*specs.values()]
    if not signature.is_variadic:
        given = [specs.get(parameter.name) for parameter in signature.inputs]
    infer = load_object(descriptor.infer) if isinstance(descriptor.infer, str) else descriptor.infer
    try:
        attributes = descriptor.bind(call.get("attributes", {}))
        outputs = infer(given, attributes)
    except (UnfitArguments, UnknownName):
        return False
    return (
        sum(spec.elements for spec in (*specs.values(), *outputs)) <= _MOST_ELEMENTS
        and (_operations(descriptor, given, attributes) or 0) <= _MOST_OPERATIONS
    )


def _operations(descriptor: OperatorDescriptor, given: Sequence[Any], attributes: Mapping[str, Any]) -> int | None:
    hook = descriptor.operations
    if hook is None:
        return None
    count: int | None = (load_object(hook) if isinstance(hook, str) else hook)(given, attributes)
    return count
