"""Plans by position, help in two levels, explain of words, fills with parameters, --watch, SARIF, folders."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from texts import says
from user_shell import Shell, user_environment

from optest.api.checking import sample_cases
from optest.generators.fills import FILLS, check_fill
from optest.plan.values import read_generator

RELU = "def relu(x):\n    return [(x > 0) * x * {factor}]\n"


def _plan(*names: str, more: str = "") -> str:
    cases = "".join(
        f"- {{op: relu, name: {name}, dtypes: float32, shapes: {{input0: 4x{len(name)}}}}}\n" for name in names
    )
    return f"{more}cases:\n{cases}"


def test_plans_by_position(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(_plan("a", "aa", more="backend: stub\n"))
    (tmp_path / "b.yaml").write_text(_plan("bbb", more="backend: stub\n"))
    assert "2 passed" in optest("run", "a.yaml").out
    both = optest("run", "a.yaml", "--plan", "b.yaml", "--co")
    assert (both.status, [line.split()[0] for line in both.out.splitlines()]) == (0, ["bbb", "a", "aa"])
    assert "3 passed" in optest("run", "a.yaml", "b.yaml").out
    optest("run", "a.yaml", "b.yaml", "--untrusted").expect(2, err="plans are named; name one")
    assert says(optest("check", "a.yaml").err, "cli.did_you_mean_optest")
    assert "--plan a.yaml" in optest("explain", "a.yaml").err
    (tmp_path / "test_add.py").write_text("@scene_test(level=2)\nclass TestAdd: ...\n")
    assert says(optest("run", "test_add.py").err, "cli.did_you_mean_optest_run")


def test_help_shows_the_common_options_first(optest: Shell) -> None:
    short, every = optest("run", "--help").out, optest("run", "--help-all").out
    assert "--backend" in short
    assert "--guard" not in short
    assert len(short.splitlines()) < len(every.splitlines()) / 2
    assert " --help-all" in short.splitlines()[-1]
    assert "more options" not in every.splitlines()[-1]
    assert optest("run", "--help", "-v").out == every
    assert "--guard" in optest("run", "--backend", "ffi", "--help").out
    assert "--guard" not in optest("run", "--backend", "torch", "--help").out


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("VALUE", "VALUE (status failed): elements of an output differ"),
        ("suspect", "suspect: the case passed only"),
        ("rule:accumulate", "operators: "),
        ("rule:integer-exact", "any order of summation"),
    ],
)
def test_a_word_of_a_report_is_explained(optest: Shell, word: str, said: str) -> None:
    optest("explain", word).expect(0, out=(said, "  try: "))


def test_a_word_that_is_none_is_refused(optest: Shell) -> None:
    assert "did you mean 'VALUE'?" in optest("explain", "VALEU").err
    assert says(optest("explain", "sofmax").err, "cli.did_you_mean_softmax")
    assert optest("explain", "ulp").out == optest("explain", "rule:ulp").out


@pytest.mark.heavy
def test_a_case_of_the_latest_run_is_explained(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text("def softmax(x, dim=-1):\n    return x\n")
    assert "as a case: " in optest("explain", "softmax/ordinary/1*").err
    optest("check", "--function", "kernels.py:softmax", "--tier", "smoke")
    ended = optest("explain", "softmax/ordinary/*").expect(0)
    assert re.search(r"^FAILED  softmax/ordinary/1\[.*^  input0.shape ", ended.out, re.MULTILINE | re.DOTALL)
    assert "did you mean" in optest("explain", "softmax/ordinry/1[float32](4x37)").err
    assert "optest explain relu" in optest("explain").err
    assert says(optest("run", "kernels.py").err, "cli.did_you_mean_optest_check")


def test_an_operator_is_described(optest: Shell) -> None:
    ended = optest("explain", "softmax")
    rows = dict(line.strip().split("  ", 1) for line in ended.out.splitlines()[1:])
    assert rows["signature"].strip() == "input -> out"
    assert rows["attribute"].strip().startswith("dim (int, default -1, also axis): ")
    assert "float16" in rows["dtypes"]
    assert "composed: y" in rows["rule"]
    assert "special 3" in rows["case sets"]
    assert optest(*shlex.split(rows["one case"])[1:]).out.startswith("softmax[float32](4x37")
    assert optest("explain", "Conv").out.startswith("conv2d: ")


def test_fills_have_their_parameters(optest: Shell) -> None:
    lines = optest("list", "fills", "-v").out.splitlines()
    assert [line.split()[0] for line in lines] == list(FILLS)
    (arange,) = (line for line in lines if line.startswith("arange"))
    assert arange.endswith("start: a finite number [0], step: a finite number [1]")
    assert says("\n".join(lines), "cli.value_number_or_one")


def test_explained_fills_can_be_pasted(optest: Shell, plan: Callable[[str], Path]) -> None:
    given = {"input0": "randint(low=0, high=32)", "input1": "special(rate=0.5, base=uniform)"}
    stated = ", ".join(f'{name}: "{text}"' for name, text in given.items())
    plan(f"cases: [{{op: add, name: a, dtypes: int32, shapes: {{input0: 4, input1: 4}}, generator: {{{stated}}}}}]")
    lines = optest("explain", "--plan", "plan.yaml").out.splitlines()
    assert [line.split("  ")[2].strip() for line in lines if ".fill" in line] == list(given.values())


@pytest.mark.parametrize("operator", ["embedding", "gather", "matmul", "index_select", "bmm", "exp", "cumsum", "where"])
def test_every_fill_of_a_check_reads_back(operator: str) -> None:
    fills = {str(each.fill): each.fill for case in sample_cases(operator) for each in case.inputs}
    assert fills
    for text, fill in fills.items():
        assert str(read_generator(text).every) == text
        check_fill(fill)


@contextmanager
def watching(folder: Path, *words: str) -> Iterator[Callable[[str], bool]]:
    """Whether a line of the watching run comes; at the end Ctrl-C ends it."""
    command = [sys.executable, "-m", "optest", "run", "plan.yaml", "-q", "--watch", *words]
    process = subprocess.Popen(command, cwd=folder, env=user_environment(), stdout=subprocess.PIPE, text=True)
    stop = threading.Timer(120, process.kill)  # a line that never comes ends the test
    stop.start()
    try:
        output = process.stdout
        assert output is not None
        yield lambda said: any(said in line for line in output)
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 130
    finally:
        stop.cancel()
        process.kill()
        process.wait()


def test_watch_reruns_after_a_change(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(_plan("bbb"))
    (tmp_path / "kernels.py").write_text(RELU.format(factor=1.5))
    with watching(tmp_path, "--function", "kernels:relu") as comes:
        assert comes("1 failed")
        (tmp_path / "kernels.py").write_text(RELU.format(factor=1))
        assert comes("1 passed")
        (tmp_path / "plan.yaml").write_text("cases: [{op: relu}]")
        assert comes("watching")
        (tmp_path / "plan.yaml").write_text(_plan("bbb", "cccc"))
        assert comes("2 passed")


def test_watch_sees_what_a_program_is_built_from(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        "backend: command\ndefaults: {backend_config: {command: {command: [bash, run.sh], "
        "inputs: [{tensor: input0, path: in.bin}], outputs: [{tensor: output0, path: out.bin}]}}}\n"
        "cases: [{op: relu, dtypes: float32, shapes: {input0: 4}, generator: ones}]\n"
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "kernel.c").write_text("false")
    (tmp_path / "run.sh").write_text("$(cat src/kernel.c) in.bin out.bin\n")
    with watching(tmp_path) as comes:
        assert comes("1 error")
        assert comes("watching")
        (tmp_path / "src" / "kernel.c").write_text("cp")
        assert comes("1 passed")


def test_sarif_has_what_the_format_demands(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(_plan("bbb", "cccc"))
    (tmp_path / "kernels.py").write_text(RELU.format(factor=1.5))
    words = ("--function", "kernels:relu", "--report", "sarif", "--report-path", "new/r.sarif")
    optest("run", "plan.yaml", *words).expect(1)
    report = json.loads((tmp_path / "new" / "r.sarif").read_text())
    assert (report["version"], len(report["runs"])) == ("2.1.0", 1)
    run = report["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "optest"
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert all(rule["shortDescription"]["text"] for rule in rules)
    assert run["invocations"][0]["executionSuccessful"] is True
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert [place["region"]["startLine"] for place in places] == [2, 3]
    assert {place["artifactLocation"]["uri"] for place in places} == {"plan.yaml"}
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "VALUE"
        assert result["level"] in ("none", "note", "warning", "error")
        assert "reproduce: optest run" in result["message"]["text"]
        assert all(isinstance(value, str) for value in result["partialFingerprints"].values())
    assert len({result["partialFingerprints"]["optestCase/v1"] for result in run["results"]}) == 2


@pytest.mark.heavy
def test_sarif_of_a_check_tells_alike_failures_once(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(RELU.format(factor=1.5))
    words = ("--function", "kernels:relu", "--dtype", "float32", "--set", "sizes", "--set", "ordinary")
    ended = optest("check", *words, "--report", "sarif", "--report-path", "r.sarif")
    results = json.loads((tmp_path / "r.sarif").read_text())["runs"][0]["results"]
    failed = sum(result["occurrenceCount"] for result in results)
    assert len(results) < failed
    assert f"{failed} failed in" in ended.out


def test_several_reports_make_their_folder(optest: Shell, plan: Callable[[str], Path], tmp_path: Path) -> None:
    plan(_plan("a"))
    ended = optest("run", "plan.yaml", "--report", "json", "--report", "junit", "--report-path", "out/here")
    assert (ended.status, sorted(os.listdir(tmp_path / "out" / "here"))) == (0, ["junit.xml", "report.json"])


def test_a_selection_of_nothing_says_what_there_was(optest: Shell, plan: Callable[[str], Path]) -> None:
    plan(_plan("a", "aa"))
    optest("run", "plan.yaml", "-k", "mul").expect(5, err="by -k mul; the first of 2 cases is 'a'")
