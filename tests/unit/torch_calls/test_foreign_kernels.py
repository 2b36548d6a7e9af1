"""A kernel that somebody registered for an operator of torch's own is under test, and no reference for itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

PLUGIN = """
import torch
replaced = torch.library.Library("aten", "IMPL")
replaced.impl("silu", lambda x: x * 0.5, "CPU")
added = torch.library.Library("aten", "FRAGMENT")
added.define("my_relu(Tensor x) -> Tensor")
added.impl("my_relu", lambda x: x.clone(), "CompositeImplicitAutograd")
elsewhere = torch.library.Library("quantized", "FRAGMENT")
elsewhere.define("my_silu(Tensor x) -> Tensor")
elsewhere.impl("my_silu", lambda x: x * 0, "CPU")
"""
PLAN = """
model: m
cases:
  - {name: replaced, op: torch.nn.functional.silu, inputs: [{tensor: {shape: [4]}}]}
  - {name: added, op: torch.ops.aten.my_relu, inputs: [{tensor: {shape: [4]}}]}
  - {name: elsewhere, op: torch.ops.quantized.my_silu, inputs: [{tensor: {shape: [4]}}]}
  - {name: untouched, op: torch.add, inputs: [{tensor: {shape: [4]}}, {tensor: {shape: [4]}}]}
"""


def test_a_foreign_kernel_is_no_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels.py").write_text(PLUGIN)
    (tmp_path / "m.yaml").write_text(PLAN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("OPTEST_PLUGINS", "kernels")
    command = [sys.executable, "-W", "ignore", "-m", "optest", "run", "--plan", "m.yaml", "--isolate", "none"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    for name in ("replaced", "added", "elsewhere"):
        assert f"SUSPECT m::{name}" in said
    assert "PASSED  m::untouched" in said


def test_torch_alone_has_none() -> None:
    code = "from optest.torch.calls.reference import foreign_kernels; assert not foreign_kernels(), foreign_kernels()"
    subprocess.run([sys.executable, "-c", code], check=True)
