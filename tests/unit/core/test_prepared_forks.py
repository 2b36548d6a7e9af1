"""Imports before a worker forks, so that no fork repeats them."""

from __future__ import annotations

from pathlib import Path

import pytest
from core_kit import case_of, spec_of, worker_of

from optest.spec import BackendTarget

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
    path = f"functions_of_forks:{function}"
    case = case_of(
        "softmax",
        spec_of(3, 32),
        outputs=(spec_of(3, 32),),
        attributes={"dim": 1},
        backend=BackendTarget(name="function"),
        backend_config={"function": {"softmax": path}},
    )
    with worker_of("function", tmp_path, options={"function": [f"softmax={path}"]}, fresh=True) as worker:
        (verdict,) = worker.execute([case]).verdicts
    assert verdict.message == ""
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()
