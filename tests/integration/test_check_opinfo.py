"""Torch's own samples, asked of torch and of its compiler: thirty operators, from the command line to a replay."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import warm_python
from user_shell import user_environment

from optest.spec import CaseResult, Evidence
from optest.store import RunDirectory, read_journal

pytest.importorskip("torch")
pytest.importorskip("expecttest")
pytestmark = [pytest.mark.slow, pytest.mark.torch]


FURTHER = (*warm_python.TORCH, warm_python.SAMPLES_OF_TORCH)
OPERATORS = (
    "add,mul,div,pow,sum,mean,var,amax,cumsum,softmax,exp,log,sqrt,rsqrt,tanh,sigmoid,nn.functional.gelu,"
    "nn.functional.silu,nn.functional.layer_norm,matmul,bmm,nn.functional.linear,nn.functional.conv2d,"
    "nn.functional.avg_pool2d,cat,where,gather,index_select,topk,clamp"
)
assert len(OPERATORS.split(",")) == 30


def optest(folder: Path, *words: str) -> str:
    """What the command printed."""
    environment = user_environment(OPTEST_PLUGINS="scaled_torch")
    ended = warm_python.run("optest", *words, cwd=folder, env=environment, timeout=900, further=FURTHER)
    text = ended.stdout + ended.stderr
    assert "Traceback" not in text, text
    return text


def results(folder: Path) -> dict[str, CaseResult]:
    """Those of the latest run."""
    latest = RunDirectory.open(folder / ".optest" / "runs", "latest")
    return {result.id: result for result in read_journal(latest.journal_path).results}


def run(folder: Path, *words: str) -> tuple[dict[str, CaseResult], str]:
    text = optest(folder, "run", *words)
    return results(folder), text


@pytest.mark.heavy
def test_replay_uses_same_bits_as_run(tmp_path: Path) -> None:
    found, text = run(tmp_path, "--source", "opinfo:softmax,exp", "--dtype", "float32")
    assert {each.status.value for each in found.values()} == {"passed"}, text
    assert {name.split("::")[1] for name in found} == {"softmax", "softmax.with_dtype", "exp"}
    for name in ("first", "second"):
        optest(tmp_path, "replay", "opinfo::exp::float32::sample0", "--save", name)
    first, second = (np.load(path) for path in sorted(tmp_path.glob("[fs]*/*.npz")))
    from optest.torch.opinfo.fill import array_of, samples_of

    sample = array_of(samples_of("exp", "float32", 0)[0].input)
    assert first["input0"].tobytes() == second["input0"].tobytes() == sample.tobytes()


@pytest.mark.heavy
def test_failures_of_wrong_backend_are_run_again(tmp_path: Path) -> None:
    found, text = run(tmp_path, "--source", "opinfo:exp", "--dtype", "float32", "--backend", "scaled_torch")
    wrong = {name for name, each in found.items() if each.status.value == "failed"}
    assert wrong == {name for name, each in found.items() if each.verdict.measures[0].compared}
    assert wrong
    assert "torch.exp" in text
    again, _ = run(tmp_path, "--lf")
    assert again.keys() == wrong


@pytest.mark.heavy
def test_stopped_run_resumes_by_name(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "--source", "opinfo:exp", "--dtype", "float32", "-x", "--backend", "scaled_torch")
    stopped = len(found)
    (folder,) = (tmp_path / ".optest" / "runs").iterdir()
    found, _ = run(tmp_path, "--resume", folder.name)
    assert len(found) > stopped


@pytest.mark.heavy
def test_plan_of_case_draws_same_values(tmp_path: Path) -> None:
    _, text = run(
        tmp_path, "--source", "opinfo:add", "--dtype", "float32", "--backend", "scaled_torch", "--tag", "inplace"
    )
    (line, *_) = [line for line in text.splitlines() if "optest run --plan" in line]
    before = results(tmp_path)
    optest(tmp_path, *line.partition(" optest ")[2].split())
    (again,) = results(tmp_path).values()
    assert before[again.id].key == again.key
    assert before[again.id].verdict.measures[0].worst_actual == again.verdict.measures[0].worst_actual


@pytest.mark.heavy
def test_thirty_operators_pass_on_torch(tmp_path: Path) -> None:
    found, text = run(tmp_path, "--source", f"opinfo:{OPERATORS}", "--dtype", "float32")
    assert len(found) > 600
    assert {name.split("::")[1].split(".")[0] for name in found} >= {
        name.split(".")[0] for name in OPERATORS.split(",")
    }
    left_out = {name for name, each in found.items() if each.status.value == "skipped"}
    assert Counter(each.status.value for each in found.values()) == {
        "passed": len(found) - len(left_out),
        "skipped": len(left_out),
    }, text
    assert {name.split("::")[3][:5] for name in left_out} == {"error"}
    refused = [each for each in found.values() if each.verdict.evidence is Evidence.RAISED_AS_EXPECTED]
    assert len(refused) > 30
    assert f"{len(refused)} of the passed calls were refused, as expected" in text


@pytest.mark.heavy
def test_gradients_of_thirty_operators_pass_on_torch(tmp_path: Path) -> None:
    """But for layer_norm: over one element its gradient is 0, which float32 misses by the noise that eps magnifies."""
    names = OPERATORS.replace("nn.functional.layer_norm,", "")
    found, text = run(tmp_path, "--source", f"opinfo:{names}", "--dtype", "float32", "--tag", "function", "--backward")
    counts = Counter(each.status.value for each in found.values())
    assert counts.keys() <= {"passed", "skipped"}, text
    assert counts["passed"] > 200


@pytest.mark.heavy
def test_inductor_passes_first_sample_of_each_operator(tmp_path: Path) -> None:
    words = ("--dtype", "float32", "--compile-backend", "inductor", "--case", "opinfo::*::sample0", "-j", "2")
    found, text = run(tmp_path, "--source", f"opinfo:{OPERATORS}", *words)
    assert len(found) >= 30
    assert Counter(each.status.value for each in found.values()) == {"passed": len(found)}, text
