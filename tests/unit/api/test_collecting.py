"""What a result is to a face that knows passes, failures and skips."""

from __future__ import annotations

from pathlib import Path

import pytest
from texts import refusal

from optest.api.collecting import file_request, is_bad, is_inconclusive, streams, summary_of_runs
from optest.api.running import run
from optest.errors import UsageError
from optest.spec import CaseResult, Evidence, Measure, Reason, Status, Verdict
from optest.store import read_journal

MEASURE = Measure(output="out", dtype="float32", shape=(2,), compared=2)
VERDICTS = {
    "passed": Verdict(status=Status.PASSED, evidence=Evidence.MEASURED, measures=(MEASURE,)),
    "failed": Verdict(status=Status.FAILED, reason=Reason.VALUE, message="off"),
    "suspect": Verdict(status=Status.SUSPECT, message="zeros pass too"),
    "skipped": Verdict(status=Status.SKIPPED, message="left out"),
    "unchecked": Verdict(status=Status.UNCHECKED, message="nothing was compared"),
}


@pytest.mark.parametrize(
    ("name", "bad", "nothing"),
    [
        ("passed", False, False),
        ("failed", True, False),
        ("suspect", True, False),
        ("skipped", False, True),
        ("unchecked", False, True),
    ],
)
def test_only_a_pass_is_a_pass(name: str, bad: bool, nothing: bool) -> None:
    result = CaseResult(
        id="a", key="k", operator="add", target="torch", reference="torch", mode="forward", verdict=VERDICTS[name],
        seed=0, dtypes=(), shapes={}, backend="torch", kind="cpu",
    )  # fmt: skip
    assert (is_bad(result), is_inconclusive(result)) == (bad, nothing)


def test_a_run_says_every_file_that_its_cases_are_from(tmp_path: Path) -> None:
    """And who asked for it, where somebody goes on with it by its name alone."""
    options = {"runs_dir": str(tmp_path / "runs"), "isolate": "none"}
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for size, path in enumerate(files, 2):
        path.write_text(f"cases: [{{op: abs, shapes: {{input0: [{size}]}}}}]\n")
    requests = [file_request(path, options) for path in files]
    ((stream, cases),) = streams([(request, case) for request in requests for case in request.cases])
    assert [stream.result(case).status for case in cases] == [Status.PASSED] * 2
    stream.close()
    assert stream.info is not None
    info = read_journal(Path(stream.info.directory) / "journal.jsonl").info
    assert info is not None
    assert info.options["plan"] == [str(path) for path in files]
    with refusal(UsageError, "api.was_pytest_go_on"):
        run({"resume": info.run_id, "runs_dir": options["runs_dir"]})


def test_what_files_state_and_no_run_can_do_is_noted_once_for_each(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    options = {"runs_dir": str(tmp_path / "runs"), "isolate": "none"}
    tensor = "{tensor: {shape: [2], device_layout: {stride_map: [1]}}}"
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for path in files:
        cases = [f"{{name: {name}, op: torch.abs, inputs: [{tensor}]}}" for name in ("one", "two")]
        path.write_text(f"model: {path.stem}\ncases: [{', '.join(cases)}]\n")
    requests = [file_request(path, options) for path in files]
    ((stream, cases),) = streams([(request, case) for request in requests for case in request.cases])
    for case in cases:
        stream.result(case)
    stream.close()
    assert stream.info is not None
    lines = summary_of_runs([Path(stream.info.directory)] * 2)  # as if two workers of xdist had a run each
    assert [line.partition(" is not used")[0] for line in lines if "device_layout" in line] == [
        f"note: {path}: device_layout of 2 tensors" for path in files
    ]
