"""YAML text to plain data: ambiguous values, limits, and lines."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import yaml
from texts import refusal, says, says_exactly

from optest.errors import PlanError, Problem
from optest.plan.yaml_source import MAX_BYTES, _PythonLoader, format_path, load_value, parse_source


@pytest.fixture(params=["libyaml", "python"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test of this file with both composers."""
    if request.param == "python":
        monkeypatch.setattr("optest.plan.yaml_source._Loader", _PythonLoader)
    else:
        assert yaml.__with_libyaml__


def data(text: str) -> Any:
    source = parse_source(f"x: {text}\n".encode(), "p.yaml")
    assert not source.faults
    return source.data["x"]


def fatal(raw: bytes | str) -> Problem:
    with pytest.raises(PlanError) as raised:
        parse_source(raw.encode() if isinstance(raw, str) else raw, "p.yaml")
    (problem,) = raised.value.problems
    assert problem.file == "p.yaml"
    return problem


def faults(text: str) -> list[tuple[int, str, str]]:
    found = parse_source(text.encode(), "p.yaml").faults.values()
    return [(problem.line, problem.path, problem.message) for problem in found]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((each, float(each)) for each in ("1e-3", "1E+3", "-2.5e-07", "1.", ".5")),
        *((each, int(each)) for each in ("3", "-3", "+3", "0", "1_000")),
        *((each, None) for each in ("null", "~", "")),
        *((each, each) for each in ("2x3", "2024-01-01", "nope", "n", "1.2.3")),
        ("true", True),
        ("False", False),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("'1e-3'", "1e-3"),
        ('"no"', "no"),
        ("'null'", "null"),
        ("[1, 2.5, a]", [1, 2.5, "a"]),
        ("{a: 1, b: [2]}", {"a": 1, "b": [2]}),
        ("{}", {}),
        ("[]", []),
    ],
)
def test_scalars_mean_what_they_look_like(text: str, value: Any) -> None:
    found = data(text)
    assert found == value
    assert type(found) is type(value)


def test_nan_is_a_number() -> None:
    assert math.isnan(data(".nan"))


@pytest.mark.parametrize("word", ["yes", "No", "ON", "off", "010", "08", "0o17", "0x4", "0b11", "1:30", "1e999"])
def test_ambiguous_scalars_are_refused_with_hint(word: str) -> None:
    source = parse_source(f"a: 1\nb:\n  c: [2, {word}]\n".encode(), "p.yaml")
    (problem,) = source.faults.values()
    assert (problem.line, problem.path) == (3, "$.b.c[1]")
    assert problem.message.startswith(f"c[1] is {word}, and ")
    assert "write " in problem.hint


def test_hint_for_a_hexadecimal_shape() -> None:
    (problem,) = parse_source(b"shapes: {input0: 0x4}", "p.yaml").faults.values()
    assert says_exactly(problem.hint, "plan.write_if_it_is")


def test_boolean_lookalike_keys_are_refused() -> None:
    assert faults("no: 1\n") == [(1, "$.no", "the key no is not text")]
    assert faults("a:\n  1: x\n") == [(2, "$.a['1']", "the key 1 is not text")]
    assert faults("null: 1\n") == [(1, "$.null", "the key null is not text")]


def test_repeated_keys() -> None:
    assert faults("a: 1\nb: {c: 1,\n  c: 2}\na: 3\n") == [
        (3, "$.b.c", "the key c is set twice, first in line 2"),
        (4, "$.a", "the key a is set twice, first in line 1"),
    ]


def test_tags_are_refused() -> None:
    assert faults("a: !!str 3\n") == [(1, "$.a", "the tag !!str is not allowed")]
    assert faults("a: !!python/object/apply:os.system [ls]\n") == [
        (1, "$.a", "the tag !!python/object/apply:os.system is not allowed")
    ]


def test_a_list_as_key() -> None:
    assert faults("? [a, b]\n: 1\n") == [(1, "$['[...]']", "a key is a list or mapping, expected a word")]


def test_merge_keys() -> None:
    text = "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\none: {<<: *b, x: 9}\ntwo: {<<: [*b, *m]}\n"
    source = parse_source(text.encode(), "p.yaml")
    assert not source.faults
    assert (source.data["one"], source.data["two"]) == ({"x": 9, "y": 2}, {"x": 1, "y": 2, "z": 4})
    assert (source.line_of(("one", "y")), source.line_of(("two", "z"))) == (1, 2)
    assert faults("a: {<<: 3}\n") == [(1, "$.a", "<< merges a value that is neither a mapping nor a list of mappings")]


def test_two_merge_keys_want_a_list() -> None:
    text = "a: &a {x: 1}\nb: &b {x: 2}\nc: {<<: *a, <<: *b}\n"
    assert faults(text) == [(3, "$.c['<<']", "<< is set twice")]


