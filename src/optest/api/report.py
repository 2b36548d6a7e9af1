"""The report of a run, its files, and ``optest report``, ``diff``, ``history`` and ``schema``."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from optest.api.earlier_runs import EarlierRun
from optest.errors import NothingSelected, OptestError, Unavailable, UnknownName, UsageError, unknown_among
from optest.plan.select import matching_ids
from optest.registry import load_object
from optest.reporting import require_report
from optest.reporting.file_report import FILE_FORMATS, format_of_suffix
from optest.reporting.from_journal import exit_status_of, report_from_journal
from optest.reporting.history import history_data, history_lines, history_of, journals_of, kept_run
from optest.reporting.json_report import build_report
from optest.reporting.page import wants_color
from optest.reporting.side_by_side import comparison_text, rows_as_csv, side_by_side
from optest.reporting.trend import trend_data, trend_lines, trend_of
from optest.settings import OPTIONS, Settings, environment, resolve
from optest.spec import BAD_STATUSES, CaseResult, RunSummary, Status
from optest.store import Journal, RunDirectory, check_writable, kept_runs, read_journal, write_atomically

_MOST_IN_A_TREND, _MOST_IN_A_HISTORY = 20, 100
_COMPARED_OPTIONS = ("command", *(option.name for option in OPTIONS if option.in_trends))
_STATUS_OF = {0: "passed", 1: "failed", NothingSelected.exit_status: "nothing ran", 130: "interrupted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a run: iterable, true if nothing is wrong, and ``str`` gives the text of the terminal.

    A result (``CaseResult``) has ``id``, ``operator``, ``dtypes``, ``shapes``, ``attributes``, ``status``, ``reason``
    and the ``verdict`` with its measures. ``summary`` has the counts; ``directory`` is the folder that ``optest
    report`` and ``optest replay`` read. ``exit_status`` is that of the command line; it also reports faults outside the
    cases. ``unused_expectations`` are expected failures that did not occur, each with a remedy.
    """

    summary: RunSummary
    results: Sequence[CaseResult]
    directory: RunDirectory
    exit_status: int
    unused_expectations: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[CaseResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __bool__(self) -> bool:
        return self.exit_status == 0

    def __str__(self) -> str:
        return report_from_journal(read_journal(self.directory.journal_path), color=False)

    @property
    def status(self) -> str:
        """``passed``, ``failed``, ``nothing ran``, ``interrupted`` or ``error``: the exit status as a word."""
        return _STATUS_OF.get(self.exit_status, "error")

    @property
    def passed(self) -> list[CaseResult]:
        """Results with the status ``passed``."""
        return [result for result in self.results if result.status is Status.PASSED]

    @property
    def failed(self) -> list[CaseResult]:
        """Results that are failed, error, crashed, timeout, suspect, or unexpected passes."""
        return [result for result in self.results if result.status in BAD_STATUSES]

    def raise_for_failures(self) -> None:
        """Raise ``AssertionError`` with the report as text if anything is wrong or nothing ran."""
        __tracebackhide__ = True
        if not self:
            raise AssertionError("\n".join([str(self), *self.unused_expectations]))

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with a row for each case; the columns are the keys of ``cases`` in the JSON report.

        Raises:
            Unavailable: if pandas is not installed.
        """
        try:
            frame = load_object("pandas:DataFrame")
        except UsageError:
            raise Unavailable("to_pandas", "pip install pandas") from None
        info = read_journal(self.directory.journal_path).info
        assert info is not None
        return frame(build_report(info, self.results, self.summary)["cases"])


def report_files(requested: Iterable[str], path: Path | None) -> dict[str, Path | None]:
    """Return the path of each requested report except the terminal's, None for its default, after a test of the paths.

    A ``path`` that is a folder (or a new path without suffix, for several reports) holds every report under its own
    name, except one that is printed. A path without a report requests the report of its suffix, else JSON.

    Raises:
        UnknownName: if there is no such report.
        Unavailable: if a report needs a package that is not installed.
        UsageError: if a path cannot be written, or one file is named for several reports.
    """
    formats = sorted(set(requested) - {"terminal"})
    for form in formats:
        require_report(form)
    if path is not None:
        formats = formats or [format_of_suffix(path) or "json"]
    for form in FILE_FORMATS.keys() & {*formats}:
        FILE_FORMATS[form].text_of()  # reports a missing package before the run starts
    if path is None:
        return dict.fromkeys(formats)
    files = [form for form in formats if not _is_printed(form)]
    if path.is_dir() or (len(files) > 1 and not path.exists() and not path.suffix):
        paths = {form: path / _report_name(form) for form in files}
    elif len(files or formats) == 1:
        paths = dict.fromkeys(files or formats, path)
    else:
        raise UsageError(
            f"--report-path is the file {path}, expected a folder for {len(files)} reports ({', '.join(files)})"
        )
    for file in paths.values():
        check_writable(file)
    return {form: paths.get(form) for form in formats}


def default_report_path(form: str, folder: Path) -> Path | None:
    """Return the report's path in the run's folder, None for a report that is printed."""
    return None if _is_printed(form) else folder / _report_name(form)


def _is_printed(form: str) -> bool:
    return form in FILE_FORMATS and FILE_FORMATS[form].printed


def _report_name(form: str) -> str:
    # A format of an installed package only has a name.
    return FILE_FORMATS[form].file_name if form in FILE_FORMATS else f"report.{form}"


def report(runs: Sequence[str], form: str, output: str | None, options: Mapping[str, Any]) -> tuple[str, int]:
    """Return the report of one run (the latest by default) as text, and its exit status; write it to ``output``.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if ``output`` cannot be written, or several runs are named.
    """
    if len(runs) > 1:
        raise UsageError(f"{len(runs)} runs are named, expected one; to compare runs: --trend, or --compare for calls")
    require_report(form)
    settings = _settings_for("report", form, output, options)
    (journal,) = _journals_named(Path(settings["runs_dir"]), runs or ["latest"])
    color = wants_color(sys.stdout, no_color=settings["no_color"] or output is not None, variables=environment())
    try:
        text = report_from_journal(journal, form, verbosity=settings["verbose"] - settings["quiet"], color=color)
    except OptestError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UsageError(
            f"the {form} report of {(runs or ['latest'])[0]} failed: {type(error).__name__}: {error}\n"
            f"  the journal was edited, or this is a fault of optest in {Path(frame.filename).name}:{frame.lineno}"
        ) from error
    return _write_output(text, output), exit_status_of(journal)


def schema(kind: str) -> str:
    """Return the JSON Schema of ``plan``, ``model-cases``, ``report`` or ``journal`` as text."""
    from optest.plan.dialects import DIALECTS

    document: Mapping[str, Any]
    if kind in DIALECTS:
        document = DIALECTS.get(kind).schema()
    elif kind == "report":
        document = load_object("optest.reporting.schema:REPORT_SCHEMA")
    else:
        document = load_object("optest.plan:plan_schema" if kind == "plan" else "optest.store:journal_schema")()
    return json.dumps(document, indent=2)


def diff(runs: Sequence[str], form: str, output: str | None, options: Mapping[str, Any]) -> tuple[str, int]:
    """Return :func:`trend` of two runs: by default the latest one and the one before it of the same plan and target."""
    return trend([*runs, "latest"] if len(runs) == 1 else runs, form, output, options, most=2)


def history(
    globs: Sequence[str], keep: str | None, form: str, output: str | None, options: Mapping[str, Any]
) -> tuple[str, int]:
    """Return the history of cases over the runs here as text, and 0; with ``keep``, add them to that file and use it.

    Raises:
        UnknownName: if there is no such form.
        UsageError: if a file cannot be written, ``keep`` is no history, or there are no runs.
    """
    settings = _settings_for("history", form, output, options)
    root = Path(settings["runs_dir"])
    runs = [kept_run(x) for x in islice(journals_of(root), _MOST_IN_A_HISTORY)][::-1]
    runs = runs if keep is None else kept_runs(Path(keep), runs)
    if not runs:
        raise UsageError(f"no runs under {root}; a history needs some")
    ids = dict.fromkeys(name for run in runs for name in run.results)
    selected = {glob: matching_ids(glob, ids) for glob in globs}
    for glob in (glob for glob in globs if not selected[glob]):
        raise unknown_among("case", glob, list(ids), "`optest history -v`")
    cases = history_of(runs, set().union(*selected.values()))
    lines = history_lines(cases, verbose=settings["verbose"] > 0)
    return _write_output(_as_json(history_data(cases)) if form == "json" else "\n".join([*lines, ""]), output), 0


def trend(
    runs: Sequence[str], form: str, output: str | None, options: Mapping[str, Any], *, most: int = _MOST_IN_A_TREND
) -> tuple[str, int]:
    """Return the changes between these runs as text, and 1 if a case got worse, else 0.

    Without ``runs``, compare the latest ``most`` runs of the same plan and target.

    Raises:
        UnknownName: if there is no such run, or no such form of a trend.
        UsageError: for fewer than two runs, or if ``output`` cannot be written.
    """
    root = Path(_settings_for("trend", form, output, options)["runs_dir"])
    journals = _journals_named(root, runs) if runs else _like_latest(root, most)
    for run, journal in zip(runs, journals, strict=False):
        if journal.info is None:
            raise UsageError(f"the journal of run {run} has no options, so it cannot be compared; name another run")
    different = {journal.info.run_id for journal in journals if journal.info is not None}
    if len(different) < 2:
        raise UsageError(
            f"a trend needs at least two runs, but there {'is one' if different else 'are none'}\n"
            "  name them: optest report --trend RUN RUN (ids, their beginnings, folders or journals)"
        )
    changes = trend_of(journals)
    text = _as_json(trend_data(changes)) if form == "json" else "\n".join([*trend_lines(changes), ""])
    return _write_output(text, output), int(changes.got_worse)


def compare(runs: Sequence[str], form: str, output: str | None, options: Mapping[str, Any]) -> tuple[str, int]:
    """Return the calls of these runs side by side as text, and 1 if the results of a call differ, else 0.

    Raises:
        UnknownName: if there is no such run, or no such form of a comparison.
        UsageError: for fewer than two runs, or if ``output`` cannot be written.
    """
    settings = _settings_for("comparison", form, output, options)
    if len(runs) < 2:
        raise UsageError("a comparison needs at least two runs\n  name them: optest report --compare RUN RUN")
    table = side_by_side(_journals_named(Path(settings["runs_dir"]), runs))
    if form == "csv":
        text = rows_as_csv(table)
    elif form == "json":
        head = ("call", *table.targets, "consistent")
        text = _as_json([dict(zip(head, row, strict=True)) for row in table.rows])
    else:
        text = comparison_text(table, verbose=settings["verbose"] > 0)
    return _write_output(text, output), int(table.differs)


def _settings_for(kind: str, form: str, output: str | None, options: Mapping[str, Any]) -> Settings:
    """Return the settings after a test of the format and of the output path."""
    forms = ("terminal", "json", "csv") if kind == "comparison" else ("terminal", "json")
    if kind != "report" and form not in forms:
        raise UnknownName(f"format of a {kind}", form, forms)
    if output is not None:
        check_writable(Path(output))
    return resolve(options)


def _journals_named(root: Path, runs: Sequence[str]) -> list[Journal]:
    latest = EarlierRun.latest(root, lambda _: True) if "latest" in runs else None
    return [(latest if latest and run == "latest" else EarlierRun.open(root, run)).journal for run in runs]


def _as_json(data: Any) -> str:
    return json.dumps(data, indent=1) + "\n"


def _write_output(text: str, output: str | None) -> str:
    """Write the text to ``output``, if there is one, and return it."""
    if output is not None:
        write_atomically(Path(output), text.encode())
    return text


def _like_latest(root: Path, most: int) -> list[Journal]:
    """Return the latest run and up to ``most - 1`` earlier runs of the same plan, target and options."""
    journals = journals_of(root)
    if (latest := next(journals, None)) is None:
        return []
    alike = (journal for journal in journals if _request_of(journal) == _request_of(latest))
    return [latest, *islice(alike, most - 1)]


def _request_of(journal: Journal) -> tuple[object, ...]:
    """Return plan, target and the options that decide which results are comparable."""
    assert journal.info is not None
    values = (journal.info.options.get(name) for name in _COMPARED_OPTIONS)
    # An option that is explicitly off is equal to an absent one.
    return (journal.info.plan, journal.info.target, *(None if x in ("", "eager", False) else x for x in values))
