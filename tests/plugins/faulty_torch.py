"""torch as it is, save for the cases that a mark ``fault_…`` names: those are answered wrongly in that way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.backends import backend_manager
from optest.torch.eager import TorchBackend

Arrays = list[Any]


def _value(outputs: Arrays, _: Sequence[Any]) -> Arrays:
    last = outputs[-1].copy()
    last.flat[-1] = not last.flat[-1] if last.dtype == bool else last.flat[-1] + last.dtype.type(0.0625)
    return [*outputs[:-1], last]


def _one_more(outputs: Arrays, _: Sequence[Any]) -> Arrays:
    last = outputs[-1].copy()
    last.flat[0] += 1
    return [*outputs[:-1], last]


FAULTS: dict[str, Callable[[Arrays, Sequence[Any]], Arrays]] = {
    "fault_value": _value,
    "fault_integer": _one_more,
    "fault_dtype": lambda outputs, _: [outputs[0].astype(np.float64), *outputs[1:]],
    "fault_shape": lambda outputs, _: [outputs[0][..., None], *outputs[1:]],
    "fault_order": lambda outputs, _: outputs[::-1],
    "fault_missing": lambda outputs, _: outputs[:-1],
    "fault_returned": lambda outputs, inputs: [inputs[0], *outputs[1:]],
    "fault_unchanged": lambda outputs, inputs: [*outputs[:-1], inputs[0]],
    "fault_zeros": lambda outputs, _: [np.zeros_like(each) for each in outputs],
}


class FaultyTorch(TorchBackend):
    name = "faulty_torch"

    def run(self, case: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        if "fault_layout" in case.tags:
            inputs = [array.ravel(order="K").reshape(array.shape) for array in inputs]
        if "fault_accepts" in case.tags:
            return [np.zeros((), np.float32)]
        outputs = list(super().run(case, inputs))
        for tag in case.tags:
            if tag in FAULTS:
                return FAULTS[tag](outputs, inputs)
        return outputs


def register() -> None:
    if FaultyTorch.name not in backend_manager.names():
        backend_manager.register(FaultyTorch())
