"""``--watch``: runs again, each time in a fork of this process, whenever a file that the run rests on changes."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from optest.api.running import RunOutcome, closing_lines
from optest.errors import OptestError
from optest.process import fork_and_run
from optest.registry import file_of_module, own_files
from optest.settings import config_file, plugin_modules

__all__ = ["watch"]

_LOOK_S = 0.3
_FILE = re.compile(r"(?:included plan|command file|data file|file) (.+)")
"""A fingerprint's name of a file that a run reads, and does not build."""


def watch(run: Callable[[Mapping[str, Any]], RunOutcome], given: Mapping[str, Any]) -> NoReturn:
    """Run, and run again after each change, until Ctrl-C; a wrong plan or plug-in is said and waited for."""
    files: set[str] = set()
    while True:
        started = time.time()
        fork = fork_and_run(lambda: "\0".join(_run_once(run, given)).encode())
        try:
            said = fork.read().decode()
        except KeyboardInterrupt:
            fork.read()  # it tells how far it came
            raise
        finally:
            fork.end()
        plugins = (file_of_module(module) for module in plugin_modules())
        named = (given.get("plan"), config_file().path, *plugins, *said.split("\0"))
        files.update(name for name in named if name)
        print(f"watching {len(files)} files; Ctrl-C ends it", flush=True)  # noqa: T201
        before = _times(files)
        while _times(files) == before and max(before.values(), default=0.0) <= started:
            time.sleep(_LOOK_S)


def _run_once(run: Callable[[Mapping[str, Any]], RunOutcome], given: Mapping[str, Any]) -> Iterable[str]:
    """The files that the run rests on, as far as it came."""
    try:
        outcome = run(given)
    except OptestError as error:
        print(f"optest: {error}", file=sys.stderr)  # noqa: T201
        return own_files()
    for line in closing_lines(given, outcome):
        print(line)  # noqa: T201
    names = map(_FILE.fullmatch, outcome.directory.read_info().fingerprint)
    return [*own_files(), *(name[1] for name in names if name is not None)]


def _times(files: Iterable[str]) -> dict[str, float]:
    return {file: os.stat(file).st_mtime for file in files if os.path.exists(file)}
