"""The inputs of a case: drawn by its generator, checked if the generator is user-defined, and read-only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.core.border import Border
from optest.generators.resolve import numpy_generator, resolve_generator
from optest.numerics import numpy_dtype
from optest.spec import Fault, Reason, TestCase


def make_inputs(
    case: TestCase, interrupted: Callable[[], bool] | None = None
) -> tuple[Sequence[np.ndarray[Any, Any]], Sequence[Any] | None]:
    """Return the inputs, read-only, and the expected outputs if the generator knows them, else None.

    Raises:
        Fault: BAD_CASE if the generator raises, or if a user-defined generator returns tensors of another number,
            dtype or shape than the case has.
    """
    with Border("the generator", Reason.BAD_CASE, interrupted):
        # Only a user-defined generator gets a NumPy Generator; the built-in fills draw from optest's own bits.
        random = None if case.generator is None else numpy_generator(case)
        inputs, outputs = resolve_generator(case.generator).generate(case, random)
        if case.generator is not None:
            _require_declared(case, inputs)
    for array in inputs:
        array.setflags(write=False)
    return inputs, outputs


def _require_declared(case: TestCase, inputs: object) -> None:
    """Raise Fault unless ``inputs`` is a list or tuple of arrays with the dtypes and shapes of the case."""
    if not isinstance(inputs, (tuple, list)) or len(inputs) != len(case.inputs):
        actual = f"{len(inputs)} inputs" if isinstance(inputs, (tuple, list)) else type(inputs).__name__
        raise Fault(Reason.BAD_CASE, f"the generator returned {actual}, expected {len(case.inputs)} arrays")
    for argument, array in zip(case.inputs, inputs, strict=True):
        expected = f"{numpy_dtype(argument.spec.dtype)}{list(argument.spec.shape)}"
        actual = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
        if actual != expected:
            raise Fault(Reason.BAD_CASE, f"the generator returned {argument.name} as {actual}, expected {expected}")
