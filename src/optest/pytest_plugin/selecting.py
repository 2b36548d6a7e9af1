"""Deselection of cases of other models than ``--model``, and of cases whose ids only begin with a named id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from optest.api.collecting import slug
from optest.errors import did_you_mean
from optest.pytest_plugin.nodes import CaseItem


def of_other_models(models: Sequence[str], items: Sequence[pytest.Item], *, is_complete: bool) -> list[pytest.Item]:
    """Return the cases of other models than ``--model``.

    Raise ``pytest.UsageError`` for a model that no case has, if the collection is complete.
    """
    if not models:
        return []
    cases = [item for item in items if isinstance(item, CaseItem)]
    if is_complete:
        require_known(models, dict.fromkeys(item.model for item in cases if item.model))
    words = {slug(name) for name in models}
    return [item for item in cases if slug(item.model) not in words]


def with_longer_ids(named: Iterable[tuple[Path, str]], items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the cases that pytest collects for a named case but that only begin with its id: ``a[0]`` for ``a``.

    ``named`` are files and folders, each with the named part of the id, "" for all.
    """
    locations = {(item.path, item.nodeid.partition("::")[2]): item for item in items if isinstance(item, CaseItem)}
    arguments = set(named)
    cases = arguments & locations.keys()
    others = arguments - cases
    return [
        item
        for location, item in locations.items()
        if location not in cases and _is_below(location, cases) and not _is_below(location, others)
    ]


def _is_below(location: tuple[Path, str], named: Iterable[tuple[Path, str]]) -> bool:
    """Return whether an item is in one of these files or folders, below the named part of the id."""
    path, name = location
    return any(
        name.startswith((f"{part}[", f"{part}::")) and path == file if part else path.is_relative_to(file)
        for file, part in named
    )


def require_known(names: Iterable[str], models: Iterable[str]) -> None:
    """Raise ``pytest.UsageError`` for a name that is, also as a slug, none of the models."""
    known = {slug(name): name for name in models}
    for name in names:
        if slug(name) not in known:
            hint = did_you_mean(name, known.values(), text="; did you mean {!r}?")
            models = f"known: {', '.join(sorted(known.values()))}" if known else "no file of model cases was collected"
            raise pytest.UsageError(f"--model {name} is unknown{hint}; {models}")
