"""Files, models and cases as the nodes of pytest."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import pytest

from optest.api import collecting
from optest.errors import OptestError, PlanError, UsageError
from optest.pytest_plugin.options import beside_the_backend, options_of_a_run
from optest.pytest_plugin.results import RESULTS
from optest.suites import BackendTests

WRONG_FILES = pytest.StashKey[int]()
"""How many files of cases could not be collected."""
WRONG_REQUEST = pytest.StashKey[str]()
"""What is wrong with the options of the session; "" where a file of cases could be collected with them."""
_TOLD = pytest.StashKey[dict[str, "CaseCollector"]]()
"""Why files could not be collected, and the first of each."""
_PLACES = pytest.StashKey[dict[Path, str]]()
_MARKS = pytest.StashKey[set[str]]()
_DONE_BY_OPTEST = ("skip", "xfail", "skipif")
"""Marks that the result shows already; pytest would excuse with them what optest does not, and a tag that is called
skipif has no condition, which pytest takes for one that holds."""
_CAN_BE_A_MARK = re.compile(r"[^_:(][^:(]*")
"""Pytest takes no other word for the name of a mark; it is known to ``-k``."""


class CaseCollector(pytest.Collector):
    """What has cases, and may be wrong."""

    def _give_up(self, why: str) -> NoReturn:
        """Say what is wrong; what is wrong with another file in the same words is the machine's or the request's."""
        first = self.config.stash.setdefault(_TOLD, {}).setdefault(why, self)
        if first is not self and first.path != self.path:
            pytest.skip(f"not collected, for the reason that is told of {first.nodeid}", allow_module_level=True)
        self.config.stash[WRONG_FILES] = self.config.stash.get(WRONG_FILES, 0) + 1
        raise self.CollectError(why) from None

    def _requested(self, make: Callable[[Path, Any], Any], options: Any) -> Any:
        """The request of this file; what is wrong with the options is told once for the session."""
        try:
            request = make(self.path, options)
        except UsageError as error:
            if not isinstance(error, PlanError):
                self.config.stash.setdefault(WRONG_REQUEST, str(error))
            self._give_up(str(error))
        except OptestError as error:
            self._give_up(str(error))
        self.config.stash[WRONG_REQUEST] = ""
        return request


class SuiteNode(CaseCollector):
    """The suite that a module defines for a backend (:func:`optest.suites.define_backend_tests`); the cases of an
    operator lie below a node of its name."""

    def __init__(self, *, suite: BackendTests, **given: Any) -> None:
        super().__init__(**given)
        self._suite = suite

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        stated = self.config.getoption("optest_tier") or self.config.getini("optest_tier") or self._suite.tier
        options = {"tier": stated, **beside_the_backend(options_of_a_run(self.config))}
        try:
            request = collecting.suite_request(self._suite.name, self._suite.module, options)
        except OptestError as error:
            self._give_up(str(error))
        return _below(self, [(_parts_in_suite(case), request, case) for case in request.cases])


def _parts_in_suite(case: Any) -> list[str]:
    """``softmax_matches_torch`` and ``ordinary/1[float32 (4x37)]``: pytest wants a bracket to end the name."""
    place, _, rest = case.id.removeprefix(f"{case.descriptor.name}/").partition("[")
    dtypes, _, shapes = rest.partition("]")
    return [case.descriptor.test_name, f"{place}[{dtypes} {shapes}]" if rest else place]


class PlanFile(pytest.File, CaseCollector):
    """A file of cases; those of a model lie below a collector of its name."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        compiles = not collecting.top_keys(self.path).isdisjoint(("model", "include"))
        request = self._requested(_file_request, options_of_a_run(self.config, compiles=compiles))
        if request.notes and not request.every:
            pytest.skip("; ".join(request.notes), allow_module_level=True)
        names = [str(case.name if collecting.model_of(case) else case.id) for case in request.cases]
        return _below(self, [(parts_of(name), request, case) for name, case in zip(names, request.cases, strict=True)])


