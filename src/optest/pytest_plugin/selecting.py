"""``--model``: cases of other models are deselected, not skipped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from optest.api.collecting import slug
from optest.errors import nearest
from optest.pytest_plugin.nodes import CaseItem

__all__ = ["of_other_models", "require_known"]


def of_other_models(wanted: Sequence[str], items: Sequence[pytest.Item], *, is_complete: bool) -> list[pytest.Item]:
    """The cases that ``--model`` does not name; tests that are no cases stay.

    Raises:
        pytest.UsageError: for a model that no case has, if nothing was lost while they were collected.
    """
    if not wanted:
        return []
    cases = [item for item in items if isinstance(item, CaseItem)]
    if is_complete:
        require_known(wanted, dict.fromkeys(item.model for item in cases if item.model))
    words = {slug(name) for name in wanted}
    return [item for item in cases if slug(item.model) not in words]


def require_known(wanted: Iterable[str], models: Iterable[str]) -> None:
    """Models go by their names, and by these as words.

    Raises:
        pytest.UsageError: for one that there is not.
    """
    known = {slug(name): name for name in models}
    for name in wanted:
        if slug(name) not in known:
            near = nearest(name, known.values())
            hint = f"; did you mean {near!r}?" if near else ""
            there = f"there are {', '.join(sorted(known.values()))}" if known else "no file of model cases was found"
            raise pytest.UsageError(f"no model is called {name!r}{hint}; {there}")
