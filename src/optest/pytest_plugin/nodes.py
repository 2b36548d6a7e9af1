"""Files, models and cases as the nodes of pytest, and the runs that give the cases their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pytest

from optest.api import collecting
from optest.api.run_request import run_request
from optest.errors import OptestError, OptionNotTaken, PlanError, UsageError
from optest.pytest_plugin.options import options_of_a_run, without_torch_options
from optest.suites import BackendTests

WRONG_FILES = pytest.StashKey[int]()
"""Number of files of cases that could not be collected."""
WRONG_REQUEST = pytest.StashKey[str]()
"""Error in the options of the session; "" if a file of cases could be collected with them."""
_ERRORS = pytest.StashKey[dict[str, "CaseCollector"]]()
"""Errors of the collection, each with the first node that has it."""
_PLACES = pytest.StashKey[dict[Path, str]]()
_MARKS = pytest.StashKey[set[str]]()
# optest's results respect these marks already. pytest would accept other failures with them, and takes a tag skipif,
# which has no condition, for one that holds.
_DONE_BY_OPTEST = ("skip", "xfail", "skipif")
# pytest accepts no other name of a mark; such tags are known only to -k.
_MARK_NAME = re.compile(r"[^_:(][^:(]*")
_MOST_FOLLOWING = 32


class CaseCollector(pytest.Collector):
    """A collector of cases that reports errors of their files."""

    def _fail_collection(self, why: str) -> NoReturn:
        """Raise ``CollectError``; skip further files with the same error, caused by the machine or the options."""
        first = self.config.stash.setdefault(_ERRORS, {}).setdefault(why, self)
        if first is not self and first.path != self.path:
            pytest.skip(f"not collected, for the same reason as {first.nodeid}", allow_module_level=True)
        self.config.stash[WRONG_FILES] = self.config.stash.get(WRONG_FILES, 0) + 1
        raise self.CollectError(why) from None

    def _create_request(self, create: Callable[[Path, Any], Any], options: Any) -> Any:
        """Return the request of this file; store an error in the options for the session and fail the collection."""
        try:
            request = create(self.path, options)
        except UsageError as error:
            if not isinstance(error, PlanError):
                self.config.stash.setdefault(WRONG_REQUEST, str(error))
            self._fail_collection(str(error))
        except OptestError as error:
            self._fail_collection(str(error))
        self.config.stash[WRONG_REQUEST] = ""
        return request


class SuiteNode(CaseCollector):
    """The suite of a backend (:func:`optest.suites.define_backend_tests`), with a node for each operator."""

    def __init__(self, *, suite: BackendTests, **keywords: Any) -> None:
        super().__init__(**keywords)
        self._suite = suite

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        tier = self.config.getoption("optest_tier") or self.config.getini("optest_tier") or self._suite.tier
        options = {"tier": tier, **without_torch_options(options_of_a_run(self.config))}
        try:
            request = collecting.suite_request(self._suite, options)
        except OptestError as error:
            self._fail_collection(str(error))
        return _child_nodes(self, [(_parts_in_suite(case), request, case) for case in request.cases])


def _parts_in_suite(case: Any) -> list[str]:
    """Return the names of the nodes of a case, such as ``softmax_matches_torch`` and ``ordinary/1[float32 (4x37)]``."""
    # pytest wants a bracket to end the name.
    number, _, rest = case.id.removeprefix(f"{case.descriptor.name}/").partition("[")
    dtypes, _, shapes = rest.partition("]")
    return [case.descriptor.test_name, f"{number}[{dtypes} {shapes}]" if rest else number]


class PlanFile(pytest.File, CaseCollector):
    """A file of cases, with a node for each model."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        compiles = not collecting.top_keys(self.path).isdisjoint(("model", "include"))
        request = self._create_request(_file_request, options_of_a_run(self.config, compiles=compiles))
        if request.notes and not request.every:
            pytest.skip("; ".join(request.notes), allow_module_level=True)
        names = [str(case.name if collecting.model_of(case) else case.id) for case in request.cases]
        parts = [(parts_of(name), request, case) for name, case in zip(names, request.cases, strict=True)]
        return _child_nodes(self, parts)


