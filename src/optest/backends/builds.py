"""Builds in working directories: each command must run the program that its case's build commands created."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path

from optest.backends.command_config import Command
from optest.spec import Fault, Reason, TestCase

# Written into the folder of a build.
OWN_FILES = (".optest/built", ".optest/.gitignore")


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A build: its folder, commands with tokens replaced, and the environment as in the plan."""

    workdir: Path
    commands: tuple[Command, ...]
    env: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        return hashlib.blake2b(repr((self.commands, self.env)).encode(), digest_size=16).hexdigest()


class Builds:
    """The builds of this process. The digest of the latest one is stored in its folder, which processes may share."""

    def __init__(self) -> None:
        self._built: set[Build] = set()
        self._failed: dict[Build, tuple[Fault, TestCase]] = {}
        self._last: dict[Path, str] = {}

    def ensure(self, build: Build, case: TestCase, fault_of: Callable[[Command], Fault | None]) -> None:
        """Run the commands of ``build`` unless it is the latest successful one in its folder; a failure is permanent.

        A build that timed out runs again for a retry of the case, and for a case with a longer time limit.

        Raises:
            Fault: COMPILE or DEADLINE.
        """
        if build in self._failed and not _may_retry(case, *self._failed[build]):
            raise _copy_fault(self._failed[build][0])
        if build in self._built and self._read_digest(build.workdir) == build.digest:
            return
        # No build is complete while commands run: one that is interrupted must not count.
        self._write_digest(build.workdir, "")
        for command in build.commands:
            fault = fault_of(command)
            if fault is not None:
                self._failed[build] = fault, case
                raise _copy_fault(fault)
        self._failed.pop(build, None)
        self._built.add(build)
        self._write_digest(build.workdir, build.digest)

    def _read_digest(self, workdir: Path) -> str:
        try:
            return (workdir / OWN_FILES[0]).read_text(encoding="utf-8")
        except OSError:
            return self._last.get(workdir, "")

    def _write_digest(self, workdir: Path, digest: str) -> None:
        self._last[workdir] = digest
        mark = workdir / OWN_FILES[0]
        try:
            mark.parent.mkdir(exist_ok=True)
            ignored = mark.with_name(".gitignore")
            if not ignored.exists():
                ignored.write_text("*\n", encoding="utf-8")
            mark.write_text(digest, encoding="utf-8")
        except OSError:
            return  # the folder is read-only: then only this process knows of the build


def _may_retry(case: TestCase, fault: Fault, earlier: TestCase) -> bool:
    has_more_time = (case.timeout_s or inf) > (earlier.timeout_s or inf)
    return fault.reason is Reason.DEADLINE and (case.key == earlier.key or has_more_time)


# An exception that is raised again would collect the frames of every case.
def _copy_fault(fault: Fault) -> Fault:
    return Fault(fault.reason, fault.message, status=fault.status, details=fault.details)
