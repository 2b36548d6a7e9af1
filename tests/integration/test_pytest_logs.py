"""Records that are logged while a case has its turn stand in its report, though pytest's own plug-in is not asked."""

from __future__ import annotations

from pathlib import Path

import pytest
import warm_python
from texts import says

pytestmark = [pytest.mark.slow, pytest.mark.skipif(pytest.importorskip("torch") is None, reason="torch")]

CASES = """\
model: tiny
defaults: {dtype: fp16, atol: 1.0e-2, rtol: 1.0e-2}
cases:
  - {name: one, op: torch.neg, inputs: [{tensor: {shape: [4]}}]}
  - {name: two, op: torch.abs, inputs: [{tensor: {shape: [4]}}]}
  - {name: three, op: torch.exp, inputs: [{tensor: {shape: [4]}}]}
  - {name: accepted, op: torch.sin, inputs: [{tensor: {shape: [4]}}], expects_error: {type: RuntimeError}}
"""
CONFTEST = """\
import logging

class Apart(logging.Logger):
    handlers_added = 0

    def addHandler(self, handler):
        type(self).handlers_added += 1
        super().addHandler(handler)

logging.setLoggerClass(Apart)
logger = logging.getLogger("apart")
logger.propagate = False
logging.setLoggerClass(logging.Logger)

def pytest_runtest_setup(item):
    logger.warning("heard apart of %s", item.name)
    logging.getLogger("plain").warning("heard below the root of %s", item.name)
    logger.info("heard where it is asked for")

def pytest_runtestloop(session):
    Apart.handlers_added = 0

def pytest_sessionfinish(session):
    print(f"handlers added: {Apart.handlers_added}")
"""
OTHER = """\
import logging

def test_of_its_own(caplog):
    logging.getLogger("apart").warning("once")
    assert caplog.messages == ["once"]
    assert 0
"""


@pytest.fixture(scope="module")
def logging_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p optest.pytest_plugin -p no:cacheprovider -s\n")
    (folder / "a.yaml").write_text(CASES)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_other.py").write_text(OTHER)
    return folder


def run_there(folder: Path, *arguments: str) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OPTEST_ISOLATE": "none"}
    done = warm_python.run("pytest", "--compile-backend", "eager", *arguments, cwd=folder, env=environment)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def handlers_added(told: str) -> int:
    return int(told.partition("handlers added: ")[2].split()[0])


def test_what_was_logged_in_the_turn_of_a_failing_case_is_shown_and_handlers_stay(logging_project: Path) -> None:
    told = run_there(logging_project, "a.yaml")
    assert "1 failed, 3 passed" in told
    section = told.partition("Captured log setup")[2]
    assert says(section, "integration.heard_apart_of_accepted")
    assert says(section, "integration.heard_below_the_root")
    assert "heard apart of one" not in told
    assert "heard where it is asked for" not in told
    assert handlers_added(told) < 12  # pytest adds two in each of three phases of each of four cases


def test_other_tests_between_cases_have_their_own_records(logging_project: Path) -> None:
    told = run_there(logging_project, "a.yaml::tiny::one", "test_other.py", "a.yaml::tiny::accepted")
    assert "2 failed, 1 passed" in told
    of_test = told.partition("test_of_its_own")[2].partition("accepted")[0]
    assert of_test.count("heard apart of test_of_its_own") == 1
    assert told.count("heard apart of accepted") == 1


def test_a_level_that_is_stated_is_pytests_own_affair(logging_project: Path) -> None:
    told = run_there(logging_project, "a.yaml", "--log-level", "INFO")
    assert says(told.partition("Captured log setup")[2], "integration.heard_where_it_is")
    assert handlers_added(told) >= 24
