"""``optest ffi inspect``: what a C library has, what its headers say, and what a mapping makes of both."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optest.clib.ffi.inspection import Inspection, inspect_files
from optest.clib.ffi.libraries import find_library
from optest.clib.ffi.protocols import OperatorFunctions, find_operators
from optest.clib.ffi.signatures import Header
from optest.clib.library.mapped import Drift, drift_of_mapping, functions_of_operators, functions_of_whole
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.mapping_file import mapping_path, read_mapping
from optest.clib.library.mapping_lines import named_place
from optest.clib.library.session import header_of
from optest.errors import Unavailable, UsageError, nearest

__all__ = ["LibraryReport", "OperatorEntry", "as_json", "as_text", "inspect"]

_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorEntry:
    """An operator of the mapping (``operator``), of the library (``in_c``), or of both.

    ``missing`` are functions that it needs and the library does not have; an operator of the mapping that lacks all of
    them ``is_here`` not. ``drifted`` are functions whose prototype is not what the mapping says of them.
    """

    operator: str
    in_c: str
    functions: tuple[str, ...]
    missing: tuple[str, ...] = ()
    is_here: bool = True
    drifted: tuple[str, ...] = ()

    @property
    def can_be_called(self) -> bool:
        return self.is_here and not self.missing and not self.drifted


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryReport:
    """Everything about a library. ``unmapped`` are functions that can be called and that the mapping has no use for."""

    paths: tuple[str, ...]
    header: Header
    inspection: Inspection
    mapping: LibraryMapping | None = None
    mapping_file: str = ""
    operators: tuple[OperatorEntry, ...] = ()
    unmapped: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()

    @property
    def exit_status(self) -> int:
        """1 for anything that a call would stumble over: of the mapping's, or without one of all functions."""
        found = self.inspection
        if self.mapping is None:
            return 1 if found.missing or found.refused or found.problems else 0
        declared = {*found.missing, *found.refused}
        missing = (name for each in self.operators for name in each.missing if each.is_here or name in declared)
        return 1 if self.drift or any(missing) else 0


def inspect(libraries: Sequence[str], headers: Sequence[str], mapping: str = "") -> LibraryReport:
    """Read files and headers, and compare; no code of the library runs, unless only the loader can find or read it.

    ``libraries`` are files, or one folder in which the mapping's libraries lie; ``mapping`` is a built-in name or a
    file.

    Raises:
        UsageError: for a library, header or mapping that is missing, broken or for another machine.
        Unavailable: without pycparser or a C compiler.
    """
    stated = read_mapping(mapping_path(mapping, ".")) if mapping else None
    paths = _paths(libraries, stated)
    header = _header(headers)
    try:
        inspection = inspect_files(paths, header)
    except Unavailable as error:
        raise UsageError(str(error)) from None
    drift = () if stated is None else drift_of_mapping(stated, header)
    operators, unmapped = _operators(inspection, stated, drift)
    file = mapping_path(mapping, ".") if mapping else None
    return LibraryReport(
        paths=paths,
        header=header,
        inspection=inspection,
        mapping=stated,
        mapping_file=str(file or ""),
        operators=operators,
        unmapped=unmapped,
        drift=tuple(_with_place(each, file) for each in drift if file is not None),
    )


def _with_place(drift: Drift, file: Path) -> str:
    return f"{drift.words}\n  stated in {named_place(file, *drift.keys)}"


def _paths(libraries: Sequence[str], mapping: LibraryMapping | None) -> tuple[str, ...]:
    folders = [each for each in libraries if Path(each).is_dir()]
    if folders and len(libraries) > 1:
        raise UsageError(f"{folders[0]} is a folder; name files, or one folder with --mapping")
    if folders and mapping is None:
        raise UsageError(f"{folders[0]} is a folder; name its shared objects, or say by --mapping which they are")
    try:
        if folders and mapping is not None:
            return tuple(find_library(name, root=folders[0]) for name in mapping.library)
        return tuple(find_library(Path(each) if "/" in each else each) for each in libraries)
    except Unavailable as error:
        raise UsageError(str(error)) from None


def _header(headers: Sequence[str]) -> Header:
    try:
        return header_of(headers)
    except Unavailable as error:
        if error.what == "what the library declares":
            raise UsageError(error.remedy) from None
        raise


def _operators(
    inspection: Inspection, mapping: LibraryMapping | None, drift: Sequence[Drift]
) -> tuple[tuple[OperatorEntry, ...], tuple[str, ...]]:
    """Those of the mapping, then those of the library that it does not have; and the functions of none of them."""
    callable_ = inspection.callable
    if mapping is None:
        found = find_operators(callable_)
        return tuple(_entry_in_c(each) for each in found.values()), ()
    needed = functions_of_operators(mapping)
    mapped = [_mapped(name, functions, inspection, mapping, drift) for name, functions in needed.items()]
    used = {each for functions in needed.values() for each in functions} | {*functions_of_whole(mapping)}
    found = find_operators(callable_, _patterns(mapping)) if mapping.protocol.create else {}
    others = [each for each in found.values() if each.run not in used]
    unmapped = tuple(name for name in callable_ if name not in used)
    return (*mapped, *(_entry_in_c(each) for each in others)), unmapped


