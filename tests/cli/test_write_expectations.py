"""``check --write-expectations``: what fails now is expected from then on, and a pass is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from user_shell import Shell

KERNELS = """\
import numpy as np

def tanh(x):
    return [(np.tanh(x.astype(np.float64)) * (1 + {error})).astype(x.dtype)]
"""
CHECK = ("check", "--function", "kernels:tanh", "--dtype", "float32", "--set", "ordinary", "--set", "dtypes")


@pytest.mark.heavy
def test_a_baseline_makes_the_same_check_pass(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS.format(error="4e-7"))
    ended = optest(*CHECK, "--write-expectations", "known.yaml")
    ended.expect(0, out="expectations written; to use: optest check --expectations known.yaml")
    lines = yaml.safe_load((tmp_path / "known.yaml").read_text())["expected"]
    assert f"{len(lines)} failed in" in ended.out
    assert all(5 < line["at_most_ulp"] < 9 and line["why"].startswith("VALUE: out: ") for line in lines)

    optest(*CHECK, "--expectations", "known.yaml").expect(0, out=f"{len(lines)} expected differences")
    (tmp_path / "kernels.py").write_text(KERNELS.format(error="1.0e-3"))
    worse = optest(*CHECK, "--expectations", "known.yaml")
    assert (worse.status, "expected differences" in worse.out) == (1, False)
    (tmp_path / "kernels.py").write_text(KERNELS.format(error="0"))
    right = optest(*CHECK[:-4], "--expectations", "known.yaml")  # sets narrow, so that nothing is left over
    assert (right.status, right.out.count("expected failure did not occur: tanh/")) == (1, len(lines))
    assert optest(*CHECK, "--write-expectations", "known.yaml").status == 2


def test_what_nothing_excuses_is_not_written(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text("import os\n\ndef tanh(x):\n    os.abort()\n")
    optest(*CHECK[:-2], "--tier", "smoke", "--write-expectations", "known.yaml").expect(1, out="cannot be expected")
    assert yaml.safe_load((tmp_path / "known.yaml").read_text()) == {"version": 1, "expected": []}


@pytest.mark.heavy
@pytest.mark.parametrize(("error", "offered"), [("4e-7", True), ("1e-3", False)])
def test_a_few_ulp_are_offered_as_a_line(optest: Shell, tmp_path: Path, error: str, offered: bool) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS.format(error=error))
    ended = optest(*CHECK)
    lines = [line for line in ended.out.splitlines() if "to accept it, add to" in line]
    offer = [line.partition("add to a file of --expectations: ")[2] for line in lines]
    assert len(offer) == offered
    if offered:
        (tmp_path / "known.yaml").write_text(f"version: 1\nexpected:\n{offer[0]}\n")
        assert optest(*CHECK, "--expectations", "known.yaml").status == 0
