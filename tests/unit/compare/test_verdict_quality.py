"""Random calls of twelve operators: no correct implementation is rejected, and wrong ones are."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import honest_kernels
from drawn_calls import DRAWN, drawn_case
from faults import Sample
from width_calls import cases_of
from wrong_kernels import FAULTS, ORDINARY, Call, Fault
from wrong_kernels.any_operator import faults_of
from wrong_kernels.changes import wide

from optest.api import bootstrap
from optest.backends import backend_manager
from optest.core.runner import why_not_run
from optest.operators import operators
from optest.operators.calls import call
from optest.spec import BackendTarget, Status
from optest.spec import Sample as Entry

TARGET = BackendTarget(name="numpy", device="cpu")
ALWAYS = {
    "last element wrong", "NaN taken as 0", "infinity taken as the largest value", "sum-accumulates-in-16-bits",
    "matmul-accumulates-in-16-bits", "transpose-reshapes", "exp-in-16-bits", "add-reads-dense",
}  # fmt: skip
"""Faults that are rejected wherever they change the result."""
USUALLY = {
    "16-bit results truncated", "float64 computed in float32", "float32 results of 11 bits", "approximate ignored",
    "sum-reads-dense", "matmul-cuts-operands",
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def backends() -> None:
    bootstrap()
    honest_kernels.register()


@pytest.mark.parametrize("operator", DRAWN)
def test_honest_kernels_pass_and_wrong_ones_fail(operator: str) -> None:
    drivers = [backend_manager.get(name) for name in honest_kernels.BACKENDS]
    faults = [x for x in FAULTS.values() if x.op == operator and ORDINARY in x.tags]
    faults += [x for x in faults_of(operators.get(operator)) if " ignored" not in x.name or operator == "gelu"]
    wrong: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for number in range(12):
        sample = Sample(drawn_case(operator, np.random.default_rng((2026, number)), TARGET))
        for driver in drivers:
            if why_not_run(sample.case, driver) is None:
                verdict = sample.judge(driver.run(sample.case, sample.inputs))
                assert verdict.status is Status.PASSED, (number, driver.name, verdict.message)
        for fault in faults:
            outputs = sample.wrong(fault)
            if outputs is not None:
                name = fault.name.partition(": ")[2] or fault.name
                wrong[name] += 1
                missed[name] += sample.judge(outputs).status is Status.PASSED
    assert wrong["last element wrong"] >= 8
    assert {name: missed[name] for name in ALWAYS if missed[name]} == {}
    assert {name: missed[name] for name in USUALLY if missed[name] > 1 + wrong[name] // 4} == {}


@pytest.mark.parametrize("fill", ["randn", "integer-exact"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dropped_product_is_rejected(dtype: str, fill: str) -> None:
    """One product of 4,096, which is below half an ulp of a sum of positive terms."""
    entry = call(dtypes=[dtype], generator=fill, input=(16, 4096), other=(4096, 16))
    (case,) = cases_of(operators.get("matmul"), [Entry(case_set="drawn", case=entry)], TARGET)
    sample = Sample(case)

    def drop(given: Call) -> np.ndarray:
        return wide(given[0])[:, :-1] @ wide(given[1])[:-1]

    outputs = sample.wrong(Fault("matmul: one product dropped", "matmul", drop))
    assert outputs is not None
    assert sample.judge(outputs).status is Status.FAILED
    assert sample.judge(sample.right).status is Status.PASSED