def _patterns(mapping: LibraryMapping) -> dict[str, str]:
    return {part: getattr(mapping.protocol, part) for part in ("create", "workspace", "run", "destroy")}


def _entry_in_c(found: OperatorFunctions) -> OperatorEntry:
    functions = tuple(filter(None, (found.create, found.workspace, found.run, found.destroy)))
    return OperatorEntry(operator="", in_c=found.name, functions=functions)


def _mapped(
    name: str, functions: tuple[str, ...], inspection: Inspection, mapping: LibraryMapping, drift: Sequence[Drift]
) -> OperatorEntry:
    drifted = (each.function or str(each.keys[0]) for each in drift if each.concerns(name, mapping))
    missing = tuple(each for each in functions if each not in inspection.callable)
    entry = mapping.operators.get(name)
    return OperatorEntry(
        operator=name,
        in_c=entry.name if entry else "",
        functions=functions,
        missing=missing,
        is_here=len(missing) < len(functions),
        drifted=tuple(dict.fromkeys(drifted)),
    )


def as_json(report: LibraryReport) -> str:
    """Everything, with every signature."""
    found, mapping = report.inspection, report.mapping
    data: dict[str, Any] = {
        "schema_version": 1,
        "library": list(report.paths),
        "headers": list(report.header.files),
        "functions": {
            name: {"signature": str(prototype), "where": prototype.where} for name, prototype in found.callable.items()
        },
        "missing": {name: _declared_at(report.header, name) for name in found.missing},
        "refused": {name: str(problem) for name, problem in found.refused.items()},
        "problems": [str(problem) for problem in found.problems],
        "undeclared": None if found.undeclared is None else list(found.undeclared),
        "operators": [
            {
                "operator": each.operator or None,
                "in_c": each.in_c or None,
                "functions": list(each.functions),
                "missing": list(each.missing),
                "is_here": each.is_here,
                "drifted": list(each.drifted),
            }
            for each in report.operators
        ],
        "mapping": None if mapping is None else {"name": mapping.name, "file": report.mapping_file},
        "unmapped": list(report.unmapped),
        "drift": list(report.drift),
    }
    return json.dumps(data, indent=1)


def as_text(report: LibraryReport, *, signatures: bool = False) -> Iterator[str]:
    """Lines for a reader: what is wrong first, then operators, then signatures (all of them if asked for)."""
    yield from _heading(report)
    yield from _wrong(report)
    yield from _operators_text(report)
    if signatures or (report.mapping is None and not report.operators):
        yield from _section("signatures", [str(each) for each in report.inspection.callable.values()], shown=None)


def _heading(report: LibraryReport) -> Iterator[str]:
    found, header = report.inspection, report.header
    yield f"library    {report.paths[0]}"
    yield from (f"           {path}" for path in report.paths[1:])
    yield f"headers    {_files(header.files)}"
    declared = len(header.prototypes) + len(header.refused)
    parts = [f"{declared} declared", f"{len(found.callable)} can be called", f"{len(found.missing)} missing"]
    if found.refused or found.problems:
        parts.append(f"{len(found.refused) + len(found.problems)} cannot be read or called")
    if found.undeclared is not None:
        parts.append(f"{len(found.undeclared)} exported and declared nowhere")
    yield f"functions  {', '.join(parts)}"


def _files(files: Sequence[str]) -> str:
    if len(files) < 4:
        return ", ".join(files)
    return f"{len(files)} files in {_common_folder(files)}"


def _common_folder(files: Sequence[str]) -> Path:
    folder = Path(files[0]).parent
    while not all(Path(each).is_relative_to(folder) for each in files):
        folder = folder.parent
    return folder


def _wrong(report: LibraryReport) -> Iterator[str]:
    found, header = report.inspection, report.header
    missing = [f"{name}  ({_short(_declared_at(header, name), header)})" for name in found.missing]
    yield from _section("missing: declared, and exported by none of these files", missing)
    unread = [*found.refused.values(), *found.problems]
    yield from _section("cannot be read or called", [str(each) for each in unread])
    undeclared = sorted(found.undeclared or (), key=lambda name: name.startswith("_"))
    yield from _names("exported and declared nowhere", undeclared, lines=3)
    yield from _section("drift: the mapping is not what the headers say", list(report.drift), shown=None)


