"""Convert YAML text to plain data, without the traps of YAML 1.1, and find the line of every value.

PyYAML composes the nodes, with libyaml if it is available; lines are looked up only for messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from optest.errors import PlanError, Problem
from optest.plan.scalars import MERGE, plain_scalar

MAX_BYTES = 16 * 1024 * 1024
# Nodes that all aliases of a file may stand for; nodes that are written out are limited only by MAX_BYTES.
MAX_ALIASED_NODES = 1_000_000

Path: TypeAlias = tuple["str | int", ...]


def format_path(path: Path) -> str:
    """Return a path as ``$.cases[3].shapes.input1``; keys that are no plain words are in brackets."""
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
    """A YAML file as plain data, with the lines of its values."""

    file: str
    # Without a file the text is generated only if a line is needed.
    raw: Callable[[], bytes]
    data: dict[str, Any]
    # Some seventy times as large as the text: dropped by `settle`, and composed again if a line is needed.
    root: Node | None
    # Problems of single values and keys; such a value is in `data` as its text.
    faults: dict[Path, Problem]
    # Lines of the items of the top-level list `cases`.
    case_lines: list[int] = field(default_factory=list)
    # Lines of the keys of the plan, its defaults and these items, by the path of the mapping.
    key_lines: dict[Path, dict[str | int, int]] = field(default_factory=dict)
    # Paths in the file by paths (or their beginnings) in `data`, after a dialect has rearranged the data.
    origins: dict[Path, Path] = field(default_factory=dict)

    def in_file(self, path: Path) -> Path:
        """Return the path in the file of the value at ``path`` in the data."""
        for depth in range(len(path), 0, -1) if self.origins else ():
            if path[:depth] in self.origins:
                return (*self.origins[path[:depth]], *path[depth:])
        return path

    def settle(self) -> None:
        """Store the lines that every run needs, and drop the nodes."""
        cases = self.data.get("cases")
        _, node, is_exact = self._find(("cases",))
        if is_exact and not self.origins and isinstance(node, SequenceNode):
            items: list[tuple[int, Node]] = [(item.start_mark.line + 1, item) for item in node.value]
        else:
            count = len(cases) if isinstance(cases, list) else 0
            items = [self._find(("cases", index))[:2] for index in range(count)]
        self.case_lines = [line for line, _ in items]
        self.key_lines = {("cases", index): _key_lines(item) for index, (_, item) in enumerate(items)}
        for path in ((), ("defaults",)):
            _, node, is_exact = self._find(path)
            self.key_lines[path] = _key_lines(node) if is_exact else {}
        self.root = None

    def line_of(self, path: Path) -> int:
        """Return the line, from 1, of the key or item at ``path``, or of the innermost existing value around it."""
        noted = self.key_lines.get(path[:-1], {}).get(path[-1]) if path else None
        return noted or self._find(path)[0]

    def place_of(self, path: Path) -> tuple[int, int]:
        """Return the line and a number of the node at ``path``, or of the innermost node that exists.

        Aliases and merges of a node have the same number.
        """
        line, node, _ = self._find(path)
        return line, id(node)

    def text_at(self, path: Path) -> str | None:
        """Return the text at ``path`` if it is one plain or quoted scalar, else None."""
        _, node, exact = self._find(path)
        return node.value if exact and isinstance(node, ScalarNode) else None

    def _find(self, path: Path) -> tuple[int, Node, bool]:
        """Return line and node of the innermost existing value along ``path``, and whether it is the last one."""
        if self.root is None:
            self.root = _compose(self.raw(), self.file)
        assert self.root is not None
        node = self.root
        line = node.start_mark.line + 1
        for step in self.in_file(path):
            child = _child(node, step)
            if child is None:
                return line, node, False
            line, node = child
        return line, node, True


def _key_lines(node: Node) -> dict[str | int, int]:
    pairs: Any = node.value if isinstance(node, MappingNode) else ()
    return {
        key.value: key.start_mark.line + 1 for key, _ in pairs if key.tag is not MERGE and isinstance(key, ScalarNode)
    }


def _child(node: Node, step: str | int) -> tuple[int, Node] | None:
    """Return line and node of an item or key, keys of ``<<`` merges included; None if it is missing."""
    if isinstance(step, int):
        if isinstance(node, SequenceNode) and step < len(node.value):
            item = node.value[step]
            return item.start_mark.line + 1, item
        return None
    if not isinstance(node, MappingNode):
        return None
    # Of a repeated key the last one is in the data.
    for key, value in reversed(node.value):
        if isinstance(key, ScalarNode) and key.value == step and _tag(key) is not MERGE:
            return key.start_mark.line + 1, value
    merges = [value for key, value in node.value if _tag(key) is MERGE]
    children = (_child(source, step) for value in merges for source in _merge_sources(value))
    return next((child for child in children if child is not None), None)


def parse_source(raw: bytes, file: str, *, typed_keys: bool = False) -> Source:
    """Return one YAML document that is a mapping; with ``typed_keys`` keys may be numbers, true and false.

    Raises:
        PlanError: if it is too large or too deeply nested, not UTF-8, not YAML, empty, several documents, no mapping,
            or if its aliases stand for too many nodes. Ambiguous values and repeated keys go to ``faults`` instead.
    """
    if len(raw) > MAX_BYTES:
        size = len(raw) / 2**20
        raise _fatal(file, 0, f"the file is {size:.1f} MB large, expected at most {MAX_BYTES // 2**20} MB")
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"the text has the byte 0x{raw[error.start]:02x}, expected UTF-8"
        raise _fatal(file, line, message, "save it as UTF-8") from None
    root = _compose(raw, file)
    if not isinstance(root, MappingNode):
        is_list = isinstance(root, SequenceNode)
        what, line = "the file is empty", 1
        if root is not None and root.value != "":
            what, line = f"the top of the file is {'a list' if is_list else repr(root.value)}", root.start_mark.line + 1
        hint = "write cases: above it" if is_list else "cases: [{op: relu, shapes: {input0: 2x3}}]"
        raise _fatal(file, line, f"{what}, expected a mapping with the key cases", hint)
    # Only aliases need the walk over all nodes.
    if b"*" in raw:
        _check_aliases(root, file)
    reader = _Reader(file, typed_keys=typed_keys)
    data = reader.value(root, ())
    return Source(file=file, raw=lambda: raw, data=data, root=root, faults=reader.faults)


def load_value(text: str) -> Any:
    """Return one YAML value of the command line; raise ValueError with the problem of a wrong text."""
    try:
        root = _compose(text.encode(), "")
        if root is None:
            return None
        _check_aliases(root, "")
    except PlanError as error:
        raise ValueError(error.problems[0].message) from None
    reader = _Reader("")
    value = reader.value(root, ())
    for problem in reader.faults.values():
        raise ValueError(problem.message + (f"; {problem.hint}" if problem.hint else ""))
    return value


_NO_NUL = "write the text without \\0"


class _Reader:
    """Converter of nodes to plain data; a value with a problem becomes its text, the problem is in ``faults``."""

    def __init__(
        self, file: str, known: dict[tuple[int, str], Problem] | None = None, *, typed_keys: bool = False
    ) -> None:
        self.faults: dict[Path, Problem] = {}
        self._file = file
        # One problem for a node that aliases or merges repeat.
        self._known = {} if known is None else known
        self._typed_keys = typed_keys

    def _fault(self, node: Node, path: Path, message: str, hint: str = "") -> None:
        line = node.start_mark.line + 1
        problem = Problem(message=message, file=self._file, line=line, path=format_path(path), hint=hint)
        self.faults[path] = self._known.setdefault((id(node), message), problem)

    def value(self, node: Node, path: Path) -> Any:
        tag: Any = node.tag
        if isinstance(tag, str):
            shown = tag.replace("tag:yaml.org,2002:", "!!")
            hint = "write the value itself, in quotes if it is text"
            self._fault(node, path, f"the tag {shown} is not allowed", hint)
        if type(node) is SequenceNode:
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if type(node) is MappingNode:
            return self._mapping(node, path)
        if "\0" in node.value:
            self._fault(node, path, f"{_named(path)} has a NUL character, which is not allowed", _NO_NUL)
        if type(tag) is not tuple:
            return node.value
        if len(tag) == 3:
            text, meaning, hint = tag
            self._fault(node, path, f"{_named(path)} is {text}, and {meaning}", hint)
        return tag[0]

    def _mapping(self, node: Node, path: Path) -> dict[Any, Any]:
        pairs: dict[Any, Any] = {}
        first_lines: dict[str, int] = {}
        merges: list[Node] = []
        for key, value in node.value:
            line, tag = key.start_mark.line + 1, key.tag
            if tag is MERGE:
                if not all(isinstance(source, MappingNode) for source in _merge_sources(value)):
                    self._fault(key, path, "<< merges a value that is neither a mapping nor a list of mappings")
                if merges:
                    self._fault(key, (*path, "<<"), "<< is set twice", "merge a list: <<: [*first, *second]")
                first_lines["<<"] = line
                merges.append(value)
            elif isinstance(key, ScalarNode):
                here = (*path, key.value)
                is_plain = type(tag) is tuple and len(tag) == 1
                is_typed = self._typed_keys and is_plain and tag[0] is not None
                if (
                    key.value in first_lines
                    or "\0" in key.value
                    or not (is_typed or (is_plain and tag[0] == key.value))
                ):
                    self._check_key(key, value, here, first_lines.get(key.value), is_typed=is_typed)
                first_lines.setdefault(key.value, line)
                pairs[tag[0] if is_typed else key.value] = self.value(value, here)
            else:
                self._fault(key, (*path, "[...]"), "a key is a list or mapping, expected a word")
                # Faults within such a key do not matter, since the key is one.
                pairs[repr(_Reader("").value(key, ()))] = _Reader("").value(value, ())
        inherited: dict[str, Any] = {}
        for merged in merges:
            inherited = self._merged(merged, path, first_lines)
        return {**inherited, **pairs} if merges else pairs

    def _check_key(self, key: Node, value: Node, path: Path, first_line: int | None, *, is_typed: bool) -> None:
        """Note a fault for a key with NUL, one that is no text, and one that the mapping has already."""
        name = key.value
        if "\0" in name:
            self._fault(key, path[:-1], "a key has a NUL character, which is not allowed", _NO_NUL)
        tag = _tag(key)
        if not (is_typed or (type(tag) is tuple and len(tag) == 1 and type(tag[0]) is str)):
            # {shape: 2, 3} is a mapping with the key 3.
            if name and isinstance(value, ScalarNode) and value.value == "":
                hint = "write sizes in brackets, such as [2, 3], or as 2x3"
                self._fault(key, path, f"{name} has no value, expected a key with a value", hint)
            else:
                self._fault(key, path, f"the key {name or 'null'} is not text", f'write "{name}": in quotes')
        if first_line is not None:
            self._fault(key, path, f"the key {name} is set twice, first in line {first_line}", "keep one of them")

    def _merged(self, node: Node, path: Path, present: Collection[str]) -> dict[str, Any]:
        """Return the keys of ``<<: node``, of the first mapping in a list that has each; ``present`` are overridden."""
        reader = _Reader(self._file, self._known, typed_keys=self._typed_keys)
        sources = [reader._mapping(x, path) for x in _merge_sources(node) if isinstance(x, MappingNode)]
        depth = len(path)
        self.faults |= {at: x for at, x in reader.faults.items() if len(at) > depth and at[depth] not in present}
        return {key: value for source in reversed(sources) for key, value in source.items()}


def _merge_sources(node: Node) -> list[Node]:
    return node.value if isinstance(node, SequenceNode) else [node]


def _check_aliases(root: Node, file: str) -> None:
    """Raise PlanError if an alias contains itself, or all together are too deep or more than MAX_ALIASED_NODES."""
    sizes: dict[int, tuple[int, int]] = {}
    aliased = 0

    def size_of(node: Node) -> tuple[int, int]:
        """Return the number of nodes in a node, itself included, and the number of their levels."""
        nonlocal aliased
        line = node.start_mark.line + 1
        known = sizes.get(id(node))
        if known is not None:
            if not known[0]:
                raise _fatal(file, line, "an anchor contains an alias of itself")
            aliased += known[0]
            if aliased > MAX_ALIASED_NODES:
                raise _fatal(file, line, f"aliases stand for more than {MAX_ALIASED_NODES:,} values")
            return known
        # 0 marks a node whose children are being counted.
        sizes[id(node)] = 0, 0
        children: Sequence[Node] = () if isinstance(node, ScalarNode) else node.value
        if isinstance(node, MappingNode):
            children = [child for pair in node.value for child in pair]
        below = [size_of(child) for child in children]
        size, depth = 1 + sum(x for x, _ in below), 1 + max((x for _, x in below), default=0)
        if depth > MAX_DEPTH + 1:
            raise _fatal(file, line, f"nesting is more than {MAX_DEPTH} levels deep")
        sizes[id(node)] = size, depth
        return size, depth

    size_of(root)


def _tag(node: Node) -> Any:
    # The composer puts the value of a scalar in place of a tag, which PyYAML's stubs declare as a string.
    return node.tag


def _named(path: Path) -> str:
    """Return the last key of a path with the indices below it, the beginning of a message."""
    if not path:
        return "the value"
    last = path[-1]
    return f"{_named(path[:-1])}[{last}]" if isinstance(last, int) else last


MAX_DEPTH = 64
# From PyYAML 6.0.4 on, the scanner of libyaml looks ahead over a thousand levels, before the composer counts one.
_TOO_DEEP_FOR_LIBYAML = "exceeded maximum nesting depth"


class _TooDeep(yaml.MarkedYAMLError):
    pass


class _Resolver:
    """Resolver for PyYAML's composer: replaces each scalar's tag by its value, and limits the depth of nodes."""

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
        # Plans repeat the same words and numbers.
        if value not in self.plain:
            self.plain[value] = plain_scalar(value)
        return self.plain[value]


class _PythonLoader(_Resolver, yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer):
    """Loader for a PyYAML without libyaml; the same results, some twenty times slower."""

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


def _compose(raw: bytes, file: str) -> Node | None:
    """Return the root node of the one document in ``raw``, None if it is empty; raise PlanError if it is no YAML."""
    # The tag of a scalar becomes the result of `plain_scalar`, ``(text,)`` if quoted; an explicit tag is a string.
    try:
        root: Node | None = _Loader(raw).get_single_node()
    except yaml.reader.ReaderError as error:
        line = raw.count(b"\n", 0, error.position) + 1
        raise _fatal(file, line, f"the text has the character {error.character!r}: {error.reason}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 0
        if isinstance(error, _TooDeep) or error.problem == _TOO_DEEP_FOR_LIBYAML:
            raise _fatal(file, line, f"nesting is more than {MAX_DEPTH} levels deep") from None
        if error.problem == "but found another document":
            raise _fatal(file, line, "a second document begins, but a plan is one document", "remove '---'") from None
        if file.endswith(".json"):
            line, words = _explain_json(raw, line)
            raise _fatal(file, line, f"this is not JSON: {words}", _line(raw, line - 1)[:100]) from None
        raise _fatal(file, line, f"this is not YAML: {_explain(error, raw)}", _line_with_caret(raw, mark)) from None
    except yaml.YAMLError as error:
        raise _fatal(file, 0, f"this is not YAML: {error}") from None
    return root


def _explain_json(raw: bytes, line: int) -> tuple[int, str]:
    """Return line and error of the JSON parser, whose messages fit JSON better than YAML's."""
    try:
        json.loads(raw)
    except json.JSONDecodeError as error:
        return error.lineno, error.msg[0].lower() + error.msg[1:]
    return line, "it cannot be read"


