"""The text of the code around a line of a file: a call that spans several lines is shown as one."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from functools import lru_cache

__all__ = ["code_at"]

_LONGEST = 200
"""Characters; of a longer statement the widest part around the line that is not."""


def code_at(lines: Sequence[str], line: int) -> str:
    """The statement that line ``line`` (from 1) is of, as one line without comments; "" beyond the end."""
    if not 1 <= line <= len(lines):
        return ""
    own = lines[line - 1].strip()
    for first, last in _spans(tuple(lines)).get(line, ()):
        text = _joined(lines[first - 1 : last])
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
    for first, last in _several_lines(tree):
        for line in range(first, last + 1):
            found.setdefault(line, set()).add((first, last))
    return {line: tuple(sorted(spans, key=lambda each: each[0] - each[1])) for line, spans in found.items()}


def _several_lines(tree: ast.AST) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.stmt)) and not (hasattr(node, "body") and isinstance(node.body, list)):
            last = node.end_lineno or node.lineno
            if last > node.lineno:
                yield node.lineno, last


def _joined(lines: Sequence[str]) -> str:
    """The lines behind each other, without comments and without spaces inside of brackets."""
    text = ""
    for line in _without_comments(lines):
        part = line.strip()
        if part.startswith((")", "]", "}")) and text.endswith(",") and not _is_of_a_tuple(text):
            text = text[:-1]
        is_tight = text.endswith(("(", "[", "{")) or part.startswith((")", "]", "}", "."))
        text += part if is_tight or not part or not text else f" {part}"
    return text


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