def _file_request(path: Path, options: dict[str, Any]) -> Any:
    try:
        return collecting.file_request(path, options)
    except UsageError as error:
        if "takes no such option" not in str(error):
            raise
        return collecting.file_request(path, beside_the_backend(options))  # a plan for a backend that is not torch


class GroupNode(pytest.Collector):
    """The cases of one model in one file, and below it those whose names have ``::`` in them."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.cases: list[tuple[list[str], Any, Any]] = []
        """What is left of each case's id below this node, its request, and the case."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        return _below(self, self.cases)


def _below(
    parent: pytest.Collector, cases: Iterable[tuple[list[str], Any, Any]]
) -> Iterator[pytest.Item | pytest.Collector]:
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
    """Let pytest know a tag as a mark; False for a word that it takes for none."""
    if not _CAN_BE_A_MARK.fullmatch(tag):
        return False
    known = config.stash.setdefault(_MARKS, set(_DONE_BY_OPTEST))
    if tag not in known:
        known.add(tag)
        config.addinivalue_line("markers", f"{tag}: of an operator case")
    return True


def parts_of(name: str) -> list[str]:
    """The nodes of an id, split as pytest splits one that it is given: at ``::``, up to the first bracket.

    So a node of every part is there, whatever stands in the names of a model and of its cases.
    """
    before, bracket, behind = name.partition("[")
    *groups, last = before.split("::")
    return [*groups, f"{last}{bracket}{behind}"]


class CaseFailed(Exception):
    """A case whose result is not well; pytest prints the text and no traceback. ``gist`` says it in one line."""

    def __init__(self, text: str, gist: str) -> None:
        super().__init__(text)
        self.gist = gist


class CaseItem(pytest.Item):
    """One case."""

    following: CaseItem | None = None
    """The case that certainly comes next."""

    duplicates: Sequence[CaseItem] = ()
    """Those that share its execution and are told with it."""

    took_s: float | None = None
    """What its own execution took, which may have been at once with those of others."""

    xpassed: str = ""
    """What is said of a pass that nobody expected and that fails nothing."""

    unchecked = False
    """Whether it ran, and nobody wanted to compare."""

    hooks: Any = None
    """Those of its phases, where they are others than pytest has for its path."""

    def __init__(self, *, request: Any, case: Any, **given: Any) -> None:
        super().__init__(**given)
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
        if collecting.is_bad(result):
            raise CaseFailed(collecting.failure_text(result), collecting.gist(result))
        self.unchecked = collecting.ran_unchecked(result, self.case)
        if collecting.shows_nothing(result) and not self.unchecked:
            pytest.skip(result.verdict.message)
        if result.status.value == "xfailed":
            pytest.xfail(result.verdict.message)

    def _is_strict(self) -> bool:
        """Whether an unexpected pass fails: the case says so, else the project's ini, as for pytest's own xfail."""
        stated = self.case.xfail.strict
        if stated is None:
            stated = self.config.getini("xfail_strict")
        return bool(self.config.getini("strict") if stated is None else stated)  # pytest 9 says None for "as strict"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, (CaseFailed, OptestError)):
            return super().repr_failure(excinfo, style)
        text = str(excinfo.value)
        shown = excinfo.getrepr(style="value")
        if shown.reprcrash is not None:
            path, line, _ = self.reportinfo()
            gist = excinfo.value.gist if isinstance(excinfo.value, CaseFailed) else text.partition("\n")[0]
            shown.reprcrash.path, shown.reprcrash.lineno, shown.reprcrash.message = str(path), (line or 0) + 1, gist
        return shown

    @cached_property
    def location(self) -> tuple[str, int | None, str]:
        """As pytest has it, which asks for the file's place below the root only once for all cases of a file."""
        places = self.session.stash.setdefault(_PLACES, {})
        if self.path not in places:
            places[self.path] = super().location[0]
        _, line, words = self.reportinfo()
        return places[self.path], line, words

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The line is a number, since pytest reports no skip without one."""
        line = self.case.where.rpartition(":")[2]
        # The operator stands behind the name, since pytest writes "::" for the dots of a name that ends a node id.
        return self.path, int(line) - 1 if line.isdigit() else 0, f"{self.case.id} ({self.case.descriptor.name})"
