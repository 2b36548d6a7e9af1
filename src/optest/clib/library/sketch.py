"""A mapping to start from: what names and types in a library's headers say, and where they only let one guess."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from optest.clib.ffi.inspection import Inspection
from optest.clib.ffi.protocols import OperatorFunctions, find_operators
from optest.clib.ffi.signatures import CKind, Header, Prototype
from optest.clib.library.direct import DirectCall, problems_of
from optest.clib.library.direct_cases import names_unknown
from optest.clib.library.direct_drift import drift_of_direct
from optest.clib.library.mapping import OperatorMapping, unknown_names
from optest.clib.library.roles import Role, drift
from optest.clib.library.sketch_described import Described, Frame, described, frame_of, frame_of_functions
from optest.clib.library.sketch_direct import Direct, direct, merged
from optest.clib.library.sketch_names import Catalogue
from optest.spec import OperatorDescriptor, dtype

__all__ = ["Sketch", "sketch"]

_WIDTH = 116
_KEPT = "\N{NO-BREAK SPACE}"
"""A blank at which no line ends."""
_GUESS = "# guess: "
_WORDS_OF_YAML = frozenset({"null", "true", "false", "yes", "no", "on", "off"})
_PARTS = ("create", "workspace", "run", "destroy")
Entry = Described | Direct


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """``text`` is the file. ``operators`` are in it, ``guessed`` those of them with guesses; ``unplaced`` are functions
    with the name of an operator that are not, and why; ``others`` have the name of none."""

    text: str
    operators: tuple[str, ...]
    guessed: tuple[str, ...]
    unplaced: Mapping[str, str]
    others: tuple[str, ...]

    @property
    def guesses(self) -> int:
        """How many there are in the file, of operators and of the whole."""
        return self.text.count(_GUESS)


@dataclass(slots=True)
class _Found:
    frame: Frame | None = None
    entries: dict[str, list[Entry]] = field(default_factory=dict)
    unplaced: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)


def sketch(
    name: str, libraries: Sequence[str], header: Header, inspection: Inspection, operators: Iterable[OperatorDescriptor]
) -> Sketch:
    """The mapping of a library called ``name`` whose shared objects have the names ``libraries``."""
    descriptors = list(operators)
    catalogue = Catalogue(descriptors)
    known = {each.name: each for each in descriptors}
    found = _Found()
    callable_ = inspection.callable
    in_protocol = find_operators(callable_)
    if in_protocol:
        _take_described(found, in_protocol, header, callable_, catalogue, known)
    _take_direct(found, header, callable_, catalogue, known)
    others = tuple(each for each in callable_ if each not in found.used and each not in found.unplaced)
    text = "\n".join(_lines(name, libraries, found, others)) + "\n"
    guessed = [each for each, entries in found.entries.items() if any(entry.guesses for entry in entries)]
    return Sketch(
        text=text,
        operators=tuple(found.entries),
        guessed=tuple(guessed),
        unplaced=found.unplaced,
        others=others,
    )


def _take_described(
    found: _Found,
    in_protocol: Mapping[str, OperatorFunctions],
    header: Header,
    callable_: Mapping[str, Prototype],
    catalogue: Catalogue,
    known: Mapping[str, OperatorDescriptor],
) -> None:
    frame = frame_of(header, callable_, in_protocol.values())
    used = [each for functions in in_protocol.values() for each in _functions_of(functions)]
    found.used |= {*used, *_functions_in(frame.data)}
    if frame.lacking:
        said = f"the library has no function for {', '.join(frame.lacking)} whose name tells it"
        found.unplaced |= {functions.create: said for functions in in_protocol.values()}
        return
    for functions in in_protocol.values():
        read = described(functions, frame, callable_, header, catalogue)
        if isinstance(read, str):
            found.unplaced[functions.create] = read
            continue
        for each in read:
            why = _why_not(each, known[each.operator], functions, callable_)
            if each.operator in found.entries:
                why = f"{each.operator} is another one already"
            if why:
                found.unplaced[functions.create] = why
            else:
                found.entries[each.operator] = [each]
    if found.entries:
        found.frame = frame


def _functions_of(functions: OperatorFunctions) -> tuple[str, ...]:
    return tuple(filter(None, (getattr(functions, part) for part in _PARTS)))


def _functions_in(data: Any) -> Iterator[str]:
    """Whatever may be a function's name in what is stated."""
    if isinstance(data, str):
        yield data
    for each in data.values() if isinstance(data, dict) else ():
        yield from _functions_in(each)


def _why_not(
    entry: Described, descriptor: OperatorDescriptor, functions: OperatorFunctions, callable_: Mapping[str, Prototype]
) -> str:
    """What the loader or the header would have against an entry."""
    mapping = msgspec.convert(entry.data, OperatorMapping)
    for part in ("create", "run"):
        function = getattr(functions, part)
        why = drift(part, tuple(map(Role.parse, getattr(mapping, part))), callable_[function])
        if why:
            return _first_line(why)
    return next(iter(unknown_names(mapping, descriptor)), "")


