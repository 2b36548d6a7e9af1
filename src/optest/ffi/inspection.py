"""A library held against its headers: what can be called, what is missing, what has drifted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from optest.errors import Problem
from optest.ffi.libraries import Library
from optest.ffi.registration import SignatureRegistry
from optest.ffi.signatures import Header, Prototype

__all__ = ["Inspection", "inspect_library"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """``callable`` are declared and exported; ``missing`` are declared and exported by no object of the library.

    ``refused`` cannot be called from Python and say why; ``problems`` are declarations without a name that could not
    be read; ``drift`` are differences between hand-written signatures and the headers.
    """

    callable: Mapping[str, Prototype] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    refused: Mapping[str, Problem] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    drift: tuple[str, ...] = ()


def inspect_library(library: Library, header: Header, registry: SignatureRegistry | None = None) -> Inspection:
    """Compare; nothing is called."""
    missing = library.missing((*header.prototypes, *header.refused))
    absent = set(missing)
    return Inspection(
        callable={name: prototype for name, prototype in header.prototypes.items() if name not in absent},
        missing=missing,
        refused=header.refused,
        problems=header.problems,
        drift=() if registry is None else registry.drift(header),
    )
