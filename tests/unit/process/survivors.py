"""Programs that try to get away, and how to see in /proc whether one did."""

from __future__ import annotations

import os
import sys
import time
import uuid
from pathlib import Path

ENVIRONMENT = {"PATH": os.environ["PATH"]}

_RUNAWAY = """
import os, signal, sys, time
mark, ways, first_parent = sys.argv[1], sys.argv[2].split(","), sys.argv[3]
is_first = True
arrival, on_the_way = os.pipe()  # neither outlives a "clear"
for way in ways:
    if way == "fork":
        parent = os.getpid()
        if os.fork():
            if is_first:
                os.close(on_the_way)
                os.read(arrival, 1)
                if first_parent == "stay":
                    time.sleep(600)
            os._exit(0)
        while not is_first and os.getppid() == parent:
            time.sleep(0.001)
        is_first = False
    elif way == "setsid":
        os.setsid()
    elif way == "ignore":
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    elif way == "clear":
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", mark], {})
os.close(on_the_way)
time.sleep(600)
"""

DEADLINES_S = (0.6, 6.0, 60.0)
"""Of commands that do not end: on a busy machine the first may be too short for what has to happen before it."""


def runaway(ways: str, *, parent: str = "stay") -> tuple[list[str], str]:
    """A command that goes through ``ways`` (fork, setsid, ignore, clear) and sleeps, and the mark in its argv.

    After every fork the child goes on and its parent ends, but the first parent, which may ``stay``, or ``exit`` when
    the last child has gone all ways and the others are gone.
    """
    mark = f"mark-{uuid.uuid4().hex}"
    return [sys.executable, "-c", _RUNAWAY, mark, ways, parent], mark


def alive(mark: str) -> list[int]:
    """Living processes with ``mark`` among their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if mark.encode() in arguments:
            found.append(int(entry.name))
    return found


def gone(mark: str, within_s: float = 60.0) -> bool:
    """Whether no marked process is left, at the latest after ``within_s``."""
    deadline = time.monotonic() + within_s
    while alive(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def wait_until_alive(mark: str, count: int = 1, within_s: float = 60.0) -> None:
    deadline = time.monotonic() + within_s
    while len(alive(mark)) < count:
        assert time.monotonic() < deadline, f"{mark} never ran"
        time.sleep(0.01)
