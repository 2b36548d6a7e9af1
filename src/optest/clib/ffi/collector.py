"""Python's collector of cycles at rest, where what it frees would be taken for what a library does to the heap."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_collector"]


@contextmanager
def no_collector() -> Iterator[None]:
    """While inside, it frees nothing: a library would be given those blocks first, and what it loses would not show."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
