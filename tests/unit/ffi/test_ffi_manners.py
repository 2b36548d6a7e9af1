"""What C code leaves behind in its process: floating-point mode, printed lines, the heap."""

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
_UPWARD = 0x800
"""FE_UPWARD of x86-64."""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of a rounding mode is x86-64's")
def test_another_rounding_mode_is_told_and_put_back() -> None:
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


def test_flags_that_operations_set_are_no_change() -> None:
    control = FloatControl()
    assert 1.0 / 3.0 != 0.3
    assert float("1e300") * float("1e300") == float("inf")
    assert control.changed() == ""


def test_what_is_printed_in_c_is_caught_with_its_calls_counted(capfd: pytest.CaptureFixture[str]) -> None:
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


@pytest.mark.parametrize(("printed_each_time", "length"), [(b"a line of a few words\n", 1980), (b"no line ", 2000)])
def test_of_much_that_is_printed_whole_lines_are_kept(printed_each_time: bytes, length: int) -> None:
    printed = Printed()
    with printed:
        os.write(1, printed_each_time * 300)
    text = printed.text()
    assert text.encode() == (printed_each_time * 300)[:length]
    printed.close()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_standard_output_that_was_closed_is_told_and_there_again(
    is_replaced: bool, capfd: pytest.CaptureFixture[str]
) -> None:
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
def test_the_heap_knows_what_was_handed_out(size: int) -> None:
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
    assert before is not None
    assert during is not None
    assert after is not None
    assert size <= during - before < size + 10_000
    assert during - after >= size
