"""docs/plan-reference.md is what the schema says, key by key."""

from __future__ import annotations

from pathlib import Path

from optest.plan.reference_page import plan_page
from optest.plan.schema import plan_schema

PAGE = (Path(__file__).parents[2] / "docs" / "plan-reference.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    assert plan_page() == PAGE, "docs/plan-reference.md is out of date: make docs"


def test_every_key_has_a_row_and_a_meaning() -> None:
    schema = plan_schema()
    for node in (schema, *schema["$defs"].values()):
        for key in node["properties"]:
            rows = [line for line in PAGE.splitlines() if line.startswith(f"| `{key}` |")]
            assert rows
            assert all(len(row.split(" | ")[-1]) > len("| x") for row in rows), key
