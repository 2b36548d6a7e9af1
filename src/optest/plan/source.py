"""YAML text to plain data, with the traps of YAML 1.1 closed and every value traceable to its line.

Nodes are composed by libyaml and turned into data here, so that one pass gives data and lines; lines are looked up
only when something has to be reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from optest.errors import PlanError, Problem
from optest.plan.composer import compose, fatal
from optest.plan.scalars import MERGE

__all__ = ["Path", "Source", "format_path", "load_value", "parse_source"]

MAX_BYTES = 16 * 1024 * 1024
MAX_ALIASED_NODES = 1_000_000
"""How many nodes aliases may stand for in the whole file; what is written out is limited by MAX_BYTES alone."""

Path: TypeAlias = tuple["str | int", ...]


def format_path(path: Path) -> str:
    """``$.cases[3].shapes.input1``; keys that are no plain words stand in brackets."""
    parts = ["$"]
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif re.fullmatch(r"[A-Za-z_][\w-]*", step):
            parts.append(f".{step}")
        else:
            parts.append(f"[{step!r}]")
    return "".join(parts)


@dataclass(slots=True, kw_only=True)
class Source:
    """A YAML file as plain data, and the lines of what stands in it.

    ``faults`` are the traps and duplicate keys, by path; such a value is in ``data`` as its text. The nodes, some
    seventy times as large as the text, are kept only until :meth:`settle` and made again when a line is asked for.
    """

    file: str
    raw: Callable[[], bytes]
    """The text, made only when a line is asked for where nobody wrote a file."""
    data: dict[str, Any]
    root: Node | None
    faults: dict[Path, Problem]
    case_lines: list[int] = field(default_factory=list)
    """The line of each item of the top-level list ``cases``."""
    case_key_lines: list[dict[str, int]] = field(default_factory=list)
    """The line of each key in these items."""

    def settle(self) -> None:
        """Note the lines of the cases and let go of the nodes."""
        _, node, exact = self._find(("cases",))
        if exact and isinstance(node, SequenceNode):
            self.case_lines = [item.start_mark.line + 1 for item in node.value]
            self.case_key_lines = [_key_lines(item) for item in node.value]
        self.root = None

    def line_of(self, path: Path) -> int:
        """The line, counted from 1, of the key or list item at ``path``, or of the nearest thing around it."""
        return self._find(path)[0]

    def place_of(self, path: Path) -> tuple[int, int]:
        """The line, and a number for what is written there: the same wherever an alias or a merge repeats it."""
        line, node, _ = self._find(path)
        return line, id(node)

    def text_at(self, path: Path) -> str | None:
        """What is written at ``path`` if that is one plain or quoted scalar."""
        _, node, exact = self._find(path)
        return node.value if exact and isinstance(node, ScalarNode) else None

    def _find(self, path: Path) -> tuple[int, Node, bool]:
        if self.root is None:
            self.root = compose(self.raw(), self.file)
        assert self.root is not None
        node = self.root
        line = node.start_mark.line + 1
        for step in path:
            found = _child(node, step)
            if found is None:
                return line, node, False
            line, node = found
        return line, node, True


def _key_lines(node: Node) -> dict[str, int]:
    if not isinstance(node, MappingNode):
        return {}
    scalars = [key for key, _ in node.value if isinstance(key, ScalarNode)]
    return {key.value: key.start_mark.line + 1 for key in scalars if _tag(key) is not MERGE}


def _child(node: Node, step: str | int) -> tuple[int, Node] | None:
    if isinstance(step, int):
        if isinstance(node, SequenceNode) and step < len(node.value):
            item = node.value[step]
            return item.start_mark.line + 1, item
        return None
    if not isinstance(node, MappingNode):
        return None
    for key, value in reversed(node.value):
        if isinstance(key, ScalarNode) and key.value == step and _tag(key) is not MERGE:
            return key.start_mark.line + 1, value
    for key, value in node.value:
        if _tag(key) is not MERGE:
            continue
        for source in value.value if isinstance(value, SequenceNode) else (value,):
            found = _child(source, step)
            if found is not None:
                return found
    return None


def parse_source(raw: bytes, file: str) -> Source:
    """Read one YAML document whose top is a mapping.

    Raises:
        PlanError: if it is too large, not UTF-8, not YAML, empty, several documents, no mapping, nested too deeply,
            or if its aliases stand for too much. Traps and duplicate keys are collected in ``faults`` instead.
    """
    root = compose(_checked_text(raw, file), file)
    if root is None or (isinstance(root, ScalarNode) and root.value == ""):
        raise fatal(
            file,
            1,
            "the file is empty, but should be a mapping with the key cases",
            "cases: [{op: relu, shapes: {input0: 2x3}}]",
        )
    if not isinstance(root, MappingNode):
        what = "a list" if isinstance(root, SequenceNode) else f"{root.value!r}"
        line = root.start_mark.line + 1
        hint = (
            "write cases: above it" if isinstance(root, SequenceNode) else "cases: [{op: relu, shapes: {input0: 2x3}}]"
        )
        raise fatal(file, line, f"the top of the file is {what}, but should be a mapping with the key cases", hint)
    if b"*" in raw:
        _check_aliases(root, file)
    data, suspicious = _plain_data(root)
    faults = dict(_faults(root, file)) if suspicious or _MAY_BE_NUL.search(raw) else {}
    return Source(file=file, raw=lambda: raw, data=data, root=root, faults=faults)


_MAY_BE_NUL = re.compile(rb"\\(0|x00|u0000|U00000000)")
"""YAML has no NUL but by its escapes; no name, path or text of a plan has a use for one."""


def load_value(text: str) -> Any:
    """Read one YAML value, as the command line takes it.

    Raises:
        ValueError: saying what is wrong with the text.
    """
    try:
        root = compose(text.encode(), "")
        if root is None:
            return None
        _check_aliases(root, "")
        value, suspicious = _plain_data(root)
        if suspicious:
            for problem in dict(_faults(root, "")).values():
                raise ValueError(problem.message + (f"; {problem.hint}" if problem.hint else ""))
    except PlanError as error:
        raise ValueError(error.problems[0].message) from None
    return value


def _checked_text(raw: bytes, file: str) -> bytes:
    if len(raw) > MAX_BYTES:
        size = len(raw) / 2**20
        raise fatal(file, 0, f"the file is {size:.1f} MB large, but should be at most {MAX_BYTES // 2**20} MB")
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        byte = raw[error.start]
        raise fatal(
            file, line, f"the text has the byte 0x{byte:02x}, but should be UTF-8", "save it as UTF-8"
        ) from None
    return raw


def _plain_data(root: Node) -> tuple[Any, bool]:
    """Return the data and whether anything in it needs a second look (a trap, a tag, a duplicate or odd key)."""
    suspicious = False

    def value_of(node: Node) -> Any:
        nonlocal suspicious
        kind = type(node)
        if kind is ScalarNode:
            tag: Any = node.tag
            if type(tag) is tuple and len(tag) == 1:
                return tag[0]
            suspicious = True
            return node.value
        if node.tag is not None:
            suspicious = True
        if kind is SequenceNode:
            return [value_of(item) for item in node.value]
        return mapping_of(node)

    def mapping_of(node: Node) -> dict[str, Any]:
        nonlocal suspicious
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        count = 0
        for key, value in node.value:
            tag: Any = key.tag
            if tag is MERGE:
                suspicious = suspicious or bool(merged) or not _is_mergeable(value)
                merged = _merged(value_of(value))
                continue
            count += 1
            if type(key) is not ScalarNode or not _is_text(tag):
                suspicious = True
                found[key.value if type(key) is ScalarNode else repr(value_of(key))] = value_of(value)
                continue
            found[tag[0]] = value_of(value)
        if len(found) != count:
            suspicious = True
        return {**merged, **found} if merged else found

    return value_of(root), suspicious


def _merged(value: Any) -> dict[str, Any]:
    """What ``<<: value`` adds; in a list the first mapping that has a key decides."""
    sources = value if isinstance(value, list) else [value]
    merged: dict[str, Any] = {}
    for source in reversed(sources):
        if isinstance(source, dict):
            merged.update(source)
    return merged


def _is_mergeable(node: Node) -> bool:
    sources = node.value if isinstance(node, SequenceNode) else [node]
    return all(isinstance(source, MappingNode) for source in sources)


def _check_aliases(root: Node, file: str) -> None:
    """Refuse aliases that contain themselves or together stand for more than MAX_ALIASED_NODES nodes."""
    sizes: dict[int, int] = {}
    aliased = 0

    def size_of(node: Node) -> int:
        nonlocal aliased
        known = sizes.get(id(node))
        if known is not None:
            if known == 0:
                raise fatal(file, node.start_mark.line + 1, "an anchor contains an alias of itself")
            aliased += known
            if aliased > MAX_ALIASED_NODES:
                message = f"aliases stand for more than {MAX_ALIASED_NODES:,} values"
                raise fatal(file, node.start_mark.line + 1, message)
            return known
        if isinstance(node, ScalarNode):
            sizes[id(node)] = 1
            return 1
        sizes[id(node)] = 0
        children: Sequence[Node] = node.value
        if isinstance(node, MappingNode):
            children = [child for pair in node.value for child in pair]
        sizes[id(node)] = total = 1 + sum(map(size_of, children))
        return total

    size_of(root)


_NO_NUL = "write the text without \\0"


def _faults(root: Node, file: str) -> Iterator[tuple[Path, Problem]]:
    """Everything in the nodes that a plan does not take, in the order of the file, with its path."""

    said: dict[tuple[int, str], Problem] = {}

    def fault(node: Node, path: Path, message: str, hint: str = "") -> tuple[Path, Problem]:
        """What an alias or a merge repeats is said of the place where it is written."""
        line = node.start_mark.line + 1
        problem = Problem(message=message, file=file, line=line, path=format_path(path), hint=hint)
        return path, said.setdefault((id(node), message), problem)

    def visit(node: Node, path: Path) -> Iterator[tuple[Path, Problem]]:
        tag = _tag(node)
        if isinstance(tag, str):
            shown = tag.replace("tag:yaml.org,2002:", "!!")
            yield fault(node, path, f"the tag {shown} is not taken", "write the value itself, in quotes if it is text")
        if isinstance(node, ScalarNode):
            if "\0" in node.value:
                yield fault(node, path, f"{_named(path)} holds a NUL, which no text of a plan may", _NO_NUL)
            if isinstance(tag, tuple) and len(tag) == 3:
                text, meaning, hint = tag
                yield fault(node, path, f"{_named(path)} is {text}, and {meaning}", hint)
        elif isinstance(node, SequenceNode):
            for index, item in enumerate(node.value):
                yield from visit(item, (*path, index))
        else:
            yield from visit_mapping(node, path)

    def visit_mapping(node: Node, path: Path) -> Iterator[tuple[Path, Problem]]:
        first_lines: dict[str, int] = {}
        merges: list[Node] = []
        for key, value in node.value:
            if _tag(key) is MERGE:
                if not _is_mergeable(value):
                    yield fault(key, path, "<< merges something else than a mapping or a list of mappings")
                if "<<" in first_lines:
                    yield fault(key, (*path, "<<"), "<< is stated twice", "merge a list: <<: [*first, *second]")
                first_lines.setdefault("<<", key.start_mark.line + 1)
                merges.append(value)
                continue
            name = key.value if isinstance(key, ScalarNode) else "[...]"
            here = (*path, name)
            if "\0" in name:
                yield fault(key, path, "a key holds a NUL, which no text of a plan may", _NO_NUL)
            if not isinstance(key, ScalarNode):
                yield fault(key, here, "a key is a list or mapping, but should be a word")
                continue
            if not _is_text(_tag(key)) and name and isinstance(value, ScalarNode) and value.value == "":
                hint = "sizes stand in brackets, such as [2, 3], or are written 2x3"
                yield fault(key, here, f"{name} stands alone, but should be a key with a value", hint)
            elif not _is_text(_tag(key)):
                yield fault(key, here, f"the key {name or 'null'} is not text", f'write "{name}": in quotes')
            if name in first_lines:
                message = f"the key {name} is stated twice, first in line {first_lines[name]}"
                yield fault(key, here, message, "keep one of them")
            first_lines.setdefault(name, key.start_mark.line + 1)
            yield from visit(value, here)
        for merged in merges:
            for found, problem in visit_merged(merged, path):
                if len(found) > len(path) and found[len(path)] not in first_lines:
                    yield found, problem

    def visit_merged(node: Node, path: Path) -> Iterator[tuple[Path, Problem]]:
        for each in node.value if isinstance(node, SequenceNode) else (node,):
            if isinstance(each, MappingNode):
                yield from visit_mapping(each, path)

    yield from visit(root, ())


def _tag(node: Node) -> Any:
    """What the composer left in place of a tag; PyYAML's stubs take it for a string."""
    return node.tag


def _is_text(tag: Any) -> bool:
    return type(tag) is tuple and len(tag) == 1 and type(tag[0]) is str


def _named(path: Path) -> str:
    """The last word of a path, as a sentence begins with it."""
    if not path:
        return "the value"
    last = path[-1]
    return f"{_named(path[:-1])}[{last}]" if isinstance(last, int) else last
