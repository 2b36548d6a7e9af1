"""Model cases and plans as tests of pytest: ``addopts = -p optest.pytest_plugin`` in a project's ini switches it on.

Every case is an item ``FILE::model::name`` or ``FILE::name``. They are run by optest's own engine in one run for all
that were selected, so workers, deadlines, shared executions, journal and reports are those of ``optest run``; an item
asks for its result and says it in pytest's words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from _pytest.junitxml import xml_key

from optest.api import bootstrap, collecting
from optest.errors import OptestError, UsageError, did_you_mean
from optest.pytest_plugin import files, listing, sharing
from optest.pytest_plugin.logs import LOGS, Logs
from optest.pytest_plugin.nodes import WRONG_FILES, WRONG_REQUEST, CaseItem, PlanFile, SuiteNode
from optest.pytest_plugin.options import add_options, add_options_of_scenes, stated, without_values
from optest.pytest_plugin.results import RESULTS, Results
from optest.pytest_plugin.scenes import (
    beside_the_chosen,
    nodes_of,
    on_its_platforms,
    st_device_ids,
    st_platform,
    st_worker,
    why_not_here,
)
from optest.pytest_plugin.selecting import beside_those_named, of_other_models
from optest.pytest_plugin.summary import VERIFIED, Verified, summary_lines
from optest.settings import find_modules_here, plugin_modules, variables_set
from optest.settings.platforms import PLATFORMS, Platform, register_platform, why_skipped
from optest.suites import BackendTests, needs_the_plugin

__all__ = ["CaseItem", "PlanFile", "st_device_ids", "st_platform", "st_worker"]

NARROWED = pytest.StashKey[bool]()
"""Whether cases were deselected."""
_UNCHECKED = "optest_unchecked"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """The options of the RFC, and the ini value that says where a project keeps its files."""
    add_options(parser)
    if any(name.endswith("conftest.py") for name, _ in pluginmanager.list_name_plugin()):
        add_options_of_scenes(parser)  # loaded by a conftest.py, so that the hook below is not called


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    """Add the options of scenes when the project has added its own, which go before ours of the same names."""
    early_config.known_args_namespace.file_or_dir = parser.parse_known_args(without_values(args)).file_or_dir
    yield
    add_options_of_scenes(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Name the project's plug-ins, and add its files to what is collected, where that was not said.

    Raises:
        pytest.UsageError: for a platform that nobody knows.
    """
    if named := (*config.getini("optest_plugins"), *config.getoption("optest_plugins")):
        plugins = ExitStack()
        plugins.enter_context(variables_set({"OPTEST_PLUGINS": ",".join(dict.fromkeys([*plugin_modules(), *named]))}))
        config.add_cleanup(plugins.close)
    find_modules_here()
    platform = stated(config, "platform")
    for name in config.getini("optest_platforms"):
        if name not in PLATFORMS:
            register_platform(Platform(name=name))
    if platform is not None and platform not in PLATFORMS:
        try:
            bootstrap()  # a plug-in may add it
        except OptestError as error:
            raise pytest.UsageError(str(error)) from None
    if platform is not None and platform not in PLATFORMS:
        known = f"known: {', '.join(PLATFORMS)}; the ini's optest_platforms adds others"
        hint = did_you_mean(platform, PLATFORMS, known)
        raise pytest.UsageError(f"--platform is {platform!r}, which nobody knows; {hint}")
    if config.getoption("show_skipped"):
        config.option.reportchars = f"{config.option.reportchars or ''}s"
    files.add_ini_files(config)
    if config.getoption("markers"):
        listing.register_marks(config)
    config.addinivalue_line("markers", _HARDWARE)
    config.stash[VERIFIED] = Verified()
    config.pluginmanager.register(_Counting(config), "optest-counting")


_HARDWARE = (
    "requires_hardware(platform): runs with --platform on hardware alone, or on this platform; without the mark a test "
    "runs without hardware alone"
)


