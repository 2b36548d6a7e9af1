"""Runs for front ends such as pytest: files of a run, and notes."""

from __future__ import annotations

from pathlib import Path

import pytest
from texts import refusal

from optest.api.collecting import CaseStream, streams, summary_of_runs
from optest.api.run_request import run_request
from optest.api.running import run
from optest.errors import UsageError
from optest.spec import Status
from optest.store import read_journal


def joined(folder: Path, *texts: str) -> tuple[CaseStream, list[Path]]:
    """A stream that has run all cases of plans with these texts, and the plans."""
    files = [folder / f"{letter}.yaml" for letter in "ab"]
    for path, text in zip(files, texts, strict=True):
        path.write_text(text)
    options = {"runs_dir": str(folder / "runs"), "isolate": "none"}
    requests = [run_request({**options, "plan": str(path)}) for path in files]
    ((stream, cases),) = streams([(request, case) for request in requests for case in request.cases])
    assert [stream.result(case).status for case in cases] == [Status.PASSED] * len(cases)
    stream.close()
    assert stream.info is not None
    return stream, files


def test_joined_run_names_every_file(tmp_path: Path) -> None:
    """And who asked for it, where somebody goes on with it by its name alone."""
    stream, files = joined(tmp_path, *(f"cases: [{{op: abs, shapes: {{input0: [{size}]}}}}]\n" for size in (2, 3)))
    assert stream.info is not None
    info = read_journal(Path(stream.info.directory) / "journal.jsonl").info
    assert info is not None
    assert info.options["plan"] == [str(path) for path in files]
    with refusal(UsageError, "api.was_pytest_go_on"):
        run({"resume": info.run_id, "runs_dir": str(tmp_path / "runs")})


def test_notes_of_files_are_printed_once(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    tensor = "{tensor: {shape: [2], device_layout: {stride_map: [1]}}}"
    cases = [f"{{name: {name}, op: torch.abs, inputs: [{tensor}]}}" for name in ("one", "two")]
    stream, files = joined(tmp_path, *(f"model: {name}\ncases: [{', '.join(cases)}]\n" for name in "ab"))
    assert stream.info is not None
    lines = summary_of_runs([Path(stream.info.directory)] * 2)  # as if two workers of xdist had a run each
    assert [line.partition(" is not used")[0] for line in lines if "device_layout" in line] == [
        f"note: {path}: device_layout of 2 tensors" for path in files
    ]
