"""Whether there is a GPU, found out without CUDA: a process that has opened it can start no fork that uses it."""

from __future__ import annotations

import shutil
from functools import cache

from optest.process import command
from optest.settings import environment

__all__ = ["lack_of_cuda"]


@cache
def lack_of_cuda() -> str | None:
    """Why no kernel can run on a GPU here, None if one can."""
    path = shutil.which("nvidia-smi")
    ended = command.run([path, "-L"], cwd="/", env=environment(), timeout_s=30) if path else None
    if ended is not None and ended.returncode == 0 and "GPU" in ended.stdout_tail:
        return None
    return "CUDA is unavailable: nvidia-smi lists no GPU here"
