"""The JUnit report: valid for whoever reads it, whatever foreign code said, and never greener than the run."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
import xmlschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reporting_kit import run_info, summary_of
from texts import says

from optest.reporting.explain import explain
from optest.reporting.junit import ELEMENT_OF, junit_text
from optest.spec import BAD_STATUSES, CaseResult, Reason, Status

Make = Callable[..., CaseResult]

SCHEMA = xmlschema.XMLSchema(Path(__file__).with_name("junit.xsd"))
INFO = run_info(run_id="r1", versions={"a": "1"})


def text_of(results: list[CaseResult]) -> str:
    return junit_text(INFO, results, summary_of(results))


def root_of(results: list[CaseResult]) -> ET.Element:
    text = text_of(results)
    SCHEMA.validate(text)
    return ET.fromstring(text.encode())


def properties(suite: ET.Element) -> dict[str, str]:
    return {each.attrib["name"]: each.attrib["value"] for each in suite.iter("property")}


def test_each_status_has_element_and_no_failure_passes(result: Make) -> None:
    assert set(ELEMENT_OF) == set(Status)
    reasons = {Status.ERROR: Reason.RAISED, Status.CRASHED: Reason.SIGNAL, Status.TIMEOUT: Reason.DEADLINE}
    results = [
        result(id=status.value, reason=reasons.get(status, Reason.VALUE), status=status, message="why")
        if status is not Status.PASSED
        else result(id=status.value)
        for status in Status
    ]
    root = root_of(results)
    found = {case.attrib["name"]: [each.tag for each in case] for case in root.iter("testcase")}
    for status in Status:
        expected = [] if status is Status.PASSED else [ELEMENT_OF[status]]
        assert found[status.value] == expected
        if status in BAD_STATUSES:
            assert found[status.value][0] in ("failure", "error")
    assert found["unchecked"] == ["skipped"]
    told = {name: sum(int(suite.attrib[name]) for suite in root) for name in ("tests", "failures", "errors", "skipped")}
    assert told == {"tests": 10, "failures": 3, "errors": 3, "skipped": 3}


def test_a_failure_tells_what_the_terminal_tells(result: Make, measure: Callable[..., object]) -> None:
    wrong = measure(mismatched=3, worst_index=(12, 31), worst_actual=0.5, worst_expected=0.25, worst_used=3.0)
    each = result(id="matmul half", reason=Reason.VALUE, measures=(wrong,), attributes={"alpha": 2.0}, where="p.yaml:4")
    _, suite = root_of([each])
    (case,) = suite.iter("testcase")
    (failure,) = case
    assert failure.text == "\n".join(explain(each))
    assert failure.attrib["type"] == "VALUE"
    assert says(failure.attrib["message"], "reporting.of_elements_are_off")
    _, said = root_of([result(reason=Reason.VALUE, measures=(wrong,), message="two outputs differ")])
    assert says(next(said.iter("failure")).attrib["message"], "reporting.of_elements_are_off")
    assert (case.attrib["classname"], case.attrib["name"]) == ("torch:cpu.matmul", "matmul half")
    assert case.attrib["time"] == "0.001"
    told = properties(suite)
    assert told["time_s"] == "0.001200"
    assert told["seed"] == "7"
    assert told["key"] == "k1:00"
    assert told["dtypes"] == "float16,float16"
    assert told["shapes"] == "input0=64x128 input1=128x32"
    assert told["attributes"] == "alpha=2.0"
    assert told["rule"] == "float16 in, float32 accumulate, k=128"
    assert told["allowance_used"] == "3"
    assert (told["backend"], told["device"], told["reason"]) == ("torch", "cpu", "VALUE")
    assert told["repro"] == each.repro
    assert told["where"] == "p.yaml:4"


def test_the_run_itself_has_properties(result: Make) -> None:
    run, _ = root_of([result()])
    told = properties(run)
    assert (told["run"], told["seed"], told["version.a"], told["not_run"]) == ("r1", "7", "1", "0")


def test_colours_are_gone_and_controls_are_spelled_out(result: Make) -> None:
    stderr = "\x1b[1;31merror:\x1b[0m bad \x00\x07 \ufffe tile\x1b]8;;http://x\x07link\x1b]8;;\x07"
    each = result(id="x\x1b[31m\x00", reason=Reason.EXIT_CODE, message="exit \x1b[7m1", details={"stderr_tail": stderr})
    _, suite = root_of([each])
    (found,) = suite.find("testcase") or ()
    assert says(found.text or "", "reporting.error_bad_ufffe_tilelink")
    assert "[31m" not in (suite.find("testcase") or suite).attrib["name"]
    assert "[7m" not in (found.text or "") + found.attrib["message"]
    assert "exit 1" in (found.text or "")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(name=st.text(st.characters(), max_size=40), said=st.text(st.characters(), max_size=40))
def test_no_text_breaks_the_file(result: Make, name: str, said: str) -> None:
    each = result(id=f"a{name}", reason=Reason.RAISED, message=said, details={"stderr_tail": said})
    root = ET.fromstring(text_of([each]).encode())
    assert len(list(root.iter("testcase"))) == 1


def test_a_run_of_nothing_is_valid() -> None:
    assert [suite.attrib["tests"] for suite in root_of([])] == ["0"]


def test_the_schema_can_refuse(result: Make) -> None:
    good = text_of([result()])
    for wrong in (
        good.replace("<testcase ", "<case ").replace("</testcase>", "</case>"),
        good.replace(' tests="1"', ""),
        good.replace("<testcase ", "<testcase file='x' "),
        good.replace('time="0.001"', 'time="0.001200"'),
        good.replace("<testsuites>", "<testsuites tests='1'>"),
        good.replace("<system-out />", ""),
        good.replace('hostname="localhost"', ""),
        good.replace("23:59:58", "23:59:58.123"),
    ):
        assert wrong != good
        with pytest.raises(xmlschema.XMLSchemaException):
            SCHEMA.validate(wrong)
