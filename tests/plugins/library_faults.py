"""The faults of examples/c_library: which of them can be active in one run, so that each still shows by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

TABLE = Path(__file__).parents[2] / "examples" / "c_library" / "faults.def"
_LINE = re.compile(r'^FAULT_LINE\((\w+), "([^"]+)", "([^"]+)", "([^"]+)"\)$', re.MULTILINE)


def headers_of(library: Path) -> Path:
    """Those of the right library, also for a broken one, which lies in it."""
    own = library / "include"
    return own if own.exists() else library.parent / "include"


@dataclass(frozen=True)
class LibraryFault:
    name: str
    operators: frozenset[str]
    """Of the library, in which it is; ``all`` for one in what they share."""
    kind: str

    @property
    def is_alone(self) -> bool:
        """Whether it would be seen in the cases of other operators, too."""
        return (
            "all" in self.operators
            or self.kind == "manners"
            or any(each.startswith("infinirt") for each in self.operators)
        )


def library_faults() -> dict[str, LibraryFault]:
    rows = _LINE.findall(TABLE.read_text(encoding="utf-8"))
    return {name: LibraryFault(name, frozenset(where.split(", ")), kind) for name, where, kind, _ in rows}


def rounds(names: Iterable[str]) -> list[tuple[str, ...]]:
    """The faults in groups, in each of which no two are in one operator."""
    known = library_faults()
    groups: list[list[LibraryFault]] = []
    for fault in (known[name] for name in names):
        fits = [group for group in groups if not fault.is_alone and all(_are_apart(fault, other) for other in group)]
        (fits[0] if fits else _new(groups)).append(fault)
    return [tuple(each.name for each in group) for group in groups]


def _are_apart(one: LibraryFault, other: LibraryFault) -> bool:
    return not other.is_alone and not one.operators & other.operators


def _new(groups: list[list[LibraryFault]]) -> list[LibraryFault]:
    groups.append([])
    return groups[-1]


def in_rounds(names: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrises a test by ``together``, faults that are active in one run."""
    return pytest.mark.parametrize("together", rounds(names), ids=lambda group: f"{group[0]}+{len(group) - 1}")
