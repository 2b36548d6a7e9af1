"""Functions for the pytest plug-in: detect files of cases, collect their cases and sum up runs.

Names imported ``as`` themselves are re-exported, because the plug-in imports nothing below ``api``.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

from optest.api.checking import check_request
from optest.api.lanes import torch_device_held as torch_device_held
from optest.api.run_request import RunRequest, run_request
from optest.api.streaming import CaseStream
from optest.api.streaming import runs_of_workers as runs_of_workers
from optest.errors import UsageError
from optest.plan import read_plan
from optest.plan.dialects import model_of as model_of
from optest.plan.dialects import slug as slug
from optest.plan.expectations import labels_used
from optest.plan.select import select
from optest.reporting.bench_table import variant_text
from optest.reporting.explain import explain
from optest.reporting.explain import gist as gist
from optest.reporting.tally import Tally
from optest.reporting.terminal import model_lines
from optest.scenes.cases import case_of, scene_of, selected_by_options
from optest.scenes.cases import is_scene as is_scene
from optest.scenes.declaration import GUARD as GUARD
from optest.scenes.workers import SceneWorkers as SceneWorkers
from optest.settings import resolve
from optest.spec import BAD_STATUSES, TIERS, CaseResult, Status, TestCase
from optest.store import RunDirectory, read_journal
from optest.store.joined_runs import joined_runs as joined_runs

# Larger files are data, and reading them would delay every collection.
_MOST_BYTES = 16 * 2**20
_TOP_KEY = re.compile(rb"^(?:\{[ \t]*)?[\"']?(model|cases|include|test_suite_config)[\"']?[ \t]*:", re.MULTILINE)
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


def file_request(path: Path, options: Mapping[str, Any]) -> RunRequest:
    """Return the cases of one file with their driver; ``options`` are those of the command line by name."""
    return run_request({**options, "plan": str(path)})


def suite_request(name: str, module: str, options: Mapping[str, Any]) -> RunRequest:
    """Return the cases that ``optest check`` would run for backend ``name``; workers import ``module`` to find it."""
    tiers = [x.value for x in TIERS]
    if options.get("tier") not in tiers:
        raise UsageError(f"the tier of suite {name} is {options.get('tier')!r}, expected one of {', '.join(tiers)}")
    request = check_request({**options, "backend": name})
    notes = (*request.run.notes, *request.unsupported)
    return dataclasses.replace(request.run, notes=notes, plugins=(module,))


def scene_request(path: Path, options: Mapping[str, Any]) -> RunRequest:
    """Return all cases of the scenes of one file; ``options`` must not select among them."""
    return run_request({**options, "source": (f"scene:{path}",), "manual": "include"})


def selected_scenes(cases: Sequence[TestCase], options: Mapping[str, Any]) -> list[TestCase]:
    """Return the cases of scenes that ``--runtime --level --manual --case`` select.

    Raise ``UsageError`` or ``UnknownName`` for an unknown runtime or case.
    """
    triples = [(type(scene_of(case)), case_of(case), case.attributes["platform"]) for case in cases]
    left = list(compress(cases, selected_by_options(triples, resolve(options))))
    return select(left, globs=options.get("case") or ())


def listed_cases(path: Path) -> Iterator[Listed]:
    """Yield names and operators of a file's cases without loading a backend.

    Raise ``PlanError`` with every problem in the form of the file.
    """
    for member in read_plan(path).family():
        for entry in member.cases:
            name = entry.get("name", "")
            model, _, name = name.partition("::") if member.model else ("", "", name)
            tags = tuple(entry.get("tags", member.defaults.get("tags", ())))
            yield Listed(model, name, entry["op"], member.path, tags)


def notes_of(path: Path) -> tuple[str, ...]:
    """Return the notes of a file of cases."""
    return read_plan(path).notes


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


def is_bad(result: CaseResult) -> bool:
    """Return whether a result fails a run."""
    return result.status in BAD_STATUSES


def is_inconclusive(result: CaseResult) -> bool:
    """Return whether a case was skipped or its outputs were not compared."""
    return result.status in (Status.SKIPPED, Status.UNCHECKED)


def ran_unchecked(result: CaseResult, case: TestCase) -> bool:
    """Return whether a scene ran with ``--skip-golden``, which is neither a pass nor a skip."""
    return result.status is Status.UNCHECKED and case.attributes.get("golden") is False


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


def failure_text(result: CaseResult) -> str:
    """Return a failure as the terminal prints it."""
    return "\n".join(explain(result))
