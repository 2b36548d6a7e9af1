"""Preprocessed C cut into its top-level declarations, so that one that cannot be parsed spoils no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Declaration", "Macro", "cut"]

_MARKER = re.compile(r'#\s*(?:line\s+)?(\d+)\s+"((?:[^"\\]|\\.)*)"([ \d]*)')
_DEFINE = re.compile(r"#\s*define\s+([A-Za-z_]\w*)(?:[ \t]+(.*))?$")
_TOKEN = re.compile(
    r"""[LuU]?"(?:[^"\\\n]|\\.)*"|[LuU]?'(?:[^'\\\n]|\\.)*'|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|[\w.])*|\.\.\.|"""
    r"<<|>>|<=|>=|==|!=|&&|\|\||\S"
)
"""The tokens of C as far as brackets, words and the ends of declarations need them; operators stay whole."""
_SYSTEM_FLAG = "3"
_LINKAGE_PARTS = 8
"""``extern "C"`` stands at the very beginning of a declaration: words, blanks and line ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One declaration and where it begins. ``is_system`` is the preprocessor's opinion of its file.

    ``has_body`` tells a function that the header defines; its body is cut off.
    """

    text: str
    file: str
    line: int
    is_system: bool
    has_body: bool = False

    @property
    def words(self) -> list[str]:
        return _TOKEN.findall(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro:
    """An object-like macro: ``#define name value``."""

    name: str
    value: str
    file: str
    is_system: bool


def cut(text: str) -> tuple[list[Declaration], list[Macro]]:
    """Declarations and object-like macros of a preprocessed text, in order."""
    cutter = _Cutter()
    for line in text.splitlines():
        cutter.take(line)
    cutter.end()
    return cutter.declarations, cutter.macros


class _Cutter:
    """Reads line by line and knows how deep in brackets it is; ``extern "C" {`` opens no level."""

    def __init__(self) -> None:
        self.declarations: list[Declaration] = []
        self.macros: list[Macro] = []
        self._file, self._line, self._system = "", 0, False
        self._began: tuple[str, int, bool] = ("", 0, False)
        self._parts: list[str] = []
        self._depth = 0
        self._in_body = False
        self._linkage_blocks = 0

    def take(self, line: str) -> None:
        if line.startswith("#"):
            self._directive(line)
            return
        for token in self._tokens(line):
            self._token(token)
        if self._parts and not self._in_body:
            self._parts.append("\n")
        self._line += 1

    def end(self) -> None:
        """What was begun and never ended is a declaration too: one that its reader will refuse."""
        if self._parts:
            self._finish(has_body=False)

    def _tokens(self, line: str) -> Iterator[str]:
        return (match.group() for match in _TOKEN.finditer(line))

    def _directive(self, line: str) -> None:
        if marker := _MARKER.match(line):
            self._line, self._file = int(marker[1]), marker[2].replace("\\\\", "\\").replace('\\"', '"')
            self._system = _SYSTEM_FLAG in marker[3].split()
            return
        if macro := _DEFINE.match(line):
            value = (macro[2] or "").strip()
            self.macros.append(Macro(name=macro[1], value=value, file=self._file, is_system=self._system))
        self._line += 1

    def _token(self, token: str) -> None:
        if self._depth == 0 and self._is_linkage(token):
            return
        if not self._parts:
            self._began = (self._file, self._line, self._system)
        if token == "{" and self._depth == 0 and self._last() == ")":
            self._in_body = True
        if token in "{([":
            self._depth += 1
        if not self._in_body:
            self._parts += [" ", token]
        if token in "})]":
            self._depth = max(self._depth - 1, 0)
            if self._in_body and self._depth == 0:
                self._finish(has_body=True)
        elif token == ";" and self._depth == 0:
            self._finish(has_body=False)

    def _last(self) -> str:
        return next((part for part in reversed(self._parts) if not part.isspace()), "")

    def _is_linkage(self, token: str) -> bool:
        """Whether ``token`` is part of ``extern "C"``, which says nothing about types."""
        if len(self._parts) > _LINKAGE_PARTS:
            return False
        words = [part for part in self._parts if not part.isspace()]
        if token in ('"C"', '"C++"') and words == ["extern"]:
            self._parts.append(token)
            return True
        if words in (["extern", '"C"'], ["extern", '"C++"']):
            self._parts.clear()
            if token == "{":
                self._linkage_blocks += 1
                return True
            return False
        if token == "}" and not words and self._linkage_blocks:
            self._linkage_blocks -= 1
            return True
        return False

    def _finish(self, *, has_body: bool) -> None:
        file, line, system = self._began
        text = "".join(self._parts).strip()
        self._parts.clear()
        self._in_body = False
        if text != ";":
            self.declarations.append(Declaration(text=text, file=file, line=line, is_system=system, has_body=has_body))
