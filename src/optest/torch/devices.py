"""Devices that torch or a vendor's module for it has: opened by name, waited for, and what their errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from optest.errors import Unavailable, UnknownName, UsageError
from optest.registry import load_object
from optest.spec import Fault, Reason
from optest.torch.calls.refusals import first_line
from optest.torch.tensors import Inexpressible, from_torch, is_plain

VENDOR_MODULES = {
    "npu": "torch_npu",
    "mlu": "torch_mlu",
    "musa": "torch_musa",
    "gcu": "torch_gcu",
    "hpu": "habana_frameworks.torch",
    "xla": "torch_xla",
    "spyre": "torch_spyre",
}
"""The module that brings a device type which torch alone does not have."""

OWN_DEVICES = ("cpu", "cuda", "xpu", "mps")
_REASONS = {
    **dict.fromkeys(("out of memory", "can't allocate memory", "not enough memory"), Reason.OUT_OF_MEMORY),
    "device-side assert": Reason.DEVICE_LOST,
    "illegal memory access": Reason.DEVICE_LOST,
    "illegal instruction": Reason.DEVICE_LOST,
    "misaligned address": Reason.DEVICE_LOST,
    "unspecified launch failure": Reason.DEVICE_LOST,
    "device lost": Reason.DEVICE_LOST,
    "uncorrectable": Reason.DEVICE_LOST,
    "getcudnndatatypefromscalartype() not supported": Reason.UNSUPPORTED,
    "unable to find an engine": Reason.UNSUPPORTED,  # cuDNN has no kernel for the dtype
}
"""By what torch says in small letters."""


@contextmanager
def faults_of_torch() -> Iterator[None]:
    """What torch says of itself: that it has no such kernel, no memory, no device any more."""
    try:
        yield
    except Inexpressible as error:
        raise Fault(Reason.UNSUPPORTED, str(error)) from error
    except NotImplementedError as error:
        raise Fault(Reason.UNSUPPORTED, f"torch: {first_line(error)}") from error
    except RuntimeError as error:
        reason = next((reason for sign, reason in _REASONS.items() if sign in str(error).lower()), None)
        if reason is None:
            raise
        raise Fault(reason, f"torch: {first_line(error)}") from error


def received(output: Any, device: torch.device) -> Any:
    """A tensor that a call on the device returned, as an array.

    Raises:
        Fault: RAISED for what is no tensor, WRONG_DEVICE for one of another device, DTYPE for an unknown element type.
    """
    if not isinstance(output, torch.Tensor):
        raise Fault(Reason.RAISED, f"torch returned {type(output).__name__}, but should return a tensor")
    if not is_plain(output):
        raise Fault(Reason.DTYPE, f"the output is a {type(output).__name__}; return it .as_subclass(torch.Tensor)")
    if (output.device.type, output.device.index or 0) != (device.type, device.index or 0):
        raise Fault(
            Reason.WRONG_DEVICE,
            f"the output is on {output.device}, expected on {device}",
            details={"device": str(output.device)},
        )
    try:
        return from_torch(output)
    except KeyError:
        raise Fault(Reason.DTYPE, f"the output has the dtype {output.dtype}, which optest does not know") from None


def synchronize(device: torch.device) -> None:
    """Wait for the device, so that the time of the kernel and its errors belong to this case."""
    if device.type == "cpu":
        return
    module = getattr(torch, device.type)
    if device.index:  # not every module takes a device, and without one it means the current, which is 0
        module.synchronize(device)
    else:
        module.synchronize()


def open_device(name: str) -> torch.device:
    kind, _, index = name.partition(":")
    known = dict.fromkeys([*OWN_DEVICES, *VENDOR_MODULES, *_registered_device()])
    if kind not in known:
        raise UnknownName("torch device", name, known)
    if index and not index.isdigit():
        raise UsageError(f"torch device is {name!r}, but should look like '{kind}:0'")
    if kind == "cpu":
        return torch.device("cpu")
    if kind in VENDOR_MODULES and kind not in _registered_device():
        module = VENDOR_MODULES[kind]
        try:
            load_object(f"{module}:__name__")
        except UsageError as error:
            raise Unavailable(f"torch device {kind}", f"install {module} for torch {torch.__version__}") from error
    count = device_count(kind)
    if count == 0:
        raise Unavailable(f"torch device {name}", _REMEDIES.get(kind, f"this machine has no {kind} device"))
    number = int(index or 0)
    if number >= count:
        listed = ", ".join(f"{kind}:{each}" for each in range(count))
        raise Unavailable(f"torch device {name}", f"this machine has {listed}")
    return torch.device(kind, number)


def _registered_device() -> list[str]:
    """The device type that somebody's package brings, which torch loads by itself where the package says so."""
    kind = str(torch._C._get_privateuse1_backend_name())
    return [kind] if hasattr(torch, kind) else []


_REMEDIES = {
    "cuda": "this torch sees no CUDA device; install a torch build with CUDA (or ROCm) and its driver",
    "xpu": "this torch sees no XPU device; install the XPU build of torch and Intel's driver",
    "mps": "this torch sees no MPS device; it needs macOS on Apple silicon",
}


def device_count(kind: str) -> int:
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        return 0
    return int(module.device_count())


def described(kind: str, index: int) -> str:
    module = getattr(torch, kind)
    return f" ({module.get_device_name(index)})" if hasattr(module, "get_device_name") else ""