def _take_direct(
    found: _Found,
    header: Header,
    callable_: Mapping[str, Prototype],
    catalogue: Catalogue,
    known: Mapping[str, OperatorDescriptor],
) -> None:
    left = {name: each for name, each in callable_.items() if name not in found.used}
    named = [each for each in left.values() if catalogue.of_function(each.name) is not None]
    frame = found.frame or frame_of_functions(header, callable_, named)
    read: dict[str, list[Direct]] = {}
    for name, prototype in left.items():
        entry = direct(prototype, header, catalogue, handle=frame.handle)
        if entry is None:
            continue
        if isinstance(entry, str):
            found.unplaced[name] = entry
            continue
        why = _why_no_call(entry, known[entry.operator], prototype, header, status=frame.data.get("status", ""))
        if entry.operator in found.entries:
            why = f"{entry.operator} is made with a descriptor already"
        if why:
            found.unplaced[name] = why
        else:
            read.setdefault(entry.operator, []).append(entry)
            found.used.add(name)
    if read and found.frame is None:
        found.frame = frame
        found.used |= {*_functions_in(frame.data)}
    found.entries |= {operator: list(merged(entries)) for operator, entries in read.items()}


def _why_no_call(
    entry: Direct, descriptor: OperatorDescriptor, prototype: Prototype, header: Header, *, status: str
) -> str:
    """What the loader or the header would have against an entry of a plain function."""
    call = msgspec.convert(entry.data, DirectCall)
    (element,) = call.functions
    problems = [*problems_of(entry.operator, call), *names_unknown(call, descriptor)]
    result = prototype.result
    plain = {"int": CKind.INT, "bool": CKind.BOOL}.get(status)
    is_status = bool(status) and (result.kind is plain or status in (result.spelling, result.tag))
    if not call.returns and result.kind is not CKind.VOID and not is_status:
        return f"it returns {result}, and nothing says which of these are errors"
    drifted = drift_of_direct(prototype.name, call, prototype, dtype(element), header, has_status=bool(status))
    return problems[0] if problems else _first_line(drifted or "")


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _lines(name: str, libraries: Sequence[str], found: _Found, others: Sequence[str]) -> Iterator[str]:
    yield from _comment(
        "How operators of optest are called in this library, guessed by `optest ffi inspect --write` from names and "
        "types in its headers. Look at every line that says `guess`; what the words mean is in "
        "docs/c-libraries/mapping.md. Promises of the library are not in its headers: state `dtypes`, `in_place` and "
        "`refuses`."
    )
    yield "version: 1"
    yield f"name: {name}"
    yield f"library: {_flow(list(libraries))}"
    if found.frame is not None:
        for key, value in found.frame.data.items():
            if key in found.frame.guesses:
                yield f"# guess: {found.frame.guesses[key]}"
            yield from _stated(key, value, "")
    if any("increment:" in each for entries in found.entries.values() for entry in entries for each in _call(entry)):
        yield from _comment(
            "guess: the pointer to a vector that is walked backwards points at its first element; "
            "`negative_increments: lowest` where it points at the lowest address, as in BLAS"
        )
    yield ""
    yield "operators:" if found.entries else "operators: {}"
    for operator, entries in found.entries.items():
        yield f"  {operator}:"
        for entry in entries:
            yield from _entry(entry, "    ", is_listed=len(entries) > 1)
    yield from _left(found.unplaced, others)


def _call(entry: Entry) -> Sequence[str]:
    call: Sequence[str] = entry.data.get("call", ())
    return call


def _entry(entry: Entry, indent: str, *, is_listed: bool) -> Iterator[str]:
    for guess in entry.guesses:
        yield from _comment(f"guess: {guess}", indent)
    first = f"{indent}- " if is_listed else indent
    for key, value in entry.data.items():
        lines = list(_stated(key, value, indent + "  " if is_listed else indent))
        yield first + lines[0].lstrip()
        yield from lines[1:]
        first = indent + "  " if is_listed else indent


def _stated(key: str, value: Any, indent: str) -> Iterator[str]:
    """``key: value`` in one line, or in lines that fold where a list may."""
    lines = textwrap.wrap(
        f"{key}: {_flow(value)}".replace(": ", f":{_KEPT}").replace(" as ", f"{_KEPT}as{_KEPT}"),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * (len(indent) + len(key) + 3),
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from (line.replace(_KEPT, " ") for line in lines)


def _flow(value: Any) -> str:
    """YAML in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        is_bare = value and not set(value) & set("[]{}?#&*!%@'\"") and value.lower() not in _WORDS_OF_YAML
        return value if is_bare else f'"{value}"'
    return repr(value)


def _left(unplaced: Mapping[str, str], others: Sequence[str]) -> Iterator[str]:
    if unplaced:
        yield ""
        yield from _comment("These have the name of an operator, and their arguments tell too little:")
        for function, why in unplaced.items():
            yield from _comment(f"  {function}: {why}")
    if others:
        yield ""
        have = "function has" if len(others) == 1 else "functions have"
        yield from _comment(f"{len(others)} {have} the name of no operator:")
        yield from _comment(f"  {', '.join(others)}")


def _comment(text: str, indent: str = "") -> list[str]:
    inner = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text.lstrip(),
        _WIDTH,
        initial_indent=f"{indent}# {inner}",
        subsequent_indent=f"{indent}# {inner}",
        break_long_words=False,
        break_on_hyphens=False,
    )
