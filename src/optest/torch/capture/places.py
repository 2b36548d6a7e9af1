"""Where in a model a call stands: the nearest frame that is neither torch's nor ours."""

from __future__ import annotations

import linecache
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TextIO

import torch

from optest.torch.capture.statements import code_at

__all__ = ["TORCH_AND_OURS", "is_of_initialisation", "place_of_call", "shown_path", "warnings_at_the_model"]

_TORCH = os.path.dirname(torch.__file__) + os.sep
_HANDS_ON = os.path.join(_TORCH, "overrides.py")
_OWN = os.path.dirname(__file__) + os.sep
TORCH_AND_OURS = (_TORCH, _OWN)
"""Folders of what is no model."""

_INITIALISATION = tuple(os.path.join(_TORCH, *parts) for parts in (("nn", "init.py"), ("serialization.py",)))
_BUILDING = ("__init__", "reset_parameters", "_reset_parameters", "_apply", "load_state_dict")


def place_of_call() -> str:
    """The line of the model that made the call which is being seen: its file, its function, the statement's text."""
    found = next(_of_model(sys._getframe(1)), None)
    if found is None:
        return "no line of the model"
    code, line = found.f_code, found.f_lineno
    text = code_at(linecache.getlines(code.co_filename, found.f_globals), line)
    return f"{shown_path(code.co_filename)}:{line} in {code.co_name}" + (f", code: {text}" if text else "")


def is_of_initialisation() -> bool:
    """Whether torch makes the call because parameters are made, initialised, moved or loaded."""
    for frame in _frames(sys._getframe(1)):
        name = frame.f_code.co_filename
        if name.startswith(_OWN):
            continue
        if not name.startswith(_TORCH):
            return False
        if name in _INITIALISATION or (frame.f_code.co_name in _BUILDING and f"{os.sep}nn{os.sep}" in name):
            return True
    return False


def _of_model(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the model's own code, from ``frame`` outwards."""
    return (each for each in _frames(frame) if not each.f_code.co_filename.startswith((*TORCH_AND_OURS, "<frozen ")))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def shown_path(file: str) -> str:
    """``file`` from the folder that it was imported from, so that a captured file names no machine's folders."""
    folders = [os.path.abspath(each or os.curdir) for each in sys.path]
    path = os.path.abspath(file)
    inside = [each for each in folders if path.startswith(each.rstrip(os.sep) + os.sep)]
    return os.path.relpath(path, max(inside, key=len)).replace(os.sep, "/") if inside else os.path.basename(path)


# Warnings of a call that is watched, told at the line of the model: torch sees the mode that made the call for it.


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
        is_between_model_and_torch = filename.startswith(_OWN) or filename == _HANDS_ON
        frame = _caller_of_warnings() if is_between_model_and_torch else None
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
    return next(_of_model(frame), None)
