"""Functions for a front end with its own loop, before it runs anything: the cases of a file, and which files are plans.

Names imported ``as`` themselves are exported again: the pytest plug-in imports nothing below ``api``.
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
from optest.reporting.explain import explain
from optest.reporting.explain import gist as gist
from optest.reporting.tally import Tally
from optest.reporting.terminal import model_lines
from optest.reporting.variant_table import variant_text
from optest.scenes.cases import case_of, left_by_options, scene_of
from optest.scenes.cases import is_scene as is_scene
from optest.scenes.declaration import GUARD as GUARD
from optest.scenes.workers import SceneWorkers as SceneWorkers
from optest.settings import resolve
from optest.spec import BAD_STATUSES, TIERS, CaseResult, Status, TestCase
from optest.store import RunDirectory, read_journal
from optest.store.joined_runs import joined_runs as joined_runs

_MOST_BYTES = 16 * 2**20
"""What is larger is no plan."""
_TOP_KEY = re.compile(rb"^(?:\{[ \t]*)?[\"']?(model|cases|include|test_suite_config)[\"']?[ \t]*:", re.MULTILINE)
PLAN_NAMES = tuple(name + suffix for name in ("plan", "plan_*", "*_plan") for suffix in (".yaml", ".yml"))
"""How plans are called that pytest collects by their names, unless the ini says otherwise."""


class Listed(NamedTuple):
    """A case as its file has it, before anything is made of it; ``model`` is "" in a plan."""

    model: str
    name: str
    operator: str
    path: str
    tags: tuple[str, ...]


def top_keys(path: Path) -> frozenset[str]:
    """Return which of ``model``, ``cases`` and ``include`` a YAML file has at its top, without reading it as YAML.

    A ``test_suite_config`` stands for ``model`` and ``cases``.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            return frozenset()
        keys = frozenset(key.decode() for key in _TOP_KEY.findall(path.read_bytes()))
        return keys | {"model", "cases"} if "test_suite_config" in keys else keys
    except OSError:
        return frozenset()


def is_plan(path: Path) -> bool:
    """Whether a YAML file looks like a plan without model cases."""
    keys = top_keys(path)
    return "cases" in keys and "model" not in keys


def file_request(path: Path, options: Mapping[str, Any]) -> RunRequest:
    """The cases of one file and the driver that they are for; ``options`` are those of the command line by name.

    Raises:
        OptestError: for whatever is wrong with the file or the options.
    """
    return run_request({**options, "plan": str(path)})


def suite_request(name: str, module: str, options: Mapping[str, Any]) -> RunRequest:
    """The cases of a backend's suite that ``optest check`` would ask with these options; ``module`` defines it.

    Raises:
        OptestError: for whatever is wrong with the options or the backend.
    """
    tiers = [each.value for each in TIERS]
    if options.get("tier") not in tiers:
        raise UsageError(f"the tier of suite {name} is {options.get('tier')!r}, but should be {', '.join(tiers)}")
    request = check_request({**options, "backend": name})
    notes = (*request.run.notes, *request.lacking)
    return dataclasses.replace(request.run, notes=notes, plugins=(module,))


def scene_request(path: Path, options: Mapping[str, Any]) -> RunRequest:
    """All cases of the scenes of one file; ``options`` are those that change no choice between them.

    Raises:
        OptestError: for whatever is wrong with the file or the options.
    """
    return run_request({**options, "source": (f"scene:{path}",), "manual": "include"})


def scenes_left(cases: Sequence[TestCase], options: Mapping[str, Any]) -> list[TestCase]:
    """The cases of scenes, of all files of a session, that ``--runtime --level --manual --case`` leave.

    Raises:
        UsageError, UnknownName: for a runtime or a case that there is not.
    """
    triples = [(type(scene_of(case)), case_of(case), case.attributes["platform"]) for case in cases]
    left = list(compress(cases, left_by_options(triples, resolve(options))))
    return select(left, globs=options.get("case") or ())


