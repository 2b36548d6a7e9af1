"""Devices of infinicore.h: numbers, names, torch devices, and the vendors' modules, imported when needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any

from optest.errors import OptestError, Unavailable, UnknownName
from optest.infiniop.torch_bridge import loaded_torch
from optest.registry import is_installed, load_extension


class InfiniDeviceEnum(IntEnum):
    """``infiniDevice_t``."""

    CPU = 0
    NVIDIA = 1
    CAMBRICON = 2
    ASCEND = 3
    METAX = 4
    MOORE = 5
    ILUVATAR = 6
    KUNLUN = 7
    HYGON = 8
    QY = 9


_INITIALS = {"CPU", "NVIDIA", "QY"}
InfiniDeviceNames: Mapping[int, str] = {
    device: device.name if device.name in _INITIALS else device.name.capitalize() for device in InfiniDeviceEnum
}

_TORCH_DEVICES = {
    InfiniDeviceEnum.CPU: "cpu",
    InfiniDeviceEnum.CAMBRICON: "mlu",
    InfiniDeviceEnum.ASCEND: "npu",
    InfiniDeviceEnum.MOORE: "musa",
}
# torch's name of the device; several vendors use ``cuda``.
torch_device_map: Mapping[int, str] = {device: _TORCH_DEVICES.get(device, "cuda") for device in InfiniDeviceEnum}

infiniDeviceEnum_str_map = torch_device_map  # noqa: N816 - the predecessor's name

_DEVICE_OF_TORCH = {"CUDA": InfiniDeviceEnum.NVIDIA} | {
    name.upper(): device for device, name in _TORCH_DEVICES.items() if name != "cpu"
}

_VENDOR_MODULES = {
    InfiniDeviceEnum.CAMBRICON: "torch_mlu",
    InfiniDeviceEnum.ASCEND: "torch_npu",
    InfiniDeviceEnum.MOORE: "torch_musa",
    InfiniDeviceEnum.KUNLUN: "torch_xmlir",
}


def infini_device(value: Any) -> InfiniDeviceEnum:
    """Return the device for its number, its name, or torch's name (``cuda:1`` is NVIDIA); else raise UnknownName."""
    # True is no device number.
    if isinstance(value, int) and not isinstance(value, bool) and value in InfiniDeviceNames:
        return InfiniDeviceEnum(value)
    name = str(getattr(value, "type", value)).partition(":")[0].upper()
    if name in InfiniDeviceEnum.__members__:
        return InfiniDeviceEnum[name]
    if name in _DEVICE_OF_TORCH:
        return _DEVICE_OF_TORCH[name]
    raise UnknownName("device", str(value), [f"{device.name} ({int(device)})" for device in InfiniDeviceEnum])


def require_device(device: Any) -> str:
    """Import a device's modules, return torch's name of it; raise Unavailable without a module or the device."""
    known = infini_device(device)
    if known is InfiniDeviceEnum.CPU:
        return "cpu"
    name, label = torch_device_map[known], f"device {InfiniDeviceNames[known]}"
    module = _VENDOR_MODULES.get(known)
    try:
        torch = loaded_torch()
    except Unavailable:
        raise Unavailable(label, "pip install torch") from None
    if module is not None:
        if not is_installed(module):
            raise Unavailable(label, f"install the vendor's {module}")
        try:
            load_extension(f"{module}, which {label} needs,", f"{module}:__name__")
        except OptestError as error:
            raise Unavailable(label, f"it needs the vendor's {module}: {error}") from None
    backend = getattr(torch, name, None)
    if backend is None or not backend.is_available():
        raise Unavailable(label, f"torch.{name} finds no device on this machine")
    return name


def prepare_device(device: Any) -> None:
    """Import the modules of a device, as :func:`require_device`; for Ascend also select the first card."""
    name = require_device(device)
    if infini_device(device) is InfiniDeviceEnum.ASCEND:
        getattr(loaded_torch(), name).set_device(0)  # once per process


def synchronize_device(device: Any) -> None:
    """Wait until the device, a number or name as for :func:`infini_device`, has finished."""
    sync = get_sync_func(device)
    if sync is not None:
        sync()


def get_sync_func(device: Any) -> Callable[[], None] | None:
    """Return a function that waits for the device; None for the processor, whose calls are synchronous."""
    name = torch_device_map[infini_device(device)]
    if name == "cpu":
        return None

    def synchronize() -> None:
        getattr(loaded_torch(), name).synchronize()

    return synchronize