class _Counting:
    """Hears what is told of every test: the hook itself has no way to the configuration."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count it, and read the id that a worker of xdist tells: pytest takes all behind a bracket for parameters."""
        if "]::" in (getattr(getattr(report, "id", None), "params", None) or ""):
            names = tuple(report.nodeid.split("::")[1:])
            setattr(report, "_id", dataclasses.replace(report.id, names=names, params=None))  # noqa: B010 - pytest 9 has it
        file, _, name = report.nodeid.partition("::")  # pytest takes all behind a bracket for parameters here, too
        is_more = "]::" in name or ("[" in name and not name.endswith("]"))
        if is_more and (xml := self._config.stash.get(xml_key, None)) is not None:
            reporter = xml.node_reporter(report)
            reporter.add_attribute("classname", file.removesuffix(".py").replace("/", "."))
            reporter.add_attribute("name", name)
        self._config.stash[VERIFIED].add(report)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Under ``pytest -n`` this process tells what workers ran, and says what is wrong with the request.

    Raises:
        pytest.UsageError: for a model that no file has.
    """
    if session.config.pluginmanager.hasplugin("dsession"):
        listing.require_known_in_files(session.config)
        held = ExitStack()  # the workers, which start later, share the device of this process
        held.enter_context(collecting.torch_device_held(session.config.getoption("torch_device")))
        session.config.add_cleanup(held.close)
        session.config.pluginmanager.register(sharing.Controller(session), "optest-shared")


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """``--list-models`` and ``--list-cases``: torch is not imported, and nothing is run."""
    if config.getoption("list_models") or config.getoption("list_cases"):
        return listing.listed(config)
    return None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take YAML files that were named, and in folders those of cases."""
    if files.is_taken(file_path, parent.config):
        return PlanFile.from_parent(parent, path=file_path)
    return None


def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> pytest.Collector | list[pytest.Item | pytest.Collector] | None:
    """Take the suites and scenes of a module; the test that asks for this plug-in has its answer."""
    if isinstance(obj, BackendTests):
        return SuiteNode.from_parent(collector, name=name, suite=obj)
    if collecting.is_scene(obj):
        by_hand = pytest.Class.from_parent(collector, name=name, obj=obj)
        return [*nodes, by_hand] if (nodes := nodes_of(collector, obj)) else []
    if name == collecting.GUARD and collecting.is_scene(getattr(collector, "obj", None)):
        return []
    return [] if obj is needs_the_plugin else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let tests that are written by hand run on the platforms of their class."""
    on_its_platforms(metafunc)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file that was left out is so in itself, not where this plug-in says so."""
    report = yield
    if isinstance(collector, PlanFile) and isinstance(report.longrepr, tuple):
        report.longrepr = (str(collector.path), 1, report.longrepr[2])
    return report


