"""Model cases and plans as tests of pytest: ``addopts = -p optest.pytest_plugin`` in a project's ini enables it.

Every case is an item ``FILE::model::name`` or ``FILE::name``. optest's engine runs all selected cases in one run, so
workers, deadlines, shared executions, journal and reports are those of ``optest run``; an item requests its result and
reports it to pytest.
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
from optest.api.worker_slots import torch_device_held
from optest.errors import OptestError, UsageError, did_you_mean
from optest.pytest_plugin import files, sharing
from optest.pytest_plugin.logs import LOGS, Logs
from optest.pytest_plugin.nodes import RESULTS, WRONG_FILES, WRONG_REQUEST, CaseItem, PlanFile, Results, SuiteNode
from optest.pytest_plugin.options import add_options, add_options_of_scenes, scene_option, without_values
from optest.pytest_plugin.scenes import (
    nodes_of,
    parametrize_platforms,
    st_device_ids,
    st_platform,
    st_worker,
    unselected_scenes,
    why_not_here,
)
from optest.pytest_plugin.summary import VERIFIED, Verified, summary_lines
from optest.settings import find_modules_here, plugin_modules, variables_set
from optest.settings.platforms import PLATFORMS, Platform, register_platform, why_skipped
from optest.suites import BackendTests, needs_the_plugin

__all__ = ["CaseItem", "PlanFile", "st_device_ids", "st_platform", "st_worker"]

NARROWED = pytest.StashKey[bool]()
"""Whether cases were deselected."""
_UNCHECKED = "optest_unchecked"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options and ini values; also the options of scenes if a conftest.py loads the plug-in."""
    add_options(parser)
    # If a conftest.py loads the plug-in, the hook below is not called.
    if any(name.endswith("conftest.py") for name, _ in pluginmanager.list_name_plugin()):
        add_options_of_scenes(parser)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, None, None]:
    """Add the options of scenes after the project's options, which have precedence over built-in ones of a name."""
    early_config.known_args_namespace.file_or_dir = parser.parse_known_args(without_values(args)).file_or_dir
    yield
    add_options_of_scenes(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Load the project's plug-ins and platforms, add the ini's files to the collection, and register the counting.

    Raise ``pytest.UsageError`` for an unknown platform.
    """
    if named := (*config.getini("optest_plugins"), *config.getoption("optest_plugins")):
        plugins = ExitStack()
        plugins.enter_context(variables_set({"OPTEST_PLUGINS": ",".join(dict.fromkeys([*plugin_modules(), *named]))}))
        config.add_cleanup(plugins.close)
    find_modules_here()
    platform = scene_option(config, "platform")
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
        raise pytest.UsageError(f"--platform is {platform!r}, expected a registered platform; {hint}")
    if config.getoption("show_skipped"):
        config.option.reportchars = f"{config.option.reportchars or ''}s"
    files.add_ini_files(config)
    if config.getoption("markers"):
        files.register_marks(config)
    config.addinivalue_line("markers", _HARDWARE)
    config.stash[VERIFIED] = Verified()
    config.pluginmanager.register(_Counting(config), "optest-counting")


_HARDWARE = (
    "requires_hardware(platform): runs only with --platform on hardware, or on this platform; a test without the mark "
    "runs only without hardware"
)


class _Counting:
    """A plug-in that receives the report of every test: the hook of a module has no access to the configuration."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the report, and repair ids of cases below a scene such as ``S[sim]::case``."""
        # pytest takes all text after a bracket for parameters.
        if "]::" in (getattr(getattr(report, "id", None), "params", None) or ""):
            names = tuple(report.nodeid.split("::")[1:])
            setattr(report, "_id", dataclasses.replace(report.id, names=names, params=None))  # noqa: B010 - pytest 9 has it
        file, _, name = report.nodeid.partition("::")  # for the JUnit report, too
        is_more = "]::" in name or ("[" in name and not name.endswith("]"))
        if is_more and (xml := self._config.stash.get(xml_key, None)) is not None:
            reporter = xml.node_reporter(report)
            reporter.add_attribute("classname", file.removesuffix(".py").replace("/", "."))
            reporter.add_attribute("name", name)
        self._config.stash[VERIFIED].add(report)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Hold the device and report shared executions under ``pytest -n``; raise for a model that no file has."""
    if session.config.pluginmanager.hasplugin("dsession"):
        files.require_known_in_files(session.config)
        held = ExitStack()  # the workers, which start later, share the device of this process
        held.enter_context(torch_device_held(session.config.getoption("torch_device")))
        session.config.add_cleanup(held.close)
        session.config.pluginmanager.register(sharing.Controller(session), "optest-shared")


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Print the list of ``--list-models`` or ``--list-cases`` and return its exit status; else None."""
    if config.getoption("list_models") or config.getoption("list_cases"):
        return files.listed(config)
    return None


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect YAML files that are named, and in folders files of cases."""
    if files.is_taken(file_path, parent.config):
        return PlanFile.from_parent(parent, path=file_path)
    return None


def pytest_pycollect_makeitem(
    collector: pytest.Collector, name: str, obj: object
) -> pytest.Collector | list[pytest.Item | pytest.Collector] | None:
    """Collect the suites and scenes of a module; drop the test that fails without this plug-in."""
    if isinstance(obj, BackendTests):
        return SuiteNode.from_parent(collector, name=name, suite=obj)
    if collecting.is_scene(obj):
        hand_written = pytest.Class.from_parent(collector, name=name, obj=obj)
        return [*nodes, hand_written] if (nodes := nodes_of(collector, obj)) else []
    if name == collecting.GUARD and collecting.is_scene(getattr(collector, "obj", None)):
        return []
    return [] if obj is needs_the_plugin else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize hand-written tests of scenes over the platforms of their class."""
    parametrize_platforms(metafunc)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Report a skipped file at its path instead of the line of this plug-in that skips it."""
    report = yield
    if isinstance(collector, PlanFile) and isinstance(report.longrepr, tuple):
        report.longrepr = (str(collector.path), 1, report.longrepr[2])
    return report


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Note that items were deselected: then expectations without failures are not reported."""
    for item in items:
        item.config.stash[NARROWED] = True


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect cases of other models, cases whose ids only begin with a named id, and cases of unselected scenes.

    Raise ``pytest.UsageError`` for a model that no file has, and for options with which no file could be collected.
    """
    wrong = config.stash.get(WRONG_REQUEST, "")
    if wrong and not hasattr(config, "workerinput"):  # xdist takes a worker that raises for a crashed one
        raise pytest.UsageError(wrong)
    is_complete = not session.testsfailed and not hasattr(config, "workerinput")
    deselected = files.of_other_models(config.getoption("model"), items, is_complete=is_complete)
    deselected += files.with_longer_ids(files.named(config), items)
    try:
        deselected += unselected_scenes(items, config)
    except OptestError as error:
        if is_complete:
            raise pytest.UsageError(str(error)) from None
        config.stash[WRONG_REQUEST] = str(error)
        deselected = list(items)
    if deselected:
        ids = set(map(id, deselected))
        config.hook.pytest_deselected(items=[item for item in items if id(item) in ids])
        items[:] = [item for item in items if id(item) not in ids]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Prepare the runs of the selected cases; in a worker of xdist, keep one item of each execution."""
    # Wrong files of cases do not keep the other tests from running.
    if session.testsfailed and session.testsfailed == session.config.stash.get(WRONG_FILES, 0):
        session.config.option.continue_on_collection_errors = True
    logs = session.config.stash[LOGS] = Logs(session.config)
    logs.set_hooks(session.items)
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
    return [f"optest: model cases run by torch {x}; {others[x == 'eager']}" for x in compilers]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Raise ``pytest.UsageError`` before the first test if scenes cannot have their devices."""
    # Workers of xdist have checked that after the collection.
    if RESULTS not in session.stash or session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    try:
        session.stash[RESULTS].require_devices()
    except OptestError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that is not for the platform; operator cases belong to backends, not to platforms."""
    if isinstance(item, CaseItem):
        return
    mark = item.get_closest_marker("requires_hardware")
    declared = getattr(getattr(item, "cls", None), "_scene_platforms", None)
    try:
        if declared is not None:
            why = why_not_here(declared, item.config)
        else:
            why = why_skipped(None if mark is None else mark.args, scene_option(item.config, "platform"))
    except UsageError as error:
        pytest.fail(str(error), pytrace=False)
    if why is not None:
        pytest.skip(why)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Store the next item, so that a worker can run it while pytest reports this one."""
    logs = item.config.stash.get(LOGS, None)
    if isinstance(item, CaseItem):
        item.following = nextitem if isinstance(nextitem, CaseItem) else None
    if logs is not None:
        logs.start(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add location, duration and outcome of a case to its report, and the reports of its duplicates."""
    logs = item.config.stash.get(LOGS, None)
    if logs is not None:
        logs.report(item, call.when)
    report = yield
    if isinstance(item, CaseItem):
        if report.skipped and isinstance(report.longrepr, tuple):  # else pytest reports the skip in this plug-in
            path, line, _ = item.reportinfo()
            report.longrepr = (str(path), (line or 0) + 1, report.longrepr[2])
        if call.when == "call" and item.took_s is not None:
            report.duration = item.took_s
        if call.when == "call" and item.xpassed:
            report.wasxfail = item.xpassed
        if call.when == "call":
            setattr(report, _UNCHECKED, item.unchecked)
        Verified.mark_case(report)
        sharing.attach(item, call, report)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Return the status ``unchecked`` for a scene that ran with ``--skip-golden``."""
    return ("unchecked", "u", "UNCHECKED") if getattr(report, _UNCHECKED, False) else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End the runs, also incomplete ones, and set the exit status: 5 if all cases were skipped."""
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
    """Receive the folders of the runs of a worker of xdist."""
    sharing.take_over(node)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the summary of the cases, the journals, and a usage error or missing verification."""
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
