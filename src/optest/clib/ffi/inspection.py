"""A library held against its headers: what can be called, what is missing, what nobody declares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from optest.clib.ffi.elf import exported_functions
from optest.clib.ffi.libraries import open_library, require_fit
from optest.clib.ffi.signatures import Header, Prototype
from optest.errors import Problem

__all__ = ["Inspection", "inspect_files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """``callable`` are declared and exported; ``missing`` are declared and exported by no object of the library.

    ``refused`` cannot be called from Python and say why; ``problems`` are declarations without a name that could not
    be read; ``undeclared`` are exported functions that no header declares, None where the files do not tell.
    """

    callable: Mapping[str, Prototype] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    refused: Mapping[str, Problem] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    undeclared: tuple[str, ...] | None = None


def inspect_files(paths: Sequence[str], header: Header) -> Inspection:
    """Compare without loading: no code of the library runs, unless only the loader can tell what it exports.

    Raises:
        Unavailable: for a file that is no shared object for this machine.
    """
    for path in paths:
        require_fit(path)
    exported = _exported(paths)
    if exported is None:
        return _inspection(open_library(paths).missing, None, header)
    return _inspection(lambda names: tuple(each for each in names if each not in exported), exported, header)


def _inspection(
    missing_of: Callable[[Iterable[str]], tuple[str, ...]],
    exported: frozenset[str] | None,
    header: Header,
) -> Inspection:
    declared = (*header.prototypes, *header.refused)
    missing = missing_of(declared)
    absent = set(missing)
    return Inspection(
        callable={name: prototype for name, prototype in header.prototypes.items() if name not in absent},
        missing=missing,
        refused=header.refused,
        problems=header.problems,
        undeclared=None if exported is None else tuple(sorted(exported - set(declared))),
    )


def _exported(paths: Sequence[str]) -> frozenset[str] | None:
    """The functions of all files; None if one of them does not tell."""
    found = [exported_functions(Path(path)) for path in paths]
    return None if any(not each for each in found) else frozenset().union(*found)
