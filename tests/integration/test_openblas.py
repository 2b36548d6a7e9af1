"""CBLAS of Debian's OpenBLAS, which nobody here wrote, through its mapping file."""

from __future__ import annotations

import ctypes
import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from ffi_plans import run_ffi_plan

from optest.api import checking
from optest.api.running import run
from optest.errors import OptestError
from optest.spec import CheckState, Reason, Status

EXAMPLE = Path(__file__).parents[2] / "examples" / "openblas"
LIBRARY = "libopenblas.so.0"


pytestmark = [pytest.mark.cxx, pytest.mark.blas]


def failures(results: Any) -> list[tuple[str, str]]:
    wrong = [each for each in results if each.status not in (Status.PASSED, Status.SKIPPED, Status.XFAILED)]
    return [(each.id, each.verdict.message) for each in wrong]


def test_the_example_plan_passes(tmp_path: Path) -> None:
    outcome = run({"plan": str(EXAMPLE / "plan.yaml"), "runs_dir": str(tmp_path)}, stream=io.StringIO())
    assert failures(outcome.results) == []
    assert {each.status for each in outcome.results} == {Status.PASSED}
    assert len(outcome.results) == 13
    checks = {check.name: check.state for check in outcome.results[0].verdict.checks}
    assert checks["guard zones"] is CheckState.DONE
    assert checks["outputs written"] is CheckState.DONE


def asked(tmp_path: Path, *cases: dict[str, Any], mapping: str = "cblas") -> list[Any]:
    return list(run_ffi_plan(tmp_path, cases, mapping=mapping).results)


GAPS = {
    "one of them should be 1": {
        "op": "gemm",
        "shapes": {"a": {"shape": [5, 7], "strides": [14, 2]}, "b": [7, 3]},
    },
    "should not overlap": {
        "op": "gemm",
        "shapes": {"a": {"shape": [5, 7], "strides": [0, 1]}, "b": [7, 3]},
    },
    "expected one that is positive": {
        "op": "norm",
        "shapes": {"input": {"shape": [9], "strides": [-1], "offset": 8}},
    },
    "expected one that is other than 0": {
        "op": "matmul",
        "shapes": {"input": {"shape": [5, 7], "strides": [9, 1]}, "other": {"shape": [7], "strides": [0]}},
    },
    "which no single increment expresses": {
        "op": "reshape",
        "shapes": {"input": {"shape": [4, 5], "strides": [1, 4]}},
        "attributes": {"shape": [20]},
    },
    "takes 1 or more as m, but it is 0": {
        "op": "transpose",
        "shapes": {"input": [0, 3]},
        "attributes": {"dim0": 0, "dim1": 1},
    },
    "there is no function for float16": {"op": "dot", "dtypes": ["float16"], "shapes": {"input": [4], "tensor": [4]}},
    "has no p of 3.0": {"op": "norm", "shapes": {"input": [4]}, "attributes": {"p": 3.0}},
    "cannot refuse a call: the mapping has no status": {
        "op": "dot",
        "shapes": {"input": [4], "tensor": [5]},
        "expects_error": {"type": "Exception"},
    },
}


def test_unpassable_argument_is_skipped_with_reason(tmp_path: Path) -> None:
    results = asked(tmp_path, *({"dtypes": ["float32"], **each} for each in GAPS.values()))
    assert [each.status for each in results] == [Status.SKIPPED] * len(GAPS)
    assert {each.verdict.reason for each in results} == {Reason.UNSUPPORTED}
    for words, result in zip(GAPS, results, strict=True):
        assert words in result.verdict.message


def mapping_of_dot(tmp_path: Path, call: list[str], **further: Any) -> str:
    entry = {
        "functions": {"float32": "cblas_sdot"},
        "dims": {"input": ["n"], "tensor": ["n"]},
        "returns": "out",
        "call": call,
        **further,
    }
    file = tmp_path / "mapping.yaml"
    data = {"version": 1, "name": "own", "library": [LIBRARY], "headers": ["cblas.h"]}
    stated = {key: value for key, value in entry.items() if value}
    file.write_text(yaml.safe_dump({**data, "operators": {"dot": stated}}))
    return str(file)


CALL = ["size:n", "input:input", "increment:input as any", "input:tensor", "increment:tensor as any"]
DOT = {"op": "dot", "dtypes": ["float32"], "shapes": {"input": [4], "tensor": [4]}}


