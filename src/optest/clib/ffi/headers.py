"""Prototypes, enums, typedefs and opaque structs, read from a library's own C headers with pycparser."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pycparser.c_parser import CParser, ParseError

from optest.clib.ffi.c_types import CannotExpress, Types
from optest.clib.ffi.preprocessor import Declaration, Macro, cut, preprocess
from optest.clib.ffi.signatures import Header, Prototype
from optest.errors import Problem, UsageError

_SHOWN_CHARACTERS = 300
_TYPE_WORDS = {"typedef", "struct", "union", "enum"}
_SPECIFIERS = {"const", "volatile", "extern", "static", "typedef"}
_BEFORE_A_TYPE = {"", "(", ",", ";", "{", *_SPECIFIERS}
_KEYWORDS = {*_TYPE_WORDS, *_SPECIFIERS, "restrict", "inline", "register", "signed", "unsigned", "_Atomic"}
_KEYWORDS |= {"void", "char", "short", "int", "long", "float", "double", "bool", "_Bool", "_Complex"}


def read_headers(headers: Iterable[str | Path]) -> Header:
    """Read header files; a folder stands for all its ``*.h`` and is searched for includes.

    One declaration that cannot be read spoils no other: it is an error when it is asked for. Nor does a header that the
    preprocessor refuses: it is one of the problems.

    Raises:
        UsageError: for a header that does not exist; if the preprocessor refuses every one.
        Unavailable: if there is no C compiler.
    """
    files: list[Path] = []
    folders: list[Path] = []
    for each in map(Path, headers):
        if each.is_dir():
            files += sorted(each.rglob("*.h"))
            folders.append(each)
        elif each.is_file():
            files.append(each)
            folders.append(each.parent)
        else:
            raise UsageError(f"header {each} does not exist")
    if not files:
        named = f" in {', '.join(map(str, folders))}; files ending in .h are looked for, others by name"
        raise UsageError(f"no header was found{named if folders else ''}")
    text, refused = preprocess(files, list(dict.fromkeys(folders)))
    reader = _Reader({str(path.resolve()) for path in files})
    declarations, macros = cut(text)
    for declaration in declarations:
        reader.take(declaration)
    for macro in macros:
        reader.take_macro(macro)
    for path, message in refused.items():
        why = next((line for line in message.splitlines() if "error" in line), message.splitlines()[-1])
        reader.problems.append(Problem(message="this header cannot be read", file=str(path), hint=why))
    return reader.header(files)


class _Reader:
    """Takes declarations one by one; each is parsed with stand-ins for the typedefs that it uses."""

    def __init__(self, own_files: set[str]) -> None:
        self._own_files = own_files
        self._parser = CParser()
        self._types = Types()
        self._prototypes: dict[str, Prototype] = {}
        self._refused: dict[str, Problem] = {}
        self.problems: list[Problem] = []

    def take(self, declaration: Declaration) -> None:
        words = declaration.words
        if declaration.has_body or not (self._is_own(declaration) or words[0] in _TYPE_WORDS):
            return
        self._types.unplaced = _why_unplaced(declaration.file) if "{" in words else ""
        try:
            self._name_structs(words)
            for node in self._parsed(declaration.text, words):
                self._add(self._types.read(node, f"{declaration.file}:{declaration.line}"), declaration)
        except ParseError as error:
            self._refuse(declaration, self._why_unparsed(words, error))
        except CannotExpress as error:
            self._refuse(declaration, str(error))

    def _name_structs(self, words: Sequence[str]) -> None:
        """In C++ the tag of a struct is a type: ``typedef Plan *plan_t;``."""
        for before, word in zip(("", *words), words, strict=False):
            is_tag = word in self._types.named_structs and word not in self._types.typedefs
            if is_tag and before not in ("struct", "union", "enum"):
                self._types.read(self._parsed(f"typedef struct {word} {word};", ())[0], "")

    def _why_unparsed(self, words: Sequence[str], error: ParseError) -> str:
        """pycparser says where it stopped; the usual reason is a type that no header before has declared."""
        known, unknown = self._types.typedefs, []
        for before, word, after in zip(("", *words), words, words[1:], strict=False):
            stands_for_a_type = before in _BEFORE_A_TYPE and (after == "*" or after.isidentifier())
            if stands_for_a_type and word.isidentifier() and word not in known and word not in _KEYWORDS:
                unknown.append(word)
        if unknown:
            return f"type {', '.join(dict.fromkeys(unknown))} is not known; which header declares it?"
        message = str(error)
        place, _, rest = message.partition(": ")
        if place.rpartition(":")[2].isdigit():  # line and column of a text that only the parser sees
            message = rest
        return f"it cannot be parsed ({message.removeprefix(': ')})"

    def _is_own(self, declaration: Declaration | Macro) -> bool:
        return not declaration.is_system or str(Path(declaration.file).resolve()) in self._own_files

    def _parsed(self, text: str, words: Iterable[str]) -> list[Any]:
        used = [word for word in dict.fromkeys(words) if word in self._types.typedefs]
        stand_ins = "".join(f"typedef int {name};" for name in used)
        tree = self._parser.parse(f"{stand_ins}\n{text}", "")
        nodes: list[Any] = tree.ext[len(used) :]
        return nodes

    def _add(self, prototype: Prototype | None, declaration: Declaration) -> None:
        if prototype is None or not self._is_own(declaration):
            return
        before = self._prototypes.get(prototype.name)
        if before is not None and _shape(before) != _shape(prototype):
            del self._prototypes[prototype.name]
            self._refuse(declaration, f"it is declared otherwise at {before.where}: {before}")
        elif prototype.name not in self._refused:
            self._prototypes[prototype.name] = prototype

    def _refuse(self, declaration: Declaration, why: str) -> None:
        if not self._is_own(declaration):
            return
        name = _function_name(declaration.words)
        # Only with the blanks that a person would write.
        shown = re.sub(r" (?=[()\[\],;])|(?<=[(\[*]) ", "", declaration.text)
        if len(shown) > _SHOWN_CHARACTERS:
            shown = shown[:_SHOWN_CHARACTERS] + " …"
        what = f"{name} cannot be used from Python" if name else "this declaration cannot be read"
        problem = Problem(message=f"{what}: {why}", file=declaration.file, line=declaration.line, hint=shown)
        if name:
            self._refused.setdefault(name, problem)
        else:
            self.problems.append(problem)

    def take_macro(self, macro: Macro) -> None:
        """Keep a macro of the library's own headers if its value is an integer."""
        if not macro.value or not self._is_own(macro) or macro.file.startswith("<"):
            return
        try:
            nodes = self._parsed(f"enum {{ value_of_macro = {macro.value} }};", macro.value.split())
            enumerator = nodes[0].type.values.enumerators[0]
            self._types.constants[macro.name] = self._types.value(enumerator.value)
        except (ParseError, CannotExpress, AttributeError, IndexError):
            return  # a macro that is no integer is nothing that a signature needs

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
def _why_unplaced(file: str) -> str:
    """A header that says how closely its structs lie may mean any of them, and attributes are taken out before it is
    parsed."""
    try:
        text = Path(file).read_text(errors="replace")
    except OSError:
        return ""
    found = _PACKS.search(text)
    return f"{Path(file).name} has {found[0]!r}, so where the fields of its structs lie is not known" if found else ""


_PACKS = re.compile(r"\bpacked\b|__packed__|#\s*pragma\s+pack|\baligned\s*\(|__aligned__|\b_?[aA]lignas\b")


def _shape(prototype: Prototype) -> tuple[Any, ...]:
    """What two declarations of one function have to share."""
    return (
        prototype.restype,
        tuple((each.type.kind, each.type.size, each.is_const) for each in prototype.parameters),
    )


def _function_name(words: Sequence[str]) -> str:
    """The word before the first bracket: the function's name, also where the rest cannot be parsed."""
    before = words[: words.index("(")] if "(" in words else []
    is_function = len(before) > 1 and before[0] != "typedef" and "{" not in before and before[-1].isidentifier()
    return before[-1] if is_function else ""
