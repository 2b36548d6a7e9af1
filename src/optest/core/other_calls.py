"""Calls that a wrong kernel may have answered in place of the case: one attribute, or one input, is another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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

__all__ = ["OtherCall", "narrower_dtypes", "other_calls"]

Array = np.ndarray[Any, Any]
_NARROWER = ("bfloat16", "float16", "float32")
"""Dtypes in which kernels compute what is stored in a wider one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCall:
    """``kind`` is the same for all cases that were changed in this way; ``words`` say it of this one."""

    kind: str
    words: str
    case: TestCase
    inputs: Sequence[Array]


def other_calls(case: TestCase, inputs: Sequence[Array], outputs: Sequence[Array]) -> Iterator[OtherCall]:
    """Calls whose outputs have the shapes of ``outputs``, the likely first; made when they are looked at."""
    shapes = [array.shape for array in outputs]
    for other in (*_with_other_attributes(case, inputs), *_with_other_inputs(case, inputs)):
        if _fits(other.case, shapes):
            yield other


def narrower_dtypes(name: str) -> list[str]:
    """The dtypes to which values of another are rounded by kernels that are too narrow; none for 8 bits."""
    wide = dtype(name)
    if wide.is_float and wide.precision > dtype("bfloat16").precision:
        return [each for each in _NARROWER if dtype(each).precision < wide.precision]
    return ["float32"] if name in ("int32", "int64", "uint32", "uint64") else []


def _fits(case: TestCase, shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether the operator takes this call and yields these shapes; True where nobody can say."""
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
        return [spec.shape for spec in function(specs, dict(case.attributes))] == list(shapes)
    except UnfitArguments:
        return False


# Attributes


def _with_other_attributes(case: TestCase, inputs: Sequence[Array]) -> Iterator[OtherCall]:
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
            yield OtherCall(
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
    if attribute.names_dimensions:
        is_list = isinstance(stated, tuple) or attribute.type == "ints"
        for place in range(rank):
            yield f"is {place}", (place,) if is_list else place


_ILLEGAL = object()


def _read(attribute: Attribute, value: Any) -> Any:
    try:
        return attribute.read(value)
    except UnfitArguments:
        return _ILLEGAL


# Inputs


def _with_other_inputs(case: TestCase, inputs: Sequence[Array]) -> Iterator[OtherCall]:
    yield from _read_in_memory(case, inputs)
    yield from _exchanged(case, inputs)
    for place, array in enumerate(inputs):
        yield from _without(case, inputs, place)
        name = case.inputs[place].name
        for kind, other in _shuffled(array):
            yield _with_input(case, inputs, {place: other}, f"{kind} {name}", f"{name} were {kind}")
    yield from _rounded(case, inputs)


def _with_input(case: TestCase, inputs: Sequence[Array], others: dict[int, Array], kind: str, words: str) -> OtherCall:
    """The call with dense inputs of the same shapes in some places."""
    given = [others.get(place, array) for place, array in enumerate(inputs)]
    return OtherCall(kind=kind, words=words, case=case, inputs=given)


def _read_in_memory(case: TestCase, inputs: Sequence[Array]) -> Iterator[OtherCall]:
    """Inputs whose strides, row strides or offset are ignored: each alone, then all of them."""
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


def _exchanged(case: TestCase, inputs: Sequence[Array]) -> Iterator[OtherCall]:
    for first in range(len(inputs)):
        for second in range(first + 1, min(len(inputs), first + 3)):
            one, other = case.inputs[first], case.inputs[second]
            if inputs[first].dtype != inputs[second].dtype:
                continue
            given = list(inputs)
            given[first], given[second] = given[second], given[first]
            arguments = list(case.inputs)
            arguments[first], arguments[second] = replace(one, spec=other.spec), replace(other, spec=one.spec)
            yield OtherCall(
                kind=f"exchanged {first} {second}",
                words=f"{one.name} and {other.name} were exchanged",
                case=replace(case, inputs=tuple(arguments)),
                inputs=given,
            )


def _without(case: TestCase, inputs: Sequence[Array], place: int) -> Iterator[OtherCall]:
    """An input that is not looked at: left out where it may be, else zeros, ones, or the identity."""
    array, name = inputs[place], case.inputs[place].name
    replaced: dict[str, Array] = {
        "zeros": np.zeros(array.shape, array.dtype),
        "ones": np.ones(array.shape, array.dtype),
    }
    parameters = {each.name: each for each in case.descriptor.tensors.inputs}
    if name in parameters and parameters[name].optional:
        kept = [at for at in range(len(inputs)) if at != place]
        yield OtherCall(
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


def _rounded(case: TestCase, inputs: Sequence[Array]) -> Iterator[OtherCall]:
    """Operands that are narrowed before they are used: all of them, then each alone."""
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


def _through(array: Array, narrow: DType) -> Array | None:
    """Its values rounded to a narrower dtype and back, None where the way back does not hold them."""
    values = round_to(array, narrow)
    if array.dtype.kind in "iu":
        limits, wide = np.iinfo(array.dtype), widen(values)
        return wide.astype(array.dtype) if bool(((wide >= limits.min) & (wide < float(limits.max))).all()) else None
    return round_to(values, dtype_of(array.dtype))
