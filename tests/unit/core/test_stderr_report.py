"""What a dead worker said last: our own line about memory, or the report of a sanitizer."""

from __future__ import annotations

import signal

from texts import says_exactly

from optest.core.phases import Phase
from optest.core.worker_death import death, stderr_report
from optest.spec import Reason, Status

ASAN = """\
Fatal noise
=================================================================
==4711==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x602000000070 at pc 0x7f bp 0x7ffd sp 0x7ffd
READ of size 4 at 0x602000000070 thread T0
    #0 0x7f1 in infiniopRelu bad.c:3
    #1 0x7f2 in helper bad.c:9
    #2 0x7f3  (/lib/x86_64-linux-gnu/libffi.so.8+0x6f79)
    #3 0x7f4 in PyObject_Vectorcall Objects/call.c:299
"""


def test_our_own_line_brings_its_reason() -> None:
    found = stderr_report(
        "noise\noptest: [OUT_OF_BOUNDS] memory was written 4 bytes behind the end of output out\nmore\n"
    )
    assert found is not None
    assert found.reason is Reason.OUT_OF_BOUNDS
    assert says_exactly(found.words, "core.memory_was_written_bytes")


def test_a_line_without_a_reason_leaves_the_signal_s() -> None:
    found = stderr_report("optest: memory was read through a null pointer (address 0x0)\n")
    assert found is not None
    assert (found.reason, found.words) == (None, "memory was read through a null pointer (address 0x0)")


def test_a_reason_that_does_not_exist_is_none() -> None:
    found = stderr_report("optest: [NONSENSE] words\n")
    assert found is not None
    assert found.reason is None


def test_a_report_is_its_first_line_and_the_library_s_own_frames() -> None:
    found = stderr_report(ASAN)
    assert found is not None
    assert found.reason is Reason.SANITIZER
    assert found.words.splitlines() == [
        "AddressSanitizer: heap-buffer-overflow on address 0x602000000070 at pc 0x7f bp 0x7ffd sp 0x7ffd",
        "  #0 0x7f1 in infiniopRelu bad.c:3",
        "  #1 0x7f2 in helper bad.c:9",
    ]


def test_the_last_report_counts_and_is_preferred_to_our_line() -> None:
    first, second = "a.c:1:2: runtime error: first\n", "b.c:3:4: runtime error: second\n    #0 1 in f b.c:3\n"
    found = stderr_report(f"{first}optest: [OUT_OF_BOUNDS] words\n{second}")
    assert found is not None
    assert says_exactly(found.words, "core.runtime_error_second_in")


def test_nothing_of_its_own() -> None:
    assert stderr_report("Fatal Python error: Segmentation fault\n  File 'x.py'\n") is None


def test_a_broken_heap_is_the_backends() -> None:
    tail = "corrupted size vs. prev_size\nFatal Python error: Aborted"
    verdict = death(Phase.COMPARE, None, signal.SIGABRT, tail)
    assert (verdict.status, verdict.reason) == (Status.CRASHED, Reason.SIGNAL)
    assert "corrupted size" in verdict.message
    assert death(Phase.COMPARE, None, signal.SIGABRT, "Fatal Python error: Aborted").status is Status.ERROR
    assert death(Phase.GENERATE, None, signal.SIGABRT, tail).status is Status.ERROR