def _explain(error: yaml.MarkedYAMLError, raw: bytes) -> str:
    """Return the mistake that most likely causes the parser's error, else that error."""
    problem = error.problem or "it cannot be read"
    mark = error.problem_mark or error.context_mark
    before = _lines(raw)[: mark.line + 1][-2:] if mark else []
    if mark and "\t" in _line(raw, mark.line)[: mark.column + 1]:
        return "the line is indented with a tab, expected spaces"
    if "mapping values are not allowed" in problem:
        if any(re.search(r"^[\s{-]*\w+:[^\s:]", line) for line in before):
            return "a ':' needs a space after it; write 'op: relu', not 'op:relu'"
        return "a ':' is in a position without a key: correct the indentation, or put text with ': ' in quotes"
    if mark and _line(raw, mark.line)[mark.column : mark.column + 1] == ":" and "expected ','" in problem:
        return "a ':' is in a position without a key: put text with ': ' in quotes"
    if "did not find expected ',' or" in problem or "expected the node content" in problem:
        opened = f" in line {error.context_mark.line + 1}" if error.context_mark else ""
        return f"a bracket that is opened{opened} is not closed, or a comma is missing"
    if "expected '-' indicator" in problem or "expected key" in problem or "<block end>" in problem:
        return "the indentation of the line fits no line above it; align it with its neighbours"
    return f"{problem} ({error.context})" if error.context else problem


def _line_with_caret(raw: bytes, mark: Any) -> str:
    """Return the line with a caret under the position, "" for an empty line."""
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


def _fatal(file: str, line: int, message: str, hint: str = "") -> PlanError:
    """Return the error for a problem that makes the rest of the file unreadable."""
    return PlanError([Problem(message=message, file=file, line=line, hint=hint)])
