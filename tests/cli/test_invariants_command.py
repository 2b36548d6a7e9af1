"""Invariants as a user states and reads them: an operator of a plug-in, a function, isolation, reports, replay."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from texts import says
from user_shell import Ended, Shell

OPERATORS = """
from optest.operators import operators
from optest.spec import OperatorDescriptor

operators.register(OperatorDescriptor(name="centre", signature="x -> out", invariants=("batch", "permutation")))
"""
KERNELS = """
def centre(x):
    return x - x.mean(axis=-1, keepdims=True, dtype=x.dtype)


def centre_of_all(x):
    return x - x.mean(dtype=x.dtype)
"""
PLUGIN = {"OPTEST_PLUGINS": "my_operators"}


@pytest.fixture(autouse=True)
def modules(tmp_path: Path) -> None:
    (tmp_path / "my_operators.py").write_text(OPERATORS)
    (tmp_path / "my_kernels.py").write_text(KERNELS)


def run(optest: Shell, kernel: str, *more: str) -> Ended:
    call = ("--op", "centre", "--dtype", "float32", "--shape", "x=5x8")
    return optest("run", *call, "--function", f"centre=my_kernels:{kernel}", *more, env=PLUGIN)


@pytest.mark.parametrize("isolation", ["none", "worker", pytest.param("case", marks=pytest.mark.heavy)])
def test_every_isolation_has_the_same_verdict(optest: Shell, isolation: str) -> None:
    right = run(optest, "centre", "--isolate", isolation, "-qq").expect(0)
    assert right.out.startswith("1 passed (1 only by invariants, without a reference) in")
    assert says(run(optest, "centre_of_all", "--isolate", isolation).expect(1).out, "cli.with_element_of_the")


def test_reports_say_that_no_value_was_compared(optest: Shell) -> None:
    run(optest, "centre")
    words = "without a reference"
    assert words in optest("report", "latest", "--format", "markdown").out
    (result,) = json.loads(optest("report", "latest", "--format", "json").out)["cases"]
    assert (result["evidence"], result["measures"]) == ("invariants alone", [])
    assert says(optest("report", "latest", "--format", "junit").out, "cli.name_evidence_value_invariants")


@pytest.mark.heavy
def test_replay_of_an_invariant_keeps_the_call(optest: Shell, tmp_path: Path) -> None:
    run(optest, "centre_of_all")
    optest("replay", "latest", "--save", "kept", env=PLUGIN).expect(1, out="INVARIANT")
    (file,) = (tmp_path / "kept").glob("*.npz")
    kept = np.load(file)
    np.testing.assert_array_equal(kept["output0.actual"], kept["input0"] - kept["input0"].mean(dtype=np.float32))


def test_a_plan_states_its_own(optest: Shell, tmp_path: Path) -> None:
    case = "op: centre, dtypes: float32, shapes: {x: 5x8}"
    (tmp_path / "plan.yaml").write_text(
        f"cases:\n  - {{{case}, name: own}}\n  - {{{case}, name: none, invariants: []}}\n"
        f"  - {{{case}, name: other, invariants: [repeat]}}\n"
    )
    call = ("--plan", "plan.yaml", "--function", "centre=my_kernels:centre_of_all")
    ended = optest("run", *call, env=PLUGIN)
    counted = [line.split()[1:3] for line in ended.out.splitlines() if line.startswith("[")]
    assert counted == [["FAILED", "own"], ["UNCHECKED", "none"], ["PASSED", "other"]], ended.out
    explained = optest("explain", "other", "--plan", "plan.yaml", env=PLUGIN).out
    assert "invariants    repeat  (plan.yaml:4)" in explained
    (tmp_path / "plan.yaml").write_text(f"cases:\n  - {{{case}, invariants: [bacth, batch(y)]}}\n")
    assert says(optest("run", *call, env=PLUGIN).expect(2).err, "cli.plan_yaml_cases_invariants")
