"""How many operators there are is said in prose; figures that were measured keep the number that was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from optest.operators.catalogue import DESCRIPTORS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("README.md", r"The whole catalogue, (\d+) operators"),
        ("CHANGELOG.md", r"^- (\d+) operators with references"),
    ],
)
def test_the_number_of_operators_is_that_of_the_catalogue(page: str, sentence: str) -> None:
    found = re.findall(sentence, (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert found == [str(len(DESCRIPTORS))]
