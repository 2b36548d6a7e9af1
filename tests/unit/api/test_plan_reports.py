"""A plan may ask for any report that `--report` knows, those of installed packages included."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from texts import refusal, says

import optest.reporting
from optest.api.run_request import run_request
from optest.api.running import run
from optest.errors import Unavailable, UnknownName
from optest.reporting import reporters
from optest.reporting.file_report import FileFormat, FileReporter

PLAN = """\
version: 1
report: {{format: {form}, path: out.txt}}
cases:
  - {{op: relu, dtypes: {{input0: float32}}, shapes: {{input0: 2x3}}}}
"""


def make(*, stream: Any, path: Path | None, verbosity: int, color: bool | None) -> FileReporter:
    """What a package has under its entry point."""
    return FileReporter(path, FileFormat(text=f"{__name__}:mine", file_name="mine.txt", begins=()))


def mine(_: object, results: Sequence[object], __: object) -> str:
    return f"mine: {len(results)}"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(optest.reporting, "load_entry_points", lambda _: [("mine", f"{__name__}:make")])
    monkeypatch.setattr(reporters, "_entries", dict(reporters._entries))
    return tmp_path / "plan.yaml"


def test_a_report_of_a_package(plan: Path) -> None:
    plan.write_text(PLAN.format(form="mine"))
    assert run({"plan": str(plan), "quiet": 2}).exit_status == 0
    assert (plan.parent / "out.txt").read_text() == "mine: 1"


def test_unknown_report_of_a_plan_shows_its_line(plan: Path) -> None:
    plan.write_text(PLAN.format(form="jnit"))
    with refusal(UnknownName, "api.unknown_report_jnit_did") as caught:
        run_request({"plan": "plan.yaml"})
    assert says(str(caught.value), "api.at_plan_yaml_report")


def test_missing_package_of_report_prevents_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "optest.reporting.html_report", raising=False)
    for given in ({"report": ("html",)}, {"report_path": "report.html"}):
        with pytest.raises(Unavailable, match="jinja2"):
            run({"op": ("relu",), "dtype": "float32", "shape": ("input0=2x3",), **given})
    assert not (tmp_path / ".optest").exists()
