"""Ctrl-C ends a run wherever it strikes; a KeyboardInterrupt that foreign code raises is that code's failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from user_shell import Shell

pytestmark = pytest.mark.slow

Write = Callable[[str], Path]

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


def run(optest: Shell, plan: Write, tmp_path: Path, where: str, *more: str) -> tuple[int, str]:
    (tmp_path / "mine.py").write_text(PLUGIN)
    variables = {"OPTEST_PLUGINS": "mine", "WHERE": where}
    ended = optest("run", "--plan", plan(PLAN), "--backend", "mine", "--isolate", "none", *more, env=variables)
    return ended.status, ended.text


@pytest.mark.parametrize("where", ["unsupported", "run", "checks", "swallowed"])
def test_ctrl_c_ends_the_run_wherever_it_strikes(optest: Shell, plan: Write, tmp_path: Path, where: str) -> None:
    status, text = run(optest, plan, tmp_path, where)
    assert status == 130, text
    assert "interrupted" in text
    assert "RAISED" not in text
    assert "1 passed" not in text


def test_ctrl_c_ends_a_run_that_keeps_tensors(optest: Shell, plan: Write, tmp_path: Path) -> None:
    run(optest, plan, tmp_path, "own")
    (tmp_path / "mine.py").write_text(PLUGIN)
    ended = optest(
        "replay", "only", "--save", "saved", "--isolate", "none", env={"OPTEST_PLUGINS": "mine", "WHERE": "run"}
    )
    assert ended.status == 130, ended.text


def test_raised_keyboard_interrupt_fails_the_case(optest: Shell, plan: Write, tmp_path: Path) -> None:
    status, text = run(optest, plan, tmp_path, "own")
    assert status == 1, text
    assert "KeyboardInterrupt: mine" in text
