"""Storage of runs: run directories, journals with one writer each, history files, and paths of plans."""

from optest.store.files import (
    PathError,
    check_writable,
    create_folder,
    path_of,
    read_regular,
    require_regular,
    resolve_path,
    write_atomically,
)
from optest.store.history_file import KeptResult, KeptRun, kept_runs
from optest.store.journal import (
    SCHEMA_VERSION,
    Journal,
    JournalError,
    JournalWriter,
    journal_schema,
    read_journal,
)
from optest.store.run_directory import RunDirectory

__all__ = [
    "SCHEMA_VERSION",
    "Journal",
    "JournalError",
    "JournalWriter",
    "KeptResult",
    "KeptRun",
    "PathError",
    "RunDirectory",
    "check_writable",
    "create_folder",
    "journal_schema",
    "kept_runs",
    "path_of",
    "read_journal",
    "read_regular",
    "require_regular",
    "resolve_path",
    "write_atomically",
]
