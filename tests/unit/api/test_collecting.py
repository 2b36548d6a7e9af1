"""What a result is to a face that knows passes, failures and skips."""

from __future__ import annotations

import pytest

from optest.api.collecting import is_bad, shows_nothing
from optest.spec import CaseResult, Evidence, Measure, Reason, Status, Verdict

MEASURE = Measure(output="out", dtype="float32", shape=(2,), compared=2)
VERDICTS = {
    "passed": Verdict(status=Status.PASSED, evidence=Evidence.MEASURED, measures=(MEASURE,)),
    "failed": Verdict(status=Status.FAILED, reason=Reason.VALUE, message="off"),
    "suspect": Verdict(status=Status.SUSPECT, message="zeros pass too"),
    "skipped": Verdict(status=Status.SKIPPED, message="left out"),
    "unchecked": Verdict(status=Status.UNCHECKED, message="nothing was compared"),
}


@pytest.mark.parametrize(
    ("name", "bad", "nothing"),
    [
        ("passed", False, False),
        ("failed", True, False),
        ("suspect", True, False),
        ("skipped", False, True),
        ("unchecked", False, True),
    ],
)
def test_only_a_pass_is_a_pass(name: str, bad: bool, nothing: bool) -> None:
    result = CaseResult(
        id="a", key="k", operator="add", target="torch", reference="torch", mode="forward", verdict=VERDICTS[name],
        seed=0, dtypes=(), shapes={}, backend="torch", kind="cpu",
    )  # fmt: skip
    assert (is_bad(result), shows_nothing(result)) == (bad, nothing)
