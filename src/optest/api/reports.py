"""Where the reports of a run are written, ``optest report`` with ``--trend``, ``optest history`` and ``schema``."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from optest.api.earlier_runs import latest_run
from optest.api.listing import unknown_among
from optest.errors import OptestError, UnknownName, UsageError
from optest.plan.select import matching_ids
from optest.reporting import require_report
from optest.reporting.file_report import FILE_FORMATS, format_of_suffix
from optest.reporting.from_journal import exit_status_of, report_from_journal
from optest.reporting.history import history_data, history_lines, history_of, journals_of, kept_run
from optest.reporting.page import wants_color
from optest.reporting.side_by_side import rows_as_csv, side_by_side, text_of
from optest.reporting.trend import trend_data, trend_lines, trend_of
from optest.settings import OPTIONS, Settings, environment, resolve
from optest.store import (
    Journal,
    RunDirectory,
    check_writable,
    kept_runs,
    read_journal,
    write_atomically,
)

_MOST_IN_A_TREND, _MOST_IN_A_HISTORY = 20, 100
_WHAT_IS_ASKED = ("command", *(option.name for option in OPTIONS if option.in_trends))


def report_files(requested: Iterable[str], path: Path | None) -> dict[str, Path | None]:
    """Where each report beside the terminal's is written; None is its own default. Paths are tried now.

    A ``path`` that is a folder, or may become one of several, holds every report under its own name, but for one that
    is printed: that needs a file of its own. A path alone asks for the report of its ending, JSON if for none.

    Raises:
        UnknownName: if there is no such report.
        Unavailable: if a report needs a package that is not installed.
        UsageError: if a path cannot be written, or one file is given for several reports.
    """
    formats = sorted(set(requested) - {"terminal"})
    for form in formats:
        require_report(form)
    if path is not None:
        formats = formats or [format_of_suffix(path) or "json"]
    for form in FILE_FORMATS.keys() & {*formats}:
        FILE_FORMATS[form].text_of()  # a package that it lacks is told before a run is begun
    if path is None:
        return dict.fromkeys(formats)
    files = [form for form in formats if not _is_printed(form)]
    if path.is_dir() or (len(files) > 1 and not path.exists() and not path.suffix):
        placed = {form: path / _file_name(form) for form in files}
    elif len(files or formats) == 1:
        placed = dict.fromkeys(files or formats, path)
    else:
        raise UsageError(
            f"--report-path is the file {path}, but should be a folder for {len(files)} reports "
            f"({', '.join(files)}); each gets its own name there"
        )
    for each in placed.values():
        check_writable(each)
    return {form: placed.get(form) for form in formats}


def default_report_path(form: str, folder: Path) -> Path | None:
    """The report's place in the run's folder, None for a report that is printed."""
    return None if _is_printed(form) else folder / _file_name(form)


def _is_printed(form: str) -> bool:
    return form in FILE_FORMATS and FILE_FORMATS[form].printed


def _file_name(form: str) -> str:
    """Formats of installed packages have names alone."""
    return FILE_FORMATS[form].file_name if form in FILE_FORMATS else f"report.{form}"


def report(runs: Sequence[str], form: str, output: str | None, given: Mapping[str, Any]) -> tuple[str, int]:
    """Return the report of a run, the latest if none is named, as text, written to ``output`` if that is given, and the
    run's exit status.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if ``output`` cannot be written, or several runs are named.
    """
    if len(runs) > 1:
        named = f"a report is of one run, but {len(runs)} are named"
        raise UsageError(f"{named}; --trend compares them, --compare their calls")
    require_report(form)
    settings = _settings_for("report", form, output, given)
    (journal,) = _journals_named(Path(settings["runs_dir"]), runs or ["latest"])
    color = wants_color(sys.stdout, no_color=settings["no_color"] or output is not None, variables=environment())
    try:
        text = report_from_journal(journal, form, verbosity=settings["verbose"] - settings["quiet"], color=color)
    except OptestError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"no {form} report can be made of {(runs or ['latest'])[0]}: {type(error).__name__}: {error}\n"
            f"  its content was edited, or optest is at fault in {Path(frame.filename).name}:{frame.lineno}"
        ) from error
    return _written(text, output), exit_status_of(journal)


def schema(what: str) -> str:
    """The JSON Schema of ``plan``, ``model-cases``, ``report`` or ``journal`` as text."""
    return json.dumps(_schema(what), indent=2)


def _schema(what: str) -> Mapping[str, Any]:
    if what == "plan":
        from optest.plan import plan_schema

        return plan_schema()
    from optest.plan.dialects import DIALECTS

    if what in DIALECTS:
        return DIALECTS.get(what).schema()
    if what == "report":
        from optest.reporting.schema import REPORT_SCHEMA

        return REPORT_SCHEMA
    from optest.store import journal_schema

    return journal_schema()


def diff(runs: Sequence[str], form: str, output: str | None, given: Mapping[str, Any]) -> tuple[str, int]:
    """:func:`trend` of two runs: the latest one in place of the second, and of the first that of the same plan and
    target before it."""
    return trend([*runs, "latest"] if len(runs) == 1 else runs, form, output, given, most=2)


def history(
    globs: Sequence[str], keep: str | None, form: str, output: str | None, given: Mapping[str, Any]
) -> tuple[str, int]:
    """What became of each case over the runs here, or over those of the file ``keep``, to which these are added.

    The number is 0.

    Raises:
        UnknownName: if there is no such form.
        UsageError: if a file cannot be written, ``keep`` is none, or there are no runs.
    """
    settings = _settings_for("history", form, output, given)
    root = Path(settings["runs_dir"])
    runs = [kept_run(each) for each in islice(journals_of(root), _MOST_IN_A_HISTORY)][::-1]
    runs = runs if keep is None else kept_runs(Path(keep), runs)
    if not runs:
        raise UsageError(f"there are no runs under {root} of which there could be a history")
    ids = dict.fromkeys(name for run in runs for name in run.results)
    selected = {glob: matching_ids(glob, ids) for glob in globs}
    for glob in (glob for glob in globs if not selected[glob]):
        raise unknown_among("case", glob, list(ids), "`optest history -v`")
    made = history_of(runs, set().union(*selected.values()))
    lines = history_lines(made, verbose=settings["verbose"] > 0)
    return _written(_as_json(history_data(made)) if form == "json" else "\n".join([*lines, ""]), output), 0


def trend(
    runs: Sequence[str], form: str, output: str | None, given: Mapping[str, Any], *, most: int = _MOST_IN_A_TREND
) -> tuple[str, int]:
    """What changed between these runs; without any, between the latest ``most`` of the same plan and target.

    The number is 1 if something got worse, else 0.

    Raises:
        UnknownName: if there is no such run, or no such form of a trend.
        UsageError: for fewer than two runs, or if ``output`` cannot be written.
    """
    root = Path(_settings_for("trend", form, output, given)["runs_dir"])
    journals = _journals_named(root, runs) if runs else _like_latest(root, most)
    for run, journal in zip(runs, journals, strict=False):
        if journal.info is None:
            raise UsageError(f"run {run} does not say with which options it ran, so it cannot be compared")
    different = {journal.info.run_id for journal in journals if journal.info is not None}
    if len(different) < 2:
        other = "there is one" if different else "there is none"
        raise UsageError(
            f"a trend needs two runs at least, but {other}\n"
            "  name them: optest report --trend RUN RUN (ids, their beginnings, folders or journals)"
        )
    made = trend_of(journals)
    text = _as_json(trend_data(made)) if form == "json" else "\n".join([*trend_lines(made), ""])
    return _written(text, output), int(made.got_worse)


def compare(runs: Sequence[str], form: str, output: str | None, given: Mapping[str, Any]) -> tuple[str, int]:
    """The calls of these runs beside each other, and 1 if one was not answered alike, else 0.

    Raises:
        UnknownName: if there is no such run, or no such form of a comparison.
        UsageError: for fewer than two runs, or if ``output`` cannot be written.
    """
    settings = _settings_for("comparison", form, output, given)
    if len(runs) < 2:
        raise UsageError("a comparison needs two runs at least\n  name them: optest report --compare RUN RUN")
    table = side_by_side(_journals_named(Path(settings["runs_dir"]), runs))
    if form == "csv":
        text = rows_as_csv(table)
    elif form == "json":
        head = ("call", *table.targets, "consistent")
        text = _as_json([dict(zip(head, row, strict=True)) for row in table.rows])
    else:
        text = text_of(table, verbose=settings["verbose"] > 0)
    return _written(text, output), int(table.differs)


def _settings_for(what: str, form: str, output: str | None, given: Mapping[str, Any]) -> Settings:
    forms = ("terminal", "json", "csv") if what == "comparison" else ("terminal", "json")
    if what != "report" and form not in forms:
        raise UnknownName(f"format of a {what}", form, forms)
    if output is not None:
        check_writable(Path(output))
    return resolve(given)


def _journals_named(root: Path, runs: Sequence[str]) -> list[Journal]:
    latest = latest_run(root, lambda _: True) if "latest" in runs else None
    directories = [latest if latest and run == "latest" else RunDirectory.open(root, run) for run in runs]
    return [read_journal(directory.journal_path) for directory in directories]


def _as_json(data: Any) -> str:
    return json.dumps(data, indent=1) + "\n"


def _written(text: str, output: str | None) -> str:
    if output is not None:
        write_atomically(Path(output), text.encode())
    return text


def _like_latest(root: Path, most: int) -> list[Journal]:
    """The latest run and those before it that asked the same of the same target."""
    journals = journals_of(root)
    if (latest := next(journals, None)) is None:
        return []
    alike = (each for each in journals if _request_of(each) == _request_of(latest))
    return [latest, *islice(alike, most - 1)]


def _request_of(journal: Journal) -> tuple[object, ...]:
    """What was not stated is what is stated to be off."""
    assert journal.info is not None
    stated = (journal.info.options.get(name) for name in _WHAT_IS_ASKED)
    return (
        journal.info.plan,
        journal.info.target,
        *(None if each in ("", "eager", False) else each for each in stated),
    )
