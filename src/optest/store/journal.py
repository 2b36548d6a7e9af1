"""The journal of a run: JSON lines, appended by one writer, readable whatever happened to the writer.

A line is ``{"type": "start"|"result"|"end", "schema_version": 1, "line": 1, "info"|"result"|"summary": …,
"crc32": …}``, where ``line`` is its number in the file, so that none can be missing, doubled or moved, and ``crc32``
the CRC-32 of all bytes of the line before its comma. Journals of an older optest lack one or both. A torn last line
(the writer was killed, the disk was full) is tolerated and cut off before the next one; a garbled line before the
last is not, because then something else has written here.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final

import msgspec

from optest.errors import OptestError, UsageError
from optest.spec import CaseResult, RunInfo, RunSummary
from optest.store import codec

SCHEMA_VERSION: Final = 1


class JournalError(OptestError):
    """The journal cannot take another line (disk full, quota, lost mount); all earlier lines stay readable."""

    def __init__(self, path: Path, cause: OSError) -> None:
        self.path = path
        self.errno = cause.errno
        super().__init__(
            f"journal {path} cannot be written: {cause.strerror or cause}\n"
            "  every result written before is kept; make room, then go on with --resume"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What a journal holds. ``info`` is the latest start; ``summary`` is None if the run did not end after it.

    ``starts`` counts how often the run was begun or resumed, ``torn`` says that the last line was cut off.
    """

    info: RunInfo | None = None
    results: tuple[CaseResult, ...] = ()
    summary: RunSummary | None = None
    starts: int = 0
    torn: bool = False


class JournalWriter:
    """Appends to one journal; there is one writer at a time, over all processes.

    Raises:
        UsageError: if the file cannot be opened or another process writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0), 0o666)
        except OSError as error:
            raise UsageError(f"journal {path} cannot be written: {error.strerror or error}") from None
        try:
            _lock(self._file, path)
            self._end = self._cut_torn_line()
            self._lines = path.read_bytes().count(b"\n") if self._end else 0
        except BaseException:
            os.close(self._file)
            raise
        self._closed = False
        self._broken: OSError | None = None
        self._line = bytearray()

    def start(self, info: RunInfo) -> None:
        self._append("start", info)

    def result(self, result: CaseResult) -> None:
        self._append("result", result)

    def results_at_once(self, results: Sequence[CaseResult]) -> None:
        """Several at once; either all lines are there afterwards, or none.

        Raises:
            JournalError: if the system refuses.
        """
        lines = bytearray()
        for place, result in enumerate(results, 1):
            lines += self._encoded("result", result, self._lines + place)
        self._write(lines, len(results))

    def end(self, summary: RunSummary) -> None:
        if not os.fstat(self._file).st_nlink:
            raise JournalError(self.path, OSError(errno.ENOENT, "it was deleted while the run went on"))
        self._append("end", summary)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._file)

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, kind: str, noun: RunInfo | CaseResult | RunSummary) -> None:
        """Write one whole line or none of it.

        Raises:
            JournalError: if the system refuses; the piece that was written is cut off again.
        """
        self._write(self._encoded(kind, noun, self._lines + 1), 1)

    def _encoded(self, kind: str, noun: RunInfo | CaseResult | RunSummary, number: int) -> bytearray:
        """The line, in memory that is used again."""
        line = self._line
        codec.encode_after(_PREFIX[kind] % number, noun, line)
        line += b',"crc32":%d}\n' % zlib.crc32(line)
        return line

    def _write(self, line: bytearray, count: int) -> None:
        if self._broken is not None:
            raise JournalError(self.path, self._broken)
        try:
            written = os.write(self._file, line)
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError as error:
            try:
                os.ftruncate(self._file, self._end)
            except OSError:
                self._broken = error  # a line after the torn piece would make the journal unreadable
            raise JournalError(self.path, error) from None
        self._end += len(line)
        self._lines += count

    def _cut_torn_line(self) -> int:
        """Drop a last line that is not whole; return where the next one begins."""
        size = os.fstat(self._file).st_size
        data = b""
        start = size
        while start and b"\n" not in data[:-1]:
            step = min(start, 1 << 16)
            start -= step
            os.lseek(self._file, start, os.SEEK_SET)
            data = _read_exactly(self._file, step) + data
        whole = data if data.endswith(b"\n") else data[: data.rfind(b"\n") + 1]
        last = whole[whole[:-1].rfind(b"\n") + 1 :]
        if data == whole and last and not _is_readable(last):
            whole = whole[: -len(last)]
        end = start + len(whole)
        if end != size:
            try:
                os.ftruncate(self._file, end)
            except OSError as error:
                raise JournalError(self.path, error) from None
        return end


def _read_exactly(file: int, count: int) -> bytes:
    pieces = b""
    while len(pieces) < count:
        piece = os.read(file, count - len(pieces))
        if not piece:
            break
        pieces += piece
    return pieces


def _lock(file: int, path: Path) -> None:
    """Take the one writer's lock; the system drops it when the process ends, however it ends."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            raise _written_by_another(path) from None
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _written_by_another(path) from None
    except OSError as error:
        raise UsageError(f"journal {path} cannot be locked: {error.strerror or error}") from None


