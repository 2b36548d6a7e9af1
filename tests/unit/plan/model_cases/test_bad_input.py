"""What a file of model cases may not hold: each fault says file and line, what, and what to write instead.

One wrong file keeps no other from running: a plan that includes both runs the other one and ends with status 2.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from model_kit import said
from texts import says

from optest.api import run
from optest.api.running import Report
from optest.errors import PlanError

GOOD = "model: good\ncases:\n  - {name: a, op: torch.neg, inputs: [{tensor: {shape: [2, 3], init: randn}}]}\n"


def case(text: str) -> str:
    return f"model: bad\ncases:\n  - {{name: a, op: torch.mul, {text}}}\n"


def tensor(text: str) -> str:
    return case(f"inputs: [{{tensor: {{shape: [2, 3], {text}}}}}]")


def py(text: str) -> str:
    return case(f"inputs: [{{py: '{text}'}}]")


FAULTS = {
    "default and defaults": (
        "model: bad\ndefault: {seed: 1}\ndefaults: {seed: 2}\n" + GOOD.partition("\n")[2], 3, "both set",
    ),
    "unknown key of a mark": (case("inputs: [], mark: {xfail: {foo: 1}}"), 3, "known keys: reason, strict"),
    "an option of no mark": (case("inputs: [{value: 1}], mark: {slow: {reason: x}}"), 3, "unknown key 'slow' of marks"),
    "an unknown option of a mark": (case("inputs: [{value: 1}], mark: {xfail: {stric: true}}"), 3, "'stric' of xfail"),
    "a mark that is strict by word": (case("inputs: [{value: 1}], mark: {xfail: {strict: 'no'}}"), 3, "strict is 'no'"),
    "a power": (py("9**9**9"), 3, "9 ** 9 ** 9 is computed"),
    "a negative stride": (tensor("stride: [-3, 1]"), 3, "-3"),
    "two cases of one name": (GOOD.replace("good", "bad") + GOOD.splitlines()[2] + "\n", 4, "like the one in line 3"),
    "no cases": ("model: bad\ncases: []\n", 2, "cases is []"),
    "a model named twice": ("model: bad\n" + GOOD.replace("good", "worse"), 2, "twice"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_names_file_line_and_remedy(fault: str) -> None:
    text, line, told = FAULTS[fault]
    message = said(text, file="bad.yaml")
    assert message.startswith(f"bad.yaml:{line} ")
    assert told in message
    assert message.count("\n") >= 1, "no remedy"


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("this ran",))


def test_code_in_saved_tensor_is_never_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt", "w") as archive:
        archive.writestr("x/data.pkl", pickle.dumps(Evil(), protocol=2))
    message = said(case("inputs: [{file: x.pt}]"), file=str(tmp_path / "bad.yaml"))
    assert f"{tmp_path}/bad.yaml:3 " in message
    assert "builtins.print" in message or "__builtin__.print" in message
    assert "this ran" not in capsys.readouterr().out


@pytest.fixture
def outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Report, str]]:
    """Return a function that writes files and runs all.yaml: its report and its error output."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)

    def run_files(files: dict[str, str], **options: Any) -> tuple[Report, str]:
        for name, text in files.items():
            Path(f"{name}.yaml").write_text(text)
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            report = run(plan=f"{tmp_path}/all.yaml", isolate="none", quiet=2, **options)
        return report, errors.getvalue()

    return run_files


BOTH = {"all": "include: [bad.yaml, good.yaml]\n", "good": GOOD}


@pytest.mark.torch
@pytest.mark.parametrize("fault", ["default and defaults", "no cases", "a power", "a model named twice"])
def test_other_files_still_run(fault: str, outcome: Any, tmp_path: Path) -> None:
    report, errors = outcome({**BOTH, "bad": FAULTS[fault][0]})
    assert [(each.id, each.status.value) for each in report.results] == [("good::a", "passed")]
    assert report.exit_status == 2
    assert f"{tmp_path}/bad.yaml:{FAULTS[fault][1]} " in errors
    assert f"not run: {tmp_path}/bad.yaml" in errors


@pytest.mark.torch
@pytest.mark.parametrize("fault", ["no cases", "two cases of one name", "a negative stride"])
def test_invalid_plan_file_runs_nothing(fault: str, outcome: Any) -> None:
    text, line, told = FAULTS[fault]
    with pytest.raises(PlanError) as raised:
        outcome({"all": text})
    assert f"all.yaml:{line} " in str(raised.value)
    assert told in str(raised.value)


@pytest.mark.torch
def test_file_problems_are_reported_with_empty_selection(outcome: Any) -> None:
    bad, line, _ = FAULTS["no cases"]
    with pytest.raises(PlanError, match=rf"bad\.yaml:{line} "):
        outcome({**BOTH, "bad": bad}, keyword="nothing")


@pytest.mark.torch
def test_two_files_of_one_model_run_the_first(outcome: Any) -> None:
    report, errors = outcome({"all": "include: [one.yaml, two.yaml]\n", "one": GOOD, "two": GOOD})
    assert (len(report.results), report.exit_status) == (1, 2)
    assert says(errors, "plan.include_file_two_yaml")


@pytest.mark.parametrize(
    "files",
    [
        {"all": "include: [bad.yaml]\n", "bad": "model: bad\ncases: []\n"},
        {"all": "include: [plan.yaml, good.yaml]\n", "plan": "cases: [{op: relu, shaps: {}}]\n", "good": GOOD},
        {"all": "include: [good.yaml]\ncases: [{op: relu, shaps: {}}]\n", "good": GOOD},
        {"all": "include: [good.yaml, missing.yaml]\n", "good": GOOD},
    ],
    ids=["nothing else", "a plan is wrong", "the plan itself is wrong", "a file is missing"],
)
def test_a_wrong_plan_runs_nothing(files: dict[str, str], outcome: Any) -> None:
    with pytest.raises(PlanError):
        outcome(files)
