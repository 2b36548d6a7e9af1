"""A crash names the buffer and the byte, and the process still dies of it."""

from __future__ import annotations

import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from texts import says, says_exactly

from optest.clib.ffi.faults import FaultReport, describe_fault
from optest.memory.buffer_sets import workspace_buffer
from optest.memory.buffers import Buffer
from optest.spec import Reason, TensorSpec, dtype

pytestmark = pytest.mark.skipif(not FaultReport.is_possible(), reason="needs 64-bit Linux")

SOURCE = """
#include <pthread.h>
#include <stddef.h>
float read_at(const float *x, ptrdiff_t index) { return x[index]; }
void write_at(float *x, ptrdiff_t index) { x[index] = 1.0f; }
static float *shared;
static void *worker(void *index) { shared[(ptrdiff_t)index] = 2.0f; return NULL; }
void write_in_thread(float *x, ptrdiff_t index) {
  pthread_t thread;
  shared = x;
  pthread_create(&thread, NULL, worker, (void *)index);
  pthread_join(thread, NULL);
}
"""
PROGRAM = """
import ctypes, faulthandler, sys
from optest.clib.ffi.faults import FaultReport
from optest.memory.buffers import Buffer
from optest.memory.regions import Placement
from optest.spec import TensorSpec, dtype
faulthandler.enable()
library, function, placement, index = sys.argv[1:]
spec = TensorSpec(dtype=dtype("float32"), shape=(2, 3))
buffers = [Buffer.allocate(spec, name=name, placement=Placement[placement]) for name in ("x", "y")]
call = getattr(ctypes.CDLL(library), function)
call.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
with FaultReport(buffers):
    call(None if index == "null" else buffers[1].address, 0 if index == "null" else int(index))
print("survived")
"""
DID_READ = "read" if platform.machine() == "x86_64" else "accessed"
DID_WRITE = "written" if platform.machine() == "x86_64" else "accessed"
KNOWN = platform.machine() == "x86_64"
READ = f"{'[READ_OUT_OF_BOUNDS] ' if KNOWN else ''}memory was {DID_READ} "
WROTE = f"{'[OUT_OF_BOUNDS] ' if KNOWN else ''}memory was {DID_WRITE} "
Y = "y (float32[2x3])"


@pytest.mark.cxx
@pytest.mark.parametrize(
    ("function", "placement", "index", "words"),
    [
        ("read_at", "PAGES_END", "6", f"{READ}0 bytes behind the end of {Y}, 1 element behind the last"),
        ("write_at", "PAGES_END", "8", f"{WROTE}8 bytes behind the end of {Y}, 3 elements behind the last"),
        ("write_at", "PAGES_START", "-1", f"{WROTE}4 bytes before the start of {Y}, 1 element before the first"),
        ("write_in_thread", "PAGES_END", "7", f"{WROTE}4 bytes behind the end of {Y}, 2 elements behind the last"),
        ("write_at", "HEAP", "null", f"memory was {DID_WRITE} through a null pointer (address 0x0)"),
    ],
)
def test_crash_names_the_buffer(
    build_library, tmp_path: Path, function: str, placement: str, index: str, words: str
) -> None:
    library = build_library(SOURCE, folder=tmp_path, flags=("-pthread",))
    process = run(str(library), function, placement, index)
    assert process.returncode == -signal.SIGSEGV
    assert process.stdout == ""
    assert f"optest: {words}\n" in process.stderr
    assert says(process.stderr, "ffi.fatal_python_error_segmentation"), "faulthandler was there before, and is still"


@pytest.mark.cxx
def test_valid_access_reports_nothing(build_library, tmp_path: Path) -> None:
    library = build_library(SOURCE, folder=tmp_path, flags=("-pthread",))
    process = run(str(library), "write_at", "PAGES_END", "5")
    assert (process.returncode, process.stdout, process.stderr) == (0, "survived\n", "")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=600)


def test_nearest_buffer_is_named() -> None:
    spec = TensorSpec(dtype=dtype("int8"), shape=(8,))
    one = Buffer.allocate(spec, name="one")
    assert says_exactly(describe_fault(one.address + 9, [one])[1], "ffi.memory_was_touched_byte")
    assert says_exactly(describe_fault(one.address + 2, [one], wrote=False)[1], "ffi.memory_was_read_at")
    assert describe_fault(1 << 62, [one], wrote=True)[1] == f"memory was written at {1 << 62:#x}, near no buffer"


def test_fault_next_to_buffer_has_access_reason() -> None:
    one = Buffer.allocate(TensorSpec(dtype=dtype("int8"), shape=(8,)), name="one")
    behind = one.address + 8
    assert describe_fault(behind, [one], wrote=True)[0] is Reason.OUT_OF_BOUNDS
    assert describe_fault(behind, [one], wrote=False)[0] is Reason.READ_OUT_OF_BOUNDS
    assert describe_fault(behind, [one], wrote=None)[0] is Reason.SIGNAL
    assert describe_fault(behind - 1, [one], wrote=True)[0] is Reason.INPUT_MUTATED, "it may be read alone"
    assert describe_fault(behind - 1, [one], wrote=False)[0] is Reason.SIGNAL
    assert describe_fault(0, [one], wrote=True)[0] is Reason.SIGNAL


def test_fault_next_to_workspace_is_workspace_fault() -> None:
    tensor = Buffer.allocate(TensorSpec(dtype=dtype("int8"), shape=(8,)), name="output out")
    buffers = [tensor, workspace_buffer(64)]
    start = buffers[1].address
    for address in (start - 1, start + 64):
        assert describe_fault(address, buffers, wrote=True)[0] is Reason.WORKSPACE
        assert describe_fault(address, buffers, wrote=False)[0] is Reason.WORKSPACE
    assert describe_fault(tensor.address + 8, buffers, wrote=True)[0] is Reason.OUT_OF_BOUNDS
