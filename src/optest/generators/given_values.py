"""Inputs whose values are given: written in the plan, read from a file, from a sample of torch's, the identity."""

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


def _from_data(stated: Mapping[str, Any], spec: TensorSpec, name: str, _: TestCase) -> Array:
    """The stated nested list, rounded to the element type, in the layout of ``spec``.

    Raises:
        Fault: BAD_CASE if its shape is another one or the type cannot hold a value.
    """
    values: list[Any] = []
    shape = _flatten(stated["values"], values, name)
    if shape != spec.shape and not (spec.elements == 0 and not values):
        raise Fault(
            Reason.BAD_CASE,
            f"data of {name} have the shape {format_shape(shape)}, but should have {format_shape(spec.shape)}",
        )
    numbers = [exact_scalar(value, spec.dtype) for value in values]
    return _placed(stored(numbers, spec.dtype, f"data of {name}").reshape(spec.shape), spec, f"data of {name}")


def _from_file(stated: Mapping[str, Any], spec: TensorSpec, name: str, case: TestCase) -> Array:
    """The tensor in the stated file, in the layout of ``spec``; a relative path is one of the case.

    Raises:
        Fault: BAD_CASE if the file cannot be read or holds another shape, type or number of bytes.
        Unavailable: if reading it needs a package that is not installed.
    """
    path = path_of(case, stated["path"])
    return _placed(read_tensor(str(path), stated["key"], spec), spec, f"{stated['path']} ({name})")


def _from_opinfo(stated: Mapping[str, Any], spec: TensorSpec, name: str, case: TestCase) -> Array:
    """The tensor of a sample of torch's OpInfo, in the layout of ``spec``.

    Raises:
        Fault: BAD_CASE if this torch has no such sample, or one with other values.
        Unavailable: if torch, or what its database needs, is not installed.
    """
    made: Callable[..., Array] = load_object("optest.torch.opinfo.fill:from_sample")
    return _placed(made(stated, spec, name, case.seed, case.where), spec, f"the sample of {name}")


def _identity(_: Mapping[str, Any], spec: TensorSpec, name: str, __: TestCase) -> Array:
    """1 where row and column are the same, in the layout of ``spec``.

    Raises:
        Fault: BAD_CASE for what is no matrix, and where memory is shared by elements that differ.
    """
    if len(spec.shape) != 2:
        raise Fault(
            Reason.BAD_CASE,
            f"{name} is filled with eye, but has the shape {format_shape(spec.shape)}, which is no matrix",
        )
    return _placed(np.eye(*spec.shape).astype(numpy_dtype(spec.dtype)), spec, f"eye of {name}")


def _flatten(values: Any, into: list[Any], name: str) -> tuple[int, ...]:
    """Append the scalars of a nested list in order and return its shape."""
    if not isinstance(values, (list, tuple)):
        if not isinstance(values, (bool, int, float, str)):
            raise Fault(Reason.BAD_CASE, f"data of {name} hold {values!r}, but should hold numbers")
        into.append(values)
        return ()
    shapes = {_flatten(each, into, name) for each in values}
    if len(shapes) > 1:
        listed = " and ".join(sorted(format_shape(shape) for shape in shapes))
        raise Fault(Reason.BAD_CASE, f"data of {name} nest unevenly: rows of {listed} side by side")
    return (len(values), *(shapes.pop() if shapes else ()))


def _placed(values: Array, spec: TensorSpec, what: str) -> Array:
    """A copy of ``values`` in the storage of ``spec``; gaps are 0."""
    storage = np.zeros(spec.storage_elements, numpy_dtype(spec.dtype))
    tensor = view(storage, spec)
    tensor[...] = values
    if spec.storage_elements < spec.elements + spec.offset and (bits(tensor) != bits(values)).any():
        raise Fault(Reason.BAD_CASE, f"{what}: elements that share memory in strides {list(spec.strides or ())} differ")
    return tensor


GIVEN: Mapping[str, Callable[[Mapping[str, Any], TensorSpec, str, TestCase], Array]] = {
    "data": _from_data,
    "file": _from_file,
    "opinfo": _from_opinfo,
    "eye": _identity,
}
"""What makes the values of a fill from its parameters, the spec and the name of the input, and the case."""
