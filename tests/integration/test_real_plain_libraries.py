"""Libraries that nobody here wrote, in styles of their own: objects that are made and run, structs, kernels by name."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import pytest
from ffi_plans import ffi_case, run_ffi_plan

from optest.spec import Status

pytestmark = [pytest.mark.cxx, pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")]

EXAMPLES = Path(__file__).parents[2] / "examples"
PADDED = {"shape": [4, 5], "strides": [7, 1]}
OUT = {"ffi": {"outputs": {"out": {"strides": [9, 1]}}}}


def case(op: str, dtype: str, *shapes: Any, **further: Any) -> dict[str, Any]:
    return ffi_case(op, *shapes, dtype=dtype, **further)


CASES = {
    "libliquid.so": (
        "liquid",
        [
            case("dot", "float32", [129], [129]),
            case("dot", "float32", [1], [1]),
            case("matmul", "float64", [5, 7], [7, 3]),
            case("sub", "float64", [3, 37], [3, 37]),
            case("div", "float32", [3, 37], [3, 37]),
        ],
    ),
    "libgsl.so.27": (
        str(EXAMPLES / "gsl" / "gsl.yaml"),
        [
            case("gemm", "float64", PADDED, [5, 3], [4, 3], attributes={"alpha": 0.5, "beta": -1.5}),
            case("gemm", "float64", [5, 4], [5, 3], attributes={"trans_a": True}),
            case("add", "float64", PADDED, {"shape": [4, 5], "strides": [6, 1]}, backend_config=OUT),
            case("sub", "float64", {"shape": [9], "strides": [3]}, [9]),
            case("mean", "float64", {"shape": [65], "strides": [2]}, attributes={"dim": [0]}),
        ],
    ),
    "libvolk.so.2.5": (
        str(EXAMPLES / "volk" / "volk.yaml"),
        [
            case("add", "float32", [3, 37], [3, 37]),
            case("mul", "float64", [37], [37]),
            case("bitwise_and", "int32", [37], [37]),
            case("cast", "float64", [37], attributes={"dtype": "float32"}),
            case("dot", "float32", [129], [129]),
        ],
    ),
}


@pytest.mark.parametrize("library", list(CASES))
def test_a_real_library_passes(tmp_path: Path, library: str) -> None:
    try:
        ctypes.CDLL(library)
    except OSError:
        pytest.skip(f"needs {library}")
    mapping, cases = CASES[library]
    results = run_ffi_plan(tmp_path, cases, mapping=mapping).results
    assert [each.verdict.message for each in results if each.status is not Status.PASSED] == []
    assert len(results) == len(cases)
