"""The inputs of a case: drawn by its generator, checked if the generator is a user's, and never written to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.core.border import Border
from optest.generators.resolve import numpy_generator, resolve_generator
from optest.numerics import numpy_dtype
from optest.spec import Fault, Reason, TestCase

_BAD_CASE = Reason.BAD_CASE


def make_inputs(
    case: TestCase, interrupted: Callable[[], bool] | None = None
) -> tuple[Sequence[np.ndarray[Any, Any]], Sequence[Any] | None]:
    """Return the inputs, read-only, and the expected outputs if the generator knows them.

    Raises:
        Fault: BAD_CASE if the generator raises or yields other tensors than the case states.
    """
    with Border("the generator", _BAD_CASE, interrupted):
        # a NumPy Generator for a user's generator; the built-in fills draw from optest's own bits
        random = None if case.generator is None else numpy_generator(case)
        inputs, known = resolve_generator(case.generator).generate(case, random)
        if case.generator is not None:
            if not isinstance(inputs, (tuple, list)) or len(inputs) != len(case.inputs):
                got = f"{len(inputs)} inputs" if isinstance(inputs, (tuple, list)) else type(inputs).__name__
                raise Fault(Reason.BAD_CASE, f"the generator yields {got}, but should yield {len(case.inputs)} arrays")
            for argument, array in zip(case.inputs, inputs, strict=True):
                declared = f"{numpy_dtype(argument.spec.dtype)}{list(argument.spec.shape)}"
                got = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
                if got != declared:
                    raise Fault(
                        Reason.BAD_CASE, f"the generator yields {argument.name} as {got}, but should yield {declared}"
                    )
    for array in inputs:
        array.setflags(write=False)
    return inputs, known
