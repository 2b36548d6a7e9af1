"""Devices of one host: who holds which, over all processes of a user, and whether one still works after a crash."""

from __future__ import annotations

import json
import os
import random
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from optest.core.executors import say as say_to_user
from optest.errors import UsageError
from optest.process import CannotStart, run
from optest.settings import environment, variables_set
from optest.settings.platforms import Platform
from optest.settings.variables import HELD_DEVICES, leases_folder

_LOOK_AGAIN_S = 0.2
_PROBE_S, _RESET_S = 60.0, 300.0
"""How long a command of a platform may take: a driver that resets a card reloads its firmware."""


def command_of_this_process() -> str:
    """Return the command that other processes print for a device that this process holds."""
    name = Path(sys.argv[0]).name
    return shlex.join(["optest" if name == "__main__.py" else name, *sys.argv[1:]])


@contextmanager
def devices_held(
    platform: Platform, ids: Sequence[int], is_closed: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Hold devices of hardware while inside; wait for other processes that hold them, and print which those are.

    This process and those that it starts may lease the same devices again: a CTest test that runs scenes would
    otherwise wait for the run that started it.
    """
    leases = Leases(leases_folder(), (platform,), command_of_this_process())
    leases.acquire(ids, len(ids), say_to_user, is_closed)
    names = [environment().get(HELD_DEVICES, ""), *(f"{platform.name}-{device}" for device in ids)]
    try:
        with variables_set({HELD_DEVICES: ",".join(filter(None, names))} if platform.is_device else {}):
            yield
    finally:
        leases.release()


class Leases:
    """The devices of hardware that this process holds, a file lock each: the system gives up those of a process that
    ends, however it ends. Devices of a simulation are but numbers, and nobody holds them.
    """

    def __init__(self, folder: Path, platforms: Sequence[Platform], command: str) -> None:
        self._folder = folder
        self._platforms = [each for each in platforms if each.is_device]
        self._command = command
        self._held: dict[int, ExitStack] = {}

    def acquire(
        self, ids: Sequence[int], least: int, say: Callable[[str], None], is_closed: Callable[[], bool]
    ) -> tuple[int, ...]:
        """Hold what is free of ``ids``, at least ``least`` of them, and return these; wait for others' if it is less.

        ``say`` is told whom this process waits for, and what it goes without. Who waits holds lower ids alone than the
        one that it waits for, so that no two processes wait for each other.

        Raises:
            UsageError: if the folder or a file in it cannot be written.
        """
        if not self._platforms:
            return tuple(ids)
        held = [device for device in ids if self._try(device)]
        if len(held) >= least:
            for device in (each for each in ids if each not in held):
                say(f"device {device} is held by {self._holder(device)}; this run goes without it")
            return tuple(held)
        self.release()
        for device in sorted(ids):
            if is_closed() or self._try(device):
                continue
            say(f"device {device} is held by {self._holder(device)}; waiting")
            while not is_closed() and not self._try(device):
                time.sleep(_LOOK_AGAIN_S)
        return tuple(ids)

    def acquire_some(self, ids: Sequence[int], count: int) -> tuple[int, ...]:
        """Hold the first ``count`` of ``ids`` that are free, as soon as there are as many, and return them; raises as
        :meth:`acquire`."""
        while len(held := tuple(islice(filter(self._try, ids), count))) < count:
            self.release()
            time.sleep(_LOOK_AGAIN_S * (1.0 + random.random()))
        return held

    def release(self) -> None:
        """Give all of them back."""
        while self._held:
            self._held.popitem()[1].close()

    def _try(self, device: int) -> bool:
        if {f"{each.name}-{device}" for each in self._platforms} <= {*environment().get(HELD_DEVICES, "").split(",")}:
            return True
        holder = json.dumps({"pid": os.getpid(), "command": self._command})
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with ExitStack() as held:
                for platform in self._platforms:
                    held.enter_context(FileLock(self._path(platform, device, "lock"), timeout=0, thread_local=False))
                    held.callback(self._path(platform, device, "json").unlink, missing_ok=True)
                    self._path(platform, device, "json").write_text(holder, encoding="utf-8")
                self._held[device] = held.pop_all()
        except Timeout:
            return False
        except OSError as error:
            raise UsageError(
                f"leases of devices cannot be kept in {self._folder}: {error.strerror or error}\n"
                "  name a folder of yours: OPTEST_LEASES=DIR"
            ) from None
        return True

    def _path(self, platform: Platform, device: int, suffix: str) -> Path:
        return self._folder / f"{platform.name}-{device}.{suffix}"

    def _holder(self, device: int) -> str:
        for platform in self._platforms:
            with suppress(OSError, ValueError, KeyError, TypeError):
                held_by = json.loads(self._path(platform, device, "json").read_text(encoding="utf-8"))
                return f"{held_by['command']} (pid {held_by['pid']})"
        return "another process"


class Health(NamedTuple):
    """Whether a device works, and what happened to it if anything did."""

    is_healthy: bool
    note: str = ""


def examined(platform: Platform, device: int) -> Health:
    """Probe a device after a crash, and reset it if it is not well; one of a platform without a probe is taken for
    healthy."""
    first = _problem(platform.probe, device, _PROBE_S)
    if not first:
        return Health(True)
    if not platform.reset:
        return Health(False, f"device {device} failed its probe ({first})")
    failed = _problem(platform.reset, device, _RESET_S)
    again = _problem(platform.probe, device, _PROBE_S)
    if not again:
        return Health(True, f"device {device} failed its probe ({first}) and is well after a reset")
    after = f"the reset failed ({failed})" if failed else f"after a reset too ({again})"
    return Health(False, f"device {device} failed its probe ({first}), {after}")


def _problem(command: Sequence[str], device: int, timeout_s: float) -> str:
    """How a command ended, "" if it did with 0, or there is none."""
    if not command:
        return ""
    words = [word.replace("{device}", str(device)) for word in command]
    try:
        ended = run(words, cwd=os.getcwd(), env=environment(), timeout_s=timeout_s)
    except CannotStart as error:
        return str(error)
    if ended.timed_out:
        return f"{words[0]} did not end in {timeout_s:.0f} s"
    said = (ended.stderr_tail.strip() or ended.stdout_tail.strip()).splitlines()
    return f"exit code {ended.returncode}{f': {said[-1]}' if said else ''}" if ended.returncode else ""
