"""Descriptions of the location of wrong elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from texts import says_exactly

from optest.compare.locate import Sketch


def phrase(shape: tuple[int, ...], *where: Any, blocks: int = 7) -> str:
    wrong = np.zeros(shape, bool)
    for index in where:
        wrong[index] = True
    flat = np.flatnonzero(wrong)
    sketch = Sketch(shape)
    for part in np.array_split(flat, blocks):
        sketch.add(part)
    return sketch.phrase()


@pytest.mark.parametrize(
    ("shape", "where", "words"),
    [
        ((64, 32), [], ""),
        ((), [()], ""),
        ((1, 1), [(0, 0)], ""),
        ((64, 32), [slice(None)], "everywhere"),
        ((64, 32), [(12, 31)], "element [12, 31]"),
        ((64, 32), [(12, slice(29, 32))], "row 12, columns 29..31 of 32"),
        ((64, 64), [(slice(None), slice(48, 64))], "columns 48..63 of 64 (the last tile)"),
        ((64, 100), [(slice(None), slice(96, 100))], "columns 96..99 of 100 (the last tile)"),
        ((64, 64), [(slice(None), slice(15, None, 16))], "every 16th column from 15"),
        ((64, 64), [(slice(3, 40, 4), slice(None))], "every 4th row from 3 to 39"),
        ((64, 64), [3], "row 3"),
        ((64, 64), [(slice(None), 5)], "column 5"),
        ((64, 64), [(slice(10, 20), slice(7, 9))], "rows 10..19 of 64, columns 7..8 of 64"),
        ((64, 64), [0, 63], "rows 0, 63"),
        ((1000,), [slice(992, None)], "elements 992..999 of 1000 (the last tile)"),
        ((1000,), [slice(0, None, 2)], "every 2nd element from 0"),
        ((40, 30), [(3, slice(20, None)), (4, slice(0, 9))], "elements 110..128 in memory order"),
        ((40, 30), [(38, slice(20, None)), 39], "the last 40 elements in memory order"),
        ((40, 30), [0, (1, slice(0, 4))], "the first 34 elements in memory order"),
        ((4, 8, 16), [(2, slice(None), 3)], "axis 0 at 2, column 3"),
        ((4, 8, 16), [(slice(1, 3), 0, slice(None))], "axis 0 at 1..2 of 4, row 0"),
        ((64, 64), [(1, 2), (5, 9)], "scattered over rows 1..5 of 64, columns 2..9 of 64"),
        ((64, 64), [(0, 0), (63, 63), (5, 7)], "scattered over 3 of 64 rows and 3 of 64 columns"),
    ],
)
def test_phrases(shape: tuple[int, ...], where: list[Any], words: str) -> None:
    assert phrase(shape, *where) == words


def test_the_diagonal_is_scattered() -> None:
    diagonal = np.eye(16, dtype=bool)
    sketch = Sketch((16, 16))
    sketch.add(np.flatnonzero(diagonal))
    assert says_exactly(sketch.phrase(), "compare.scattered_over_the_whole")
