"""What all cases add up to, below pytest's own report."""

from __future__ import annotations

import pytest

from optest.api import collecting
from optest.pytest_plugin.sharing import DIRECTORIES, EXPECTED

__all__ = ["summed_up"]


def summed_up(config: pytest.Config) -> list[str]:
    """The lines for the terminal, none with ``-q`` or if no case was run."""
    directories = config.stash.get(DIRECTORIES, [])
    if not directories or config.option.verbose < 0:
        return []
    return [*collecting.figures(directories), *collecting.left_over(config.stash.get(EXPECTED, {}), directories)]
