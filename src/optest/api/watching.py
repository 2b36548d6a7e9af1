"""``--watch``: runs again, each time in a fork of this process, whenever a file that the run rests on changes."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from optest.api.report import Report
from optest.api.running import closing_lines
from optest.errors import OptestError
from optest.process import fork_and_run
from optest.registry import file_of_module
from optest.settings import config_file, plugin_modules

_LOOK_S = 0.3
_MOST_BESIDE = 1000
_FILE = re.compile(r"(?:included plan|command file|data file|file) (.+)")
"""A fingerprint's name of a file that a run reads, and does not build."""


def watch(run: Callable[[Mapping[str, Any]], Report], given: Mapping[str, Any]) -> NoReturn:
    """Run, and run again after each change, until Ctrl-C; a wrong plan or plug-in is said and waited for."""
    files: set[str] = set()
    contents: dict[str, bytes] = {}
    sys.dont_write_bytecode = True  # else a second edit within one second keeps the bytecode of the first
    while True:
        started = time.time()
        fork = fork_and_run(lambda: "\0".join(_files_of_run(run, given)).encode())
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
        # A file may have changed during the run; of one that is new here nobody knows, unless it is older.
        now = _contents(files)
        before = {file: contents.get(file, now[file] if os.stat(file).st_mtime <= started else b"") for file in now}
        while (contents := _contents(files)) == before:
            time.sleep(_LOOK_S)


def _files_of_run(run: Callable[[Mapping[str, Any]], Report], given: Mapping[str, Any]) -> list[str]:
    """Run once; the files of modules that nobody installed, and those that the run says it rests on."""
    names: Iterable[str] = ()
    started = time.time()
    try:
        outcome = run({**given, "accept_config": True})  # the user edits these files while runs go on
        print(*closing_lines(given, outcome), sep="\n", end="", flush=True)  # noqa: T201
        names = outcome.directory.read_info().fingerprint
    except OptestError as error:
        print(f"optest: {error}", file=sys.stderr)  # noqa: T201
    modules = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    own = [each for each in modules if not each.startswith(sys.base_prefix) and "site-packages" not in Path(each).parts]
    named = [found for found in map(_FILE.fullmatch, names) if found is not None]
    folders = {os.path.dirname(found[1]) for found in named if found[0].startswith("command file ")}
    return [*own, *(found[1] for found in named), *_beside(folders, started)]


def _beside(folders: Iterable[str], started: float) -> Iterator[str]:
    """What a program may be built from: the text files of its folder that the run did not write."""
    for folder in folders:
        for place, inner, names in os.walk(folder or "."):
            inner[:] = [each for each in inner if not each.startswith(".")]
            paths = [os.path.join(place, name) for name in names[:_MOST_BESIDE]]
            older = (path for path in paths if os.path.isfile(path) and os.stat(path).st_mtime <= started)
            yield from (path for path in older if b"\0" not in Path(path).read_bytes()[:1024])


def _contents(files: Iterable[str]) -> dict[str, bytes]:
    """A digest of each file that is there: a program that the run builds anew from the same source is the same."""
    return {file: _digest(file, os.stat(file).st_mtime_ns) for file in files if os.path.isfile(file)}


@lru_cache(maxsize=4096)
def _digest(file: str, changed: int) -> bytes:  # noqa: ARG001 - when it has to be read anew
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=8).digest()
