"""Whatever the state of the heap, the next blocks from malloc hold the requested byte."""

from __future__ import annotations

import ctypes
import gc
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from optest.memory.glibc import has_glibc_malloc
from optest.memory.heap import end_scribbling, scribble

pytestmark = pytest.mark.skipif(not has_glibc_malloc(), reason="needs glibc's malloc")

process = ctypes.PyDLL(None)
process.malloc.argtypes, process.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
process.free.argtypes, process.free.restype = (ctypes.c_void_p,), None


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Disable the collector, which would free blocks."""
    gc.disable()
    yield
    gc.enable()
    end_scribbling()


def taken(*sizes: int) -> list[int]:
    return [process.malloc(size) for size in sizes]


def freed(blocks: list[int]) -> None:
    for block in blocks:
        process.free(block)


def held(block: int, size: int) -> bytes:
    """Return the content of a block behind malloc's own two words; the last byte ends the text."""
    return ctypes.string_at(block, size - 1)[16:]


@contextmanager
def free_blocks(size: int, seed: int) -> Iterator[None]:
    """Free blocks of the size and of the next one, more than a thread keeps, with taken ones between them.

    Now and then hundreds of the next one alone, which malloc gives for ours since what is left over would be no block.
    """
    choice = random.Random(seed)
    if seed % 5 == 0:
        blocks = taken(*([size + 16] * 1000))
    else:
        blocks = taken(*(size + choice.choice((0, 0, 16)) for _ in range(choice.randrange(80))))
    for block in blocks:
        ctypes.memset(block, 0x33, size)
    kept, others = blocks[::2], blocks[1::2]
    choice.shuffle(others)
    freed(others)
    kept += taken(*([size] * choice.randrange(9 if seed % 5 else 20)))
    yield
    freed(kept)


@pytest.mark.parametrize("byte", [0x00, 0xFF])
@pytest.mark.parametrize(("size", "count"), [(24, 2), (40, 2), (120, 2), (248, 2), (280, 1), (520, 1), (776, 1)])
def test_next_blocks_hold_the_byte(byte: int, size: int, count: int) -> None:
    for seed in range(200):
        with free_blocks(size, seed):
            scribble(byte)
            blocks = taken(*[size] * count)
            contents = [held(block, size) for block in blocks]
            end_scribbling()
        freed(blocks)
        assert [set(content) for content in contents] == [{byte}] * count, seed


@pytest.mark.parametrize("size", [1100, 5000, 200_000, 10_000_000])
@pytest.mark.parametrize("byte", [0x5A, 0x00])
def test_blocks_beyond_thread_cache_hold_the_byte(byte: int, size: int) -> None:
    scribble(byte)
    (block,) = taken(size)
    content = held(block, size)
    end_scribbling()
    freed([block])
    assert set(content) == {byte}


def test_fresh_blocks_are_clean_after_end() -> None:
    scribble(0xFF)
    end_scribbling()
    blocks = taken(64_000_000)
    while not is_of_the_kernel(blocks[-1]):  # its store may hold as much, of which others wrote to
        assert len(blocks) < 50, "malloc asks the kernel for nothing (MALLOC_MMAP_MAX_?)"
        blocks += taken(64_000_000)
    content = ctypes.string_at(blocks[-1], 4096)
    freed(blocks)
    assert content == bytes(4096)


def is_of_the_kernel(block: int) -> bool:
    """Return whether malloc mapped this block by itself: second bit of the size before it (malloc/malloc.c)."""
    return bool(ctypes.c_size_t.from_address(block - 8).value & 2)
