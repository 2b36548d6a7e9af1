"""Model cases and plans as tests of pytest: ``addopts = -p optest.pytest_plugin`` in a project's ini switches it on.

Every case is an item ``FILE::model::name`` or ``FILE::name``. They are run by optest's own engine in one run for all
that were selected, so workers, deadlines, shared executions, journal and reports are those of ``optest run``; an item
waits for its result and says it in pytest's words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from optest.api import collecting
from optest.errors import OptestError, UsageError, nearest
from optest.settings import environment

__all__ = ["CaseItem", "PlanFile"]

_SUFFIXES = (".yaml", ".yml")
_RESULTS = pytest.StashKey["_Results"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the RFC, and the ini value that says where a project keeps its files."""
    group = parser.getgroup("optest", "operator cases (optest)")
    group.addoption("--model", action="append", default=[], metavar="NAME", help="run this model only; repeatable")
    group.addoption("--dedupe", dest="dedupe", action="store_true", default=True, help="share executions (default)")
    group.addoption("--no-dedupe", dest="dedupe", action="store_false", help="run every case by itself")
    group.addoption("--list-models", action="store_true", help="list the models and run nothing")
    group.addoption("--list-cases", action="store_true", help="list model::name::op and run nothing")
    group.addoption("--show-skipped", action="store_true", help="say why cases were skipped")
    group.addoption(
        "--compile-backend",
        default=environment().get("TEST_COMPILE_BACKEND", "inductor"),
        metavar="NAME",
        help="backend of torch.compile; eager compiles nothing (default: $TEST_COMPILE_BACKEND or inductor)",
    )
    group.addoption("--torch-device", default=None, metavar="DEVICE", help="cpu, cuda, npu … (default: cpu)")
    parser.addini("optest_models", "files and folders of model cases and plans", type="paths", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Add the project's files to what is collected, unless files of cases were named."""
    if config.getoption("show_skipped"):
        config.option.reportchars = f"{config.option.reportchars or ''}s"
    named = [argument.partition("::")[0] for argument in config.args]
    stated = [] if any(name.endswith(_SUFFIXES) for name in named) else config.getini("optest_models")
    config.args[:] = dict.fromkeys([*config.args, *(str(path) for path in stated)])


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """``--list-models`` and ``--list-cases``: torch is not imported, and nothing is run."""
    if not (config.getoption("list_models") or config.getoption("list_cases")):
        return None
    wanted = {collecting.slug(name) for name in config.getoption("model")}
    found: dict[str, None] = {}
    for path in _files(config):
        for name, operator, file in collecting.listed_cases(path):
            model, separator, rest = name.partition("::")
            if wanted and collecting.slug(model if separator else "") not in wanted:
                continue
            line = f"{model}::{rest}::{operator}  ({file})" if separator else f"{name or operator}  ({file})"
            found[(model if separator else "") if config.getoption("list_models") else line] = None
    for line in filter(None, found):
        print(line)  # noqa: T201
    return 0


def _files(config: pytest.Config) -> Iterator[Path]:
    for argument in config.args:
        path = Path(config.invocation_params.dir, argument.partition("::")[0])
        if path.is_dir():
            each = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES)
            yield from filter(collecting.looks_like_model_cases, each)
        elif path.suffix in _SUFFIXES:
            yield path


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take YAML files that were named, and in folders those of model cases."""
    if file_path.suffix not in _SUFFIXES:
        return None
    named = [Path(parent.config.invocation_params.dir, each.partition("::")[0]) for each in parent.config.args]
    if file_path in named or collecting.looks_like_model_cases(file_path):
        return PlanFile.from_parent(parent, path=file_path)
    return None


def _options(config: pytest.Config) -> dict[str, Any]:
    given: dict[str, Any] = {
        "torch_device": config.getoption("torch_device"),
        "compile_backend": config.getoption("compile_backend"),
        "no_dedupe": not config.getoption("dedupe"),
    }
    return {name: value for name, value in given.items() if value}


class PlanFile(pytest.File):
    """A file of cases; those of a model lie below a collector of its name."""

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        request = self._request()
        models: dict[str, ModelNode] = {}
        for case in request.cases:
            model = collecting.model_of(case)
            if not model:
                yield CaseItem.from_parent(self, name=case.id, request=request, case=case)
                continue
            if model not in models:
                models[model] = ModelNode.from_parent(self, name=model)
            models[model].cases.append((request, case))
        yield from models.values()

    def _request(self) -> Any:
        options = _options(self.config)
        try:
            try:
                return collecting.collected(self.path, options)
            except UsageError as error:
                if "takes no such option" not in str(error):
                    raise
                kept = {name: value for name, value in options.items() if name == "no_dedupe"}
                return collecting.collected(self.path, kept)  # a plan for a backend that is not torch
        except OptestError as error:
            raise self.CollectError(str(error)) from None


class ModelNode(pytest.Collector):
    """The cases of one model in one file."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.cases: list[tuple[Any, Any]] = []

    def collect(self) -> Iterator[pytest.Item]:
        for request, case in self.cases:
            yield CaseItem.from_parent(self, name=case.name.partition("::")[2], request=request, case=case)


