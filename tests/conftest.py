"""What holds for all tests: neither a busy machine nor the shell's variables are a failure; the example's C library is
built once. At the end of a run stand the processor time of all its processes and the tests that cost most of it."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import needs
import pytest
import texts
import warm_python
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

OF_A_TERMINAL = ("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "COLUMNS", "LINES", "PYTEST_ADDOPTS")
for name in [each for each in os.environ if each in OF_A_TERMINAL or each.startswith(("OPTEST_", "INFINI"))]:
    del os.environ[name]
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of OpenMP that wait take no core from other tests

# Hundreds of tests start programs: without bytecode each of them would compile the whole package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

C_LIBRARY = Path(__file__).parents[1] / "examples" / "c_library"


@pytest.fixture(scope="session")
def c_library_as_built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without a warning, and only once where there are several workers of pytest-xdist."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "c_library"
    with (shared / "c_library.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "broken" / "lib" / "libinfiniop.so").exists():
            shutil.copytree(C_LIBRARY, folder, ignore=shutil.ignore_patterns("build", "lib", "broken", "asan"))
            command = ["make", "-s", "-j2", "all", "broken"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
            assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def c_library(c_library_as_built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A module's own examples/c_library with lib/, and broken/lib/ beside it: a process loads a file only once."""
    return shutil.copytree(c_library_as_built, tmp_path_factory.mktemp("own") / "c_library")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: the slow tests wait for programs half of their time."""
    return (os.cpu_count() or 1) + 1


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-texts", action="store_true", help="write changed wordings into tests/golden")


def pytest_configure(config: pytest.Config) -> None:
    texts.updating = config.getoption("--update-texts")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with slow tests come first, so that no core waits for the last of them."""
    with_slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in with_slow)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a component that is not here, before its fixtures are set up."""
    for marker in item.iter_markers():
        if reason := needs.missing(
            " ".join(marker.args) if marker.name == "needs" else needs.MARKERS.get(marker.name, "")
        ):
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that imports an optional package that is not here; any other failed import stays an error."""
    report = yield
    call = report.call
    cause = call.excinfo.value.__cause__ if call.excinfo else None
    if isinstance(cause, ModuleNotFoundError) and (package := (cause.name or "").partition(".")[0]) in needs.OPTIONAL:
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: {needs.missing(package)}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All tests and their imports live as long as the run: no collection, and no fork, looks at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)  # more than one wait for each other where as many tests run as there are cores


_workers: list[float] = []
_tests: dict[str, float] = {}
_began = pytest.StashKey[float]()


def processor_seconds() -> float:
    """Of this process and of those of its children that have ended."""
    return sum(os.times()[:4]) + warm_python.processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[_began] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        report.user_properties.append(("processor_s", processor_seconds() - item.stash[_began]))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for name, value in report.user_properties:
        if name == "processor_s" and isinstance(value, float):
            _tests[report.nodeid] = value


def pytest_sessionfinish(session: pytest.Session) -> None:
    warm_python.close()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["processor_s"] = processor_seconds()
    elif texts.updating:
        texts.apply_changes()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist has ended; one that was killed leaves no times."""
    _workers.append(getattr(node, "workeroutput", {}).get("processor_s", 0.0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if len(_tests) < 2:
        return
    total = sum(_workers) + (sum(os.times()[:2]) if _workers else processor_seconds())
    terminalreporter.section("processor time")
    terminalreporter.write_line(f"{total:.0f} s in all; the tests that cost most of it, with the fixtures they set up:")
    shown = terminalreporter.config.option.durations
    for name, seconds in sorted(_tests.items(), key=lambda each: -each[1])[: 10 if shown is None else shown or None]:
        terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
