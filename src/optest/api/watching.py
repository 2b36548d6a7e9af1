"""``--watch``: repeat a run in a fork of this process whenever a file changes that it depends on."""

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

_POLL_S = 0.3
_MOST_FILES = 1000
# Names in a fingerprint of the files that a run reads, not of those that it builds.
_FILE = re.compile(r"(?:included plan|command file|data file|file) (.+)")


def watch(run: Callable[[Mapping[str, Any]], Report], options: Mapping[str, Any]) -> NoReturn:
    """Run, and run again after each change, until Ctrl-C; report a wrong plan or plug-in and wait for a change."""
    files: set[str] = set()
    contents: dict[str, bytes] = {}
    sys.dont_write_bytecode = True  # else a second edit within one second keeps the bytecode of the first
    while True:
        started = time.time()
        fork = fork_and_run(lambda: "\0".join(_files_of_run(run, options)).encode())
        try:
            of_run = fork.read().decode().split("\0")
        except KeyboardInterrupt:
            fork.read()  # the fork reports its results so far
            raise
        finally:
            fork.end()
        plugins = (file_of_module(module) for module in plugin_modules())
        files.update(name for name in (options.get("plan"), config_file().path, *plugins, *of_run) if name)
        print(f"watching {len(files)} files; Ctrl-C ends it", flush=True)  # noqa: T201
        # A file may have changed during the run: compare with its content before. A new file has none, so it counts as
        # changed unless it is older than the run.
        now = _digests(files)
        before = {file: contents.get(file, now[file] if os.stat(file).st_mtime <= started else b"") for file in now}
        while (contents := _digests(files)) == before:
            time.sleep(_POLL_S)


def _files_of_run(run: Callable[[Mapping[str, Any]], Report], options: Mapping[str, Any]) -> list[str]:
    """Run once, print closing lines or the error, and return the files of user modules and of the fingerprint."""
    names: Iterable[str] = ()
    started = time.time()
    try:
        outcome = run({**options, "accept_config": True})  # the user edits these files while runs go on
        print(*closing_lines(options, outcome), sep="\n", end="", flush=True)  # noqa: T201
        names = outcome.directory.read_info().fingerprint
    except OptestError as error:
        print(f"optest: {error}", file=sys.stderr)  # noqa: T201
    modules = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    of_user = [x for x in modules if not x.startswith(sys.base_prefix) and "site-packages" not in Path(x).parts]
    matches = [match for match in map(_FILE.fullmatch, names) if match is not None]
    folders = {os.path.dirname(match[1]) for match in matches if match[0].startswith("command file ")}
    return [*of_user, *(match[1] for match in matches), *_source_files(folders, started)]


def _source_files(folders: Iterable[str], started: float) -> Iterator[str]:
    """Yield the text files below the folders of programs that are older than the run: likely their sources."""
    for root in folders:
        for folder, inner, names in os.walk(root or "."):
            inner[:] = [name for name in inner if not name.startswith(".")]
            paths = [os.path.join(folder, name) for name in names[:_MOST_FILES]]
            older = (path for path in paths if os.path.isfile(path) and os.stat(path).st_mtime <= started)
            yield from (path for path in older if b"\0" not in Path(path).read_bytes()[:1024])


def _digests(files: Iterable[str]) -> dict[str, bytes]:
    """Return a digest of each existing file."""
    # Not the time stamps: a run may rebuild a program with the same content.
    return {file: _file_digest(file, os.stat(file).st_mtime_ns) for file in files if os.path.isfile(file)}


@lru_cache(maxsize=4096)
def _file_digest(file: str, changed: int) -> bytes:  # noqa: ARG001 - part of the key of the cache
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=8).digest()
