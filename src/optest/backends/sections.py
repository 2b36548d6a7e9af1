"""Reader of ``backend_config.<section>`` of a case that collects all errors, to report them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from optest.errors import did_you_mean
from optest.spec import TestCase


class SectionReader:
    """Reads a section of a case; ``section`` is empty if it is no map, ``problems`` name the key of each error."""

    def __init__(self, case: TestCase, section: str, keys: str) -> None:
        """Read the section; ``keys`` are its main keys as text, for the error if it is no map."""
        self.case = case
        self.where = f"backend_config.{section}"
        self.section: Mapping[str, Any] = {}
        self.problems: list[str] = []
        section_value: Any = case.backend_config.get(section, {})
        if isinstance(section_value, Mapping):
            self.section = section_value
        else:
            self.add_problem("", f"is {section_value!r}, expected a map with {keys}")

    def add_problem(self, key: str, problem: str) -> None:
        self.problems.append(f"{self.where}{'.' if key else ''}{key} {problem}")

    def unknown_keys(
        self,
        mapping: Mapping[Any, Any],
        known: Sequence[str],
        *,
        inside: str = "",
        others: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Add a problem for every unknown key; ``others`` are hints for names that users know from other tools."""
        for key in mapping:
            if key not in known:
                listed = f"known: {', '.join(known) or 'none'}"
                hint = others.get(str(key)) or did_you_mean(str(key), known, listed, text="did you mean {!r}?")
                self.add_problem(f"{inside}{'.' if inside else ''}{key}", f"is an unknown key; {hint}")
