"""A user's Triton kernels as a backend: functions that launch them on a device of torch's or in its interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from optest.backends.function import FunctionBackend
from optest.errors import Unavailable
from optest.registry import is_installed, load_object, version_of
from optest.settings.variables import environment, variable_by_default
from optest.spec import TestCase
from optest.torch.driver import TensorCalls

_INTERPRET = "TRITON_INTERPRET"
_INTERPRETED_AT_MOST = 1 << 16
"""Elements. The interpreter takes a millisecond for each program, and a kernel of rows has one for each row."""


class TritonBackend(FunctionBackend):
    """Calls the functions of ``--function`` with torch tensors, on the accelerator that torch has.

    Without one ``TRITON_INTERPRET`` is set before their module is imported. What it is set to already stays.
    """

    name = "triton"
    kind = "triton"
    options = ("function",)
    arrays = "torch"

    def __init__(self) -> None:
        super().__init__()
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        self._device = device_for_triton(found)
        self._is_interpreted = self._device.type == "cpu"
        drivers: Any = load_object("triton.backends:backends")
        if self._is_interpreted and not any(each.driver.is_active() for each in drivers.values()):
            load_object("triton.runtime.driver:driver").set_active(_InterpreterDriver())
            load_object("triton.runtime.interpreter:InterpretedFunction").warmup = _warmup
        self._tensor_calls = TensorCalls(self._device)

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


def _warmup(*_: object, **__: object) -> None:
    """Refuse to compile a kernel, in place of the interpreter, which returns None."""
    raise NotImplementedError("kernel.warmup compiles, which needs a GPU; launch a constant number of programs without")


class _InterpreterDriver:
    """Answers of Triton's driver without a GPU: modules ask it while they are imported, and autotuners do, too.

    The benchmarks of an autotuner's configurations are all equal, without a call, so that it takes the first one.
    """

    @property
    def utils(self) -> Any:
        return self

    def get_device_properties(self, _: object) -> Mapping[str, int]:
        return {"multiprocessor_count": 8, "max_shared_mem": 1 << 16, "max_num_regs": 1 << 16, "warpSize": 32}

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_current_target(self) -> Any:
        return load_object("triton.backends.compiler:GPUTarget")("cuda", 80, 32)

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        return lambda _, quantiles=(0.5,): [1.0] * len(quantiles)


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
