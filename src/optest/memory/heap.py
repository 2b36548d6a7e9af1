"""The C heap: its allocated size, and its filling with a chosen byte, to reveal use of uninitialised memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from optest.memory.glibc import has_glibc_malloc
from optest.settings import environment

_BLOCKS_KEPT = 7
_TUNABLE = "glibc.malloc.tcache_count"
# Largest accepted number of free blocks per size that count as allocated: among more of them a leak is not visible.
_MOST_KEPT = 255


class _MallInfo(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def heap_bytes() -> int | None:
    """Return the bytes that ``malloc`` has allocated in this process, or None if they are unknown or inconclusive.

    They are from glibc's ``mallinfo2`` (all arenas and large blocks) or a sanitizer.
    They are inconclusive if Python allocates its objects by malloc, or hundreds of free blocks count as allocated.
    """
    count = _counter()
    return None if count is None else count()


@cache
def blocks_kept() -> int:
    """Return how many free blocks per size glibc caches for a thread; they count as allocated.

    It is the value in GLIBC_TUNABLES, else 7.
    """
    count = _BLOCKS_KEPT
    for tunable in environment().get("GLIBC_TUNABLES", "").split(":"):
        name, _, value = tunable.partition("=")
        if name == _TUNABLE and value.isascii() and value.isdecimal():
            count = int(value)
    return count


@cache
def _counter() -> Callable[[], int] | None:
    """Return a function that returns the allocated bytes, or None if there is no reliable one."""
    if environment().get("PYTHONMALLOC", "").startswith("malloc"):
        return None
    process = ctypes.CDLL(None)
    sanitized = getattr(process, "__sanitizer_get_current_allocated_bytes", None)
    # A sanitizer replaces glibc's malloc.
    if sanitized is not None:
        sanitized.restype = ctypes.c_size_t
        return lambda: int(sanitized())
    mallinfo2 = getattr(process, "mallinfo2", None)
    if mallinfo2 is None or not has_glibc_malloc() or blocks_kept() > _MOST_KEPT:
        return None
    mallinfo2.restype = _MallInfo

    def allocated_bytes() -> int:
        info = mallinfo2()
        return int(info.uordblks + info.hblkhd)

    return allocated_bytes


_M_PERTURB = -6
# Fresh blocks get the complement of the lowest eight bits; 0 would switch the filling off (`alloc_perturb`).
_COMPLEMENT_OF_FF = 0x100

# Usable sizes of the blocks that a thread caches; the small ones twice, since libraries allocate descriptors of them.
_SIZES = (*range(24, 264, 16), *range(24, 264, 16), *range(264, 1033, 16))

_WANTED = list(_SIZES)
_MOST_ROUNDS = 64
# More than the number of free blocks of one size in a process.
_MOST_LARGER = 100_000


def scribble(byte: int) -> None:
    """Fill free blocks and all later allocated blocks of malloc with ``byte``; do nothing without glibc's malloc.

    glibc has ``M_PERTURB`` for this (mallopt(3)), which does not affect the small blocks that each thread caches
    (glibc 2.26 and later). Those are allocated, written and freed, a few of each size. The setting and the cached
    blocks are only this thread's.
    """
    malloc = _malloc()
    if malloc is None:
        return
    malloc.mallopt(_M_PERTURB, byte ^ 0xFF or _COMPLEMENT_OF_FF)
    blocks = _written_with(malloc, byte)
    sizes = [malloc.usable_size(block) for block in blocks]
    if sizes != _WANTED:
        _write_blocks(malloc, byte, blocks)
    _free(malloc, blocks)
    again = [malloc.malloc(size) for size in _SIZES]
    if sizes != _WANTED or again != blocks:
        _write_blocks(malloc, byte, again)
    _free(malloc, again)
    rows = zip(_SIZES, sizes, blocks, again, strict=True)
    for size in {size for size, usable, block, taken in rows if usable != size or block != taken}:
        _write_next(malloc, byte, size)


def end_scribbling() -> None:
    """Stop the filling of fresh blocks, which :func:`scribble` began."""
    malloc = _malloc()
    if malloc is not None:
        malloc.mallopt(_M_PERTURB, 0)


@dataclass(frozen=True, slots=True)
class _Malloc:
    """Functions of glibc, with their argument types set."""

    mallopt: Any
    malloc: Any
    strdup: Any
    memset: Any
    free: Any
    usable_size: Any


def _written_with(malloc: _Malloc, byte: int) -> list[int]:
    """Allocate one block of each size, filled with ``byte``."""
    if byte:
        # strdup allocates and writes in one call
        return [malloc.strdup(text) for text in _block_texts(byte)]
    blocks = [malloc.malloc(size) for size in _SIZES]
    for block, size in zip(blocks, _SIZES, strict=True):
        malloc.memset(block, byte, size)
    return blocks


def _write_blocks(malloc: _Malloc, byte: int, blocks: list[int]) -> None:
    """Fill blocks with ``byte`` up to their usable size, which may be more than was requested."""
    for block in blocks:
        malloc.memset(block, byte, malloc.usable_size(block))


def _free(malloc: _Malloc, blocks: list[int]) -> None:
    """Free blocks in reverse order, so that malloc returns them in the same order again."""
    for block in reversed(blocks):
        malloc.free(block)


def _write_next(malloc: _Malloc, byte: int, size: int) -> None:
    """Allocate, write and free blocks of one size until malloc returns only written ones, at most 64 times."""
    # malloc moves other free blocks to the thread's cache, which is full before ours are freed.
    count = _SIZES.count(size)
    written: set[int] = set()
    for _ in range(_MOST_ROUNDS):
        # Allocate blocks of exactly that size, which the thread caches when they are freed. malloc returns a larger one
        # if the rest would be too small for a block: hold those until it has no more of them, or it would return the
        # same ones again and again, also to the library.
        blocks: list[int] = []
        larger: list[int] = []
        while len(blocks) < count and len(larger) < _MOST_LARGER:
            block = malloc.malloc(size)
            (blocks if malloc.usable_size(block) == size else larger).append(block)
        _write_blocks(malloc, byte, larger)
        _free(malloc, larger)
        unwritten = [block for block in blocks if block not in written]
        _write_blocks(malloc, byte, unwritten)
        written.update(unwritten)
        _free(malloc, blocks)
        if not unwritten:
            return


@cache
def _block_texts(byte: int) -> tuple[ctypes.c_char_p, ...]:
    """Return a C string of ``byte`` for each size, which fills a block except for its final NUL."""
    return tuple(ctypes.c_char_p(bytes([byte]) * (size - 1)) for size in _SIZES)


@cache
def _malloc() -> _Malloc | None:
    """Return the functions of glibc's malloc, or None if another malloc replaces it."""
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
