"""The stream that a report is written to: its encoding, colours, width and, on a terminal, the live last line."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TextIO

from optest.reporting.typography import ascii_only, printable, wrap

_SGR = {
    "good": "32",
    "bad": "1;31",
    "warn": "33",
    "dim": "2",
    "strong": "1",
    "command": "36",
}
_ERASE_LINE = "\r\x1b[2K"


def wants_color(stream: TextIO, *, no_color: bool, variables: Mapping[str, str]) -> bool:
    """Colours on a terminal, unless ``--no-color``, ``NO_COLOR`` or ``TERM=dumb``; ``FORCE_COLOR`` also in a pipe."""
    if no_color or variables.get("NO_COLOR"):
        return False
    if variables.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and variables.get("TERM") != "dumb"


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # the stream is closed
        return False


_COMMAND = re.compile(r"^(\s*)(::)|(##)(\[)", re.MULTILINE)
"""How a line steers a CI service that reads this output (``::error::`` at its beginning, ``##[error]`` anywhere); what
is printed here may be foreign text. optest's own such lines are written by :mod:`optest.reporting.annotations`."""


def _escaped_command(match: re.Match[str]) -> str:
    space, colons, signs, bracket = match.groups("")
    return f"{space}{signs}\\{colons}{bracket}"


class Page:
    """Lines with styles on a stream. It never fails on a character, and falls silent when the reader has left."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        color: bool | None = None,
        live: bool | None = None,
        width: int | None = None,
    ) -> None:
        self._stream = sys.stdout if stream is None else stream
        terminal = is_terminal(self._stream)
        self._color = terminal if color is None else color
        self.live = terminal if live is None else live
        self._width = width
        self._terminal = terminal
        self._encoding = getattr(self._stream, "encoding", None) or "utf-8"
        self._status_shown = False
        self._reader_left = False

    @property
    def is_decorated(self) -> bool:
        """Whether somebody looks at a terminal, or wants all that one can show; no log of a CI service."""
        return self._terminal or self._color

    @property
    def width(self) -> int | None:
        """Columns, None for a stream that has no width: nothing is wrapped there."""
        if self._width is not None:
            return self._width
        if not self._terminal:
            return None
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def line(self, text: str = "", style: str = "") -> None:
        self.lines([(text, style)])

    def lines(self, lines: Iterable[tuple[str, str]]) -> None:
        """Write lines of (text, style), wrapped at the width of a terminal."""
        width = self.width
        pieces = [_ERASE_LINE] if self._status_shown else []
        self._status_shown = False
        for text, style in lines:
            first, *rest = [text] if width is None else wrap(text, width)
            pieces.append(self._styled(first, style) + "\n")
            pieces += [self._styled(each, "" if ":" in style else style) + "\n" for each in rest]
        self._write("".join(pieces))

    def status(self, text: str, style: str = "") -> None:
        """Replace the live last line; it is gone as soon as a line or nothing is written."""
        if self.live:
            self._write(_ERASE_LINE + self._styled(self._fitted(text), style))
            self._status_shown = True

    def clear_status(self) -> None:
        if self._status_shown:
            self._status_shown = False
            self._write(_ERASE_LINE)

    def _fitted(self, text: str) -> str:
        """Cut to one row: a status that wraps could not be erased. Wide characters count twice."""
        from rich.cells import cell_len, set_cell_size

        room = (self.width or 80) - 1
        shown = self._shown(text)
        return shown if cell_len(shown) <= room else set_cell_size(shown, room)

    def _styled(self, text: str, style: str) -> str:
        """``style`` colours the line; ``style:n`` its first n characters."""
        shown = self._shown(text)
        name, _, count = style.partition(":")
        if not self._color or name not in _SGR or not shown:
            return shown
        end = int(count) if count else len(shown)
        return f"\x1b[{_SGR[name]}m{shown[:end]}\x1b[0m{shown[end:]}"

    def _shown(self, text: str) -> str:
        text = _COMMAND.sub(_escaped_command, printable(text).replace("\n", "\n    "))
        try:
            text.encode(self._encoding)
        except UnicodeEncodeError:
            return ascii_only(text, self._encoding)
        return text

    def _write(self, text: str) -> None:
        if self._reader_left or not text:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except BrokenPipeError:
            self._reader_left = True  # `optest run | head`: the run and its journal go on