def _short(place: str, header: Header) -> str:
    """A place in a header, from the folder that all headers lie in."""
    folder = _common_folder(header.files)
    path, _, line = place.rpartition(":")
    return f"{Path(path).relative_to(folder)}:{line}" if Path(path).is_relative_to(folder) else place


def _declared_at(header: Header, name: str) -> str:
    if name in header.prototypes:
        return header.prototypes[name].where
    problem = header.refused[name]
    return f"{problem.file}:{problem.line}"


def _operators_text(report: LibraryReport) -> Iterator[str]:
    mapping = report.mapping
    if mapping is None:
        in_operators = {function for each in report.operators for function in each.functions}
        found = _packed(each.in_c for each in report.operators)
        rest = [each for each in report.inspection.callable if each not in in_operators]
        titled = f"{len(report.operators)} operators, by the names of their functions"
        yield from _section(titled, [*found, *_example(report.operators)])
        if report.operators:
            yield from _names(f"{len(rest)} other functions", rest)
        return
    mapped = [each for each in report.operators if each.operator]
    here = [each for each in mapped if each.can_be_called]
    drifted = [each for each in mapped if each.is_here and not each.missing and each.drifted]
    broken = [f"{each.operator}: without {', '.join(each.missing)}" for each in mapped if each.is_here and each.missing]
    absent = [each for each in mapped if not each.is_here]
    others = [each.in_c for each in report.operators if not each.operator]
    name = f"mapping {mapping.name}"
    yield from _names(f"{name}: {len(here)} operators can be called", map(_both_names, here))
    yield from _section(f"{name}: {len(broken)} lack a function", broken)
    yield from _drifted(name, drifted)
    yield from _names(f"{name}: {len(absent)} are not in this library", [each.operator for each in absent])
    yield from _section(f"{name}: perhaps under another name", list(_perhaps(absent, report.unmapped)))
    yield from _names(f"{len(others)} operators of the library are not in the mapping", others)
    in_others = {each for entry in report.operators if not entry.operator for each in entry.functions}
    rest = [each for each in report.unmapped if each not in in_others]
    yield from _names(f"{len(rest)} other functions can be called, and the mapping has no use for them", rest)


def _drifted(name: str, operators: Sequence[OperatorEntry]) -> Iterator[str]:
    """Those that cannot be called before mapping and headers agree; one line where all drifted for one reason."""
    shared = {each.drifted for each in operators}
    if len(operators) > 1 and len(shared) == 1:
        lines = [", ".join(map(_both_names, operators)), f"for {', '.join(next(iter(shared)))}"]
    else:
        lines = [f"{_both_names(each)}: {', '.join(each.drifted)}" for each in operators]
    yield from _section(f"{name}: {len(operators)} cannot be called, since the headers say otherwise", lines)


def _perhaps(absent: Sequence[OperatorEntry], unmapped: Sequence[str]) -> Iterator[str]:
    """Functions of the library that look like those that an operator lacks, and that nothing else needs."""
    for entry in absent:
        near = nearest(entry.missing[0], unmapped) if entry.missing else ""
        if near:
            yield f"{entry.operator}: {entry.missing[0]} is not there; did you mean {near}?"


def _example(operators: Sequence[OperatorEntry]) -> list[str]:
    """How the functions of the first operator are called, in place of all of them."""
    return [f"each with functions such as {', '.join(operators[0].functions)}"] if operators else []


def _both_names(entry: OperatorEntry) -> str:
    if not entry.in_c or entry.in_c.lower().replace("_", "") == entry.operator.replace("_", ""):
        return entry.operator
    return f"{entry.operator} ({entry.in_c})"


def _section(title: str, lines: Sequence[str], *, shown: int | None = _SHOWN) -> Iterator[str]:
    """Nothing for no lines; the rest of a long list is counted."""
    if not lines:
        return
    yield ""
    yield title
    for line in lines[:shown]:
        first, *rest = line.split("\n")
        yield f"  {first}"
        yield from (f"  {each}" for each in rest)
    if shown is not None and len(lines) > shown:
        yield f"  and {len(lines) - shown} more: --json has all of them"


def _names(title: str, names: Iterable[str], *, lines: int = _SHOWN) -> Iterator[str]:
    """A section of names side by side; those that do not fit into so many lines are counted."""
    listed = list(names)
    packed = _packed(listed)
    left = len(listed) - sum(line.rstrip(",").count(",") + 1 for line in packed[:lines])
    more = [f"and {left} more: --json has all of them"] if left else []
    yield from _section(title, [*packed[:lines], *more], shown=None)


def _packed(names: Iterable[str], width: int = 96) -> list[str]:
    """Names side by side, in lines of a readable width."""
    lines: list[str] = []
    for name in names:
        if lines and len(lines[-1]) + 2 + len(name) <= width:
            lines[-1] += f", {name}"
        else:
            if lines:
                lines[-1] += ","
            lines.append(name)
    return lines
