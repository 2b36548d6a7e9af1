"""The examples of the specification, as they are written there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from user_shell import Shell

Write = Callable[[str], Path]

CUDA_PLUGIN = """
import numpy as np
from optest.backends import BackendDriver, backend_manager


class MyCudaBackend(BackendDriver):
    kind = "gpu"
    name = "cuda-runtime"
    chips = ("a100", "h100")

    def run(self, case, inputs):
        assert case.descriptor.name == "relu" and case.backend.chip == "a100"
        return (np.maximum(inputs[0], 0),)


backend_manager.register(MyCudaBackend())
"""

RUN_SH = """
mkdir -p output
python3 - <<'PY'
import struct
data = open("input/input_x.bin", "rb").read()
halves = [data[i:i + 2] for i in range(0, len(data), 2)]
open("output/output_z.bin", "wb").write(b"".join(h if h[1] < 0x80 else b"\\0\\0" for h in halves))
PY
"""

ASCEND = """
cases:
  - op: relu
    shapes:
      input0: [8, 2048]
      output0: [8, 2048]
    backend_config:
      ascend:
        workdir: add_custom
        command: ["bash", "run.sh", "-r", "cpu", "-v", "Ascend910B"]
        inputs:
          - tensor: input0
            path: input/input_x.bin
            dtype: float16
        outputs:
          - tensor: output0
            path: output/output_z.bin
            dtype: float16
"""


def test_a_driver_of_the_users_own(optest: Shell, plan: Write, tmp_path: Path) -> None:
    (tmp_path / "my_plugin.py").write_text(CUDA_PLUGIN)
    path = plan("cases:\n  - {op: relu, dtypes: float32, shapes: {input0: 8x2048}}\n")
    env = {"OPTEST_PLUGINS": "my_plugin"}
    optest("run", "--plan", path, "--backend", "gpu", "--chip", "a100", "--report", "json", env=env).expect(0)
    optest("run", "--plan", path, "--backend", "gpu", "--chip", "b100", env=env).expect(2, err="a100, h100")


def test_ascend_command_uses_dtypes_of_files(optest: Shell, plan: Write, tmp_path: Path) -> None:
    (tmp_path / "add_custom").mkdir()
    (tmp_path / "add_custom" / "run.sh").write_text(RUN_SH)
    for backend in (["--backend", "npu"], ["--backend", "ascend", "--chip", "Ascend310B"]):
        optest("run", "--plan", plan(ASCEND), *backend).expect(0, out="relu[float16](8x2048)")


def test_failing_command_does_not_pass(optest: Shell, plan: Write, tmp_path: Path) -> None:
    (tmp_path / "add_custom").mkdir()
    (tmp_path / "add_custom" / "run.sh").write_text("echo boom >&2; exit 42\n")
    for chip in ([], ["--chip", "Ascend910B"]):
        optest("run", "--plan", plan(ASCEND), "--backend", "npu", *chip).expect(1, out=("42", "boom"))
    assert optest("run", "--plan", plan(ASCEND), "--backend", "npu", "--chip", "bogus").status == 2


@pytest.mark.heavy
@pytest.mark.torch
def test_the_parity_tests_of_the_seed(optest: Shell) -> None:
    plan = Path(__file__).parents[2] / "examples/torch_parity/plan.yaml"
    listed = optest("list", "--plan", plan)
    names = [line.split()[0] for line in listed.out.splitlines() if line.startswith(("torch_", "smoke_", "api_"))]
    assert len(set(names)) == len(names) == 181
    optest("run", "--plan", plan, "--backend", "torch", "-q").expect(0, out="174 passed, 7 skipped")
