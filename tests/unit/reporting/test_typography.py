"""Digits that tell two numbers apart, and text that fits where it goes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.reporting.typography import ascii_only, duration, printable, tell_apart, wrap


@pytest.mark.parametrize(
    ("got", "wanted", "dtype", "shown"),
    [
        (0.1875, 0.1904296875, "float16", ("0.1875", "0.19043")),
        (1.0, 1.0078125, "bfloat16", ("1", "1.008")),
        (1.0, 1.00000011920929, "float32", ("1", "1.00000012")),
        (65504.0, math.inf, "float16", ("65504", "inf")),
        (math.nan, 0.0, "float32", ("nan", "0")),
        (math.nan, math.nan, "float32", ("nan", "nan")),
        (3, 4, "int32", ("3", "4")),
        (2**63, 2**63 - 1, "uint64", ("9223372036854775808", "9223372036854775807")),
        (1, 0, "bool", ("True", "False")),
        ("(1+2j)", "(1+3j)", "complex64", ("(1+2j)", "(1+3j)")),
        (None, 1.0, "float32", ("nothing", "1")),
        (0.5, 0.25, "no such dtype", ("0.5", "0.25")),
        # float16 has 5 digits, an unrounded reference may need more
        (1.0, 1.000004, "float16", ("1", "1.000004")),
        # 9 digits are the most; beyond them the difference is said
        (1.0, 1.0 + 2**-52, "float64", ("1, 2.2e-16 less than expected", "1")),
        (1.0 + 2**-52, 1.0, "float64", ("1, 2.2e-16 more than expected", "1")),
        (0.0, -0.0, "float32", ("0", "-0")),
    ],
)
def test_two_numbers_are_told_apart(got: float, wanted: float, dtype: str, shown: tuple[str, str]) -> None:
    assert tell_apart(got, wanted, dtype) == shown


@given(st.floats(), st.floats(), st.sampled_from(["float8_e5m2", "float16", "bfloat16", "float32", "float64"]))
def test_numbers_that_differ_never_look_the_same(got: float, wanted: float, dtype: str) -> None:
    shown = tell_apart(got, wanted, dtype)
    if not (got == wanted or (math.isnan(got) and math.isnan(wanted))):
        assert shown[0] != shown[1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0000012, "0.001 ms"),
        (0.0012, "1.2 ms"),
        (0.0994, "99.4 ms"),
        (0.41, "0.41 s"),
        (9.99, "9.99 s"),
        (9.996, "10.0 s"),
        (59.96, "1 min 00 s"),
        (125.0, "2 min 05 s"),
        (3725.0, "1 h 02 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.text())
def test_printable_text_has_no_controls(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert not any(ord(each) < 32 and each != "\n" for each in shown)
    assert "\x7f" not in shown
    ascii_only(shown).encode("ascii")


@given(st.lists(st.text("ab", min_size=1, max_size=12), min_size=1, max_size=20), st.integers(20, 60))
def test_wrapping_loses_no_word(words: list[str], width: int) -> None:
    lines = wrap("  " + " ".join(words), width)
    assert " ".join(lines).split() == words
    assert all(len(line) <= width for line in lines)


def test_quoted_lines_and_commands_are_not_wrapped() -> None:
    for line in ("  reproduce: " + "word " * 30, "  command: " + "word " * 30, "    " + "word " * 30):
        assert wrap(line, 40) == [line]
