"""What a compiler of torch makes lies in the run's folder, where the run has no worker, too."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from user_shell import Shell, user_environment

pytest.importorskip("torch")

CASES = """\
model: tiny
cases:
  - {name: two, op: torch.mul, inputs: [{tensor: {shape: [4]}}, {value: 2.0}]}
"""
TWO_RUNS = """
import os, sys
from optest.api.running import run
for _ in range(2):
    outcome = run({"plan": "tiny.yaml", "compile_backend": "inductor", "isolate": "none", "quiet": 2})
    print(outcome.exit_status, os.path.isdir(outcome.directory.path / "compiled" / "fxgraph"))
print(os.environ.get("TORCHINDUCTOR_CACHE_DIR"))
"""


@pytest.mark.heavy
def test_runs_in_this_process_keep_their_own_cache(process: Shell, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(CASES)
    own = tmp_path / "temporary"
    own.mkdir()
    variables = user_environment(TMPDIR=str(own), TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS="0")
    variables.pop("TORCHINDUCTOR_CACHE_DIR", None)
    ended = process(sys.executable, "-c", TWO_RUNS, env=variables)
    lines = [line for line in ended.out.splitlines() if "passed" not in line]
    assert lines == ["0 True", "0 True", "None"], ended.text
    assert os.listdir(own) == []
