"""Devices of one host: leases among all processes of a user, and the health of a device after a crash."""

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

from optest.core.executors import print_note as say_to_user
from optest.errors import UsageError
from optest.process import CannotStart, run
from optest.settings import environment, variables_set
from optest.settings.platforms import Platform
from optest.settings.variables import HELD_DEVICES, leases_folder

_LOOK_AGAIN_S = 0.2
# Time limits of a platform's commands; a driver that resets a card reloads its firmware.
_PROBE_S, _RESET_S = 60.0, 300.0


def command_of_this_process() -> str:
    """Return this process's command line, which other processes print when they wait for a device that it holds."""
    name = Path(sys.argv[0]).name
    return shlex.join(["optest" if name == "__main__.py" else name, *sys.argv[1:]])


@contextmanager
def devices_held(
    platform: Platform, ids: Sequence[int], is_closed: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Hold leases of the devices within the block, after waiting for other processes that hold them.

    Print the holders that it waits for. This process and the processes that it starts may lease the same devices again
    meanwhile. A platform of simulated devices needs no leases.
    """
    leases = Leases(leases_folder(), (platform,), command_of_this_process())
    leases.acquire(ids, len(ids), say_to_user, is_closed)
    # Else a CTest test that runs scenes would wait for the run that started it.
    names = [environment().get(HELD_DEVICES, ""), *(f"{platform.name}-{device}" for device in ids)]
    try:
        with variables_set({HELD_DEVICES: ",".join(filter(None, names))} if platform.is_device else {}):
            yield
    finally:
        leases.release()


class Leases:
    """Leases of hardware devices that this process holds: a file lock for each, which the system releases at exit.

    A JSON file next to the lock names the holder. Platforms of simulated devices need no lease.
    """

    def __init__(self, folder: Path, platforms: Sequence[Platform], command: str) -> None:
        self._folder = folder
        self._platforms = [platform for platform in platforms if platform.is_device]
        self._command = command
        self._held: dict[int, ExitStack] = {}

    def acquire(
        self, ids: Sequence[int], least: int, say: Callable[[str], None], is_closed: Callable[[], bool]
    ) -> tuple[int, ...]:
        """Lease the free devices among ``ids`` and return them; if fewer than ``least`` are free, wait for all.

        Call ``say`` with a note for each device that it waits for, or that it does without. Return early, with devices
        that are not leased, if ``is_closed`` becomes true.

        Raises:
            UsageError: if the folder or a file in it cannot be written.
        """
        if not self._platforms:
            return tuple(ids)
        held = [device for device in ids if self._try(device)]
        if len(held) >= least:
            for device in ids:
                if device not in held:
                    say(f"device {device} is held by {self._holder(device)}; this run does not use it")
            return tuple(held)
        self.release()
        # In ascending order: a waiting process only holds devices below the one that it waits for, so that no two
        # processes wait for each other.
        for device in sorted(ids):
            if is_closed() or self._try(device):
                continue
            say(f"device {device} is held by {self._holder(device)}; waiting")
            while not is_closed() and not self._try(device):
                time.sleep(_LOOK_AGAIN_S)
        return tuple(ids)

    def acquire_some(self, ids: Sequence[int], count: int) -> tuple[int, ...]:
        """Wait until ``count`` of ``ids`` are free at the same time, lease the first ones and return them.

        Raises:
            UsageError: as :meth:`acquire`.
        """
        while len(held := tuple(islice(filter(self._try, ids), count))) < count:
            self.release()
            # random, so that two processes do not take and release the same devices in step
            time.sleep(_LOOK_AGAIN_S * (1.0 + random.random()))
        return held

    def release(self) -> None:
        """Release all leases."""
        while self._held:
            self._held.popitem()[1].close()

    def _try(self, device: int) -> bool:
        """Lease the device on all platforms, unless a parent process holds it; return False if another one does."""
        held_by_parent = environment().get(HELD_DEVICES, "").split(",")
        if all(f"{platform.name}-{device}" in held_by_parent for platform in self._platforms):
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
                f"the lease of device {device} cannot be written to {self._folder}: {error.strerror or error}\n"
                "  set OPTEST_LEASES to a folder that you can write to"
            ) from None
        return True

    def _path(self, platform: Platform, device: int, suffix: str) -> Path:
        return self._folder / f"{platform.name}-{device}.{suffix}"

    def _holder(self, device: int) -> str:
        """Return command and pid of the process that holds the device, or "another process" if that is unknown."""
        for platform in self._platforms:
            with suppress(OSError, ValueError, KeyError, TypeError):
                held_by = json.loads(self._path(platform, device, "json").read_text(encoding="utf-8"))
                return f"{held_by['command']} (pid {held_by['pid']})"
        return "another process"


class Health(NamedTuple):
    """Whether a device works, and a note if its probe failed."""

    is_healthy: bool
    note: str = ""


def check_health(platform: Platform, device: int) -> Health:
    """Probe a device, reset it if the probe fails, and probe it again; return its health.

    A platform without a probe command has healthy devices.
    """
    probe_error = _command_error(platform.probe, device, _PROBE_S)
    if not probe_error:
        return Health(True)
    failed = f"device {device} failed its probe ({probe_error})"
    if not platform.reset:
        return Health(False, failed)
    reset_error = _command_error(platform.reset, device, _RESET_S)
    second_error = _command_error(platform.probe, device, _PROBE_S)
    if not second_error:
        return Health(True, f"{failed} and works after a reset")
    if reset_error:
        return Health(False, f"{failed}, and the reset failed ({reset_error})")
    return Health(False, f"{failed}, and again after a reset ({second_error})")


def _command_error(command: Sequence[str], device: int, timeout_s: float) -> str:
    """Run a platform's command for the device and return its error; "" if it exits with 0, or if there is none."""
    if not command:
        return ""
    words = [word.replace("{device}", str(device)) for word in command]
    try:
        ended = run(words, cwd=os.getcwd(), env=environment(), timeout_s=timeout_s)
    except CannotStart as error:
        return str(error)
    if ended.timed_out:
        return f"{words[0]} did not end in {timeout_s:.0f} s"
    if not ended.returncode:
        return ""
    output = (ended.stderr_tail.strip() or ended.stdout_tail.strip()).splitlines()
    return f"exit code {ended.returncode}{f': {output[-1]}' if output else ''}"
