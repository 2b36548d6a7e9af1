"""Flags for many cases as a user types them; what they mean is tested through the API."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from user_shell import Shell

Write = Callable[[str], Path]

SWEEP = """
cases:
  - op: matmul
    product: {dtypes: [float16, float32], m: [1, 8], seed: [0, 1]}
    exclude: [{dtypes: half, m: 1}]
    shapes: {input0: [$m, 5], input1: [5, 3]}
  - {op: relu, name: refused, shapes: {input0: 4}, expects_error: {type: ValueError}}
"""


def test_flags_with_and_without_a_value(optest: Shell, plan: Write, tmp_path: Path) -> None:
    path = plan(SWEEP)
    ended = optest("run", "--plan", path, "-q", "--durations", 2).expect(1, out="slowest 2 of 7 cases")
    assert len(re.findall(r"^ +[0-9.]+ m?s  ", ended.out, re.MULTILINE)) == 2
    again = optest("run", "--lf", "--retries", 1).expect(1, out="FAILED  refused")
    assert "passed" not in again.out
    (first, _) = sorted((tmp_path / ".optest" / "runs").glob("2*"))
    listed = optest("list", "--rerun-failed", first.name)
    assert listed.out.startswith("refused ")
    assert optest("run", "--ff", "--plan", path, "-x").out.count("[1/7]") == 1


def test_collect_only_runs_nothing(optest: Shell, plan: Write, tmp_path: Path) -> None:
    ended = optest("run", "--plan", plan(SWEEP), "--co", "-k", "float32 and matmul", "--priority-max", 100).expect(0)
    assert len(ended.out.splitlines()) == 4
    assert not (tmp_path / ".optest").exists()
    assert optest("run", "--plan", tmp_path / "plan.yaml", "--co", "--priority-max", 99).status == 5


def test_a_listing_has_priority_tags_and_key(optest: Shell, plan: Write) -> None:
    path = plan("cases: [{op: relu, shapes: {input0: 4}, tags: [slow], priority: 3}]")
    (row,) = json.loads(optest("list", "--format", "json", "--plan", path).out)
    assert (row["id"], row["priority"], row["tags"]) == ("relu[float32](4)", 3, ["slow"])
    assert row["key"].startswith("k1:")
    assert optest("list", "operators", "--format", "plain").out.count("matmul") >= 1


def test_list_operators_accepts_op_and_keyword(optest: Shell) -> None:
    listed = optest("list", "operators", "--op", "MatMul", "--op", "relu", "--json")
    assert [row["name"] for row in json.loads(listed.out)] == ["relu", "matmul"]
    listed = optest("list", "-k", "SoftMax and not (log or topk)")
    assert [line.split()[0] for line in listed.out.splitlines()] == ["softmax", "causal_softmax"]
    assert optest("list", "operators", "-k", "nonsense").status == 5
    for what, flag in (("operators", "--tag"), ("backends", "--op"), ("fills", "-k")):
        told = f"optest: {flag} is not for a list of {what}; drop it, or list cases\n"
        assert optest("list", what, flag, "x").expect(2).err == told


def test_faults_of_included_products_name_file_and_line(optest: Shell, plan: Write, tmp_path: Path) -> None:
    (tmp_path / "inner.yaml").write_text(
        "cases:\n  - op: matmul\n    product:\n      m: [1, 2]\n      dtypes:\n        - float16\n        - int3\n"
        "    shapes: {input0: [$m, 3], input1: [4, 4]}\n"
    )
    plan("include: inner.yaml")
    wrong = ("inner.yaml:7 $.cases[0].product.dtypes[1]: unknown dtype 'int3'", "inner.yaml:8 $.cases[0].shapes")
    optest("run", "--plan", "plan.yaml").expect(2, err=(*wrong, "with m=1, dtypes=float16"))
