"""What all cases add up to, and whether anything was verified: cases that were all skipped are no success.

pytest ends with 0 if every test was skipped, since a skip is a person's choice. Cases are skipped by conditions on the
device and by what a backend lacks, so a whole run can turn into skips with nobody noticing: it ends with 5, as a run
without tests does, and as `optest run` does. Beside tests that did run it is told alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from optest.api import collecting
from optest.pytest_plugin.sharing import DIRECTORIES, EXPECTED

_SKIPPED = "optest_skipped"


@dataclass(slots=True)
class Verified:
    """What became of the cases and of other tests, told from their reports, those of xdist's workers too."""

    cases: int = 0
    cases_skipped: int = 0
    others: int = 0
    """Tests that are no cases and were not skipped."""

    @staticmethod
    def note(report: pytest.TestReport) -> None:
        """Let the report of a case say that it is one, wherever it is told."""
        setattr(report, _SKIPPED, report.skipped and not hasattr(report, "wasxfail"))

    def add(self, report: pytest.TestReport) -> None:
        """Count a test once: when it was called, or was not."""
        if report.when != "call" and not (report.when == "setup" and not report.passed):
            return
        is_skipped = getattr(report, _SKIPPED, None)
        if is_skipped is not None:
            self.cases += 1
            self.cases_skipped += is_skipped
        elif not report.skipped or hasattr(report, "wasxfail"):
            self.others += 1

    @property
    def nothing_of_cases(self) -> bool:
        """Whether there were cases and none of them ran."""
        return self.cases > 0 and self.cases == self.cases_skipped

    def exit_status(self, status: int) -> int:
        """The status that the session ends with, where pytest would end with ``status``."""
        is_success = status == pytest.ExitCode.OK
        return int(pytest.ExitCode.NO_TESTS_COLLECTED) if is_success and self._nothing_at_all else status

    @property
    def _nothing_at_all(self) -> bool:
        return self.nothing_of_cases and not self.others

    def line(self) -> str:
        """What is told if no case was verified, else nothing."""
        if not self.nothing_of_cases:
            return ""
        were = "the only one was" if self.cases == 1 else f"all {self.cases} were"
        status = "; exit status 5" if self._nothing_at_all else ""
        return f"no operator case was verified: {were} skipped (--show-skipped says why){status}"


VERIFIED = pytest.StashKey[Verified]()


def summary_lines(config: pytest.Config) -> list[str]:
    """The lines for the terminal, none with ``-q`` or if no case was run."""
    directories = config.stash.get(DIRECTORIES, [])
    if not directories or config.option.verbose < 0:
        return []
    expected = config.stash.get(EXPECTED, {})
    return [*collecting.figures(directories), *collecting.unused_expectations(expected, directories)]
