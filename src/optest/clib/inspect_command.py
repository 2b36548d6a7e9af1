"""``optest ffi inspect``: the report on a library as lines for a reader, or as JSON."""

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
    """What the command line asks for, as :data:`optest.clib.guest.GUEST` declares it.

    Raises:
        UsageError, Unavailable: as :func:`optest.clib.library_report.inspect`; and UsageError for ``--write``.
    """
    if write:
        raise UsageError(
            "--write is gone, a mapping is written by hand; docs/c-libraries/mapping.md starts from a worked one"
        )
    report = inspect(library, headers, mapping)
    if as_json:
        context.echo(report_as_json(report))
    else:
        for line in as_text(report, signatures=signatures):
            context.echo(line)
    return report.exit_status


def as_text(report: LibraryReport, *, signatures: bool = False) -> Iterator[str]:
    """Yield the lines of a report: drift and operators first, then other functions, then signatures on request."""
    header = report.header
    yield f"library    {report.paths[0]}"
    yield from (f"           {path}" for path in report.paths[1:])
    yield f"headers    {_files(header.files)}"
    declared = len(header.prototypes) + len(header.refused)
    parts = [f"{declared} declared", f"{len(report.callable)} can be called", f"{len(report.missing)} missing"]
    if header.refused or header.problems:
        parts.append(f"{len(header.refused) + len(header.problems)} cannot be read or called")
    if report.undeclared is not None:
        parts.append(f"{len(report.undeclared)} exported and declared nowhere")
    yield f"functions  {', '.join(parts)}"
    drift = "drift: the mapping is not what the headers, or the operators of optest, say"
    yield from _section(drift, list(report.drift), shown=None)
    if report.mapping is not None:
        yield from _mapped_operators(report, report.mapping)
    # With a mapping, a large header has a thousand functions that no operator needs.
    most = _SHOWN if report.mapping is None else _FEW
    missing = [f"{name}  ({_short(declared_at(header, name), header)})" for name in report.missing]
    yield from _section("missing: declared, and exported by none of these files", missing, shown=most)
    unread = [*header.refused.values(), *header.problems]
    yield from _section("cannot be read or called", [str(each) for each in unread], shown=most)
    undeclared = sorted(report.undeclared or (), key=lambda name: name.startswith("_"))
    yield from _names("exported and declared nowhere", undeclared, lines=_FEW)
    yield from _other_functions(report, most)
    if signatures or (report.mapping is None and not report.operators):
        yield from _section("signatures", [str(each) for each in report.callable.values()], shown=None)


def _files(files: Sequence[str]) -> str:
    if len(files) < 4:
        return ", ".join(files)
    return f"{len(files)} files in {_common_folder(files)}"


def _common_folder(files: Sequence[str]) -> Path:
    return Path(os.path.commonpath([Path(each).parent for each in files]))


def _short(place: str, header: Header) -> str:
    """A place in a header, from the folder that all headers lie in."""
    folder = _common_folder(header.files)
    path, _, line = place.rpartition(":")
    return f"{Path(path).relative_to(folder)}:{line}" if Path(path).is_relative_to(folder) else place


def _mapped_operators(report: LibraryReport, mapping: LibraryMapping) -> Iterator[str]:
    mapped = [each for each in report.operators if each.operator]
    here = [each for each in mapped if each.can_be_called]
    drifted = [each for each in mapped if each.is_here and not each.missing and each.drifted]
    broken = [f"{each.operator}: without {', '.join(each.missing)}" for each in mapped if each.is_here and each.missing]
    absent = [each for each in mapped if not each.is_here]
    name = f"mapping {mapping.name}"
    yield from _names(f"{name}: {len(here)} operators can be called", map(_both_names, here))
    yield from _section(f"{name}: {len(broken)} lack a function", broken)
    yield from _drifted(name, drifted)
    yield from _names(f"{name}: {len(absent)} are not in this library", [each.operator for each in absent])
    yield from _section(f"{name}: perhaps under another name", list(_perhaps(absent, report.unmapped)))


def _other_functions(report: LibraryReport, lines: int) -> Iterator[str]:
    """Yield the operators of the library that no mapping has, by the names of their functions, then other functions."""
    others = [each for each in report.operators if not each.operator]
    functions = {function for each in others for function in each.functions}
    if report.mapping is not None:
        yield from _names(f"{len(others)} operators of the library are not in the mapping", [e.in_c for e in others])
        rest = [each for each in report.unmapped if each not in functions]
        title = f"{len(rest)} other functions can be called, and the mapping has no use for them"
        yield from _names(title, rest, lines=lines)
    elif others:
        example = f"each with functions such as {', '.join(others[0].functions)}"
        titled = f"{len(others)} operators, by the names of their functions"
        yield from _section(titled, [*_packed(each.in_c for each in others), example])
        rest = [each for each in report.callable if each not in functions]
        yield from _names(f"{len(rest)} other functions", rest)


def _drifted(name: str, operators: Sequence[OperatorEntry]) -> Iterator[str]:
    """Those that cannot be called before mapping and headers agree; one line where all drifted for one reason."""
    shared = {each.drifted for each in operators}
    if len(operators) > 1 and len(shared) == 1:
        lines = [", ".join(map(_both_names, operators)), f"for {', '.join(next(iter(shared)))}"]
    else:
        lines = [f"{_both_names(each)}: {', '.join(each.drifted)}" for each in operators]
    yield from _section(f"{name}: {len(operators)} cannot be called before the drift is repaired", lines)


def _perhaps(absent: Sequence[OperatorEntry], unmapped: Sequence[str]) -> Iterator[str]:
    """Functions of the library that look like those that an operator lacks, and that nothing else needs."""
    for entry in absent:
        near = nearest(entry.missing[0], unmapped) if entry.missing else ""
        if near:
            yield f"{entry.operator}: {entry.missing[0]} is not there; did you mean {near}?"


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


def _packed(names: Iterable[str]) -> list[str]:
    """Names side by side, in lines of a readable width."""
    unbroken = ", ".join(name.replace(" ", _NO_BREAK) for name in names)
    lines = textwrap.wrap(unbroken, width=97, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]
