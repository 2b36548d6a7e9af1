"""timed_op and profile_operation: synchronised at both ends, and never of nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from optest.infiniop.devices import get_sync_func
from optest.infiniop.scope import timed
from optest.timing import seconds_of_calls

__all__ = ["profile_operation", "timed_op"]


def timed_op(func: Callable[[], object], num_iterations: int, device: Any) -> float:
    """The mean seconds of one call. ``device`` is the header's number or torch's name; both synchronise.

    Raises:
        UsageError: for fewer than one iteration.
        UnknownName: for a device that is neither.
    """
    return _mean_s(func, 0, num_iterations, device)


def profile_operation(
    desc: str,
    func: Callable[[], object],
    torch_device: Any,
    NUM_PRERUN: int,  # noqa: N803 - the seed's name
    NUM_ITERATIONS: int,  # noqa: N803
) -> float:
    """Call ``func`` ``NUM_PRERUN`` times, time ``NUM_ITERATIONS`` more, print and return the mean in seconds.

    Raises:
        UsageError: for fewer than one iteration.
        UnknownName: for a device that is neither a number of the header nor torch's name.
    """
    mean_s = _mean_s(func, NUM_PRERUN, NUM_ITERATIONS, torch_device)
    sys.stdout.write(f" {desc} time: {mean_s * 1000:.6f} ms\n")
    return mean_s


def _mean_s(func: Callable[[], object], warm_up: int, iterations: int, device: Any) -> float:
    sync = get_sync_func(device) or _finished
    with timed():
        return seconds_of_calls(func, iterations, warm_up=warm_up, synchronize=sync)


def _finished() -> None:
    """The processor's calls are finished when they return."""
