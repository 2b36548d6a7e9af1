"""The command ``optest ffi inspect``: compare a C library, its headers and a mapping; report as text or JSON."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from optest.clib.ffi.libraries import exported_functions, find_library, open_library, unfit_reason
from optest.clib.ffi.signatures import Header, Prototype
from optest.clib.library.drift import Difference, drift_of_mapping, functions_of_operators, functions_of_tensors
from optest.clib.library.mapping import LibraryMapping, Protocol
from optest.clib.library.mapping_file import mapping_path, named_place, read_mapping
from optest.clib.library.session import header_of
from optest.errors import Unavailable, UsageError, nearest
from optest.guests import CommandContext

_SHOWN, _FEW = 20, 3
_NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorEntry:
    """An operator of the mapping (``operator``), of the library (``in_c``), or of both."""

    operator: str
    in_c: str
    functions: tuple[str, ...]
    missing: tuple[str, ...] = ()  # required, but not in the library
    is_here: bool = True  # False if the library lacks all functions
    drifted: tuple[str, ...] = ()  # functions whose prototype differs from the mapping

    @property
    def can_be_called(self) -> bool:
        return self.is_here and not self.missing and not self.drifted


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryReport:
    """Result of comparing a library with its headers and a mapping."""

    paths: tuple[str, ...]
    header: Header
    callable: Mapping[str, Prototype]  # declared and exported
    missing: tuple[str, ...]  # declared, but exported by no object of the library
    undeclared: tuple[str, ...] | None  # exported without a declaration; None if a file cannot be read
    mapping: LibraryMapping | None
    mapping_file: str
    operators: tuple[OperatorEntry, ...]
    unmapped: tuple[str, ...]  # callable, but not used by the mapping
    drift: tuple[str, ...]

    @property
    def exit_status(self) -> int:
        """1 if a mapped call would fail, or, without a mapping, if any declared function cannot be called; else 0."""
        refused = self.header.refused
        if self.mapping is None:
            return 1 if self.missing or refused or self.header.problems else 0
        declared = {*self.missing, *refused}
        missing = (name for entry in self.operators for name in entry.missing if entry.is_here or name in declared)
        return 1 if self.drift or any(missing) else 0


def inspect(libraries: Sequence[str], headers: Sequence[str], mapping: str = "") -> LibraryReport:
    """Read libraries, headers and mapping, and compare them; no code of the library runs unless only the loader can
    find or read it.

    ``libraries`` are files, or one folder that contains the mapping's libraries; ``mapping`` is a built-in name or a
    file.

    Raises:
        UsageError: for a library, header or mapping that is missing, broken or for another machine.
        Unavailable: without pycparser or a C compiler.
    """
    file = mapping_path(mapping, ".") if mapping else None
    library_mapping = None if file is None else read_mapping(file)
    try:
        paths = _library_paths(libraries, library_mapping)
        for path in paths:
            if why := unfit_reason(path):
                raise Unavailable(f"library {path}", why)
        functions = [exported_functions(path) for path in paths]
        exported = frozenset().union(*functions) if all(functions) else None  # None if one file cannot be read
        loaded = open_library(paths) if exported is None else None
    except Unavailable as error:
        # A missing file is an error of the command line, which named it.
        raise UsageError(str(error)) from None
    header = header_of(headers)
    declared = (*header.prototypes, *header.refused)
    missing = _names_without(declared, exported or ()) if loaded is None else loaded.missing(declared)
    callable_ = {name: header.prototypes[name] for name in _names_without(header.prototypes, missing)}
    drift = () if library_mapping is None else drift_of_mapping(library_mapping, header)
    operators, unmapped = _operator_entries(callable_, library_mapping, drift)
    return LibraryReport(
        paths=paths,
        header=header,
        callable=callable_,
        missing=missing,
        undeclared=None if exported is None else _names_without(sorted(exported), declared),
        mapping=library_mapping,
        mapping_file=str(file or ""),
        operators=operators,
        unmapped=unmapped,
        drift=tuple(f"{diff.why}\n  in {named_place(file, *diff.keys)}" for diff in drift if file is not None),
    )


def _names_without(names: Collection[str], others: Collection[str]) -> tuple[str, ...]:
    left_out = frozenset(others)
    return tuple(name for name in names if name not in left_out)


def _library_paths(libraries: Sequence[str], mapping: LibraryMapping | None) -> tuple[str, ...]:
    """Return the named files, or the mapping's libraries in the only named folder; raise UsageError."""
    folders = [path for path in libraries if Path(path).is_dir()]
    if folders and len(libraries) > 1:
        raise UsageError(f"{folders[0]} is a folder; name files, or one folder with --mapping")
    if folders and mapping is None:
        raise UsageError(f"{folders[0]} is a folder; name its shared objects, or pass --mapping, which lists them")
    if folders and mapping is not None:
        return tuple(find_library(name, root=folders[0]) for name in mapping.library)
    return tuple(find_library(Path(path) if "/" in path else path) for path in libraries)


