"""How many operators there are is said in prose; figures that were measured keep the number that was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from optest.operators.catalogue import BUILTINS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("README.md", r"(\d+) operators\b(?! on)"),
        ("CHANGELOG.md", r"^- (\d+) operators with references"),
    ],
)
def test_number_of_operators_is_what_list_prints(page: str, sentence: str) -> None:
    found = re.findall(sentence, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert found == [str(len(BUILTINS))]
