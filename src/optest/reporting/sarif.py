"""SARIF 2.1.0 report, for code scanning and editors: a result for each failure; for a check, for each group of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from optest import __version__
from optest.reporting.check_summary import is_check
from optest.reporting.failure_groups import FailureGroup, failure_block, failure_groups, group_block
from optest.reporting.meanings import named_meanings
from optest.reporting.tally import in_plan_order
from optest.reporting.typography import printable
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"


def sarif_text(info: RunInfo, results: Iterable[CaseResult], summary: RunSummary) -> str:
    """Return the JSON text of one SARIF run; its rules are the reasons and statuses of the failures."""
    ordered = in_plan_order(results)
    # A plan has a line for each case, on which its failure is shown; the cases of a check have none.
    single = [FailureGroup(first=result) for result in ordered if result.status in BAD_STATUSES]
    groups = failure_groups(ordered) if is_check(info) else single
    rules = list(dict.fromkeys(_rule_id(group.first) for group in groups))
    # Other exit statuses than 0 and 1 are of runs that compared nothing or could not be evaluated.
    ran = not summary.interrupted and summary.exit_status in (0, 1)
    run = {
        "tool": {
            "driver": {
                "name": "optest",
                "version": __version__,
                "rules": [
                    {
                        "id": name,
                        "shortDescription": {"text": named_meanings()[name].sentence},
                        "help": {"text": f"Try: {named_meanings()[name].remedy}."},
                    }
                    for name in rules
                ],
            }
        },
        "invocations": [{"executionSuccessful": ran, "exitCode": summary.exit_status}],
        "results": [
            {
                **_sarif_result(group.first, group_block(group) if group.others else failure_block(group.first)),
                "ruleIndex": rules.index(_rule_id(group.first)),
                "occurrenceCount": 1 + len(group.others),
            }
            for group in groups
        ],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, allow_nan=False) + "\n"


def _rule_id(result: CaseResult) -> str:
    return result.reason.value if result.reason else result.status.value


def _sarif_result(result: CaseResult, text: str) -> dict[str, Any]:
    file, _, line = result.where.rpartition(":")
    location: dict[str, Any] = {
        "logicalLocations": [{"name": result.operator, "fullyQualifiedName": printable(result.id)}]
    }
    if line.isdigit():
        uri = Path(file).as_uri() if Path(file).is_absolute() else quote(Path(file).as_posix())
        location["physicalLocation"] = {"artifactLocation": {"uri": uri}, "region": {"startLine": int(line)}}
    return {
        "ruleId": _rule_id(result),
        "level": "error",
        "message": {"text": text},
        "locations": [location],
        # The service recognises a known failure by it, whatever its text and line.
        "partialFingerprints": {"optestCase/v1": f"{result.id} on {result.target}"},
    }
