"""What each call loses is counted, whatever the heap looks like; what is taken for good once is no leak."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import subject_of

from optest.clib.library.mapping_file import mapping_path, read_mapping
from optest.clib.library.memory import CaseMemory
from optest.clib.probing.call_conditions import ConditionedCalls
from optest.clib.probing.case_probe import CaseProbe
from optest.clib.probing.policy import Policy
from optest.clib.probing.side_effects import require_no_leak_of_refusals
from optest.memory.glibc import has_glibc_malloc
from optest.spec import Fault, Reason, TensorSpec, dtype

pytestmark = pytest.mark.skipif(not has_glibc_malloc(), reason="needs glibc's malloc")


@pytest.fixture(scope="module", autouse=True)
def objects_of_other_tests_are_frozen() -> Iterator[None]:
    """As those of a worker are before its first case: the collector, which comes before each count, walks over them."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


process = ctypes.PyDLL(None)


@contextmanager
def collector_thresholds(*thresholds: int) -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def make_garbage() -> None:
    """Leave cycles of a megabyte together."""
    for _ in range(100):
        cycle: list[object] = [bytearray(10_000)]
        cycle.append(cycle)


process.malloc.argtypes, process.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
process.free.argtypes, process.free.restype = (ctypes.c_void_p,), None


@contextmanager
def free_blocks(size: int, count: int) -> Iterator[None]:
    """As many as a thread keeps for itself and ``count`` beside, each between taken ones."""
    taken = [process.malloc(size) for _ in range(2 * (7 + count))]
    for block in taken[::2]:
        process.free(block)
    process.free(process.malloc(5_000))  # which sorts them by their sizes
    yield
    for block in taken[1::2]:
        process.free(block)


class Losing:
    """Takes a block in every ``every``-th call, in the first ``most`` of them, and gives them back at the end."""

    def __init__(self, size: int, *, every: int = 1, most: int = 100_000) -> None:
        self.size, self.every, self.most = size, every, most
        self.calls = 0
        self.blocks = (ctypes.c_void_p * 20_000)()
        self.count = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls % self.every == 0 and self.calls <= self.most:
            self.blocks[self.count] = process.malloc(self.size)
            self.count += 1

    def end(self) -> None:
        for block in self.blocks[: self.count]:
            process.free(block)


def lost(call: Callable[[], None]) -> int:
    """Return the bytes that each call loses, -1 for another fault."""
    try:
        require_no_leak_of_refusals(call)
    except Fault as fault:
        return int(fault.details["bytes"]) if fault.reason is Reason.LEAK else -1
    return 0


def lost_among(size: int, every: int, free: int) -> int:
    losing = Losing(size, every=every)
    with free_blocks(size, free):
        found = lost(losing)
        losing.end()
    return found


@pytest.mark.parametrize(
    ("size", "every"),
    [
        (24, 2),
        *(pytest.param(*each, marks=pytest.mark.heavy) for each in [(24, 1), (40, 1), (40, 2), (1000, 1), (1000, 2)]),
    ],
)
def test_leak_is_detected_with_free_memory(size: int, every: int) -> None:
    """A block has eight bytes of malloc's own, and may be larger by sixteen."""
    for count in (*range(9), 13, 20, 39):
        assert (size + 8) // every <= lost_among(size, every, count) <= (size + 24) // every, count


@pytest.mark.parametrize("kept", [pytest.param(0, marks=pytest.mark.heavy), 127])
def test_leak_is_detected_for_any_malloc_cache(kept: int) -> None:
    """How many blocks a thread keeps for itself is told to glibc when a process begins."""
    program = "from test_leaks_counted import look_for_leaks; look_for_leaks()"
    path = os.pathsep.join((str(Path(__file__).parent), *sys.path))
    variables = {"GLIBC_TUNABLES": f"glibc.malloc.tcache_count={kept}", "PYTHONPATH": path}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def look_for_leaks() -> None:
    for size, every, count in itertools.product([24, 40, 1000], [1, 2], [0, 3, 10, 20, 40, 333]):
        assert lost_among(size, every, count) >= 16, (size, every, count)


@pytest.mark.parametrize("most", [1, 20, 60, 200, 340])
def test_filled_cache_is_no_leak(most: int) -> None:
    losing = Losing(1000, most=most)
    found = lost(losing)
    losing.end()
    assert found == 0


@pytest.mark.parametrize("call_of_garbage", [2, 12, 30, 60])
def test_collectable_garbage_hides_no_leak(call_of_garbage: int) -> None:
    losing = Losing(24)
    kept: list[list[int]] = []

    def call() -> None:
        losing()
        if losing.calls == call_of_garbage:
            kept.extend([] for _ in range(10_000))  # more than the collector waits for

    with collector_thresholds(5_000, 10, 10):
        make_garbage()
        found = lost(call)
    losing.end()
    assert found >= 32


CALLS_BEFORE_THE_HEAP_IS_READ = 2


def test_collectable_garbage_hides_no_growth() -> None:
    """A case whose leaks are not counted: the heap is read around the third and the fourth call. Cycles of a megabyte
    come to an end just before, and the collector, if it is awake, takes them in the third."""
    values = np.arange(9, dtype=np.float32)
    losing = Losing(100_000)  # no size that malloc keeps a store of

    def call(pointers: Mapping[str, Any]) -> None:
        pointers["output:out"].array[...] = pointers["input:input"].array
        losing()
        if losing.calls == CALLS_BEFORE_THE_HEAP_IS_READ:
            make_garbage()
        elif losing.calls == CALLS_BEFORE_THE_HEAP_IS_READ + 1 and gc.isenabled():
            gc.collect()

    entry = read_mapping(mapping_path("infiniop", "")).operators["relu"][0]
    memory = CaseMemory(entry, {"input": values}, {"out": TensorSpec(dtype=dtype("float32"), shape=values.shape)})
    with (
        collector_thresholds(1_000_000, 1_000, 1_000),
        pytest.raises(Fault, match=r"each call loses 1\d{5} bytes of the heap"),
    ):
        CaseProbe(ConditionedCalls(memory, subject_of(call), call, Policy()), None).run()
    losing.end()


class HoldsAFile:
    """Garbage as soon as nobody has its name, and closed when the collector comes by."""

    def __init__(self) -> None:
        self.file = open(os.devnull, "rb")
        self.itself = self


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts what /proc lists")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_garbage_with_files_hides_no_open_file() -> None:
    left: list[int] = []

    def refused() -> None:
        left.append(os.dup(0))
        gc.collect()

    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            HoldsAFile()
        with pytest.raises(Fault) as caught:
            require_no_leak_of_refusals(refused)
    finally:
        gc.enable()
        for each in left:
            os.close(each)
    assert caught.value.reason is Reason.LEAK
    assert caught.value.details["open files"] == len(left)
