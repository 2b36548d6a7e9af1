"""Functions of torch tensors: whoever has one gets tensors on a device, in memory that is watched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from optest.backends import BackendDriver
from optest.backends.function import outputs_of
from optest.memory.buffers import Buffer, never_written, require_written
from optest.memory.poisons import WRITE_POISONS
from optest.numerics import Array
from optest.spec import Check, CheckState, TestCase
from optest.torch.devices import faults_of_torch, open_device, received, synchronize
from optest.torch.guarded_memory import GUARD_BYTES, GuardedMemory
from optest.torch.shared_settings import settings_kept


class TensorCalls:
    """Calls functions with tensors on a device, between guard zones."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._is_watched = False
        self._results: dict[Any, tuple[torch.Tensor, Any]] = {}
        """The tensors that the last call returned, which are kept alive, and their arrays."""

    def outputs(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Array],
        names: Sequence[str] = (),
        outputs: Sequence[Array] = (),
        *,
        may_seed: bool = False,
    ) -> Any:
        """What the function returns, tensors as arrays: a list, or a dict if it returns one.

        It is called twice where anything looks like the poison of what it has allocated. ``names`` are those of the
        operator's outputs; with ``outputs`` it gets a second list of tensors, to write into. Who draws at random
        ``may_seed`` torch.

        Raises:
            Fault: OUT_OF_BOUNDS for a write beyond a tensor, UNWRITTEN for elements of an output that nobody wrote,
                UNSUPPORTED for what torch has no tensors of, STATE for what is left set for all of torch.
        """
        with torch.no_grad(), settings_kept("the function", may_seed=may_seed):
            return self._outputs(function, inputs, names, outputs)

    def _outputs(
        self, function: Callable[..., Any], inputs: Sequence[Array], names: Sequence[str], outputs: Sequence[Array]
    ) -> Any:
        returned, first = self._called(function, inputs, outputs, names, 0)
        earlier, self._results = self._results, {}
        arrays = {name: self._received(each, earlier) for name, each in outputs_of(returned)}
        self._is_watched = not outputs and len(first) == len(arrays)
        if any(buffer.has_untouched() for buffer in first.values()):
            arrays = {name: np.array(each) for name, each in arrays.items()}  # before anything is called again
            _, second = self._called(function, inputs, outputs, names, 1)
            require_written(
                {name: (one.array, never_written(one, second[name])) for name, one in first.items() if name in second}
            )
        return arrays if isinstance(returned, Mapping) else list(arrays.values())

    def checks(self) -> tuple[Check, ...]:
        """What was looked at in the last call."""
        zones = f"{GUARD_BYTES} bytes on each side of what torch allocates for the function"
        written = (Check(name="outputs written", state=CheckState.DONE, detail="two poisons"),)
        return (Check(name="guard zones", state=CheckState.DONE, detail=zones), *(written if self._is_watched else ()))

    def _received(self, each: Any, earlier: Mapping[Any, tuple[torch.Tensor, Any]]) -> Any:
        """A result as an array; what lies in the memory of an ``earlier`` one, on any device, as the array of that."""
        if not isinstance(each, torch.Tensor):
            return each
        array = received(each, self.device)
        if each.layout is torch.strided and (first := each.data_ptr()):
            key = (first, each.shape, each.dtype, each.stride())
            if kept := earlier.get(key):
                kept[1][...], array = array, kept[1]
            self._results[key] = (each, array)
        return array

    def _called(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        names: Sequence[str],
        poison: int,
    ) -> tuple[Any, dict[str, Buffer]]:
        memory = GuardedMemory(self.device, WRITE_POISONS[poison])
        with faults_of_torch():
            returned = memory.call(function, inputs, outputs)
            synchronize(self.device)
        return returned, memory.allocations_of(returned, names)


class TorchDriver(BackendDriver):
    """A backend whose :meth:`run_tensors` takes and returns torch tensors on ``--torch-device``."""

    kind = "torch"
    options: tuple[str, ...] = ("torch_device",)
    margin_bytes = GUARD_BYTES

    def __init__(self) -> None:
        self.calls = TensorCalls(torch.device("cpu"))

    def configure(self, options: Mapping[str, Any]) -> None:
        """Open ``torch_device``, the CPU if none is stated.

        Raises:
            UnknownName, Unavailable: if torch has no such device, or this machine.
        """
        self.calls = TensorCalls(open_device(str(options.get("torch_device") or "cpu")))

    def run_tensors(self, case: TestCase, tensors: Sequence[torch.Tensor]) -> Any:
        """Return a tensor, several in the operator's order, or a dict by output name. ``tensors`` have the case's
        dtypes, shapes and strides."""
        raise NotImplementedError(f"{type(self).__name__} has no run_tensors")

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Any:
        names, may_seed = case.descriptor.tensors.outputs, case.descriptor.is_random
        return self.calls.outputs(lambda tensors: self.run_tensors(case, tensors), inputs, names, may_seed=may_seed)

    def device(self) -> str | None:
        return str(self.calls.device)

    def versions(self) -> Mapping[str, str]:
        return {"torch": str(torch.__version__)}

    def checks(self, case: TestCase) -> Sequence[Check]:  # noqa: ARG002 - of the case that was run last
        return self.calls.checks()
