"""Where an output is off and how far, in a few kilobytes whatever its size: what a report draws of a failure."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

PER_DOUBLING = 2
"""Levels for each doubling of the share that an error takes of its allowance."""
LIMIT = 64
"""The level of a share of 1; a right element has this one or less, a wrong one more."""
NO_MULTIPLE = 255
"""The level of a wrong element whose error is no multiple of its allowance: it is NaN or infinite, or nothing is
allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """One output whose values are wrong. A level is a byte: 0 where there is no element, 1 for no error, and
    ``LIMIT + PER_DOUBLING * log2(error / allowance)``, rounded away from the limit.

    The map has ``rows`` x ``columns`` elements: the last two axes, each place with the largest level over all others.
    One axis is ``folded`` into rows. Each cell of it stands for ``cell`` elements, and ``levels`` has the largest
    level of each, row by row: base64 of zlib of bytes. ``histogram`` counts the elements of each level. ``wrong`` and
    ``right`` are samples of elements, evenly spread: actual and expected value in turn, as text, since JSON has no NaN.
    """

    output: str
    rows: int
    columns: int
    cell: tuple[int, int]
    levels: str
    folded: bool = False
    histogram: tuple[tuple[int, int], ...] = ()
    wrong: str = ""
    right: str = ""

    def grid(self) -> list[bytes]:
        """The levels of each row of cells."""
        width = -(-self.columns // self.cell[1])
        cells = zlib.decompress(base64.b64decode(self.levels))
        return [cells[start : start + width] for start in range(0, len(cells), width)]
