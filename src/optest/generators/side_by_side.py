"""Work on a long range by several threads, each on a part of its own, for what NumPy does without the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

__all__ = ["side_by_side"]


def side_by_side(work: Callable[[int, int], None], count: int, step: int, threads: int) -> None:
    """Call ``work(first, end)`` for parts that make up 0 to ``count``: as many as threads, each whole ``step``s.

    Raises what the first part raised that failed, once all have ended.
    """
    steps = -(-count // step)
    parts = min(threads, steps)
    borders = [*(steps * part // parts * step for part in range(parts)), count]
    quiet = np.geterr()  # a thread begins with NumPy's defaults

    def one(first: int, end: int) -> None:
        with np.errstate(**quiet):
            work(first, end)

    with ThreadPoolExecutor(parts, thread_name_prefix="optest-draw") as pool:
        for _ in pool.map(one, borders, borders[1:]):
            pass
