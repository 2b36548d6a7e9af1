"""Texts that differ only in values."""

from __future__ import annotations

import pytest

from optest.reporting.failure_groups import skeleton


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no p of 1e-07", "no p of -inf"),
        ("which has strides [0, 1] for 4x5, but", "which has strides [7, 2] for 3x4x5, but"),
        ("the case has float32", "the case has int4"),
        ("the attribute mode is 'same'", "the attribute mode is None"),
        ("shapes (5,1) (7,3)", "shapes (2,1,5) (7,)"),
        ("died at 0x55f2", "died at 0x7fff00"),
    ],
)
def test_values_do_not_distinguish_texts(one: str, other: str) -> None:
    assert skeleton(one) == skeleton(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cblas_snrm2 has no p of 3.0", "cblas_sasum has no p of 3.0"),
        ("f has no dim0 of 1", "f has no dim1 of 1"),
        ("needs the input a, which the case leaves out", "needs the input b, which the case leaves out"),
        ("f32 is missing", "f64 is missing"),
    ],
)
def test_names_are_no_values(one: str, other: str) -> None:
    assert skeleton(one) != skeleton(other)
