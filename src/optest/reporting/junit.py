"""JUnit XML report, for CI services; docs/reports.md has its form and the mapping of statuses."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence

from optest.reporting.check_summary import HEAD, in_order, is_check, operator_lines
from optest.reporting.explain import gist, headline, rules_text
from optest.reporting.failure_groups import (
    FailureGroup,
    by_operator,
    failure_block,
    failure_groups,
    group_block,
    without_colours,
)
from optest.reporting.patterns import layout_text, layouts_of
from optest.reporting.tally import in_plan_order, total_seconds
from optest.reporting.typography import number, printable, without_ansi
from optest.spec import CaseResult, RunInfo, RunSummary, Status, format_shape

# JUnit has no more kinds of results. A case without a comparison is no pass there either.
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

# The journal does not have the name of the machine of the run, and a report may be built on another one.
_HOSTNAME = "localhost"
_NOT_IN_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:
    """Return the report as XML text: a suite of one test for each case, in the order of the plan.

    A check has a suite for each operator, in which groups of failures are explained once.
    """
    ordered = in_order(results) if is_check(info) else in_plan_order(results)
    root = ET.Element("testsuites")  # the schemas disagree whether it has attributes, so it has none
    # The properties of the run are those of a suite without tests, since only suites may have properties.
    suite = _empty_suite("optest run", (), info, 0)
    facts = {
        "run": info.run_id,
        "plan": info.plan,
        "target": info.target,
        "seed": str(info.seed),
        "isolation": info.isolation,
        "jobs": str(info.jobs),
        "exit_status": str(summary.exit_status),
        "interrupted": str(summary.interrupted).lower(),
        "not_run": str(max(0, summary.total - len(ordered))),
        "duration_s": f"{summary.duration_s:.6f}" if math.isfinite(summary.duration_s) else "",
        **{f"version.{name}": version for name, version in info.versions.items()},
        **{f"host.{name}": str(fact) for name, fact in info.host.items()},
        **{f"note.{number}": note for number, note in enumerate(info.notes, start=1)},
    }
    _add_properties(suite, facts)
    root.append(_closed(suite))
    if is_check(info):
        root.extend(list(_suites_of_check(ordered, info)))
    else:
        root.extend([_suite(result, info, number) for number, result in enumerate(ordered, start=1)])
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _suite(result: CaseResult, info: RunInfo, number_of_suite: int) -> ET.Element:
    """Return a suite with one test and the properties of its case, without empty ones."""
    suite = _empty_suite(_test_name(result), [result], info, number_of_suite)
    used = [measure.worst_used for measure in result.verdict.measures if measure.worst_used is not None]
    shapes = (f"{name}={format_shape(tuple(shape))}" for name, shape in result.shapes.items())
    properties = {
        "status": result.status.value,
        "reason": result.reason.value if result.reason else "",
        "operator": result.operator,
        "computes": result.identifier,
        "key": result.key,
        "seed": str(result.seed),
        "dtypes": ",".join(result.dtypes),
        "shapes": " ".join(shapes),
        "layouts": "; ".join(f"{path}={layout_text(spec)}" for path, spec in layouts_of(result).items()),
        "attributes": " ".join(f"{name}={value}" for name, value in result.attributes.items()),
        "rule": rules_text(result.verdict.measures),
        # NaN counts as the largest error.
        "allowance_used": number(max(used, key=lambda use: math.inf if math.isnan(use) else use), 4) if used else "",
        "evidence": result.verdict.evidence.value if result.verdict.evidence else "",
        "backend": result.backend,
        "chip": result.chip or "",
        "device": result.device or "",
        "reference": result.reference,
        "isolation": result.isolation,
        "attempts": str(result.attempts),
        "time_s": f"{total_seconds(result):.6f}",
        "compile_s": "" if result.timings.compile_s is None else f"{result.timings.compile_s:.6f}",
        "duplicate_of": result.duplicate_of or "",
        "tags": ",".join(result.tags),
        "description": " ".join(result.description.split()),
        "where": result.where,
        "repro": result.repro,
    }
    _add_properties(suite, properties)
    _add_case(suite, result, failure_block(result))
    return _closed(suite)


def _suites_of_check(results: Sequence[CaseResult], info: RunInfo) -> Iterator[ET.Element]:
    """Yield a suite for each operator, with the counts of its row in the check's table."""
    groups = failure_groups(results)
    group_of = {id(result): group for group in groups for result in (group.first, *group.others)}
    pairs = zip(operator_lines(results), by_operator(results).values(), strict=True)
    for number_of_suite, (line, of_operator) in enumerate(pairs, start=1):
        suite = _empty_suite(line.operator, of_operator, info, number_of_suite)
        facts = {name: str(count) for name, count in zip(HEAD[1:], line.counts, strict=True)}
        facts["remark"] = line.remark()
        _add_properties(suite, facts)
        for result in of_operator:
            _add_case(suite, result, _text_in_group(result, group_of.get(id(result))))
        yield _closed(suite)


