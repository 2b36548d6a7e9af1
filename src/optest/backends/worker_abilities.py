"""Abilities of drivers that decide how workers are started and ended: devices, programs, environment, deadlines."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from optest.backends.abilities import Ability
from optest.spec import TestCase


class RunsInForks(metaclass=Ability):
    """A driver that is loaded and configured has no thread and no device yet: forks of a worker can run its cases, and
    one that dies is replaced in a tenth of the time."""

    def before_fork(self, case: TestCase) -> None:
        """Do once what every fork would do again for such a case, and what foreign code has no part in.

        Raises:
            OptestError, Fault: as ``run`` does, which nobody sees here.
        """


class ImportsLate(metaclass=Ability):
    def import_late(self) -> None:
        """Import what ``run`` does, before forks do: calls nothing of the user's, opens no device, may raise."""


class NeedsEnvironment(metaclass=Ability):
    def environment(self, cases: Sequence[TestCase]) -> Mapping[str, str]:
        """Variables that a worker needs from its start to run ``cases``; what the user's environment says wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """What a case needs of the devices that ``--device`` names.

    ``count`` devices of ``platform``. A process serves one ``runtime`` alone where the platform says so. Cases of level
    2 with the same ``runtime`` share one worker on each device; one of level 3 has a process and its devices for itself
    while it runs. Cases of one ``file`` stay on one worker unless devices would idle.
    """

    platform: str
    runtime: str
    count: int = 1
    level: int = 2
    file: str = ""


class NeedsDevices(metaclass=Ability):
    def devices_of(self, case: TestCase) -> DeviceRequest | None:
        """What ``case`` needs of devices; None if it needs none. A worker is configured with ``device_ids``, the ids
        that it may use."""


class PreparesPrograms(metaclass=Ability):
    def prepare(self, case: TestCase) -> None:
        """Build what ``case`` runs, before a device is held for it: called in the process that starts the workers, by
        several threads at once; a cache on disk hands it to them.

        Raises:
            Fault: COMPILE, BAD_CASE or UNSUPPORTED: the verdict of the case, which then needs no device.
        """


class EndsRuns(metaclass=Ability):
    def end_run(self, folder: Path) -> None:
        """Put away what the cases of a run left behind; ``folder`` is that of the run. Called once, when it is over, in
        the process that started its workers."""


def keeps_deadline(driver: object) -> bool:
    """Whether a driver says ``keeps_deadline = True``: it ends by itself what takes longer than ``case.timeout_s``."""
    return bool(getattr(driver, "keeps_deadline", False))
