"""Reports as a user asks for them: several in one run, in a folder, from a plan, and again from the journal."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from texts import says
from user_shell import Ended, Shell

from optest.reporting import reporters
from optest.reporting.from_journal import FORMATS

PLUGIN = {"OPTEST_PLUGINS": "faulty_backend"}
ANNOTATION = "::error file=plan.yaml,line=7,title=FAILED VALUE%3A bad::"
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
def run(optest: Shell, plan: Callable[[str], Path]) -> Shell:
    """Run the plan with what it says of a report, and with these options."""

    def call(*words: str, report: str = "") -> Ended:
        plan(PLAN.format(report=report))
        return optest("run", "--plan", "plan.yaml", *words, env=PLUGIN)

    return call


def test_several_reports_lie_side_by_side(optest: Shell, run: Shell, tmp_path: Path) -> None:
    asked = ("--report", "json", "--report", "junit", "--report", "markdown", "--report", "github")
    ended = run("--backend", "faulty", *asked).expect(1)
    (folder,) = (tmp_path / ".optest" / "runs").glob("2*")
    statuses = [case["status"] for case in json.loads((folder / "report.json").read_text())["cases"]]
    assert statuses == ["passed", "failed", "error"]
    root = ET.parse(folder / "junit.xml").getroot()
    assert [[each.tag for each in case] for case in root.iter("testcase")] == [[], ["failure"], ["error"]]
    markdown = (folder / "summary.md").read_text()
    assert markdown.startswith("## ❌ optest: 1 passed, 1 failed, 1 error")
    (first, second) = [line for line in ended.out.splitlines() if line.startswith("::error")]
    assert first.startswith(ANNOTATION)
    assert says(second, "cli.shapes_do_not_match")
    block = ended.out[ended.out.index("\nFAILED  bad") + 1 :].partition("\n\n")[0]
    assert block in markdown
    assert block == next(case for case in root.iter("failure")).text
    for form, name in (("junit", "junit.xml"), ("markdown", "summary.md"), ("json", "report.json")):
        assert optest("report", "latest", "--format", form, env=PLUGIN).out == (folder / name).read_text()
    assert optest("report", "latest", "--format", "github", env=PLUGIN).out == f"{first}\n{second}\n"


@pytest.mark.parametrize("path", ["out", "report.json"])
def test_annotations_are_printed_wherever_other_reports_are_written(run: Shell, tmp_path: Path, path: str) -> None:
    (tmp_path / "out").mkdir()
    asked = ("--report", "json", "--report", "github", "--report-path", path)
    ended = run("--backend", "faulty", "--case", "bad", *asked)
    (printed,) = [line for line in ended.out.splitlines() if line.startswith("::error")]
    assert printed.startswith(ANNOTATION)
    assert [each.name for each in (tmp_path / "out").iterdir()] == (["report.json"] if path == "out" else [])
    assert (tmp_path / "report.json").exists() is (path == "report.json")


def test_annotations_are_written_to_a_named_file(run: Shell, tmp_path: Path) -> None:
    ended = run("--backend", "faulty", "--case", "bad", "--report", "github", "--report-path", "found.txt")
    assert "::error" not in ended.out
    assert (tmp_path / "found.txt").read_text().startswith(ANNOTATION)


@pytest.mark.parametrize(
    ("path", "begins"), [("r.xml", "<?xml"), ("r.md", "## "), ("r.json", "{"), ("r.out", "{")], ids=str
)
def test_a_path_alone_asks_by_its_ending(path: str, begins: str, run: Shell, tmp_path: Path) -> None:
    run("--case", "good", "--report-path", path).expect(0)
    assert (tmp_path / path).read_text().startswith(begins)


def test_one_file_is_not_for_two_reports(run: Shell, tmp_path: Path) -> None:
    ended = run("--report", "json", "--report", "junit", "--report-path", "r.json").expect(2)
    assert says(ended.err, "cli.report_path_is_the")
    ended = run("--report", "junti").expect(2)
    assert says(ended.err, "cli.did_you_mean_junit")
    assert not (tmp_path / ".optest").exists()


def test_a_plan_asks_for_a_report(run: Shell, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    run("--case", "good", report="report: {format: junit, path: out/r.xml}").expect(0)
    assert (tmp_path / "out" / "r.xml").read_text().startswith("<?xml")
    run(report="report: {format: junti}").expect(2, err="junit")


def test_every_report_that_is_offered_can_be_made() -> None:
    assert set(FORMATS) <= set(reporters.names())
