"""The JUnit XML report, for CI services. docs/reports.md says which form it follows and how statuses map to it."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence

from optest.reporting.bias import leans, sentence
from optest.reporting.check_summary import HEAD, columns_of, in_order, is_check, operator_lines
from optest.reporting.explain import brief, headline, rules_text
from optest.reporting.failure_groups import FailureGroup, block, by_operator, failure_groups, group_block, plain
from optest.reporting.patterns import layout_text, layouts_of
from optest.reporting.tally import in_plan_order, spent_s
from optest.reporting.typography import number, printable, without_ansi
from optest.spec import CaseResult, RunInfo, RunSummary, Status, format_shape

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

_HOSTNAME = "localhost"  # a report can be made on another machine than the run, whose journal keeps no name
_NOT_IN_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:
    """The report as XML: a suite of one test for each case, since only suites may have properties.

    Cases stand in the order of the rounds and the plan. A check has a suite for each operator, and tells failures that
    are alike once.
    """
    ordered = in_order(results) if is_check(info) else in_plan_order(results)
    root = ET.Element("testsuites")  # the schemas disagree whether it has attributes, so it has none
    # A suite without tests has the properties of the run.
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
        **{f"note.{place}": note for place, note in enumerate(info.notes, start=1)},
    }
    _add(suite, facts)
    root.append(_closed(suite))
    if is_check(info):
        root.extend(list(_suites_of_check(ordered, info)))
    else:
        root.extend([_suite(result, info, number) for number, result in enumerate(ordered, start=1)])
    ET.indent(root)
    return f"<?xml version='1.0' encoding='utf-8'?>\n{ET.tostring(root, encoding='unicode')}\n"


def _suite(result: CaseResult, info: RunInfo, place: int) -> ET.Element:
    suite = _empty_suite(_name(result), [result], info, place)
    # What a person or a query wants to know of one case; empty ones are left out.
    used = [each.worst_used for each in result.verdict.measures if each.worst_used is not None]
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
        "allowance_used": number(max(used, key=lambda each: math.inf if math.isnan(each) else each), 4) if used else "",
        "evidence": result.verdict.evidence.value if result.verdict.evidence else "",
        "backend": result.backend,
        "chip": result.chip or "",
        "device": result.device or "",
        "reference": result.reference,
        "isolation": result.isolation,
        "attempts": str(result.attempts),
        "time_s": f"{spent_s(result):.6f}",
        "compile_s": "" if result.timings.compile_s is None else f"{result.timings.compile_s:.6f}",
        "duplicate_of": result.duplicate_of or "",
        "tags": ",".join(result.tags),
        "description": " ".join(result.description.split()),
        "where": result.where,
        "repro": result.repro,
    }
    _add(suite, properties)
    _add_case(suite, result, block(result))
    return _closed(suite)


def _suites_of_check(results: Sequence[CaseResult], info: RunInfo) -> Iterator[ET.Element]:
    """One for each operator, with the counts of its line in the check's table."""
    groups = failure_groups(results)
    group_of = {id(each): group for group in groups for each in (group.first, *group.others)}
    sides = leans(results)
    pairs = zip(operator_lines(results), by_operator(results).values(), strict=True)
    for place, (line, of) in enumerate(pairs, start=1):
        suite = _empty_suite(line.operator, of, info, place)
        facts = {name: str(counts.total()) for name, counts in zip(HEAD[1:], columns_of(line), strict=True)}
        facts["remark"] = line.remark()
        here = [(which, lean) for which, lean in sides if which.split()[0].partition(".")[0] == line.operator]
        facts |= {f"one side, {which}": sentence(lean) for which, lean in here}
        _add(suite, facts)
        for result in of:
            _add_case(suite, result, _text_of_group(result, group_of.get(id(result))))
        yield _closed(suite)


def _text_of_group(result: CaseResult, group: FailureGroup | None) -> str:
    """The block of the case that stands for those like it; of the others what tells them apart."""
    if group is None or not group.others:
        return block(result)
    if result is group.first:
        return group_block(group)
    again = f"\n  again: {result.repro}" if result.repro else ""
    return f"{headline(plain(result))}\n  as {group.first.id}{again}"


def _name(result: CaseResult) -> str:
    return f"{result.id}, round {result.round + 1}" if result.round else result.id


def _empty_suite(name: str, results: Sequence[CaseResult], info: RunInfo, place: int) -> ET.Element:
    time = _seconds(math.fsum(map(spent_s, results)))
    where = _attributes(package=info.target, id=str(place), hostname=_HOSTNAME)
    return ET.Element(
        "testsuite",
        # the time is UTC without a fraction or a zone, as readers expect it
        {**_attributes(name=name, **_counts(results), time=time, timestamp=info.started_at[:19]), **where},
    )


def _closed(suite: ET.Element) -> ET.Element:
    """``suite`` with the two elements at its end that Ant's schema demands, and that hold nothing here."""
    ET.SubElement(suite, "system-out")
    ET.SubElement(suite, "system-err")
    return suite


def _add_case(suite: ET.Element, result: CaseResult, text: str) -> None:
    """``text`` is what is told of it if it is no pass."""
    time = _seconds(spent_s(result))
    # ``torch:cpu.matmul``: readers group by what stands before the last dot, so there is no other one
    group = f"{result.target}.{result.operator}".replace(".", "_", result.target.count("."))
    case = ET.SubElement(suite, "testcase", _attributes(name=_name(result), classname=group, time=time))
    element = ELEMENT_OF[result.status]
    if element is not None:
        kind = result.reason.value if result.reason else result.status.value.upper()
        if result.verdict.message and result.status is not Status.FAILED:
            why = brief(plain(result))
        else:  # the first line below the header that is not about the name of the case
            lines = (line.strip() for line in block(result).split("\n")[1:])
            why = next((line for line in lines if not line.startswith(("case: ", "again: "))), "")
        node = ET.SubElement(case, element, _attributes(type=kind, message=f"{result.status.value}: {why or kind}"))
        node.text = _legal(text)


def _counts(results: Iterable[CaseResult]) -> dict[str, str]:
    elements = [ELEMENT_OF[result.status] for result in results]
    wrong = {name: str(elements.count(element)) for name, element in (("failures", "failure"), ("errors", "error"))}
    return {"tests": str(len(elements)), **wrong, "skipped": str(elements.count("skipped"))}


def _seconds(seconds: float) -> str:
    """Three decimals, as Surefire writes them and the schemas made after it demand."""
    return f"{seconds:.3f}"


def _add(suite: ET.Element, facts: Mapping[str, str]) -> None:
    properties = ET.SubElement(suite, "properties")
    for name, value in facts.items():
        if value:
            ET.SubElement(properties, "property", _attributes(name=name, value=value))


def _attributes(**values: str) -> dict[str, str]:
    return {name: _legal(printable(without_ansi(value))) for name, value in values.items() if value}


def _legal(text: str) -> str:
    """``text`` with the characters that XML 1.0 cannot hold, not even escaped, spelled out."""
    return _NOT_IN_XML.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