def _written_by_another(path: Path) -> UsageError:
    return UsageError(f"journal {path} is being written by another process\n  wait for it to end, or start a new run")


_ABSENT = msgspec.Raw()


class _Line(msgspec.Struct):
    type: str
    schema_version: int
    line: int = 0
    info: msgspec.Raw = _ABSENT
    result: msgspec.Raw = _ABSENT
    summary: msgspec.Raw = _ABSENT


_BODY = {"start": "info", "result": "result", "end": "summary"}
_NOUN: dict[str, Any] = {"start": RunInfo, "result": CaseResult, "end": RunSummary}
_PREFIX = {
    kind: f'{{"type":"{kind}","schema_version":{SCHEMA_VERSION},"line":%d,"{body}":'.encode()
    for kind, body in _BODY.items()
}
_LINE = msgspec.json.Decoder(_Line)


def read_journal(path: Path) -> Journal:
    """Read a journal, also while it is being written.

    Raises:
        UsageError: if there is no such file, a newer optest wrote it, or a line before the last is garbled.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"journal {path} cannot be read: {error.strerror or error}") from None
    collecting = gc.isenabled()
    gc.disable()  # it would walk over all results again and again, and finds nothing: half of the time
    try:
        return _read(path, data)
    finally:
        if collecting:
            gc.enable()


def _read(path: Path, data: bytes) -> Journal:
    lines = data.split(b"\n")
    torn = lines.pop() != b""
    info: RunInfo | None = None
    summary: RunSummary | None = None
    results: list[CaseResult] = []
    starts = 0
    has_checksums: bool | None = None
    for number, line in enumerate(lines, 1):
        try:
            noun, has_checksum, recorded = _parse(line, f"{path}:{number}")
            if isinstance(noun, RunInfo) or has_checksums is None:
                has_checksums = has_checksum  # a newer optest may have resumed the run of one that wrote none
            elif has_checksum is not has_checksums:
                raise ValueError(f"it has {'a' if has_checksum else 'no'} checksum, unlike the lines before it")
        except (msgspec.DecodeError, ValueError) as error:
            if number == len(lines) and not torn:
                torn = True
                break
            raise UsageError(_garbled(path, number, error)) from None
        if recorded not in (0, number):
            moved = f"it was written as line {recorded}, so lines are missing, doubled or moved"
            raise UsageError(_garbled(path, number, ValueError(moved)))
        if isinstance(noun, CaseResult):
            results.append(noun)
        elif isinstance(noun, RunInfo):
            info, summary, starts = noun, None, starts + 1
        else:
            summary = noun
    return Journal(info=info, results=tuple(results), summary=summary, starts=starts, torn=torn)


def _garbled(path: Path, number: int, error: Exception) -> str:
    return (
        f"journal line is garbled: {error}\n  at {path}:{number}\n"
        "  a journal has one writer and is never edited; the lines before this one are intact:\n"
        f"  keep these alone (head -n {number - 1}) and go on with --resume, or run again"
    )


_CHECKSUM = re.compile(rb',"crc32":(\d{1,10})\}$')


def _parse(line: bytes, where: str) -> tuple[RunInfo | CaseResult | RunSummary, bool, int]:
    """Return the content of a line, whether it has a checksum, and its recorded number, 0 for none."""
    checksum = _CHECKSUM.search(line, max(0, len(line) - 24))
    if checksum is not None and zlib.crc32(memoryview(line)[: checksum.start()]) != int(checksum[1]):
        raise ValueError("its bytes are not those that were written, by their checksum")
    head = _LINE.decode(line)
    if head.schema_version > SCHEMA_VERSION:
        raise UsageError(
            f"journal has schema_version {head.schema_version}, but should have {SCHEMA_VERSION} or less\n"
            f"  at {where}\n  a newer optest wrote it; update optest to read it"
        )
    if head.type not in _BODY:
        raise ValueError(f"type is {head.type!r}, but should be start, result or end")
    body = bytes(getattr(head, _BODY[head.type]))
    if not body:
        raise ValueError(f"{head.type} line has no {_BODY[head.type]!r}")
    noun: RunInfo | CaseResult | RunSummary = codec.decode(body, _NOUN[head.type])
    return noun, checksum is not None, head.line


def _is_readable(line: bytes) -> bool:
    try:
        _parse(line.rstrip(b"\n"), "")
    except (msgspec.DecodeError, ValueError):
        return False
    return True


_LineNumber = Annotated[int, msgspec.Meta(ge=0)]
_Crc32 = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]


class _Start(msgspec.Struct, tag="start", tag_field="type", forbid_unknown_fields=True):
    schema_version: int
    info: RunInfo
    line: _LineNumber = 0
    crc32: _Crc32 = 0


class _Result(msgspec.Struct, tag="result", tag_field="type", forbid_unknown_fields=True):
    schema_version: int
    result: CaseResult
    line: _LineNumber = 0
    crc32: _Crc32 = 0


class _End(msgspec.Struct, tag="end", tag_field="type", forbid_unknown_fields=True):
    schema_version: int
    summary: RunSummary
    line: _LineNumber = 0
    crc32: _Crc32 = 0


def journal_schema() -> dict[str, Any]:
    """JSON Schema of one line of a journal."""
    return {"title": "A line of an optest journal", **codec.json_schema(_Start | _Result | _End)}
