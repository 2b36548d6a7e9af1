"""What a C library has, what its headers say, and what a mapping makes of both; also as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optest.clib.ffi.inspection import Inspection, inspect_files
from optest.clib.ffi.libraries import find_library
from optest.clib.ffi.protocols import OperatorFunctions, find_operators
from optest.clib.ffi.signatures import Header
from optest.clib.library.drift import (
    Difference,
    drift_of_mapping,
    functions_of_operators,
    functions_of_tensors,
    functions_of_whole,
)
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.mapping_file import mapping_path, named_place, read_mapping
from optest.clib.library.session import header_of
from optest.errors import Unavailable, UsageError

__all__ = ["LibraryReport", "OperatorEntry", "as_json", "declared_at", "inspect"]


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


def _with_place(drift: Difference, file: Path) -> str:
    return f"{drift.why}\n  stated in {named_place(file, *drift.keys)}"


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
    inspection: Inspection, mapping: LibraryMapping | None, drift: Sequence[Difference]
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
    name: str, functions: tuple[str, ...], inspection: Inspection, mapping: LibraryMapping, drift: Sequence[Difference]
) -> OperatorEntry:
    drifted = (each.function or str(each.keys[0]) for each in drift if each.concerns(name, mapping))
    entries = mapping.operators[name]
    missing = tuple(each for each in functions if each not in inspection.callable)
    is_here = len(missing) < len(functions)
    missing += tuple(each for each in functions_of_tensors(entries) if each not in inspection.callable)
    return OperatorEntry(
        operator=name,
        in_c=entries[0].name,
        functions=functions,
        missing=missing,
        is_here=is_here,
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
        "missing": {name: declared_at(report.header, name) for name in found.missing},
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


def declared_at(header: Header, name: str) -> str:
    """``mine.h:12``."""
    if name in header.prototypes:
        return header.prototypes[name].where
    problem = header.refused[name]
    return f"{problem.file}:{problem.line}"
