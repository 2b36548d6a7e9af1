"""A hanging command from the command line: its last words are reported, cleanup runs, and the others go on."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

from test_command_backend import arguments

SECONDS = (1, 10, 100)
"""A deadline after which the last words were said: on a busy machine a later one."""

PLAN = """
version: 1
backend: command
defaults: {{dtypes: [float32]}}
cases:
  - op: relu
    name: hangs
    shapes: {{input0: [2]}}
    timeout: {timeout}
    backend_config:
      command:
        command: [sh, -c, "echo last words >&2; setsid sleep 600.{mark} & sleep 600.{mark}"]
        cleanup: [touch, cleaned]
  - op: transpose
    name: goes on
    shapes: {{input0: [2, 1]}}
    attributes: {{dim0: 0, dim1: 1}}
    backend_config: {{command: {{command: [cp, "{{input0}}", "{{output0}}"]}}}}
"""


def test_hang_reports_output_and_cleans_up(tmp_path: Path) -> None:
    mark = str(uuid.uuid4().int)[:12]
    command = [sys.executable, "-m", "optest", "run", "--plan", "plan.yaml", "--no-color"]
    for timeout in SECONDS:
        (tmp_path / "plan.yaml").write_text(PLAN.format(mark=mark, timeout=timeout))
        finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        said = finished.stdout + finished.stderr
        assert finished.returncode == 1, said
        assert "DEADLINE" in said
        if "last words" in said:
            break
    assert "last words" in said
    assert "1 passed" in said
    assert (tmp_path / "cleaned").exists()
    living = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and f"600.{mark}" in arguments(entry)]
    assert living == []


def test_a_wrong_configuration_is_refused_before_anything_runs(tmp_path: Path) -> None:
    plan = PLAN.format(mark="1", timeout=1).replace("[cp,", "[cp, '{inptu0}',")
    (tmp_path / "plan.yaml").write_text(plan)
    command = [sys.executable, "-m", "optest", "run", "--plan", "plan.yaml", "--no-color"]
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    said = finished.stdout + finished.stderr
    assert finished.returncode == 2, said
    assert "plan.yaml:" in said
    assert "did you mean {input0}?" in said
    assert "Traceback" not in said
    assert not (tmp_path / "cleaned").exists()
