"""Read figures of a source tree from its text: lines, names, circles of imports, comments, docstrings, words."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import words

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SHORT = 6
"""Lines of a private function that is counted as short."""

COMMENT_OR_STRING = re.compile(
    r'"""(?:\\.|.)*?"""' r"|'''(?:\\.|.)*?'''" r'|"(?:\\.|[^"\\\n])*"' r"|'(?:\\.|[^'\\\n])*'" r"|#[^\n]*", re.DOTALL
)
"""Ten times as fast as ``tokenize``, and equal on code for Python 3.10, whose f-strings are strings like others."""
FOR_TOOLS = re.compile(r"#\s*(?:type:|noqa|pragma)|#!")

OTHER_WORDS = """
    A About Actual After All Also Always Among An And Another Any Anything As At Away Before Behind Below Beside
    Between Beyond Both But By Dense Each Either Elsewhere Empty Even Evenly Every Everything False Few Fewer Finite
    First For From Fuller Further Given Golden Half Here How If In Infinite Inside Instead Into It Its Itself Just
    Known Large Last Least Less Like Made Many Maybe Meanwhile More Most Much Neither Never No Nobody None Not
    Nothing Now Of Often On Once One Only Or Other Others Out Outside Over Perhaps Plain Python Rather Relative
    Row-major Same Several Since Sixteen So Some Somebody Something Such That The Their Then There These They This
    Those Though Three Through To Together Too Torch True Twice Two Under Unknown Unless Until Up Upon What Whatever
    When Whenever Where Wherever Whether Which Whichever While Who Whoever Whole Whose Why With Within Without
    Written
"""
"""First words of docstrings that ``ruff`` passes, because it knows verbs in a wrong form only."""
# First words of a relative clause, which names nothing.
RIDDLES = frozenset(
    ["Whether", "What", "Whatever", "Whoever", "Those", "Of", "As", "Why", "Where", "When", "How", "If"]
)
NOT_VERBS = frozenset(OTHER_WORDS.split())


@dataclass(frozen=True)
class Source:
    """A Python file: its path below the root, its dotted name, its text and all nodes of its syntax tree."""

    path: Path
    module: str
    text: str
    nodes: list[ast.AST]

    @property
    def lines(self) -> int:
        return self.text.count("\n")

    @property
    def is_package(self) -> bool:
        return self.path.stem == "__init__"

    @property
    def statements(self) -> list[ast.stmt]:
        return self.nodes[0].body  # type: ignore[attr-defined,no-any-return]

    @cached_property
    def functions(self) -> list[Function]:
        """Return all functions and methods, nested ones included."""
        return [node for node in self.nodes if isinstance(node, FUNCTIONS)]

    @cached_property
    def module_functions(self) -> list[Function]:
        """Return the functions of the module itself, without methods and nested ones."""
        return [node for node in self.statements if isinstance(node, FUNCTIONS)]


def read_sources(root: Path) -> list[Source]:
    """Read the Python files of ``root/src``."""
    sources = []
    for path in sorted((root / "src").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(root / "src").with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        sources.append(Source(path.relative_to(root), module, text, list(ast.walk(ast.parse(text)))))
    return sources


def lines_of(files: Iterable[Path]) -> int:
    return sum(file.read_bytes().count(b"\n") for file in files)


def short_functions_used_once(sources: Iterable[Source]) -> list[str]:
    """Return the locations of private functions and methods of few lines whose name occurs once more in the source."""
    uses: Counter[str] = Counter()
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                uses[node.id] += 1
            elif isinstance(node, ast.Attribute):
                uses[node.attr] += 1
            elif isinstance(node, ast.ImportFrom):
                uses.update(alias.name for alias in node.names)
    return [
        f"{source.path}:{function.lineno} {function.name}"
        for source in sources
        for function in source.functions
        if function.name.startswith("_")
        and not function.name.startswith("__")
        and uses[function.name] == 1
        and (function.end_lineno or function.lineno) - function.lineno < SHORT
    ]


def repeated_names(sources: Iterable[Source]) -> dict[str, list[Path]]:
    """Return the names of module-level functions that two or more files define, with these files."""
    files: defaultdict[str, list[Path]] = defaultdict(list)
    for source in sources:
        for name in {function.name for function in source.module_functions}:
            files[name].append(source.path)
    return {name: paths for name, paths in sorted(files.items()) if len(paths) > 1}


class Imports:
    """The graph of imports among files; those inside functions and under ``TYPE_CHECKING`` count.

    A name that a package imports for others is an import of the file that defines it, not of the package.
    """

    def __init__(self, sources: Iterable[Source]) -> None:
        self._sources = {source.module: source for source in sources}
        self._passed_on = {source.module: self._names_passed_on(source) for source in self._sources.values()}

    def circles(self) -> list[list[str]]:
        """Return each set of two or more files of which every one reaches every other."""
        graph = {module: self._imported(source) for module, source in self._sources.items()}
        reached = {module: self._reached(graph, module) for module in graph}
        circles = {frozenset(other for other in reached[module] if module in reached[other]) for module in graph}
        return sorted(sorted(circle) for circle in circles if len(circle) > 1)

    @staticmethod
    def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
        reached: set[str] = set()
        ahead = [start]
        while ahead:
            new = graph[ahead.pop()] - reached
            reached |= new
            ahead.extend(new)
        return reached

    def _imported(self, source: Source) -> set[str]:
        """Return the modules that a file imports, itself left out."""
        imported: set[str] = set()
        for node in source.nodes:
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = self._base(source, node)
                passed_on = self._passed_on[source.module]
                imported |= {
                    self._home(base, alias.name)
                    for alias in node.names
                    if (alias.asname or alias.name) not in passed_on
                }
        return (imported & self._sources.keys()) - {source.module}

    def _home(self, module: str, name: str) -> str:
        """Return the module that defines ``name`` of ``module``, which may be a module itself."""
        if f"{module}.{name}" in self._sources:
            return f"{module}.{name}"
        passed_on = self._passed_on.get(module, {})
        return self._home(*passed_on[name]) if name in passed_on else module

    def _names_passed_on(self, source: Source) -> dict[str, tuple[str, str]]:
        """Return the names that a package imports and does not use itself, each with its module and name there."""
        if not source.is_package:
            return {}
        used = {node.id for node in source.nodes if isinstance(node, ast.Name)}
        return {
            alias.asname or alias.name: (self._base(source, node), alias.name)
            for node in source.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if (alias.asname or alias.name) not in used
        }

    @staticmethod
    def _base(source: Source, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module that an import is from."""
        if not node.level:
            return node.module or ""
        parts = source.module.split(".")
        above = parts[: len(parts) - node.level + source.is_package]
        return ".".join([*above, *([node.module] if node.module else [])])


