"""Watch over the files that configure the next run: a change by foreign code is refused until the user accepts it."""

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

# Groups of options whose files are not watched: the run itself writes reports, and a library is the code under test.
_NO_CONFIGURATION = ("Reports", "C library")


@contextmanager
def configuration_watched() -> Iterator[None]:
    """Record digests of configuration files and plug-ins before the block; print the files that changed after it.

    The record is a file in ``.optest`` of the working directory, written if that folder is writable. It stays if a
    file changed, or if this process is killed. A nested watch does nothing.
    """
    folder = Path.cwd() / ".optest"
    record = folder / f"configuration-{os.getpid()}.json"
    if record.exists():
        yield
        return
    files = [*searched_files(), *(file for module in plugin_modules() for file in files_of_plugin(module))]
    settings = resolve({})
    for option in OPTIONS:
        setting = settings.origin(option.name)
        if setting.origin is Origin.CONFIG and option.completes == "file" and option.group not in _NO_CONFIGURATION:
            files += map(Path, setting.value if option.repeat else [setting.value])
    before = _digests(os.path.abspath(file) for file in files)
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
    """Refuse to run if foreign code of an earlier run changed files that configure this one.

    With ``accept`` or ``OPTEST_ACCEPT_CONFIG`` delete the records of the changes, which accepts them for good.

    Raises:
        UsageError: if files changed and are not accepted, or if a record cannot be read.
    """
    accept = accept or environment().get("OPTEST_ACCEPT_CONFIG", "0") not in ("", "0")
    all_changes: list[str] = []
    folders = dict.fromkeys(file.parent / ".optest" for file in searched_files())
    for record in (file for folder in folders for file in folder.glob("configuration-*.json")):
        try:
            kept = json.loads(record.read_bytes())
            now = _digests(kept["before"])
            # A file that differs from the end of that run was edited, or restored, by the user.
            same = {path: digest for path, digest in kept.get("after", now).items() if now[path] == digest}
            changes = _changes(kept["before"], same)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{os.path.relpath(record)} cannot be read: {error!r}; delete it") from None
        all_changes += changes
        if accept or not changes:
            record.unlink(missing_ok=True)
    if all_changes and not accept:
        raise UsageError(
            f"while foreign code of an earlier run ran, {', '.join(dict.fromkeys(all_changes))}\n"
            "  read the change, then restore the file or accept it once: --accept-config (OPTEST_ACCEPT_CONFIG=1)"
        )


def _digests(paths: Iterable[str]) -> dict[str, str]:
    """Return a digest of each file by path: of pyproject.toml its table for optest, "" for a file that is missing."""

    def digest(path: Path) -> str:
        if path.name != "pyproject.toml":
            return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else ""
        try:
            return str(table_in(path) or "")
        except UsageError:
            return "unreadable"

    return {path: digest(Path(path)) for path in paths}


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return "PATH was removed", "… changed" or "… created" for each path of ``after`` with another digest."""
    names = {path: "removed" if not now else "changed" if before[path] else "created" for path, now in after.items()}
    return [f"{os.path.relpath(path)} was {name}" for path, name in names.items() if after[path] != before[path]]
