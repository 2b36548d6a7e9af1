"""Results made by hand, with nothing of the engine in them."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from optest.spec import CaseResult, Evidence, Measure, RuleUsed, Status, Timings, Verdict

RULE = RuleUsed(name="operator matmul", layer="operator", text="float16 in, float32 accumulate, k=128")
REPRO = (
    "optest run --op matmul --dtype float16,float16 --shape input0=64x128 --shape input1=128x32 "
    "--seed 7 --backend torch"
)


def make_measure(**changes: Any) -> Measure:
    base = {"output": "out", "dtype": "float16", "shape": (64, 32), "compared": 2048, "rule": RULE}
    return Measure(**{**base, **changes})


def make_result(**changes: Any) -> CaseResult:
    """A passed matmul; what belongs to the verdict may be given flat (status, reason, message, …)."""
    own = {
        name: changes.pop(name)
        for name in ("status", "reason", "message", "measures", "checks", "details")
        if name in changes
    }
    status = own.pop("status", own["reason"].status if "reason" in own else Status.PASSED)
    if status is Status.PASSED:
        own = {"evidence": Evidence.MEASURED, "measures": (make_measure(worst_used=0.25),), **own}
    base = {
        "id": "matmul[float16](64x128, 128x32)",
        "key": "k1:00",
        "operator": "matmul",
        "target": "torch:cpu",
        "reference": "numpy",
        "mode": "forward",
        "verdict": Verdict(status=status, **own),
        "seed": 7,
        "dtypes": ("float16", "float16"),
        "shapes": {"input0": (64, 128), "input1": (128, 32)},
        "backend": "torch",
        "kind": "cpu",
        "device": "cpu",
        "timings": Timings(generate_s=0.0001, reference_s=0.0002, run_s=0.0008, compare_s=0.0001),
        "repro": "" if status is Status.PASSED else REPRO,
    }
    return CaseResult(**{**base, **changes})


@pytest.fixture
def result() -> Callable[..., CaseResult]:
    return make_result


@pytest.fixture
def measure() -> Callable[..., Measure]:
    return make_measure


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal() -> FakeTerminal:
    return FakeTerminal()
