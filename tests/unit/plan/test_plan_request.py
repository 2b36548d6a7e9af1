"""Flags of the command line: their values, and the flag that is wrong."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.errors import UsageError
from optest.plan.request import (
    CaseRequest,
    format_attribute,
    parse_attribute,
    parse_dtypes,
    parse_shape,
    parse_tolerance,
    request_from,
)
from optest.spec import Tolerance


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("input0=2x3x4", (2, 3, 4)),
        *((each, (2, 3)) for each in ("input0=2X3", "input0=2,3", "input0=[2, 3]", " input0 = 2 x 3 ")),
        ("input0=5", (5,)),
        ("input0=scalar", ()),
        ("input0=0x4", (0, 4)),
    ],
)
def test_shapes(text: str, shape: tuple[int, ...]) -> None:
    assert parse_shape(text) == ("input0", shape)


@pytest.mark.parametrize("text", ["2x3", "input0=", "=2x3", "input0=2xx3", "input0=-2", "input0=2.5", "input0=axb"])
def test_wrong_shapes(text: str) -> None:
    with pytest.raises(UsageError, match="--shape "):
        parse_shape(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((each, float(each)) for each in ("2.0", "1e-3", ".5")),
        *((each, int(each)) for each in ("2", "-2")),
        *((each, each) for each in ("tanh", "a=b", "1.2.3")),
        ("true", True),
        ("False", False),
        ("null", None),
        ("None", None),
        ("inf", math.inf),
        ("-.inf", -math.inf),
        ("2x3", (2, 3)),
        ("[1,2]", [1, 2]),
        ("[]", []),
        ('"2x3"', "2x3"),
        ("'true'", "true"),
    ],
)
def test_attributes(text: str, value: Any) -> None:
    name, found = parse_attribute(f"key={text}")
    assert name == "key"
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", ["key", "key=", "=3", "key=[1", 'key="open', "key=[no]", 'key="a\\0"'])
def test_wrong_attributes(text: str) -> None:
    with pytest.raises(UsageError, match="--attr "):
        parse_attribute(text)


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)  # no text of a plan holds a NUL
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words


@given(value=plain | st.lists(plain, max_size=4))
def test_attributes_that_can_be_written_are_read_back(value: Any) -> None:
    text = format_attribute("key", value)
    assert text is not None
    name, found = parse_attribute(text)
    assert (name, found) == ("key", value)
    assert type(found) is type(value)


def test_mappings_cannot_be_written() -> None:
    assert format_attribute("key", {"a": 1}) is None
    assert format_attribute("key", [{"a": 1}]) is None


def test_dtypes() -> None:
    assert [each.name for each in parse_dtypes("half, fp32")] == ["float16", "float32"]
    with pytest.raises(
        UsageError, match=r"^command line --dtype flaot16: unknown dtype 'flaot16'\n    did you mean float16"
    ):
        parse_dtypes("flaot16")


def test_tolerances() -> None:
    assert parse_tolerance("rtol=1e-3,atol=0") == Tolerance(rtol=1e-3, atol=0)
    assert parse_tolerance("abs=1, ratio=1e-3") == Tolerance(atol=1, mismatch_ratio=1e-3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1e-3", "--tolerance: tolerance is '1e-3', expected a form like --tolerance rtol=1e-3,atol=1e-5"),
        ("abs=0,rell=3", "--tolerance abs=0,rell=3: unknown key 'rell' of tolerance\n    did you mean rel?"),
        (
            "values=3",
            "--tolerance values=3: unknown key 'values' of tolerance\n    known keys: rtol, rel, relative, atol, abs, "
            "absolute, mismatch_ratio, ratio, signed_zeros; for one output of that name write values: {rtol: 3.0}",
        ),
        ("rtol=x", "--tolerance rtol=x: rtol is 'x', expected a number"),
        ("rtol=1,rtol=2", "--tolerance rtol=1,rtol=2: rtol is set twice"),
        ("rtol=1,rel=2", "--tolerance rtol=1,rel=2: tolerance rtol is set twice, also as rel"),
        ("rtol=nan", "--tolerance rtol=nan: rtol is nan, expected a finite number of 0 or more"),
        ("rtol=-1", "--tolerance rtol=-1: rtol is -1.0, expected a finite number of 0 or more"),
    ],
)
def test_wrong_tolerances(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=f"^command line {re.escape(message)}$"):
        parse_tolerance(text)


def test_requests() -> None:
    assert request_from({}) == CaseRequest()
    assert request_from({"op": (), "shape": (), "dtype": None, "untrusted": True}) == CaseRequest(untrusted=True)
    request = request_from({"op": ("add",), "shape": ["input0=2"], "attr": ["a=1"], "timeout": 2.0, "retries": 0})
    assert request == CaseRequest(ops=("add",), shapes={"input0": (2,)}, attributes={"a": 1}, timeout_s=2.0, retries=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": ["input0=2", "input0=3"]}, "--shape: input0 is set twice"),
        ({"attr": ["a=2", "a=3"]}, "--attr: a is set twice"),
        ({"seed": -1}, "--seed: seed is -1"),
        ({"seed": 2**64}, "--seed: seed is "),
        ({"timeout": 0.0}, "--timeout: timeout is 0"),
        ({"timeout": math.nan}, "--timeout: timeout is nan"),
        ({"retries": -1}, "--retries: retries is -1"),
    ],
)
def test_wrong_requests(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^command line {message}"):
        request_from(options)


@pytest.mark.parametrize("text", ["uniform(low)", "uniform(low=)", "uniform(low=1,low=2)", " "])
def test_a_generator_flag_that_cannot_be_read(text: str) -> None:
    with pytest.raises(UsageError, match="--generator"):
        request_from({"generator": text})
