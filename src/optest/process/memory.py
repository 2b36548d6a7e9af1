"""How much memory is left for this process, by the machine and by the limit of its container."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["available_bytes"]

_MEMINFO = Path("/proc/meminfo")
_LIMIT, _USED = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")


def available_bytes() -> int | None:
    """Bytes that could be taken without swapping; None where the system does not say."""
    limits = []
    with suppress(OSError, ValueError, StopIteration):
        line = next(each for each in _MEMINFO.read_text().splitlines() if each.startswith("MemAvailable:"))
        limits.append(int(line.split()[1]) << 10)
    with suppress(OSError, ValueError):  # "max" is no number: no limit
        limits.append(int(_LIMIT.read_text()) - int(_USED.read_text()))
    return min(limits) if limits else None
