"""Tokens are names in braces and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.backends.tokens import BadTemplate, expand, problems_of

VALUES = {"input0": "/tmp/a b.bin", "dtype": "float16", "chip": "{dtype}"}


def test_tokens_and_doubled_braces() -> None:
    assert expand("--in={input0} {dtype}", VALUES) == "--in=/tmp/a b.bin float16"
    assert expand("{{dtype}} {{{dtype}}}", VALUES) == "{dtype} {float16}"
    assert expand("awk '{{print $1}}'", VALUES) == "awk '{print $1}'"


def test_a_value_is_not_read_again() -> None:
    assert expand("{chip}", VALUES) == "{dtype}"


@given(st.text())
def test_any_text_survives_doubling_its_braces(text: str) -> None:
    assert expand(text.replace("{", "{{").replace("}", "}}"), {}) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{inptu0}", "unknown token {inptu0}; did you mean {input0}?"),
        ("awk '{print $1}'", "unknown token {print $1}"),
        ("{chip.__class__}", "unknown token {chip.__class__}"),
        ("{chip!r}", "unknown token {chip!r}"),
        ("{chip:>9}", "unknown token {chip:>9}"),
        ("{chip[0]}", "unknown token {chip[0]}"),
        ("{}", "unknown token {}"),
        ("{input0", "a '{' has no '}'"),
        ("input0}", "a '}' has no '{'"),
    ],
)
def test_what_is_no_token_is_a_problem(text: str, message: str) -> None:
    (problem,) = problems_of(text, VALUES)
    assert message in problem
    with pytest.raises((BadTemplate, KeyError)):
        expand(text, VALUES)


def test_every_unknown_token_is_named() -> None:
    assert len(problems_of("{a} {dtype} {b}", VALUES)) == 2
    assert problems_of("{dtype} {{x}}", VALUES) == []
