"""What a C library has, what its headers say, and what a mapping makes of both; also as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from optest.clib.ffi.libraries import exported_functions, find_library, open_library, why_unfit
from optest.clib.ffi.signatures import Header, Prototype
from optest.clib.library.drift import Difference, drift_of_mapping, functions_of_operators, functions_of_tensors
from optest.clib.library.mapping import LibraryMapping, Protocol
from optest.clib.library.mapping_file import mapping_path, named_place, read_mapping
from optest.clib.library.session import header_of
from optest.errors import Unavailable, UsageError


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
    """Everything about a library, its headers and a mapping.

    ``callable`` are declared and exported; ``missing`` are declared and exported by no object of the library.
    ``undeclared`` are exported functions that no header declares, None where the files do not tell. ``unmapped`` are
    functions that can be called and that the mapping has no use for.
    """

    paths: tuple[str, ...]
    header: Header
    callable: Mapping[str, Prototype]
    missing: tuple[str, ...]
    undeclared: tuple[str, ...] | None
    mapping: LibraryMapping | None
    mapping_file: str
    operators: tuple[OperatorEntry, ...]
    unmapped: tuple[str, ...]
    drift: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """1 for anything that a call would stumble over: of the mapping's, or without one of all functions."""
        refused = self.header.refused
        if self.mapping is None:
            return 1 if self.missing or refused or self.header.problems else 0
        declared = {*self.missing, *refused}
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
    file = mapping_path(mapping, ".") if mapping else None
    library_mapping = None if file is None else read_mapping(file)
    try:
        paths = _paths(libraries, library_mapping)
        for path in paths:
            if why := why_unfit(path):
                raise Unavailable(f"library {path}", why)
        functions = [exported_functions(path) for path in paths]
        exported = frozenset().union(*functions) if all(functions) else None  # None if one of them does not tell
        loaded = open_library(paths) if exported is None else None
    except Unavailable as error:  # what is named on the command line and not there is an error of the command line
        raise UsageError(str(error)) from None
    header = header_of(headers)
    declared = (*header.prototypes, *header.refused)
    missing = _without(declared, exported or ()) if loaded is None else loaded.missing(declared)
    callable_ = {name: header.prototypes[name] for name in _without(header.prototypes, missing)}
    drift = () if library_mapping is None else drift_of_mapping(library_mapping, header)
    operators, unmapped = _operators(callable_, library_mapping, drift)
    return LibraryReport(
        paths=paths,
        header=header,
        callable=callable_,
        missing=missing,
        undeclared=None if exported is None else _without(sorted(exported), declared),
        mapping=library_mapping,
        mapping_file=str(file or ""),
        operators=operators,
        unmapped=unmapped,
        drift=tuple(f"{each.why}\n  stated in {named_place(file, *each.keys)}" for each in drift if file is not None),
    )


def _without(names: Collection[str], others: Collection[str]) -> tuple[str, ...]:
    left_out = frozenset(others)
    return tuple(name for name in names if name not in left_out)


def _paths(libraries: Sequence[str], mapping: LibraryMapping | None) -> tuple[str, ...]:
    folders = [each for each in libraries if Path(each).is_dir()]
    if folders and len(libraries) > 1:
        raise UsageError(f"{folders[0]} is a folder; name files, or one folder with --mapping")
    if folders and mapping is None:
        raise UsageError(f"{folders[0]} is a folder; name its shared objects, or say by --mapping which they are")
    if folders and mapping is not None:
        return tuple(find_library(name, root=folders[0]) for name in mapping.library)
    return tuple(find_library(Path(each) if "/" in each else each) for each in libraries)


