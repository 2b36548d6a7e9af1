"""Warnings of a call that is watched, told at the line of the model: torch sees the mode that made the call for it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

from optest.torch.capture.places import is_between_model_and_torch, nearest_of_model

__all__ = ["warnings_at_the_model"]


@contextmanager
def warnings_at_the_model() -> Iterator[None]:
    """While inside, a warning that points at what lies between the model and torch points at the model."""
    shown = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        frame = _caller_of_warnings() if is_between_model_and_torch(filename) else None
        if frame is not None:
            filename, lineno, line = frame.f_code.co_filename, frame.f_lineno, None
        shown(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        if warnings.showwarning is show:  # a model may have set its own
            warnings.showwarning = shown


def _caller_of_warnings() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in (__file__, warnings.__file__):
        frame = frame.f_back
    return nearest_of_model(frame)
