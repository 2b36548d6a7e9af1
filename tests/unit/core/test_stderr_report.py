"""The last report in the output of a dead worker: a line of the driver about memory, or that of a sanitizer."""

from __future__ import annotations

import signal

import pytest
from texts import says_exactly

from optest.core.phases import Phase
from optest.core.worker_death import StderrReport, death, stderr_report
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


def report_in(tail: str) -> StderrReport:
    report = stderr_report(tail)
    assert report is not None
    return report


def test_driver_line_sets_reason() -> None:
    report = report_in("noise\noptest: [OUT_OF_BOUNDS] memory was written 4 bytes behind the end of output out\nmore\n")
    assert report.reason is Reason.OUT_OF_BOUNDS
    assert says_exactly(report.words, "core.memory_was_written_bytes")


@pytest.mark.parametrize("line", ["memory was read (address 0x0)", "[NONSENSE] memory was read (address 0x0)"])
def test_line_without_known_reason_has_none(line: str) -> None:
    report = report_in(f"optest: {line}\n")
    assert (report.reason, report.words) == (None, "memory was read (address 0x0)")


def test_report_has_first_line_and_library_frames() -> None:
    report = report_in(ASAN)
    assert report.reason is Reason.SANITIZER
    assert report.words.splitlines() == [
        "AddressSanitizer: heap-buffer-overflow on address 0x602000000070 at pc 0x7f bp 0x7ffd sp 0x7ffd",
        "  #0 0x7f1 in infiniopRelu bad.c:3",
        "  #1 0x7f2 in helper bad.c:9",
    ]


def test_last_report_precedes_driver_line() -> None:
    first, second = "a.c:1:2: runtime error: first\n", "b.c:3:4: runtime error: second\n    #0 1 in f b.c:3\n"
    report = report_in(f"{first}optest: [OUT_OF_BOUNDS] words\n{second}")
    assert says_exactly(report.words, "core.runtime_error_second_in")


def test_output_without_report() -> None:
    assert stderr_report("Fatal Python error: Segmentation fault\n  File 'x.py'\n") is None


def test_corrupted_heap_blames_backend() -> None:
    tail = "corrupted size vs. prev_size\nFatal Python error: Aborted"
    verdict = death(Phase.COMPARE, None, signal.SIGABRT, tail)
    assert (verdict.status, verdict.reason) == (Status.CRASHED, Reason.SIGNAL)
    assert "corrupted size" in verdict.message
    assert death(Phase.COMPARE, None, signal.SIGABRT, "Fatal Python error: Aborted").status is Status.ERROR
    assert death(Phase.GENERATE, None, signal.SIGABRT, tail).status is Status.ERROR
