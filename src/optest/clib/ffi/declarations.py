"""Preprocessed C cut into its top-level declarations, so that one that cannot be parsed spoils no other."""

from __future__ import annotations

import re
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One declaration as its tokens, and where it begins. ``is_system`` is the preprocessor's opinion of its file.

    ``has_body`` is true of a function that the header defines; its body is cut off.
    """

    words: list[str]
    file: str
    line: int
    is_system: bool
    has_body: bool = False

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Macro:
    """An object-like macro: ``#define name value``."""

    name: str
    value: str
    file: str
    is_system: bool


def cut(text: str) -> tuple[list[Declaration], list[Macro]]:
    """Declarations and object-like macros of a preprocessed text, in order.

    What is begun and never ended is a declaration too: one that its reader will refuse.
    """
    declarations: list[Declaration] = []
    macros: list[Macro] = []
    file, line, is_system = "", 0, False
    began = (file, line, is_system)
    words: list[str] = []
    depth, has_body = 0, False

    def end() -> None:
        nonlocal words, depth, has_body
        if words != [";"]:
            file, line, is_system = began
            declarations.append(Declaration(words=words, file=file, line=line, is_system=is_system, has_body=has_body))
        words, depth, has_body = [], 0, False

    for row in text.splitlines():
        if marker := _MARKER.match(row):
            line, file = int(marker[1]) - 1, marker[2].replace("\\\\", "\\").replace('\\"', '"')
            is_system = _SYSTEM_FLAG in marker[3].split()
            continue
        line += 1
        if row.startswith("#"):
            if macro := _DEFINE.match(row):
                macros.append(Macro(name=macro[1], value=(macro[2] or "").strip(), file=file, is_system=is_system))
            continue
        for token in _TOKEN.findall(row):
            if not words:
                if token in ("{", "}"):  # of extern "C" { … }
                    continue
                began = (file, line, is_system)
            if words == ["extern"] and token in ('"C"', '"C++"'):  # which says nothing about types
                words = []
                continue
            has_body = has_body or (token == "{" and depth == 0 and words[-1:] == [")"])
            depth = max(depth + (token in ("{", "(", "[")) - (token in ("}", ")", "]")), 0)
            if not has_body:
                words.append(token)
            if depth == 0 and token == ("}" if has_body else ";"):
                end()
    if words:
        end()
    return declarations, macros
