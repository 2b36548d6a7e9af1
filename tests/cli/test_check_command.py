"""``optest check`` as a user types it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from texts import says
from user_shell import Shell, driver_text


def test_a_check_passes_and_can_be_reported_again(optest: Shell) -> None:
    ended = optest("check", "--backend", "numpy", "-o", "sum", "--set", "layouts", "--set", "refused")
    ended.expect(0, out="sum  ")
    assert says(ended.out, "cli.of_operator_on_numpy")
    assert " passed in " in ended.out
    assert says(optest("report").expect(0).out, "cli.of_operator_on_numpy")


def test_failure_is_reproduced_by_its_line(optest: Shell) -> None:
    plugin = {"OPTEST_PLUGINS": "wrong_kernels"}
    ended = optest("check", "--backend", "sum-ignores-keepdim", "-o", "sum", "--set", "attributes", env=plugin)
    ended.expect(1, out="FAILED  sum/attributes/")
    assert says(ended.out, "cli.more_like_it_sum")
    (again,) = [line for line in ended.out.splitlines() if line.startswith("  reproduce: ")][:1]
    words = again.partition("optest ")[2].replace("'", "").split()
    assert optest(*words, env=plugin).status == 1


def test_what_would_be_asked_is_listed_and_written(optest: Shell, tmp_path: Path) -> None:
    some = ("check", "--backend", "numpy", "-o", "reduce_sum", "--tier", "smoke")
    assert optest(*some, "--list").out.split()[:1] == ["sum/ordinary/1[float32](4x37,"]
    ended = optest(*some, "--write", "plan.yaml")
    assert (ended.status, ended.out) == (0, "1 case written; run: optest run --plan plan.yaml\n")
    assert optest("run", "--plan", "plan.yaml").status == 0
    optest(*some, "--write", "plan.yaml").expect(2, err="exists and may have been edited")
    optest(*some, "--list", "--write", "plan.yaml").expect(2, err="exclude each other")


OF_TORCH = """
import sys
WAS_THERE = "torch" in sys.modules
import torch

def relu(x):
    assert WAS_THERE
    return torch.relu(x)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")
def test_workers_are_forked_where_torch_is_imported(process: Shell, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "of_torch.py").write_text(OF_TORCH)
    words = ("check", "--function", "of_torch:relu", "--tier", "smoke", "--jobs", "2")
    process(sys.executable, "-m", "optest", *words).expect(0)


def test_run_does_not_take_the_options_of_check(optest: Shell) -> None:
    assert optest("run", "--op", "relu", "--tier", "smoke").status == 2
    assert "--tier" not in optest("run", "--help").out


OF_EVERY_KIND = ("div", "gelu", "logsumexp", "softmax", "layer_norm", "gemm", "sort", "scatter_add")
"""Torch gets some of the first four wrong, as its expectations say."""


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize(
    "some",
    [
        ("--tier", "smoke", *(f"--op={op}" for op in OF_EVERY_KIND)),
        ("-j", "1", "--op", "embedding_bag"),
        pytest.param((), marks=pytest.mark.heavy),
    ],
    ids=["a call of some", "with every thread", "everything"],
)
def test_torch_passes_the_catalogue(optest: Shell, some: tuple[str, ...]) -> None:
    ended = optest("check", "--backend", "torch", *some, timeout=600).expect(0)
    assert "no case ran" not in ended.out
    assert ("expected differences" in ended.out) is ("smoke" not in some)


@pytest.mark.heavy
def test_numpy_passes_the_whole_catalogue_without_a_gap(optest: Shell) -> None:
    ended = optest("check", "--backend", "numpy", timeout=600).expect(0)
    assert "unsupported" not in ended.out


CRASHING = """\
if case.attributes["keepdim"] or case.expects_error:
    os.abort()
return NumpyBackend().run(case, inputs)
"""
EXPECTED = "version: 1\nexpected:\n  - {op: sum, dtype: float32, reason: VALUE, why: everybody knows that it crashes}\n"


def test_crash_fails_despite_expectations(optest: Shell, tmp_path: Path) -> None:
    imports = "from optest.backends.numpy_reference import NumpyBackend"
    (tmp_path / "crashing.py").write_text(driver_text("crashing", CRASHING, imports))
    (tmp_path / "known.yaml").write_text(EXPECTED)
    ended = optest(
        *("check", "--backend", "crashing", "-o", "sum", "--expectations", "known.yaml"),
        *("--case", "sum/attributes/1*", "--case", "sum/refused/1*"),
        env={"OPTEST_PLUGINS": "crashing"},
    ).expect(1)
    assert says(ended.out, "cli.failed_in_attributes_refused")
    assert "CRASHED  sum/" in ended.out
    assert says(ended.out, "cli.and_more_like_it")
    assert "died of SIGABRT" in ended.out
    assert "expected difference" not in ended.out
    assert " passed, " in ended.out
