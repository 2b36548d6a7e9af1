"""Report a memory fault before the process dies: its address, described relative to the buffers of the case.

Layout of the structures: glibc and musl on 64-bit Linux (bits/sigaction.h, bits/types/siginfo_t.h, sys/ucontext.h).
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Iterable
from functools import cache
from types import TracebackType
from typing import Any

from optest.memory.buffer_sets import WORKSPACE
from optest.memory.buffers import Buffer
from optest.spec import Reason

_SIGNALS = _SIGSEGV, _SIGBUS = 11, 7
_SA_SIGINFO, _SA_NODEFER = 0x4, 0x40000000  # NODEFER: a fault inside the handler must reach the previous handler, too.
_ADDRESS_IN_SIGINFO = 16
# x86-64: flags, link and stack take 40 bytes, REG_ERR is the 20th register; its bit 1 is set for a write.
_ERROR_CODE_IN_UCONTEXT = 40 + 19 * 8
_WRITE_BIT = 2
_HANG_S = 5
_STDERR = 2

_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class _Action(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


def describe_fault(address: int, buffers: Iterable[Buffer], *, wrote: bool | None = None) -> tuple[Reason, str]:
    """Return the reason for a fault at ``address`` and a description: the nearest buffer, a null pointer or neither.

    Near a buffer but outside it: OUT_OF_BOUNDS for a write, READ_OUT_OF_BOUNDS for a read, WORKSPACE for both near the
    workspace. Inside a buffer, a write is one into a read-only input: INPUT_MUTATED. All others, and those of which
    ``wrote`` is unknown: SIGNAL.
    """
    access = {True: "written", False: "read", None: "accessed"}[wrote]
    near = []
    for buffer in buffers:
        if text := buffer.describe(address):
            start = buffer.region.address + buffer.region.start
            distance = max(start - address, address - (start + buffer.region.size) + 1, 0)  # 0 inside the buffer
            near.append((distance, text, buffer.name))
    if not near:
        # Fields and elements behind a null pointer have small addresses, too.
        is_null = address < 1 << 16
        location = f"through a null pointer (address {address:#x})" if is_null else f"at {address:#x}, near no buffer"
        return Reason.SIGNAL, f"memory was {access} {location}"
    distance, text, name = min(near)
    if wrote is None or (distance == 0 and not wrote):
        reason = Reason.SIGNAL
    elif distance == 0:
        reason = Reason.INPUT_MUTATED
    elif name == WORKSPACE:
        reason = Reason.WORKSPACE
    else:
        reason = Reason.OUT_OF_BOUNDS if wrote else Reason.READ_OUT_OF_BOUNDS
    return reason, f"memory was {access} {text}"


class FaultReport:
    """Context manager: a SIGSEGV or SIGBUS writes one line to standard error; then the process dies as usual.

    The line is ``optest: [reason] description``, without the reason if that is SIGNAL. Earlier handlers (Python's
    faulthandler) still run. Of nested reports the innermost writes.
    """

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self._buffers = tuple(buffers)
        self._previous: list[tuple[int, Any]] = []
        self._outer: FaultReport | None = None

    @staticmethod
    def is_possible() -> bool:
        """Return whether this is 64-bit Linux, whose structures this module knows."""
        return sys.platform == "linux" and sys.maxsize > 2**32

    def __enter__(self) -> FaultReport:
        global _watching
        if self.is_possible():
            self._outer, _watching = _watching, self
            for number in _SIGNALS:
                previous = _Action()
                if _sigaction()(number, _handler_action(), ctypes.byref(previous)) == 0:
                    self._previous.append((number, previous))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        global _watching
        if _watching is self:
            _watching = self._outer
        while self._previous:
            number, previous = self._previous.pop()
            _sigaction()(number, ctypes.byref(previous), None)

    def report(self, info: int, context: int) -> None:
        """Write the line and restore the handlers; the faulting instruction then meets the previous handler."""
        while _watching is not None:
            _watching._restore_handlers()
        # Should the heap be corrupt and this handler hang, the alarm ends the process.
        _libc().alarm(_HANG_S)
        address = ctypes.c_uint64.from_address(info + _ADDRESS_IN_SIGINFO).value
        reason, text = describe_fault(address, self._buffers, wrote=_wrote(context))
        prefix = "" if reason is Reason.SIGNAL else f"[{reason.value}] "
        os.write(_STDERR, f"optest: {prefix}{text}\n".encode())  # sys.stderr may be locked by the interrupted code.


_watching: FaultReport | None = None


def _handle_signal(_number: int, info: int, context: int) -> None:
    if _watching is not None:
        _watching.report(info, context)


# Python code inside a signal handler is safe here: ctypes releases the interpreter lock before it calls C, so the
# handler can take it, in whichever thread of the library the fault is.
_handler = _Handler(_handle_signal)


@cache
def _handler_action() -> Any:
    # Cached, since what it points at has to live as long as the process.
    pointer = ctypes.cast(_handler, ctypes.c_void_p).value
    return ctypes.pointer(_Action(handler=pointer, flags=_SA_SIGINFO | _SA_NODEFER))


def _wrote(context: int) -> bool | None:
    if platform.machine() != "x86_64":
        return None
    return bool(ctypes.c_uint64.from_address(context + _ERROR_CODE_IN_UCONTEXT).value & _WRITE_BIT)


@cache
def _libc() -> Any:
    return ctypes.CDLL(None)


@cache
def _sigaction() -> Any:
    function = _libc().sigaction
    function.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    return function
