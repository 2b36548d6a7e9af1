"""docs/api.md is what signatures and docstrings say."""

from __future__ import annotations

from pathlib import Path

from api_page import api_page

import optest

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")


def test_the_page_is_up_to_date() -> None:
    assert api_page() == PAGE, "docs/api.md is out of date: make docs"


def test_every_public_name_is_on_it() -> None:
    for name in {*optest.__all__, *(f"testing.{each}" for each in ("assert_right", "assert_close", "Numerics"))}:
        if name not in ("__version__", "testing"):
            assert f"\n## optest.{name}\n" in PAGE, name
