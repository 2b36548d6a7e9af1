"""Reports as a user asks for them: several in one run, in a folder, from a plan, and again from the journal."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from texts import says
from user_shell import Shell

PLUGIN = {"OPTEST_PLUGINS": "user_plugin"}
PLUGIN_SOURCE = """
import faulty_backend
faulty_backend.register()
"""
PLAN = """
version: 1
{report}
defaults: {{dtypes: float32}}
cases:
  - {{op: relu, name: good, shapes: {{input0: 4}}}}
  - {{op: relu, name: bad, shapes: {{input0: 4}}, backend_config: {{faulty: {{fault: value}}}}}}
  - {{op: relu, name: noisy, shapes: {{input0: 4}}, backend_config: {{faulty: {{fault: raise}}}}}}
"""


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    (tmp_path / "user_plugin.py").write_text(PLUGIN_SOURCE)
    return tmp_path


def runs(folder: Path) -> Path:
    (run,) = (folder / ".optest" / "runs").glob("2*")
    return run


def test_several_reports_lie_side_by_side(optest: Shell, plan: Callable[[str], Path], faulty: Path) -> None:
    plan(PLAN.format(report=""))
    asked = ("--report", "json", "--report", "junit", "--report", "markdown", "--report", "github")
    ended = optest("run", "--plan", "plan.yaml", "--backend", "faulty", *asked, env=PLUGIN)
    assert ended.status == 1, ended.text
    run = runs(faulty)
    assert [case["status"] for case in json.loads((run / "report.json").read_text())["cases"]] == [
        "passed",
        "failed",
        "error",
    ]
    root = ET.parse(run / "junit.xml").getroot()
    assert [[each.tag for each in case] for case in root.iter("testcase")] == [[], ["failure"], ["error"]]
    markdown = (run / "summary.md").read_text()
    assert markdown.startswith("## ❌ optest: 1 passed, 1 failed, 1 error")
    (first, second) = [line for line in ended.out.splitlines() if line.startswith("::error")]
    assert first.startswith("::error file=plan.yaml,line=7,title=FAILED VALUE%3A bad::")
    assert says(second, "cli.shapes_do_not_match")
    block = ended.out[ended.out.index("\nFAILED  bad") + 1 :].partition("\n\n")[0]
    assert block in markdown
    assert block == next(case for case in root.iter("failure")).text
    for form, name in (("junit", "junit.xml"), ("markdown", "summary.md"), ("json", "report.json")):
        again = optest("report", "latest", "--format", form, env=PLUGIN)
        assert again.out == (run / name).read_text()
    assert optest("report", "latest", "--format", "github", env=PLUGIN).out == f"{first}\n{second}\n"


@pytest.mark.parametrize("path", ["out", "report.json"])
def test_annotations_are_printed_wherever_other_reports_are_written(
    optest: Shell, plan: Callable[[str], Path], faulty: Path, path: str
) -> None:
    plan(PLAN.format(report=""))
    (faulty / "out").mkdir()
    asked = ("--report", "json", "--report", "github", "--report-path", path)
    ended = optest("run", "--plan", "plan.yaml", "--backend", "faulty", "--case", "bad", *asked, env=PLUGIN)
    (printed,) = [line for line in ended.out.splitlines() if line.startswith("::error")]
    assert printed.startswith("::error file=plan.yaml,line=7,title=FAILED VALUE%3A bad::")
    assert [each.name for each in (faulty / "out").iterdir()] == (["report.json"] if path == "out" else [])
    assert (faulty / "report.json").exists() is (path == "report.json")


def test_annotations_are_written_to_a_named_file(optest: Shell, plan: Callable[[str], Path], faulty: Path) -> None:
    plan(PLAN.format(report=""))
    asked = ("--case", "bad", "--report", "github", "--report-path", "found.txt")
    ended = optest("run", "--plan", "plan.yaml", "--backend", "faulty", *asked, env=PLUGIN)
    assert "::error" not in ended.out
    assert (faulty / "found.txt").read_text().startswith("::error file=plan.yaml,line=7")


@pytest.mark.parametrize(
    ("path", "begins"), [("r.xml", "<?xml"), ("r.md", "## "), ("r.json", "{"), ("r.out", "{")], ids=str
)
def test_a_path_alone_asks_by_its_ending(
    path: str, begins: str, optest: Shell, plan: Callable[[str], Path], faulty: Path
) -> None:
    plan(PLAN.format(report=""))
    assert optest("run", "--plan", "plan.yaml", "--case", "good", "--report-path", path, env=PLUGIN).status == 0
    assert (faulty / path).read_text().startswith(begins)


def test_one_file_is_not_for_two_reports(optest: Shell, plan: Callable[[str], Path], faulty: Path) -> None:
    plan(PLAN.format(report=""))
    ended = optest(
        "run", "--plan", "plan.yaml", "--report", "json", "--report", "junit", "--report-path", "r.json", env=PLUGIN
    )
    assert ended.status == 2
    assert says(ended.err, "cli.report_path_is_the")
    assert not (faulty / ".optest").exists()


def test_a_plan_asks_for_a_report(optest: Shell, plan: Callable[[str], Path], faulty: Path) -> None:
    (faulty / "out").mkdir()
    plan(PLAN.format(report="report: {format: junit, path: out/r.xml}"))
    assert optest("run", "--plan", "plan.yaml", "--case", "good", env=PLUGIN).status == 0
    assert (faulty / "out" / "r.xml").read_text().startswith("<?xml")
    plan(PLAN.format(report="report: {format: junti}"))
    ended = optest("run", "--plan", "plan.yaml")
    assert ended.status == 2
    assert "junit" in ended.err


def test_every_report_that_is_offered_can_be_made(optest: Shell, plan: Callable[[str], Path]) -> None:
    from optest.reporting import reporters
    from optest.reporting.from_journal import FORMATS

    assert set(FORMATS) <= set(reporters.names())


def test_unknown_report_is_refused_before_the_run(optest: Shell, faulty: Path) -> None:
    ended = optest("run", "--op", "relu", "--dtype", "float32", "--shape", "input0=3", "--report", "junti")
    assert ended.status == 2
    assert says(ended.err, "cli.did_you_mean_junit")
    assert not (faulty / ".optest").exists()
