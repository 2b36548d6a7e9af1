"""Inputs with fixed values: from the plan, a file, a sample of torch's OpInfo, or the identity matrix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optest.generators.constants import exact_scalar, stored
from optest.generators.files import read_tensor
from optest.numerics import Array, bits, numpy_dtype, view
from optest.registry import load_object
from optest.spec import Fault, Reason, TensorSpec, TestCase, format_shape
from optest.store import path_of


def _from_data(parameters: Mapping[str, Any], spec: TensorSpec, name: str, _: TestCase) -> Array:
    """Return the nested list of the fill, rounded to the element type, in the layout of ``spec``.

    Raises:
        Fault: BAD_CASE if its shape is not that of ``spec``, or the type cannot hold a value.
    """
    values: list[Any] = []
    shape = _flatten(parameters["values"], values, name)
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


def _identity(_: Mapping[str, Any], spec: TensorSpec, name: str, __: TestCase) -> Array:
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


def _flatten(values: Any, into: list[Any], name: str) -> tuple[int, ...]:
    """Append the scalars of a nested list to ``into`` in order, and return its shape.

    Raises:
        Fault: BAD_CASE for an element that is no number, and rows of different shapes.
    """
    if not isinstance(values, (list, tuple)):
        if not isinstance(values, (bool, int, float, str)):
            raise Fault(Reason.BAD_CASE, f"data of {name} contain {values!r}, expected numbers")
        into.append(values)
        return ()
    shapes = {_flatten(element, into, name) for element in values}
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
    "eye": _identity,
}
