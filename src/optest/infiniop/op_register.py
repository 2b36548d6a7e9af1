"""Signatures written by hand, for what no header declares; where there is a header they are held against it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import POINTER
from typing import Any, ClassVar

from optest.clib.ffi.registration import Declared, SignatureRegistry
from optest.infiniop.structs import infiniopHandle_t, infiniopTensorDescriptor_t

__all__ = ["CORE_FUNCTIONS", "OpRegister"]

Configure = Callable[[Any], None]


class OpRegister:
    """Collects functions that set ``argtypes`` and ``restype`` on the library; none runs before a library is used."""

    registry: ClassVar[list[Configure]] = []

    @classmethod
    def operator(cls, op: Configure) -> Configure:
        """Decorator over ``def add_(lib): lib.infiniopAdd.argtypes = [...]``."""
        cls.registry.append(op)
        return op

    @classmethod
    def register_lib(cls, lib: Any) -> None:
        """Hold everything that was registered against the library's header.

        It is not needed before a call: each function is checked when it is used, so that one that is wrong or missing
        breaks no other.

        Raises:
            Drift: naming every argument that is not the header's.
        """
        lib.check_registrations()

    @classmethod
    def declared(cls) -> Mapping[str, Declared]:
        """Every signature that was registered, by the function's name; a later registration wins."""
        signatures = SignatureRegistry()
        for configure in (_core, *cls.registry):
            signatures.operator(configure)
        return signatures.declared()


CORE_FUNCTIONS = (
    "infiniopCreateTensorDescriptor",
    "infiniopDestroyTensorDescriptor",
    "infiniopCreateHandle",
    "infiniopDestroyHandle",
    "infinirtSetDevice",
)


def _core(lib: Any) -> None:
    """What every library of this interface has, for one that comes without headers."""
    lib.infiniopCreateTensorDescriptor.argtypes = [
        POINTER(infiniopTensorDescriptor_t),
        ctypes.c_uint64,
        POINTER(ctypes.c_uint64),
        POINTER(ctypes.c_int64),
        ctypes.c_int,
    ]
    lib.infiniopDestroyTensorDescriptor.argtypes = [infiniopTensorDescriptor_t]
    lib.infiniopCreateHandle.argtypes = [POINTER(infiniopHandle_t)]
    lib.infiniopDestroyHandle.argtypes = [infiniopHandle_t]
    lib.infinirtSetDevice.argtypes = [ctypes.c_int, ctypes.c_int]
