"""YAML text to nodes, by libyaml where PyYAML has it, with a limit on depth."""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.nodes import Node, ScalarNode

from optest.errors import PlanError, Problem
from optest.plan.scalars import plain_scalar

__all__ = ["compose", "fatal"]

MAX_DEPTH = 64


_TOO_DEEP_FOR_LIBYAML = "exceeded maximum nesting depth"
"""From PyYAML 6.0.4 on its scanner looks ahead over a thousand levels, before the composer counts any."""


class _TooDeep(yaml.MarkedYAMLError):
    pass


class _Resolver:
    """What the composer asks of a loader: a tag for every node. Depth is counted on the way."""

    def _reset(self) -> None:
        self.depth = 0
        self.plain: dict[str, tuple[Any, ...]] = {}

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:  # noqa: ARG002 - PyYAML's interface
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = getattr(current_node, "start_mark", None)
            raise _TooDeep(problem=f"nesting is more than {MAX_DEPTH} levels deep", problem_mark=mark)

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def resolve(self, kind: Any, value: Any, implicit: Any) -> tuple[Any, ...] | None:
        if kind is not ScalarNode:
            return None
        if not implicit[0]:
            return (value,)
        found = self.plain.get(value)
        if found is None:
            found = self.plain[value] = plain_scalar(value)
        return found


class _PythonLoader(_Resolver, yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer):
    """For a PyYAML that was built without libyaml; the same results, some twenty times slower."""

    def __init__(self, stream: bytes) -> None:
        self._reset()
        yaml.reader.Reader.__init__(self, stream)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)
        yaml.composer.Composer.__init__(self)


_Loader: type[Any] = _PythonLoader

if yaml.__with_libyaml__:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]

    class _CLoader(_Resolver, CParser):
        def __init__(self, stream: bytes) -> None:
            self._reset()
            CParser.__init__(self, stream)

    _Loader = _CLoader


def compose(raw: bytes, file: str) -> Node | None:
    """Return the nodes of the one document in ``raw``, None if it has none.

    In place of a tag a scalar has what :func:`plain_scalar` returns, ``(text,)`` if quoted; a tag that the file
    states itself stays a string.

    Raises:
        PlanError: with the line, if the text is no YAML or nested too deeply.
    """
    try:
        root: Node | None = _Loader(raw).get_single_node()
    except yaml.reader.ReaderError as error:
        line = raw.count(b"\n", 0, error.position) + 1
        raise fatal(file, line, f"the text has the character {error.character!r}: {error.reason}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        if isinstance(error, _TooDeep) or error.problem == _TOO_DEEP_FOR_LIBYAML:
            raise fatal(file, line, f"nesting is more than {MAX_DEPTH} levels deep") from None
        if error.problem == "but found another document":
            raise fatal(file, line, "a second document begins, but a plan is one document", "remove '---'") from None
        raise fatal(file, line, f"this is not YAML: {_said(error, raw)}", _shown(raw, mark)) from None
    except yaml.YAMLError as error:
        raise fatal(file, 0, f"this is not YAML: {error}") from None
    return root


def _said(error: yaml.MarkedYAMLError, raw: bytes) -> str:
    """The parser's finding, and what people do that leads to it."""
    problem = error.problem or "it cannot be read"
    mark = error.problem_mark or error.context_mark
    before = _lines(raw)[: mark.line + 1][-2:] if mark else []
    if mark and "\t" in _line(raw, mark.line)[: mark.column + 1]:
        return "the line is indented with a tab, but should be with spaces"
    if "mapping values are not allowed" in problem:
        if any(re.search(r"^[\s{-]*\w+:[^\s:]", line) for line in before):
            return "a ':' without a space after it makes no key; write 'op: relu', not 'op:relu'"
        return "a ':' stands where no key can; the indentation is off, or text with ': ' in it is not in quotes"
    if mark and _line(raw, mark.line)[mark.column : mark.column + 1] == ":" and "expected ','" in problem:
        return "a ':' stands where no key can; text with ': ' in it has to be in quotes"
    if "did not find expected ',' or" in problem or "expected the node content" in problem:
        opened = f" in line {error.context_mark.line + 1}" if error.context_mark else ""
        return f"a bracket that is opened{opened} is not closed, or a comma is missing"
    if "expected '-' indicator" in problem or "expected key" in problem or "<block end>" in problem:
        return "the line is indented neither as its neighbours nor as something below them"
    return f"{problem} ({error.context})" if error.context else problem


def _shown(raw: bytes, mark: Any) -> str:
    """The line and a caret under the place, as a hint."""
    text = _line(raw, mark.line) if mark else ""
    start = max(0, mark.column - 60) if mark else 0
    part = text[start : start + 100].rstrip()
    if not part:
        return ""
    return f"{part.replace(chr(9), ' ')}\n    {' ' * (mark.column - start)}^"


def _line(raw: bytes, line: int) -> str:
    lines = _lines(raw)
    return lines[line] if line < len(lines) else ""


def _lines(raw: bytes) -> list[str]:
    return raw.decode("utf-8", "replace").split("\n")


def fatal(file: str, line: int, message: str, hint: str = "") -> PlanError:
    """The error for a fault after which nothing else of the file can be read."""
    return PlanError([Problem(message=message, file=file, line=line, hint=hint)])
