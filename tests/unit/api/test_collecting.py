"""Runs for front ends such as pytest: files of a run, and notes."""

from __future__ import annotations

from pathlib import Path

import pytest
from texts import refusal

from optest.api.collecting import streams, summary_of_runs
from optest.api.run_request import run_request
from optest.api.running import run
from optest.errors import UsageError
from optest.spec import Status
from optest.store import read_journal


def test_joined_run_names_every_file(tmp_path: Path) -> None:
    """And who asked for it, where somebody goes on with it by its name alone."""
    options = {"runs_dir": str(tmp_path / "runs"), "isolate": "none"}
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for size, path in enumerate(files, 2):
        path.write_text(f"cases: [{{op: abs, shapes: {{input0: [{size}]}}}}]\n")
    requests = [run_request({**options, "plan": str(path)}) for path in files]
    ((stream, cases),) = streams([(request, case) for request in requests for case in request.cases])
    assert [stream.result(case).status for case in cases] == [Status.PASSED] * 2
    stream.close()
    assert stream.info is not None
    info = read_journal(Path(stream.info.directory) / "journal.jsonl").info
    assert info is not None
    assert info.options["plan"] == [str(path) for path in files]
    with refusal(UsageError, "api.was_pytest_go_on"):
        run({"resume": info.run_id, "runs_dir": options["runs_dir"]})


def test_notes_of_files_are_printed_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    options = {"runs_dir": str(tmp_path / "runs"), "isolate": "none"}
    tensor = "{tensor: {shape: [2], device_layout: {stride_map: [1]}}}"
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for path in files:
        cases = [f"{{name: {name}, op: torch.abs, inputs: [{tensor}]}}" for name in ("one", "two")]
        path.write_text(f"model: {path.stem}\ncases: [{', '.join(cases)}]\n")
    requests = [run_request({**options, "plan": str(path)}) for path in files]
    ((stream, cases),) = streams([(request, case) for request in requests for case in request.cases])
    for case in cases:
        stream.result(case)
    stream.close()
    assert stream.info is not None
    lines = summary_of_runs([Path(stream.info.directory)] * 2)  # as if two workers of xdist had a run each
    assert [line.partition(" is not used")[0] for line in lines if "device_layout" in line] == [
        f"note: {path}: device_layout of 2 tensors" for path in files
    ]