def _file_request(path: Path, options: dict[str, Any]) -> Any:
    """Return the request of a file, without torch's options if the backend of its plan does not take them."""
    options = {**options, "plan": str(path)}
    try:
        return run_request(options)
    except OptionNotTaken:
        return run_request(without_torch_options(options))


class GroupNode(pytest.Collector):
    """The cases of one model in one file, or of one part of their names that ends with ``::``."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.cases: list[tuple[list[str], Any, Any]] = []
        """Parts of the id below this node, request, and case."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        return _child_nodes(self, self.cases)


def _child_nodes(
    parent: pytest.Collector, cases: Iterable[tuple[list[str], Any, Any]]
) -> Iterator[pytest.Item | pytest.Collector]:
    """Yield an item for each case with one part left, and a group for the others of each first part."""
    groups: dict[str, GroupNode] = {}
    for (first, *rest), request, case in cases:
        if not rest:
            yield CaseItem.from_parent(parent, name=first, request=request, case=case)
            continue
        if first not in groups:
            groups[first] = GroupNode.from_parent(parent, name=first)
        groups[first].cases.append((rest, request, case))
    yield from groups.values()


def register_mark(config: pytest.Config, tag: str) -> bool:
    """Register a tag as a mark of pytest; return whether its name is valid for a mark."""
    if not _MARK_NAME.fullmatch(tag):
        return False
    known = config.stash.setdefault(_MARKS, set(_DONE_BY_OPTEST))
    if tag not in known:
        known.add(tag)
        config.addinivalue_line("markers", f"{tag}: of an operator case")
    return True


def parts_of(name: str) -> list[str]:
    """Split an id into names of nodes as pytest splits its arguments: at ``::`` before the first bracket."""
    before, bracket, rest = name.partition("[")
    *groups, last = before.split("::")
    return [*groups, f"{last}{bracket}{rest}"]


class CaseFailed(Exception):
    """The failure of a case; pytest prints the text and no traceback. ``gist`` is the text in one line."""

    def __init__(self, text: str, gist: str) -> None:
        super().__init__(text)
        self.gist = gist


