"""Where a run is kept: ``.optest/runs/<UTC>-<token>/`` with run.json, journal.jsonl and artifacts/."""

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
from optest.store.files import write_atomically
from optest.store.journal import JournalWriter

_LISTED = 10
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """One run on disk; its name is the run's id."""

    path: Path

    @classmethod
    def begin(cls, root: Path) -> RunDirectory:
        """Make the directory of a run that begins now.

        Raises:
            UsageError: if it cannot be made.
        """
        return cls.create(root, now=datetime.now(timezone.utc), token=secrets.token_hex(3))

    @classmethod
    def create(cls, root: Path, *, now: datetime, token: str) -> RunDirectory:
        """Make the directory of a new run under ``root``, and keep git from seeing it.

        Raises:
            UsageError: if it cannot be made, or ``now`` has no time zone.
        """
        if now.tzinfo is None:
            raise UsageError("the start of a run is a time without a zone, but should be in UTC")
        path = root / f"{now.astimezone(timezone.utc):%Y%m%dT%H%M%SZ}-{token}"
        try:
            made_root = not root.exists()
            root.mkdir(parents=True, exist_ok=True)
            _ignore(root, made_root=made_root)
            path.mkdir()
            (path / "artifacts").mkdir()
        except OSError as error:
            raise UsageError(
                f"run directory {path} cannot be made: {error.strerror or error}\n"
                "  choose another with --runs-dir or OPTEST_RUNS_DIR"
            ) from None
        return cls(path)

    @classmethod
    def open(cls, root: Path, run: str | os.PathLike[str]) -> RunDirectory:
        """Find a run by its id, the unique beginning of one, the word ``latest``, or a path to it or its journal.

        Raises:
            UnknownName: if there is no such run.
            UsageError: if a beginning fits several.
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
        fitting = [each for each in ids if text and each.startswith(text)]
        if len(fitting) == 1:
            return cls(root / fitting[0])
        if fitting:
            raise UsageError(
                f"run {text!r} fits {len(fitting)} runs, but should fit one: {', '.join(fitting[-_LISTED:])}"
            )
        raise UnknownName("run", text, ids[-_LISTED:] or ("(none yet)",), where=str(root))

    @classmethod
    def all(cls, root: Path) -> list[RunDirectory]:
        """Every run under ``root``, the oldest first."""
        return [cls(root / each) for each in _ids(root)]

    @property
    def is_named_by_optest(self) -> bool:
        return _looks_made(self.path) and not self.path.is_symlink()

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
        """Delete the run and return True; False if it is being written or cannot be deleted."""
        try:
            with JournalWriter(self.journal_path):  # for its lock
                shutil.rmtree(self.path)
        except (UsageError, OSError):
            return False
        return True

    def nbytes(self) -> int:
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())

    def artifact_dir(self, case_key: str) -> Path:
        """Make and return the folder for files of one case.

        Raises:
            UsageError: if it cannot be made.
        """
        path = self.path / "artifacts" / (_UNSAFE.sub("-", case_key).lstrip(".") or "case")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"artifact directory {path} cannot be made: {error.strerror or error}") from None
        return path

    def tensors_dir(self) -> Path:
        """Make and return the folder for tensors that a replay keeps.

        Raises:
            UsageError: if it cannot be made.
        """
        path = self.path / "tensors"
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise UsageError(f"folder {path} cannot be made: {error.strerror or error}") from None
        return path

    def write_info(self, info: RunInfo) -> None:
        write_atomically(self.info_path, msgspec.json.format(codec.encode(info), indent=2) + b"\n")

    def read_info(self) -> RunInfo:
        """Read run.json.

        Raises:
            UsageError: if it is missing or not what :meth:`write_info` wrote.
        """
        try:
            return codec.decode(self.info_path.read_bytes(), RunInfo)
        except OSError as error:
            raise UsageError(f"{self.info_path} cannot be read: {error.strerror or error}") from None
        except msgspec.DecodeError as error:
            raise UsageError(f"{self.info_path} is garbled: {error}") from None


def _ignore(root: Path, *, made_root: bool) -> None:
    """Put a ``.gitignore`` of ``*`` into ``.optest``, else into a root that is ours alone; never beside user files."""
    if root.resolve().parent.name == ".optest":
        folder = root.parent
    elif made_root:
        folder = root
    else:
        return
    path = folder / ".gitignore"
    if not path.exists():
        path.write_text("*\n")


def _ids(root: Path) -> list[str]:
    """Ids of the runs under ``root``, oldest first: by the second in the name, then by when they were made."""
    if not root.is_dir():
        return []
    runs = [path for path in root.iterdir() if _is_run(path)]
    return [path.name for path in sorted(runs, key=_age)]


def _age(path: Path) -> tuple[str, int, str]:
    written_first = next((each for each in (path / "run.json", path / "artifacts") if each.exists()), path)
    made = written_first.stat().st_mtime_ns
    return (path.name.partition("-")[0], made, path.name)


def _is_run(path: Path) -> bool:
    return path.is_dir() and ((path / "journal.jsonl").is_file() or (path / "run.json").is_file() or _looks_made(path))


def _looks_made(path: Path) -> bool:
    return re.fullmatch(r"\d{8}T\d{6}Z-.+", path.name) is not None and (path / "artifacts").is_dir()
