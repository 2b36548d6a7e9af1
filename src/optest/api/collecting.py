"""Services for front ends that loop over cases themselves, as pytest: detect case files, run cases, and sum up runs."""

from __future__ import annotations

import dataclasses
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

from optest.api.checking import check_request
from optest.api.run_request import RunRequest
from optest.api.running import Steering, run_cases
from optest.api.worker_slots import devices_of, is_scheduled
from optest.core.results import Execution, executions
from optest.core.session import Step
from optest.errors import InternalError, OptestError, UsageError
from optest.plan import read_plan
from optest.plan.dialects import model_of as model_of
from optest.plan.dialects import slug as slug
from optest.plan.expectations import labels_used
from optest.plan.select import select
from optest.reporting import Reporter
from optest.reporting.bench_table import variant_text
from optest.reporting.explain import explain, gist
from optest.reporting.tally import Tally
from optest.reporting.terminal import model_lines
from optest.scenes.cases import case_of, scene_of, selected_by_options
from optest.scenes.cases import is_scene as is_scene
from optest.scenes.declaration import GUARD as GUARD
from optest.scenes.workers import SceneWorkers as SceneWorkers
from optest.settings import resolve
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary, TestCase
from optest.store import Journal, JournalWriter, RunDirectory, read_journal
from optest.suites import TIER_NAMES, BackendTests

# Larger files are data, and reading them would delay every collection.
_MOST_BYTES = 16 * 2**20
_TOP_KEY = re.compile(rb"^(?:\{[ \t]*)?[\"']?(model|cases|include|test_suite_config)[\"']?[ \t]*:", re.MULTILINE)
_MOST_TOGETHER = 16
_TOGETHER_S = 0.02
"""Maximum delay before a result is reported, in seconds."""
PLAN_NAMES = tuple(name + suffix for name in ("plan", "plan_*", "*_plan") for suffix in (".yaml", ".yml"))
"""Globs of file names that pytest collects as plans, unless ``optest_plans`` in the ini replaces them."""


class Listed(NamedTuple):
    """A case as written in its file; ``model`` is "" in a plan."""

    model: str
    name: str
    operator: str
    path: str
    tags: tuple[str, ...]


