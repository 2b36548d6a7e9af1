"""Plans: YAML files that describe test cases, checked against one schema and expanded to cases.

Five stages: YAML with line numbers (scalars, yaml_source); the schema (values, schema, plan_file), whose errors are
problems; layers (request, layers, operator_lookup); cases (cases, make_case and what it calls; expansion for
products); selection (select).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from optest.registry import load_object

if TYPE_CHECKING:
    from optest.plan.cases import build_cases
    from optest.plan.explain import explain_case
    from optest.plan.layers import PlanHost
    from optest.plan.plan_file import open_plan, parse_plan, read_plan
    from optest.plan.repro import case_plan, command_line
    from optest.plan.request import CaseRequest, request_from
    from optest.plan.schema import PlanDocument, plan_schema

__all__ = [
    "CaseRequest",
    "PlanDocument",
    "PlanHost",
    "build_cases",
    "case_plan",
    "command_line",
    "explain_case",
    "open_plan",
    "parse_plan",
    "plan_schema",
    "read_plan",
    "request_from",
]

# Imported on first access: reading a plan needs YAML and pydantic, `optest --help` needs neither.
_HOMES = {
    "CaseRequest": "request",
    "PlanDocument": "schema",
    "PlanHost": "layers",
    "build_cases": "cases",
    "case_plan": "repro",
    "command_line": "repro",
    "explain_case": "explain",
    "open_plan": "plan_file",
    "parse_plan": "plan_file",
    "plan_schema": "schema",
    "read_plan": "plan_file",
    "request_from": "request",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load_object(f"optest.plan.{_HOMES[name]}:{name}")
