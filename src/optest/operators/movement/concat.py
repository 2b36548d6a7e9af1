"""Operators that join, cut and extend tensors: concat, split, slice and pad."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from optest.operators.calls import MAIN_FLOATS, MILLION, call
from optest.operators.describe import EVERY, MIXED, attribute, in_module, movement
from optest.operators.movement.helpers import MOVED, distinct_dims, movement_samples
from optest.operators.samples import error_samples, of_one_element, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Shape,
    Specs,
    dense,
    normalize_dim,
    promote_tensors,
    require_spec,
)
from optest.spec import DType, Kind, OperatorDescriptor, Sample, Tier, UnfitArguments, format_shape

_FIRST_DIM = attribute("dim|axis: int = 0", "Dimension along which tensors are joined or split.")

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="concat",
        signature="*tensors -> out",
        aliases=("cat", "concatenate", "Concat: *inputs -> concat_result"),
        attributes=(_FIRST_DIM,),
        dtype_variants=(*EVERY, *MIXED),
        rule=movement("elements move; those of a narrower dtype are converted and rounded once"),
        description="Tensors joined along a dimension, in their common dtype; empty 1-d tensors are skipped.",
    ),
    OperatorDescriptor(
        name="split",
        signature="input -> *out",
        attributes=(
            attribute(
                "split_size_or_sections|split_size|sections|split: int|ints",
                "Size of each part (the last may be smaller), or a list of all sizes in order.",
            ),
            _FIRST_DIM,
        ),
        description="Parts of a tensor along a dimension.",
    ),
    OperatorDescriptor(
        name="slice",
        aliases=("Slice: data -> output",),
        attributes=(
            attribute("dim|axis|axes: ints = None", "Dimensions to cut, each at most once; None is the first ones."),
            attribute("start|starts: ints = None", "First index along each dimension."),
            attribute("end|ends: ints = None", "End index along each dimension, exclusive."),
            attribute("step|steps: ints = None", "Step between indices along each dimension; not 0."),
        ),
        description="input[start:end:step] along one or more dimensions. Bounds below 0 count from the end, and bounds "
        "are clamped, as in torch and ONNX. A negative step walks backwards as in ONNX; an end far below -size "
        "includes the first element.",
    ),
    OperatorDescriptor(
        name="pad",
        attributes=(
            attribute(
                "pad: ints",
                "Numbers of elements to add before and after the last dimension, then the one before it; negative ones "
                "crop.",
            ),
            attribute(
                "mode: str = 'constant'",
                "Source of the added elements: a value, the mirrored tensor, its border, or its other end.",
                choices=("constant", "reflect", "replicate", "circular"),
            ),
            attribute("value: float = 0.0", "Value that mode constant adds."),
        ),
        description="A tensor extended at its borders, as torch.nn.functional.pad: the modes other than constant pad "
        "one to three dimensions of a tensor with one or two more. ONNX has another order of pads.",
    ),
    twin="movement_reference",
    dtype_variants=EVERY,
    rule=MOVED,
)


def infer_concat(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output spec in the common dtype; raise UnfitArguments if shapes differ beyond `dim`.

    A 1-d tensor without elements fits any shape and is skipped, as in torch, but its dtype counts.
    """
    tensors = [require_spec(specs, index, f"tensors{index}") for index in range(len(specs))]
    if not tensors:
        raise UnfitArguments("concat has no tensors, expected 1 or more")
    for index, spec in enumerate(tensors):
        if not spec.rank:
            raise UnfitArguments(f"tensors{index} is a scalar, expected a dimension to join along")
    result = promote_tensors(tensors)
    shapes = [(index, spec.shape) for index, spec in enumerate(tensors) if not is_legacy_empty(spec.shape)]
    if not shapes:
        return (dense(result, (0,)),)
    first = shapes[0][1]
    dim = normalize_dim(attributes.get("dim", 0), len(first))
    for index, shape in shapes:
        if len(shape) != len(first) or _sizes_except(shape, dim) != _sizes_except(first, dim):
            raise UnfitArguments(
                f"tensors{index} is {format_shape(shape)}, expected {format_shape(first)} except in dimension {dim}"
            )
    total = sum(shape[dim] for _, shape in shapes)
    return (dense(result, (*first[:dim], total, *first[dim + 1 :])),)


