"""References by torch in float64 on the CPU, for ``check --reference torch``: a function per operator, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from optest.errors import UnknownName
from optest.numerics import dtype_of, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import ReferenceNote, dtype
from optest.torch.calls.refusals import first_line
from optest.torch.operators import TORCH_OPERATORS
from optest.torch.tensors import Inexpressible, as_array, to_read, wide_copy

REFERENCES = frozenset(TORCH_OPERATORS)
_WIDEST = ("float64", "complex128")


def __getattr__(name: str) -> Callable[..., list[Any]]:
    """Return the reference of the operator ``name``."""
    if name not in TORCH_OPERATORS:
        raise AttributeError(f"torch has no operator {name}")
    return partial(_expected, name)


def _expected(name: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """Return an operator's outputs in float64; those of the NumPy reference and a note if torch cannot compute them."""
    try:
        if reason := _no_reference(name, inputs, attributes):
            return _by_numpy(name, inputs, attributes, reason)
        tensors = [None if array is None else wide_copy(to_read(np.asarray(array, order="C"))) for array in inputs]
        with torch.no_grad():
            output = TORCH_OPERATORS[name](tensors, {key: _wide(value) for key, value in attributes.items()})
    # torch has no such tensors or no kernel, or refuses the call.
    except (Inexpressible, RuntimeError) as error:
        return _by_numpy(name, inputs, attributes, f"torch: {first_line(error)}")
    return [as_array(tensor) for tensor in (output if isinstance(output, (tuple, list)) else [output])]


def _no_reference(name: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> str:
    """Return why the call in float64 is another call, or not more precise than the case; "" if it is a reference."""
    arrays = [array for array in inputs if array is not None]
    kinds = [dtype_of(array.dtype) for array in arrays]
    inexact = [kind for kind in kinds if kind.is_inexact]
    if any(str(kind) in _WIDEST for kind in kinds):
        return "torch computes in nothing wider than float64"
    if inexact and len(inexact) < len(kinds) and operators.get(name).is_promoting:
        return "operands of several dtypes are rounded to one of them"
    if attributes.get("eps", 0) is None:
        return "eps follows from the dtype"
    if (not inexact or attributes.get("saturate")) and any(_wide(value) is not value for value in attributes.values()):
        return "operands are rounded to another dtype"
    if not all(np.isfinite(widen(array)).all() for array in arrays if dtype_of(array.dtype) in inexact):
        return "libraries differ in how they treat NaN and infinity"
    return ""


def _by_numpy(name: str, inputs: Sequence[Any], attributes: Mapping[str, Any], reason: str) -> list[Any]:
    reference: Any = operators.get(name).reference
    outputs = load_object(reference)(inputs, attributes)
    note = ReferenceNote(f"NumPy's reference: {reason}")
    return [*(outputs if isinstance(outputs, (tuple, list)) else [outputs]), note]


def _wide(value: Any) -> Any:
    """Return the name of float64 or complex128 for the name of a float or complex dtype; another value unchanged."""
    try:
        kind = dtype(value) if isinstance(value, str) else None
    except UnknownName:
        return value
    if kind is None or not kind.is_inexact:
        return value
    return "float64" if kind.is_float else "complex128"
