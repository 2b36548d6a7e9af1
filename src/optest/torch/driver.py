"""Call functions that take torch tensors, on a device, in memory with guard zones; base class of torch backends."""

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
from optest.torch.devices import faults_of_torch, open_device, output_to_array, synchronize
from optest.torch.guarded_memory import GUARD_BYTES, GuardedMemory
from optest.torch.shared_settings import keep_settings


class TensorCalls:
    """Caller of functions with tensors on one device, between guard zones."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._checks_writes = False
        # Returned tensors of the last call and their arrays. They stay alive, or their addresses would be used again.
        self._results: dict[Any, tuple[torch.Tensor, Any]] = {}

    def outputs(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Array],
        names: Sequence[str] = (),
        outputs: Sequence[Array] = (),
        *,
        may_seed: bool = False,
    ) -> Any:
        """Call the function and return its outputs as arrays: a list, or a dict if it returns a dict.

        ``names`` are the operator's output names. With ``outputs`` the function gets a second list, of tensors to
        write into. ``may_seed`` allows it to seed torch. It is called a second time, with another poison in new
        memory, if an output still contains the poison.

        Raises:
            Fault: OUT_OF_BOUNDS for a write beyond a tensor, UNWRITTEN for output elements that were never written,
                UNSUPPORTED for arrays that torch cannot hold, STATE for changed process-wide settings of torch.
        """
        with torch.no_grad(), keep_settings("the function", may_seed=may_seed):
            returned, first = self._call(function, inputs, outputs, names, 0)
            earlier, self._results = self._results, {}
            arrays = {name: self._to_array(output, earlier) for name, output in outputs_of(returned)}
            self._checks_writes = not outputs and len(first) == len(arrays)
            if any(buffer.has_untouched() for buffer in first.values()):
                # Copies: the second call may write into the memory of these.
                arrays = {name: np.array(array) for name, array in arrays.items()}
                _, second = self._call(function, inputs, outputs, names, 1)
                require_written(
                    {
                        name: (buffer.array, never_written(buffer, second[name]))
                        for name, buffer in first.items()
                        if name in second
                    }
                )
            return arrays if isinstance(returned, Mapping) else list(arrays.values())

    def checks(self) -> tuple[Check, ...]:
        """Return the memory checks of the last call."""
        zones = f"{GUARD_BYTES} bytes on each side of memory that torch allocates for the function"
        checks = [Check(name="guard zones", state=CheckState.DONE, detail=zones)]
        if self._checks_writes:
            checks.append(Check(name="outputs written", state=CheckState.DONE, detail="two poisons"))
        return tuple(checks)

    def _to_array(self, output: Any, earlier: Mapping[Any, tuple[torch.Tensor, Any]]) -> Any:
        """Return ``output`` as an array; if it is in the memory of an ``earlier`` output, update and return its array.

        So the caller sees that a later call overwrote an earlier result, on devices whose memory is copied, too.
        """
        if not isinstance(output, torch.Tensor):
            return output
        array = output_to_array(output, self.device)
        if output.layout is torch.strided and (address := output.data_ptr()):
            key = (address, output.shape, output.dtype, output.stride())
            if previous := earlier.get(key):
                previous[1][...], array = array, previous[1]
            self._results[key] = (output, array)
        return array

    def _call(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        names: Sequence[str],
        poison: int,
    ) -> tuple[Any, dict[str, Buffer]]:
        """Call the function in guarded memory; return its value and the buffers of the outputs that it allocated."""
        memory = GuardedMemory(self.device, WRITE_POISONS[poison])
        with faults_of_torch():
            returned = memory.call(function, inputs, outputs)
            synchronize(self.device)
        return returned, memory.allocations_of(returned, names)


class TorchDriver(BackendDriver):
    """Base of backends whose :meth:`run_tensors` takes and returns torch tensors on ``--torch-device``."""

    kind = "torch"
    options: tuple[str, ...] = ("torch_device",)
    margin_bytes = GUARD_BYTES

    def __init__(self) -> None:
        self.calls = TensorCalls(torch.device("cpu"))

    def configure(self, options: Mapping[str, Any]) -> None:
        """Open the device of the option ``torch_device``, by default the CPU; errors as :func:`open_device`."""
        self.calls = TensorCalls(open_device(str(options.get("torch_device") or "cpu")))

    def run_tensors(self, case: TestCase, tensors: Sequence[torch.Tensor]) -> Any:
        """Compute a case: return a tensor, a sequence in the order of the operator's outputs, or a dict by their names.

        ``tensors`` have the case's dtypes, shapes and strides.
        """
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
