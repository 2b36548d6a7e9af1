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
        if lib.header is not None:
            cls._signatures().check(lib.header)

    @classmethod
    def declared(cls, name: str) -> Declared | None:
        """The signature of a function that was registered; a later registration wins."""
        core = Declared(_CORE[name]) if name in _CORE else None
        return cls._signatures().declared().get(name, core)

    @classmethod
    def _signatures(cls) -> SignatureRegistry:
        signatures = SignatureRegistry()
        for configure in cls.registry:
            signatures.operator(configure)
        return signatures


_CORE: Mapping[str, list[Any]] = {
    "infiniopCreateTensorDescriptor": [
        POINTER(infiniopTensorDescriptor_t),
        ctypes.c_uint64,
        POINTER(ctypes.c_uint64),
        POINTER(ctypes.c_int64),
        ctypes.c_int,
    ],
    "infiniopDestroyTensorDescriptor": [infiniopTensorDescriptor_t],
    "infiniopCreateHandle": [POINTER(infiniopHandle_t)],
    "infiniopDestroyHandle": [infiniopHandle_t],
    "infinirtSetDevice": [ctypes.c_int, ctypes.c_int],
}
"""What every library of this interface has, for one that comes without headers."""
CORE_FUNCTIONS = frozenset(_CORE)
