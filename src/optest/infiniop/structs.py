"""C structures behind the interface's pointers; Python never reads their fields."""

from __future__ import annotations

import ctypes
from typing import Any


class TensorDescriptor(ctypes.Structure):
    """Opaque descriptor of a tensor."""

    _fields_ = ()


class Handle(ctypes.Structure):
    _fields_ = (("device", ctypes.c_int), ("device_id", ctypes.c_int))


class OpDescriptor(ctypes.Structure):
    _fields_ = (("device", ctypes.c_int), ("device_id", ctypes.c_int))


_TensorPointer: Any = ctypes.POINTER(TensorDescriptor)
_HandlePointer: Any = ctypes.POINTER(Handle)


class _Tagged:
    """Pointer with a ``tag``, by which a checked call refuses a descriptor in place of a handle."""

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


# Without a tag: libraries differ in whether each operator has its own structure.
infiniopOperatorDescriptor_t = ctypes.POINTER(OpDescriptor)  # noqa: N816 - the header's name
