"""Imports before a worker forks, so that no fork repeats them."""

from __future__ import annotations

from pathlib import Path

import pytest

from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.operators import operators
from optest.settings import environment
from optest.spec import Argument, BackendTarget, Fill, TensorSpec, TestCase, dtype

FUNCTIONS = """
import os, pathlib, sys
import numpy as np

HOME = os.getpid()

class Diary:
    '''Writes down what a fork imports.'''

    @staticmethod
    def find_spec(name, path=None, target=None):
        if os.getpid() != HOME:
            with open(pathlib.Path(__file__).with_name("imported"), "a") as file:
                file.write(name + "\\n")

sys.meta_path.insert(0, Diary)

def require_watched():
    patches = sys.modules["optest.core.monkeypatches"]
    assert not {*filter(patches._WATCHED.match, sys.modules)} - patches.patch_watch()._modules.keys()

def of_numpy(input, dim):
    require_watched()
    powers = np.exp(input - input.max(dim, keepdims=True))
    return powers / powers.sum(dim, keepdims=True)

def of_torch(input: "torch.Tensor", dim):
    require_watched()
    return input.softmax(dim)
"""


@pytest.mark.parametrize("function", ["of_numpy", pytest.param("of_torch", marks=pytest.mark.heavy)])
def test_forks_import_nothing(function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if function == "of_torch":
        pytest.importorskip("torch")
    (tmp_path / "functions_of_forks.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = TensorSpec(dtype=dtype("float32"), shape=(3, 32))
    descriptor = operators.get("softmax")
    case = TestCase(
        descriptor=descriptor,
        inputs=(Argument(name="input", path="input0", spec=spec, fill=Fill(kind="randn")),),
        outputs=(spec,),
        attributes=descriptor.bind({"dim": 1}),
        backend=BackendTarget(name="function"),
        backend_config={"function": {"softmax": f"functions_of_forks:{function}"}},
    )
    options = WorkerOptions(
        driver="function",
        scratch=tmp_path,
        environment=environment(),
        options={"function": [f"softmax=functions_of_forks:{function}"]},
        fresh=True,
    )
    worker = WorkerProcess(options, "worker")
    try:
        (verdict,) = worker.execute([case]).verdicts
    finally:
        worker.close()
    assert verdict.message == ""
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
