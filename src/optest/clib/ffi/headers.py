"""Read prototypes, enums, typedefs and structs from a library's C headers with pycparser."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pycparser.c_parser import CParser, ParseError

from optest.clib.ffi.c_types import CannotExpress, Types
from optest.clib.ffi.preprocessor import Declaration, Macro, preprocess, split_declarations
from optest.clib.ffi.signatures import Header, Prototype
from optest.errors import Problem, UsageError

_MAX_CHARACTERS = 300
_TYPE_WORDS = {"typedef", "struct", "union", "enum"}
_SPECIFIERS = {"const", "volatile", "extern", "static", "typedef"}
_BEFORE_A_TYPE = {"", "(", ",", ";", "{", *_SPECIFIERS}
_KEYWORDS = {*_TYPE_WORDS, *_SPECIFIERS, "restrict", "inline", "register", "signed", "unsigned", "_Atomic"}
_KEYWORDS |= {"void", "char", "short", "int", "long", "float", "double", "bool", "_Bool", "_Complex"}


def read_headers(headers: Iterable[str | Path]) -> Header:
    """Read header files; of a folder all ``*.h``, and search it for includes. Unreadable parts become problems.

    Raises:
        UsageError: for a header that does not exist; if the preprocessor refuses all headers.
        Unavailable: if there is no C compiler.
    """
    files: list[Path] = []
    folders: list[Path] = []
    for path in map(Path, headers):
        if path.is_dir():
            files += sorted(path.rglob("*.h"))
            folders.append(path)
        elif path.is_file():
            files.append(path)
            folders.append(path.parent)
        else:
            raise UsageError(f"header {path} does not exist")
    if not files:
        searched = f" in {', '.join(map(str, folders))}; specify files that do not end in .h by name"
        raise UsageError(f"no header was found{searched if folders else ''}")
    text, refused = preprocess(files, list(dict.fromkeys(folders)))
    reader = _Reader({str(path.resolve()) for path in files})  # a system header may be listed explicitly
    declarations, macros = split_declarations(text)
    for declaration in declarations:
        reader.add_declaration(declaration)
    for macro in macros:
        reader.add_macro(macro)
    for refused_path, message in refused.items():
        why = next((line for line in message.splitlines() if "error" in line), message.splitlines()[-1])
        reader.problems.append(Problem(message="this header cannot be read", file=str(refused_path), hint=why))
    return reader.header(files)


class _Reader:
    """Collects declarations, parsing each by itself, so that an unreadable one affects no other."""

    def __init__(self, library_files: set[str]) -> None:
        self._library_files = library_files
        self._parser = CParser()
        self._types = Types()
        self._prototypes: dict[str, Prototype] = {}
        self._refused: dict[str, Problem] = {}
        self.problems: list[Problem] = []

    def add_declaration(self, declaration: Declaration) -> None:
        """Read one declaration; record its types and its prototype, or why it cannot be used."""
        words = declaration.words
        # Inline functions are not exported; system headers contribute only types.
        if declaration.has_body or not (self._is_from_library(declaration) or words[0] in _TYPE_WORDS):
            return
        self._types.layout_problem = _layout_problem(declaration.file) if "{" in words else ""
        try:
            self._name_structs(words)
            for node in self._parse(declaration.text, words):
                self._add_prototype(self._types.read(node, f"{declaration.file}:{declaration.line}"), declaration)
        except ParseError as error:
            self._refuse(declaration, self._why_unparsed(words, error))
        except CannotExpress as error:
            self._refuse(declaration, str(error))

    def _name_structs(self, words: Sequence[str]) -> None:
        """Declare struct tags that a declaration uses as type names, as C++ allows: ``typedef Plan *plan_t;``."""
        for before, word in zip(("", *words), words, strict=False):
            is_tag = word in self._types.named_structs and word not in self._types.typedefs
            if is_tag and before not in ("struct", "union", "enum"):
                self._types.read(self._parse(f"typedef struct {word} {word};", ())[0], "")

    def _why_unparsed(self, words: Sequence[str], error: ParseError) -> str:
        """Return the types that no header declares, else pycparser's message without its position."""
        known, unknown = self._types.typedefs, []
        for before, word, after in zip(("", *words), words, words[1:], strict=False):
            is_type = before in _BEFORE_A_TYPE and (after == "*" or after.isidentifier())
            if is_type and word.isidentifier() and word not in known and word not in _KEYWORDS:
                unknown.append(word)
        if unknown:
            return f"unknown type {', '.join(dict.fromkeys(unknown))}; add the header that declares it"
        message = str(error)
        position, _, rest = message.partition(": ")
        # Line and column count in a text that only the parser sees.
        if position.rpartition(":")[2].isdigit():
            message = rest
        return f"it cannot be parsed ({message.removeprefix(': ')})"

    def _is_from_library(self, declaration: Declaration | Macro) -> bool:
        return not declaration.is_system or str(Path(declaration.file).resolve()) in self._library_files

    def _parse(self, text: str, words: Iterable[str]) -> list[Any]:
        used = [word for word in dict.fromkeys(words) if word in self._types.typedefs]
        stand_ins = "".join(f"typedef int {name};" for name in used)
        tree = self._parser.parse(f"{stand_ins}\n{text}", "")
        nodes: list[Any] = tree.ext[len(used) :]
        return nodes

    def _add_prototype(self, prototype: Prototype | None, declaration: Declaration) -> None:
        """Keep a prototype of the library; refuse both declarations of a function if they differ."""
        if prototype is None or not self._is_from_library(declaration):
            return
        before = self._prototypes.get(prototype.name)
        if before is not None and _abi_of(before) != _abi_of(prototype):
            del self._prototypes[prototype.name]  # which one is right is unknown
            self._refuse(declaration, f"its declaration at {before.where} differs: {before}")
        elif prototype.name not in self._refused:
            self._prototypes[prototype.name] = prototype

    def _refuse(self, declaration: Declaration, why: str) -> None:
        """Record why a declaration of the library cannot be used, by its function's name or as a problem."""
        if not self._is_from_library(declaration):
            return
        name = _function_name(declaration.words)
        # Tokens were joined with blanks; remove those that a person would not write.
        text = re.sub(r" (?=[()\[\],;])|(?<=[(\[*]) ", "", declaration.text)
        if len(text) > _MAX_CHARACTERS:
            text = text[:_MAX_CHARACTERS] + " …"
        message = f"{name} cannot be used from Python" if name else "this declaration cannot be read"
        problem = Problem(message=f"{message}: {why}", file=declaration.file, line=declaration.line, hint=text)
        if name:
            self._refused.setdefault(name, problem)
        else:
            self.problems.append(problem)

    def add_macro(self, macro: Macro) -> None:
        """Keep a macro of the library's headers if its value is an integer constant."""
        # <built-in> and <command-line> are no files.
        if not macro.value or not self._is_from_library(macro) or macro.file.startswith("<"):
            return
        try:
            nodes = self._parse(f"enum {{ value_of_macro = {macro.value} }};", macro.value.split())
            enumerator = nodes[0].type.values.enumerators[0]
            self._types.constants[macro.name] = self._types.value(enumerator.value)
        except (ParseError, CannotExpress, AttributeError, IndexError):
            return  # signatures need integer macros only

    def header(self, files: Sequence[Path]) -> Header:
        types = self._types
        return Header(
            files=tuple(map(str, files)),
            prototypes=MappingProxyType(self._prototypes),
            refused=MappingProxyType(self._refused),
            problems=tuple(self.problems),
            enums=MappingProxyType(types.enums),
            constants=MappingProxyType(types.constants),
            typedefs=MappingProxyType(types.typedefs),
            opaque=frozenset(types.named_structs - types.structs.keys()),
            structs=MappingProxyType(types.structs),
        )


