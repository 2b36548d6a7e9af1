"""OpenCL kernels: right ones pass, and what is wrong with others has its reason. Needs a device, as PoCL's CPU."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

from optest.api.checking import check
from optest.api.report import Report
from optest.errors import OptestError
from optest.spec import BAD_STATUSES, Reason, Status

pytestmark = [pytest.mark.slow, pytest.mark.needs("opencl")]

SOURCE = """\
__kernel void relu(__global const float *x, __global float *y, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = x[i] < 0 ? 0 : x[i];
}
__kernel void relu_of_nan(__global const float *x, __global float *y, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = x[i] > 0 ? x[i] : 0;
}
__kernel void relu_beyond(__global const float *x, __global float *y, int n) {
    int i = get_global_id(0);
    if (i <= n) y[i] = i < n && x[i] < 0 ? 0 : x[i];
}
__kernel void relu_without_the_last(__global const float *x, __global float *y, int n) {
    int i = get_global_id(0);
    if (i < n - 1) y[i] = x[i] < 0 ? 0 : x[i];
}
__kernel void relu_that_clears(__global float *x, __global float *y, int n) {
    int i = get_global_id(0);
    if (i < n) { y[i] = x[i] < 0 ? 0 : x[i]; x[i] = 0; }
}
__kernel void relu_far_away(__global const float *x, __global float *y, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = x[i] < 0 ? 0 : x[i];
    if (i == 0) y[n + 5000] = 7;
}
__kernel void scaled(__global const float *x, __global float *y, float slope) {
    int i = get_global_id(0);
    y[i] = x[i] < 0 ? x[i] * slope : x[i];
}
"""
RELU = {
    "kernel": "relu",
    "arguments": ["{input0}", "{output0}", "int {numel0}"],
    "global": ["{numel0}"],
    "local": [64],
    "promises": {"dtypes": "float32"},
}


def asked(folder: Path, operator: str = "relu", source: str = SOURCE, *, sets: str = "", **changes: Any) -> Report:
    """A check of a kernel, by ``sets`` of its cases or all."""
    (folder / "kernels.cl").write_text(source)
    section = {"source": "kernels.cl", "operators": {operator: {**RELU, **changes}}}
    (folder / "kernels.yaml").write_text(yaml.safe_dump({"opencl": section}))
    options = {"backend": "opencl", "config": str(folder / "kernels.yaml"), "isolate": "none", "jobs": 1}
    given = {**options, "case_set": tuple(sets.split()) or None, "runs_dir": str(folder / "runs")}
    return check(given, stream=io.StringIO())


def reasons(outcome: Report) -> set[Reason | None]:
    return {each.reason for each in outcome.results if each.status in BAD_STATUSES}


def test_a_right_kernel_passes(tmp_path: Path) -> None:
    outcome = asked(tmp_path)
    assert outcome.exit_status == 0
    assert sum(each.status is Status.PASSED for each in outcome.results) > 30


@pytest.mark.heavy
def test_attributes_and_compiler_options_reach_kernel(tmp_path: Path) -> None:
    arguments = ["{input0}", "{output0}", "float {attr:negative_slope}"]
    changes: dict[str, Any] = {"kernel": "scaled", "arguments": arguments, "local": [], "options": ["-DSIGN=-1"]}
    changes["sets"] = "ordinary attributes"
    assert asked(tmp_path, "leaky_relu", **changes).exit_status == 0
    wrong = SOURCE.replace("x[i] * slope", "x[i] * slope * SIGN")
    assert reasons(asked(tmp_path, "leaky_relu", source=wrong, **changes)) >= {Reason.VALUE}


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("relu_of_nan", Reason.NAN),
        ("relu_beyond", Reason.OUT_OF_BOUNDS),
        ("relu_without_the_last", Reason.UNWRITTEN),
        ("relu_that_clears", Reason.INPUT_MUTATED),
        ("relu_far_away", Reason.OUT_OF_BOUNDS),
        ("relo", Reason.BAD_CASE),
    ],
)
def test_a_wrong_kernel_has_its_reason(tmp_path: Path, kernel: str, reason: Reason) -> None:
    assert reason in reasons(asked(tmp_path, kernel=kernel, sets="ordinary special"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{input0}", "{output0}"], "kernel relu of kernels.cl has 3 arguments, but `arguments` has 2"),
        (["{input0}", "{output0}", "float {numel0}"], "argument 3 of kernel relu of kernels.cl is 'float {numel0}'"),
        (["{input0}", "{output0}", "{input0}"], "but the source declares 'int'"),
        (["int {numel0}", "{output0}", "int {numel0}"], "but the source declares 'float*'"),
        (["{input0}", "{output0}", "int {dtype}"], "which is 'float32' here, expected of type int"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path: Path, arguments: list[str], said: str) -> None:
    outcome = asked(tmp_path, arguments=arguments, sets="ordinary")
    assert reasons(outcome) == {Reason.BAD_CASE}
    assert all(said in each.verdict.message for each in outcome.results if each.status in BAD_STATUSES)


def test_what_does_not_compile_says_why(tmp_path: Path) -> None:
    outcome = asked(tmp_path, source=SOURCE.replace("int i =", "integer i ="), sets="ordinary")
    assert reasons(outcome) == {Reason.COMPILE}
    assert "integer" in outcome.results[0].verdict.message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kernal": "relu"}, "did you mean 'kernel'?"),
        ({"arguments": "{input0}"}, "expected a list"),
        ({"arguments": ["{input0}", "{output0}", "integer {numel0}"]}, "a number: int, uint"),
        ({"arguments": ["{input0}", "{output1}"]}, "unknown token {output1}"),
        ({"global": ["{numels}"]}, "unknown token {numels}"),
    ],
)
def test_a_wrong_section_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(OptestError) as caught:
        asked(tmp_path, **changes)
    assert said in str(caught.value)
