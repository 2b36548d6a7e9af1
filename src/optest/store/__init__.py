"""What is kept on disk: run directories and journals, one writer each, and how they are read back."""

from optest.store.files import check_writable, write_atomically
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
    "RunDirectory",
    "check_writable",
    "journal_schema",
    "read_journal",
    "write_atomically",
]
