"""The JUnit XML report, for CI services. docs/reports.md says which form it follows and how statuses map to it."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TextIO

from optest.reporting.explain import brief, rules_text, total_s
from optest.reporting.file_report import FileReporter, make_file_reporter
from optest.reporting.plain_results import block, plain
from optest.reporting.tally import in_plan_order
from optest.reporting.typography import number, printable, without_ansi
from optest.spec import CaseResult, RunInfo, RunSummary, Status, format_shape

__all__ = ["ELEMENT_OF", "junit_text", "make"]

ELEMENT_OF: Mapping[Status, str | None] = {
    Status.PASSED: None,
    Status.FAILED: "failure",
    Status.SUSPECT: "failure",
    Status.XPASSED: "failure",
    Status.ERROR: "error",
    Status.CRASHED: "error",
    Status.TIMEOUT: "error",
    Status.SKIPPED: "skipped",
    Status.XFAILED: "skipped",
    Status.UNCHECKED: "skipped",
}
"""What a status is in JUnit, which knows no more; what was not compared is no pass there either."""

_NOT_IN_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def make(*, stream: TextIO | None, path: Path | None, verbosity: int, color: bool | None) -> FileReporter:
    """The JUnit report as the registry makes it."""
    return make_file_reporter("junit", stream=stream, path=path, verbosity=verbosity, color=color)


def junit_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:
    """The report as XML: a suite of one test for each case, since only suites may have properties.

    Cases stand in the order of the rounds and the plan.
    """
    ordered = in_plan_order(results)
    counts = _counts(ordered)
    del counts["skipped"]  # the root has no such attribute
    root = ET.Element("testsuites", _attributes(name=f"optest {info.target}", **counts))
    if math.isfinite(summary.duration_s):
        root.set("time", _seconds(summary.duration_s))
    root.append(_run_suite(info, summary, len(ordered)))
    root.extend(_suite(result, info, number) for number, result in enumerate(ordered, start=1))
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _run_suite(info: RunInfo, summary: RunSummary, finished: int) -> ET.Element:
    """A suite without tests, which has the properties of the run."""
    suite = ET.Element("testsuite", _attributes(name="optest run", **_counts(()), timestamp=_second(info.started_at)))
    properties = ET.SubElement(suite, "properties")
    facts = {
        "run": info.run_id,
        "plan": info.plan,
        "target": info.target,
        "seed": str(info.seed),
        "isolation": info.isolation,
        "jobs": str(info.jobs),
        "exit_status": str(summary.exit_status),
        "interrupted": str(summary.interrupted).lower(),
        "not_run": str(max(0, summary.total - finished)),
        **{f"version.{name}": version for name, version in info.versions.items()},
        **{f"host.{name}": str(fact) for name, fact in info.host.items()},
        **{f"note.{place}": note for place, note in enumerate(info.notes, start=1)},
    }
    _add(properties, facts)
    return suite


def _suite(result: CaseResult, info: RunInfo, place: int) -> ET.Element:
    name = f"{result.id}, round {result.round + 1}" if result.round else result.id
    time = _seconds(total_s(result.timings) or 0.0)
    suite = ET.Element(
        "testsuite",
        _attributes(name=name, **_counts([result]), time=time, id=str(place), timestamp=_second(info.started_at)),
    )
    _add(ET.SubElement(suite, "properties"), _properties(result))
    case = ET.SubElement(suite, "testcase", _attributes(name=name, classname=_class_name(result), time=time))
    element = ELEMENT_OF[result.status]
    if element is not None:
        kind = result.reason.value if result.reason else result.status.value.upper()
        told_in_brief = result.verdict.message and result.status is not Status.FAILED
        why = brief(plain(result)) if told_in_brief else _first_fact(result)
        found = ET.SubElement(case, element, _attributes(type=kind, message=f"{result.status.value}: {why or kind}"))
        found.text = _legal(block(result))
    return suite


def _properties(result: CaseResult) -> dict[str, str]:
    """What a person or a query wants to know of one case; empty ones are left out."""
    used = [each.worst_used for each in result.verdict.measures if each.worst_used is not None]
    shapes = (f"{name}={format_shape(tuple(shape))}" for name, shape in result.shapes.items())
    return {
        "status": result.status.value,
        "reason": result.reason.value if result.reason else "",
        "operator": result.operator,
        "computes": result.identifier,
        "key": result.key,
        "seed": str(result.seed),
        "dtypes": ",".join(result.dtypes),
        "shapes": " ".join(shapes),
        "attributes": " ".join(f"{name}={value}" for name, value in result.attributes.items()),
        "rule": rules_text(result.verdict.measures),
        "allowance_used": number(max(used, key=_size), 4) if used else "",
        "evidence": result.verdict.evidence.value if result.verdict.evidence else "",
        "backend": result.backend,
        "chip": result.chip or "",
        "device": result.device or "",
        "reference": result.reference,
        "isolation": result.isolation,
        "attempts": str(result.attempts),
        "duplicate_of": result.duplicate_of or "",
        "tags": ",".join(result.tags),
        "where": result.where,
        "repro": result.repro,
    }


def _size(used: float) -> float:
    return math.inf if math.isnan(used) else used


def _first_fact(result: CaseResult) -> str:
    """The first line below the header that is not about the name of the case."""
    lines = [line.strip() for line in block(result).split("\n")[1:]]
    told = [line for line in lines if not line.startswith(("case: ", "again: "))]
    return told[0] if told else ""


def _class_name(result: CaseResult) -> str:
    """``torch:cpu.matmul``: readers group by what stands before the last dot, so there is no other one."""
    return f"{result.target}.{result.operator}".replace(".", "_", result.target.count("."))


def _counts(results: Iterable[CaseResult]) -> dict[str, str]:
    elements = [ELEMENT_OF[result.status] for result in results]
    wrong = {name: str(elements.count(element)) for name, element in (("failures", "failure"), ("errors", "error"))}
    return {"tests": str(len(elements)), **wrong, "skipped": str(elements.count("skipped"))}


def _second(started_at: str) -> str:
    """UTC without a fraction or a zone, as readers expect it."""
    return started_at[:19]


def _seconds(seconds: float) -> str:
    return f"{seconds:.6f}"


def _add(properties: ET.Element, facts: Mapping[str, str]) -> None:
    for name, value in facts.items():
        if value:
            ET.SubElement(properties, "property", _attributes(name=name, value=value))


def _attributes(**values: str) -> dict[str, str]:
    return {name: _legal(printable(without_ansi(value))) for name, value in values.items() if value}


def _legal(text: str) -> str:
    """``text`` with the characters that XML 1.0 cannot hold, not even escaped, spelled out."""
    return _NOT_IN_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