class CaseItem(pytest.Item):
    """One case as a test of pytest."""

    following: CaseItem | None = None
    """The case that certainly runs next."""
    duplicates: Sequence[CaseItem] = ()
    """Cases that share its execution and are reported with it."""
    took_s: float | None = None
    """Duration of its execution, None for a duplicate."""
    xpassed: str = ""
    """Message of an unexpected pass that does not fail."""
    unchecked = False
    """Whether it ran without a comparison."""
    hooks: Any = None
    """Hooks that replace those of its path, None for no others."""

    def __init__(self, *, request: Any, case: Any, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.request, self.case = request, case
        self.extra_keyword_matches.add(case.descriptor.name)
        for tag in case.tags:
            if not register_mark(self.config, tag):
                self.extra_keyword_matches.add(tag)
            elif tag not in _DONE_BY_OPTEST:
                self.add_marker(getattr(pytest.mark, tag))

    @property
    def ihook(self) -> Any:
        return super().ihook if self.hooks is None else self.hooks

    @property
    def model(self) -> str:
        return collecting.model_of(self.case)

    def runtest(self) -> None:
        result = self.session.stash[RESULTS].of(self)
        self.took_s = None if result.duplicate_of else result.timings.total_s
        is_unexpected = result.status.value == "xpassed" or (result.status.value == "passed" and self.case.xfail)
        if is_unexpected and not self._is_strict():
            self.xpassed = result.verdict.message
            return
        if failure := collecting.failure_text(result):
            raise CaseFailed(*failure)
        # A scene that ran with --skip-golden neither passes nor is skipped.
        self.unchecked = result.status.value == "unchecked" and self.case.attributes.get("golden") is False
        if result.status.value in ("skipped", "unchecked") and not self.unchecked:
            pytest.skip(result.verdict.message)
        if result.status.value == "xfailed":
            pytest.xfail(result.verdict.message)

    def _is_strict(self) -> bool:
        """Return whether an unexpected pass fails, by the case, else by the project's ini as for pytest's xfail."""
        strict = self.case.xfail.strict
        if strict is None:
            strict = self.config.getini("xfail_strict")
        return bool(self.config.getini("strict") if strict is None else strict)  # None is pytest 9's "as strict"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, (CaseFailed, OptestError)):
            return super().repr_failure(excinfo, style)
        text = str(excinfo.value)
        representation = excinfo.getrepr(style="value")
        if (crash := representation.reprcrash) is not None:
            path, line, _ = self.reportinfo()
            gist = excinfo.value.gist if isinstance(excinfo.value, CaseFailed) else text.partition("\n")[0]
            crash.path, crash.lineno, crash.message = str(path), (line or 0) + 1, gist
        return representation

    @cached_property
    def location(self) -> tuple[str, int | None, str]:
        """The location as pytest computes it, but its file part only once for all cases of a file."""
        places = self.session.stash.setdefault(_PLACES, {})
        if self.path not in places:
            places[self.path] = super().location[0]
        _, line, words = self.reportinfo()
        return places[self.path], line, words

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return path, line (0 if unknown, since pytest reports no skip without one) and name of the case."""
        line = self.case.where.rpartition(":")[2]
        # The operator follows the name, since pytest writes "::" for the dots of a name that ends a node id.
        return self.path, int(line) - 1 if line.isdigit() else 0, f"{self.case.id} ({self.case.descriptor.name})"


class Results:
    """The results of items, from one run of optest for each backend."""

    def __init__(self, items: Sequence[CaseItem]) -> None:
        self._items = {id(item.case): item for item in items}
        # Worker gwK of pytest-xdist uses the K-th part of the devices.
        worker = getattr(items[0].config, "workerinput", None) if items else None
        share = None if worker is None else (int(worker["workerid"].removeprefix("gw")), int(worker["workercount"]))
        self._streams = collecting.streams([(item.request, item.case) for item in items], share)
        self._stream_of: dict[int, Any] = {id(case): stream for stream, cases in self._streams for case in cases}
        self._in_order = items
        self._index_of = {id(item): index for index, item in enumerate(items)}

    def require_devices(self) -> None:
        """Raise ``OptestError`` if a scene cannot have its devices."""
        for stream, _ in self._streams:
            stream.require_devices()

    def of(self, item: CaseItem) -> Any:
        """Return the result of an item; execute its case unless a result of the same execution is known."""
        stream = self._stream_of[id(item.case)]
        return stream.result(item.case, lambda: [x.case for x in self.following(item)])

    def following(self, item: CaseItem) -> list[CaseItem]:
        """Return the items that certainly run next in the same run, at most 32."""
        ends_at_failure = item.config.getoption("maxfail") or item.config.getoption("stepwise", False)
        if item.following is None or ends_at_failure:
            return []
        start = self._index_of[id(item)] + 1
        following = self._in_order[start : start + _MOST_FOLLOWING]
        # A worker of xdist runs a part of the list, and plug-ins may change the order: then only the next is known.
        is_part = hasattr(item.config, "workerinput")
        if is_part or not following or following[0] is not item.following:
            following = [item.following]
        stream = self._stream_of[id(item.case)]
        of_run = [x for x in following if self._stream_of.get(id(x.case)) is stream]
        may_be_skipped = [any(mark.name in ("skip", "skipif") for mark in x.own_markers) for x in of_run]
        return of_run[: [*may_be_skipped, True].index(True)]

    def sharing(self) -> Iterator[list[CaseItem]]:
        """Yield the items of each execution."""
        for stream, _ in self._streams:
            for cases in stream.groups():
                yield [self._items[id(case)] for case in cases]

    def directories(self) -> list[Path]:
        """Return the folders of the runs that have started."""
        return [Path(stream.info.directory) for stream, _ in self._streams if stream.info is not None]

    def expected(self) -> dict[str, bool]:
        """Return the labels of the expectations for these items, each with whether it covers one of them."""
        return collecting.lines_expected([(item.request, item.case) for item in self._in_order])

    def close(self, *, at_once: bool) -> None:
        """End every run; with ``at_once`` interrupt the execution in progress."""
        for stream, _ in self._streams:
            stream.close(at_once=at_once)


RESULTS = pytest.StashKey[Results]()
