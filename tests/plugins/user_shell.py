"""A user's shell: a folder, an environment without optest's own variables, and the installed command."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass
class Ended:
    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


Shell = Callable[..., Ended]


def user_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPTEST_", "TORCHINDUCTOR_"))}
    plugins = str(ROOT / "tests" / "plugins")
    return {**kept, "PYTHONPATH": plugins, "COLUMNS": "120", **more}
