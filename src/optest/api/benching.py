"""``--bench``: what the options ask for, refused before anything runs where it cannot be done."""

from __future__ import annotations

import re
from collections.abc import Sequence

from optest.core.benchmarking import BenchOptions, comparison_called
from optest.errors import UsageError
from optest.settings import Settings

__all__ = ["bench_notes", "bench_options"]

_TIME = re.compile(r"(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>us|µs|ms|s|min|)")
_UNITS_S = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "min": 60.0}


def bench_options(settings: Settings) -> BenchOptions | None:
    """What is to be timed, None without ``--bench``.

    Raises:
        UsageError: for a time that is none, or an option that does nothing without ``--bench``.
        UnknownName, Unavailable: for a comparison that is not there.
    """
    if not settings["bench"]:
        for name in ("bench_time", "bench_against"):
            if settings.stated(name):
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} times nothing by itself; add --bench")
        return None
    against = settings["bench_against"] or ""
    if against:
        comparison_called(against)
    return BenchOptions(target_s=_seconds(settings["bench_time"]), against=against)


def bench_notes(options: BenchOptions | None, jobs: int) -> Sequence[str]:
    """What a reader of the timings has to know."""
    if options is None or jobs == 1:
        return ()
    return (f"timed while {jobs} workers share this machine: they disturb each other, so --jobs 1 is more exact",)


def _seconds(text: str) -> float:
    found = _TIME.fullmatch(text.strip())
    seconds = float(found["number"]) * _UNITS_S[found["unit"]] if found else 0.0
    if not found or seconds <= 0:
        raise UsageError(f"--bench-time is {text!r}, but should be a time such as 0.2s, 50ms or 2s, and more than 0")
    return seconds