def _text_in_group(result: CaseResult, group: FailureGroup | None) -> str:
    """Return the failure block of a group for its first result; for others the headline and reproduction command."""
    if group is None or not group.others:
        return failure_block(result)
    if result is group.first:
        return group_block(group)
    repro = f"\n  reproduce: {result.repro}" if result.repro else ""
    return f"{headline(without_colours(result))}\n  fails like {group.first.id}{repro}"


def _test_name(result: CaseResult) -> str:
    return f"{result.id}, round {result.round + 1}" if result.round else result.id


def _empty_suite(name: str, results: Sequence[CaseResult], info: RunInfo, number_of_suite: int) -> ET.Element:
    """Return a suite with the counts and the time of ``results``, still without properties and tests."""
    time = _seconds(math.fsum(map(total_seconds, results)))
    origin = _xml_attributes(package=info.target, id=str(number_of_suite), hostname=_HOSTNAME)
    return ET.Element(
        "testsuite",
        # Readers expect the start in UTC without a fraction or a zone.
        {**_xml_attributes(name=name, **_counts(results), time=time, timestamp=info.started_at[:19]), **origin},
    )


def _closed(suite: ET.Element) -> ET.Element:
    # Ant's schema requires both elements at the end of a suite.
    ET.SubElement(suite, "system-out")
    ET.SubElement(suite, "system-err")
    return suite


def _add_case(suite: ET.Element, result: CaseResult, text: str) -> None:
    """Add a test to a suite; ``text`` is the content of its failure, error or skip."""
    time = _seconds(total_seconds(result))
    # Readers group by the part before the last dot, so `torch:cpu.matmul` must have no other dot.
    group = f"{result.target}.{result.operator}".replace(".", "_", result.target.count("."))
    case = ET.SubElement(suite, "testcase", _xml_attributes(name=_test_name(result), classname=group, time=time))
    element = ELEMENT_OF[result.status]
    if element is not None:
        kind = result.reason.value if result.reason else result.status.value.upper()
        why = gist(without_colours(result)) or kind
        node = ET.SubElement(case, element, _xml_attributes(type=kind, message=f"{result.status.value}: {why}"))
        node.text = _xml_text(text)


def _counts(results: Iterable[CaseResult]) -> dict[str, str]:
    elements = [ELEMENT_OF[result.status] for result in results]
    wrong = {name: str(elements.count(element)) for name, element in (("failures", "failure"), ("errors", "error"))}
    return {"tests": str(len(elements)), **wrong, "skipped": str(elements.count("skipped"))}


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"  # Surefire writes three decimals, and schemas derived from it require them


def _add_properties(suite: ET.Element, facts: Mapping[str, str]) -> None:
    properties = ET.SubElement(suite, "properties")
    for name, value in facts.items():
        if value:
            ET.SubElement(properties, "property", _xml_attributes(name=name, value=value))


def _xml_attributes(**values: str) -> dict[str, str]:
    return {name: _xml_text(printable(without_ansi(value))) for name, value in values.items() if value}


def _xml_text(text: str) -> str:
    """Return ``text`` with Python escapes for characters that XML 1.0 does not allow, not even as references."""
    return _NOT_IN_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
