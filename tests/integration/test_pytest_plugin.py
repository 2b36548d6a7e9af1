"""Model cases as tests of pytest: collected, selected, run by optest's engine, told in its words."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
import warm_python
from texts import says

from optest.spec import CaseResult
from optest.store import RunDirectory, read_journal

pytestmark = [pytest.mark.slow, pytest.mark.skipif(pytest.importorskip("torch") is None, reason="torch")]

CASES = """\
defaults: {dtype: fp16, seed: 123, atol: 1.0e-2, rtol: 1.0e-2}
cases:
  - name: mul_ok
    op: torch.mul
    inputs: [{tensor: {shape: [1, 64]}}, {tensor: {shape: [1, 64]}}]
  - name: add.ok
    op: torch.add
    mark: paddedtensor
    inputs: [{tensor: {shape: [1, 64]}}, {tensor: {shape: [1, 1]}}]
  - name: view_accepted
    op: torch.view
    inputs: [{tensor: {shape: [2, 3, 8]}}, {value: [2, 24]}]
    expects_error: {type: RuntimeError, match: view}
  - name: left_out
    op: torch.mul
    skip_if: {expr: device == 'cpu', reason: not on a CPU}
    inputs: [{tensor: {shape: [2]}}, {value: 2}]
"""
INI = "[pytest]\naddopts = -p optest.pytest_plugin --strict-markers -p no:cacheprovider\noptest_models = models\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "pytest.ini").write_text(INI)
    models = folder / "models"
    models.mkdir()
    for model in ("gpt-oss", "granite4h"):
        (models / f"{model}.yaml").write_text(f"model: {model}\n{CASES}")
    return folder


def run(project: Path, *arguments: str, path: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return warm_python.run("pytest", *arguments, cwd=project, env=environment(project, path, env))


def run_cold(project: Path, *arguments: str, path: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """The real program, for what depends on which modules are imported."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=project,
        env=environment(project, path, env),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def environment(project: Path, path: Path | None, further: dict[str, str]) -> dict[str, str]:
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(path or ""), "HOME": str(project), "COLUMNS": "200"}
    # A worker of torch takes seconds to start: only those tests have one that are of what a worker does.
    return {**variables, "TEST_COMPILE_BACKEND": "eager", "OPTEST_ISOLATE": "none", **further}


def test_every_case_is_a_test_and_fails_in_optests_words(project: Path) -> None:
    done = run(project, OPTEST_ISOLATE="auto")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 4 passed, 2 skipped" in done.stdout
    assert says(done.stdout, "integration.torch_on_the_cpu")
    assert says(done.stdout, "integration.so_it_is_the")
    assert says(done.stdout, "integration.shares_its_execution_with")
    assert "Traceback" not in done.stdout
    summary = done.stdout.partition("short test summary info")[2]
    assert says(summary, "integration.gpt_oss_view_accepted")
    figures = [line.split() for line in done.stdout.splitlines() if line.strip().startswith(("gpt-oss ", "granite4h "))]
    assert [each[:5] for each in figures] == [["gpt-oss", "3", "4", "3", "0"], ["granite4h", "3", "4", "0", "3"]]
    assert says(done.stdout, "integration.executed_shared_operators_signatures")
    table = [line.split() for line in done.stdout.partition("= operator cases =")[2].splitlines()]
    heads = ["operator", "signatures", "executed", "shared", "passed", "failed", "skipped", "pass", "rate", "time"]
    worst = ["torch.view", "1", "1", "1", "-", "2", "-", "0.0%"]
    assert (table[1], table[2][:-2]) == (heads, worst)
    assert [row[0] for row in table[1:8]] == [
        "operator",
        "torch.view",
        "torch.mul",
        "torch.add",
        "model",
        "gpt-oss",
        "granite4h",
    ]


