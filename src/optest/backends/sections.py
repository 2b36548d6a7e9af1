"""Reading ``backend_config.<section>`` of a case: whatever is wrong is collected, and told at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from optest.errors import did_you_mean
from optest.spec import TestCase


class SectionReader:
    """``section`` is empty where it is no map; ``problems`` name the key at which something is wrong."""

    def __init__(self, case: TestCase, section: str, keys: str) -> None:
        """``keys`` are the most important ones, as words for whoever wrote something else than a map."""
        self.case = case
        self.where = f"backend_config.{section}"
        self.section: Mapping[str, Any] = {}
        self.problems: list[str] = []
        stated: Any = case.backend_config.get(section, {})
        if isinstance(stated, Mapping):
            self.section = stated
        else:
            self.say("", f"is {stated!r}, expected a map with {keys}")

    def say(self, key: str, problem: str) -> None:
        self.problems.append(f"{self.where}{'.' if key else ''}{key} {problem}")

    def unknown_keys(
        self,
        stated: Mapping[Any, Any],
        known: Sequence[str],
        *,
        inside: str = "",
        others: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Tell of keys that are not known; ``others`` are hints for names that people know from elsewhere."""
        for key in stated:
            if key not in known:
                listed = f"known: {', '.join(known) or 'none'}"
                hint = others.get(str(key)) or did_you_mean(str(key), known, listed, text="did you mean {!r}?")
                self.say(f"{inside}{'.' if inside else ''}{key}", f"is an unknown key; {hint}")
