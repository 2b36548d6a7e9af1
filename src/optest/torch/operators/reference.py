"""Expected outputs of the catalogue's operators by torch in float64 on the CPU: ``optest check --reference torch``.

The module has a function by the name of each operator that torch has: ``reference:softmax``.
"""

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
from optest.torch.tensors import Inexpressible, as_array, to_read, wide

REFERENCES = frozenset(TORCH_OPERATORS)
"""The operators that there is a function of."""
_WIDEST = ("float64", "complex128")


def __getattr__(name: str) -> Callable[..., list[Any]]:
    if name not in TORCH_OPERATORS:
        raise AttributeError(f"torch has no operator {name}")
    return partial(_expected, name)


def _expected(name: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> list[Any]:
    """The outputs, unrounded; NumPy's, with a note that says why, where torch in float64 has no better ones."""
    try:
        if why := _no_reference(name, inputs, attributes):
            return _of_numpy(name, inputs, attributes, why)
        tensors = [None if each is None else wide(to_read(np.asarray(each, order="C"))) for each in inputs]
        with torch.no_grad():
            output = TORCH_OPERATORS[name](tensors, {key: _wide(value) for key, value in attributes.items()})
    except (Inexpressible, RuntimeError) as error:  # it has no such tensors or kernel, or refuses the call
        return _of_numpy(name, inputs, attributes, f"torch: {first_line(error)}")
    return [as_array(each) for each in (output if isinstance(output, (tuple, list)) else [output])]


def _no_reference(name: str, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> str:
    """Why the call in float64 is another call, or no better than what is judged; "" where it is neither."""
    kinds = [dtype_of(each.dtype) for each in inputs if each is not None]
    inexact = [kind for kind in kinds if kind.is_inexact]
    if any(str(kind) in _WIDEST for kind in kinds):
        return "torch computes in nothing wider than float64"
    if inexact and len(inexact) < len(kinds) and operators.get(name).is_promoting:
        return "operands of several dtypes are rounded to one of them"
    if attributes.get("eps", 0) is None:
        return "eps follows from the dtype"
    if (not inexact or attributes.get("saturate")) and any(_wide(each) is not each for each in attributes.values()):
        return "operands are rounded to another dtype"
    if not all(
        np.isfinite(widen(each)).all() for each in inputs if each is not None and dtype_of(each.dtype) in inexact
    ):
        return "of NaN and infinity libraries make different things"
    return ""


def _of_numpy(name: str, inputs: Sequence[Any], attributes: Mapping[str, Any], why: str) -> list[Any]:
    own: Any = operators.get(name).reference
    outputs = load_object(own)(inputs, attributes)
    return [*(outputs if isinstance(outputs, (tuple, list)) else [outputs]), ReferenceNote(f"NumPy's reference: {why}")]


def _wide(value: Any) -> Any:
    """An attribute that names a dtype to compute in, as float64 or complex128; rounding is not the reference's."""
    try:
        kind = dtype(value) if isinstance(value, str) else None
    except UnknownName:
        return value
    if kind is None or not kind.is_inexact:
        return value
    return "float64" if kind.is_float else "complex128"
