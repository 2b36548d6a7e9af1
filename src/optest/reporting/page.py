"""Output stream of a report: encoding, colours, width and, on a terminal, a live last line."""

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
    """Return whether to write colours: on a terminal, unless ``no_color``, NO_COLOR or TERM=dumb forbids it.

    FORCE_COLOR enables them in a pipe, too. NO_COLOR: https://no-color.org
    """
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


# Workflow commands of CI services that read this output: `::error::` at the beginning of a line, `##[error]` anywhere.
# Text of tested code must not issue them; optest's own are written by `optest.reporting.annotations`.
_WORKFLOW_COMMAND = re.compile(r"^(\s*)(::)|(##)(\[)", re.MULTILINE)


class Page:
    """Writer of styled lines to a stream.

    Characters that the stream cannot encode are replaced. Output after the reader has closed a pipe is discarded.
    """

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
        """Return whether colours and block characters are wanted: on a terminal, or with colours enabled."""
        return self._terminal or self._color

    @property
    def width(self) -> int | None:
        """Number of columns; None for a stream that is no terminal, on which nothing is wrapped; 80 if unknown."""
        if self._width is not None:
            return self._width
        if not self._terminal:
            return None
        try:
            # Some pseudo-terminals have 0 columns.
            return os.get_terminal_size(self._stream.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def line(self, text: str = "", style: str = "") -> None:
        self.lines([(text, style)])

    def lines(self, lines: Iterable[tuple[str, str]]) -> None:
        """Erase the live line and write lines of (text, style), wrapped at the width of a terminal."""
        width = self.width
        pieces = [_ERASE_LINE] if self._status_shown else []
        self._status_shown = False
        for text, style in lines:
            first, *rest = [text] if width is None else wrap(text, width)
            pieces.append(self._styled(first, style) + "\n")
            # A style of the first n characters ends in the first line.
            pieces += [self._styled(line, "" if ":" in style else style) + "\n" for line in rest]
        self._write("".join(pieces))

    def status(self, text: str, style: str = "") -> None:
        """Replace the live last line, on a terminal only; the next written line erases it."""
        if self.live:
            self._write(_ERASE_LINE + self._styled(self._fitted(text), style))
            self._status_shown = True

    def clear_status(self) -> None:
        if self._status_shown:
            self._status_shown = False
            self._write(_ERASE_LINE)

    def _fitted(self, text: str) -> str:
        """Cut a text to one row of the terminal, in which wide characters take two cells."""
        from rich.cells import cell_len, set_cell_size

        # A status of two rows could not be erased.
        room = (self.width or 80) - 1
        shown = self._encodable(text)
        return shown if cell_len(shown) <= room else set_cell_size(shown, room)

    def _styled(self, text: str, style: str) -> str:
        """Return ``text`` coloured by ``style``, or its first n characters by ``style:n``; as it is without colours."""
        shown = self._encodable(text)
        name, _, count = style.partition(":")
        if not self._color or name not in _SGR or not shown:
            return shown
        end = int(count) if count else len(shown)
        return f"\x1b[{_SGR[name]}m{shown[:end]}\x1b[0m{shown[end:]}"

    def _encodable(self, text: str) -> str:
        """Return ``text`` with control characters, workflow commands and characters that cannot be encoded escaped."""
        text = _WORKFLOW_COMMAND.sub(r"\1\3\\\2\4", printable(text).replace("\n", "\n    "))
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
            self._reader_left = True  # as in `optest run | head`: the run and its journal continue