def is_legacy_empty(shape: Shape) -> bool:
    """Return whether torch.cat skips a tensor of `shape`, an empty vector."""
    return shape == (0,)


def _sizes_except(shape: Shape, dim: int) -> Shape:
    """Return `shape` without dimension `dim`."""
    return shape[:dim] + shape[dim + 1 :]


def infer_split(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    dim, sizes = section_sizes(spec.shape, attributes)
    return tuple(dense(spec.dtype, (*spec.shape[:dim], size, *spec.shape[dim + 1 :])) for size in sizes)


def section_sizes(shape: Shape, attributes: Attributes) -> tuple[int, tuple[int, ...]]:
    """Return the dimension to split, and the size of each part along it.

    Raises:
        UnfitArguments: for arguments that torch.split refuses.
    """
    if not shape:
        raise UnfitArguments("input is a scalar, expected a dimension to split")
    dim = normalize_dim(attributes.get("dim", 0), len(shape))
    size, sections = shape[dim], attributes["split_size_or_sections"]
    if not isinstance(sections, int):
        if sum(sections) != size or any(part < 0 for part in sections):
            raise UnfitArguments(
                f"split_size_or_sections is {list(sections)}, expected sizes that add up to {size}, "
                f"the size of dimension {dim}"
            )
        return dim, tuple(sections)
    if sections < 0 or (sections == 0 and size):
        raise UnfitArguments(f"split_size_or_sections is {sections}, expected 1 or more")
    if size == 0:
        return dim, (0,)
    return dim, tuple(min(sections, size - begin) for begin in range(0, size, sections))


def infer_slice(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    shape = list(spec.shape)
    for dim, picked in slice_ranges(spec.shape, attributes):
        shape[dim] = len(picked)
    return (dense(spec.dtype, tuple(shape)),)


def slice_ranges(shape: Shape, attributes: Attributes) -> Iterator[tuple[int, range]]:
    """Yield each dimension to slice, with the indices to take.

    Negative bounds count from the end, and bounds are clamped to the dimension, as in Python and torch. With a negative
    step, which torch does not have, start is clamped to the last and the first element, as in ONNX.

    Raises:
        UnfitArguments: for lists of different lengths, a dimension that is repeated or out of range, and a step of 0.
    """
    lists = {name: attributes.get(name) for name in ("dim", "start", "end", "step")}
    lengths = {len(values) for values in lists.values() if values is not None}
    if len(lengths) > 1:
        raise UnfitArguments(f"dim, start, end and step have {sorted(lengths)} entries, expected equal numbers")
    if not shape:
        raise UnfitArguments("input is a scalar, expected a dimension to slice")
    count = lengths.pop() if lengths else 1
    starts, ends, steps = ((lists[name] or (None,) * count) for name in ("start", "end", "step"))
    dims = distinct_dims(lists["dim"] or range(count), len(shape), "dim")
    for dim, start, end, step in zip(dims, starts, ends, steps, strict=True):
        if step == 0:
            raise UnfitArguments("step is 0, expected 1 or more, or negative to walk backwards")
        size = shape[dim]
        # Python clamps such a start to -1, before the first element, and takes nothing.
        first = 0 if (step or 1) < 0 and start is not None and start < -size else start
        yield dim, range(*slice(first, end, step).indices(size))


def infer_pad(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    pad = attributes["pad"]
    pads = pads_by_dim(spec.shape, pad)
    mode = attributes.get("mode", "constant")
    if mode == "constant":
        _require_value(attributes.get("value", 0.0), spec.dtype)
    else:
        # Modes that repeat elements pad the last 1 to 3 dimensions of a tensor with one or two more, as in torch. A
        # circular pad repeats the rest of a cropped dimension; a larger pad is refused here, while torch reads
        # uninitialised memory.
        padded = len(pad) // 2
        if not 1 <= padded <= 3 or len(spec.shape) not in (padded + 1, padded + 2):
            raise UnfitArguments(
                f"pad has {len(pad)} entries for {format_shape(spec.shape)} and mode {mode}, expected to pad one to "
                "three dimensions and leave one or two leading ones"
            )
        if mode != "circular" and 0 in spec.shape[len(spec.shape) - padded - 1 :]:
            raise UnfitArguments(f"input is {format_shape(spec.shape)}, expected elements to repeat in mode {mode}")
        for size, (before, after) in zip(spec.shape, pads, strict=True):
            limit = {"reflect": size - 1, "circular": size + min(before, 0) + min(after, 0)}.get(mode)
            if limit is not None and max(before, after) > max(limit, 0):
                raise UnfitArguments(
                    f"pad is {list(pad)}, expected at most {limit} for a size of {size} in mode {mode}"
                )
    shape = tuple(before + size + after for size, (before, after) in zip(spec.shape, pads, strict=True))
    if mode == "constant":  # in this mode, torch crops both sides before it pads
        pads = tuple((min(before, 0), min(after, 0)) for before, after in pads)
    is_negative = any(before + size + after < 0 for size, (before, after) in zip(spec.shape, pads, strict=True))
    if is_negative or (mode in _MIRRORS and not any(shape[-len(pad) // 2 :])):
        raise UnfitArguments(f"pad is {list(pad)}, expected to leave elements of {format_shape(spec.shape)}")
    return (dense(spec.dtype, shape),)


# Modes in which torch requires a remaining element in a padded dimension.
_MIRRORS = ("reflect", "replicate")


def pads_by_dim(shape: Shape, pad: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the numbers of elements to add before and after each dimension; `pad` starts with the last dimension.

    Raises:
        UnfitArguments: for an odd number of entries, or more than two for each dimension.
    """
    if len(pad) % 2 or len(pad) > 2 * len(shape):
        raise UnfitArguments(
            f"pad is {list(pad)}, expected two entries for each padded dimension, at most {2 * len(shape)}"
        )
    pairs = [(pad[index], pad[index + 1]) for index in range(0, len(pad), 2)]
    return (*((0, 0),) * (len(shape) - len(pairs)), *reversed(pairs))


def _require_value(value: float, result: DType) -> None:
    """Raise UnfitArguments if `value` overflows the dtype; a fraction is accepted for integers, as in torch."""
    if result.kind is Kind.BOOL:
        return
    if result.is_inexact:
        fits = not math.isfinite(value) or abs(value) <= result.max_finite
    else:
        fits = math.isfinite(value) and result.min_int <= value <= result.max_int
    if not fits:
        raise UnfitArguments(f"value is {value:g}, expected a number in the range of {result}")


# Values that every dtype holds, so that no conversion is undefined.
_EXACT_VALUES = {"fill": "randint", "low": 0, "high": 2}
_END_OF_ANY_SIZE = 2**63 - 1


def concat_samples() -> Iterator[Sample]:
    yield from movement_samples(
        [
            call({"dim": 1}, tensors0=(5, 17), tensors1=(5, 20)),
            call({"dim": 0}, tensors0=(3, 7), tensors1=(1, 7), tensors2=(4, 7)),
        ],
        lambda n: call({"dim": 1}, tensors0=(3, n), tensors1=(3, 5)),
        _concat_calls(),
        [
            call({"dim": 0}, tensors0=(2, 3), tensors1=(2, 4)),
            call({"dim": 0}, tensors0=(2, 3), tensors1=(2, 3, 1)),
            call({"dim": 2}, tensors0=(2, 3), tensors1=(2, 3)),
            call({"dim": 0}, tensors0=(), tensors1=()),
        ],
        large=[call({"dim": 0}, tensors0=MILLION, tensors1=(3, 17))],
    )
    for pair in MIXED:
        case = call({"dim": 0}, dtypes=pair, generator=_EXACT_VALUES, tensors0=(2, 5), tensors1=(3, 5))
        yield Sample(case_set="promotion", case=case)
        yield Sample(case_set="promotion", case={key: value for key, value in case.items() if key != "generator"})
    # Integers beyond 24 bits are rounded once, to float32.
    rounded = call(
        {"dim": 0}, dtypes=("int32", "float32"), generator={"fill": "randint", "low": 2**24, "high": 2**30},
        tensors0=(33,), tensors1=(5,),
    )  # fmt: skip
    yield from variations("promotion", [rounded])
    strided: dict[str, Any] = {
        "tensors0": {"shape": (4, 5), "strides": (1, 4)},
        "tensors1": {"shape": (4, 3), "strides": (0, 1)},
    }
    yield from variations("layouts", [call({"dim": 1}, **strided), call({"dim": 0}, tensors0=(3,), tensors1=(4,))])
    yield from of_one_element(call({"dim": 0}, tensors0=(1,), tensors1=(1,)), call({"dim": 0}, tensors0=(1, 1)))


def _concat_calls() -> Iterator[dict[str, Any]]:
    """Yield calls along each dimension, of up to 130 tensors, and of empty ones."""
    for dim in (0, 1, 2, -1, -2, -3):
        yield call({"dim": dim}, tensors0=(2, 3, 4), tensors1=(2, 3, 4))
    yield call({"dim": -2}, tensors0=(2, 3, 4), tensors1=(2, 1, 4), tensors2=(2, 5, 4))
    yield call({"dim": 1}, tensors0=(2, 3), tensors1=(2, 0), tensors2=(2, 4))
    yield call({"dim": 1}, tensors0=(3, 4), tensors1=(3, 4), tensors2=(3, 4), tensors3=(3, 4))
    yield call({"dim": 1}, tensors0=(0,), tensors1=(2, 3), tensors2=(2, 4))
    yield call({"dim": 0}, tensors0=(0,), tensors1=(0,))
    yield call({"dim": 0}, tensors0=(0, 3), tensors1=(0, 3))
    yield call({"dim": 0}, tensors0=(1025, 3), tensors1=(7, 3))
    yield call({"dim": 1}, tensors0=(2, 301, 3), tensors1=(2, 5, 3))
    yield call({"dim": 1}, tensors0=(4, 5))
    yield call({"dim": 0}, tensors0=(4, 1), tensors1=(3, 1))
    yield call({"dim": 2}, tensors0=(2, 3, 4, 2, 2), tensors1=(2, 3, 1, 2, 2))
    # More tensors than the fixed number of pointers that a kernel takes per launch.
    tall: dict[str, Any] = {f"tensors{index}": (index % 3 + 1, 5) for index in range(17)}
    wide: dict[str, Any] = {f"tensors{index}": (3, index % 4) for index in range(33)}
    yield call({"dim": 0}, **tall)
    yield call({"dim": 1}, **wide)
    many: dict[str, Any] = {f"tensors{index}": (index % 2 + 1,) for index in range(130)}
    yield call({"dim": 0}, **many)


def split_samples() -> Iterator[Sample]:
    attribute_sets: list[dict[str, Any]] = [
        {"split_size": 2, "dim": 1},
        {"split_size": 3, "dim": 1},
        {"split_size": 1, "dim": -1},
        {"split_size": 7, "dim": 1},
        {"split_size": 9, "dim": 1},
        {"split_size": 2, "dim": -3},
        {"sections": [3, 4], "dim": 1},
        {"sections": [1, 0, 6], "dim": 1},
        {"sections": [7], "dim": -2},
        {"sections": [2, 1, 2], "dim": 2},
        {"split_size": 1, "dim": 0},  # equal halves, as of a fused gate
    ]
    yield from movement_samples(
        [call({"split_size": 16, "dim": 1}, input=(5, 37)), call({"sections": [1, 4, 2]}, input=(7, 9))],
        lambda n: call({"sections": [5, n], "dim": 1}, input=(3, n + 5)),
        [
            *(call(attributes, input=(2, 7, 5)) for attributes in attribute_sets),
            call({"split_size": 2, "dim": 2}, input=(2, 3, 5, 2, 2)),
            call({"split_size": 0}, input=(0, 3)),
            call({"split_size": 2}, input=(5, 1)),
            call({"split_size": 2}, input=(0, 3)),
            call({"sections": [1, 3], "dim": 1}, input=(2, 4, 3, 2)),
            call({"split_size": 1, "dim": 0}, input=(2, 4, 3, 2)),
            call({"split_size": 2, "dim": 0}, input={"shape": [5, 3], "strides": [1, 5]}),
        ],
        [
            call({"split_size": 0}, input=(4, 3)),
            call({"split_size": -1}, input=(4, 3)),
            call({"sections": [1, 2]}, input=(4, 3)),
            call({"sections": [5, -1]}, input=(4, 3)),
            call({"split_size": 2, "dim": 2}, input=(4, 3)),
            call({"split_size": 1}, input=()),
        ],
        large=[call({"split_size": 8, "dim": 1}, input=MILLION)],
    )
    # Sizes that are whole vectors, or one element more or less.
    full_parts = [call({"split_size": 3, "dim": 1}, input=(3, n)) for n in (16, 32, 257, 1023)]
    yield from variations("sizes", full_parts, dtypes=("float32", "int8"))
    yield from of_one_element(call({"split_size": 1}, input=(1,)), call({"split_size": 3, "dim": 1}, input=(1, 1)))


def slice_samples() -> Iterator[Sample]:
    attribute_sets: list[dict[str, Any]] = [
        {"dim": 1, "start": 0, "end": 9},
        {"dim": 1, "start": 3},
        {"dim": 1, "end": -2},
        {"dim": 1, "start": -4, "end": -1},
        {"dim": -1, "start": 1, "end": _END_OF_ANY_SIZE},
        {"dim": 1, "start": 2, "end": 8, "step": 3},
        {"dim": 1, "start": 1, "end": 8, "step": 3},
        {"dim": 1, "step": 2},
        {"dim": 1, "step": 4},
        {"dim": 1, "start": -100, "end": 100, "step": 8},
        {"dim": 1, "start": 5, "end": 3},
        {"dim": 1, "start": 9},
        {"dim": [0, 1, 2], "start": [1, 2, 0], "end": [3, 9, 5], "step": [1, 2, 3]},
        {"dim": [2, 0], "start": [1, 0], "end": [-1, 2]},
        {"start": [1, 2], "end": [3, 5]},
        *({"dim": 1, "start": start, "end": end} for start, end in ((3, 10), (-4, 12), (0, 19), (-12, 4), (-30, -2))),
        {"dim": [0, 2], "start": [1, -2], "end": [5, 9], "step": [1, 2]},
    ]
    backwards: list[dict[str, Any]] = [
        {"dim": 1, "step": -1},
        {"dim": 1, "start": -1, "end": 0, "step": -1},
        {"dim": 1, "start": 7, "end": 1, "step": -2},
        {"dim": 1, "start": 12, "end": 1, "step": -2},
        {"dim": 1, "start": _END_OF_ANY_SIZE, "end": -_END_OF_ANY_SIZE, "step": -3},
        {"dim": [0, 2], "start": [2, 3], "end": [-100, 0], "step": [-2, -1]},
    ]
    yield from movement_samples(
        [
            call({"dim": 1, "start": 3, "end": 20}, input=(5, 37)),
            call({"dim": [0, 1], "start": [1, 2], "end": [4, 30], "step": [2, 3]}, input=(5, 33)),
        ],
        lambda n: call({"dim": 1, "start": 1, "end": -1}, input=(3, n)),
        [
            *(call(attributes, input=(3, 9, 5)) for attributes in (*attribute_sets, *backwards)),
            call({"dim": [1, 3], "start": [1, 0], "end": [3, 4], "step": [1, 2]}, input=(2, 3, 2, 5, 3)),
            call({"dim": 0, "start": 0, "end": 3}, input=(0, 3)),
            call({"dim": 3, "start": 1, "end": 4}, input=(2, 3, 2, 5)),
        ],
        [
            call({"dim": 2, "start": 0, "end": 1}, input=(3, 4)),
            call({"dim": 0, "start": 0, "end": 2, "step": 0}, input=(3, 4)),
            call({"dim": 0, "start": 0, "end": 1}, input=()),
        ],
        large=[call({"dim": 1, "start": 1, "end": 16}, input=(70_001, 17))],
    )
    ends: list[dict[str, Any]] = [
        {"dim": 0, "start": 0, "end": 1},
        {"dim": 0, "start": -1, "end": _END_OF_ANY_SIZE, "step": 2},
    ]
    yield from of_one_element(*(call(attributes, input=(1,)) for attributes in ends))


def pad_samples() -> Iterator[Sample]:
    yield from movement_samples(
        [
            call({"pad": [1, 2], "value": 1.0}, input=(5, 17)),
            call({"pad": [2, 1, 0, 3]}, input=(3, 4, 5)),
            call({"pad": [2, 1], "mode": "reflect"}, input=(3, 17)),
        ],
        lambda n: call({"pad": [3, 0], "value": 2.0}, input=(3, n)),
        [*_constant_pad_calls(), *_repeating_pad_calls()],
        [
            call({"pad": [1]}, input=(3, 4)),
            call({"pad": [1, 1, 1, 1]}, input=(4,)),
            call({"pad": [-3, -2]}, input=(3, 4)),
            call({"pad": [4, 0], "mode": "reflect"}, input=(2, 4)),
            call({"pad": [5, 0], "mode": "circular"}, input=(2, 4)),
            call({"pad": [1, 1], "mode": "replicate"}, input=(2, 0)),
        ],
        large=[call({"pad": [1, 2], "value": 2.0}, input=(65_537, 14))],
    )
    yield from error_samples(call({"pad": [1, 1], "value": 300.0}, dtypes=("int8",), input=(4,)))
    one_element = [
        call({"pad": [1, 2], "value": 1.5}, input=(1,)),
        call({"pad": [2, 1], "mode": "replicate"}, input=(1, 1)),
    ]
    yield from of_one_element(*one_element)
    values = [call({"pad": [1, 2], "value": value}, input=(4, 5)) for value in (-3.0, 100.0)]
    yield from variations("attributes", values, dtypes=("int8", "int32", "float16", "bfloat16", "complex64"))
    yield from variations("attributes", [call({"pad": [1, 2], "value": 1.0}, input=(4, 5))], dtypes=("bool", "uint8"))
    non_finite = [call({"pad": [1, 2], "value": value}, input=(4, 5)) for value in (float("-inf"), float("nan"))]
    yield from variations("attributes", non_finite, dtypes=MAIN_FLOATS)
    yield from variations(
        "attributes", [call({"pad": [1, 2], "value": 0.1}, input=(4, 5))], dtypes=("float64", "float32")
    )
    # A whole image: repeated borders cross block boundaries.
    large = call({"pad": [3, 4, 1, 2], "mode": "circular"}, input=(2, 3, 129, 255))
    yield from variations("sizes", [large], dtypes=("float32",), tier=Tier.FULL)


def _constant_pad_calls() -> Iterator[dict[str, Any]]:
    """Yield calls that pad and crop with a constant."""
    for pad in ([3, 0], [0, 3], [0, 0, 2, 0], [0, 0, 0, 2], [1, 2, 3, 4, 5, 6], [0, 0], []):
        yield call({"pad": pad, "value": -1.5}, input=(2, 3, 4))
    for pad in ([-1, 2], [2, -1], [-1, -1], [1, 1, -1, 0], [-2, -2]):
        yield call({"pad": pad, "value": 0.5}, input=(2, 3, 4))
    yield call({"pad": [1, 2], "value": 3.0}, input=(0,))
    yield call({"pad": [1, 2], "value": 3.0}, input=(2, 0))
    yield call({"pad": [1, 1]}, input=(3, 5))
    yield call({"pad": [1, 2, 3, 0], "value": 0.5}, input=(2, 2, 4, 5))
    yield call({"pad": [-1, 2], "value": 0.5}, input=(4, 6))
    yield call({"pad": [1, 0, 0, 1, 1, 0, 0, 2, 1, 1], "value": 0.5}, input=(2, 2, 2, 2, 3))


def _repeating_pad_calls() -> Iterator[dict[str, Any]]:
    """Yield calls that pad and crop in each mode that repeats elements."""
    for mode in ("reflect", "replicate", "circular"):
        for pad in ([3, 0], [0, 2], [2, 3], [-1, 2] if mode != "circular" else [-1, -1]):
            yield call({"pad": pad, "mode": mode}, input=(2, 3, 4))
        yield call({"pad": [1, 2, 3, 0], "mode": mode}, input=(2, 4, 5))
        yield call({"pad": [1, 2, 0, 3], "mode": mode}, input=(2, 2, 4, 5))
        yield call({"pad": [1, 0, 2, 1, 0, 1], "mode": mode}, input=(1, 2, 2, 4, 5))
    yield call({"pad": [5, 6], "mode": "replicate"}, input=(2, 4))
    yield call({"pad": [4, 4], "mode": "circular"}, input=(2, 4))
    yield call({"pad": [1, 2], "mode": "circular"}, input=(2, 4), dtypes=("int64",))
    for mode in ("reflect", "replicate", "circular"):
        yield call({"pad": [2, 1], "mode": mode}, input={"shape": [2, 3, 4], "strides": [12, 1, 3]})
