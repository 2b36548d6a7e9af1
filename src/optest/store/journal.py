"""The journal of a run: JSON lines, appended by one writer, readable even if the writer was killed.

A line is ``{"type": "start"|"result"|"end", "schema_version": 1, "line": 1, "info"|"result"|"summary": …,
"crc32": …}``. ``line`` is its number in the file, which reveals missing, duplicate or moved lines; ``crc32`` is the
CRC-32 of all bytes of the line before its comma. Journals of an older optest lack one or both. A torn last line
(the writer was killed, the disk was full) is accepted, and removed before the next line is written; a garbled line
before the last is an error, because then another program has written to the file.
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
    """A line that cannot be written (disk full, quota, lost mount); all earlier lines stay readable."""

    def __init__(self, path: Path, cause: OSError) -> None:
        self.path = path
        self.errno = cause.errno
        super().__init__(
            f"journal {path} cannot be written: {cause.strerror or cause}\n"
            "  all earlier results are kept; free disk space, then continue with --resume"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Content of a journal. ``info`` is the latest start; ``summary`` is None if the run did not end after it.

    ``starts`` counts starts and resumptions of the run; ``torn`` is True if the last line is incomplete.
    """

    info: RunInfo | None = None
    results: tuple[CaseResult, ...] = ()
    summary: RunSummary | None = None
    starts: int = 0
    torn: bool = False


class JournalWriter:
    """Writer of one journal; a lock allows one writer at a time among all processes.

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
        """Append several results in one write: either all lines or none.

        Raises:
            JournalError: if the system refuses the write.
        """
        lines = bytearray()
        for count, result in enumerate(results, 1):
            lines += self._encode_line("result", result, self._lines + count)
        self._write(lines, len(results))

    def end(self, summary: RunSummary) -> None:
        """Append the end of the run.

        Raises:
            JournalError: if the system refuses the write, or the file was deleted during the run.
        """
        if not os.fstat(self._file).st_nlink:
            raise JournalError(self.path, OSError(errno.ENOENT, "it was deleted during the run"))
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

    def _append(self, kind: str, record: RunInfo | CaseResult | RunSummary) -> None:
        self._write(self._encode_line(kind, record, self._lines + 1), 1)

    def _encode_line(self, kind: str, record: RunInfo | CaseResult | RunSummary, number: int) -> bytearray:
        """Return a line with number and checksum; the next call overwrites it."""
        line = self._line
        codec.encode_after(_PREFIX[kind] % number, record, line)
        line += b',"crc32":%d}\n' % zlib.crc32(line)
        return line

    def _write(self, line: bytearray, count: int) -> None:
        """Append ``count`` lines completely or not at all.

        Raises:
            JournalError: if the system refuses; a part that was written is removed.
        """
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
                # A line after the torn part would make the journal unreadable.
                self._broken = error
            raise JournalError(self.path, error) from None
        self._end += len(line)
        self._lines += count

    def _cut_torn_line(self) -> int:
        """Remove an incomplete or unreadable last line; return the file size after that."""
        size = os.fstat(self._file).st_size
        data = b""
        start = size
        # Read backwards to the last complete line: journals can be large.
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
    """Read ``count`` bytes, or fewer at the end of the file."""
    pieces = b""
    while len(pieces) < count:
        piece = os.read(file, count - len(pieces))
        if not piece:
            break
        pieces += piece
    return pieces


def _lock(file: int, path: Path) -> None:
    """Lock the journal for this process; raise UsageError if another process holds the lock."""
    # The system releases the lock when the process ends, even if it is killed.
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
        why = error.strerror or error
        raise UsageError(f"journal {path} cannot be locked: {why}; choose --runs-dir on a local disk") from None


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
_TYPES: dict[str, Any] = {"start": RunInfo, "result": CaseResult, "end": RunSummary}
_PREFIX = {
    kind: f'{{"type":"{kind}","schema_version":{SCHEMA_VERSION},"line":%d,"{body}":'.encode()
    for kind, body in _BODY.items()
}
_LINE = msgspec.json.Decoder(_Line)


def read_journal(path: Path) -> Journal:
    """Read a journal, also while another process writes it.

    Raises:
        UsageError: if there is no such file, a newer optest wrote it, or a line before the last is garbled.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"journal {path} cannot be read: {error.strerror or error}") from None
    collecting = gc.isenabled()
    # The garbage collector would visit all results many times and free nothing: half of the time.
    gc.disable()
    try:
        return _parse_lines(path, data)
    finally:
        if collecting:
            gc.enable()


