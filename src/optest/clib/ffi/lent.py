"""A large array of NumPy's own handed to C without a copy, where it has pages to itself that can be protected."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from optest.memory.buffers import Buffer
from optest.memory.glibc import has_glibc_malloc
from optest.memory.poisons import Poison
from optest.memory.regions import Region
from optest.numerics import Array
from optest.spec import TensorSpec

__all__ = ["LENT_FROM_BYTES", "lent_buffer"]

LENT_FROM_BYTES = 1 << 22
_LEAST_BEHIND = 256
"""As many bytes as a guard zone has; with fewer behind it an array is copied."""

_HEADER_BYTES = 16
"""What glibc puts before a block that it took from the system by itself, at the start of a page (malloc/malloc.c)."""


def lent_buffer(values: Array, spec: TensorSpec, *, name: str) -> Buffer | None:
    """The memory of a dense array as a buffer: pages that may be read alone when they are protected.

    The page in which the array ends goes on with bytes that hold the poison. None where the array shares its pages,
    where it ends too close to the next one, or where this process does not have glibc's malloc.
    """
    nbytes = values.nbytes
    if nbytes < LENT_FROM_BYTES or not spec.is_dense or spec.offset or not values.flags.c_contiguous:
        return None
    owner = values
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    address = int(values.__array_interface__["data"][0])
    usable = _usable_bytes(owner)
    first = address - _HEADER_BYTES
    if usable is None or address != int(owner.__array_interface__["data"][0]) or first % mmap.PAGESIZE:
        return None
    size = usable + _HEADER_BYTES
    if size % mmap.PAGESIZE or usable - nbytes < _LEAST_BEHIND:
        return None
    block: Any = (ctypes.c_uint8 * size).from_address(first)
    memory: Array = np.frombuffer(block, np.uint8)
    region = Region(memory=memory, address=first, start=_HEADER_BYTES, size=nbytes, is_lent=True, owner=owner)
    return Buffer(name=name, spec=spec, poison=Poison.A5, address=address, region=region, array=values)


def _usable_bytes(owner: Array) -> int | None:
    """Of a block of malloc; None where NumPy did not ask malloc for it."""
    measure = _malloc_usable_size()
    if measure is None or not owner.flags.owndata or _handler(owner) != "default_allocator":
        return None
    return measure(owner.__array_interface__["data"][0])


def _handler(owner: Array) -> str:
    """The name of the allocator that an array's memory came from."""
    core = sys.modules.get("numpy._core.multiarray") or sys.modules.get("numpy.core.multiarray")
    return str(getattr(core, "get_handler_name", lambda _: "")(owner))


@cache
def _malloc_usable_size() -> Callable[[int], int] | None:
    if not has_glibc_malloc():
        return None
    function = ctypes.CDLL(None).malloc_usable_size
    function.argtypes, function.restype = (ctypes.c_void_p,), ctypes.c_size_t
    found: Callable[[int], int] = function
    return found
