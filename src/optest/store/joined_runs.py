"""Runs of several processes made into one: a session that workers of pytest ran in parts has one journal."""

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
    """One run of the parts that several processes ran, for each target. What these kept stays where it is."""
    by_target: dict[str, list[Journal]] = {}
    for part in parts:
        journal = read_journal(RunDirectory(part).journal_path)
        if journal.info is not None:
            by_target.setdefault(journal.info.target, []).append(journal)
    return [_joined(journals) for journals in by_target.values()]


def _joined(journals: Sequence[Journal]) -> Path:
    infos = sorted((each.info for each in journals if each.info is not None), key=lambda info: info.started_at)
    summaries = [each.summary for each in journals if each.summary is not None]
    root = Path(infos[0].directory).parent.parent
    directory = RunDirectory.create(root, now=datetime.fromisoformat(infos[0].started_at), token=secrets.token_hex(3))
    info = dataclasses.replace(
        infos[0],
        run_id=directory.id,
        directory=str(directory.path),
        jobs=len(infos),
        options={name: value for name, value in infos[0].options.items() if name != "runs_dir"},
        notes=tuple(dict.fromkeys(note for each in infos for note in each.notes)),
    )
    results = list(
        {(each.id, each.where, each.round): each for journal in journals for each in journal.results}.values()
    )
    directory.write_info(info)
    with JournalWriter(directory.journal_path) as writer:
        writer.start(info)
        writer.results_at_once(results)
        writer.end(
            RunSummary.of(
                results,
                total=info.total,
                duration_s=max((each.duration_s for each in summaries), default=0.0),
                interrupted=any(each.interrupted for each in summaries),
            )
        )
    return directory.path
