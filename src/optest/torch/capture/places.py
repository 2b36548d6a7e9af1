"""Where in a model a call stands: the nearest frame that is neither torch's nor ours, and the text of its statement."""

from __future__ import annotations

import ast
import io
import linecache
import os
import sys
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType
from typing import TextIO

import torch

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
        callers = (each for each in _of_model(sys._getframe()) if each.f_code.co_filename != warnings.__file__)
        frame = next(callers, None) if is_between_model_and_torch else None
        if frame is not None:
            filename, lineno, line = frame.f_code.co_filename, frame.f_lineno, None
        shown(message, category, filename, lineno, file, line)

    warnings.showwarning = show
    try:
        yield
    finally:
        if warnings.showwarning is show:  # a model may have set its own
            warnings.showwarning = shown


# The text of the code around a line of a file: a call that spans several lines is shown as one.


_LONGEST = 200
"""Characters; of a longer statement the widest part around the line that is not."""


def code_at(lines: Sequence[str], line: int) -> str:
    """The statement that line ``line`` (from 1) is of, as one line without comments; "" beyond the end."""
    if not 1 <= line <= len(lines):
        return ""
    own = lines[line - 1].strip()
    for first, last in _spans(tuple(lines)).get(line, ()):
        # Join the lines without comments and without spaces inside of brackets.
        text = ""
        for code in _without_comments(lines[first - 1 : last]):
            part = code.strip()
            if part.startswith((")", "]", "}")) and text.endswith(",") and not _is_of_a_tuple(text):
                text = text[:-1]
            is_tight = text.endswith(("(", "[", "{")) or part.startswith((")", "]", "}", "."))
            text += part if is_tight or not part or not text else f" {part}"
        if len(text) <= _LONGEST:
            return text
    return own


@lru_cache(maxsize=64)
def _spans(lines: tuple[str, ...]) -> dict[int, tuple[tuple[int, int], ...]]:
    """For each line the first and last lines of what it is a part of, widest first; only what spans several."""
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return {}
    found: dict[int, set[tuple[int, int]]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.stmt)) and not (hasattr(node, "body") and isinstance(node.body, list)):
            first, last = node.lineno, node.end_lineno or node.lineno
            for line in range(first, last + 1) if last > first else ():
                found.setdefault(line, set()).add((first, last))
    return {line: tuple(sorted(spans, key=lambda each: each[0] - each[1])) for line, spans in found.items()}


def _is_of_a_tuple(text: str) -> bool:
    """Whether the bracket that is open at the end is that of a tuple, whose last comma may make it one."""
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += (text[place] in ")]}") - (text[place] in "([{")
        if depth < 0:
            before = text[:place].rstrip()[-1:]
            return text[place] == "(" and not (before.isalnum() or before in ("_", ")", "]"))
    return True


def _without_comments(lines: Sequence[str]) -> list[str]:
    found = list(lines)
    try:
        for token in tokenize.generate_tokens(io.StringIO("".join(lines)).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                found[row - 1] = found[row - 1][:column]
    except (tokenize.TokenError, SyntaxError):
        pass  # a part of a statement need not end as a whole one does
    return found
