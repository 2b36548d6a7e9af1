"""Side effects of C code on its process: floating-point mode, printed lines, the heap."""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import os

import pytest

from optest.memory.heap import heap_bytes
from optest.process.float_control import FloatControl
from optest.process.standard_output import Printed

_LIBC = ctypes.CDLL(None)
_UPWARD = 0x800  # FE_UPWARD of x86-64


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of a rounding mode is x86-64's")
def test_changed_rounding_mode_is_reported_and_restored() -> None:
    control = FloatControl()
    assert FloatControl.is_possible()
    assert control.changed() == ""
    ctypes.CDLL(ctypes.util.find_library("m")).fesetround(_UPWARD)
    try:
        assert 1.0 + 2.0**-60 > 1.0
        assert control.changed().startswith("rounding upward (0x")
    finally:
        control.changed()
    assert 1.0 + 2.0**-60 == 1.0
    assert control.changed() == ""


def test_operation_flags_are_no_change() -> None:
    control = FloatControl()
    assert 1.0 / 3.0 != 0.3
    assert float("1e300") * float("1e300") == float("inf")
    assert control.changed() == ""


def test_c_output_is_captured_and_counted(capfd: pytest.CaptureFixture[str]) -> None:
    printed = Printed()
    _LIBC.puts(b"before")
    with printed:
        assert printed.mark() == 0
        _LIBC.puts(b"inside")
        assert printed.mark() == 7
        os.write(1, b"and raw\n")
        assert printed.mark() == 15
    _LIBC.puts(b"behind")
    _LIBC.fflush(None)
    assert printed.text() == "inside\nand raw\n"
    with printed:
        pass
    assert printed.text() == ""
    printed.close()
    assert capfd.readouterr().out == "before\nbehind\n"


@pytest.mark.parametrize(("line", "length"), [(b"a line of a few words\n", 1980), (b"no line ", 2000)])
def test_long_output_is_truncated_to_whole_lines(line: bytes, length: int) -> None:
    printed = Printed()
    with printed:
        os.write(1, line * 300)
    assert printed.text().encode() == (line * 300)[:length]
    printed.close()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_closed_standard_output_is_reported_and_restored(is_replaced: bool, capfd: pytest.CaptureFixture[str]) -> None:
    printed = Printed()
    with printed:
        os.write(1, b"inside\n")
        os.close(1)
        if is_replaced:
            assert os.open(os.devnull, os.O_WRONLY) == 1
    assert printed.was_taken
    assert printed.text() == "inside\n"
    with printed:
        pass
    assert not printed.was_taken
    printed.close()
    os.write(1, b"behind\n")
    assert capfd.readouterr().out == "behind\n"


@pytest.mark.skipif(heap_bytes() is None, reason="the heap is not glibc's")
@pytest.mark.parametrize("size", [100_000, 10_000_000])
def test_heap_bytes_count_allocations(size: int) -> None:
    _LIBC.malloc.restype = ctypes.c_void_p
    gc.collect()
    gc.disable()  # what it frees would be counted
    try:
        before = heap_bytes()
        pointer = ctypes.c_void_p(_LIBC.malloc(ctypes.c_size_t(size)))
        during = heap_bytes()
        _LIBC.free(pointer)
        after = heap_bytes()
    finally:
        gc.enable()
    assert None not in (before, during, after)
    assert size <= during - before < size + 10_000
    assert during - after >= size
