"""The summary of the cases of a session, and its exit status.

pytest exits with 0 if every test was skipped, since a skip is a person's choice. Cases are skipped by conditions on the
device and as unsupported, so that a whole run can silently become skips: it exits with 5, as a run without tests does,
and as `optest run` does. If other tests ran, only a line is printed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from optest.api import collecting
from optest.pytest_plugin.sharing import DIRECTORIES, EXPECTED

_SKIPPED = "optest_skipped"


@dataclass(slots=True)
class Verified:
    """Counts of cases, skipped cases, and other tests that were not skipped, from reports (also of xdist's workers)."""

    cases: int = 0
    cases_skipped: int = 0
    others: int = 0

    @staticmethod
    def mark_case(report: pytest.TestReport) -> None:
        """Mark a report as one of a case, with whether it was skipped; the mark is sent to xdist's controller."""
        setattr(report, _SKIPPED, report.skipped and not hasattr(report, "wasxfail"))

    def add(self, report: pytest.TestReport) -> None:
        """Count a test once: by its call, or by a setup that did not pass."""
        if report.when != "call" and not (report.when == "setup" and not report.passed):
            return
        is_skipped = getattr(report, _SKIPPED, None)
        if is_skipped is not None:
            self.cases += 1
            self.cases_skipped += is_skipped
        elif not report.skipped or hasattr(report, "wasxfail"):
            self.others += 1

    @property
    def all_skipped(self) -> bool:
        """Return whether there were cases and all of them were skipped."""
        return self.cases > 0 and self.cases == self.cases_skipped

    def exit_status(self, status: int) -> int:
        """Return 5 instead of 0 if all cases were skipped and no other test ran, else ``status``."""
        is_empty = status == pytest.ExitCode.OK and self.all_skipped and not self.others
        return int(pytest.ExitCode.NO_TESTS_COLLECTED) if is_empty else status

    def line(self) -> str:
        """Return the line that all cases were skipped, "" if they were not."""
        if not self.all_skipped:
            return ""
        were = "the only one was" if self.cases == 1 else f"all {self.cases} were"
        status = "" if self.others else "; exit status 5"
        return f"no operator case was verified: {were} skipped (--show-skipped shows why){status}"


VERIFIED = pytest.StashKey[Verified]()


def summary_lines(config: pytest.Config) -> list[str]:
    """Return the lines of the terminal's summary, [] with ``-q`` or if no case ran."""
    directories = config.stash.get(DIRECTORIES, [])
    if not directories or config.option.verbose < 0:
        return []
    expected = config.stash.get(EXPECTED, {})
    return [*collecting.summary_of_runs(directories), *collecting.unused_expectations(expected, directories)]
