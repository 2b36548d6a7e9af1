"""A case made ready to be called again and again: what a benchmark times, and nothing around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["PreparedCall"]


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCall:
    """``call`` computes the outputs once more from inputs that are where the backend wants them.

    ``synchronize`` returns when the device has done all that was called. ``outputs`` calls once more and returns the
    outputs, as ``run`` does, so that what was timed can be judged. ``what`` says what is called, where the backend's
    name alone would mislead.
    """

    call: Callable[[], object]
    outputs: Callable[[], Sequence[Any] | Mapping[str, Any]]
    synchronize: Callable[[], object] = _nothing
    what: str = ""
