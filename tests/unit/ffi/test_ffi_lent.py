"""Large arrays handed to C where they lie: only those that have pages to themselves, with poison behind them."""

from __future__ import annotations

import faulthandler
import mmap
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from optest.clib.ffi.lent import lent_buffer
from optest.memory.poisons import Poison
from optest.memory.regions import page_region
from optest.numerics import Array
from optest.spec import TensorSpec, dtype

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.confstr("CS_GNU_LIBC_VERSION") is None, reason="needs glibc's malloc"
)
COUNT = 10 << 20
"""Of float32: above what glibc takes out of its own store, unless others gave as much back to it."""


def spec_of(array: Array) -> TensorSpec:
    return TensorSpec(dtype=dtype("float32"), shape=array.shape)


def ones(*shape: int) -> Array:
    """An array that has pages to itself; those that do not are kept until there is one."""
    arrays = []
    for _ in range(50):
        arrays.append(np.ones(shape, np.float32))
        if arrays[-1].ctypes.data % mmap.PAGESIZE == 16:  # where glibc's own pages begin, behind two words of its own
            return arrays[-1]
    raise AssertionError("malloc asks the kernel for no pages of their own (MALLOC_MMAP_MAX_?)")


def test_a_large_array_is_lent_with_poison_behind_it() -> None:
    array = ones(COUNT)
    buffer = lent_buffer(array.view(), spec_of(array), name="input a")
    assert buffer is not None
    assert buffer.address == array.ctypes.data
    assert np.shares_memory(buffer.array, array)
    buffer.cover_behind(Poison.NAN)
    behind = buffer.region.memory[buffer.region.end :]
    assert behind.size >= 256
    assert np.isnan(behind[: behind.size // 4 * 4].view(np.float32)).all()
    assert (array == 1).all()
    assert "behind the end of input a" in str(buffer.describe(buffer.address + array.nbytes))


def test_what_is_lent_can_be_protected_and_is_whole_again_afterwards() -> None:
    array = ones(COUNT)
    buffer = lent_buffer(array, spec_of(array), name="input a")
    assert buffer is not None
    buffer.region.protect(writeable=False)
    child = os.fork()
    if child == 0:  # a write ends this process
        faulthandler.disable()
        array[COUNT // 2] = 2
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == 11
    assert array[COUNT // 2] == 1
    buffer.region.protect(writeable=True)
    array[...] = 3
    assert (array == 3).all()


def test_what_shares_its_pages_or_is_not_dense_is_not_lent(tmp_path: Path) -> None:
    whole = np.ones(COUNT + 1, np.float32)
    array = ones(COUNT // 4, 4)
    mapped = np.memmap(tmp_path / "file", np.float32, "w+", shape=(COUNT,))
    fitting = np.ones((COUNT * 4 - 16 - 64) // 4, np.float32)
    assert lent_buffer(np.ones(8, np.float32), TensorSpec(dtype=dtype("float32"), shape=(8,)), name="") is None
    assert lent_buffer(whole[1:], spec_of(whole[1:]), name="") is None
    assert lent_buffer(array.T, spec_of(array.T), name="") is None
    assert lent_buffer(mapped, spec_of(mapped), name="") is None
    assert lent_buffer(np.frombuffer(bytes(COUNT * 4), np.float32), spec_of(whole[1:]), name="") is None
    assert lent_buffer(fitting, spec_of(fitting), name="") is None
    assert lent_buffer(array, spec_of(array), name="") is not None


def test_pages_are_taken_again_when_nobody_looks_at_them() -> None:
    size = 5 << 20
    first = page_region(size, at_end=True)
    first.memory.fill(7)
    first.protect(writeable=False)
    address, view = first.address, first.memory[:4].view(np.uint32)
    del first
    assert page_region(size, at_end=True).address != address  # a view is alive
    assert view[0] == 0x07070707
    del view
    found = [page_region(size, at_end=True) for _ in range(3)]
    assert address in [each.address for each in found]
    for each in found:
        each.memory.fill(1)
