"""Devices of torch and of vendors' extension modules: open, synchronise, and translate their errors to faults."""

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

# The module that must be imported before torch knows a device type of another vendor.
VENDOR_MODULES = {
    "npu": "torch_npu",
    "mlu": "torch_mlu",
    "musa": "torch_musa",
    "gcu": "torch_gcu",
    "hpu": "habana_frameworks.torch",
    "xla": "torch_xla",
    "spyre": "torch_spyre",
}
# Device types of torch itself.
OWN_DEVICES = ("cpu", "cuda", "xpu", "mps")
# By a part of the message in lower case: torch has one exception type for all of these.
_REASONS = {
    **dict.fromkeys(("out of memory", "can't allocate memory", "not enough memory"), Reason.OUT_OF_MEMORY),
    **dict.fromkeys(("device-side assert", "illegal memory access", "illegal instruction"), Reason.DEVICE_LOST),
    **dict.fromkeys(("misaligned address", "unspecified launch failure"), Reason.DEVICE_LOST),
    **dict.fromkeys(("device lost", "uncorrectable"), Reason.DEVICE_LOST),
    "getcudnndatatypefromscalartype() not supported": Reason.UNSUPPORTED,
    # cuDNN has no kernel for the dtype.
    "unable to find an engine": Reason.UNSUPPORTED,
}


@contextmanager
def faults_of_torch() -> Iterator[None]:
    """Convert errors of torch within the block to faults: UNSUPPORTED, OUT_OF_MEMORY or DEVICE_LOST.

    A RuntimeError with another message passes unchanged: the call itself may be wrong.
    """
    try:
        yield
    except Inexpressible as error:
        raise Fault(Reason.UNSUPPORTED, str(error)) from error
    except NotImplementedError as error:
        raise Fault(Reason.UNSUPPORTED, f"torch: {first_line(error)}") from error
    except RuntimeError as error:
        reason = next((reason for words, reason in _REASONS.items() if words in str(error).lower()), None)
        if reason is None:
            raise
        raise Fault(reason, f"torch: {first_line(error)}") from error


def output_to_array(output: Any, device: torch.device) -> Any:
    """Return the tensor ``output`` of a call on ``device`` as an array of the same shape and dtype.

    Raises:
        Fault: RAISED if it is no tensor, WRONG_DEVICE if it is on another device, DTYPE if it is of a tensor subclass
            or of a dtype that optest does not know.
    """
    if not isinstance(output, torch.Tensor):
        raise Fault(Reason.RAISED, f"the output is of type {type(output).__name__}, expected torch.Tensor")
    if not is_plain(output):
        name = type(output).__name__
        raise Fault(
            Reason.DTYPE, f"the output is a {name}, expected torch.Tensor: return it .as_subclass(torch.Tensor)"
        )
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
    """Wait for the device: kernels run asynchronously, and their time and errors should belong to this case."""
    if device.type == "cpu":
        return
    module = getattr(torch, device.type)
    if device.index:
        module.synchronize(device)
    # Not every module accepts a device; without one it synchronises the current device, which is 0.
    else:
        module.synchronize()


def open_device(name: str) -> torch.device:
    """Return the device of a name such as ``cpu``, ``cuda`` or ``npu:1``; import the vendor's module if it needs one.

    Raises:
        UnknownName: if neither torch nor a known module has the device type.
        UsageError: if the index is no number.
        Unavailable: if the module is not installed, or this machine has no such device.
    """
    kind, _, index = name.partition(":")
    known = dict.fromkeys([*OWN_DEVICES, *VENDOR_MODULES, *_registered_device()])
    if kind not in known:
        raise UnknownName("torch device", name, known)
    if index and not index.isdigit():
        raise UsageError(f"torch device is {name!r}, expected '{kind}' or '{kind}:INDEX'")
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
        available = ", ".join(f"{kind}:{number}" for number in range(count))
        raise Unavailable(f"torch device {name}", f"this machine has {available}")
    return torch.device(kind, number)


def _registered_device() -> list[str]:
    """Return the device type that an extension package registered with torch, in a list; empty if there is none."""
    # torch imports packages with the entry point ``torch.backends`` when it is imported itself.
    kind = str(torch._C._get_privateuse1_backend_name())
    return [kind] if hasattr(torch, kind) else []


_REMEDIES = {
    "cuda": "this torch sees no CUDA device; install a torch build with CUDA (or ROCm) and its driver",
    "xpu": "this torch sees no XPU device; install the XPU build of torch and Intel's driver",
    "mps": "this torch sees no MPS device; it needs macOS on Apple silicon",
}


def device_count(kind: str) -> int:
    """Return the number of available devices of a type, 0 if torch does not know the type."""
    # A Mac has one GPU.
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module = getattr(torch, kind, None)
    if module is None or not module.is_available():
        return 0
    return int(module.device_count())


def device_model(kind: str, index: int) -> str:
    """Return the device's model name in parentheses after a space, "" if torch has no name for it."""
    module = getattr(torch, kind)
    return f" ({module.get_device_name(index)})" if hasattr(module, "get_device_name") else ""