def pytest_deselected(items: list[pytest.Item]) -> None:
    """A part of the cases holds no expectation to account."""
    for item in items:
        item.config.stash[NARROWED] = True


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """``--model`` deselects the cases of others, and a case that is named by its id those whose ids only begin so.

    Raises:
        pytest.UsageError: for a model that no file has, and for options with which no file could be collected.
    """
    wrong = config.stash.get(WRONG_REQUEST, "")
    if wrong and not hasattr(config, "workerinput"):  # xdist takes a worker that gives up for one that crashed
        raise pytest.UsageError(wrong)
    is_complete = not session.testsfailed and not hasattr(config, "workerinput")
    gone = of_other_models(config.getoption("model"), items, is_complete=is_complete)
    gone += beside_those_named(files.named(config), items)
    try:
        gone += beside_the_chosen(items, config)
    except OptestError as error:
        if is_complete:
            raise pytest.UsageError(str(error)) from None
        config.stash[WRONG_REQUEST] = str(error)
        gone = list(items)
    if gone:
        those = set(map(id, gone))
        config.hook.pytest_deselected(items=[item for item in items if id(item) in those])
        items[:] = [item for item in items if id(item) not in those]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What is left is what is run, beside a wrong file, too; a worker of xdist asks for each execution once."""
    if session.testsfailed and session.testsfailed == session.config.stash.get(WRONG_FILES, 0):
        session.config.option.continue_on_collection_errors = True
    logs = session.config.stash[LOGS] = Logs(session.config)
    logs.give_hooks(session.items)
    results = session.stash[RESULTS] = Results([item for item in session.items if isinstance(item, CaseItem)])
    if hasattr(session.config, "workerinput"):
        try:
            results.require_devices()
        except OptestError as error:
            session.config.stash[WRONG_REQUEST] = str(error)
            session.items.clear()
        sharing.hide_duplicates(session, results)


def pytest_report_collectionfinish(items: list[pytest.Item]) -> list[str]:
    """Report the compiler of model cases, which may pass when eager and fail when compiled."""
    cases = [item for item in items if isinstance(item, CaseItem) and item.request.driver.name == "torch"]
    of_models = [item for item in cases if any(tag.startswith("model_") for tag in item.case.tags)]
    compilers = dict.fromkeys(item.request.settings["compile_backend"] or "eager" for item in of_models)
    others = {True: "--compile-backend inductor compiles them", False: "--compile-backend eager compiles nothing"}
    return [f"optest: model cases run by torch {each}; {others[each == 'eager']}" for each in compilers]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Nothing runs if scenes cannot have their devices; workers of xdist have checked that before.

    Raises:
        pytest.UsageError: with what is wrong with ``--device`` or too wide for it.
    """
    if RESULTS not in session.stash or session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    try:
        session.stash[RESULTS].require_devices()
    except OptestError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test on a platform that it is not for; operator cases are about their backends, not about platforms."""
    if isinstance(item, CaseItem):
        return
    mark = item.get_closest_marker("requires_hardware")
    declared = getattr(getattr(item, "cls", None), "_scene_platforms", None)
    try:
        if declared is not None:
            why = why_not_here(declared, item.config)
        else:
            why = why_skipped(None if mark is None else mark.args, stated(item.config, "platform"))
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)
    if why is not None:
        pytest.skip(why)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Remember what comes next: a worker of optest goes on with it while pytest tells of this one."""
    logs = item.config.stash.get(LOGS, None)
    if isinstance(item, CaseItem):
        item.following = nextitem if isinstance(nextitem, CaseItem) else None
    if logs is not None:
        logs.take_turn(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A case that was skipped is so in its own file, not in this one; who stands for others tells theirs."""
    logs = item.config.stash.get(LOGS, None)
    if logs is not None:
        logs.tell(item, call.when)
    report = yield
    if isinstance(item, CaseItem):
        if report.skipped and isinstance(report.longrepr, tuple):
            path, line, _ = item.reportinfo()
            report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
        if call.when == "call" and item.took_s is not None:
            report.duration = item.took_s
        if call.when == "call" and item.xpassed:
            report.wasxfail = item.xpassed
        if call.when == "call":
            setattr(report, _UNCHECKED, item.unchecked)
        Verified.note(report)
        sharing.attach(item, call, report)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """A scene under ``--skip-golden`` is neither passed nor skipped."""
    return ("unchecked", "u", "UNCHECKED") if getattr(report, _UNCHECKED, False) else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the run, also one that was not asked to its end, as after ``-x``; nothing but skips is no success.

    The workers of xdist have ended theirs.
    """
    results = session.stash.get(RESULTS, None)
    if results is not None:
        session.config.stash[LOGS].stop()
        results.close(at_once=session.exitstatus == pytest.ExitCode.INTERRUPTED)
    is_narrowed = session.config.stash.get(NARROWED, False) or any(part for _, part in files.named(session.config))
    sharing.hand_over(
        session.config,
        results.directories() if results is not None else (),
        {} if results is None or is_narrowed else results.expected(),
    )
    if session.config.pluginmanager.hasplugin("dsession"):
        sharing.join_runs(session.config)
    if session.config.stash.get(WRONG_REQUEST, ""):
        session.exitstatus = pytest.ExitCode.USAGE_ERROR
    elif not hasattr(session.config, "workerinput"):
        session.exitstatus = session.config.stash[VERIFIED].exit_status(int(session.exitstatus))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001 - xdist's signature
    """Where a worker of xdist kept what it ran."""
    sharing.take_over(node)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What the cases of each model add up to, and where the journal lies."""
    if lines := summary_lines(config):
        terminalreporter.ensure_newline()
        terminalreporter.section("operator cases")
        for line in lines:
            terminalreporter.write_line(line)
    wrong = config.stash.get(WRONG_REQUEST, "")
    if wrong and config.pluginmanager.hasplugin("dsession"):  # else pytest has said so
        terminalreporter.write_line(f"ERROR: {wrong}", red=True)
    if line := config.stash[VERIFIED].line():
        terminalreporter.write_line(line, red=True, bold=True)
