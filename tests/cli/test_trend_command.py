"""``optest report --trend``: what changed between runs, as a user asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from user_shell import Shell

GOOD = "cases:\n  - {op: relu, shapes: {input0: 8x8}, name: a}\n  - {op: tanh, shapes: {input0: 8x8}, name: b}\n"
BAD = GOOD.replace("name: a}", "name: a, xfail: known}")


def test_what_changed_between_runs(optest: Shell, plan: Callable[[str], Path]) -> None:
    for text in (GOOD, BAD, BAD):
        plan(text)
        optest("run", "--plan", "plan.yaml", "-qq")
    ended = optest("report", "--trend")
    assert ended.status == 0, ended.text
    assert ended.out.startswith("3 runs, ")
    assert "nothing changed" in ended.out
    assert "1 case failed before, too" in ended.out
    ids = [each["id"] for each in json.loads(optest("report", "--trend", "--format", "json").out)["runs"]]
    data = json.loads(optest("report", "--trend", ids[1], ids[0], "--format", "json").out)
    assert [(each["kind"], each["case"], each["statuses"]) for each in data["changes"]] == [
        ("new_failure", "a", ["passed", "xpassed"])
    ]


def test_a_report_ends_as_its_run_did_where_that_is_asked(optest: Shell, plan: Callable[[str], Path]) -> None:
    for text in (GOOD, BAD):
        plan(text)
        optest("run", "--plan", "plan.yaml", "-qq")
    assert [optest("report", *more).status for more in ([], ["--exit-code"])] == [0, 1]
    first = json.loads(optest("report", "--trend", "--format", "json", "--exit-code").out)["runs"][0]["id"]
    assert optest("report", first, "--exit-code").status == 0
    assert [optest("report", "--trend", *more).status for more in ([], ["--exit-code"])] == [0, 1]


@pytest.mark.heavy
def test_runs_with_another_compiler_are_no_trend(optest: Shell, plan: Callable[[str], Path]) -> None:
    pytest.importorskip("torch")
    plan(GOOD)
    for compiler in ("eager", "aot_eager"):
        optest("run", "--plan", "plan.yaml", "-qq", "--backend", "torch", "--compile-backend", compiler)
    assert "there is one" in optest("report", "--trend").err


def test_wrong_questions(optest: Shell, plan: Callable[[str], Path]) -> None:
    assert (optest("report", "--trend").status, "there is none" in optest("report", "--trend").err) == (2, True)
    plan(GOOD)
    optest("run", "--plan", "plan.yaml", "-qq")
    assert "needs two runs at least, but there is one" in optest("report", "--trend", "latest", "latest").err
    assert "unknown format of a trend 'junit'" in optest("report", "--trend", "--format", "junit").err
    ended = optest("report", "latest", "latest")
    assert (ended.status, "--trend compares them" in ended.err) == (2, True)
