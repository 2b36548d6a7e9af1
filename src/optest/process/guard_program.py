"""Program of a guard process: it runs one command at a time and kills all its descendants.

A guard is a *subreaper*: every descendant of the command, also in other sessions, becomes a child of the guard when
its parent ends. So the guard's children are exactly the command and its orphaned descendants, and "no children" means
that no descendant survives. A guard kills only direct children, which no other process can reap, so it never kills a
recycled process id. It also ends, with all its descendants, when the process that started it closes the control pipe
or dies.

It runs as ``python -I -S guard_program.py`` with requests on standard input and replies on standard output, each
a list of byte strings (:func:`pack`). It imports only light modules, since every guard pays for its start-up.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

_IS_LINUX = sys.platform == "linux"
_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PIPE_BYTES = 1 << 20
_LOG_BYTES = 1 << 20
_KILL_LIMIT_S = 10.0
_F_SETPIPE_SZ = 1031


def pack(fields: list[bytes]) -> bytes:
    """Encode byte strings as one message: their number, then each after its length, numbers in 4 bytes."""
    parts = [len(fields).to_bytes(4, "little")]
    for field in fields:
        parts += (len(field).to_bytes(4, "little"), field)
    return b"".join(parts)


def read_fields(fd: int) -> list[bytes] | None:
    """Read one message of :func:`pack`; return None at the end of the stream."""
    count = _read_exactly(fd, 4)
    if count is None:
        return None
    fields = []
    for _ in range(int.from_bytes(count, "little")):
        size = _read_exactly(fd, 4)
        field = None if size is None else _read_exactly(fd, int.from_bytes(size, "little"))
        if field is None:
            return None
        fields.append(field)
    return fields


def _read_exactly(fd: int, size: int) -> bytes | None:
    """Read ``size`` bytes; return None if the stream ends before."""
    data = b""
    while len(data) < size:
        part = os.read(fd, size - len(data))
        if not part:
            return None
        data += part
    return data


def write_all(fd: int, message: bytes) -> None:
    """Write the whole message; block while the pipe is full."""
    view = memoryview(message)
    while view:
        view = view[os.write(fd, view) :]


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose parent ends (Linux; do nothing elsewhere)."""
    if _IS_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def children_of(pid: int) -> list[int]:
    """Return the process ids of the direct children of ``pid``, zombies included; [] if there is no ``/proc``."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        texts = []
        for task in tasks:
            with open(f"/proc/{pid}/task/{task}/children") as file:
                texts.append(file.read())
    except (FileNotFoundError, ProcessLookupError):  # a kernel without /proc/PID/task/TID/children
        if not os.path.isdir("/proc"):
            return []
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [child for child in pids if _stat(child)[1:] == (pid,)]
    return [int(word) for text in texts for word in text.split()]


def _stat(pid: int) -> tuple[str, int]:
    """Return state letter and parent of a process; ("", 0) if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    state, parent = text[text.rindex(b")") + 1 :].split()[:2]
    return state.decode(), int(parent)


def end_children(
    keep: frozenset[int] = frozenset(), *, statuses: dict[int, int] | None = None, limit_s: float = _KILL_LIMIT_S
) -> tuple[int, bool]:
    """Kill and reap every child of this process except ``keep``, and the orphans that they leave.

    Return how many were killed, and whether none is left (a process in the kernel may outlast ``limit_s``).
    ``statuses`` collects wait statuses by process id. The process has to have called :func:`adopt_orphans`.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + limit_s
    pause = 0.0002
    while True:
        children = [pid for pid in children_of(os.getpid()) if pid not in keep]
        for pid in children:
            if _reap(pid, statuses) or _stat(pid)[0] in ("Z", ""):
                continue
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        if not children and (keep or not _has_children(statuses)):
            return len(killed), True
        if time.monotonic() > deadline:
            return len(killed), False
        time.sleep(pause)
        pause = min(pause * 2, 0.01)


def _reap(pid: int, statuses: dict[int, int] | None) -> bool:
    """Reap a child if it has ended; return whether it is gone."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True
    if ended and statuses is not None:
        statuses[ended] = status
    return bool(ended)