def test_an_item_is_selected_by_its_id_by_model_word_and_mark(project: Path) -> None:
    name = "models/gpt-oss.yaml::gpt-oss::mul_ok"
    assert f"{name} PASSED" in run(project, "-v", name).stdout
    done = run(project, "-v", "--model", "granite4h", "-k", "torch.mul and not left_out")
    assert ("1 passed, 7 deselected" in done.stdout, "granite4h::mul_ok PASSED" in done.stdout) == (True, True)
    done = run(project, "-v", "-m", "paddedtensor and model_gpt_oss")
    assert "1 passed, 7 deselected" in done.stdout
    assert "models/gpt-oss.yaml::gpt-oss::add.ok PASSED" in done.stdout  # as it is given back, dots and all


def test_an_unknown_model_is_told_with_those_that_there_are(project: Path) -> None:
    done = run(project, "--model", "granite4")
    assert done.returncode == 4
    assert says(done.stderr + done.stdout, "integration.no_model_is_called")


@pytest.mark.heavy
def test_lists_need_no_torch(project: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch was imported')\n")
    done = run_cold(project, "--list-cases", path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "gpt-oss::add.ok::torch.add  (" in done.stdout
    assert len(done.stdout.splitlines()) == 8
    assert run_cold(project, "--list-models", path=tmp_path).stdout.split() == ["gpt-oss", "granite4h"]


def test_a_run_ends_at_the_first_failure(project: Path) -> None:
    done = run(project, "-x")
    assert "1 failed, 2 passed" in done.stdout


def results_of(folder: Path) -> list[CaseResult]:
    """Of the newest run."""
    newest = max((folder / ".optest" / "runs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return list(read_journal(newest / "journal.jsonl").results)


SIX = "model: m\ncases:\n" + "".join(
    f"  - {{name: c{number}, op: torch.abs, inputs: [{{tensor: {{shape: [{number}]}}}}]}}\n" for number in range(1, 7)
)


@pytest.mark.heavy
def test_nothing_is_run_behind_the_failure_that_ends_the_session(tmp_path: Path) -> None:
    """Though quick cases are run several at once."""
    refused = "  - {name: c0, op: torch.abs, inputs: [{tensor: {shape: [2]}}], expects_error: {type: ValueError}}\n"
    (tmp_path / "m.yaml").write_text(SIX.replace("cases:\n", f"cases:\n{refused}"))
    done = run(tmp_path, "-p", "optest.pytest_plugin", "-x", "m.yaml", OPTEST_ISOLATE="auto")
    assert "1 failed" in done.stdout, done.stdout
    assert [result.id for result in results_of(tmp_path)] == ["m::c0"]


@pytest.mark.parametrize(("option", "ahead"), [("-s", 5), ("-x", 0), ("--maxfail=3", 0), ("--stepwise", 0)])
@pytest.mark.heavy
def test_nothing_is_sure_to_come_next_where_a_failure_ends_the_session(tmp_path: Path, option: str, ahead: int) -> None:
    (tmp_path / "m.yaml").write_text(SIX)
    (tmp_path / "conftest.py").write_text(
        "from optest.pytest_plugin.nodes import RESULTS\n"
        "def pytest_runtest_call(item):\n"
        "    print('ahead of', item.name, len(item.session.stash[RESULTS].following(item)))\n"
    )
    done = run(tmp_path, "-p", "optest.pytest_plugin", "-s", option, "m.yaml", OPTEST_ISOLATE="auto")
    assert f"ahead of c1 {ahead}\n" in done.stdout, done.stdout + done.stderr


def test_what_pytest_does_not_ask_for_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(SIX)
    (tmp_path / "conftest.py").write_text(
        "import pytest\n"
        "def pytest_collection_modifyitems(items):\n"
        "    for item in items[1::2]:\n"
        "        item.add_marker(pytest.mark.skip(reason='hangs here'))\n"
    )
    done = run(tmp_path, "-p", "optest.pytest_plugin", "m.yaml", "--junitxml=out.xml")
    assert "3 passed, 3 skipped" in done.stdout, done.stdout
    results = {result.id.removeprefix("m::"): result for result in results_of(tmp_path)}
    assert list(results) == ["c1", "c3", "c5"]
    told = {
        each.get("name"): float(each.get("time", "nan"))
        for each in ElementTree.parse(tmp_path / "out.xml").iter("testcase")
    }
    for name, result in results.items():
        assert result.timings.total_s is not None
        assert told[name] >= result.timings.total_s - 0.001  # with what pytest's own phases took


@pytest.mark.heavy
def test_what_a_device_does_not_have_is_noted_below_the_report(tmp_path: Path) -> None:
    tensor = "{tensor: {shape: [2], device_layout: {stride_map: [1]}}}"
    for model in ("one", "two"):
        cases = "".join(f"  - {{name: c{op}, op: torch.{op}, inputs: [{tensor}]}}\n" for op in ("abs", "neg"))
        (tmp_path / f"{model}.yaml").write_text(f"model: {model}\ncases:\n{cases}")
    for more in ([], ["-n", "1"]):
        told = run(tmp_path, "-p", "optest.pytest_plugin", *more).stdout.partition("= operator cases =")[2]
        notes = re.findall(r"^note: \S*(one|two).yaml: device_layout of 2 tensors is not used", told, re.MULTILINE)
        assert sorted(notes) == ["one", "two"], told


def test_why_a_case_was_left_out(project: Path) -> None:
    assert "not on a CPU" in run(project, "--show-skipped", "-k", "left_out").stdout


def test_a_tag_is_no_condition_of_pytests(tmp_path: Path) -> None:
    """A skipif without a condition skips in pytest; a plan's tags are words to select by."""
    (tmp_path / "plan.yaml").write_text(
        "cases:\n  - {op: relu, shapes: {input0: 8x8}, name: a, tags: [skipif, usefixtures]}\n"
    )
    done = run(tmp_path, "-p", "optest.pytest_plugin", "-v", "plan.yaml")
    assert "plan.yaml::a PASSED" in done.stdout, done.stdout


@pytest.mark.heavy
def test_words_that_pytest_takes_for_no_marks_are_known_to_k(tmp_path: Path) -> None:
    tags = ["_own", "layer:3", "norm(1)", "a-b", "2nd"]
    cases = "".join(
        f"  - {{name: c{size}, op: torch.abs, marks: ['{tag}'], inputs: [{{tensor: {{shape: [{size}]}}}}]}}\n"
        for size, tag in enumerate(tags)
    )
    (tmp_path / "m.yaml").write_text(f"model: m\ncases:\n{cases}")
    switched_on = ("-p", "optest.pytest_plugin", "--strict-markers", "-q", "m.yaml")
    assert "5 passed" in run(tmp_path, *switched_on).stdout
    assert "2 passed, 3 deselected" in run(tmp_path, *switched_on, "-m", "a-b or 2nd").stdout
    assert "2 passed, 3 deselected" in run(tmp_path, *switched_on, "-k", "_own or layer:3").stdout


WRONG_DATA = """\
model: m
cases:
  - name: select.1
    op: torch.index_select
    inputs:
      - tensor: {shape: [2, 3]}
      - value: 0
      - tensor: {shape: [4], dtype: int64, init: randint, init_args: {low: 5, high: 9}}
  - {name: hangs, op: torch.abs, inputs: [{tensor: {shape: [2]}}]}
  - {name: right, op: torch.neg, inputs: [{tensor: {shape: [2]}}]}
"""
KNOWN = """\
version: 1
expected:
  - {case: "select.*", reason: BAD_CASE, why: positions beyond the dimension}
  - {model: m, op: torch.abs, skip: true, why: hangs the device}
"""


@pytest.mark.heavy
def test_wrong_data_is_known_from_outside_and_a_line_too_many_is_told(tmp_path: Path) -> None:
    ini = "[pytest]\naddopts = -p optest.pytest_plugin\noptest_models = m.yaml\n"
    (tmp_path / "pytest.ini").write_text(ini)
    (tmp_path / "m.yaml").write_text(WRONG_DATA)
    known = tmp_path / "known.yaml"
    known.write_text(KNOWN)
    done = run(tmp_path, "--expectations", "known.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 1 skipped, 1 xfailed" in done.stdout
    assert says(done.stdout, "integration.of_cases_ran_known")
    assert "did not occur" not in done.stdout
    known.write_text(KNOWN + '  - {case: "rigth*", reason: VALUE, why: a slip}\n')
    (tmp_path / "pytest.ini").write_text(f"{ini}optest_expectations = known.yaml\n")
    for more in ([], ["-n", "1"]):
        assert says(run(tmp_path, *more).stdout, "integration.did_not_happen_rigth")
    assert "did not occur" not in run(tmp_path, "-k", "right").stdout


UNEXPECTED = """\
model: m
cases:
  - {name: quiet, op: torch.abs, mark: xfail, inputs: [{tensor: {shape: [2]}}]}
  - {name: strict, op: torch.abs, mark: [slow, {xfail: {strict: true}}], inputs: [{tensor: {shape: [3]}}]}
  - {name: lenient, op: torch.abs, mark: {xfail: {strict: false, reason: issue 7}}, inputs: [{tensor: {shape: [4]}}]}
"""


@pytest.mark.heavy
def test_a_pass_that_nobody_expects_fails_where_the_file_or_the_project_is_strict(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p optest.pytest_plugin\n")
    (tmp_path / "m.yaml").write_text(UNEXPECTED)
    done = run(tmp_path, "m.yaml")
    assert "1 failed, 2 xpassed" in done.stdout, done.stdout + done.stderr
    done = run(tmp_path, "m.yaml", "-k", "not strict")
    assert done.returncode == 0
    assert "2 xpassed" in done.stdout
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p optest.pytest_plugin\nxfail_strict = true\n")
    assert "2 failed, 1 xpassed" in run(tmp_path, "m.yaml").stdout


def test_marks_of_the_files_are_listed(project: Path) -> None:
    shown = re.findall(r"@pytest.mark.(\w+):", run(project, "--markers").stdout)
    assert {"paddedtensor", "model_gpt_oss", "model_granite4h"} <= set(shown)


@pytest.mark.heavy
def test_nothing_but_skips_is_no_success(project: Path) -> None:
    for more in (["-q"], ["-n", "1"]):
        done = run(project, "-k", "left_out", *more)
        assert done.returncode == 5, done.stdout
        assert says(done.stdout, "integration.no_operator_case_was")
    done = run(project, "-k", "left_out or mul_ok")
    assert (done.returncode, "verified" in done.stdout) == (0, False)


@pytest.mark.heavy
def test_a_file_that_is_wrong_is_told_by_line_and_the_others_run(project: Path) -> None:
    good, bad = project / "good.yaml", project / "bad.yaml"
    good.write_text(f"model: good\n{CASES}")
    bad.write_text("model: bad\ncases:\n  - name: a\n    op: torch.mul\n    inputs: [{tensor: {shap: [2]}}]\n")
    for parallel in ([], ["-n", "1"]):
        done = run(project, str(good), str(bad), *parallel)
        assert "bad.yaml:5" in done.stdout
        assert "shap" in done.stdout
        assert re.search("1 failed, 2 passed, 1 skipped, [12] error", done.stdout), done.stdout
        assert done.returncode == 1
    (project / "test_broken.py").write_text("import nothing_of_this_name\n")
    done = run(project, str(good), str(bad), "test_broken.py")
    assert "2 errors during collection" in done.stdout
    (project / "test_broken.py").unlink()


SUITE = """\
test_suite_config:
  files:
    - path: ${{ROOT}}/test_model_ops.py
      tests:
        - names: [TestSpyreModelOps::test_model_ops_db]
          mode: {mode}
          tags: [model__{model}]
          edits:
            ops:
              include:
                - name: torch.view
                  sample_inputs_func: {{args: [{{tensor: {{shape: [2, 3], dtype: float16}}}}, {{value: '({to},)'}}]}}
                  tags: [torch.view.1]
"""


@pytest.mark.heavy
def test_suite_configs_of_a_folder_run_in_their_modes(project: Path, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(INI.replace("--strict-markers", ""))
    models = tmp_path / "models"
    models.mkdir()
    for mode, to in (("mandatory_success", 6), ("xfail", 6), ("xfail_strict", 6), ("skip", 6)):
        (models / f"{mode}.yaml").write_text(SUITE.format(mode=mode, model=f"m_{mode}", to=to))
    (models / "known.yaml").write_text(SUITE.format(mode="xfail", model="refused", to=7))
    (models / "a_wrong.yaml").write_text(SUITE.format(mode="xfial", model="wrong", to=6))
    (models / "gather.yaml").write_text("test_suite_config:\n  files:\n    - path: test_gather.py\n")
    done = run(tmp_path, "-rs")
    assert "a_wrong.yaml:6 $.test_suite_config.files[0].tests[0].mode" in done.stdout
    assert says(done.stdout, "integration.gather_yaml_not_read")
    assert re.search("1 failed, 1 passed, 2 skipped, 1 xfailed, 1 xpassed, 1 error", done.stdout), done.stdout
    listed = run(tmp_path, "--list-cases")
    assert listed.returncode == 2
    assert "refused::torch.view.1::torch.view  (" in listed.stdout
    assert says(listed.stderr, "integration.gather_yaml_not_read")


def executed(project: Path) -> Counter[str]:
    """How often each call was executed in all runs of this project."""
    return Counter(each.key for each in results(project) if each.duplicate_of is None and each.status != "skipped")


def results(project: Path) -> list[CaseResult]:
    """Of all runs, the oldest first."""
    runs = RunDirectory.all(project / ".optest" / "runs")
    return [each for run in runs if run.journal_path.exists() for each in read_journal(run.journal_path).results]


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A project with a cache of pytest and no runs: two models with the same four cases, one of which fails."""
    (tmp_path / "pytest.ini").write_text(INI.replace(" -p no:cacheprovider", ""))
    models = tmp_path / "models"
    models.mkdir()
    for model in ("gpt-oss", "granite4h"):
        (models / f"{model}.yaml").write_text(f"model: {model}\n{CASES}")
    return tmp_path


@pytest.mark.heavy
def test_under_xdist_nothing_runs_twice_and_duplicates_are_told(fresh: Path) -> None:
    done = run(fresh, "-n", "2", "-v", "--junitxml=report.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 4 passed, 2 skipped" in done.stdout
    assert max(executed(fresh).values()) == 1
    assert len(results(fresh)) == 8
    [joined] = RunDirectory.all(fresh / ".optest" / "runs")
    summary = read_journal(joined.journal_path).summary
    assert summary is not None
    assert (summary.finished, summary.total) == (8, 8)
    assert "3 executed, 3 shared" in done.stdout
    assert re.search(r"\[gw\d\] \[100%\]", done.stdout)
    assert says(done.stdout, "integration.shares_its_execution_with")
    suite = ElementTree.parse(fresh / "report.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("8", "2", "2")
    messages = [each.get("message", "") for each in suite.iter("failure")]
    assert [each.startswith("NOT_REFUSED: torch on the CPU accepts") for each in messages] == [True, True]
    # what failed last is known by the ids of all, and runs alone
    done = run(fresh, "--lf", "-v")
    assert re.search(r"2 failed,? (\d+ deselected )?in", done.stdout), done.stdout
    assert "models/granite4h.yaml::granite4h::view_accepted" in done.stdout


@pytest.mark.heavy
def test_what_failed_last_runs_alone_and_a_model_alone_runs_for_real(fresh: Path) -> None:
    assert "1 failed, 2 passed" in run(fresh, "-x").stdout
    done = run(fresh, "--lf", "-v")
    assert (
        re.search(r"1 failed, \d deselected", done.stdout) is not None,
        "gpt-oss::view_accepted FAILED" in done.stdout,
    ) == (True, True)
    before = len(results(fresh))
    done = run(fresh, "--model", "granite4h", "--no-dedupe", "-q")
    assert says(done.stdout, "integration.failed_passed_skipped_deselected")
    assert all(each.duplicate_of is None for each in results(fresh)[before:])


def test_models_may_be_several_and_are_known_to_the_controller(fresh: Path) -> None:
    done = run(fresh, "--model", "gpt-oss", "--model", "granite4h", "-k", "mul_ok")
    assert "2 passed, 6 deselected" in done.stdout
    done = run(fresh, "-n", "1", "--model", "granite4")
    assert done.returncode == 4
    assert says(done.stderr + done.stdout, "integration.no_model_is_called")
    assert "INTERNALERROR" not in done.stdout


PLUGIN = """\
import ctypes
import torch

library = torch.library.Library("shaky", "DEF")
library.define("twice(Tensor x) -> Tensor")


@torch.library.impl(library, "twice", "CPU")
def twice(x):
    if x.numel() == 3:
        ctypes.string_at(0)
    return x * 2


def doubled(inputs, attributes):
    return inputs[0] * 2.0
"""
SHAKY = """\
model: shaky
defaults: {rtol: 1.0e-5, atol: 1.0e-6}
cases:
  - {name: before, op: torch.ops.shaky.twice, reference: "shaky_op:doubled", inputs: [{tensor: {shape: [2]}}]}
  - {name: dies, op: torch.ops.shaky.twice, reference: "shaky_op:doubled", inputs: [{tensor: {shape: [3]}}]}
  - {name: after, op: torch.ops.shaky.twice, reference: "shaky_op:doubled", inputs: [{tensor: {shape: [4]}}]}
"""


def test_a_real_crash_fails_its_item_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "shaky_op.py").write_text(PLUGIN)
    (tmp_path / "shaky.yaml").write_text(SHAKY)
    more = {"OPTEST_PLUGINS": "shaky_op", "OPTEST_ISOLATE": "auto"}
    done = run(tmp_path, "-p", "optest.pytest_plugin", "-v", "shaky.yaml", path=tmp_path, **more)
    outcomes = re.findall(r"shaky.yaml::shaky::(\w+) (PASSED|FAILED)", done.stdout.partition("FAILURES")[0])
    assert outcomes == [("before", "PASSED"), ("dies", "FAILED"), ("after", "PASSED")], done.stdout + done.stderr
    assert "SIGSEGV" in done.stdout
    assert "Fatal Python error" not in done.stderr


@pytest.mark.heavy
def test_ctrl_c_ends_the_case_that_is_running(tmp_path: Path) -> None:
    asleep = "pathlib.Path('asleep').touch(); time.sleep(200)"
    plugin = PLUGIN.replace("ctypes.string_at(0)", asleep).replace("import torch\n", "import pathlib, time, torch\n", 1)
    (tmp_path / "shaky_op.py").write_text(plugin)
    (tmp_path / "shaky.yaml").write_text(SHAKY)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "optest.pytest_plugin", "shaky.yaml"],
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(tmp_path),
            "OPTEST_PLUGINS": "shaky_op",
            "TEST_COMPILE_BACKEND": "eager",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    ends = time.monotonic() + 500
    while not any(tmp_path.rglob("asleep")) and time.monotonic() < ends:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    told, _ = process.communicate(timeout=500)
    assert process.returncode == 2, told
    [journal] = (tmp_path / ".optest" / "runs").glob("*/journal.jsonl")
    kept = read_journal(journal)
    assert [each.status for each in kept.results] == ["passed"]
    assert kept.summary is not None
    assert kept.summary.interrupted


def test_without_the_line_nothing_of_the_plugin_is_there(tmp_path: Path) -> None:
    """Options of the same names belong to the project, and its YAML files are its own."""
    (tmp_path / "gpt.yaml").write_text(f"model: gpt\n{CASES}")
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\naddopts = --strict-markers\n")
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n"
        "    for name in ('--model', '--list-models', '--compile-backend', '--torch-device', '--dedupe'):\n"
        "        parser.addoption(name)\n"
    )
    (tmp_path / "test_own.py").write_text(
        "import sys\n\ndef test_own():\n    assert not [name for name in sys.modules if name.startswith('optest.')]\n"
    )
    done = run_cold(tmp_path, "--model", "mine")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_test_that_is_named_runs_alone(fresh: Path) -> None:
    """What the ini states is for runs that say nothing, or name a model."""
    (fresh / "test_own.py").write_text("def test_own():\n    pass\n")
    assert "1 passed" in run(fresh, "test_own.py").stdout
    assert "2 passed, 7 deselected" in run(fresh, "test_own.py", "--model", "gpt-oss", "-k", "own or add.ok").stdout


def test_what_is_listed_is_what_would_be_collected(fresh: Path) -> None:
    """The ini's files stand in for a path that nobody says, and for one that --model is asked of."""
    (fresh / "other").mkdir()
    (fresh / "other" / "late.yaml").write_text(f"model: late\n{CASES}")
    assert run(fresh, "--list-models").stdout.split() == ["gpt-oss", "granite4h"]
    assert run(fresh, "--list-models", "models/gpt-oss.yaml").stdout.split() == ["gpt-oss"]
    assert run(fresh, "--list-models", "models", "other/late.yaml").stdout.split() == ["gpt-oss", "granite4h", "late"]
    (fresh / "test_own.py").write_text("def test_own():\n    pass\n")
    assert run(fresh, "--list-models", "test_own.py").stdout.split() == []
    assert run(fresh, "--list-models", "--model", "gpt-oss", "test_own.py").stdout.split() == ["gpt-oss"]


@pytest.mark.heavy
def test_folders_are_searched_for_model_cases_alone(fresh: Path) -> None:
    """Other tools have files with a key model, too; a folder that the ini names holds nothing but cases."""
    (fresh / "pytest.ini").write_text("[pytest]\naddopts = -p optest.pytest_plugin\n")
    (fresh / "config.yaml").write_text("model: resnet\nlearning_rate: 0.1\n")
    late = fresh / "late.yaml"
    late.write_text("# " + "long " * 2000 + "\ncases:\n" + CASES.partition("cases:\n")[2] + "model: late\n")
    assert run(fresh, "--list-models").stdout.split() == ["late", "gpt-oss", "granite4h"]
    (fresh / "pytest.ini").write_text("[pytest]\naddopts = -p optest.pytest_plugin\noptest_models = models\n")
    assert run(fresh, "--list-models").stdout.split() == ["gpt-oss", "granite4h"]
    assert "4/12 tests collected" in run(fresh, "--collect-only", "-q", ".", "-k", "late").stdout
    assert "no tests collected" in run(fresh, "--collect-only", "-q", "-k", "late").stdout
    (fresh / "pytest.ini").write_text("[pytest]\naddopts = -p optest.pytest_plugin\noptest_models = nowhere\n")
    done = run(fresh)
    assert done.returncode == 4
    assert re.search(r"pytest.ini: optest_models names \S+nowhere, which does not exist", done.stderr + done.stdout)


@pytest.mark.heavy
def test_what_is_wrong_with_every_file_is_told_once(fresh: Path) -> None:
    """A device that is not there, a compiler that nobody knows: the others of the files are left out, and say so."""
    (fresh / "test_own.py").write_text("def test_own():\n    pass\n")
    wrong = fresh / "models" / "wrong.yaml"
    wrong.write_text("model: wrong\ncases: [{name: a, op: torch.mul, inputs: [{tensor: {shap: [2]}}]}]\n")
    done = run(fresh, "-rs", "--torch-device", "cuda")
    left_out = "SKIPPED [1] models/granite4h.yaml:1: not collected, for the same reason as models/gpt-oss.yaml"
    assert left_out in done.stdout
    assert "1 passed, 2 skipped, 1 error" in done.stdout
    for more in (["-k", "mul_ok"], ["-n", "1"]):
        done = run(fresh, *more, "--torch-device", "cudda")
        assert done.returncode == 4, done.stdout + done.stderr
        assert says(done.stdout + done.stderr, "integration.unknown_torch_device_cudda")
    (fresh / "models" / "other.yaml").write_text(wrong.read_text().replace("wrong", "other"))
    done = run(fresh, "-q", "-k", "nothing")
    assert "2 errors" in done.stdout  # each has its own line
    assert "skipped" not in done.stdout


def test_other_options_of_a_run_are_stated_by_their_variables(fresh: Path) -> None:
    done = run(fresh, "-k", "mul_ok and model_gpt_oss", "-rs", OPTEST_MAX_BYTES="10")
    assert re.search(r"SKIPPED.*--max-bytes", done.stdout), done.stdout


@pytest.mark.heavy
def test_marks_of_a_conftest_hold_for_their_item_alone(fresh: Path) -> None:
    """With -n, too, where items that share an execution are told together."""
    (fresh / "conftest.py").write_text(
        "import pytest\n\n\ndef pytest_collection_modifyitems(items):\n"
        "    for item in items:\n"
        "        if item.nodeid.endswith('gpt-oss::mul_ok'):\n"
        "            item.add_marker(pytest.mark.skip(reason='of this model alone'))\n"
        "        if item.nodeid.endswith('granite4h::add.ok'):\n"
        "            item.add_marker(pytest.mark.xfail(strict=True))\n"
        "        if item.nodeid.endswith('granite4h::view_accepted'):\n"
        "            item.add_marker(pytest.mark.xfail)\n"
    )
    for more in ([], ["-n", "1"]):
        done = run(fresh, "-rA", *more)
        assert says(done.stdout, "integration.failed_passed_skipped_xfailed"), done.stdout + done.stderr
        assert "PASSED models/granite4h.yaml::granite4h::mul_ok" in done.stdout
        assert "FAILED models/granite4h.yaml::granite4h::add.ok" in done.stdout


@pytest.mark.heavy
def test_the_compile_backend_is_that_of_the_ini_unless_somebody_says_another(fresh: Path) -> None:
    def asked(*arguments: str, **env: str) -> str:
        code = "def pytest_sessionstart(session):\n    print('asked:', session.config.getoption('compile_backend'))\n"
        (fresh / "conftest.py").write_text(code)
        done = run(fresh, "--collect-only", "-q", "-s", "-k", "nothing", *arguments, path=None, **env)
        return re.findall("asked: (\\w+)", done.stdout)[0]

    assert asked(TEST_COMPILE_BACKEND="inductor") == "inductor"
    assert asked("--compile-backend", "eager", TEST_COMPILE_BACKEND="inductor") == "eager"
    (fresh / "models" / "granite4h.yaml").unlink()
    with (fresh / "pytest.ini").open("a") as ini:
        ini.write("optest_compile_backend = aot_eager\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-k", "mul_ok", "-v"], cwd=fresh, capture_output=True, text=True, timeout=600,
        env={"PATH": "/usr/bin:/bin", "HOME": str(fresh)},
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    run_info = next((fresh / ".optest" / "runs").glob("*/run.json")).read_text()
    assert '"aot_eager"' in run_info
    assert says(done.stdout, "integration.model_cases_run_by")


ODD = ("a", "a[0]", "a[0-x]", "a::b", "a b", "größe.é中", "p/q", 'it\'s "d"')


COLLECTING = """
import json, sys
import pytest

class Items:
    def pytest_collection_finish(self, session):
        self.ids = [item.nodeid for item in session.items]

for named in json.loads(sys.argv[1]):
    items = Items()
    switched_on = ["-p", "optest.pytest_plugin", "-p", "no:cacheprovider", "-qq", "--collect-only"]
    status = pytest.main([*switched_on, *named], [items])
    print("ids", json.dumps([int(status), items.ids]))
"""


@pytest.mark.parametrize("model", ["plain", "net [v1.2] ü"])
def test_every_id_selects_its_item_alone_when_it_is_given_back(tmp_path: Path, model: str) -> None:
    cases = [
        {"name": name, "op": "torch.abs", "inputs": [{"tensor": {"shape": [size]}}]} for size, name in enumerate(ODD, 1)
    ]
    (tmp_path / "m.yaml").write_text(json.dumps({"model": model, "cases": cases}))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # or the ids begin at some file of a folder above
    ids = [f"m.yaml::{model}::{name}" for name in ODD]
    asked = [["m.yaml"], *([each] for each in ids), ids[:2], [ids[0], "m.yaml"]]
    (tmp_path / "collecting.py").write_text(COLLECTING)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TEST_COMPILE_BACKEND": "eager"}
    done = warm_python.run("collecting", json.dumps(asked), cwd=tmp_path, env=environment)
    got = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("ids ")]
    expected = [ids, *([each] for each in ids), ids[:2], ids]
    assert [(status, sorted(each)) for status, each in got] == [(0, sorted(each)) for each in expected], done.stderr
