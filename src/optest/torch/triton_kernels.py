"""A user's Triton kernels as a backend: functions that launch them on a device of torch's or in Triton's interpreter.

Tensors of a launcher lie between guard zones, and what it allocates holds a poison: a forgotten mask or a grid that is
too small shows as such.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from optest.backends.function import FunctionBackend, Kernel, outputs_of
from optest.errors import Unavailable
from optest.memory.buffers import Buffer, never_written, require_written
from optest.memory.poisons import WRITE_POISONS, Poison
from optest.registry import is_installed, version_of
from optest.settings.variables import environment, variable_by_default
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, TestCase, contiguous_strides
from optest.spec import dtype as dtype_called
from optest.torch.tensors import DTYPE_NAMES, TORCH_DTYPES, from_torch

__all__ = ["GuardedMemory", "TritonBackend", "device_for_triton"]

_INTERPRET = "TRITON_INTERPRET"
_INTERPRETED_AT_MOST = 1 << 16
"""Elements. The interpreter takes a millisecond for each program, and a kernel of rows has one for each row."""
_GUARD_BYTES = 1 << 16
"""Beyond every tensor: a block without its mask reaches as far as the block is large."""
_ALLOCATES = re.compile("(new_)?(empty|zeros|ones|full)(_like|_strided)?")


class TritonBackend(FunctionBackend):
    """Calls the functions of ``--function`` with torch tensors, on the accelerator that torch has.

    Without one ``TRITON_INTERPRET`` is set before their module is imported. What it is set to already stays.
    """

    name = "triton"
    kind = "triton"

    def __init__(self) -> None:
        super().__init__()
        self._is_watched = False
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        self._device = device_for_triton(found)
        self._is_interpreted = self._device.type == "cpu"

    def unsupported(self, case: TestCase) -> str | None:
        if self._is_interpreted:
            if max((each.spec.elements for each in case.inputs), default=0) > _INTERPRETED_AT_MOST:
                return f"Triton's interpreter is slow: more than {_INTERPRETED_AT_MOST:,} elements"
            if any(each.spec.dtype.name == "bfloat16" for each in case.inputs):
                return "Triton's interpreter cuts off the bits that bfloat16 has not, and rounds nothing"
        return super().unsupported(case)

    def device(self) -> str | None:
        return "interpreter" if self._is_interpreted else str(self._device)

    def versions(self) -> Mapping[str, str]:
        return {"triton": version_of("triton") or "", "torch": str(torch.__version__)}

    def doctor(self) -> Sequence[str]:
        return (*(f"{name} {version}" for name, version in self.versions().items()), f"kernels run on {self.device()}")

    def checks(self, case: TestCase) -> Sequence[Check]:  # noqa: ARG002 - of the case that was run last
        zones = f"{_GUARD_BYTES} bytes on each side of what torch allocates for the function"
        written = (Check(name="outputs written", state=CheckState.DONE, detail="two poisons"),)
        return (Check(name="guard zones", state=CheckState.DONE, detail=zones), *(written if self._is_watched else ()))

    def returned(self, kernel: Kernel, case: TestCase, inputs: Sequence[Any]) -> Any:
        """What the function returns, twice where anything looks like the poison of its memory.

        Raises:
            Fault: OUT_OF_BOUNDS for a write beyond a tensor, UNWRITTEN for elements of an output that nobody wrote.
        """
        names = case.descriptor.tensors.outputs
        memory = GuardedMemory(self._device, WRITE_POISONS[0])
        outputs = memory.call(kernel, case, inputs)
        first = memory.allocations_of(outputs, names)
        self._is_watched = len(first) == len(outputs_of(outputs))
        if any(buffer.has_untouched() for buffer in first.values()):
            memory = GuardedMemory(self._device, WRITE_POISONS[1])
            second = memory.allocations_of(memory.call(kernel, case, inputs), names)
            require_written(
                {name: (one.array, never_written(one, second[name])) for name, one in first.items() if name in second}
            )
        return outputs


def device_for_triton(found: torch.device | str | None) -> torch.device:
    """``found``, or the CPU for the interpreter: without a device, or if ``TRITON_INTERPRET`` says so.

    Raises:
        Unavailable: without Triton, and if it is not to interpret, but there is no device.
    """
    if not is_installed("triton"):
        raise Unavailable("triton", "pip install triton")
    if found is None and "triton" in sys.modules and _INTERPRET not in environment():
        raise Unavailable("triton", f"it is imported already, to compile, and torch has no device; set {_INTERPRET}=1")
    stated = environment().get(_INTERPRET, "") if found else variable_by_default(_INTERPRET, "1")
    is_interpreted = stated.lower() in ("1", "true", "on", "yes", "y")
    if found is None and not is_interpreted:
        raise Unavailable("triton", f"{_INTERPRET} is {stated!r}, and torch has no device here")
    return torch.device("cpu") if is_interpreted or found is None else torch.device(found)


class GuardedMemory(TorchFunctionMode):  # type: ignore[misc]
    """While it is active, what torch allocates lies between guard zones; memory without values holds the poison.

    Each tensor has a :class:`Buffer` on the host, whose bytes are those of its storage on the device.
    """

    def __init__(self, device: torch.device, poison: Poison = WRITE_POISONS[0]) -> None:
        super().__init__()
        self._device, self._poison = device, poison
        self._held: list[tuple[Buffer, torch.Tensor]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if _ALLOCATES.fullmatch(name) and isinstance(made, torch.Tensor) and made.numel() and made.dtype in DTYPE_NAMES:
            self._guard(made, has_values="empty" not in name)
        return made

    def call(self, kernel: Kernel, case: TestCase, inputs: Sequence[Any]) -> Any:
        """What the function returns for the inputs, which become what it left of its copies of them.

        Raises:
            Fault: OUT_OF_BOUNDS for a write beyond a tensor.
        """
        places = [
            self.placed(argument.name, argument.spec, array)
            for argument, array in zip(case.inputs, inputs, strict=True)
        ]
        with self:
            outputs = kernel.call(case, [tensor for _, tensor in places])
        self.fetch()
        for (buffer, _), array in zip(places, inputs, strict=True):
            array[...] = buffer.array
        return outputs

    def fetch(self) -> None:
        """Bring what lies on the device into the buffers.

        Raises:
            Fault: OUT_OF_BOUNDS for a write beyond a tensor.
        """
        for buffer, memory in self._held:
            buffer.region.memory[...] = from_torch(memory)
            if change := buffer.outside():
                raise Fault(Reason.OUT_OF_BOUNDS, str(change), details={"buffer": buffer.name})

    def allocations_of(self, outputs: Any, names: Sequence[str]) -> dict[str, Buffer]:
        """The memory of those outputs that are allocations without values as a whole, by the operator's names."""
        storages = {memory.untyped_storage().data_ptr(): buffer for buffer, memory in self._held}
        found: dict[str, Buffer] = {}
        for name, output in outputs_of(outputs):
            buffer = storages.get(output.untyped_storage().data_ptr()) if isinstance(output, torch.Tensor) else None
            if buffer is not None and buffer.poison is self._poison and buffer.spec.shape == tuple(output.shape):
                found[names[name] if name in range(len(names)) else str(name)] = buffer
        return found

    def placed(self, name: str, spec: TensorSpec, array: Any) -> tuple[Buffer, torch.Tensor]:
        """A tensor on the device with the values of ``array``, and the buffer that :meth:`fetch` brings it into.

        Raises:
            Fault: UNSUPPORTED for what torch has no tensors of.
        """
        if spec.dtype.name not in TORCH_DTYPES or min(array.strides, default=0) < 0:
            what = spec.dtype if spec.dtype.name not in TORCH_DTYPES else "negative strides"
            raise Fault(Reason.UNSUPPORTED, f"torch has no tensors of {what}")
        buffer = Buffer.allocate(spec, name=name, poison=Poison.NAN, guard_bytes=_GUARD_BYTES)
        buffer.put(array)
        tensor = torch.empty(0, dtype=TORCH_DTYPES[spec.dtype.name], device=self._device)
        return buffer, self._moved(tensor, buffer)

    def _guard(self, made: torch.Tensor, *, has_values: bool) -> None:
        values = made.clone() if has_values else None
        spec = TensorSpec(dtype=dtype_called(DTYPE_NAMES[made.dtype]), shape=tuple(made.shape), strides=made.stride())
        poison = Poison.NAN if has_values else self._poison
        self._moved(made, Buffer.allocate(spec, name="an allocation", poison=poison, guard_bytes=_GUARD_BYTES))
        if values is not None:
            made.copy_(values)

    def _moved(self, tensor: torch.Tensor, buffer: Buffer) -> torch.Tensor:
        """The tensor, which from here on lies in the storage of the buffer."""
        memory = torch.from_numpy(buffer.region.memory).to(self._device)
        self._held.append((buffer, memory))
        offset = (buffer.address - buffer.region.address) // tensor.element_size()
        strides = buffer.spec.strides or contiguous_strides(buffer.spec.shape)
        with torch._C.DisableTorchFunction():
            return tensor.set_(memory.untyped_storage(), offset, buffer.spec.shape, strides)
