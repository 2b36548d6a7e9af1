"""What fresh and freed heap memory holds: bytes of our choice, so that a result that depends on them shows it.

glibc has ``M_PERTURB`` for this (mallopt(3)), which does not reach the small blocks that each thread keeps for itself
(glibc 2.26 and later). Those are taken, written and freed again, a few of each size; both are this thread's alone.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

from optest.memory.glibc import has_glibc_malloc

_M_PERTURB = -6
_COMPLEMENT_OF_FF = 0x100
"""Fresh blocks get the complement of the lowest eight bits; 0 would be the end of it (``alloc_perturb``)."""

_SIZES = (*range(24, 264, 16), *range(24, 264, 16), *range(264, 1033, 16))
"""Usable sizes of the blocks that a thread keeps: several of the small ones, of which descriptors are made."""

_WANTED = list(_SIZES)
_MOST_ROUNDS = 64
_MOST_LARGER = 100_000
"""More free blocks of one size than a process has."""


def is_possible() -> bool:
    return _malloc() is not None


def scribble(byte: int) -> None:
    """From now on blocks of malloc that nobody has written, and those that are free, hold ``byte``."""
    malloc = _malloc()
    if malloc is None:
        return
    malloc.mallopt(_M_PERTURB, byte ^ 0xFF or _COMPLEMENT_OF_FF)
    blocks = _written_with(malloc, byte)
    sizes = [malloc.usable_size(block) for block in blocks]
    if sizes != _WANTED:
        _write(malloc, byte, blocks)
    _free(malloc, blocks)
    again = [malloc.malloc(size) for size in _SIZES]
    if sizes != _WANTED or again != blocks:
        _write(malloc, byte, again)
    _free(malloc, again)
    rows = zip(_SIZES, sizes, blocks, again, strict=True)
    for size in {size for size, usable, block, taken in rows if usable != size or block != taken}:
        _write_next(malloc, byte, size)


def end() -> None:
    """Fresh blocks hold again what they hold without us."""
    malloc = _malloc()
    if malloc is not None:
        malloc.mallopt(_M_PERTURB, 0)


@dataclass(frozen=True, slots=True)
class _Malloc:
    """Functions of glibc."""

    mallopt: Any
    malloc: Any
    strdup: Any
    memset: Any
    free: Any
    usable_size: Any


def _written_with(malloc: _Malloc, byte: int) -> list[int]:
    """One block for each of the sizes."""
    if byte:  # a copy of a text takes and writes in one call
        return [malloc.strdup(text) for text in _texts(byte)]
    blocks = [malloc.malloc(size) for size in _SIZES]
    for block, size in zip(blocks, _SIZES, strict=True):
        malloc.memset(block, byte, size)
    return blocks


def _write(malloc: _Malloc, byte: int, blocks: list[int]) -> None:
    """To the very end, which a block of another size has elsewhere."""
    for block in blocks:
        malloc.memset(block, byte, malloc.usable_size(block))


def _free(malloc: _Malloc, blocks: list[int]) -> None:
    """So that they are taken again in the same order."""
    for block in reversed(blocks):
        malloc.free(block)


def _write_next(malloc: _Malloc, byte: int, size: int) -> None:
    """Take, write and free blocks of a size until those that come first are written.

    malloc moves other free blocks to the thread's own, which are full before ours come back.
    """
    count = _SIZES.count(size)
    written: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        # Take blocks of that very size, which the thread keeps for itself when they are freed. malloc gives larger ones
        # where what would be left over is too small to be a block: keep those back until it has no more of them, or it
        # would give the same ones again and again, the library among others.
        blocks: list[int] = []
        larger: list[int] = []
        while len(blocks) < count and len(larger) < _MOST_LARGER:
            block = malloc.malloc(size)
            (blocks if malloc.usable_size(block) == size else larger).append(block)
        _write(malloc, byte, larger)
        _free(malloc, larger)
        others = [block for block in blocks if block not in written]
        _write(malloc, byte, others)
        written.update(others)
        _free(malloc, blocks)
        if not others:
            return


@cache
def _texts(byte: int) -> tuple[ctypes.c_char_p, ...]:
    """One that fills each block up to its last byte, the end of the text."""
    return tuple(ctypes.c_char_p(bytes([byte]) * (size - 1)) for size in _SIZES)


@cache
def _malloc() -> _Malloc | None:
    """None under another malloc, a sanitizer's among them."""
    if not has_glibc_malloc():
        return None
    process = ctypes.PyDLL(None)
    malloc = _Malloc(
        process.mallopt, process.malloc, process.strdup, process.memset, process.free, process.malloc_usable_size
    )
    malloc.usable_size.argtypes, malloc.usable_size.restype = (ctypes.c_void_p,), ctypes.c_size_t
    malloc.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    malloc.malloc.argtypes, malloc.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
    malloc.strdup.argtypes, malloc.strdup.restype = (ctypes.c_char_p,), ctypes.c_void_p
    malloc.memset.argtypes, malloc.memset.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), None
    malloc.free.argtypes, malloc.free.restype = (ctypes.c_void_p,), None
    return malloc
