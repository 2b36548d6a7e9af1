"""Optional abilities of drivers that concern worker processes: forks, devices, programs."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from dataclasses import dataclass

from optest.backends.abilities import Ability
from optest.spec import TestCase


class RunsInForks(metaclass=Ability):
    """A loaded and configured driver has no thread and no open device yet, so that forks of a worker can run cases: a
    fork that dies is replaced in a tenth of the time."""

    def before_fork(self, case: TestCase) -> None:
        """Do the work that every fork would repeat for such a case, without foreign code; errors are ignored here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """Devices that a case needs, of those that ``--device`` names.

    ``count`` devices of ``platform``. On some platforms a process serves only one ``runtime``. Cases of level 2 with
    the same ``runtime`` share one worker on each device; one of level 3 has a process and its devices for itself.
    Cases of one ``file`` stay on one worker unless devices would idle.
    """

    platform: str
    runtime: str
    count: int = 1
    level: int = 2
    file: str = ""


class NeedsDevices(metaclass=Ability):
    def devices_of(self, case: TestCase) -> DeviceRequest | None:
        """Return the devices that ``case`` needs, or None. A worker is configured with their ids as ``device_ids``."""


class PreparesPrograms(metaclass=Ability):
    def prepare(self, case: TestCase) -> None:
        """Build the programs of ``case`` before it gets a device. Called in the process that starts the workers, by
        several threads at once; a cache on disk passes them to the workers.

        Raises:
            Fault: COMPILE, BAD_CASE or UNSUPPORTED: the verdict of the case, which then needs no device.
        """
