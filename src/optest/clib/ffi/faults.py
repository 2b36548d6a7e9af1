"""Where a crash happened: the address of a memory fault, described in words of the buffers before the process dies.

The handler is Python, run inside the signal. That is sound where it matters: ctypes gives the interpreter lock back
before it calls C, so the handler can take it, in whichever of the library's threads the fault happened. Should the
heap be in ruins and the handler hang, an alarm ends the process.

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

from optest.memory.buffers import Buffer
from optest.spec import Reason

WORKSPACE = "workspace"
"""The name of every workspace's buffer."""

_SIGNALS = _SIGSEGV, _SIGBUS = 11, 7
_SA_SIGINFO, _SA_NODEFER = 0x4, 0x40000000
_ADDRESS_IN_SIGINFO = 16
_ERROR_CODE_IN_UCONTEXT = 40 + 19 * 8
"""x86-64: flags, link and stack take 40 bytes, REG_ERR is the 20th register. Its bit 1 tells a write."""
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


def fault_of(address: int, buffers: Iterable[Buffer], *, wrote: bool | None = None) -> tuple[Reason, str]:
    """The reason of a fault at ``address``, and what was touched in words: a buffer and how far from it, a null
    pointer, or memory of nobody.

    The reason is OUT_OF_BOUNDS or READ_OUT_OF_BOUNDS for a write or a read near a buffer and not in it, near the
    workspace WORKSPACE for both, else SIGNAL. A write that is a fault inside a buffer is one into an input that may be
    read alone: INPUT_MUTATED.
    """
    done = {True: "written", False: "read", None: "touched"}[wrote]
    near = [(_distance(each, address), words, each.name) for each in buffers if (words := each.describe(address))]
    if not near:
        is_null = address < 1 << 16
        place = (
            f"through a null pointer (address {address:#x})" if is_null else f"at {address:#x}, which is near no buffer"
        )
        return Reason.SIGNAL, f"memory was {done} {place}"
    distance, words, name = min(near)
    if wrote is None or (distance == 0 and not wrote):
        reason = Reason.SIGNAL
    elif distance == 0:
        reason = Reason.INPUT_MUTATED
    elif name == WORKSPACE:
        reason = Reason.WORKSPACE
    else:
        reason = Reason.OUT_OF_BOUNDS if wrote else Reason.READ_OUT_OF_BOUNDS
    return reason, f"memory was {done} {words}"


def _distance(buffer: Buffer, address: int) -> int:
    start = buffer.region.address + buffer.region.start
    return max(start - address, address - (start + buffer.region.size) + 1, 0)


class FaultReport:
    """While inside, a SIGSEGV or SIGBUS writes one line to standard error; then the process dies as it would have.

    The line begins with ``optest:``, then comes the reason in brackets where the fault has a better one than SIGNAL.
    What handled the signals before (Python's faulthandler) still sees them. Of several, one inside the other, the
    innermost speaks.
    """

    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self._buffers = tuple(buffers)
        self._before: list[tuple[int, Any]] = []
        self._outer: FaultReport | None = None

    @staticmethod
    def is_possible() -> bool:
        """Only on 64-bit Linux, whose structures are known here."""
        return sys.platform == "linux" and sys.maxsize > 2**32

    def __enter__(self) -> FaultReport:
        global _watching
        if self.is_possible():
            self._outer, _watching = _watching, self
            for number in _SIGNALS:
                before = _Action()
                if _sigaction()(number, _our_action(), ctypes.byref(before)) == 0:
                    self._before.append((number, before))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._put_back()

    def _put_back(self) -> None:
        global _watching
        if _watching is self:
            _watching = self._outer
        while self._before:
            number, before = self._before.pop()
            _sigaction()(number, ctypes.byref(before), None)

    def report(self, info: int, context: int) -> None:
        """Say it once, and return to the faulting instruction, which then meets the handler that was there before."""
        while _watching is not None:
            _watching._put_back()
        _libc().alarm(_HANG_S)
        address = ctypes.c_uint64.from_address(info + _ADDRESS_IN_SIGINFO).value
        reason, words = fault_of(address, self._buffers, wrote=_wrote(context))
        named = "" if reason is Reason.SIGNAL else f"[{reason.value}] "
        os.write(_STDERR, f"optest: {named}{words}\n".encode())


_watching: FaultReport | None = None


def _report(_number: int, info: int, context: int) -> None:
    if _watching is not None:
        _watching.report(info, context)


_handler = _Handler(_report)


@cache
def _our_action() -> Any:
    """Made once: what it points at has to live as long as the process."""
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
