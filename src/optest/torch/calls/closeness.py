"""Masks of correct results for torch calls without a tolerance rule, by :mod:`optest.core.closeness`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from optest.core.closeness import as_close_as_roundings_allow
from optest.core.rounded_calls import RoundedCall
from optest.numerics import dtype_of
from optest.spec import Fault
from optest.torch.calls.call import torch_call
from optest.torch.calls.gradients import has_floating_input
from optest.torch.calls.refusals import NO_KERNEL
from optest.torch.calls.rounded_steps import TorchEvaluation, gradients_of, results_of

_FAILS = (*NO_KERNEL, Fault)


def as_close_as_inputs_allow(inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> list[Any]:
    """Return a mask of correct elements for each output, results before gradients; None for an undecided output."""
    # torch only moves and converts floats of 8 bits, which has exact results.
    if any(dtype_of(array.dtype).is_float and array.dtype.itemsize == 1 for array in inputs):
        return [None] * len(actual)
    call = torch_call(attributes["call"])
    has_gradients = bool(attributes.get("grad")) and has_floating_input(call, inputs)
    for make in (gradients_of, results_of) if has_gradients else (results_of,):
        with suppress(*_FAILS):  # without gradients, compare only the results
            rounded = RoundedCall.of(TorchEvaluation(call, inputs, make), inputs, actual)
            return as_close_as_roundings_allow(rounded, actual, _FAILS, with_gradients=make is gradients_of)
    return [None] * len(actual)
