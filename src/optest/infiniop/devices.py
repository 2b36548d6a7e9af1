"""The devices of infinicore.h: numbers, names, torch devices, and the vendor's module when one is asked for."""

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
    each: each.name if each.name in _INITIALS else each.name.capitalize() for each in InfiniDeviceEnum
}

_OWN_TORCH_DEVICES = {
    InfiniDeviceEnum.CPU: "cpu",
    InfiniDeviceEnum.CAMBRICON: "mlu",
    InfiniDeviceEnum.ASCEND: "npu",
    InfiniDeviceEnum.MOORE: "musa",
}
torch_device_map: Mapping[int, str] = {each: _OWN_TORCH_DEVICES.get(each, "cuda") for each in InfiniDeviceEnum}
"""What torch calls the device; several vendors appear as ``cuda``."""

infiniDeviceEnum_str_map = torch_device_map  # noqa: N816 - the predecessor's name

_DEVICE_OF_TORCH = {"CUDA": InfiniDeviceEnum.NVIDIA} | {
    name.upper(): each for each, name in _OWN_TORCH_DEVICES.items() if name != "cpu"
}

_VENDOR_MODULES = {
    InfiniDeviceEnum.CAMBRICON: "torch_mlu",
    InfiniDeviceEnum.ASCEND: "torch_npu",
    InfiniDeviceEnum.MOORE: "torch_musa",
    InfiniDeviceEnum.KUNLUN: "torch_xmlir",
}


def infini_device(value: Any) -> InfiniDeviceEnum:
    """The device of a number of the header, its name, or torch's name, ``cuda:1`` included (it is NVIDIA's, who named
    it so).

    Raises:
        UnknownName: for anything else.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value in InfiniDeviceNames:
        return InfiniDeviceEnum(value)
    name = str(getattr(value, "type", value)).partition(":")[0].upper()
    if name in InfiniDeviceEnum.__members__:
        return InfiniDeviceEnum[name]
    if name in _DEVICE_OF_TORCH:
        return _DEVICE_OF_TORCH[name]
    raise UnknownName("device", str(value), [f"{each.name} ({int(each)})" for each in InfiniDeviceEnum])


def require_device(device: Any) -> str:
    """Import what the device needs and return what torch calls it. The processor needs nothing, torch neither.

    Raises:
        Unavailable: naming the device and what is missing.
    """
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
            raise Unavailable(label, f"it needs the vendor's {module}, which is not installed")
        try:
            load_extension(f"{module}, which {label} needs,", f"{module}:__name__")
        except OptestError as error:
            raise Unavailable(label, f"it needs the vendor's {module}: {error}") from None
    backend = getattr(torch, name, None)
    if backend is None or not backend.is_available():
        raise Unavailable(label, f"torch.{name} sees no device on this machine")
    return name


def prepare_device(device: Any) -> None:
    """:func:`require_device`, and what has to be done once: Ascend's first card is selected.

    Raises:
        Unavailable: naming the device and what is missing.
    """
    name = require_device(device)
    if infini_device(device) is InfiniDeviceEnum.ASCEND:
        getattr(loaded_torch(), name).set_device(0)


def synchronize_device(device: Any) -> None:
    """Wait until the device has finished; ``device`` is the header's number or torch's name.

    Raises:
        UnknownName: for neither; nothing is skipped in silence.
    """
    sync = get_sync_func(device)
    if sync is not None:
        sync()


def get_sync_func(device: Any) -> Callable[[], None] | None:
    """What waits for the device, None for the processor, whose calls are finished when they return."""
    name = torch_device_map[infini_device(device)]
    if name == "cpu":
        return None

    def synchronize() -> None:
        getattr(loaded_torch(), name).synchronize()

    return synchronize
