"""Hypotheses about a wrong output: the kernel computed another call, of which one attribute or some inputs differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from optest.compare import Expected
from optest.numerics import dtype_of, round_to, widen
from optest.numerics.layout import storage_of, view
from optest.registry import load_object
from optest.spec import (
    REQUIRED,
    Argument,
    Attribute,
    DType,
    TensorSpec,
    TestCase,
    UnfitArguments,
    dtype,
)

__all__ = ["CALLS", "TILES", "Hypothesis", "WrongCall", "narrower_dtypes", "yields_shapes"]

Array = np.ndarray[Any, Any]
_NARROWER = ("bfloat16", "float16", "float32")
"""Dtypes in which kernels compute what is stored in a wider one."""


class WrongCall(NamedTuple):
    """A call with its wrong outputs; ``off`` are the indices of the outputs that are not right."""

    case: TestCase
    inputs: Sequence[Array]
    outputs: Sequence[Array]
    expected: Sequence[Expected]
    off: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """What a wrong kernel may have computed instead: the reference's outputs for ``case`` and ``inputs``.

    ``kind`` is the same for all calls that were changed in this way; ``words`` say it of this one, behind "as if".
    ``values`` replace expected outputs by index and need no reference; with ``unless_seen`` they hold only if the
    reference yields for ``inputs`` what it yields for the call. ``first_only``: the other outputs stay as expected.
    """

    kind: str
    words: str
    case: TestCase
    inputs: Sequence[Array]
    values: Mapping[int, Array] | None = None
    unless_seen: bool = False
    first_only: bool = False


def narrower_dtypes(name: str) -> list[str]:
    """The dtypes to which values of another are rounded by kernels that are too narrow; none for 8 bits."""
    wide = dtype(name)
    if wide.is_float and wide.precision > dtype("bfloat16").precision:
        return [each for each in _NARROWER if dtype(each).precision < wide.precision]
    return ["float32"] if name in ("int32", "int64", "uint32", "uint64") else []


def yields_shapes(hypothesis: Hypothesis, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Return whether the operator takes the other call and yields outputs of ``shapes``; True without inference."""
    case = hypothesis.case
    infer = case.descriptor.infer
    if infer is None:
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
    case, inputs = wrong.case, wrong.inputs
    rank = max((array.ndim for array in inputs), default=0)
    for attribute in case.descriptor.attributes:
        if attribute.name not in case.attributes or attribute.type == "dtype":
            continue
        stated = case.attributes[attribute.name]
        seen = [stated]
        for how, raw in _other_values(attribute, stated, rank):
            value = _read(attribute, raw)
            if value is _ILLEGAL or any(type(value) is type(each) and value == each for each in seen):
                continue
            seen.append(value)
            is_default = ", its default," if how == "default" else ""
            yield Hypothesis(
                kind=f"{attribute.name} {how}",
                words=f"{attribute.name} were {_shown(value)}{is_default} not {_shown(stated)}",
                case=replace(case, attributes={**case.attributes, attribute.name: value}),
                inputs=inputs,
            )


def _shown(value: Any) -> str:
    return str(list(value) if isinstance(value, tuple) else value)


def _other_values(attribute: Attribute, stated: Any, rank: int) -> Iterator[tuple[str, Any]]:
    """Values of an attribute beside the stated one and how they come from it, its default first."""
    if attribute.default is not REQUIRED:
        yield "default", attribute.default
    for choice in attribute.choices:
        yield f"choice {choice}", choice
    if isinstance(stated, bool):
        yield "other", not stated
    elif isinstance(stated, float) or (stated is None and attribute.type == "float"):
        yield from (("zero", 0.0), ("one", 1.0))
    elif isinstance(stated, int):
        yield from (("zero", 0), ("one", 1), ("negated", -stated), ("less", stated - 1), ("more", stated + 1))
    elif isinstance(stated, tuple) and stated:
        yield from (("first", stated[:1]), ("last", stated[-1:]), ("reversed", stated[::-1]))
        yield "negated", tuple(-each for each in stated)
        yield from (("zeros", (0,) * len(stated)), ("ones", (1,) * len(stated)))
        for at, each in enumerate(stated if all(isinstance(each, int) for each in stated) else ()):
            yield from ((f"{by:+} at {at}", (*stated[:at], each + by, *stated[at + 1 :])) for by in (1, -1))
    if attribute.names_dimensions:
        is_list = isinstance(stated, tuple) or attribute.type == "ints"
        for place in range(rank):
            yield f"is {place}", (place,) if is_list else place


