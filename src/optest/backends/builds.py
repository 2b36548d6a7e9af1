"""Which build stands in a directory: a command has to find the program that its own case asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from optest.backends.command_config import Command
from optest.spec import Fault, Reason, TestCase

OWN_FILES = (".optest/built", ".optest/.gitignore")
"""What is written into the folder of a build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What is built where: commands with their tokens replaced, and the environment as the plan states it."""

    workdir: Path
    commands: tuple[Command, ...]
    env: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        return hashlib.blake2b(repr((self.commands, self.env)).encode(), digest_size=16).hexdigest()


class Builds:
    """The builds of this process; what stands in a directory is written there, for other processes build there too."""

    def __init__(self) -> None:
        self._made: set[Build] = set()
        self._failed: dict[Build, tuple[Fault, TestCase]] = {}
        self._last: dict[Path, str] = {}

    def ensure(self, build: Build, case: TestCase, fault_of: Callable[[Command], Fault | None]) -> None:
        """Build once, and again where another build has taken its place; one that failed fails for every case.

        Raises:
            Fault: COMPILE or DEADLINE.
        """
        if build in self._failed and not _may_try_again(case, *self._failed[build]):
            raise _again(self._failed[build][0])
        if build in self._made and self._standing(build.workdir) == build.digest:
            return
        self._set_standing(build.workdir, "")
        for command in build.commands:
            fault = fault_of(command)
            if fault is not None:
                self._failed[build] = fault, case
                raise _again(fault)
        self._failed.pop(build, None)
        self._made.add(build)
        self._set_standing(build.workdir, build.digest)

    def _standing(self, workdir: Path) -> str:
        try:
            return (workdir / OWN_FILES[0]).read_text(encoding="utf-8")
        except OSError:
            return self._last.get(workdir, "")

    def _set_standing(self, workdir: Path, digest: str) -> None:
        self._last[workdir] = digest
        mark = workdir / OWN_FILES[0]
        try:
            mark.parent.mkdir(exist_ok=True)
            ignored = mark.with_name(".gitignore")
            if not ignored.exists():
                ignored.write_text("*\n", encoding="utf-8")
            mark.write_text(digest, encoding="utf-8")
        except OSError:
            return  # nobody may write here, so that only this process is known to have built


def _may_try_again(case: TestCase, fault: Fault, earlier: TestCase) -> bool:
    """A build that was too slow for one case is tried again for a retry, and for a case with more time."""
    has_more_time = (case.timeout_s or inf) > (earlier.timeout_s or inf)
    return fault.reason is Reason.DEADLINE and (case.key == earlier.key or has_more_time)


def _again(fault: Fault) -> Fault:
    return Fault(fault.reason, fault.message, status=fault.status, details=fault.details)