def comments(sources: Iterable[Source]) -> int:
    """Count comments, without those that are for tools."""
    tokens = (match.group() for source in sources for match in COMMENT_OR_STRING.finditer(source.text))
    return sum(text.startswith("#") and not FOR_TOOLS.match(text) for text in tokens)


def docstrings_without_verb(root: Path, sources: Iterable[Source]) -> list[tuple[Path, int, str]]:
    """Return file, line and first line of each docstring of a function that does not begin with an imperative verb.

    These are the hits of ``ruff`` D401, and docstrings whose first word is no verb. A property and an overload may
    have a noun phrase.
    """
    firsts = _hits_of_ruff(root)
    for source in sources:
        for function in source.functions:
            first = (ast.get_docstring(function) or "").partition("\n")[0]
            may_be_noun = _may_be_noun(function) and first.partition(" ")[0] not in RIDDLES
            if first and not _begins_with_verb(first) and not may_be_noun:
                firsts[source.path, function.body[0].lineno] = first
    return sorted((path, line, first) for (path, line), first in firsts.items())


def _hits_of_ruff(root: Path) -> dict[tuple[Path, int], str]:
    options = ["--isolated", "--select", "D401", "--config", 'lint.pydocstyle.convention="google"', "--ignore-noqa"]
    command = [sys.executable, "-m", "ruff", "check", *options, "--output-format", "json", "--exit-zero", "src"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    hits = json.loads(done.stdout)
    return {
        (Path(hit["filename"]).relative_to(root.resolve()), hit["location"]["row"]): hit["message"].partition('"')[2]
        for hit in hits
    }


def _begins_with_verb(docstring: str) -> bool:
    """Return whether the first word may be a verb: a plain word, not one of another kind, no plural, not "X of"."""
    word, _, rest = docstring.partition(" ")
    word = word.rstrip(".,:;")
    if word in NOT_VERBS or rest.startswith("of ") or not re.fullmatch(r"[A-Z][a-z]+(-[a-z]+)?", word):
        return False
    return word == "Focus" or not re.search(r"[^s]s$|[^e]ed$", word) or word in ("Embed", "Shed")


def _may_be_noun(function: Function) -> bool:
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    return any(re.search(r"(^|\.|_)(property|overload|getter|setter)$", text) for text in decorators)


def word_hits(sources: Iterable[Source]) -> Iterator[words.Hit]:
    for source in sources:
        yield from words.hits(source.path, source.nodes)
