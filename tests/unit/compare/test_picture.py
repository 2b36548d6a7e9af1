"""Pictures of wrong outputs: by the allowance of the verdict, bounded, and without effect on it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from comparing import ACCUMULATE, EXACT, MOVEMENT, ULP, array_of, case_of, expect, stated

from optest.compare.verdict import compare_outputs
from optest.reporting.patterns import tile_of
from optest.spec import LIMIT, NO_MULTIPLE, Numerics, Picture, Rule, Status, Terms, Verdict
from optest.store import codec


def verdict_of(actual: Any, value: Any, entry: str = "float32", *, draws: bool = True, **changes: Any) -> Verdict:
    rule: Rule | None = changes.pop("rule", None)
    actual = actual if isinstance(actual, np.ndarray) and entry == "complex64" else array_of(actual, entry)
    terms = changes.pop("terms", None)
    case = case_of(rule, (entry,), **changes)
    return compare_outputs(
        case, [actual], [expect(value, entry, terms=terms)], numerics=Numerics(), inputs=[actual], draws=draws
    )


def picture_of(actual: Any, value: Any, entry: str = "float32", **changes: Any) -> Picture:
    (picture,) = verdict_of(actual, value, entry, **changes).pictures
    return picture


TOLERANCE = (stated(rtol=0.0, atol=0.5),)


def wrong_at(shape: tuple[int, ...], *places: Any) -> Picture:
    actual = np.zeros(shape)
    for place in places:
        actual[place] = 4.0
    return picture_of(actual, np.zeros(shape), layers=TOLERANCE)


def wrong_cells(picture: Picture) -> set[tuple[int, int]]:
    return {(y, x) for y, row in enumerate(picture.grid()) for x, level in enumerate(row) if level > LIMIT}


RANDOM = np.random.default_rng(3)
NOISE = RANDOM.standard_normal(50_000)
"""More than one block."""


@pytest.mark.parametrize(
    ("rule", "entry", "layers"),
    [(ULP, "float16", ()), (ULP, "float32", ()), (MOVEMENT, "float32", ()), (None, "float32", TOLERANCE)],
    ids=str,
)
def test_levels_say_what_the_verdict_says(rule: Rule | None, entry: str, layers: Any) -> None:
    off = NOISE + RANDOM.choice([0, 2e-7, 1e-3, 0.5, 1.0, math.nan, math.inf], NOISE.size)
    verdict = verdict_of(off, NOISE, entry, rule=rule, layers=layers)
    (picture,), (measure,) = verdict.pictures, verdict.measures
    counts = dict(picture.histogram)
    assert sum(counts.values()) == NOISE.size
    assert sum(count for level, count in counts.items() if level > LIMIT) == measure.mismatched
    assert counts[NO_MULTIPLE] >= measure.nonfinite_mismatched > 0
    if measure.worst_used is not None and rule is not MOVEMENT:
        top = max(level for level in counts if level < NO_MULTIPLE)
        assert 2 ** ((top - LIMIT - 1) / 2) <= measure.worst_used * (1 + 1e-9)


def test_levels_of_shades() -> None:
    picture = picture_of(
        np.array([0.5, np.nextafter(np.float32(0.5), np.float32(1)), 0.25]), np.zeros(3), layers=TOLERANCE
    )
    assert picture.grid() == [bytes([LIMIT, LIMIT + 1, LIMIT - 2])]
    assert picture_of([1, 2, 4], [1, 2, 3], "int64", rule=EXACT).grid() == [bytes([1, 1, NO_MULTIPLE])]


def test_pass_has_no_picture() -> None:
    assert verdict_of(NOISE, NOISE.astype(np.float32), layers=TOLERANCE).pictures == ()
    drawn, plain = (verdict_of(NOISE + 1, NOISE, layers=TOLERANCE, draws=draws) for draws in (True, False))
    assert not plain.pictures
    assert replace(drawn, pictures=()) == plain


def test_places() -> None:
    picture = wrong_at((5, 7), (3, 2), (4, 6))
    assert (picture.rows, picture.columns, picture.cell, picture.folded) == (5, 7, (1, 1), False)
    assert wrong_cells(picture) == {(3, 2), (4, 6)}
    large = wrong_at((300, 100), (299, 99))
    assert (large.cell, wrong_cells(large)) == ((8, 2), {(37, 49)})
    assert wrong_cells(wrong_at((4, 3, 5, 7), (2, 1, 3, 2))) == {(3, 2)}  # the worst over the other axes
    assert wrong_cells(wrong_at((8, 1, 16), (5, 0, 3))) == {(5, 3)}
    folded = wrong_at((1000,), 999)
    assert (folded.folded, folded.rows, folded.columns, wrong_cells(folded)) == (True, 32, 32, {(31, 7)})
    assert folded.grid()[31] == bytes([1] * 7 + [max(folded.grid()[31])] + [0] * 24)  # no elements beyond the last


def test_tiles() -> None:
    assert tile_of(wrong_at((100, 100), (slice(None), slice(96, None)))) == (0, 32)
    assert tile_of(wrong_at((128, 128), (slice(32, 64), slice(64, 96)))) == (32, 32)
    assert tile_of(wrong_at((1000, 600), slice(992, None), (slice(None), slice(512, None)))) == (32, 512)
    assert tile_of(wrong_at((1000,), slice(768, None))) == (8, 0)  # 256 elements: 8 rows of 32
    assert tile_of(wrong_at((4000,), slice(3984, None))) == (0, 16)
    assert tile_of(wrong_at((65_537,), slice(65_536, None))) == (128, 0)
    assert tile_of(wrong_at((64, 64), (5, 9))) == (0, 0)
    assert tile_of(wrong_at((64, 64), slice(None))) == (0, 0)
    for shape in ((64, 64), (1000, 1000), (1_000_000,)):
        noise = RANDOM.choice([0.0, 4.0], shape, p=[0.999, 0.001])
        assert tile_of(picture_of(noise, np.zeros(shape), layers=TOLERANCE)) == (0, 0)
    lucky = np.zeros((64, 64))
    lucky[:, 48:] = RANDOM.choice([0.0, 4.0], (64, 16), p=[0.1, 0.9])
    assert tile_of(picture_of(lucky, np.zeros((64, 64)), layers=TOLERANCE)) == (0, 16)


def test_samples() -> None:
    picture = picture_of(np.array([1.0, math.nan, 3.0]), np.array([1.0, 2.0, 9.0]), layers=TOLERANCE)
    assert (picture.right, picture.wrong) == ("1 1", "nan 2 3 9")
    both = picture_of(
        np.array([1 + 2j, 3 + 9j], np.complex64), np.array([1 + 2j, 3 + 4j]), "complex64", layers=TOLERANCE
    )
    assert both.wrong == "9 4"
    half = picture_of(np.where(np.arange(100_000) < 50_000, NOISE[0], 0), np.zeros(100_000), layers=TOLERANCE)
    assert len(half.wrong.split()) == len(half.right.split()) == 2 * 128


@pytest.mark.parametrize("shape", [(3_000_000,), (1_500, 2_000), (10, 300, 1_000)], ids=str)
def test_bounded(shape: tuple[int, ...]) -> None:
    value = np.random.default_rng(0).standard_normal(shape)
    assert len(codec.encode(picture_of(-value, value, layers=TOLERANCE))) < 16_000


def test_errors_too_large_together_have_no_wrong_element() -> None:
    left, right = (np.float32(RANDOM.standard_normal((64, 64))) for _ in range(2))
    value = left.astype(np.float64) @ right
    absolute, squared = np.abs(left) @ np.abs(right).astype(np.float64), left**2 @ (right**2).astype(np.float64)
    actual = (value + 8 * 2.0**-24 * absolute).astype(np.float32)  # 4·√64 are allowed
    expected = expect(value, terms=Terms(absolute=absolute, squared=squared, count=64))
    case = case_of(ACCUMULATE, ("float32", "float32"))
    verdict = compare_outputs(case, [actual], [expected], numerics=Numerics(), inputs=[left, right], draws=True)
    assert (verdict.status, verdict.measures[0].mismatched) == (Status.FAILED, 0)
    assert not wrong_cells(verdict.pictures[0])
    assert verdict.pictures[0].wrong == ""