class CaseFailed(Exception):
    """A case whose result is not well; pytest prints the text and no traceback."""


class CaseItem(pytest.Item):
    """One case."""

    def __init__(self, *, request: Any, case: Any, **given: Any) -> None:
        super().__init__(**given)
        self.request, self.case = request, case
        self.extra_keyword_matches.add(case.descriptor.name)
        for tag in case.tags:
            self.config.addinivalue_line("markers", f"{tag}: of an operator case")
            self.add_marker(getattr(pytest.mark, tag))

    @property
    def model(self) -> str:
        return collecting.model_of(self.case)

    def runtest(self) -> None:
        result = self.session.stash[_RESULTS].of(self)
        if collecting.is_bad(result):
            raise CaseFailed(collecting.told(result))
        if collecting.shows_nothing(result):
            pytest.skip(result.verdict.message)
        if result.status.value == "xfailed":
            pytest.xfail(result.verdict.message)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, (CaseFailed, OptestError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        line = self.case.where.rpartition(":")[2]
        return self.path, int(line) - 1 if line.isdigit() else None, self.case.id


class _Results:
    """The runs of all cases that were selected, begun when the first of them is asked for."""

    def __init__(self, items: list[CaseItem]) -> None:
        self._streams: Mapping[int, Any] = {
            id(case): stream
            for stream, cases in collecting.streams([(item.request, item.case) for item in items])
            for case in cases
        }

    def of(self, item: CaseItem) -> Any:
        return self._streams[id(item.case)].result(item.case)

    def close(self) -> None:
        for stream in {id(stream): stream for stream in self._streams.values()}.values():
            stream.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``--model`` deselects the cases of others.

    Raises:
        pytest.UsageError: for a model that no file has.
    """
    wanted = {collecting.slug(name): name for name in config.getoption("model")}
    if not wanted:
        return
    models = {collecting.slug(item.model): item.model for item in items if isinstance(item, CaseItem) and item.model}
    for word, name in wanted.items():
        if word not in models:
            near = nearest(name, models.values())
            hint = f"; did you mean {near!r}?" if near else ""
            raise pytest.UsageError(
                f"no model is called {name!r}{hint}; there are {', '.join(sorted(models.values()))}"
            )
    others = [item for item in items if isinstance(item, CaseItem) and collecting.slug(item.model) not in wanted]
    config.hook.pytest_deselected(items=others)
    gone = set(map(id, others))
    items[:] = [item for item in items if id(item) not in gone]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What is left is what is run."""
    session.stash[_RESULTS] = _Results([item for item in session.items if isinstance(item, CaseItem)])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End a run that was not asked to its end, as after ``-x``."""
    results = session.stash.get(_RESULTS, None)
    if results is not None:
        results.close()
