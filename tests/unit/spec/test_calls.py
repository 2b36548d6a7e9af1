"""Calls as text: what is written is read back, types and all, and nothing but values is ever read."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from texts import refusal

from optest.spec.calls import (
    Call,
    Device,
    NotLiteral,
    TensorRef,
    TorchName,
    call_text,
    parse_call,
    parse_value,
    text_of,
)

NUMBERS = (
    st.integers(-(2**64), 2**64)
    | st.floats(allow_nan=False)
    | st.complex_numbers(allow_nan=False)
    | st.sampled_from([-0.0, 1e-320, math.inf, -math.inf, complex(-0.0, -0.0), complex(0.0, math.inf)])
)
NAMES = st.sampled_from(["torch.float16", "torch.channels_last", "torch.strided", "torch.a.b9"])
SCALARS = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.text(max_size=20)
    | st.sampled_from(["1", "None", "input0", "'", "\\", "\n", "\x00", "\ud800", "torch.float16", "inf"])
    | st.just(...)
    | st.builds(TensorRef, st.integers(0, 999_999))
    | st.builds(TorchName, NAMES)
    | st.builds(Device, st.sampled_from(["cpu", "cuda:0", "a'b", ""]))
)
BOUNDS = st.none() | st.integers(-9, 9) | st.builds(TensorRef, st.integers(0, 9))
VALUES = st.recursive(
    SCALARS | st.builds(slice, BOUNDS, BOUNDS, BOUNDS),
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)
KEYWORDS = st.sampled_from(["dim", "dtype", "input0", "inf", "torch", "out", "_x", "device"])
CALLS = st.builds(
    Call,
    st.sampled_from(["torch.add", "torch.ops.aten.view.default", "torch.Tensor.__getitem__", "f"]),
    st.lists(VALUES, max_size=4).map(tuple),
    st.dictionaries(KEYWORDS, VALUES, max_size=3),
)


def exact(value: Any) -> Any:
    """A value with its types and signs, so that 1, 1.0, True and "1" are not the same."""
    if isinstance(value, (list, tuple)):
        return type(value), [exact(each) for each in value]
    if isinstance(value, slice):
        return slice, [exact(each) for each in (value.start, value.stop, value.step)]
    if isinstance(value, complex):
        return complex, exact(value.real), exact(value.imag)
    if isinstance(value, float):
        return float, value.hex()
    return type(value), value


@given(CALLS)
@settings(max_examples=60)
def test_a_call_is_read_back_as_it_was(call: Call) -> None:
    found = parse_call(call_text(call))
    assert found == call
    assert list(found.kwargs) == list(call.kwargs)
    assert exact(list(found.args)) == exact(list(call.args))
    assert exact(list(found.kwargs.values())) == exact(list(call.kwargs.values()))


@given(VALUES)
@settings(max_examples=60)
def test_a_value_is_read_back_as_it_was(value: Any) -> None:
    assert exact(parse_value(text_of(value))) == exact(value)


@given(CALLS, CALLS)
@settings(max_examples=30)
def test_the_text_tells_calls_apart(one: Call, other: Call) -> None:
    same = exact([one.function, list(one.args), list(one.kwargs), list(one.kwargs.values())]) == exact(
        [other.function, list(other.args), list(other.kwargs), list(other.kwargs.values())]
    )
    assert (call_text(one) == call_text(other)) is same


def test_nan_is_written_and_read() -> None:
    assert call_text(Call("f", (math.nan, [math.nan]))) == "f(nan, [nan])"
    assert math.isnan(parse_value("nan"))
    assert math.isnan(parse_value(text_of(complex(math.nan, 1))).real)


def test_kinds_that_look_alike_are_written_differently() -> None:
    values = [1, 1.0, True, "1", [1], (1,), 1 + 0j, "None", None, "input0", TensorRef(0), "cpu", Device("cpu"),
              "torch.float16", TorchName("torch.float16"), slice(1), slice(1, None), [[1]], [(1,)]]  # fmt: skip
    texts = [text_of(value) for value in values]
    assert len(set(texts)) == len(texts)
    assert [exact(parse_value(text)) for text in texts] == [exact(value) for value in values]


def test_a_call_reads_as_python() -> None:
    call = Call(
        "torch.sum", (TensorRef(0), [2, 3], (slice(None, 4), ...)), {"keepdim": True, "dtype": TorchName("torch.half")}
    )
    text = "torch.sum(input0, [2, 3], (slice(None, 4, None), ...), keepdim=True, dtype=torch.half)"
    assert call_text(call) == text
    assert parse_call(text) == call
    spread = "torch.sum( input0,[2,3],(slice(None,4),Ellipsis,), keepdim=True,\n dtype=torch.half)"
    assert parse_call(spread) == call


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("float('inf')", math.inf),
        ("float('-inf')", -math.inf),
        ("-inf", -math.inf),
        ("+3", 3),
        ("--3", 3),
        ("1e5", 1e5),
        ("0x10", 16),
        ("1_000", 1000),
        ("1+2j", 1 + 2j),
        ("1 - 2j", 1 - 2j),
        ("complex(1, -2)", 1 - 2j),
        ("slice(3)", slice(3)),
        ("slice(1, input2)", slice(1, TensorRef(2))),
        ("torch.device('cuda:1')", Device("cuda:1")),
        ("()", ()),
        ("(1,)", (1,)),
        ("(1)", 1),
        ("  (Ellipsis, None)  ", (..., None)),
        ("'a' 'b'", "ab"),
    ],
)
def test_what_may_be_written(text: str, value: Any) -> None:
    assert exact(parse_value(text)) == exact(value)


REFUSED = {
    "9**9**9": "9 ** 9 ** 9 is computed",
    "1 + 1": "1 + 1 is computed",
    "'a' * 10": "'a' * 10 is computed",
    "1 << 60": "is computed",
    "True + 1j": "is computed",
    "not 1": "is computed",
    "~1": "is computed",
    "-True": "has a sign before a value that is no number",
    "-'a'": "has a sign before a value that is no number",
    "-(1, 2)": "has a sign before a value that is no number",
    "1 if 2 else 3": "is computed",
    "1 < 2": "is computed",
    "1 and 2": "is computed",
    "lambda: 1": "lambda: 1 is a function",
    "().__class__": "() is no name",
    "torch.__loader__": "is an attribute",
    "torch._C": "is an attribute",
    "torch.nn.__dict__": "is an attribute",
    "os.system": "is an attribute",
    "input0.shape": "is an attribute",
    "'a'.join": "is no name",
    "os.system('true')": "is a call",
    "__import__('os')": "is a call",
    "print(1)": "is a call",
    "slice()": "is a call",
    "slice(1, 2, 3, 4)": "is a call",
    "slice(stop=1)": "is a call",
    "slice(1.5)": "a bound of the slice is 1.5",
    "slice(True)": "a bound of the slice is True",
    "float('x')": "float('x') is no number",
    "float(1)": "is a call",
    "complex('1')": "is a call",
    "complex('1', 2)": "expected two real numbers",
    "complex(True, 2)": "expected two real numbers",
    "device(input0)": "is a call",
    "x": "x is a name",
    "input": "input is a name",
    "input01": "input01 is a name",
    "input1234567": "input1234567 is a name",
    "torch": "torch is a name",
    "[x for x in (1, 2)]": "is a comprehension",
    "(x for x in (1, 2))": "is a comprehension",
    "{x: 1 for x in (1, 2)}": "is no value",
    "f'{1}'": "is an f-string",
    "(x := 1)": "is an assignment",
    "(*a, 1)": "*a is a starred value",
    "[*(1, 2)]": "*(1, 2) is a starred value",
    "*a": "no Python value",
    "{1: 2}": "{1: 2} is a dict",
    "{1, 2}": "is a set",
    "b'x'": "b'x' is no value",
    "(1, 2)[0]": "is a subscript",
    "yield": "no Python value",
    "await x": "is no value",
    "import os": "no Python value",
    "1; 2": "no Python value",
    "1 +": "no Python value: invalid syntax",
    "(": "no Python value",
    "": "no Python value",
    "'\x00": "no Python value",
    "'\ud800'": "no Python value",
    "0x" + "f" * 4000: "has 16000 bits, expected at most 512",
    "9" * 6000: "no Python value",
    "1" + "0" * 400 + " + 1j": "expected at most 512",
    "'" + "a" * 100_000 + "'": "the text has 100002 characters",
    "(" * 150 + ")" * 150 + "x": "no Python value",
    "(" * 3000 + ")" * 3000: "",
    "[" * 3000 + "]" * 3000: "",
    "-" * 3000 + "1": "nested too deeply",
    "-" * 99_000 + "1": "nested too deeply",
    "1+" * 40_000 + "1j": "nested too deeply",
    "torch" + ".a" * 40_000 + "()": "",
    "x" + "[0]" * 20_000: "nested too deeply",
}


@pytest.mark.parametrize(
    "text", REFUSED, ids=[(text or "nothing")[:24].encode("unicode_escape").decode() for text in REFUSED]
)
def test_what_is_more_than_a_value_is_refused(text: str) -> None:
    with pytest.raises(NotLiteral) as raised:
        parse_value(text)
    said = str(raised.value)
    assert REFUSED[text] in said
    assert len(said) < 300
    with pytest.raises(NotLiteral):
        parse_call(f"f({text or 'x'})")
    with pytest.raises(NotLiteral):
        parse_call(f"f(a={text or 'x'})")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("torch.add", "torch.add is no call"),
        ("(lambda: 1)()", "is no call"),
        ("f()()", "f()() is no call"),
        ("f().g(1)", "f() is no name"),
        ("[1].append(2)", "[1] is no name"),
        ("f(*input0)", "*input0 is a starred value"),
        ("f(**input0)", "the call has **"),
        ("f(a=1, a=2)", "a is set twice"),
        ("f(a=1, 2)", "no Python value"),
        ("f(1", "no Python value"),
        ("f(g(1))", "g(1) is a call"),
        ("f(x=lambda: 1)", "lambda: 1 is a function"),
        ("f" + ".g" * 40_000 + "()", ""),
    ],
)
def test_what_is_no_call_is_refused(text: str, message: str) -> None:
    with pytest.raises(NotLiteral) as raised:
        parse_call(text)
    assert message in str(raised.value)


WORDS = st.sampled_from(
    ["(", ")", "[", "]", ",", "1", "-", "+", "2j", "slice", "input0", "torch", ".", "float16", "'a'", "None",
     "lambda", ":", "*", "for", "in", "if", "else", "=", ":=", "f", "x", " ", "inf", "nan", "..."]
)  # fmt: skip


@given(st.text(max_size=60) | st.lists(WORDS, max_size=12).map("".join))
@settings(max_examples=250)
def test_any_text_is_a_value_or_is_refused(text: str) -> None:
    try:
        value = parse_value(text)
    except NotLiteral:
        return
    assert exact(parse_value(text_of(value))) == exact(value) or "nan" in text


@pytest.mark.parametrize("value", [object(), b"x", {1}, {"a": 1}, range(3), type("I", (int,), {})(1)])
def test_what_no_call_may_hold_is_not_written(value: Any) -> None:
    with refusal(TypeError, "spec.is_no_value_of"):
        text_of(value)


def test_absurd_integers_are_not_written() -> None:
    with pytest.raises(NotLiteral, match="has 20001 bits"):
        text_of([1 << 20_000])


def test_the_tensors_of_a_call_and_its_values_with_others_in_their_place() -> None:
    call = Call("f", (TensorRef(1), [TensorRef(0), (2, slice(TensorRef(3), None))]), {"out": TensorRef(2), "dim": 1})
    assert call.tensors() == [1, 0, 3, 2]
    args, kwargs = call.mapped(lambda value: value.index * 10 if isinstance(value, TensorRef) else value)
    assert args == [10, [0, (2, slice(30, None))]]
    assert kwargs == {"out": 20, "dim": 1}
