"""Every link between pages leads to a file and a heading that are there, and every page can be reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/README.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def links_of(page: Path) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text(encoding="utf-8")))
    return [link for link in LINK.findall(text) if not re.match(r"\w+:", link)]


def targets_of(page: Path) -> set[Path]:
    return {(page.parent / link.partition("#")[0]).resolve() for link in links_of(page)}


def anchors_of(page: Path) -> set[str]:
    """Headings as GitHub turns them into anchors."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links_of(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.relative_to(ROOT)} links to {link}"
        assert not anchor or anchor in anchors_of(target), f"{page.relative_to(ROOT)} links to {link}"


def test_every_page_is_on_the_map() -> None:
    index = ROOT / "docs" / "index.md"
    reached = targets_of(index)
    for page in tuple(reached):  # a list of pages, such as that of the reasons, may stand between
        reached |= targets_of(page) if page.suffix == ".md" else set()
    missing = {page for page in PAGES if page.parent != ROOT} - reached - {index}
    assert not missing, f"docs/index.md does not lead to {sorted(map(str, missing))}"


def test_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A *Title*, here\n[x](y.md#z) `[no](no.md)`\n```\n[no](no.md)\n```\n[web](https://a.b)\n")
    assert links_of(page) == ["y.md#z"]
    assert anchors_of(page) == {"a-title-here"}
