"""``optest report --trend``, ``diff`` and ``history``: what changed between runs, as a user asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from texts import says
from user_shell import Shell

GOOD = "cases:\n  - {op: relu, shapes: {input0: 8x8}, name: a}\n  - {op: tanh, shapes: {input0: 8x8}, name: b}\n"
BAD = GOOD.replace("name: a}", "name: a, xfail: known}")


@pytest.fixture
def run_all(optest: Shell, plan: Callable[[str], Path]) -> Callable[..., None]:
    """Run these plans, one after the other."""

    def run(*texts: str) -> None:
        for text in texts:
            plan(text)
            optest("run", "--plan", "plan.yaml", "-qq")

    return run


def ids_of_runs(optest: Shell) -> list[str]:
    return [each["id"] for each in json.loads(optest("report", "--trend", "--format", "json").out)["runs"]]


def test_what_changed_between_runs(optest: Shell, run_all: Callable[..., None]) -> None:
    run_all(GOOD, BAD, BAD)
    ended = optest("report", "--trend").expect(0)
    assert ended.out.startswith("3 runs, ")
    assert "no changes" in ended.out
    assert says(ended.out, "cli.case_failed_before_too")
    ids = ids_of_runs(optest)
    data = json.loads(optest("report", "--trend", ids[1], ids[0], "--format", "json").out)
    assert [(each["kind"], each["case"], each["statuses"]) for each in data["changes"]] == [
        ("new_failure", "a", ["passed", "xpassed"])
    ]


def test_exit_code_option_returns_status_of_run(optest: Shell, run_all: Callable[..., None]) -> None:
    run_all(GOOD, BAD)
    assert [optest("report", *more).status for more in ([], ["--exit-code"])] == [0, 1]
    first = ids_of_runs(optest)[0]
    assert optest("report", first, "--exit-code").status == 0
    assert [optest("report", "--trend", *more).status for more in ([], ["--exit-code"])] == [0, 1]


@pytest.mark.heavy
def test_runs_with_another_compiler_are_no_trend(optest: Shell, plan: Callable[[str], Path]) -> None:
    pytest.importorskip("torch")
    plan(GOOD)
    for compiler in ("eager", "aot_eager"):
        optest("run", "--plan", "plan.yaml", "-qq", "--backend", "torch", "--compile-backend", compiler)
    assert "there is one" in optest("report", "--trend").err


def test_wrong_questions(optest: Shell, run_all: Callable[..., None]) -> None:
    assert (optest("report", "--trend").status, "there are none" in optest("report", "--trend").err) == (2, True)
    run_all(GOOD)
    assert says(optest("report", "--trend", "latest", "latest").err, "cli.needs_two_runs_at")
    assert says(optest("report", "--trend", "--format", "junit").err, "cli.unknown_format_of_trend")
    optest("report", "latest", "latest").expect(2, err="to compare runs: --trend")


def test_diff_is_of_two_runs(optest: Shell, run_all: Callable[..., None]) -> None:
    run_all(GOOD, BAD, GOOD)
    ended = optest("diff")
    assert (ended.status, ended.out.startswith("2 runs, "), "fixed: 1" in ended.out) == (0, True, True)
    ids = ids_of_runs(optest)
    assert "no changes" in optest("diff", ids[0]).out
    data = json.loads(optest("diff", ids[0], ids[1], "--format", "json").out)
    assert [each["kind"] for each in data["changes"]] == ["new_failure"]
    assert [optest("diff", ids[0], ids[1], *more).status for more in ([], ["--exit-code"])] == [0, 1]
    assert says(optest("diff", *ids).err, "cli.two_runs_are_compared")


def test_history_says_since_when(optest: Shell, run_all: Callable[..., None], tmp_path: Path) -> None:
    run_all(GOOD, GOOD, BAD)
    ids = ids_of_runs(optest)
    ended = optest("history", "--keep", "kept.sqlite").expect(0, out="2 cases: 1 failing, 0 flaky")
    row = next(line.split() for line in ended.out.splitlines() if line.startswith("  a "))
    assert row[:7] == ["a", "numpy:cpu", "(plan.yaml)", "xpassed", ids[2], ids[1], "-"]
    for other in (tmp_path / ".optest").glob("runs/*/journal.jsonl"):
        other.unlink()
    optest("run", "--plan", "plan.yaml", "-qq")
    data = json.loads(optest("history", "b", "--keep", "kept.sqlite", "--format", "json").out)
    assert (len(data["runs"]), [each["case"] for each in data["cases"]]) == (4, ["b"])
    assert data["cases"][0]["runs"] == 4
    assert "[case] a" not in optest("history", "[cb]").out
    assert "unknown case 'c'" in optest("history", "c").err


def test_a_changed_function_is_no_flaky_case(optest: Shell, plan: Callable[[str], Path], tmp_path: Path) -> None:
    plan(GOOD)
    for factor in (1, 20):  # of other lengths, or Python takes the module for unchanged within a second
        (tmp_path / "kernels.py").write_text(f"def relu(input):\n    return abs(input) / 2 * {factor} + input / 2\n")
        optest("run", "--plan", "plan.yaml", "--op", "relu", "--function", "relu=kernels:relu", "-qq")
    assert "new failures: 1" in optest("diff").out
    assert "0 flaky" in optest("history").out


def test_no_history(optest: Shell) -> None:
    assert (optest("history").status, "no runs under" in optest("history").err) == (2, True)
    assert says(optest("history", "--format", "junit").err, "cli.unknown_format_of_history")
