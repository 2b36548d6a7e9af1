"""docs/reasons.md is what the reports say and has every reason, and optest looks for each of them."""

from __future__ import annotations

import re
from pathlib import Path

from reasons_page import prose, reasons_page

from optest.reporting.meanings import MEANINGS, STATUS_MEANINGS
from optest.spec import Reason

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    assert reasons_page() == PAGE, "docs/reasons.md is out of date: make docs"


def test_every_reason_has_its_row() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| [")]
    assert len(rows) == len(Reason)
    for reason, row in zip(Reason, rows, strict=True):
        assert row.startswith(f"| [{reason.value}](reasons/{reason.value}.md) | `{reason.status.value}`")
        assert prose(MEANINGS[reason].sentence) in row


def test_words_have_no_full_stop_of_their_own() -> None:
    for meaning in (*MEANINGS.values(), *STATUS_MEANINGS.values()):
        for text in (meaning.sentence, meaning.remedy):
            assert text.strip() == text
            assert not text.endswith("."), text


def test_every_reason_is_looked_for() -> None:
    packages = ("core", "backends", "compare", "api", "process", "operators", "generators", "plan", "torch", "clib")
    source = "".join(path.read_text() for name in packages for path in (ROOT / "src/optest" / name).glob("**/*.py"))
    named = re.findall(r"\bReason\.([A-Z_]+)", source)
    assert set(Reason.__members__) <= set(named)


def test_every_reason_has_a_page_of_its_own() -> None:
    """What a page shows is run by test_documented_commands; here, that it says what the reports say."""
    for reason in Reason:
        page = (ROOT / "docs" / "reasons" / f"{reason.value}.md").read_text(encoding="utf-8")
        assert re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page, flags=re.S), re.M) == [
            reason.value,
            "What to try",
        ], reason
        assert f"Status `{reason.status.value}`" in page
        meaning = MEANINGS[reason]
        for words in (meaning.sentence, meaning.remedy):
            assert prose(words) in page, (reason, words)
        _, _, why, *_ = page.split("\n\n")
        assert len(why.split()) >= 5, reason
        assert not why.startswith(("<!--", "```", "#")), reason
        assert len(re.findall(r"^- ", page.partition("## What to try")[2], re.M)) >= 2, reason
