"""A map of wrong elements in a few lines of block characters, where they have a pattern that no sentence says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from optest.spec import LIMIT, PER_DOUBLING, CaseResult, Picture

_LINES, _COLUMNS = 8, 32
_LEAST_ELEMENTS = 64
_SHADES = {
    ".": "right",
    "░": "up to 4 x allowed",
    "▒": "up to 64 x allowed",
    "▓": "up to 1024 x allowed",
    "█": "more than 1024 x allowed",
}
_LEAST_ORDER = 0.3
"""Of pairs of neighbours, how many more are alike than by chance (0) for a pattern: all of them are 1."""
_VAGUE = ("scattered", " between ")


def map_lines(result: CaseResult) -> list[str]:
    """The map of the first output that is wrong, indented; nothing where words say as much, or there is no pattern."""
    for picture in result.verdict.pictures[:1]:
        where = next((each.where for each in result.verdict.measures if each.output == picture.output), "")
        grid = [list(row) for row in picture.grid()]
        if any(word in where for word in _VAGUE) and _has_pattern(picture, grid):
            high, wide = -(-len(grid) // _LINES), -(-len(grid[0]) // _COLUMNS)
            lines = []
            for top in range(0, len(grid), high):
                rows = grid[top : top + high]
                blocks = (max(max(row[left : left + wide]) for row in rows) for left in range(0, len(rows[0]), wide))
                lines.append("".join(map(_character, blocks)))
            rows_of, columns_of = high * picture.cell[0], wide * picture.cell[1]
            what = f"{rows_of} x {columns_of} elements" if rows_of * columns_of > 1 else "one element"
            shades = ", ".join(
                f"{shade} {words}" for shade, words in _SHADES.items() if any(shade in line for line in lines)
            )
            return [f"  map, a character for {what}: {shades}", *(f"    {line}" for line in lines)]
    return []


def _has_pattern(picture: Picture, grid: Sequence[Sequence[int]]) -> bool:
    """Whether neighbours are alike, wrong or right, clearly more often than anywhere (a join count)."""
    wrong = [[level > LIMIT for level in row if level] for row in grid]
    count = sum(map(sum, wrong))
    share = count / max(1, sum(map(len, wrong)))
    pairs = [pair for row in wrong for pair in pairwise(row)]
    pairs += [pair for above, below in pairwise(wrong) for pair in zip(above, below, strict=False)]
    if picture.rows * picture.columns < _LEAST_ELEMENTS or not 0 < share < 1 or not pairs:
        return False
    alike, by_chance = sum(one == other for one, other in pairs) / len(pairs), share**2 + (1 - share) ** 2
    return (alike - by_chance) / (1 - by_chance) >= _LEAST_ORDER


def _character(level: int) -> str:
    if level <= LIMIT:
        return "." if level else " "
    times = 2 ** ((level - LIMIT) / PER_DOUBLING)
    return "░" if times <= 4 else "▒" if times <= 64 else "▓" if times <= 1024 else "█"
