"""Cases of models that ``--model`` does not name are deselected, not skipped; so is what lies beside a case named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from optest.api.collecting import slug
from optest.errors import did_you_mean
from optest.pytest_plugin.nodes import CaseItem


def of_other_models(models: Sequence[str], items: Sequence[pytest.Item], *, is_complete: bool) -> list[pytest.Item]:
    """The cases that ``--model`` does not name; tests that are no cases stay.

    Raises:
        pytest.UsageError: for a model that no case has, if nothing was lost while they were collected.
    """
    if not models:
        return []
    cases = [item for item in items if isinstance(item, CaseItem)]
    if is_complete:
        require_known(models, dict.fromkeys(item.model for item in cases if item.model))
    words = {slug(name) for name in models}
    return [item for item in cases if slug(item.model) not in words]


def beside_those_named(named: Iterable[tuple[Path, str]], items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The cases that nobody asked for: pytest takes the name ``a`` for those of ``a[0]`` and ``a::b``, too.

    ``named`` are files and folders, each with what of it is named ("" for all).
    """
    places = {(item.path, item.nodeid.partition("::")[2]): item for item in items if isinstance(item, CaseItem)}
    paths = set(named)
    cases = paths & places.keys()
    others = paths - cases
    return [
        item
        for place, item in places.items()
        if place not in cases and _is_below(place, cases) and not _is_below(place, others)
    ]


def _is_below(place: tuple[Path, str], named: Iterable[tuple[Path, str]]) -> bool:
    path, name = place
    return any(
        name.startswith((f"{each}[", f"{each}::")) and path == file if each else path.is_relative_to(file)
        for file, each in named
    )


def require_known(names: Iterable[str], models: Iterable[str]) -> None:
    """Models go by their names, and by these as words.

    Raises:
        pytest.UsageError: for one that there is not.
    """
    known = {slug(name): name for name in models}
    for name in names:
        if slug(name) not in known:
            hint = did_you_mean(name, known.values(), text="; did you mean {!r}?")
            there = f"there are {', '.join(sorted(known.values()))}" if known else "no file of model cases was found"
            raise pytest.UsageError(f"no model is called {name!r}{hint}; {there}")