def listed_cases(path: Path) -> Iterator[Listed]:
    """Names and operators of a file's cases. No backend is loaded.

    Raises:
        PlanError: with everything that is wrong with the form of the file.
    """
    for member in read_plan(path).family():
        for entry in member.cases:
            name = entry.get("name", "")
            model, _, name = name.partition("::") if member.model else ("", "", name)
            tags = tuple(entry.get("tags", member.defaults.get("tags", ())))
            yield Listed(model, name, entry["op"], member.path, tags)


def notes_of(path: Path) -> tuple[str, ...]:
    """Return what a file holds besides its cases."""
    return read_plan(path).notes


def streams(
    chosen: Sequence[tuple[RunRequest, TestCase]], device_share: tuple[int, int] | None = None
) -> list[tuple[CaseStream, list[TestCase]]]:
    """One run for each driver over all of its cases, whatever file they are from: equal ones share an execution.

    ``device_share`` is that of a worker of pytest-xdist: its index, and how many there are.
    """
    by_driver: dict[int, tuple[list[RunRequest], list[TestCase]]] = {}
    for request, case in chosen:
        requests, cases = by_driver.setdefault(id(request.driver), ([], []))
        if not requests or requests[-1] is not request:
            requests.append(request)
        cases.append(case)
    together = [(_together(requests, cases), cases) for requests, cases in by_driver.values()]
    return [(CaseStream(dataclasses.replace(each, device_share=device_share)), cases) for each, cases in together]


def _together(requests: Sequence[RunRequest], cases: list[TestCase]) -> RunRequest:
    """One request for the cases of several, which says every file, and every note, where there is more than one."""
    first = requests[0]
    revise_of = {id(case): request.revise for request in requests for case in request.cases}
    files = [*dict.fromkeys(request.settings["plan"] for request in requests)]
    sources = tuple(dict.fromkeys(each for request in requests for each in request.settings["source"]))
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
    """The lines of expectations that these cases ask about, with whether they cover any of them."""
    cases = [case for _, case in chosen]
    lines: dict[str, bool] = {}
    for request in {id(request): request for request, _ in chosen}.values():
        lines.update(request.expectations.concerning(cases))
    return lines


def unused_expectations(expected: Mapping[str, bool], directories: Iterable[Path]) -> list[str]:
    """Which of these lines excused nothing in the runs, and what to do about it; none of runs without their end."""
    journals = [read_journal(RunDirectory(each).journal_path) for each in directories]
    if any(each.summary is None or each.summary.finished < each.summary.total for each in journals):
        return []
    used = {label for each in journals for label in labels_used(each.results)}
    return [
        f"expected, but did not happen: {label}; {'drop the line' if covers else 'its conditions fit no case'}"
        for label, covers in expected.items()
        if label not in used
    ]


def is_bad(result: CaseResult) -> bool:
    """Whether a result fails a run."""
    return result.status in BAD_STATUSES


def shows_nothing(result: CaseResult) -> bool:
    """Whether nothing was run, or nothing compared: neither is a pass."""
    return result.status in (Status.SKIPPED, Status.UNCHECKED)


def ran_unchecked(result: CaseResult, case: TestCase) -> bool:
    """Whether a scene ran and nobody wanted its golden (``--skip-golden``): no pass, and no skip either."""
    return result.status is Status.UNCHECKED and case.attributes.get("golden") is False


def figures(directories: Iterable[Path]) -> list[str]:
    """What runs note and add up to, as `optest run` tells it: by operator and by model of model cases, and in all."""
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
    again = (
        f"journal: optest report {runs[0]}" if len(runs) == 1 else f"journals: optest report RUN of {', '.join(runs)}"
    )
    timings = [line for names, results in timed.items() for line in variant_text(results, names)]
    lines = model_lines(tally, info)
    counted = [tally.phrase()] if tally.by_invariants else []  # where a bare pass would say too much
    said = [f"note: {note}" for note in notes]
    return [*said, *(line for line, _ in lines if line), *timings, *counted, again]


def failure_text(result: CaseResult) -> str:
    """A failure as the terminal prints it."""
    return "\n".join(explain(result))
