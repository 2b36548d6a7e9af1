"""Ctrl-C ends a run wherever it strikes; a KeyboardInterrupt that foreign code raises is that code's failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from user_shell import Ended, Shell

pytestmark = pytest.mark.slow

PLUGIN = """\
import os, signal, time
from optest.backends import BackendDriver, backend_manager

WHERE = os.environ["WHERE"]

class Mine(BackendDriver):
    name = "mine"
    isolated = False

    def _at(self, place):
        if WHERE != place:
            return
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except BaseException:
            if place != "swallowed":
                raise

    def unsupported(self, case):
        self._at("unsupported")
        if WHERE == "own":
            raise KeyboardInterrupt("mine")

    def checks(self, case):
        self._at("checks")
        return ()

    def run(self, case, inputs):
        self._at("run")
        self._at("swallowed")
        return [inputs[0] + inputs[1]]

backend_manager.register(Mine())
"""
PLAN = "cases:\n  - {op: add, dtypes: float32, shapes: {input0: 3, input1: 3}, name: only}\n"


@pytest.fixture
def run(optest: Shell, plan: Callable[[str], Path], tmp_path: Path) -> Callable[..., Ended]:
    """Run the plan, or these words, with a backend that is interrupted there."""
    (tmp_path / "mine.py").write_text(PLUGIN)
    of_plan = ("run", "--plan", str(plan(PLAN)), "--backend", "mine")

    def call(where: str, *words: str) -> Ended:
        variables = {"OPTEST_PLUGINS": "mine", "WHERE": where}
        return optest(*(words or of_plan), "--isolate", "none", env=variables)

    return call


@pytest.mark.parametrize("where", ["unsupported", "run", "checks", "swallowed"])
def test_ctrl_c_ends_the_run_wherever_it_strikes(run: Callable[..., Ended], where: str) -> None:
    text = run(where).expect(130, text="interrupted").text
    assert "RAISED" not in text
    assert "1 passed" not in text


def test_raised_keyboard_interrupt_fails_the_case(run: Callable[..., Ended]) -> None:
    run("own").expect(1, text="KeyboardInterrupt: mine")
    run("run", "replay", "only", "--save", "saved").expect(130)
