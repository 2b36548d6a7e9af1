"""``optest run --bench`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from texts import says
from user_shell import Shell

ADD = ("run", "--op", "add", "--dtype", "float32", "--shape", "input0=8x8", "--shape", "input1=8x8")
QUICK = ("--bench", "--bench-time", "2ms")

PLUGIN = """
import os, signal
from contextlib import contextmanager
from optest.backends import BackendDriver, PreparedCall, backend_manager

class Base(BackendDriver):
    def run(self, case, inputs):
        return [inputs[0] + inputs[1]]

class Untimed(Base):
    name = "untimed"

class Fragile(Base):
    name = "fragile"

    @contextmanager
    def prepared(self, case, inputs):
        calls = []
        def call():
            calls.append(1)
            if len(calls) == 50:
                os.kill(os.getpid(), signal.SIGSEGV)
            return self.run(case, inputs)
        yield PreparedCall(call=call, outputs=call)

backend_manager.register(Untimed())
backend_manager.register(Fragile())
"""


@pytest.fixture
def plugin(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bench_plugin.py").write_text(PLUGIN)
    return {"OPTEST_PLUGINS": "bench_plugin", "PYTHONPATH": str(tmp_path)}


def _report(folder: Path) -> list[dict[str, object]]:
    cases: list[dict[str, object]] = json.loads((folder / "report.json").read_text())["cases"]
    return cases


@pytest.mark.heavy
@pytest.mark.torch
def test_torch_in_turns_with_numpy(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    ended = optest(
        *ADD, "--backend", "torch", *QUICK, "--bench-against", "numpy", "--report", "json", "--report", "markdown",
        "--report-path", tmp_path / "reports",
    )  # fmt: skip
    assert ended.status == 0, ended.text
    assert says(ended.out, "cli.the_reference_in_numpy")
    assert "interquartile range" in ended.out
    assert "GFLOP/s  " not in ended.out, "addition declares no operations, so there is no column"
    (entry,) = _report(tmp_path / "reports")
    found = entry["benchmark"]
    assert isinstance(found, dict)
    assert found["time"]["who"] == "torch:cpu"
    assert found["time"]["median_s"] > 0
    assert found["time"]["spread_s"] >= 0
    assert found["against"]["batches"] == found["time"]["batches"] >= 3
    assert found["ratio"] > 0
    assert found["declared_bytes"] == 3 * 64 * 4
    markdown = next((tmp_path / "reports").glob("*.md")).read_text()
    assert "| case | time | ± | GB/s |" in markdown


def test_rates_of_declared_operations(optest: Shell) -> None:
    shapes = ("--shape", "input0=32x16", "--shape", "input1=16x32")
    optest("run", "--op", "matmul", "--dtype", "float32", *shapes, *QUICK).expect(0, out="GFLOP/s")


def test_report_from_the_journal_tells_the_same(optest: Shell) -> None:
    first = optest(*ADD, *QUICK)
    again = optest("report")
    row = next(line for line in first.out.splitlines() if line.startswith("  add["))
    assert row in again.out.splitlines()


def test_backend_without_prepared_call_is_timed(optest: Shell, plugin: dict[str, str]) -> None:
    assert says(optest(*ADD, "--backend", "untimed", *QUICK, env=plugin).expect(0).out, "cli.untimed_the_whole_of")


def test_crash_during_timing_blames_the_backend(optest: Shell, plugin: dict[str, str]) -> None:
    assert says(optest(*ADD, "--backend", "fragile", *QUICK, env=plugin).expect(1).out, "cli.the_backend_while_it")
    assert optest(*ADD, "--backend", "fragile", env=plugin).status == 0


def test_unknown_comparison_is_refused_before_the_run(optest: Shell, tmp_path: Path) -> None:
    assert says(optest(*ADD, "--bench", "--bench-against", "nunpy").expect(2).err, "cli.did_you_mean_numpy")
    assert not (tmp_path / ".optest").exists()


def test_workers_that_share_the_machine_are_told(optest: Shell, plugin: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        "cases: [{op: add, shapes: {input0: 8x8, input1: 8x8}, product: {seed: [0, 1]}}]\n"
    )
    ended = optest("run", "--plan", tmp_path / "plan.yaml", "--backend", "untimed", *QUICK, "--jobs", "2", env=plugin)
    assert says(ended.out, "cli.timed_while_workers_share")
