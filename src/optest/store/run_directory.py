"""Directory of a run: ``.optest/runs/<UTC>-<token>/`` with run.json, journal.jsonl and artifacts/."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from optest.errors import UnknownName, UsageError
from optest.spec import RunInfo
from optest.store import codec
from optest.store.files import create_folder, write_atomically
from optest.store.journal import JournalWriter

_LISTED = 10
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """One run on disk; its name is the run's id."""

    path: Path

    @classmethod
    def begin(cls, root: Path) -> RunDirectory:
        """Create the directory of a run that starts now.

        Raises:
            UsageError: if it cannot be created.
        """
        return cls.create(root, now=datetime.now(timezone.utc), token=secrets.token_hex(3))

    @classmethod
    def create(cls, root: Path, *, now: datetime, token: str) -> RunDirectory:
        """Create the directory of a new run under ``root``, with a ``.gitignore`` if optest owns the root.

        Raises:
            UsageError: if it cannot be created, or ``now`` has no time zone.
        """
        if now.tzinfo is None:
            raise UsageError("the start of a run has no time zone, expected UTC")
        path = root / f"{now.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}-{token}"
        try:
            is_new_root = not root.exists()
            root.mkdir(parents=True, exist_ok=True)
            _add_gitignore(root, is_new_root=is_new_root)
            path.mkdir()
            (path / "artifacts").mkdir()
        except OSError as error:
            raise UsageError(
                f"run directory {path} cannot be created: {error.strerror or error}\n"
                "  choose another with --runs-dir or OPTEST_RUNS_DIR"
            ) from None
        return cls(path)

    @classmethod
    def open(cls, root: Path, run: str | os.PathLike[str]) -> RunDirectory:
        """Return a run by its id, a unique prefix of it, the word ``latest``, or a path to the run or its journal.

        Raises:
            UnknownName: if there is no such run.
            UsageError: if a prefix matches several.
        """
        text = os.fspath(run)
        ids = _ids(root)
        if text == "latest" and ids:
            return cls(root / ids[-1])
        if text in ids:
            return cls(root / text)
        path = Path(text)
        if path.is_file() and _is_run(path.parent):
            return cls(path.parent)
        if _is_run(path):
            return cls(path)
        matches = [run_id for run_id in ids if text and run_id.startswith(text)]
        if len(matches) == 1:
            return cls(root / matches[0])
        if matches:
            raise UsageError(f"run {text!r} matches {len(matches)} runs, expected one: {', '.join(matches[-_LISTED:])}")
        raise UnknownName("run", text, ids[-_LISTED:] or ("(none yet)",), where=str(root))

    @classmethod
    def all(cls, root: Path) -> list[RunDirectory]:
        """Return all runs under ``root``, the oldest first."""
        return [cls(root / run_id) for run_id in _ids(root)]

    @property
    def is_named_by_optest(self) -> bool:
        """True for a real directory with the name and artifacts folder of a run; only such ones may be deleted."""
        return _has_run_name(self.path) and not self.path.is_symlink()

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def journal_path(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def info_path(self) -> Path:
        return self.path / "run.json"

    def delete(self) -> bool:
        """Delete the run and return True; return False if it is being written or cannot be deleted."""
        try:
            # The writer's lock fails if the run is still going on.
            with JournalWriter(self.journal_path):
                shutil.rmtree(self.path)
        except (UsageError, OSError):
            return False
        return True

    def nbytes(self) -> int:
        """Return the total size of all files of the run."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def artifact_dir(self, case_key: str) -> Path:
        """Create and return the folder for files of one case.

        Raises:
            UsageError: if it cannot be created.
        """
        return create_folder(self.path / "artifacts" / (_UNSAFE.sub("-", case_key).lstrip(".") or "case"))

    def tensors_dir(self) -> Path:
        """Create and return the folder for tensors that a replay saves.

        Raises:
            UsageError: if it cannot be created.
        """
        return create_folder(self.path / "tensors")

    def write_info(self, info: RunInfo) -> None:
        write_atomically(self.info_path, msgspec.json.format(codec.encode(info), indent=2) + b"\n")

    def read_info(self) -> RunInfo:
        """Read run.json.

        Raises:
            UsageError: if it cannot be read, or has another content than :meth:`write_info` writes.
        """
        try:
            return codec.decode(self.info_path.read_bytes(), RunInfo)
        except OSError as error:
            raise UsageError(f"{self.info_path} cannot be read: {error.strerror or error}") from None
        except msgspec.DecodeError as error:
            raise UsageError(f"{self.info_path} is garbled: {error}") from None


def _add_gitignore(root: Path, *, is_new_root: bool) -> None:
    """Write a ``.gitignore`` with ``*`` into ``.optest`` or a newly created root; do nothing in other folders."""
    # Other folders may contain the user's files.
    if root.resolve().parent.name == ".optest":
        folder = root.parent
    elif is_new_root:
        folder = root
    else:
        return
    path = folder / ".gitignore"
    if not path.exists():
        path.write_text("*\n")


def _ids(root: Path) -> list[str]:
    """Return the ids of the runs under ``root``, oldest first."""
    if not root.is_dir():
        return []
    runs = [path for path in root.iterdir() if _is_run(path)]
    return [path.name for path in sorted(runs, key=_age)]


def _age(path: Path) -> tuple[str, int, str]:
    """Return a sort key: the second in the name, then the time of the first file, then the name."""
    first_file = next((file for file in (path / "run.json", path / "artifacts") if file.exists()), path)
    return (path.name.partition("-")[0], first_file.stat().st_mtime_ns, path.name)


def _is_run(path: Path) -> bool:
    """Return whether ``path`` is a folder with a journal, a run.json, or the name of a run."""
    files = (path / "journal.jsonl", path / "run.json")
    return path.is_dir() and (any(file.is_file() for file in files) or _has_run_name(path))


def _has_run_name(path: Path) -> bool:
    """Return whether the folder has the name of a run and a folder for artifacts."""
    return re.fullmatch(r"\d{8}T\d{6}Z-.+", path.name) is not None and (path / "artifacts").is_dir()
