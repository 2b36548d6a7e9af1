"""Map of the wrong elements of an output in a few lines of block characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from optest.spec import LIMIT, PER_DOUBLING, CaseResult, Picture

# Small enough for a failure block of one screen.
_LINES, _COLUMNS = 8, 32
_LEAST_ELEMENTS = 64
_SHADES = {
    ".": "right",
    "░": "up to 4 x allowed",
    "▒": "up to 64 x allowed",
    "▓": "up to 1024 x allowed",
    "█": "more than 1024 x allowed",
}
# Share of equal neighbours in excess of chance from which elements form a pattern: 0 is chance, 1 all neighbours.
_LEAST_ORDER = 0.3
# Words of a location that do not describe a pattern.
_VAGUE = ("scattered", " between ")


def map_lines(result: CaseResult) -> list[str]:
    """Return a map of the first wrong output, as indented lines with a legend.

    Return [] if the case has no picture, if the text already locates the wrong elements, or if they form no pattern.
    """
    if not result.verdict.pictures:
        return []
    picture = result.verdict.pictures[0]
    where = next((measure.where for measure in result.verdict.measures if measure.output == picture.output), "")
    grid = [list(row) for row in picture.grid()]
    if not any(word in where for word in _VAGUE) or not _has_pattern(picture, grid):
        return []
    high, wide = -(-len(grid) // _LINES), -(-len(grid[0]) // _COLUMNS)
    lines = []
    for top in range(0, len(grid), high):
        rows = grid[top : top + high]
        blocks = (max(max(row[left : left + wide]) for row in rows) for left in range(0, len(rows[0]), wide))
        lines.append("".join(map(_character, blocks)))
    rows_of, columns_of = high * picture.cell[0], wide * picture.cell[1]
    size = f"{rows_of} x {columns_of} elements" if rows_of * columns_of > 1 else "one element"
    shades = ", ".join(f"{shade} {words}" for shade, words in _SHADES.items() if any(shade in line for line in lines))
    return [f"  map, one character for {size}: {shades}", *(f"    {line}" for line in lines)]


def _has_pattern(picture: Picture, grid: Sequence[Sequence[int]]) -> bool:
    """Return whether neighbours are both wrong or both right clearly more often than by chance (a join count)."""
    wrong = [[level > LIMIT for level in row if level] for row in grid]
    count = sum(map(sum, wrong))
    share = count / max(1, sum(map(len, wrong)))
    pairs = [pair for row in wrong for pair in pairwise(row)]
    pairs += [pair for above, below in pairwise(wrong) for pair in zip(above, below, strict=False)]
    if picture.rows * picture.columns < _LEAST_ELEMENTS or not 0 < share < 1 or not pairs:
        return False
    alike, by_chance = sum(first == second for first, second in pairs) / len(pairs), share**2 + (1 - share) ** 2
    return (alike - by_chance) / (1 - by_chance) >= _LEAST_ORDER


def _character(level: int) -> str:
    if level <= LIMIT:
        return "." if level else " "
    factor = 2 ** ((level - LIMIT) / PER_DOUBLING)
    return "░" if factor <= 4 else "▒" if factor <= 64 else "▓" if factor <= 1024 else "█"
