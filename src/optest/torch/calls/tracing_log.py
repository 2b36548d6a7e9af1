"""What torch logs while it traces a call that it refuses: the refusal is raised as well, and a verdict says it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["refusals_unlogged"]

_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")
_TEXT = "failed while attempting to run meta for"


def _is_no_refusal(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_TEXT)


@contextmanager
def refusals_unlogged() -> Iterator[None]:
    """Keep off the terminal that a kernel without values raised; whatever else torch logs is logged."""
    _LOGGER.addFilter(_is_no_refusal)
    try:
        yield
    finally:
        _LOGGER.removeFilter(_is_no_refusal)