def _operator_entries(
    callable_: Collection[str], mapping: LibraryMapping | None, drift: Sequence[Difference]
) -> tuple[tuple[OperatorEntry, ...], tuple[str, ...]]:
    """Return the operators of the mapping, then those only of the library; and the functions that no operator uses."""
    if mapping is None:
        by_name = find_operators(callable_)
        return tuple(_entry_in_c(*x) for x in by_name.items()), ()
    needed = functions_of_operators(mapping)
    mapped = []
    for name, functions in needed.items():
        entries = mapping.operators[name]
        missing = [function for function in functions if function not in callable_]
        of_tensors = [function for function in functions_of_tensors(entries) if function not in callable_]
        drifted = [diff.function or str(diff.keys[0]) for diff in drift if diff.concerns(name, mapping)]
        entry = OperatorEntry(
            operator=name,
            in_c=entries[0].name,
            functions=functions,
            missing=(*missing, *of_tensors),
            is_here=len(missing) < len(functions),  # tensor functions serve other operators, too
            drifted=tuple(dict.fromkeys(drifted)),
        )
        mapped.append(entry)
    # The C functions that belong to no operator: device, handle, tensor descriptors.
    calls = (*mapping.global_calls().values(), *mapping.tensor.calls().values())
    ends = (*mapping.threads.functions, mapping.handle.destructor)
    of_whole = filter(None, (*(call.function for call in calls), *ends))
    used = {*of_whole, *(function for functions in needed.values() for function in functions)}
    by_name = find_operators(callable_, msgspec.structs.asdict(mapping.protocol)) if mapping.protocol.create else {}
    others = [_entry_in_c(name, functions) for name, functions in by_name.items() if functions.run not in used]
    unmapped = tuple(name for name in callable_ if name not in used)
    return (*mapped, *others), unmapped


def _entry_in_c(name: str, functions: Protocol) -> OperatorEntry:
    return OperatorEntry(operator="", in_c=name, functions=tuple(filter(None, msgspec.structs.astuple(functions))))


def report_as_json(report: LibraryReport) -> str:
    """Return the report as JSON, with the signature of every callable function."""
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
            {**asdict(entry), "operator": entry.operator or None, "in_c": entry.in_c or None}
            for entry in report.operators
        ],
        "mapping": None if mapping is None else {"name": mapping.name, "file": report.mapping_file},
        "unmapped": list(report.unmapped),
        "drift": list(report.drift),
    }
    return json.dumps(data, indent=1)


def declared_at(header: Header, name: str) -> str:
    """Return the location of a function's declaration: ``mine.h:12``."""
    if name in header.prototypes:
        return header.prototypes[name].where
    problem = header.refused[name]
    return f"{problem.file}:{problem.line}"


_CREATE = re.compile(r"(?P<prefix>\w*?)[Cc]reate_?(?P<name>\w+?)_?[Dd]esc(riptor)?")
_FUNCTION_NAMES = {
    "workspace": r"{prefix}[Gg]et_?{name}_?[Ww]orkspace(_?[Ss]ize)?",
    "run": r"{prefix}(Execute|Run)?{name}",
    "destroy": r"{prefix}[Dd]estroy_?{name}_?[Dd]esc(riptor)?",
}


