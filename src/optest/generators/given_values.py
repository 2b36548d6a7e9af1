"""Fills without random values: zeros, ones, full, arange, eye, and values of a plan, a file or a sample of OpInfo."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optest.generators.files import read_tensor
from optest.numerics import Array, bits, numpy_dtype, round_to, view
from optest.registry import load_object
from optest.spec import DType, Fault, Kind, Reason, TensorSpec, TestCase, format_shape
from optest.store import path_of

# (case key, argument path, number of elements) -> new one-dimensional array
StorageFactory = Callable[[str, str, int], Array]


def _full_factory(parameters: Mapping[str, Any], dtype: DType) -> StorageFactory:
    value = stored([exact_scalar(parameters["value"], dtype)], dtype, "value of generator full")
    return lambda _key, _path, count: np.full(count, value[0], numpy_dtype(dtype))


def _arange_factory(parameters: Mapping[str, Any], dtype: DType) -> StorageFactory:
    """Return a factory of ``start + i * step``; ``i`` restarts at 0 before the type can no longer hold the value."""
    start, step = parameters["start"], parameters["step"]
    period = _steps_until_inexact(start, step, dtype)
    is_integral = isinstance(start, int) and isinstance(step, int) and not dtype.is_inexact

    def create(_key: str, _path: str, count: int) -> Array:
        index = np.arange(min(count, period))
        # In 64 bits only Python's integers are exact.
        values = start + index.astype(object) * step if is_integral and dtype.bits == 64 else start + index * step
        values = np.trunc(values) if dtype.is_integer and not is_integral else values
        return np.resize(stored(values, dtype, "generator arange"), count)

    return create


def _steps_until_inexact(start: float, step: float, dtype: DType) -> int:
    """Return how many values from ``start`` on are in the range of an integer type or the exact integers of a float."""
    if dtype.kind is Kind.BOOL:
        low, high = 0, 1
    elif dtype.is_integer:
        low, high = dtype.min_int, dtype.max_int
    else:
        low, high = -(2**dtype.precision), 2**dtype.precision
    if step == 0 or not low <= start <= high:
        return 1
    room = high - start if step > 0 else start - low
    return min(math.floor(room / abs(step)) + 1, 2**62)


# By fill: (parameters, dtype) -> factory of storages.
CONSTANTS: Mapping[str, Callable[[Mapping[str, Any], DType], StorageFactory]] = {
    "zeros": lambda _, dtype: lambda _key, _path, count: np.zeros(count, numpy_dtype(dtype)),
    "ones": lambda _, dtype: _full_factory({"value": 1}, dtype),
    "full": _full_factory,
    "arange": _arange_factory,
}


def exact_scalar(value: Any, dtype: DType) -> Any:
    """Return a number of a plan; parse strings such as ``"nan"``, ``"-inf"`` and ``"1+2j"``.

    Raises:
        Fault: BAD_CASE for an imaginary part if ``dtype`` is real.
    """
    if not isinstance(value, str):
        return value
    number = complex(value)
    if dtype.is_complex:
        return number
    if number.imag:
        raise Fault(Reason.BAD_CASE, f"value is {value!r}, expected a real number for {dtype}")
    return int(value) if value.lstrip("+-").isdigit() else number.real


def stored(values: Any, dtype: DType, origin: str) -> Array:
    """Round numbers to ``dtype``.

    Raises:
        Fault: BAD_CASE, naming ``origin``, for a number that the type cannot hold.
    """
    array = values if isinstance(values, np.ndarray) else _to_array(values, dtype)
    try:
        return round_to(array, dtype)
    except (ValueError, TypeError) as error:
        raise Fault(Reason.BAD_CASE, f"{origin}: {error}") from error


def _to_array(values: Any, dtype: DType) -> Array:
    """Convert a list to an array without rounding: Python integers stay exact."""
    if dtype.is_complex:
        return np.array(values, np.complex128)
    array = np.array(values, dtype=object)
    if dtype.is_inexact and not any(isinstance(value, int) and abs(value) > 2**53 for value in array.flat):
        return array.astype(np.float64)
    return array


def _from_data(parameters: Mapping[str, Any], spec: TensorSpec, name: str, _: TestCase) -> Array:
    """Return the nested list of the fill, rounded to the element type, in the layout of ``spec``.

    Raises:
        Fault: BAD_CASE if its shape is not that of ``spec``, or the type cannot hold a value.
    """
    values: list[Any] = []
    shape = _append_scalars(parameters["values"], values, name)
    if shape != spec.shape and not (spec.elements == 0 and not values):
        raise Fault(
            Reason.BAD_CASE,
            f"data of {name} have the shape {format_shape(shape)}, expected {format_shape(spec.shape)}",
        )
    numbers = [exact_scalar(value, spec.dtype) for value in values]
    return _lay_out(stored(numbers, spec.dtype, f"data of {name}").reshape(spec.shape), spec, f"data of {name}")


def _from_file(parameters: Mapping[str, Any], spec: TensorSpec, name: str, case: TestCase) -> Array:
    """Return the tensor of a file, in the layout of ``spec``; a relative path starts at the case's folder.

    Raises:
        Fault: BAD_CASE if the file cannot be read or holds another shape, type or number of bytes.
        Unavailable: if reading it needs a package that is not installed.
    """
    path = path_of(case, parameters["path"])
    return _lay_out(read_tensor(str(path), parameters["key"], spec), spec, f"{parameters['path']} ({name})")


def _from_opinfo(parameters: Mapping[str, Any], spec: TensorSpec, name: str, case: TestCase) -> Array:
    """Return the tensor of a sample of torch's OpInfo, in the layout of ``spec``.

    Raises:
        Fault: BAD_CASE if the installed torch has no such sample, or one with other values.
        Unavailable: if torch, or a package that its database needs, is not installed.
    """
    from_sample: Callable[..., Array] = load_object("optest.torch.opinfo.fill:from_sample")
    return _lay_out(from_sample(parameters, spec, name, case.seed, case.where), spec, f"the sample of {name}")


def _from_identity(_: Mapping[str, Any], spec: TensorSpec, name: str, __: TestCase) -> Array:
    """Return the identity matrix in the layout of ``spec``.

    Raises:
        Fault: BAD_CASE if the shape is no matrix, or different elements share memory.
    """
    if len(spec.shape) != 2:
        raise Fault(
            Reason.BAD_CASE,
            f"{name} is filled with eye and has the shape {format_shape(spec.shape)}, expected a matrix",
        )
    return _lay_out(np.eye(*spec.shape).astype(numpy_dtype(spec.dtype)), spec, f"eye of {name}")


def _append_scalars(values: Any, into: list[Any], name: str) -> tuple[int, ...]:
    """Append the scalars of a nested list to ``into`` in order, and return its shape.

    Raises:
        Fault: BAD_CASE for an element that is no number, and rows of different shapes.
    """
    if not isinstance(values, (list, tuple)):
        if not isinstance(values, (bool, int, float, str)):
            raise Fault(Reason.BAD_CASE, f"data of {name} contain {values!r}, expected numbers")
        into.append(values)
        return ()
    shapes = {_append_scalars(element, into, name) for element in values}
    if len(shapes) > 1:
        listed = " and ".join(sorted(format_shape(shape) for shape in shapes))
        raise Fault(Reason.BAD_CASE, f"data of {name} have rows of different shapes: {listed}")
    return (len(values), *(shapes.pop() if shapes else ()))


def _lay_out(values: Array, spec: TensorSpec, origin: str) -> Array:
    """Copy ``values`` into new memory with the layout of ``spec``; gaps are 0.

    Raises:
        Fault: BAD_CASE, naming ``origin``, if different elements share memory.
    """
    storage = np.zeros(spec.storage_elements, numpy_dtype(spec.dtype))
    tensor = view(storage, spec)
    tensor[...] = values
    if spec.storage_elements < spec.elements + spec.offset and (bits(tensor) != bits(values)).any():
        strides = list(spec.strides or ())
        raise Fault(Reason.BAD_CASE, f"{origin}: with strides {strides} elements share memory, but their values differ")
    return tensor


# By fill: (parameters, spec and name of the input, case) -> values.
GIVEN: Mapping[str, Callable[[Mapping[str, Any], TensorSpec, str, TestCase], Array]] = {
    "data": _from_data,
    "file": _from_file,
    "opinfo": _from_opinfo,
    "eye": _from_identity,
}
