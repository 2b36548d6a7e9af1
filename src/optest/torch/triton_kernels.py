"""Backend ``triton``: functions that launch a user's Triton kernels, on torch's accelerator or in the interpreter."""

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
# Elements. The interpreter takes a millisecond per program, and a row-wise kernel has one program per row.
_MAX_INTERPRETED = 1 << 16


class TritonBackend(FunctionBackend):
    """Backend that calls the functions of ``--function`` with torch tensors, on an accelerator or interpreted."""

    name = "triton"
    kind = "triton"
    options = ("function",)
    arrays = "torch"

    def __init__(self) -> None:
        super().__init__()
        accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        self._device = device_for_triton(accelerator)
        self._is_interpreted = self._device.type == "cpu"
        drivers: Any = load_object("triton.backends:backends")
        if self._is_interpreted and not any(backend.driver.is_active() for backend in drivers.values()):
            load_object("triton.runtime.driver:driver").set_active(_InterpreterDriver())
            load_object("triton.runtime.interpreter:InterpretedFunction").warmup = _warmup
        self._tensor_calls = TensorCalls(self._device)

    def unsupported(self, case: TestCase) -> str | None:
        if self._is_interpreted:
            if max((tensor.spec.elements for tensor in case.inputs), default=0) > _MAX_INTERPRETED:
                return f"Triton's interpreter is too slow for inputs of more than {_MAX_INTERPRETED:,} elements"
            if any(tensor.spec.dtype.name == "bfloat16" for tensor in case.inputs):
                return "Triton's interpreter truncates to bfloat16 instead of rounding"
        return super().unsupported(case)

    def device(self) -> str | None:
        return "interpreter" if self._is_interpreted else str(self._device)

    def versions(self) -> Mapping[str, str]:
        return {"triton": version_of("triton") or "", "torch": str(torch.__version__)}

    def doctor(self) -> Sequence[str]:
        return (*(f"{name} {version}" for name, version in self.versions().items()), f"kernels run on {self.device()}")


def _warmup(*_: object, **__: object) -> None:
    # The interpreter's method returns None, so that a caller would fail later, with a confusing message.
    raise NotImplementedError("kernel.warmup compiles, which needs a GPU; launch a constant number of programs without")


class _InterpreterDriver:
    """Triton driver for machines without a GPU, with fixed properties: kernel modules and autotuners query it."""

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
        # All configurations take equally long, without a call, so that an autotuner selects the first one.
        return lambda _, quantiles=(0.5,): [1.0] * len(quantiles)


def device_for_triton(accelerator: torch.device | str | None) -> torch.device:
    """Return the accelerator, or the CPU without one or with ``TRITON_INTERPRET``; Unavailable if neither works."""
    if not is_installed("triton"):
        raise Unavailable("triton", "pip install triton")
    # Triton decides when a kernel is decorated, so it is too late to set the variable.
    if accelerator is None and "triton" in sys.modules and _INTERPRET not in environment():
        message = "Triton was imported before the interpreter could be selected, and torch has no accelerator"
        raise Unavailable("triton", f"{message}; set {_INTERPRET}=1")
    value = environment().get(_INTERPRET, "") if accelerator else variable_by_default(_INTERPRET, "1")
    is_interpreted = value.lower() in ("1", "true", "on", "yes", "y")
    if accelerator is None and not is_interpreted:
        raise Unavailable("triton", f"{_INTERPRET} is {value!r}, and torch has no accelerator; set {_INTERPRET}=1")
    return torch.device("cpu") if is_interpreted or accelerator is None else torch.device(accelerator)
