"""Compressed map of the errors of an output, a few kilobytes for any size, for the pictures of reports."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

# Levels per doubling of error / allowed error.
PER_DOUBLING = 2
# Level of an error equal to the allowed error; a correct element has this level or less, a wrong one more.
LIMIT = 64
# Level of a wrong element without a ratio: it is NaN or infinite, or the allowed error is 0.
NO_MULTIPLE = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Error map of one output with wrong values.

    A level is a byte: 0 for no element, 1 for no error, else ``LIMIT + PER_DOUBLING * log2(error / allowed error)``,
    rounded away from ``LIMIT``. The map has ``rows`` x ``columns`` positions, the last two axes, with the largest level
    over all other axes; the axis of a 1-d output is ``folded`` into rows. A cell covers ``cell`` positions, and
    ``levels`` holds the largest level of each cell, row by row: base64 of zlib of bytes. ``histogram`` counts the
    elements of each level. ``wrong`` and ``right`` are evenly spread samples of elements: actual and expected values in
    alternation, as text, since JSON has no NaN.
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
        """Return the levels of the cells, one bytes object per row."""
        width = -(-self.columns // self.cell[1])
        cells = zlib.decompress(base64.b64decode(self.levels))
        return [cells[start : start + width] for start in range(0, len(cells), width)]
