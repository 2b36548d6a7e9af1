"""Faults that every operator can have, made for any of them: what each kernel's tests should see.

:func:`faults_of` gives those that make sense for one operator. Which of them ``optest check`` finds is measured by
``benchmarks/faults.py --source check`` and told in docs/check.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from optest.spec import REQUIRED, OperatorDescriptor, Reason, RuleClass
from wrong_kernels.changes import cut, read_as_dense, truncated, wide, with_input, wrong_where
from wrong_kernels.registry import Array, Call, Change, Fault

_ANY = (Reason.VALUE, Reason.NAN, Reason.SHAPE, Reason.RAISED)


def faults_of(descriptor: OperatorDescriptor) -> Iterator[Fault]:
    """Faults of memory, of values, of sizes, of precision, and ignored arguments."""
    inputs = len(descriptor.tensors.inputs)
    for place in range(1 if descriptor.tensors.is_variadic else inputs):
        yield _fault(descriptor, f"input {place} read as dense", _with_input(place, _dense))
        yield _fault(descriptor, f"offset of input {place} ignored", _with_input(place, _without_offset))
        yield _fault(descriptor, f"rows of input {place} taken as adjacent", _with_input(place, _unpitched))
    for name, change in _OF_VALUES.items():
        yield _fault(descriptor, name, _with_floats(change))
    leading = {variant[0] for variant in descriptor.dtype_variants}
    for name, make in _OF_OUTPUTS.items():
        dtype = name.removeprefix("wrong in ")
        if dtype not in _DTYPES or dtype in leading:
            yield _fault(descriptor, name, make)
    if descriptor.rule is not None and descriptor.rule.kind not in (RuleClass.MOVEMENT, RuleClass.EXACT):
        yield _fault(descriptor, "16-bit results truncated", truncated)
        yield _fault(descriptor, "float32 results of 11 bits", _of_11_bits)
        yield _fault(descriptor, "float32 results 2^-18 too large", _too_large)
        yield _fault(descriptor, "float64 computed in float32", _through_float32)
    yield from _ignored(descriptor)


def _fault(descriptor: OperatorDescriptor, name: str, change: Change) -> Fault:
    return Fault(f"{descriptor.name}: {name}", descriptor.name, change, _ANY)


def _with_input(place: int, change: Callable[[Call, int], Array | None]) -> Change:
    def run(call: Call) -> Sequence[Array] | None:
        path = f"input{place}"
        there = [index for index, argument in enumerate(call.case.inputs) if argument.path == path]
        changed = change(call, there[0]) if there else None
        if changed is None:
            return None
        return with_input(call, there[0], changed)

    return run


def _dense(call: Call, index: int) -> Array | None:
    spec = call.case.inputs[index].spec
    return None if spec.is_dense else read_as_dense(call, index)


def _strided(call: Call, index: int, strides: Sequence[int], offset: int) -> Array:
    """Return the elements of an input's storage at these strides; indices beyond its end wrap."""
    spec, array = call.case.inputs[index].spec, call.inputs[index]
    storage = np.zeros(max(1, spec.storage_elements), array.dtype)
    storage[_places(spec.shape, _strides_of(spec), spec.offset).reshape(-1)] = array.reshape(-1)
    return storage[_places(spec.shape, strides, offset) % storage.size]


def _strides_of(spec: Any) -> Sequence[int]:
    if spec.strides is not None:
        return tuple(spec.strides)
    return tuple(int(np.prod(spec.shape[axis + 1 :])) for axis in range(spec.rank))


