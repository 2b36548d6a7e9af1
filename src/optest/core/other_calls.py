"""Hypotheses about a wrong output: the kernel computed another call, which differs in one attribute or some inputs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from optest.compare import Expected
from optest.numerics import Array, dtype_of, round_to, widen
from optest.numerics.layout import storage_of, view
from optest.registry import load_object
from optest.spec import (
    REQUIRED,
    Attribute,
    DType,
    TensorSpec,
    TestCase,
    UnfitArguments,
    dtype,
)
from optest.spec.signature import value_text

_NUMBERS = re.compile(r"\b[\d.]+\b")
# Dtypes in which kernels compute numbers that are stored in a wider one.
_NARROWER = ("bfloat16", "float16", "float32")


class WrongCall(NamedTuple):
    """Call with its actual outputs; ``off`` are the indices of the wrong ones."""

    case: TestCase
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    expected: Sequence[Expected]
    off: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """Explanation of wrong outputs, in ``words`` that follow "as if": the reference's outputs for another call.

    The other call has ``case`` and ``inputs``. ``values`` replace expected outputs by index and need no reference; with
    ``unless_seen`` they apply only if the reference returns for ``inputs`` what it returns for the original call. With
    ``first_only`` only the first output changes. ``exchanged`` are two dimensions of the outputs that are exchanged in
    the other call.
    """

    words: str
    case: TestCase
    inputs: Sequence[Array]
    values: Mapping[int, Array] | None = None
    unless_seen: bool = False
    first_only: bool = False
    exchanged: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """Words without numbers, equal for all hypotheses of one kind."""
        return _NUMBERS.sub("", self.words)


def narrower_dtypes(name: str) -> list[str]:
    """Return the narrower dtypes to which kernels round values of a dtype by mistake; none for 8 bits."""
    wide = dtype(name)
    if wide.is_float and wide.precision > dtype("bfloat16").precision:
        return [each for each in _NARROWER if dtype(each).precision < wide.precision]
    return ["float32"] if name in ("int32", "int64", "uint32", "uint64") else []


def yields_shapes(hypothesis: Hypothesis, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether the operator accepts the other call with outputs of ``shapes``; True without shape inference."""
    case = hypothesis.case
    infer = case.descriptor.infer
    if infer is None or hypothesis.exchanged:
        return True
    function = load_object(infer)
    by_name = {argument.name: argument.spec for argument in case.inputs}
    signature = case.descriptor.tensors
    specs: Sequence[TensorSpec | None] = [argument.spec for argument in case.inputs]
    if not signature.is_variadic:
        specs = [by_name.get(parameter.name) for parameter in signature.inputs]
    try:
        count = 1 if hypothesis.first_only else None
        return [spec.shape for spec in function(specs, dict(case.attributes))][:count] == list(shapes)[:count]
    except ValueError:  # UnfitArguments, or a TensorSpec of a size that an attribute made negative
        return False


# Attributes


