"""What a check asks of operators that are one C function: nothing is loaded."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from optest.api.checking import check_request
from optest.backends import backend_manager
from optest.operators import operators
from optest.spec import TestCase

MAPPING = """
version: 1
name: mine
library: [libmine.so]
operators:
  norm:
    functions: {{{dtype}: mine_norm}}
    dims: {{input: [n...]}}
    when: {{p: 2.0}}
    ignores: [dim, keepdim]
    returns: out
    call: [input:input, size:n]
  softmax:
    functions: {{float32: mine_softmax}}
    dims: {{input: [m..., k], out: [m..., k]}}
    when: {{dim: last}}
    same_layout: [input, out]
    call: [output:out, input:input, size:m, size:k, leading:input]
"""


def answered(tmp_path: Path, op: str, dtype: str = "float64") -> list[TestCase]:
    """The cases that are no gaps."""
    (tmp_path / "mine.yaml").write_text(MAPPING.format(dtype=dtype))
    given = {
        "backend": "ffi",
        "library": (str(tmp_path / "libmine.so"),),
        "headers": (str(tmp_path),),
        "mapping": str(tmp_path / "mine.yaml"),
        "op": (op,),
    }
    (tmp_path / "libmine.so").touch()
    driver = backend_manager.get("ffi")
    return [case for case in check_request(given).run.cases if not driver.unsupported(case)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_function_of_any_dtype_gets_every_set(tmp_path: Path, dtype: str) -> None:
    cases = answered(tmp_path, "norm", dtype)
    assert {each.spec.dtype.name for case in cases for each in case.inputs} == {dtype}
    sets = {tag for case in cases for tag in case.tags}
    assert sets >= {"set:ordinary", "set:special", "set:long", "set:sizes", "set:pages", "set:threads"}
    assert len(cases) > 100


def test_same_layout_tensors_get_padded_rows(tmp_path: Path) -> None:
    cases = answered(tmp_path, "softmax")
    padded = [
        case
        for case in cases
        if "set:layouts-at-once" in case.tags
        and case.inputs[0].spec.strides == (40, 1)
        and case.backend_config["ffi"]["outputs"]["out"]["strides"] == [40, 1]
    ]
    assert padded


def test_unmapped_operator_lists_mapped_ones(tmp_path: Path) -> None:
    answered(tmp_path, "norm")
    given = {
        "backend": "ffi",
        "library": (str(tmp_path / "libmine.so"),),
        "headers": (str(tmp_path),),
        "mapping": str(tmp_path / "mine.yaml"),
        "op": ("norm",),
    }
    case = check_request(given).run.cases[0]
    other = dataclasses.replace(case, descriptor=operators.get("relu"))
    why = backend_manager.get("ffi").unsupported(other)
    assert why is not None
    assert why.endswith("mapping mine has no operator relu; it has norm, softmax")
