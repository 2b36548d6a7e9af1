"""One float dtype for all inputs keeps the integers and bool that the operator needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from texts import refusal

from optest.api import cases
from optest.errors import PlanError

EMBEDDING = "{op: embedding, shapes: {weight: [5, 3], indices: [2]}"


def dtypes(path: Path, flag: str | None = None) -> list[list[str]]:
    stated = {"dtype": flag} if flag else {}
    return [[each.name for each in case.dtypes] for case in cases(plan=str(path), **stated)]


def plan(folder: Path, *entries: str) -> Path:
    path = folder / "plan.yaml"
    path.write_text("version: 1\ncases:\n" + "".join(f"  - {entry}\n" for entry in entries), encoding="utf-8")
    return path


def test_an_operator_gets_the_integers_that_it_needs(tmp_path: Path) -> None:
    path = plan(tmp_path, EMBEDDING + ", dtypes: float16}", "{op: where, shapes: {input0: 4}, dtypes: bfloat16}")
    assert dtypes(path) == [["float16", "int64"], ["bool", "bfloat16", "bfloat16"]]


def test_a_flag_replaces_the_floats_of_a_case(tmp_path: Path) -> None:
    entries = (", dtypes: [float32, int32]}", ", dtypes: {indices: int32, weight: float32}}", "}")
    path = plan(tmp_path, *(EMBEDDING + each for each in entries))
    assert dtypes(path, "float16") == [["float16", "int32"], ["float16", "int32"], ["float16", "int64"]]


@pytest.mark.parametrize(("stated", "flag"), [("dtypes: [float32, int32]", "float64"), ("", "int8")])
def test_flag_replaces_all_inputs_if_supported(tmp_path: Path, stated: str, flag: str) -> None:
    path = plan(tmp_path, f"{{op: add, shapes: {{input: [4], other: [4]}}, {stated}}}")
    assert dtypes(path, flag) == [[flag, flag]]


def test_integers_are_for_all(tmp_path: Path) -> None:
    with refusal(PlanError, "plan.embedding_is_not_defined"):
        dtypes(plan(tmp_path, EMBEDDING + "}"), "int8")


MODEL = """
model: m
cases:
  - name: rows
    op: torch.nn.functional.embedding
    inputs:
      - {tensor: {shape: [2], dtype: int64, init: randint, init_args: {low: 0, high: 5}}}
      - {tensor: {shape: [5, 3], dtype: float32}}
  - name: turned
    op: torch.logical_not
    inputs: [{tensor: {shape: [4], dtype: bool}}]
  - name: filled
    op: torch.Tensor.masked_fill
    inputs: [{tensor: {shape: [4], dtype: bfloat16}}, {tensor: {shape: [4], dtype: bool}}, {value: 0.5}]
  - name: parts
    op: torch.view_as_real
    inputs: [{tensor: {shape: [4], dtype: complex64}}]
  - name: turned-around
    op: torch.mul
    inputs: [{tensor: {shape: [4], dtype: complex64}}, {tensor: {shape: [4], dtype: float32}}]
"""


@pytest.mark.torch
def test_model_integers_masks_and_complex_stay(tmp_path: Path) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(MODEL, encoding="utf-8")
    kept = [["int64", "float64"], ["bool"], ["float64", "bool"]]
    assert dtypes(path, "float64") == [*kept, ["complex128"], ["complex128", "float64"]]
    assert dtypes(path, "float32")[3:] == [["complex64"], ["complex64", "float32"]]
    assert dtypes(path, "float16")[3:] == [["complex64"], ["complex64", "float16"]]
    assert dtypes(path, "complex128")[3:] == [["complex128"], ["complex128", "complex128"]]
