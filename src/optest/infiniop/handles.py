"""The library's handle: made for the device that is selected, and accounted for until it is destroyed."""

from __future__ import annotations

import ctypes
from typing import Any

from optest.infiniop.liboperators import LIBINFINIOP
from optest.infiniop.status import check_error
from optest.infiniop.structs import infiniopHandle_t

__all__ = ["create_handle", "destroy_handle"]


def create_handle() -> Any:
    """An ``infiniopHandle_t`` for the selected device.

    Raises:
        StatusError: if the library refuses.
        Unavailable: without a library.
    """
    handle = infiniopHandle_t()
    check_error(LIBINFINIOP.infiniopCreateHandle(ctypes.byref(handle)))
    return handle


def destroy_handle(handle: Any) -> None:
    """End a handle.

    Raises:
        HandleError: if it was destroyed already; C was not called.
        StatusError: if the library refuses.
    """
    check_error(LIBINFINIOP.infiniopDestroyHandle(handle))
