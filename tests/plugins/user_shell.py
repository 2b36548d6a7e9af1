"""A user's shell: a folder, an environment without optest's own variables, and the installed command."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

ROOT = Path(__file__).parents[2]


@dataclass
class Ended:
    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    def expect(
        self, status: int, *, out: str | tuple[str, ...] = (), err: str | tuple[str, ...] = (), text: str = ""
    ) -> Ended:
        """Return itself; raise AssertionError with all of the output if the status differs or a text is not in it."""
        __tracebackhide__ = True
        missing = [each for each in ((out,) if isinstance(out, str) else out) if each not in self.out]
        missing += [each for each in ((err,) if isinstance(err, str) else err) if each not in self.err]
        missing += [text] if text not in self.text else []
        if (self.status, missing) != (status, []):
            raise AssertionError(f"exit status {self.status}, expected {status}; missing: {missing}\n{self.text}")
        return self


Shell = Callable[..., Ended]

DRIVER = """\
import os
import numpy as np
from optest.backends import BackendDriver, backend_manager
{before}

class Driver(BackendDriver):
    name = kind = "{name}"

    def run(self, case, inputs):
{run}

backend_manager.register(Driver(), replace=True)
"""


def driver_text(name: str, run: str, before: str = "") -> str:
    """Return the text of a plug-in with one backend, whose method ``run`` has this body."""
    return DRIVER.format(name=name, run=indent(run, " " * 8), before=before)


def user_environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPTEST_", "TORCHINDUCTOR_"))}
    plugins = str(ROOT / "tests" / "plugins")
    return {**kept, "PYTHONPATH": plugins, "COLUMNS": "120", **more}