def _operators(
    callable_: Collection[str], mapping: LibraryMapping | None, drift: Sequence[Difference]
) -> tuple[tuple[OperatorEntry, ...], tuple[str, ...]]:
    """Those of the mapping, then those of the library that it does not have; and the functions of none of them."""
    if mapping is None:
        found = find_operators(callable_)
        return tuple(_entry_in_c(*each) for each in found.items()), ()
    needed = functions_of_operators(mapping)
    mapped = [_mapped(name, functions, callable_, mapping, drift) for name, functions in needed.items()]
    # The C functions that belong to no operator: device, handle, tensor descriptors.
    calls = (*mapping.whole_calls().values(), *mapping.tensor.calls().values())
    ends = (*mapping.threads.functions, mapping.handle.ended_by)
    of_whole = filter(None, (*(each.function for each in calls), *ends))
    used = {*of_whole, *(each for functions in needed.values() for each in functions)}
    found = find_operators(callable_, msgspec.structs.asdict(mapping.protocol)) if mapping.protocol.create else {}
    others = [_entry_in_c(name, each) for name, each in found.items() if each.run not in used]
    unmapped = tuple(name for name in callable_ if name not in used)
    return (*mapped, *others), unmapped


def _entry_in_c(name: str, found: Protocol) -> OperatorEntry:
    return OperatorEntry(operator="", in_c=name, functions=tuple(filter(None, msgspec.structs.astuple(found))))


def _mapped(
    name: str,
    functions: tuple[str, ...],
    callable_: Collection[str],
    mapping: LibraryMapping,
    drift: Sequence[Difference],
) -> OperatorEntry:
    drifted = (each.function or str(each.keys[0]) for each in drift if each.concerns(name, mapping))
    entries = mapping.operators[name]
    missing = tuple(each for each in functions if each not in callable_)
    is_here = len(missing) < len(functions)
    missing += tuple(each for each in functions_of_tensors(entries) if each not in callable_)
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
    header, mapping = report.header, report.mapping
    data: dict[str, Any] = {
        "schema_version": 1,
        "library": list(report.paths),
        "headers": list(header.files),
        "functions": {
            name: {"signature": str(prototype), "where": prototype.where} for name, prototype in report.callable.items()
        },
        "missing": {name: declared_at(header, name) for name in report.missing},
        "refused": {name: str(problem) for name, problem in header.refused.items()},
        "problems": [str(problem) for problem in header.problems],
        "undeclared": None if report.undeclared is None else list(report.undeclared),
        "operators": [
            {**asdict(each), "operator": each.operator or None, "in_c": each.in_c or None} for each in report.operators
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


_CREATE = re.compile(r"(?P<prefix>\w*?)[Cc]reate_?(?P<name>\w+?)_?[Dd]esc(riptor)?")
_BESIDE = {
    "workspace": r"{prefix}[Gg]et_?{name}_?[Ww]orkspace(_?[Ss]ize)?",
    "run": r"{prefix}(Execute|Run)?{name}",
    "destroy": r"{prefix}[Dd]estroy_?{name}_?[Dd]esc(riptor)?",
}


def find_operators(functions: Collection[str], patterns: Mapping[str, str] | None = None) -> dict[str, Protocol]:
    """Operators by their name in C: each has a function that creates a descriptor, one that runs it, and one that
    destroys it.

    ``patterns`` are names with ``{name}`` for ``create``, ``workspace``, ``run`` and ``destroy``. Without them, names
    such as ``xCreateAddDescriptor`` with ``xAdd``, or ``x_create_add_descriptor`` with ``x_add``, are taken for it.
    """
    forms, create = _BESIDE, _CREATE
    if patterns is not None:
        forms = {part: patterns[part] for part in _BESIDE}
        create = re.compile(re.escape(patterns["create"]).replace(re.escape("{name}"), "(?P<name>.+)"))
    found = {}
    for function in sorted(functions):
        match = create.fullmatch(function)
        if match is None:
            continue
        of_it = [each for each in functions if match["name"] in each]
        shortest = {}
        for part, form in forms.items():
            named = re.compile(form.format(**match.groupdict()))
            shortest[part] = min(filter(named.fullmatch, of_it), key=len, default="")
        if shortest["run"] and shortest["destroy"]:
            found[match["name"]] = Protocol(create=function, **shortest)
    return found
