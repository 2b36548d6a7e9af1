"""The command ``optest ffi inspect``: print the report on a library as text or as JSON."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from optest.clib.ffi.signatures import Header
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library_report import LibraryReport, OperatorEntry, declared_at, inspect
from optest.clib.library_report import as_json as report_as_json
from optest.errors import UsageError, nearest
from optest.guests import CommandContext

_SHOWN, _FEW = 20, 3
_NO_BREAK = "\N{NO-BREAK SPACE}"


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
        UsageError: for the removed option ``--write``, and as :func:`optest.clib.library_report.inspect`.
        Unavailable: as :func:`optest.clib.library_report.inspect`.
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
    files = ", ".join(header.files) if few_files else f"{len(header.files)} files in {_common_folder(header.files)}"
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
    missing = [f"{name}  ({_relative_location(declared_at(header, name), header)})" for name in report.missing]
    yield from _section("missing: declared, but not exported by any of these files", missing, shown=limit)
    unread = [*header.refused.values(), *header.problems]
    yield from _section("cannot be read or called", [str(x) for x in unread], shown=limit)
    # Names with an underscore are mostly internal, so they come last.
    undeclared = sorted(report.undeclared or (), key=lambda name: name.startswith("_"))
    yield from _name_section("exported but not declared", undeclared, lines=_FEW)
    yield from _unmapped_operators(report, limit)
    if signatures or (report.mapping is None and not report.operators):
        yield from _section("signatures", [str(function) for function in report.callable.values()], shown=None)


def _common_folder(files: Sequence[str]) -> Path:
    return Path(os.path.commonpath([Path(path).parent for path in files]))


def _relative_location(location: str, header: Header) -> str:
    """Return a header location ``path:line`` with the path relative to the headers' common folder."""
    folder = _common_folder(header.files)
    path, _, line = location.rpartition(":")
    return f"{Path(path).relative_to(folder)}:{line}" if Path(path).is_relative_to(folder) else location


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