def _has_children(statuses: dict[int, int] | None) -> bool:
    """Reap all children that have ended, into ``statuses``; return whether others are running."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if not ended:
            return True
        if statuses is not None:
            statuses[ended] = status


class _Tail:
    """Buffer of the last ``limit`` bytes of a stream of any length."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.total = 0
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self.total += len(data)
        self._kept += data
        if len(self._kept) > 2 * self.limit + _PIPE_BYTES:
            del self._kept[: -self.limit or None]

    def bytes(self) -> bytes:
        return bytes(self._kept[-self.limit :]) if self.limit else b""

    def close(self) -> None:
        pass


class _Log:
    """File with the end of a stream of any length, at most a megabyte."""

    def __init__(self, path: bytes) -> None:
        self.total = 0
        # The guard of a run that was killed and is resumed may still write to the old file.
        if os.path.isfile(path):
            os.unlink(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._size = 0

    def add(self, data: bytes) -> None:
        self.total += len(data)
        if self._size + len(data) > _LOG_BYTES:
            kept = (os.pread(self._fd, _LOG_BYTES, 0) + data)[-_LOG_BYTES // 2 :]
            os.ftruncate(self._fd, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._size, data = 0, kept
        write_all(self._fd, data)
        self._size += len(data)

    def bytes(self) -> bytes:
        return b""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


class _Request:
    """Request to run one command; ``Guard.start`` in :mod:`optest.process.guard` writes the fields.

    In a guard of a fork server, ``run`` is called with the arguments instead of executing them.
    """

    def __init__(self, fields: list[bytes], run: Callable[[list[bytes]], None] | None = None) -> None:
        self.run = run
        timeout, tail, self.log, self.cwd, keep, count = fields[:6]
        self.timeout_s = float(timeout) if timeout else None
        self.tail_bytes = int(tail)
        self.keep_fds = [int(fd) for fd in keep.split()]
        self.argv = fields[6 : 6 + int(count)]
        self.env = dict(entry.split(b"=", 1) for entry in fields[6 + int(count) :])


def _start(request: _Request, out: int, err: int) -> tuple[int, bytes]:
    """Fork and execute the command; return the process id and, if that failed, ``errno stage``, else b""."""
    # A successful exec closes the pipe.
    report, reporter = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become(request, out, err, reporter)
    os.close(reporter)
    problem = os.read(report, 100)
    os.close(report)
    return pid, problem


def _become(request: _Request, out: int, err: int, reporter: int) -> None:
    """Execute the command in this forked process; never return, and write ``errno stage`` on failure."""
    stage = "start"
    try:
        os.setsid()
        if _IS_LINUX:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for fd in request.keep_fds:
            os.set_inheritable(fd, True)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        stage = "cwd"
        os.chdir(request.cwd)
        stage = "exec"
        if request.run is None:
            os.execvpe(request.argv[0], request.argv, request.env)
        signal.set_wakeup_fd(-1)
        # as Python does when it starts
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_IGN)
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2 and fd not in request.keep_fds:
                # The descriptor of the listing itself is closed already.
                with suppress(OSError):
                    os.close(fd)
        request.run(request.argv)
    except OSError as error:
        os.write(reporter, f"{error.errno} {stage}".encode())
    finally:
        os._exit(127)


class _Watch:
    """Supervision of a running command: its output, its end, its deadline and the control pipe."""

    def __init__(self, request: _Request, control: int, wake: int) -> None:
        self.request = request
        self.control = control
        self.wake = wake
        self.statuses: dict[int, int] = {}
        self.sinks: dict[int, _Tail | _Log] = {}
        self.stdout: _Tail | _Log
        self.stderr: _Tail | _Log

    def open(self) -> tuple[int, int]:
        """Create the pipes and return the descriptors for the command's standard output and error."""
        out_read, out_write = _wide_pipe()
        if self.request.log:
            self.stdout = self.stderr = _Log(self.request.log)
            self.sinks = {out_read: self.stdout}
            return out_write, out_write
        err_read, err_write = _wide_pipe()
        self.stdout, self.stderr = _Tail(self.request.tail_bytes), _Tail(self.request.tail_bytes)
        self.sinks = {out_read: self.stdout, err_read: self.stderr}
        return out_write, err_write

    def until_end(self, pid: int) -> bool:
        """Wait for the command; return False when it ended, True at its deadline or a kill request."""
        began = time.monotonic()
        poller = select.poll()
        for fd in (self.control, self.wake, *self.sinks):
            poller.register(fd, select.POLLIN)
        while True:
            left = None if self.request.timeout_s is None else began + self.request.timeout_s - time.monotonic()
            if left is not None and left <= 0:
                return True
            for fd, _ in poller.poll(None if left is None else min(left * 1000 + 1, 1e9)):
                data = _read_available(fd)
                # Any byte, or the end of the stream, is a request to kill the command.
                if fd == self.control:
                    return True
                if fd == self.wake:
                    _has_children(self.statuses)
                    if pid in self.statuses:
                        return False
                elif data:
                    self.sinks[fd].add(data)
                elif data is not None:
                    poller.unregister(fd)

    def close(self) -> None:
        """Read the rest of the output and close the pipes; all writers have ended."""
        for fd, sink in self.sinks.items():
            while data := _read_available(fd):
                sink.add(data)
            os.close(fd)
        self.stdout.close()
        self.stderr.close()


def _read_available(fd: int) -> bytes | None:
    """Read the available bytes; return b"" at the end of the stream, None if there are none yet."""
    try:
        return os.read(fd, _PIPE_BYTES)
    except BlockingIOError:
        return None


def _wide_pipe() -> tuple[int, int]:
    """Create a pipe with a non-blocking read end and, if possible, a megabyte of capacity."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    if _IS_LINUX:
        # The user's limit on pipe memory may be reached; the default size is only slower.
        with suppress(OSError):
            fcntl.fcntl(write, _F_SETPIPE_SZ, _PIPE_BYTES)
    return read, write


def serve(control_in: int, control_out: int, run: Callable[[list[bytes]], None] | None) -> None:
    """Execute requests until the control pipe ends or a process cannot be killed."""
    adopt_orphans()
    # The handler of SIGCHLD writes to this pipe, which wakes the poll.
    wake, waker = os.pipe()
    for fd in (wake, waker):
        os.set_blocking(fd, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    while (fields := read_fields(control_in)) is not None:
        if not _serve_one(_Request(fields, run), control_in, control_out, wake):
            return


def _serve_one(request: _Request, control_in: int, control_out: int, wake: int) -> bool:
    """Run one command and reply; return False if a process could not be killed, so that the guard is unusable."""
    watch = _Watch(request, control_in, wake)
    began = time.monotonic()
    out, err = watch.open()
    pid, problem = _start(request, out, err)
    for fd in {out, err, *request.keep_fds}:
        os.close(fd)
    if problem:
        os.waitpid(pid, 0)
        watch.close()
        write_all(control_out, pack([b"failed", *problem.split(b" ", 1)]))
        return True
    write_all(control_out, pack([b"started", b"%d" % pid]))
    cut = watch.until_end(pid)
    wall_s = time.monotonic() - began
    # macOS has no subreaper: only the command's process group can be found.
    if not os.path.isdir("/proc"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    killed, clean = end_children(statuses=watch.statuses)
    watch.close()
    strays = killed - (1 if cut and killed else 0)
    status = watch.statuses.get(pid, signal.SIGKILL)
    write_all(
        control_out,
        pack(
            [
                b"ended",
                b"%d" % status,
                b"1" if cut else b"",
                repr(wall_s).encode(),
                b"%d" % strays,
                b"1" if clean else b"",
                b"%d" % watch.stdout.total,
                b"%d" % watch.stderr.total,
                watch.stdout.bytes(),
                watch.stderr.bytes(),
            ]
        ),
    )
    return clean


def main(run: Callable[[list[bytes]], None] | None = None) -> None:
    """Serve requests on descriptors 0 and 1, which become the null device for commands, and kill all children."""
    control_in, control_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    # The pipe is broken if the requesting process is gone.
    with suppress(BrokenPipeError):
        try:
            serve(control_in, control_out, run)
        finally:
            end_children()


if __name__ == "__main__":
    main()