def test_quoted_merge_sign_is_a_word() -> None:
    assert data('{"<<": {a: 1}}') == {"<<": {"a": 1}}


@pytest.mark.parametrize(
    ("raw", "line", "words"),
    [
        *((each, 1, "the file is empty") for each in (b"", b"\n# nothing\n", b"---\n")),
        (b"a: 1\nb: \xff\n", 2, "the text has the byte 0xff, expected UTF-8"),
        ("a: 1\n".encode("utf-16"), 1, "expected UTF-8"),
        (b"a: 1\nb: \x00\n", 2, "characters are not allowed"),
        (b"- a\n", 1, "the top of the file is a list, expected a mapping"),
        (b"\nhello\n", 2, "the top of the file is 'hello', expected a mapping"),
        (b"a: 1\n---\nb: 2\n", 2, "a second document begins"),
        (b"a: [1, 2\nb: 3\n", 2, "this is not YAML: "),
        (b"a: 1\n b: 2\n", 2, "this is not YAML: "),
        (b"a: *nobody\n", 1, "this is not YAML: "),
        (b"a: 'open\n", 2, "this is not YAML: "),
        (b"a:\n\t- 1\n", 2, "this is not YAML: "),
    ],
)
def test_what_cannot_be_read_at_all(raw: bytes, line: int, words: str) -> None:
    problem = fatal(raw)
    assert problem.line == line
    assert words in problem.message


def test_a_byte_order_mark_is_fine() -> None:
    assert parse_source(b"\xef\xbb\xbfa: 1\n", "p.yaml").data == {"a": 1}


def test_alias_bomb() -> None:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert says(fatal("\n".join(lines)).message, "plan.aliases_stand_for_more")


def test_an_anchor_in_itself() -> None:
    problem = fatal("a: 1\nb: &b [1, *b]\n")
    assert (problem.line, problem.message) == (2, "an anchor contains an alias of itself")


def test_nested_aliases_count_their_depth() -> None:
    lines = [f"a{index}: &a{index} {'[' * 40}*a{index - 1}{']' * 40}" for index in range(1, 4)]
    problem = fatal("\n".join(["a0: &a0 1", *lines]))
    assert (problem.line, problem.message) == (3, "nesting is more than 64 levels deep")


def test_modest_aliases_are_fine() -> None:
    text = "base: &b {x: [1, 2]}\n" + "".join(f"k{i}: *b\n" for i in range(1000))
    assert parse_source(text.encode(), "p.yaml").data["k999"] == {"x": [1, 2]}


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_without_exhausting_the_stack(opening: str) -> None:
    limit = sys.getrecursionlimit()
    text = "a:\n " + opening * 5000 + "x" if opening == "- " else "a: " + opening * 5000
    problem = fatal(text)
    assert says(problem.message, "plan.nesting_is_more_than")
    assert sys.getrecursionlimit() == limit


def test_size_limit() -> None:
    assert says(fatal(b"a: " + b"x" * MAX_BYTES).message, "plan.but_should_be_at")


def test_lines_of_paths() -> None:
    text = "version: 1\ncases:\n  - op: add\n    shapes:\n      input0:\n        - 2\n        - 3\n"
    text += "  - {op: b,\n     seed: 1}\n"
    source = parse_source(text.encode(), "p.yaml")
    lines: dict[tuple[Any, ...], int] = {(): 1, ("cases",): 2, ("cases", 0): 3, ("cases", 0, "nowhere", "else"): 3}
    lines |= {("cases", 0, "shapes", "input0", 1): 7, ("cases", 1, "seed"): 9}
    assert {path: source.line_of(path) for path in lines} == lines
    assert (source.text_at(("cases", 0, "op")), source.text_at(("cases",))) == ("add", None)
    source.settle()
    assert source.case_lines == [3, 8]
    assert source.key_lines["cases", 1] == {"op": 8, "seed": 9}
    settled: dict[tuple[Any, ...], int] = {("cases",): 2, ("cases", 1, "seed"): 9, ("cases", 0, "shapes", "input0"): 5}
    assert {path: source.line_of(path) for path in settled} == settled


def test_format_path() -> None:
    assert format_path(("cases", 3, "shapes", "input1")) == "$.cases[3].shapes.input1"
    assert format_path(("odd key", "a-b")) == "$['odd key'].a-b"


def test_load_value() -> None:
    assert load_value("[1, 2e-3, a]") == [1, 2e-3, "a"]
    with refusal(ValueError, "plan.reads_it_as_boolean"):
        load_value("[no]")
    with pytest.raises(ValueError, match="this is not YAML"):
        load_value("[1")