def _parse_lines(path: Path, data: bytes) -> Journal:
    """Parse the content of a journal; raise UsageError for a garbled line other than the last, or a wrong number."""
    lines = data.split(b"\n")
    torn = lines.pop() != b""
    info: RunInfo | None = None
    summary: RunSummary | None = None
    results: list[CaseResult] = []
    starts = 0
    has_checksums: bool | None = None
    for number, line in enumerate(lines, 1):
        try:
            record, has_checksum, recorded = _parse(line, f"{path}:{number}")
            # A newer optest, which writes checksums, may resume the run of one that wrote none.
            if isinstance(record, RunInfo) or has_checksums is None:
                has_checksums = has_checksum
            elif has_checksum is not has_checksums:
                raise ValueError(f"it has {'a' if has_checksum else 'no'} checksum, unlike the lines before it")
        except (msgspec.DecodeError, ValueError) as error:
            if number == len(lines) and not torn:
                torn = True
                break
            raise UsageError(_garbled(path, number, error)) from None
        if recorded not in (0, number):
            moved = f"its number is {recorded}, so lines are missing, doubled or moved"
            raise UsageError(_garbled(path, number, ValueError(moved)))
        if isinstance(record, CaseResult):
            results.append(record)
        elif isinstance(record, RunInfo):
            info, summary, starts = record, None, starts + 1
        else:
            summary = record
    return Journal(info=info, results=tuple(results), summary=summary, starts=starts, torn=torn)


def _garbled(path: Path, number: int, error: Exception) -> str:
    return (
        f"journal line is garbled: {error}\n  at {path}:{number}\n"
        "  another program has changed the journal; the lines before this one are intact:\n"
        f"  keep only these (head -n {number - 1}) and continue with --resume, or start a new run"
    )


_CHECKSUM = re.compile(rb',"crc32":(\d{1,10})\}$')


def _parse(line: bytes, where: str) -> tuple[RunInfo | CaseResult | RunSummary, bool, int]:
    """Return the content of a line, whether it has a checksum, and its recorded number, 0 without one.

    Raises:
        ValueError: for a wrong checksum or type, or a missing body.
        msgspec.DecodeError: for other text.
        UsageError: if a newer optest wrote the line.
    """
    checksum = _CHECKSUM.search(line, max(0, len(line) - 24))
    if checksum is not None and zlib.crc32(memoryview(line)[: checksum.start()]) != int(checksum[1]):
        raise ValueError("its checksum does not match its bytes")
    head = _LINE.decode(line)
    if head.schema_version > SCHEMA_VERSION:
        raise UsageError(
            f"journal has schema_version {head.schema_version}, expected {SCHEMA_VERSION} or less\n"
            f"  at {where}\n  a newer optest wrote it; update optest to read it"
        )
    if head.type not in _BODY:
        raise ValueError(f"type is {head.type!r}, expected start, result or end")
    body = bytes(getattr(head, _BODY[head.type]))
    if not body:
        raise ValueError(f"{head.type} line has no {_BODY[head.type]!r}")
    record: RunInfo | CaseResult | RunSummary = codec.decode(body, _TYPES[head.type])
    return record, checksum is not None, head.line


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
    """Return the JSON Schema of one line of a journal."""
    return {"title": "A line of an optest journal", **codec.json_schema(_Start | _Result | _End)}
