"""Only a pass passes in pytest, and nothing but skips is no success."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from texts import says_exactly

from optest.pytest_plugin.nodes import RESULTS, CaseFailed, CaseItem
from optest.pytest_plugin.summary import Verified
from optest.spec import CaseResult, Evidence, Measure, Reason, Status, Verdict

MEASURE = Measure(output="out", dtype="float32", shape=(2,), compared=2)
VERDICTS = {
    "passed": (Verdict(status=Status.PASSED, evidence=Evidence.MEASURED, measures=(MEASURE,)), None),
    "failed": (Verdict(status=Status.FAILED, reason=Reason.VALUE, message="off"), CaseFailed),
    "suspect": (Verdict(status=Status.SUSPECT, message="zeros pass too"), CaseFailed),
    "skipped": (Verdict(status=Status.SKIPPED, message="left out"), pytest.skip.Exception),
    "unchecked": (Verdict(status=Status.UNCHECKED, message="nothing was compared"), pytest.skip.Exception),
    "xfailed": (Verdict(status=Status.XFAILED, message="known"), pytest.xfail.Exception),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_only_a_pass_passes_as_an_item(name: str) -> None:
    verdict, error = VERDICTS[name]
    result = CaseResult(
        id="a", key="k", operator="add", target="torch", reference="torch", mode="forward", verdict=verdict,
        seed=0, dtypes=(), shapes={}, backend="torch", kind="cpu",
    )  # fmt: skip
    stash = {RESULTS: SimpleNamespace(of=lambda _: result)}
    item: Any = SimpleNamespace(
        session=SimpleNamespace(stash=stash), case=SimpleNamespace(xfail=None, attributes={}), xpassed=""
    )
    if error is None:
        CaseItem.runtest(item)
    else:
        with pytest.raises(error):
            CaseItem.runtest(item)


def report(outcome: str, when: str = "call", *, is_case: bool = True, xfail: bool = False) -> pytest.TestReport:
    made = pytest.TestReport("x", ("x", 0, "x"), {}, outcome, None, when)  # type: ignore[arg-type]
    if xfail:
        made.wasxfail = "known"
    if is_case:
        Verified.mark_case(made)
    return made


def told(*reports: pytest.TestReport) -> Verified:
    verified = Verified()
    for each in reports:
        verified.add(each)
    return verified


def test_cases_that_were_all_skipped_are_no_success() -> None:
    phases = (report("skipped", "setup"), report("passed", "setup"), report("passed", "teardown"))
    verified = told(report("skipped"), *phases)
    assert [verified.exit_status(each) for each in (0, 1, 2)] == [5, 1, 2]  # what is wrong otherwise stays so
    assert verified.line().startswith("no operator case was verified: all 2 were skipped")
    assert "exit status 5" in verified.line()


@pytest.mark.parametrize(
    "reports",
    [
        *((report("skipped"), each) for each in (report("passed"), report("failed"), report("skipped", xfail=True))),
        (report("skipped", is_case=False),),  # a session without cases is pytest's own
    ],
)
def test_one_that_ran_is_enough(reports: tuple[pytest.TestReport, ...]) -> None:
    verified = told(*reports)
    assert (verified.exit_status(0), verified.line()) == (0, "")


def test_beside_other_tests_it_is_told_alone() -> None:
    verified = told(report("skipped"), report("passed", is_case=False))
    assert verified.exit_status(0) == 0
    assert says_exactly(verified.line(), "pytest_plugin.no_operator_case_was")
    assert told(report("skipped"), report("skipped", is_case=False)).exit_status(0) == 5