def find_operators(functions: Collection[str], patterns: Mapping[str, str] | None = None) -> dict[str, Protocol]:
    """Return the functions of each operator by its name in C: create descriptor, run, destroy, and workspace if there
    is one.

    ``patterns`` are names with ``{name}`` for ``create``, ``workspace``, ``run`` and ``destroy``. The default patterns
    match ``xCreateAddDescriptor`` with ``xAdd``, and ``x_create_add_descriptor`` with ``x_add``.
    """
    forms, create = _FUNCTION_NAMES, _CREATE
    if patterns is not None:
        forms = {part: patterns[part] for part in _FUNCTION_NAMES}
        create = re.compile(re.escape(patterns["create"]).replace(re.escape("{name}"), "(?P<name>.+)"))
    operators = {}
    for function in sorted(functions):
        match = create.fullmatch(function)
        if match is None:
            continue
        candidates = [function for function in functions if match["name"] in function]
        related = {}
        for part, form in forms.items():
            named = re.compile(form.format(**match.groupdict()))
            related[part] = min(filter(named.fullmatch, candidates), key=len, default="")
        if related["run"] and related["destroy"]:
            operators[match["name"]] = Protocol(create=function, **related)
    return operators


def inspect_command(
    context: CommandContext,
    *,
    library: Sequence[str],
    headers: Sequence[str],
    mapping: str,
    as_json: bool,
    signatures: bool,
    write: str,
) -> int:
    """Print the report on a C library as text or JSON; return the exit status.

    Raises:
        UsageError: for the removed option ``--write``, and as :func:`inspect`.
        Unavailable: as :func:`inspect`.
    """
    if write:
        raise UsageError("--write was removed; write the mapping by hand; docs/c-libraries/mapping.md has an example")
    report = inspect(library, headers, mapping)
    if as_json:
        context.echo(report_as_json(report))
    else:
        for line in as_text(report, signatures=signatures):
            context.echo(line)
    return report.exit_status


def as_text(report: LibraryReport, *, signatures: bool = False) -> Iterator[str]:
    """Yield the report's lines: drift and operators first, then other functions, then signatures on request."""
    header = report.header
    yield f"library    {report.paths[0]}"
    yield from (f"           {path}" for path in report.paths[1:])
    few_files = len(header.files) < 4
    folder = Path(os.path.commonpath([Path(path).parent for path in header.files]))
    files = ", ".join(header.files) if few_files else f"{len(header.files)} files in {folder}"
    yield f"headers    {files}"
    declared = len(header.prototypes) + len(header.refused)
    parts = [f"{declared} declared", f"{len(report.callable)} can be called", f"{len(report.missing)} missing"]
    if header.refused or header.problems:
        parts.append(f"{len(header.refused) + len(header.problems)} cannot be read or called")
    if report.undeclared is not None:
        parts.append(f"{len(report.undeclared)} exported but not declared")
    yield f"functions  {', '.join(parts)}"
    drift = "drift: the mapping differs from the headers or from optest's operators"
    yield from _section(drift, list(report.drift), shown=None)
    if report.mapping is not None:
        yield from _mapped_operators(report, report.mapping)
    # With a mapping, a large header has a thousand functions that no operator needs.
    limit = _SHOWN if report.mapping is None else _FEW
    missing = []
    for name in report.missing:
        path, _, line = declared_at(header, name).rpartition(":")
        is_below = Path(path).is_relative_to(folder)
        missing.append(f"{name}  ({Path(path).relative_to(folder) if is_below else path}:{line})")
    yield from _section("missing: declared, but not exported by any of these files", missing, shown=limit)
    unread = [*header.refused.values(), *header.problems]
    yield from _section("cannot be read or called", [str(x) for x in unread], shown=limit)
    # Names with an underscore are mostly internal, so they come last.
    undeclared = sorted(report.undeclared or (), key=lambda name: name.startswith("_"))
    yield from _name_section("exported but not declared", undeclared, lines=_FEW)
    yield from _unmapped_operators(report, limit)
    if signatures or (report.mapping is None and not report.operators):
        yield from _section("signatures", [str(function) for function in report.callable.values()], shown=None)


