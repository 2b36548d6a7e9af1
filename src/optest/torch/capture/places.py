"""Source location of a call in a model: the nearest frame outside torch and optest, and the text of its statement."""

from __future__ import annotations

import ast
import linecache
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType
from typing import TextIO

import torch

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OVERRIDES = os.path.join(_TORCH, "overrides.py")
_THIS_FOLDER = os.path.dirname(__file__) + os.sep
TORCH_AND_OURS = (_TORCH, _THIS_FOLDER)

# Files and methods that create or load parameters: their calls are no part of a model's forward pass.
_INITIALISATION = tuple(os.path.join(_TORCH, *parts) for parts in (("nn", "init.py"), ("serialization.py",)))
_BUILDING = ("__init__", "reset_parameters", "_reset_parameters", "_apply", "load_state_dict")


def place_of_call() -> str:
    """Return "FILE:LINE in FUNCTION, code: STATEMENT" of the model's innermost frame in the current call stack."""
    frame = next(_model_frames(sys._getframe(1)), None)
    if frame is None:
        return "no line of the model"
    code, line = frame.f_code, frame.f_lineno
    text = code_at(linecache.getlines(code.co_filename, frame.f_globals), line)
    return f"{shown_path(code.co_filename)}:{line} in {code.co_name}" + (f", code: {text}" if text else "")


def is_of_initialisation() -> bool:
    """Return whether the current torch call creates, initialises, moves or loads parameters."""
    for frame in _frames_outwards(sys._getframe(1)):
        file = frame.f_code.co_filename
        if file.startswith(_THIS_FOLDER):
            continue
        if not file.startswith(_TORCH):
            return False
        if file in _INITIALISATION or (frame.f_code.co_name in _BUILDING and f"{os.sep}nn{os.sep}" in file):
            return True
    return False


def _model_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of model code, from ``frame`` outwards."""
    skipped = (*TORCH_AND_OURS, "<frozen ")
    return (f for f in _frames_outwards(frame) if not f.f_code.co_filename.startswith(skipped))


def _frames_outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def shown_path(file: str) -> str:
    """Return ``file`` relative to its innermost ``sys.path`` folder; its base name if no folder contains it."""
    # A captured file must not name the folders of one machine.
    folders = [os.path.abspath(folder or os.curdir) for folder in sys.path]
    path = os.path.abspath(file)
    inside = [folder for folder in folders if path.startswith(folder.rstrip(os.sep) + os.sep)]
    return os.path.relpath(path, max(inside, key=len)).replace(os.sep, "/") if inside else os.path.basename(path)


# torch attributes the warnings of a recorded call to the mode that forwards it, which tells the user nothing.
@contextmanager
def warnings_at_the_model() -> Iterator[None]:
    """Show warnings from this package or torch/overrides.py at the model's line within the block."""
    shown = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        is_forwarded = filename.startswith(_THIS_FOLDER) or filename == _OVERRIDES
        callers = (f for f in _model_frames(sys._getframe()) if f.f_code.co_filename != warnings.__file__)
        frame = next(callers, None) if is_forwarded else None
        if frame is not None:
            filename, lineno, line = frame.f_code.co_filename, frame.f_lineno, None
        shown(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        if warnings.showwarning is show:  # a model may have set its own
            warnings.showwarning = shown


# Characters of a shown statement; of a longer one, the widest subexpression around the line that fits is shown.
_MAX_STATEMENT = 200


def code_at(lines: Sequence[str], line: int) -> str:
    """Return the statement that contains line ``line`` (from 1), without comments; "" beyond the end.

    One of several lines is written anew on one line. The line itself is returned if that is too long, or if the code
    does not parse.
    """
    if not 1 <= line <= len(lines):
        return ""
    for node in _nodes_of_lines(tuple(lines)).get(line, ()):
        text = ast.unparse(node)
        if len(text) <= _MAX_STATEMENT and "\n" not in text:
            return text
    return lines[line - 1].strip()


@lru_cache(maxsize=64)
def _nodes_of_lines(lines: tuple[str, ...]) -> dict[int, list[ast.AST]]:
    """Map each line to the expressions and simple statements of several lines that contain it, outer ones first.

    Empty if the code does not parse.
    """
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return {}
    by_line: dict[int, list[ast.AST]] = {}
    for node in ast.walk(tree):  # outer nodes come before inner ones
        if isinstance(node, (ast.expr, ast.stmt)) and not isinstance(getattr(node, "body", None), list):
            first, last = node.lineno, node.end_lineno or node.lineno
            for line in range(first, last + 1) if last > first else ():
                by_line.setdefault(line, []).append(node)
    return by_line