def top_keys(path: Path) -> frozenset[str]:
    """Return which of ``model``, ``cases`` and ``include`` are top-level keys of a YAML file, without parsing it.

    A ``test_suite_config`` counts as ``model`` and ``cases``; a file that cannot be read or is above 16 MiB has none.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            return frozenset()
        keys = frozenset(key.decode() for key in _TOP_KEY.findall(path.read_bytes()))
        return keys | {"model", "cases"} if "test_suite_config" in keys else keys
    except OSError:
        return frozenset()


def is_plan(path: Path) -> bool:
    """Return whether a YAML file looks like a plan without model cases."""
    keys = top_keys(path)
    return "cases" in keys and "model" not in keys


def suite_request(suite: BackendTests, options: Mapping[str, Any]) -> RunRequest:
    """Return the cases that ``optest check`` would run for the backend of a suite; workers import its module."""
    if options.get("tier") not in TIER_NAMES:
        raise UsageError(
            f"the tier of suite {suite.name} is {options.get('tier')!r}, expected one of {', '.join(TIER_NAMES)}"
        )
    request = check_request({**options, "backend": suite.name})
    notes = (*request.run.notes, *request.unsupported)
    return dataclasses.replace(request.run, notes=notes, plugins=(suite.module,))


def selected_scenes(cases: Sequence[TestCase], options: Mapping[str, Any]) -> list[TestCase]:
    """Return the cases of scenes that ``--runtime --level --manual --case`` select.

    Raise ``UsageError`` or ``UnknownName`` for an unknown runtime or case.
    """
    triples = [(type(scene_of(case)), case_of(case), case.attributes["platform"]) for case in cases]
    left = list(compress(cases, selected_by_options(triples, resolve(options))))
    return select(left, globs=options.get("case") or ())


def listed_cases(path: Path) -> tuple[list[Listed], tuple[str, ...]]:
    """Return names and operators of a file's cases, and the notes of the file, without loading a backend.

    Raise ``PlanError`` with every problem in the form of the file.
    """
    document, cases = read_plan(path), []
    for member in document.family():
        for entry in member.cases:
            name = entry.get("name", "")
            model, _, name = name.partition("::") if member.model else ("", "", name)
            tags = tuple(entry.get("tags", member.defaults.get("tags", ())))
            cases.append(Listed(model, name, entry["op"], member.path, tags))
    return cases, document.notes


def streams(
    chosen: Sequence[tuple[RunRequest, TestCase]], device_share: tuple[int, int] | None = None
) -> list[tuple[CaseStream, list[TestCase]]]:
    """Return one run for each driver with its cases from all files, so that equal cases share an execution.

    ``device_share`` is the index of a worker of pytest-xdist and the number of workers.
    """
    by_driver: dict[int, tuple[list[RunRequest], list[TestCase]]] = {}
    for request, case in chosen:
        requests, cases = by_driver.setdefault(id(request.driver), ([], []))
        if not requests or requests[-1] is not request:
            requests.append(request)
        cases.append(case)
    joined = [(_joined_request(requests, cases), cases) for requests, cases in by_driver.values()]
    return [(CaseStream(dataclasses.replace(x, device_share=device_share)), cases) for x, cases in joined]


def _joined_request(requests: Sequence[RunRequest], cases: list[TestCase]) -> RunRequest:
    """Return the first request with these cases, and the files, notes and revisions of all requests."""
    first = requests[0]
    revise_of = {id(case): request.revise for request in requests for case in request.cases}
    files = [*dict.fromkeys(request.settings["plan"] for request in requests)]
    sources = tuple(dict.fromkeys(x for request in requests for x in request.settings["source"]))
    notes = dict.fromkeys(note for request in requests for note in request.notes)
    origin = {"source": sources} if sources else {"plan": files if len(files) > 1 else files[0]}
    return dataclasses.replace(
        first,
        cases=cases,
        document=None,
        facts={**first.facts, **origin},
        notes=tuple(notes),
        revise=lambda case, verdict: revise_of[id(case)](case, verdict),
    )


def lines_expected(chosen: Sequence[tuple[RunRequest, TestCase]]) -> dict[str, bool]:
    """Return the labels of the expectations for these cases, each with whether it covers one of them."""
    cases = [case for _, case in chosen]
    lines: dict[str, bool] = {}
    for request in {id(request): request for request, _ in chosen}.values():
        lines.update(request.expectations.labels_concerning(cases))
    return lines


def unused_expectations(expected: Mapping[str, bool], directories: Iterable[Path]) -> list[str]:
    """Return a message for each of these expectations whose failure did not occur; [] if a run is incomplete."""
    journals = [read_journal(RunDirectory(path).journal_path) for path in directories]
    if any(journal.summary is None or journal.summary.finished < journal.summary.total for journal in journals):
        return []
    used = {label for journal in journals for label in labels_used(journal.results)}
    return [
        f"expected failure did not occur: {label}; "
        f"{'delete the line' if covers else 'its conditions fit no case; correct or delete it'}"
        for label, covers in expected.items()
        if label not in used
    ]


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


def summary_of_runs(directories: Iterable[Path]) -> list[str]:
    """Return the lines that sum up runs as `optest run` does: notes, model cases, timings, and the journals."""
    tally, runs, info = Tally(), [], None
    timed: dict[tuple[str, ...], list[CaseResult]] = {}
    notes: dict[str, None] = {}
    for directory in directories:
        journal = read_journal(RunDirectory(directory).journal_path)
        info = journal.info
        notes.update(dict.fromkeys(info.notes if info is not None else ()))
        notes.update(dict.fromkeys(journal.summary.notes if journal.summary is not None else ()))
        runs.append(directory.name)
        for result in journal.results:
            tally.add(result)
        if info is not None and info.options.get("bench"):
            timed.setdefault(tuple(info.options.get("variants") or ()), []).extend(journal.results)
    journals = (
        f"journal: optest report {runs[0]}" if len(runs) == 1 else f"journals: optest report RUN of {', '.join(runs)}"
    )
    timings = [line for names, results in timed.items() for line in variant_text(results, names)]
    lines = model_lines(tally, info)
    # pytest's own counts would hide that these passes were checked by invariants only.
    counted = [tally.phrase()] if tally.by_invariants else []
    return [*(f"note: {note}" for note in notes), *(line for line, _ in lines if line), *timings, *counted, journals]


def failure_text(result: CaseResult) -> tuple[str, str] | None:
    """Return a failure as the terminal prints it, and in one line; None if the result does not fail a run."""
    return ("\n".join(explain(result)), gist(result)) if result.status in BAD_STATUSES else None


class CaseStream:
    """A run in a thread that executes requested cases until it is closed.

    Cases that compute the same share one execution. If cases need devices, the first request starts the whole run, in
    the order of its schedule.
    """

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._is_whole = is_scheduled(request)
        self._last_round = request.settings["rounds"] - 1
        self._results: dict[tuple[str, str], CaseResult] = {}
        self._bad: dict[tuple[str, str], CaseResult] = {}
        """The first bad result of a case over its rounds."""
        self._changed = threading.Condition()
        self._turn: tuple[TestCase, ...] | None = None
        self._turn_began = 0.0
        self._is_closed = False
        self._is_over = False
        self._error: OptestError | None = None
        self._thread: threading.Thread | None = None
        self._steering = Steering(choose=None if self._is_whole else self._requested_turns)
        self.info: RunInfo | None = None
        """Facts about the run, None before it starts."""

    def require_devices(self) -> None:
        """Raise ``OptestError`` if a case cannot have its devices, so that nothing would run."""
        devices_of(self._request)

    def groups(self) -> list[tuple[TestCase, ...]]:
        """Return the groups of cases that share an execution."""
        dedupe = not self._request.settings["no_dedupe"]
        return [execution.cases for execution in executions(self._request.cases, dedupe=dedupe)]

    def result(self, case: TestCase, following: Callable[[], Sequence[TestCase]] = tuple) -> CaseResult:
        """Request a case, wait for its result and return it.

        ``following`` returns the cases that are certainly requested next, in this order. Quick ones are executed in
        advance, which saves a switch between threads and processes after each case. Raise ``OptestError`` if the run
        cannot start, or ends without this result.
        """
        key = _key(case)
        with self._changed:
            if key in self._results:
                return self._results[key]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="optest run", daemon=True)
                self._thread.start()
            self._turn = (case, *following())
            self._turn_began = time.monotonic()
            self._changed.notify_all()
            self._changed.wait(_TOGETHER_S)
            while key not in self._results and not self._is_over:
                self._changed.wait()
            if key in self._results:
                return self._results[key]
        raise self._error or InternalError(f"the run ended without a result of {case.id}")

    def results(self) -> list[CaseResult]:
        """Return the results so far."""
        return list(self._results.values())

    def close(self, *, at_once: bool = False) -> None:
        """End the run after the execution in progress; interrupt that with ``at_once``, or if it was not requested."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if at_once or (self._is_whole and not self._is_over):
            self._steering.interruption.cancel()  # nobody waits for the rest of a scheduled run
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            run_cases(self._request, terminal=_Listener(self), steering=self._steering)
        except OptestError as error:
            self._error = error
        finally:  # else `result` would wait for ever
            with self._changed:
                self._results = {**self._bad, **self._results}
                self._is_over = True
                self._changed.notify_all()

    def _requested_turns(self, remaining: Sequence[Execution]) -> Iterator[Step]:
        """Yield the executions of each request and of the cases that follow it quickly, until the run is closed."""
        rounds_of: dict[int, list[Execution]] = {}
        for execution in remaining:
            for case in execution.cases:
                rounds_of.setdefault(id(case), []).append(execution)
        while (turn := self._next_turn()) is not None:
            executions = [execution for case in turn for execution in rounds_of[id(case)]]
            different = {id(execution): execution for execution in executions}.values()
            queue = [execution for execution in different if _key(execution.first) not in self._results]
            for index, execution in enumerate(queue):
                if index and not execution.round_index and not self._may_continue(index):
                    break
                yield execution, queue[index + 1 :]
            with self._changed:
                self._changed.notify_all()

    def _next_turn(self) -> tuple[TestCase, ...] | None:
        """Wait for the next request and return its cases; None if the run is closed."""
        with self._changed:
            while self._turn is None and not self._is_closed:
                self._changed.wait()
            turn, self._turn = self._turn, None
            return None if self._is_closed else turn

    def _may_continue(self, count: int) -> bool:
        """Return whether another case may run before the requested result is reported: below 16 cases and 20 ms."""
        return count < _MOST_TOGETHER and not self._is_closed and time.monotonic() < self._turn_began + _TOGETHER_S

    def take(self, result: CaseResult) -> None:
        """Store a result after the last repetition of its case; wake the waiting thread if it has waited for long."""
        with self._changed:
            key = result.id, result.where
            if result.status in BAD_STATUSES:
                self._bad.setdefault(key, result)
            if result.round == self._last_round:  # a result before that could end the run amid the rounds of a case
                self._results[key] = self._bad.get(key, result)
            if self._is_whole or time.monotonic() >= self._turn_began + _TOGETHER_S:
                self._changed.notify_all()


def _key(case: TestCase) -> tuple[str, str]:
    return case.id, case.where


class _Listener(Reporter):
    def __init__(self, stream: CaseStream) -> None:
        self._stream = stream

    def on_start(self, info: RunInfo) -> None:
        self._stream.info = info

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:  # noqa: ARG002
        self._stream.take(result)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        """Do nothing: the front end sums up itself."""
