"""Merging of runs: the parts that workers of one pytest session ran become one run."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from optest.spec import RunSummary
from optest.store.journal import Journal, JournalWriter, read_journal
from optest.store.run_directory import RunDirectory


def joined_runs(parts: Iterable[Path]) -> list[Path]:
    """Merge the runs in the directories ``parts`` into one new run per target; return the new directories.

    The parts are not deleted.
    """
    by_target: dict[str, list[Journal]] = {}
    for part in parts:
        journal = read_journal(RunDirectory(part).journal_path)
        if journal.info is not None:
            by_target.setdefault(journal.info.target, []).append(journal)
    return [_join(journals) for journals in by_target.values()]


def _join(journals: Sequence[Journal]) -> Path:
    """Write one run with the results of all journals and return its directory; it starts with the earliest part."""
    infos = sorted((x.info for x in journals if x.info is not None), key=lambda info: info.started_at)
    summaries = [journal.summary for journal in journals if journal.summary is not None]
    root = Path(infos[0].directory).parent.parent
    directory = RunDirectory.create(root, now=datetime.fromisoformat(infos[0].started_at), token=secrets.token_hex(3))
    info = dataclasses.replace(
        infos[0],
        run_id=directory.id,
        directory=str(directory.path),
        jobs=len(infos),
        options={name: value for name, value in infos[0].options.items() if name != "runs_dir"},
        notes=tuple(dict.fromkeys(note for part in infos for note in part.notes)),
    )
    # A case that moved to another worker after a crash may be in two journals.
    results = list({(x.id, x.where, x.round): x for journal in journals for x in journal.results}.values())
    directory.write_info(info)
    with JournalWriter(directory.journal_path) as writer:
        writer.start(info)
        writer.results_at_once(results)
        writer.end(
            RunSummary.of(
                results,
                total=info.total,
                duration_s=max((summary.duration_s for summary in summaries), default=0.0),
                interrupted=any(summary.interrupted for summary in summaries),
            )
        )
    return directory.path