def _places(shape: Sequence[int], strides: Sequence[int], offset: int) -> Array:
    places = np.full(shape, offset, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        places = places + (np.arange(size) * stride).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return places


def _without_offset(call: Call, index: int) -> Array | None:
    spec = call.case.inputs[index].spec
    if not spec.offset or not spec.elements or min(_strides_of(spec), default=0) < 0:
        return None
    return _strided(call, index, _strides_of(spec), 0)


def _unpitched(call: Call, index: int) -> Array | None:
    """Inner stride honoured, but rows a whole row apart."""
    spec = call.case.inputs[index].spec
    if spec.rank < 2 or not spec.elements or spec.is_dense:
        return None
    inner = _strides_of(spec)[-1]
    if inner <= 0 or min(_strides_of(spec)) < 0:
        return None
    rows = [int(np.prod(spec.shape[axis + 1 :])) * inner for axis in range(spec.rank - 1)]
    return _strided(call, index, [*rows, inner], spec.offset)


def _with_floats(change: Callable[[Array], Array]) -> Change:
    """Return a change that computes the operator with changed float inputs of the same dtypes."""

    def run(call: Call) -> Sequence[Array] | None:
        floats = [argument.spec.dtype.is_float for argument in call.case.inputs]
        if not any(floats):
            return None
        inputs = [change(array) if is_float else array for array, is_float in zip(call.inputs, floats, strict=True)]
        if all(np.array_equal(_bits(one), _bits(other)) for one, other in zip(inputs, call.inputs, strict=True)):
            return None
        return call.with_inputs(*inputs)

    return run


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _nan_as_0(array: Array) -> Array:
    return np.where(np.isnan(wide(array)), 0, array).astype(array.dtype)


def _infinity_as_largest(array: Array) -> Array:
    values = wide(array)
    finite = values[np.isfinite(values)]
    largest = np.abs(finite).max(initial=0)
    return np.where(np.isinf(values), np.sign(values) * largest, values).astype(array.dtype)


def _subnormal_as_0(array: Array) -> Array:
    import ml_dtypes

    smallest = float(ml_dtypes.finfo(array.dtype).smallest_normal)
    return np.where(np.abs(wide(array)) < smallest, 0, array).astype(array.dtype)


_OF_VALUES: dict[str, Callable[[Array], Array]] = {
    "NaN taken as 0": _nan_as_0,
    "infinity taken as the largest value": _infinity_as_largest,
    "subnormal inputs taken as 0": _subnormal_as_0,
    "negative inputs taken as 0": lambda array: np.where(wide(array) < 0, 0, array).astype(array.dtype),
}


def _size_beyond(elements: int) -> Callable[[Call], bool]:
    return lambda call: max((argument.spec.elements for argument in call.case.inputs), default=0) > elements


def _some_size(fits: Callable[[int], bool]) -> Callable[[Call], bool]:
    return lambda call: any(argument.spec.shape and fits(argument.spec.shape[-1]) for argument in call.case.inputs[:1])


_OF_OUTPUTS: dict[str, Change] = {
    "last element wrong": wrong_where(lambda _: True),
    "wrong beyond 1,000 elements": wrong_where(_size_beyond(1000)),
    "wrong beyond 65,536 elements": wrong_where(_size_beyond(65_536)),
    "wrong for one element": wrong_where(
        lambda call: bool(call.case.inputs) and call.case.inputs[0].spec.elements == 1
    ),
    "wrong for last sizes that are no multiple of 4": wrong_where(_some_size(lambda size: size % 4 != 0)),
    "wrong for last sizes that are multiples of 16": wrong_where(_some_size(lambda size: size and size % 16 == 0)),
    "wrong for last sizes beyond 256 that are odd": wrong_where(_some_size(lambda size: size > 256 and size % 2)),
    "wrong from 4 dimensions on": wrong_where(
        lambda call: bool(call.case.inputs) and call.case.inputs[0].spec.rank > 3
    ),
    "wrong for scalars": wrong_where(lambda call: bool(call.case.inputs) and call.case.inputs[0].spec.rank == 0),
    "wrong in float64": wrong_where(lambda call: _first_dtype(call) == "float64"),
    "wrong in bfloat16": wrong_where(lambda call: _first_dtype(call) == "bfloat16"),
    "wrong in int8": wrong_where(lambda call: _first_dtype(call) == "int8"),
    "wrong in int64": wrong_where(lambda call: _first_dtype(call) == "int64"),
    "wrong in bool": wrong_where(lambda call: _first_dtype(call) == "bool"),
    "wrong in 16 bits where not dense": wrong_where(
        lambda call: call.is_16_bit and not all(argument.spec.is_dense for argument in call.case.inputs)
    ),
}


_DTYPES = ("float64", "bfloat16", "int8", "int64", "bool")


def _first_dtype(call: Call) -> str:
    return call.case.inputs[0].spec.dtype.name if call.case.inputs else ""


def _float32(call: Call) -> bool:
    return call.right[0].dtype == np.float32


def _of_11_bits(call: Call) -> Array | None:
    return cut(call.right[0], 13) if _float32(call) else None


def _too_large(call: Call) -> Array | None:
    return wide(call.right[0]) * (1 + 2.0**-18) if _float32(call) else None


def _through_float32(call: Call) -> Array | None:
    if call.right[0].dtype != np.float64:
        return None
    with np.errstate(all="ignore"):
        return wide(call.right[0].astype(np.float32))


def _ignored(descriptor: OperatorDescriptor) -> Iterator[Fault]:
    """Attributes of which the default, or the simplest value, is taken; optional inputs that are left out."""
    for attribute in descriptor.attributes:
        if attribute.default is REQUIRED:
            continue
        yield _fault(descriptor, f"{attribute.name} ignored", _taking_default(attribute.name, attribute.default))
    for place, parameter in enumerate(descriptor.tensors.inputs):
        if parameter.optional:
            yield _fault(descriptor, f"{parameter.name} ignored", _leaving_out(f"input{place}"))


def _taking_default(name: str, default: Any) -> Change:
    def run(call: Call) -> Sequence[Array] | None:
        return None if call.attribute(name) == default else call.with_attributes(**{name: default})

    return run


def _leaving_out(path: str) -> Change:
    """Return a change that replaces the input by zeros, as if the kernel ignored it."""

    def run(call: Call) -> Sequence[Array] | None:
        there = [index for index, argument in enumerate(call.case.inputs) if argument.path == path]
        return with_input(call, there[0], np.zeros_like(call.inputs[there[0]])) if there else None

    return run
