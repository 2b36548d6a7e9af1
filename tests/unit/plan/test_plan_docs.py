"""docs/plan.md agrees with the code: its plans are built, and it has every key and limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from plan_kit import build

from optest.generators import FILLS
from optest.operators import operators
from optest.plan import parse_plan
from optest.plan.schema import CaseEntry, Defaults, PlanDocument
from optest.plan.yaml_source import MAX_ALIASED_NODES, MAX_BYTES, MAX_DEPTH

PAGE = (Path(__file__).parents[3] / "docs" / "plan.md").read_text(encoding="utf-8")
PLANS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("index", range(len(PLANS)))
def test_the_plans_on_the_page_are_right(index: int) -> None:
    document = parse_plan(PLANS[index].encode(), "docs/plan.md")
    cases = build(document, operators=operators, check_fill=lambda fill: None)
    products = [product for product in document.products.values() if product for _ in product.combinations()]
    assert len(cases) == len(document.cases) - len(document.products) + len(products) > 0


def test_there_are_plans_on_the_page() -> None:
    assert len(PLANS) >= 4


def keys_in_table(heading: str) -> dict[str, bool]:
    """Return the keys of the table below a heading, each with whether it has a star."""
    table = PAGE.split(f"\n## {heading}\n")[1].split("\n##")[0]
    first_cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return {key: cell.endswith("*") for cell in first_cells for key in re.findall(r"`(\w+)`", cell)}


def test_doc_tables_have_the_schema_keys() -> None:
    assert set(keys_in_table("At the top")) == set(PlanDocument.model_fields)
    of_a_case = keys_in_table("A case")
    assert set(of_a_case) == set(CaseEntry.__annotations__)
    assert {key for key, has_star in of_a_case.items() if has_star} == set(Defaults.__annotations__)


def test_fills_and_limits() -> None:
    for fill in FILLS:
        assert f"`{fill}`" in PAGE
    assert (MAX_ALIASED_NODES, MAX_DEPTH, MAX_BYTES) == (1_000_000, 64, 16 * 2**20)