WRONG = (
    (CALL[:4], {}, "operators.dot.call has 4 arguments, but cblas_sdot should have 5"),
    (
        ["constant:1 as bool", *CALL[1:]],
        {},
        "argument 1 (n) of cblas_sdot is const blasint n, but constant:1 should be a bool",
    ),
    (
        [*CALL[:2], "input:input", *CALL[3:]],
        {},
        "argument 3 (incx) of cblas_sdot is const blasint incx, but input:input should",
    ),
    ([*CALL[:2], "constant:1 as scalar", *CALL[3:]], {}, "but constant:1 should be a float"),
    (["constant:CblasTranz", *CALL[1:]], {}, "CblasTranz, which is declared in no header"),
    (CALL, {"returns": ""}, "returns float, but the mapping does not use the result"),
    (["sise:n", *CALL[1:]], {}, "which is no role here; did you mean size?"),
    (["size:m", *CALL[1:]], {}, "but dims have n"),
    (["leading:input", *CALL[1:]], {}, "but input should have two dimensions in dims"),
    ([*CALL[:2], "increment:input as some", *CALL[3:]], {}, "'increment:input as nonzero|any|positive'"),
    (CALL, {"ignores": ["dims"]}, "dot has no attribute 'dims'"),
    (CALL, {"dims": {"input": ["n"], "tensor": ["n"], "z": ["n"]}}, "dot has no tensor 'z'"),
)


@pytest.mark.heavy
def test_a_mapping_that_is_wrong_names_what_is(tmp_path: Path) -> None:
    """Where the mapping alone shows it the plan is refused, else the case that needs the function."""
    for index, (call, further, said) in enumerate(WRONG):
        folder = tmp_path / str(index)
        folder.mkdir()
        mapping = mapping_of_dot(folder, call, **further)
        assert said in told_of(folder, mapping)


def told_of(folder: Path, mapping: str) -> str:
    try:
        (result,) = asked(folder, DOT, mapping=mapping)
    except OptestError as error:
        return str(error)
    assert result.verdict.reason is Reason.BAD_CASE
    assert f"in {mapping}:" in result.verdict.message
    return result.verdict.message


def test_the_same_mapping_written_rightly_passes(tmp_path: Path) -> None:
    (result,) = asked(tmp_path, DOT, mapping=mapping_of_dot(tmp_path, CALL))
    assert result.status is Status.PASSED, result.verdict.message


@pytest.mark.needs("liquid")
def test_written_input_is_detected(tmp_path: Path) -> None:
    """liquid_vectorf_abs of 1.5.0 (Debian 12) does: why the built-in mapping does not have it."""
    liquid = ctypes.CDLL("libliquid.so")
    liquid.liquid_libversion.restype = ctypes.c_char_p
    if liquid.liquid_libversion() != b"1.5.0":
        pytest.skip("another version of liquid-dsp may be right")
    entry = {
        "functions": {"float32": "liquid_vectorf_abs"},
        "dims": {"input": ["n..."], "out": ["n..."]},
        "call": ["input:input", "size:n", "output:out"],
    }
    mapping = {"version": 1, "name": "own", "library": ["libliquid.so"], "headers": ["liquid/liquid.h"]}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({**mapping, "operators": {"abs": entry}}))
    case = {"op": "abs", "dtypes": ["float32"], "shapes": {"input": [8]}}
    (result,) = asked(tmp_path, case, mapping=str(tmp_path / "own.yaml"))
    assert result.verdict.reason is Reason.INPUT_MUTATED


@pytest.mark.heavy
def test_a_check_of_everything_passes(tmp_path: Path) -> None:
    """Zero alarms but those of the expectations, on a library that millions use."""
    given = {
        "backend": "ffi",
        "mapping": "cblas",
        "expectations": [str(EXAMPLE / "expectations.yaml")],
        "runs_dir": str(tmp_path),
    }
    outcome = checking.check(given, stream=io.StringIO())
    assert failures(outcome.results) == []
    assert outcome.exit_status == 0
    passed = [each for each in outcome.results if each.status is Status.PASSED]
    assert len(passed) > 3000
    assert {each.operator for each in passed} >= {"gemm", "matmul", "dot", "norm", "add", "transpose", "reshape"}