def _with_other_attributes(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls with another value of one attribute: its default, a choice, a neighbour, another dimension."""
    case, inputs = wrong.case, wrong.inputs
    rank = max((array.ndim for array in inputs), default=0)
    for attribute in case.descriptor.attributes:
        if attribute.name not in case.attributes or attribute.type == "dtype":
            continue
        original = case.attributes[attribute.name]
        seen = [original]
        implied = attribute.implied(case.inputs[0].spec) if attribute.implied and inputs and original is None else None
        for how, raw in _other_values(attribute, original, rank, implied):
            try:
                value = attribute.read(raw)
            except UnfitArguments:
                continue
            if any(type(value) is type(known) and value == known for known in seen):
                continue
            seen.append(value)
            is_default = ", its default," if how == "default" else ""
            yield Hypothesis(
                words=f"{attribute.name} were {value_text(value)}{is_default} not {value_text(original)}",
                case=replace(case, attributes={**case.attributes, attribute.name: value}),
                inputs=inputs,
            )


def _other_values(attribute: Attribute, original: Any, rank: int, implied: Any) -> Iterator[tuple[str, Any]]:
    """Yield how another value of an attribute was derived, and the value; the default first.

    ``original`` is the value of the case, ``implied`` the one that the operator uses for None.
    """
    if attribute.default is not REQUIRED:
        yield "default", attribute.default
    for choice in attribute.choices:
        yield f"choice {choice}", choice
    if isinstance(original, bool):
        yield "other", not original
    elif isinstance(original, float) or (original is None and attribute.type == "float"):
        yield from (("zero", 0.0), ("one", 1.0))
        number = original or implied
        if isinstance(number, float) and number:
            yield from (("doubled", 2 * number), ("halved", number / 2), ("inverse", 1 / number))
            usual = _USUAL_EPS if 0 < number < 2 * max(_USUAL_EPS) else ()
            yield from ((f"usual {each}", each) for each in usual)
    elif isinstance(original, int):
        yield from (("zero", 0), ("one", 1), ("negated", -original), ("less", original - 1), ("more", original + 1))
    elif isinstance(original, tuple) and original:
        yield from (("first", original[:1]), ("last", original[-1:]), ("reversed", original[::-1]))
        yield "negated", tuple(-each for each in original)
        yield from (
            (f"all {each}", (each,) * len(original)) for each in dict.fromkeys((0, 1, original[0], original[-1]))
        )
        for at, number in enumerate(original if all(isinstance(each, int) for each in original) else ()):
            yield from ((f"{by:+} at {at}", (*original[:at], number + by, *original[at + 1 :])) for by in (1, -1))
    if attribute.names_dimensions:
        is_list = isinstance(original, tuple) or attribute.type == "ints"
        for dimension in range(rank):
            yield f"is {dimension}", (dimension,) if is_list else dimension


_USUAL_EPS = (1e-5, 1e-6, 1e-8, 1e-12, 1e-3, 2.0**-7, 2.0**-10, 2.0**-23)

# Attribute of hypotheses only, which no case can have: the references of attention read it.
FIRST_POSITION = "position of the first query"


# Inputs


def _with_input(wrong: WrongCall, others: Mapping[int, Array], words: str, *, first_only: bool = False) -> Hypothesis:
    """Return the hypothesis of ``others`` in place of the inputs at some indices; those of another shape are dense."""
    inputs = [others.get(index, array) for index, array in enumerate(wrong.inputs)]
    arguments = tuple(
        argument
        if array.shape == argument.spec.shape
        else replace(argument, spec=TensorSpec(dtype=argument.spec.dtype, shape=array.shape))
        for argument, array in zip(wrong.case.inputs, inputs, strict=True)
    )
    return Hypothesis(words=words, case=replace(wrong.case, inputs=arguments), inputs=inputs, first_only=first_only)


def _with_ignored_strides(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls that ignore the strides, row strides or offset of inputs: one at a time, then all."""
    case, inputs = wrong.case, wrong.inputs
    dense: dict[int, Array] = {}
    for index, (argument, array) in enumerate(zip(case.inputs, inputs, strict=True)):
        if argument.spec.is_plain or not array.size:
            continue
        for how, spec in _misread_specs(argument.spec):
            base = array.base
            storage = base if isinstance(base, np.ndarray) and base.ndim == 1 and base.dtype == array.dtype else None
            if storage is None or storage.size < argument.spec.storage_elements:
                storage = storage_of(array, argument.spec)
            read = view(storage, spec).copy() if spec.storage_elements <= storage.size else None
            if read is not None:
                words = f"{how} of {argument.name} were ignored"
                yield _with_input(wrong, {index: read}, words + ": read as if dense" * (how == "the strides"))
                dense.setdefault(index, read)
        if not argument.spec.is_dense:
            words = f"the strides of {argument.name} were ignored: its elements in the order of memory"
            read = array.ravel(order="K").reshape(array.shape)
            yield _with_input(wrong, {index: read}, words)
    if len(dense) > 1:
        yield _with_input(wrong, dense, "every input were dense (their strides ignored)")


def _misread_specs(spec: TensorSpec) -> Iterator[tuple[str, TensorSpec]]:
    """Yield the ignored property of a tensor's layout, and the layout that remains without it."""
    plain = TensorSpec(dtype=spec.dtype, shape=spec.shape)
    if not spec.is_dense:
        yield "the strides", replace(plain, offset=spec.lowest_index if _has_negative_strides(spec) else spec.offset)
        if spec.strides is not None and spec.rank > 1 and spec.strides[-1] == 1:
            yield "the row strides", replace(plain, offset=spec.offset)
    if spec.offset and not _has_negative_strides(spec):
        yield "the offset", replace(spec, offset=0)


def _has_negative_strides(spec: TensorSpec) -> bool:
    return spec.strides is not None and min(spec.strides, default=0) < 0


def _with_exchanged_inputs(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls with two inputs of one dtype exchanged."""
    for first, left in enumerate(wrong.inputs):
        for second, right in enumerate(wrong.inputs[first + 1 : first + 3], first + 1):
            if left.dtype == right.dtype:
                words = f"{wrong.case.inputs[first].name} and {wrong.case.inputs[second].name} were exchanged"
                yield _with_input(wrong, {first: right, second: left}, words)


def _with_one_changed_input(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls with one input omitted, replaced by a constant, with other values, or rearranged."""
    optional = [each.name for each in wrong.case.descriptor.tensors.inputs if each.optional]
    for index, array in enumerate(wrong.inputs):
        name = wrong.case.inputs[index].name
        if name in optional:
            arguments, remaining = [*wrong.case.inputs], [*wrong.inputs]
            del arguments[index], remaining[index]
            case = replace(wrong.case, inputs=tuple(arguments))
            yield Hypothesis(words=f"{name} were ignored", case=case, inputs=remaining)
        replaced: dict[str, Array] = {
            "zeros": np.zeros(array.shape, array.dtype),
            "ones": np.ones(array.shape, array.dtype),
        }
        if array.ndim == 2 and array.shape[0] == array.shape[1] > 1:
            replaced["the identity"] = np.eye(array.shape[0]).astype(array.dtype)
        for value, changed in replaced.items():
            yield _with_input(wrong, {index: changed}, f"{name} were ignored ({value} in its place)")
        if index and dtype_of(array.dtype).is_inexact:
            wide = widen(array)
            # A first input that is doubled shows as a ratio of the output.
            for how, values in (("increased by 1", wide + 1), ("doubled", wide * 2), ("their reciprocals", 1 / wide)):
                yield _with_input(wrong, {index: values.astype(array.dtype)}, f"{name} were {how}")
        for how, changed in _rearranged(array):
            words = how.replace(" of it ", f" of {name} ") if " of it " in how else f"{name} were {how}"
            yield _with_input(wrong, {index: changed}, words)


def _with_scaled_inputs(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls with the first input multiplied by a factor, such as a scale of scores."""
    array = wrong.inputs[0] if wrong.inputs else np.zeros(0, np.int8)
    if not dtype_of(array.dtype).is_inexact or not array.size:
        return
    factors = {
        "2": 2.0,
        "1/2": 0.5,
        "ln 2 (2ˣ in place of eˣ)": np.log(2),
        "1/ln 2 (log₂ in place of ln)": 1 / np.log(2),
    }
    for size in array.shape:
        factors |= {f"√{size}": np.sqrt(size), f"1/√{size}": 1 / np.sqrt(size), f"{size}": size, f"1/{size}": 1 / size}
    for words, factor in factors.items():
        multiplied = array.astype(np.promote_types(array.dtype, np.float32)) * float(factor)
        for values in (widen(array) * factor, multiplied.astype(array.dtype)):  # in double, or in float
            yield _with_input(wrong, {0: values}, f"{wrong.case.inputs[0].name} were multiplied by {words}")


def _rearranged(array: Array) -> Iterator[tuple[str, Array]]:
    """Yield copies of an input with its elements in another order, repeated or negated, each with a description."""
    if array.ndim >= 2:
        *lead, rows, columns = array.shape
        yield "transposed", np.swapaxes(np.ascontiguousarray(array).reshape(*lead, columns, rows), -1, -2)
        if rows == columns:
            yield "transposed in place", np.swapaxes(array, -1, -2)
        yield "flipped in its last two dimensions", array[..., ::-1, ::-1]
    if array.ndim >= 1:
        yield "flipped in its last dimension", array[..., ::-1]
        if array.shape[0] > 1:
            yield "the first of its batch, repeated", np.broadcast_to(array[:1], array.shape)
        if array.dtype.kind == "b":
            yield "inverted", ~array
        elif array.dtype.kind not in "iu":
            yield "negated", np.negative(array)
        for axis in range(1, array.ndim - 1):
            repeated = np.broadcast_to(array.take([0], axis), array.shape)
            yield f"the first along dimension {axis}, repeated", repeated
        if (size := array.shape[-1]) % 2 == 0 < size:
            yield "the halves of it were exchanged", np.roll(array, size // 2, -1)
        if size % 2 == 0 and size > 2:
            yield "the halves of it were interleaved", np.concatenate((array[..., ::2], array[..., 1::2]), -1)
            order = np.arange(size).reshape(2, -1).T.reshape(-1)
            yield "the interleaved elements of it were in halves", array[..., order]


def _with_rounded_inputs(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls with inputs rounded to a narrower dtype: all of them, then one at a time."""
    for name in _NARROWER:
        rounded = {
            index: narrow
            for index, array in enumerate(wrong.inputs)
            if name in narrower_dtypes(dtype_of(array.dtype).name)
            and (narrow := _round_trip(array, dtype(name))) is not None
        }
        to = f"rounded to {name}{' (or tf32)' if name == 'float16' else ''} first"
        if rounded:
            yield _with_input(wrong, rounded, f"the inputs were {to}")
        for index in rounded if len(rounded) > 1 else ():
            yield _with_input(wrong, {index: rounded[index]}, f"{wrong.case.inputs[index].name} were {to}")


# Most indices that are compared with each other.
_MOST_COMPARED = 1 << 10
_MOST_STRIDES = 12
TILES = tuple(2**power for power in range(1, 11))
# Least size of a tile that may be lost even if all tiles are full.
_VECTOR = 8


def _with_shifted_indices(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls with indices, positions and zero points off by one, or with tables read one row off.

    Indices outside a table are clipped to it, or wrap around.
    """
    inputs, names = wrong.inputs, [argument.name for argument in wrong.case.inputs]
    sizes = sorted({size for array in inputs for size in array.shape})
    # Tables of one shape, after the first input, are shifted together, such as cos and sin.
    tables: dict[Any, list[int]] = {}
    has_floats = any(array.dtype.kind not in "biu" for array in inputs)
    for index in sorted(range(len(inputs)), key=lambda each: not each):  # the first input is rarely an index
        array = inputs[index]
        tables.setdefault((not index, array.shape, array.dtype.name), []).append(index)
        for by in (1, -1) if has_floats and array.dtype.kind in "iu" and array.size else ():
            moved = array.astype(np.int64) + by
            if by == 1 and (array < 0).any():  # a negative index often means "no element"
                for where, position in (("the first", 0), ("the last", max(array.max(), *sizes) - 1)):
                    others = {index: np.where(array < 0, array.dtype.type(position), array)}
                    yield _with_input(wrong, others, f"{names[index]} were {where} where negative")
            shifted = {"": moved}
            for size in [int(array.max()) + 1, *(size for size in sizes if size > array.max())][:3]:
                shifted |= {f" within {size}": moved.clip(0, size - 1), f" around {size}": moved % size}
            for how, positions in shifted.items():
                yield _with_input(
                    wrong, {index: positions.astype(array.dtype)}, f"{names[index]} were shifted by one ({by:+}{how})"
                )
    for indices in tables.values():
        for axis, size in enumerate(inputs[indices[0]].shape):
            name = " and ".join(names[index] for index in indices)
            repeated = {index: inputs[index].take([0] * size, axis) for index in indices}
            if len(indices) > 1 < size:
                yield _with_input(wrong, repeated, f"{name} were the first along dimension {axis}, repeated")
            for by in (1, -1) if size > 2 else ():
                at = np.arange(size) + by
                for order in (at.clip(0, size - 1), at % size):
                    others = {index: inputs[index].take(order, axis) for index in indices}
                    yield _with_input(wrong, others, f"{name} were shifted by one along dimension {axis} ({by:+})")


def _with_last_of_equal_indices(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield additions at repeated indices of which only the last one counts, as without atomic additions.

    The addends are elements in the shape of the indices, or the slices along ``dim`` that a list of indices names.
    """
    dim, inputs = wrong.case.attributes.get("dim"), wrong.inputs
    if not isinstance(dim, int):
        return
    for at, index in enumerate(inputs):
        if index.dtype.kind not in "iu" or not index.ndim or not 1 < index.size <= _MOST_COMPARED:
            continue
        lanes = np.moveaxis(index, dim % index.ndim, -1)
        later = np.triu(np.ones((lanes.shape[-1],) * 2, bool), 1)
        is_last = ~((lanes[..., :, None] == lanes[..., None, :]) & later).any(-1)
        for addend, array in enumerate(inputs[1:], 1):
            along = np.moveaxis(array, dim % array.ndim, -1) if array.ndim and addend != at else array
            if addend != at and (array.shape == index.shape or along.shape[-1:] == index.shape):
                kept = np.where(is_last, along, array.dtype.type(0))
                names = (wrong.case.inputs[each].name for each in (at, addend))
                words = "of equal elements of {} only the last added its {}".format(*names)
                yield _with_input(wrong, {addend: np.moveaxis(kept, -1, dim % array.ndim)}, words)


def _with_other_heads(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls with grouped heads in a wrong order: head h reads head h % K of two inputs, not h // (H / K)."""
    names, alike = [argument.name for argument in wrong.case.inputs], Counter[Any]()
    for array in wrong.inputs[1:]:
        alike[array.dtype.name, array.shape] += array.dtype.kind not in "biu"
    for (kind, shape), count in alike.items():
        for axis, size in enumerate(shape[:-1] if count > 1 else ()):
            for heads in {each for each in wrong.inputs[0].shape if size > 1 and each > size and not each % size}:
                tiled = {
                    at: np.concatenate([array] * (heads // size), axis)
                    for at, array in enumerate(wrong.inputs)
                    if at and (array.dtype.name, array.ndim) == (kind, len(shape)) and array.shape[axis] == size
                }
                of = " and ".join(names[at] for at in [*tiled][:2])
                words = f"head h of {names[0]} read head h % {size} of {of}, not h // {heads // size}"
                yield _with_input(wrong, tiled, words, first_only=True)


def _with_other_row_strides(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls with matrices read by another row stride; indices beyond the end read the last element."""
    for index, array in enumerate(wrong.inputs):
        rows, columns = array.shape if array.ndim == 2 and array.size else (0, 0)
        near = {columns - 1, columns + 1, columns // 2, 2 * columns, rows} - {0, columns}
        near |= {*range(1, _MOST_STRIDES)} - {columns} if array.dtype.kind in "iu" else set()
        for stride in sorted(near) if rows > 1 else ():
            flat = np.minimum(np.arange(rows)[:, None] * stride + np.arange(columns), array.size - 1)
            words = f"the rows of {wrong.case.inputs[index].name} were {stride} elements apart, not {columns}"
            yield _with_input(wrong, {index: array.reshape(-1)[flat]}, words)


def _without_last_elements(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls without the last elements along a dimension: one of them, or those beyond the last full tile.

    They are removed from all dimensions of that size, if the outputs keep their shapes, or replaced by 0 or -inf.
    """
    inputs = wrong.inputs
    for size in sorted({size for array in inputs for size in array.shape if size > 1}, reverse=True):
        cuts = {size // tile * tile for tile in TILES if size > tile and size % tile}
        cuts |= {size - tile for tile in TILES if size > tile >= _VECTOR}
        dimensions = [(at, axis) for at, each in enumerate(inputs) for axis, of in enumerate(each.shape) if of == size]
        for cut in sorted({*cuts, size - 1}, reverse=True):
            for chosen in (dimensions, *([each] for each in dimensions)):
                shorter = dict(enumerate(inputs))
                for at, axis in chosen:
                    shorter[at] = shorter[at].take(np.arange(cut), axis)
                names = " and ".join(dict.fromkeys(wrong.case.inputs[at].name for at, _ in chosen))
                (index, axis), *more = chosen
                words = f"the last {size - cut} of {size} along dimension {axis} of {names} were left out"
                yield _with_input(wrong, shorter, words)
                for value in () if more or inputs[index].dtype.kind in "biu" else (0.0, -np.inf):
                    filled = np.array(inputs[index])
                    np.moveaxis(filled, axis, 0)[cut:] = value
                    yield _with_input(wrong, {index: filled}, words)


def _with_more_elements(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield calls that read elements beyond the lengths or ends of sequences, or padding as zeros."""
    case, inputs = wrong.case, wrong.inputs
    # A reduction may add zeros of a padding of its own.
    axis = case.attributes.get("dim") if case.descriptor.category == "reduction" else None
    for at in axis if isinstance(axis, tuple) else () if axis is None else (axis,):
        padded = np.moveaxis(np.moveaxis(inputs[0], at, 0)[[*range(inputs[0].shape[at]), 0]], 0, at).copy()
        np.moveaxis(padded, at, 0)[-1] = 0
        yield _with_input(wrong, {0: padded}, f"dimension {at} of {case.inputs[0].name} were padded with 0")
    columns = {each.shape[1] for each in inputs if each.dtype.kind in "iu" and each.ndim == 2}
    offsets = {}
    for index, array in enumerate(inputs if len(inputs) > 2 else ()):
        if array.dtype.kind not in "iu" or array.ndim != 1 or not len(array):
            continue
        wide, name = array.astype(np.int64), case.inputs[index].name
        if wide[0] == 0 and len(wide) > 2 and bool((np.diff(wide) >= 0).all()):
            offsets[index] = np.where(np.arange(len(wide)) > 0, array[-1], 0).astype(array.dtype)
        for size in sorted({size for each in inputs for size in each.shape if size}):
            longer = {f"rounded up to a multiple of {size}": -(-wide // size) * size}
            longer |= {f"ignored, all {size * each}": np.full_like(wide, size * each) for each in columns}
            for how, lengths in longer.items():
                words = f"{name} were {how}: elements after them, which do not count, are read"
                yield _with_input(wrong, {index: lengths.astype(array.dtype)}, words)
    if offsets:
        names = " and ".join(case.inputs[index].name for index in offsets)
        words = f"{names} were ignored: one sequence, where elements of other sequences do not count"
        yield _with_input(wrong, offsets, words)
    padding = case.attributes.get("padding")
    if isinstance(padding, tuple) and any(padding) and inputs and inputs[0].ndim > 2:
        sides = [(each, each) for each in (padding * inputs[0].ndim)[: inputs[0].ndim - 2]]
        without = replace(case, attributes={**case.attributes, "padding": (0,) * len(padding)})
        padded = {0: np.pad(inputs[0], [(0, 0), (0, 0), *sides])}
        yield _with_input(wrong._replace(case=without), padded, "padding, which does not count, were zeros")


def _with_other_positions(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield attention whose causal mask or window is counted from the other end, or is off by one."""
    for move in ("end", 1, -1) if wrong.case.descriptor.category == "attention" else ():
        case = replace(wrong.case, attributes={**wrong.case.attributes, FIRST_POSITION: move})
        how = "counted from the other end of queries and keys" if move == "end" else f"shifted by one ({move:+})"
        yield Hypothesis(words=f"the causal mask or window were {how}", case=case, inputs=wrong.inputs)


def _with_heads_after_sequence(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Yield attention of (batch, sequence, heads, size) if the order is (batch, heads, sequence, size)."""
    if wrong.case.descriptor.category == "attention" and all(each.ndim == 4 for each in wrong.inputs):
        swapped = {at: np.ascontiguousarray(np.swapaxes(each, 1, 2)) for at, each in enumerate(wrong.inputs)}
        words = "dimensions 1 and 2 of all tensors were exchanged: sequence and heads in place of heads and sequence"
        yield replace(_with_input(wrong, swapped, words), exchanged=(1, 2))


def _round_trip(array: Array, narrow: DType) -> Array | None:
    """Round an array to ``narrow`` and convert it back; return None if a rounded integer exceeds the array's range."""
    values = round_to(array, narrow)
    if array.dtype.kind in "iu":
        limits, wide = np.iinfo(array.dtype), widen(values)
        return wide.astype(array.dtype) if bool(((wide >= limits.min) & (wide < float(limits.max))).all()) else None
    return round_to(values, dtype_of(array.dtype))


# Functions that yield hypotheses for a wrong call lazily, the likelier ones first.
CALLS: tuple[Callable[[WrongCall], Iterator[Hypothesis]], ...] = (
    _with_other_positions,
    _with_heads_after_sequence,
    _with_other_attributes,
    _with_ignored_strides,
    _with_exchanged_inputs,
    _with_other_heads,
    _with_one_changed_input,
    _with_shifted_indices,
    _with_last_of_equal_indices,
    _with_more_elements,
    _with_other_row_strides,
    _without_last_elements,
    _with_rounded_inputs,
)

# The same for an output that is no multiple of the right one: else a scaled input would explain it as well.
NONLINEAR_CALLS = (*CALLS, _with_scaled_inputs)