@lru_cache(maxsize=256)
def _layout_problem(file: str) -> str:
    """Return why the field offsets of a header's structs are unknown: it packs or aligns some; else an empty text."""
    # The preprocessor removes attributes before parsing, so any struct of the header may be the packed one.
    try:
        text = Path(file).read_text(errors="replace")
    except OSError:
        return ""
    packing = _PACKS.search(text)
    return f"{Path(file).name} has {packing[0]!r}, so the field offsets of its structs are unknown" if packing else ""


_PACKS = re.compile(r"\bpacked\b|__packed__|#\s*pragma\s+pack|\baligned\s*\(|__aligned__|\b_?[aA]lignas\b")


def _abi_of(prototype: Prototype) -> tuple[Any, ...]:
    """Return the types that two declarations of one function must share."""
    # names of parameters may differ
    parameters = tuple((item.type.kind, item.type.size, item.is_const) for item in prototype.parameters)
    return prototype.restype, parameters


def _function_name(words: Sequence[str]) -> str:
    """Return the name before the first bracket, also of an unparsable declaration; empty if it is no function."""
    before = words[: words.index("(")] if "(" in words else []
    is_function = len(before) > 1 and before[0] != "typedef" and "{" not in before and before[-1].isidentifier()
    return before[-1] if is_function else ""
