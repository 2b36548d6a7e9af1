"""A run that compiles nothing waits for no compiler, and loading one leaves no folder behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from user_shell import user_environment

SAYS = """
import sys
import optest.torch.eager
print("torch._dynamo" in sys.modules)
from optest.torch.calls.compiled import require_compiler
require_compiler("inductor")
import os
print(os.environ.get("TORCHINDUCTOR_CACHE_DIR"))
"""


@pytest.mark.slow
def test_the_compiler_is_loaded_when_it_is_asked_for(tmp_path: Path) -> None:
    variables = user_environment(TMPDIR=str(tmp_path))
    variables.pop("TORCHINDUCTOR_CACHE_DIR", None)
    ended = subprocess.run(
        [sys.executable, "-c", SAYS], env=variables, capture_output=True, text=True, timeout=600, check=True
    )
    assert ended.stdout.split() == ["False", "None"]
    assert list(tmp_path.iterdir()) == []
