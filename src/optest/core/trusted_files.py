"""The files that configure the next run: what foreign code changes in them is refused until the user accepts it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from optest.errors import UsageError
from optest.registry import files_of_plugin
from optest.settings import OPTIONS, Origin, environment, plugin_modules, resolve
from optest.settings.config_file import searched_files, table_in
from optest.store import write_atomically

_NO_CONFIGURATION = ("Reports", "C library")
"""Groups of options: the run itself writes reports, and a library is the code under test."""


@contextmanager
def configuration_watched() -> Iterator[None]:
    """Record digests of the configuration and the plug-ins while foreign code runs, and print what it changed.

    The record is in ``.optest`` of the working directory. It stays if a file changed, or if this process is killed.
    Only the first of several watches that are nested does anything.
    """
    folder = Path.cwd() / ".optest"
    record = folder / f"configuration-{os.getpid()}.json"
    if record.exists():
        yield
        return
    files = [*searched_files(), *(file for module in plugin_modules() for file in files_of_plugin(module))]
    settings = resolve({})
    for option in OPTIONS:
        stated = settings.origin(option.name)
        if stated.origin is Origin.CONFIG and option.completes == "file" and option.group not in _NO_CONFIGURATION:
            files += map(Path, stated.value if option.repeat else [stated.value])
    before = _digests(os.path.abspath(each) for each in files)
    if os.access(folder, os.W_OK):
        write_atomically(record, json.dumps({"before": before}).encode())
    try:
        yield
    finally:
        after = _digests(before)
        record.unlink(missing_ok=True)
        if after != before:
            folder.mkdir(exist_ok=True)
            write_atomically(record, json.dumps({"before": before, "after": after}).encode())
            message = f"optest: while foreign code ran, {', '.join(_changes(before, after))}"
            print(f"{message}\n  the next run refuses this without --accept-config", file=sys.stderr)  # noqa: T201


def refuse_changed_configuration(*, accept: bool) -> None:
    """Raise UsageError for files that configure this run and that foreign code of an earlier run changed.

    ``accept`` or ``OPTEST_ACCEPT_CONFIG`` accepts them for good.
    """
    accept = accept or environment().get("OPTEST_ACCEPT_CONFIG", "0") not in ("", "0")
    found: list[str] = []
    folders = dict.fromkeys(file.parent / ".optest" for file in searched_files())
    for record in (each for folder in folders for each in folder.glob("configuration-*.json")):
        try:
            kept = json.loads(record.read_bytes())
            now = _digests(kept["before"])
            # A file that differs from the end of that run was edited, or restored, by the user.
            same = {path: each for path, each in kept.get("after", now).items() if now[path] == each}
            changes = _changes(kept["before"], same)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{os.path.relpath(record)} is garbled: {error!r}; delete it") from None
        found += changes
        if accept or not changes:
            record.unlink(missing_ok=True)
    if found and not accept:
        what = f"while foreign code of an earlier run ran, {', '.join(dict.fromkeys(found))}\n  read it, then"
        raise UsageError(f"{what} restore it or accept it once: --accept-config (OPTEST_ACCEPT_CONFIG=1)")


def _digests(paths: Iterable[str]) -> dict[str, str]:
    """Return digests of files by path, of pyproject.toml the table for optest; "" for one without content."""

    def digest(path: Path) -> str:
        if path.name != "pyproject.toml":
            return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else ""
        try:
            return str(table_in(path) or "")
        except UsageError:
            return "unreadable"

    return {path: digest(Path(path)) for path in paths}


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    names = {path: "removed" if not now else "changed" if before[path] else "created" for path, now in after.items()}
    return [f"{os.path.relpath(path)} was {name}" for path, name in names.items() if after[path] != before[path]]
