"""The C structures that the interface hands out as pointers; nobody looks into them."""

from __future__ import annotations

import ctypes
from typing import Any


class TensorDescriptor(ctypes.Structure):
    """Opaque."""

    _fields_ = ()


class Handle(ctypes.Structure):
    _fields_ = (("device", ctypes.c_int), ("device_id", ctypes.c_int))


class OpDescriptor(ctypes.Structure):
    _fields_ = (("device", ctypes.c_int), ("device_id", ctypes.c_int))


_TensorPointer: Any = ctypes.POINTER(TensorDescriptor)
_HandlePointer: Any = ctypes.POINTER(Handle)


class _Tagged:
    """What a checked call asks of a handle: a descriptor in the place of a handle is refused by ``tag``."""

    tag: str

    @property
    def address(self) -> int | None:
        return ctypes.cast(self, ctypes.c_void_p).value  # type: ignore[arg-type]


class infiniopTensorDescriptor_t(_Tagged, _TensorPointer):  # type: ignore[misc]  # noqa: N801 - the header's name
    _type_ = TensorDescriptor
    tag = "InfiniopTensorDescriptor"


class infiniopHandle_t(_Tagged, _HandlePointer):  # type: ignore[misc]  # noqa: N801 - the header's name
    _type_ = Handle
    tag = "InfiniopHandle"


infiniopOperatorDescriptor_t = ctypes.POINTER(OpDescriptor)  # noqa: N816 - the header's name
"""Of any operator; libraries differ in whether each has a structure of its own, so it has no tag."""