_ILLEGAL = object()
FIRST_POSITION = "position of the first query"
"""An attribute that no case can have: the references of attention read it for a diagnosis."""


def _read(attribute: Attribute, value: Any) -> Any:
    try:
        return attribute.read(value)
    except UnfitArguments:
        return _ILLEGAL


# Inputs


def _with_input(
    case: TestCase,
    inputs: Sequence[Array],
    others: Mapping[int, Array],
    kind: str,
    words: str,
    *,
    first_only: bool = False,
) -> Hypothesis:
    """The call with other inputs at some indices, dense where they have another shape."""
    given = [others.get(place, array) for place, array in enumerate(inputs)]
    arguments = [
        argument
        if array.shape == argument.spec.shape
        else replace(argument, spec=TensorSpec(dtype=argument.spec.dtype, shape=array.shape))
        for argument, array in zip(case.inputs, given, strict=True)
    ]
    return Hypothesis(
        kind=kind, words=words, case=replace(case, inputs=tuple(arguments)), inputs=given, first_only=first_only
    )


def _read_in_memory(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Inputs whose strides, row strides or offset are ignored: each alone, then all of them."""
    case, inputs = wrong.case, wrong.inputs
    dense: dict[int, Array] = {}
    for place, (argument, array) in enumerate(zip(case.inputs, inputs, strict=True)):
        if argument.spec.is_plain or not array.size:
            continue
        for how, spec in _as_read(argument.spec):
            read = _read_as(argument, array, spec)
            if read is not None:
                words = f"{how} of {argument.name} were ignored"
                yield _with_input(case, inputs, {place: read}, how, _dense_words(how, words))
                dense.setdefault(place, read)
        if not argument.spec.is_dense:
            words = f"the strides of {argument.name} were ignored: its elements in the order of memory"
            read = array.ravel(order="K").reshape(array.shape)
            yield _with_input(case, inputs, {place: read}, "memory order", words)
    if len(dense) > 1:
        yield _with_input(case, inputs, dense, "all dense", "every input were dense (their strides ignored)")


def _dense_words(how: str, words: str) -> str:
    return f"{words}: read as if dense" if how == "the strides" else words


def _as_read(spec: TensorSpec) -> Iterator[tuple[str, TensorSpec]]:
    plain = TensorSpec(dtype=spec.dtype, shape=spec.shape)
    if not spec.is_dense:
        yield "the strides", replace(plain, offset=spec.lowest_index if _is_reversed(spec) else spec.offset)
        if spec.strides is not None and spec.rank > 1 and spec.strides[-1] == 1:
            yield "the row strides", replace(plain, offset=spec.offset)
    if spec.offset and not _is_reversed(spec):
        yield "the offset", replace(spec, offset=0)


def _is_reversed(spec: TensorSpec) -> bool:
    return spec.strides is not None and min(spec.strides, default=0) < 0


def _read_as(argument: Argument, array: Array, spec: TensorSpec) -> Array | None:
    """What stands in the storage of an input where ``spec`` looks for it; None beyond its end."""
    base = array.base
    storage = base if isinstance(base, np.ndarray) and base.ndim == 1 and base.dtype == array.dtype else None
    if storage is None or storage.size < argument.spec.storage_elements:
        storage = storage_of(array, argument.spec)
    return view(storage, spec).copy() if spec.storage_elements <= storage.size else None


def _exchanged(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Two inputs for each other."""
    case, inputs = wrong.case, wrong.inputs
    for first in range(len(inputs)):
        for second in range(first + 1, min(len(inputs), first + 3)):
            one, other = case.inputs[first], case.inputs[second]
            if inputs[first].dtype != inputs[second].dtype:
                continue
            given = list(inputs)
            given[first], given[second] = given[second], given[first]
            arguments = list(case.inputs)
            arguments[first], arguments[second] = replace(one, spec=other.spec), replace(other, spec=one.spec)
            yield Hypothesis(
                kind=f"exchanged {first} {second}",
                words=f"{one.name} and {other.name} were exchanged",
                case=replace(case, inputs=tuple(arguments)),
                inputs=given,
            )


def _changed_alone(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Each input ignored, or with its elements elsewhere."""
    for place, array in enumerate(wrong.inputs):
        yield from _without(wrong.case, wrong.inputs, place)
        name = wrong.case.inputs[place].name
        for kind, other in _shuffled(array):
            words = kind.replace(" of it ", f" of {name} ") if " of it " in kind else f"{name} were {kind}"
            yield _with_input(wrong.case, wrong.inputs, {place: other}, f"{kind} {name}", words)


def _without(case: TestCase, inputs: Sequence[Array], place: int) -> Iterator[Hypothesis]:
    """An input that is not looked at: left out where it may be, else zeros, ones, or the identity."""
    array, name = inputs[place], case.inputs[place].name
    replaced: dict[str, Array] = {
        "zeros": np.zeros(array.shape, array.dtype),
        "ones": np.ones(array.shape, array.dtype),
    }
    parameters = {each.name: each for each in case.descriptor.tensors.inputs}
    if name in parameters and parameters[name].optional:
        kept = [at for at in range(len(inputs)) if at != place]
        yield Hypothesis(
            kind=f"without {name}",
            words=f"{name} were ignored",
            case=replace(case, inputs=tuple(case.inputs[at] for at in kept)),
            inputs=[inputs[at] for at in kept],
        )
    if array.ndim == 2 and array.shape[0] == array.shape[1] > 1:
        replaced["the identity"] = np.eye(array.shape[0]).astype(array.dtype)
    for value, other in replaced.items():
        words = f"{name} were ignored ({value} in its place)"
        yield _with_input(case, inputs, {place: other}, f"{value} {name}", words)


def _shuffled(array: Array) -> Iterator[tuple[str, Array]]:
    """Elements of an input at other places of it."""
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
            first = array.take([0], axis)
            yield f"the first along dimension {axis}, repeated", np.broadcast_to(first, array.shape)
        if (size := array.shape[-1]) % 2 == 0 < size:
            yield "the halves of it were exchanged", np.roll(array, size // 2, -1)
        if size % 2 == 0 and size > 2:
            yield "the halves of it were interleaved", np.concatenate((array[..., ::2], array[..., 1::2]), -1)
            order = np.arange(size).reshape(2, -1).T.reshape(-1)
            yield "the interleaved elements of it were in halves", array[..., order]


def _rounded(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Operands that are narrowed before they are used: all of them, then each alone."""
    case, inputs = wrong.case, wrong.inputs
    for name in _NARROWER:
        rounded = {
            place: narrow
            for place, array in enumerate(inputs)
            if name in narrower_dtypes(dtype_of(array.dtype).name)
            and (narrow := _through(array, dtype(name))) is not None
        }
        to = f"rounded to {name}{' (or tf32)' if name == 'float16' else ''} first"
        if rounded:
            yield _with_input(case, inputs, rounded, f"rounded to {name}", f"the inputs were {to}")
        for place in rounded if len(rounded) > 1 else ():
            words = f"{case.inputs[place].name} were {to}"
            yield _with_input(case, inputs, {place: rounded[place]}, f"{place} rounded to {name}", words)


_MOST_STRIDES = 12
TILES = tuple(2**power for power in range(1, 11))
_VECTOR = 8
"""Tiles of so many elements are also lost where they are whole."""


def _shifted_by_one(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Indices, positions and zero points that are one more or less; tables read one row further or before.

    A kernel that would leave its table stays in it by a bound, or begins at the other end.
    """
    case, inputs = wrong.case, wrong.inputs
    sizes = sorted({size for array in inputs for size in array.shape})
    for place in sorted(range(len(inputs)), key=lambda each: not each):  # an input of integers is rarely an index
        array, name = inputs[place], case.inputs[place].name
        if array.dtype.kind not in "iu" or not array.size or all(each.dtype.kind in "iu" for each in inputs):
            continue
        limits = [size for size in sizes if size > array.max()][:2]
        for by in (1, -1):
            moved = array.astype(np.int64) + by
            for how, other in (
                ("", moved),
                *((f" within {size}", moved.clip(0, size - 1)) for size in limits),
                *((f" around {size}", moved % size) for size in limits),
            ):
                words = f"{name} were shifted by one ({by:+}{how})"
                given = {place: other.astype(array.dtype)}
                yield _with_input(case, inputs, given, f"{name} {by:+}{how.rstrip('0123456789')}", words)
    for places in _alike(inputs):
        names = " and ".join(case.inputs[place].name for place in places)
        for axis, size in enumerate(inputs[places[0]].shape):
            for by, around in ((1, False), (-1, False), (1, True), (-1, True)) if size > 1 else ():
                at = np.arange(size) + by
                at = at % size if around else at.clip(0, size - 1)
                others = {place: inputs[place].take(at, axis) for place in places}
                words = f"{names} were shifted by one along dimension {axis} ({by:+})"
                yield _with_input(case, inputs, others, f"{names} {axis} {by:+} {around}", words)


def _alike(inputs: Sequence[Array]) -> list[list[int]]:
    """The indices of inputs with numbers, those behind the first of one shape and dtype together, as of a table."""
    groups: dict[Any, list[int]] = {}
    for place, array in enumerate(inputs):
        if array.size and array.dtype.kind != "b":
            groups.setdefault((not place, array.shape, array.dtype.name), []).append(place)
    return list(groups.values())


def _of_other_heads(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Grouped heads in turn: head h of the first input meets head h % K of the others, in place of h // (H / K)."""
    case, inputs = wrong.case, wrong.inputs
    heads = {size for size in inputs[0].shape if size > 1} if inputs else set()
    seen = set()
    for array in inputs[1:]:
        for axis, size in enumerate(array.shape[:-1] if array.dtype.kind not in "biu" else ()):
            like = [at for at in range(1, len(inputs)) if inputs[at].ndim == array.ndim]
            like = [at for at in like if inputs[at].shape[axis] == size and inputs[at].dtype == array.dtype]
            for count in sorted(each for each in heads if size > 1 and each > size and each % size == 0):
                if (key := (*like, axis, count)) in seen or len(like) < 2:
                    continue
                seen.add(key)
                tiled = {
                    at: np.tile(inputs[at], [count // size if dim == axis else 1 for dim in range(array.ndim)])
                    for at in like
                }
                names = " and ".join(case.inputs[at].name for at in like[:2])
                words = f"head h of {case.inputs[0].name} read head h % {size} of {names}, not h // {count // size}"
                yield _with_input(case, inputs, tiled, "heads in turn", words, first_only=True)


def _of_other_strides(wrong: WrongCall) -> Iterator[Hypothesis]:
    """A matrix whose rows are read as if they began farther apart, or nearer; its last element stands for the rest."""
    case, inputs = wrong.case, wrong.inputs
    for place, array in enumerate(inputs):
        if array.ndim != 2 or array.shape[0] < 2 or not array.size:
            continue
        rows, columns = array.shape
        near = {columns - 1, columns + 1, columns // 2, 2 * columns, rows}
        near |= {*range(1, _MOST_STRIDES)} if array.dtype.kind in "iu" else set()
        for stride in sorted(near - {0, columns}):
            flat = np.minimum(np.arange(rows)[:, None] * stride + np.arange(columns), array.size - 1)
            name = case.inputs[place].name
            words = f"the rows of {name} were {stride} elements apart, not {columns}"
            yield _with_input(case, inputs, {place: array.reshape(-1)[flat]}, f"rows apart {name}", words)


def _without_the_last(wrong: WrongCall) -> Iterator[Hypothesis]:
    """The last elements along a dimension left out: one of them, or those beyond whole tiles.

    They are cut off all dimensions of that size, if the outputs keep their shapes, or count as 0 or as -inf.
    """
    case, inputs = wrong.case, wrong.inputs
    for size in sorted({size for array in inputs for size in array.shape if size > 1}, reverse=True):
        cuts = {(size - 1) // tile * tile: tile for tile in TILES if size > tile and (size % tile or tile >= _VECTOR)}
        cuts[size - 1] = 1
        whole = [(at, axis) for at, each in enumerate(inputs) for axis, of in enumerate(each.shape) if of == size]
        for cut, tile in sorted(cuts.items()):
            for place, axis in dict.fromkeys([(-1, 0), *whole]):
                at = whole if place < 0 else [(place, axis)]
                names = " and ".join(dict.fromkeys(case.inputs[index].name for index, _ in at))
                words = f"the last {size - cut} of {size} along dimension {at[0][1]} of {names} were left out"
                cut_off = {index: inputs[index] for index, _ in at}
                for index, dim in at:
                    cut_off[index] = cut_off[index].take(np.arange(cut), dim)
                if place < 0 or len(whole) > 1:
                    yield _with_input(case, inputs, cut_off, f"last of {tile} cut", words)
                if place < 0 or inputs[place].dtype.kind in "biu":
                    continue
                for value in (0.0, -np.inf):
                    filled = np.array(inputs[place])
                    np.moveaxis(filled, axis, 0)[cut:] = value
                    yield _with_input(case, inputs, {place: filled}, f"last of {tile} as {value}", words)


def _of_more_elements(wrong: WrongCall) -> Iterator[Hypothesis]:
    """Lengths rounded up, sequences without ends, padding that counts."""
    case, inputs = wrong.case, wrong.inputs
    offsets = {}
    for place, array in enumerate(inputs):
        if array.dtype.kind not in "iu" or array.ndim != 1 or len(array) == 0 or len(inputs) < 3:
            continue
        name = case.inputs[place].name
        if array[0] == 0 and len(array) > 2 and bool((np.diff(array.astype(np.int64)) >= 0).all()):
            offsets[place] = np.where(np.arange(len(array)) > 0, array[-1], 0).astype(array.dtype)
        columns = {each.shape[1] for each in inputs if each.dtype.kind in "iu" and each.ndim == 2}
        for size in sorted({size for each in inputs for size in each.shape}):
            filled = {f"rounded up to a multiple of {size}": -(-array.astype(np.int64) // max(size, 1)) * size}
            filled |= {f"all {size * each}, ignored": np.full_like(array, size * each) for each in columns}
            for how, more in filled.items():
                words = f"{name} were {how}: elements behind them, which do not count, are read"
                yield _with_input(case, inputs, {place: more.astype(array.dtype)}, f"{name} longer", words)
    if offsets:
        names = " and ".join(case.inputs[place].name for place in offsets)
        words = f"{names} were ignored: one sequence, where elements of other sequences do not count"
        yield _with_input(case, inputs, offsets, "one sequence", words)
    padding = case.attributes.get("padding")
    if isinstance(padding, tuple) and any(padding) and inputs and inputs[0].ndim > 2:
        count = inputs[0].ndim - 2
        sides = [(each, each) for each in (padding * count)[:count]]
        padded = np.pad(inputs[0], [(0, 0), (0, 0), *sides])
        other = replace(case, attributes={**case.attributes, "padding": (0,) * len(padding)})
        yield _with_input(other, inputs, {0: padded}, "padding of zeros", "padding, which does not count, were zeros")


def _of_other_positions(wrong: WrongCall) -> Iterator[Hypothesis]:
    """A causal mask or a window that is counted from the other end of queries and keys, or is off by one."""
    case = wrong.case
    if case.descriptor.category != "attention":
        return
    for move in ("end", 1, -1):
        other = replace(case, attributes={**case.attributes, FIRST_POSITION: move})
        how = "counted from the other end of queries and keys" if move == "end" else f"shifted by one ({move:+})"
        words = f"the causal mask were {how}"
        yield Hypothesis(kind=f"causal {move}", words=words, case=other, inputs=wrong.inputs)


def _through(array: Array, narrow: DType) -> Array | None:
    """Its values rounded to a narrower dtype and back, None where the way back does not hold them."""
    values = round_to(array, narrow)
    if array.dtype.kind in "iu":
        limits, wide = np.iinfo(array.dtype), widen(values)
        return wide.astype(array.dtype) if bool(((wide >= limits.min) & (wide < float(limits.max))).all()) else None
    return round_to(values, dtype_of(array.dtype))


CALLS: tuple[Callable[[WrongCall], Iterator[Hypothesis]], ...] = (
    _of_other_positions,
    _with_other_attributes,
    _read_in_memory,
    _exchanged,
    _of_other_heads,
    _changed_alone,
    _shifted_by_one,
    _of_more_elements,
    _of_other_strides,
    _without_the_last,
    _rounded,
)
"""Other calls, the likelier first; each entry yields its own for a call, and they are built when they are read."""
