"""What a backend or reference returned, as a list of arrays in the operator's order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from optest.errors import UnknownName
from optest.numerics import dtype_of, is_known
from optest.spec import DType, Fault, Reason, TestCase

__all__ = ["in_order"]


def in_order(case: TestCase, returned: Any) -> list[np.ndarray[Any, Any]]:
    """Return the outputs in the operator's order. A bare array is one output; a mapping goes by output name.

    Raises:
        Fault: MISSING_OUTPUT for None or a name that is missing, EXTRA_OUTPUT for a name that the operator does
            not have, DTYPE for something that is no array or has an element type that optest does not know.
    """
    if isinstance(returned, (tuple, list)):
        if all([type(value) is np.ndarray and is_known(value.dtype) for value in returned]):  # noqa: C419 - no frame
            return list(returned)
        return [_array(value, f"output {index}") for index, value in enumerate(returned)]
    if returned is None:
        raise Fault(Reason.MISSING_OUTPUT, "the backend returned None, but should return a sequence of arrays")
    if isinstance(returned, (np.ndarray, np.generic)):
        return [_array(returned, "output 0")]
    if isinstance(returned, Mapping):
        return _by_name(case, returned)
    raise Fault(
        Reason.DTYPE,
        f"the backend returned {type(returned).__name__}, but should return a sequence of NumPy arrays",
    )


def _by_name(case: TestCase, returned: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
    signature = case.descriptor.tensors
    names = (case.outputs and signature.output_names(len(case.outputs))) or signature.outputs
    placed: dict[int, np.ndarray[Any, Any]] = {}
    for name, value in returned.items():
        try:
            side, index = case.descriptor.tensors.locate(name)
        except UnknownName as error:
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned an output that is not expected: {error}") from None
        if side != "output":
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned {name!r}, which is an input of the operator")
        if index >= len(names):
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned {name!r}, but there are {len(names)} outputs")
        if index in placed:
            raise Fault(Reason.EXTRA_OUTPUT, f"the backend returned output {names[index]!r} twice, also as {name!r}")
        placed[index] = _array(value, f"output {name!r}")
    missing = [name for index, name in enumerate(names) if index not in placed]
    if missing:
        raise Fault(Reason.MISSING_OUTPUT, f"the backend returned no output {', '.join(map(repr, missing))}")
    return [placed[index] for index in sorted(placed)]


def _array(value: Any, what: str) -> np.ndarray[Any, Any]:
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if value is None:
        raise Fault(Reason.MISSING_OUTPUT, f"{what} is None, but should be a NumPy array")
    if not isinstance(value, np.ndarray):
        raise Fault(Reason.DTYPE, f"{what} is {type(value).__name__}, but should be a NumPy array")
    if isinstance(value, np.ma.MaskedArray):
        raise Fault(Reason.DTYPE, f"{what} is a masked array, but should be a NumPy array without a mask")
    array: np.ndarray[Any, Any] = np.asarray(value)  # a subclass may answer for itself, its memory does not
    _known_dtype(array, what)
    return array


def _known_dtype(value: np.ndarray[Any, Any], what: str) -> DType:
    try:
        return dtype_of(value.dtype)
    except UnknownName:
        raise Fault(Reason.DTYPE, f"{what} has elements of type {value.dtype}, which no operator yields") from None