def _mapped_operators(report: LibraryReport, mapping: LibraryMapping) -> Iterator[str]:
    """Yield sections on the mapping's operators: callable, incomplete, drifted, absent, similar names."""
    mapped = [entry for entry in report.operators if entry.operator]
    here = [entry for entry in mapped if entry.can_be_called]
    drifted = [entry for entry in mapped if entry.is_here and not entry.missing and entry.drifted]
    broken = [f"{x.operator}: without {', '.join(x.missing)}" for x in mapped if x.is_here and x.missing]
    absent = [entry for entry in mapped if not entry.is_here]
    name = f"mapping {mapping.name}"
    yield from _name_section(f"{name}: {len(here)} operators can be called", map(_both_names, here))
    yield from _section(f"{name}: {len(broken)} lack a function", broken)
    yield from _drifted_operators(name, drifted)
    yield from _name_section(f"{name}: {len(absent)} are not in this library", [entry.operator for entry in absent])
    similar = []
    for entry in absent:
        lacking = entry.missing[0] if entry.missing else ""
        if near := nearest(lacking, report.unmapped) if lacking else "":
            similar.append(f"{entry.operator}: {lacking} is missing; did you mean {near}?")
    yield from _section(f"{name}: perhaps under another name", similar)


def _unmapped_operators(report: LibraryReport, lines: int) -> Iterator[str]:
    """Yield library operators that the mapping lacks (all operators without a mapping), then other functions."""
    others = [entry for entry in report.operators if not entry.operator]
    functions = {function for entry in others for function in entry.functions}
    if report.mapping is not None:
        title = f"{len(others)} operators of the library are not in the mapping"
        yield from _name_section(title, [x.in_c for x in others])
        rest = [function for function in report.unmapped if function not in functions]
        title = f"{len(rest)} other functions can be called, and the mapping does not use them"
        yield from _name_section(title, rest, lines=lines)
    elif others:
        example = f"each with functions such as {', '.join(others[0].functions)}"
        titled = f"{len(others)} operators, by the names of their functions"
        yield from _section(titled, [*_wrap_names(entry.in_c for entry in others), example])
        rest = [function for function in report.callable if function not in functions]
        yield from _name_section(f"{len(rest)} other functions", rest)


def _drifted_operators(name: str, operators: Sequence[OperatorEntry]) -> Iterator[str]:
    """Yield the operators that drift makes uncallable, on one line if all have the same reason."""
    shared = {entry.drifted for entry in operators}
    if len(operators) > 1 and len(shared) == 1:
        lines = [", ".join(map(_both_names, operators)), f"for {', '.join(next(iter(shared)))}"]
    else:
        lines = [f"{_both_names(entry)}: {', '.join(entry.drifted)}" for entry in operators]
    yield from _section(f"{name}: {len(operators)} cannot be called until the drift is repaired", lines)


def _both_names(entry: OperatorEntry) -> str:
    if not entry.in_c or entry.in_c.lower().replace("_", "") == entry.operator.replace("_", ""):
        return entry.operator
    return f"{entry.operator} ({entry.in_c})"


def _section(title: str, lines: Sequence[str], *, shown: int | None = _SHOWN) -> Iterator[str]:
    """Yield a titled section of at most ``shown`` lines and a count of the rest; nothing without lines."""
    if not lines:
        return
    yield ""
    yield title
    for line in lines[:shown]:
        first, *rest = line.split("\n")
        yield f"  {first}"
        yield from (f"  {line}" for line in rest)
    if shown is not None and len(lines) > shown:
        yield f"  and {len(lines) - shown} more: --json has all of them"


def _name_section(title: str, names: Iterable[str], *, lines: int = _SHOWN) -> Iterator[str]:
    """Yield a section of comma-separated names in at most ``lines`` lines, and a count of the rest."""
    listed = list(names)
    packed = _wrap_names(listed)
    left = len(listed) - sum(line.rstrip(",").count(",") + 1 for line in packed[:lines])
    more = [f"and {left} more: --json has all of them"] if left else []
    yield from _section(title, [*packed[:lines], *more], shown=None)


def _wrap_names(names: Iterable[str]) -> list[str]:
    """Join names with commas into lines of at most 97 characters."""
    # A no-break space keeps wrap from splitting a name that contains a space.
    unbroken = ", ".join(name.replace(" ", _NO_BREAK) for name in names)
    lines = textwrap.wrap(unbroken, width=97, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]
