"""Selection: globs, tags, operators and -k expressions; a filter without a match is an error."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_kit import build, cases_of, plan
from texts import says_exactly

from optest.errors import UnknownName, UsageError
from optest.plan.select import glob_filter, matching_ids, parse_keyword, select

CASES = cases_of(
    """\
    cases:
      - {op: add, shapes: {input0: 2x3}, dtypes: f16, tags: [fast, half]}
      - {op: add, shapes: {input0: 4}, name: tail add, tags: [slow]}
      - {op: relu, shapes: {input0: 5}}
    """
)
ADD, TAIL, RELU = (case.id for case in CASES)


def ids(**filters: Any) -> list[str]:
    return [case.id for case in select(CASES, **filters)]


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({}, [ADD, TAIL, RELU]),
        ({"keyword": "  "}, [ADD, TAIL, RELU]),
        ({"globs": ["add[float16](2x3, 2x3)"]}, [ADD]),
        ({"globs": ["add[float16]*"]}, [ADD]),
        ({"globs": ["tail ???", "relu*"]}, [TAIL, RELU]),
        ({"globs": ["*"]}, [ADD, TAIL, RELU]),
        ({"tags": ["fast", "slow"]}, [ADD, TAIL]),
        ({"skip_tags": ["slow"]}, [ADD, RELU]),
        ({"tags": ["pointwise"], "skip_tags": ["half"]}, [TAIL]),
        ({"ops": ["relu"]}, [RELU]),
        ({"ops": ["elementwise_add"]}, [ADD, TAIL]),
        ({"ops": ["add"], "keyword": "not tail"}, [ADD]),
        ({"tags": ["slow"], "keyword": "relu"}, []),
    ],
)
def test_filters_add_up(filters: dict[str, Any], kept: list[str]) -> None:
    assert ids(**filters) == kept


def test_brackets_are_text_first() -> None:
    names = [f"softmax/ordinary/{n}[float32](4x37)" for n in (1, 2, 3)]
    assert matching_ids("*/[12][float32]*", names) == {*names[:2]}
    assert matching_ids("*ordinary/[!1-2]*", names) == {names[2]}
    assert matching_ids("*/1[float32](*", names) == {names[0]}
    assert matching_ids("tile-64[seed=0]", ["tile-640", "tile-64[seed=0]"]) == {"tile-64[seed=0]"}
    assert matching_ids("[a]" * 40, ["a" * 40]) == set()


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"tags": ["fats"]}, "unknown tag 'fats'; did you mean 'fast'?"),
        ({"skip_tags": ["slwo"]}, "unknown tag 'slwo'; did you mean 'slow'?"),
        ({"ops": ["rleu"]}, "unknown operator 'rleu'; did you mean 'relu'?"),
        ({"globs": ["tail addd"]}, "no case matches --case 'tail addd'; did you mean 'tail add'?"),
        ({"globs": ["*", "zzzzzz"]}, "no case matches --case 'zzzzzz'; ids: add[float16](2x3, 2x3), tail add"),
    ],
)
def test_what_matches_nothing_is_an_error(filters: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        ids(**filters)
    assert issubclass(UnknownName, UsageError)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("add", [ADD, TAIL]),
        ("ADD and FLOAT16", [ADD]),
        ("relu or tail", [TAIL, RELU]),
        ("not add", [RELU]),
        ("add and not (tail or relu)", [ADD]),
        ("not not relu", [RELU]),
        ("relu or add and tail", [TAIL, RELU]),
        *((each, [TAIL]) for each in ("(relu or add) and tail", "'tail add'", "slow")),
        ('"2x3, 2x3"', [ADD]),
        ("pointwise", [ADD, TAIL]),
        ("nothing_like_it", []),
        ("[float16]", [ADD]),
    ],
)
def test_keyword_expressions(expression: str, wanted: list[str]) -> None:
    assert ids(keyword=expression) == wanted


@pytest.mark.parametrize(
    ("expression", "column", "message"),
    [
        ("add and", 7, "expected a word, 'not' or '('"),
        ("and add", 0, "expected a word, 'not' or '('"),
        ("add relu", 4, "expected 'and' or 'or'"),
        ("(add", 4, "expected ')'"),
        ("add)", 3, "expected 'and' or 'or'"),
        ("()", 1, "expected a word, 'not' or '('"),
        ('add and "open', 8, "a quote is not closed"),
        ("(" * 60 + "a" + ")" * 60, 50, "nesting is more than 50 levels deep"),
    ],
)
def test_wrong_expressions_point_at_the_place(expression: str, column: int, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_keyword(expression)
    first, echo, caret, *_ = str(raised.value).split("\n")
    assert says_exactly(first, "plan.cannot_be_read", message=message)
    assert echo == f"  {expression}"
    assert caret == f"  {' ' * column}^"


def test_keyword_with_spaces_gets_hint() -> None:
    def said(expression: str) -> str:
        with pytest.raises(UsageError) as raised:
            parse_keyword(expression)
        return "\n".join(str(raised.value).split("\n")[1:])

    assert says_exactly(said("matmul half"), "plan.matmul_half_name_with")
    assert says_exactly(said("matmul half or relu"), "plan.matmul_half_or_relu")
    assert ids(globs=["tail add"]) == ids(keyword='"tail add"') == [TAIL]


def test_long_expressions_do_not_exhaust_the_stack() -> None:
    assert parse_keyword(" or ".join(["x"] * 5000 + ["add"]))("add")
    assert not parse_keyword(" and ".join(["x"] * 5000))("add")


@given(st.text(alphabet=st.sampled_from("ab() \"'not andor"), max_size=40))
def test_any_text_is_read_or_refused(expression: str) -> None:
    try:
        found = parse_keyword(expression)
    except UsageError:
        return
    assert found("a b") in (True, False)


EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", "c", "d"]),
    lambda inner: st.one_of(
        inner.map(lambda one: f"not ({one})"),
        st.lists(inner, min_size=2, max_size=4).map(lambda some: "(" + " and ".join(some) + ")"),
        st.lists(inner, min_size=2, max_size=4).map(lambda some: "(" + " or ".join(some) + ")"),
    ),
    max_leaves=10,
)


@given(EXPRESSIONS, st.sets(st.sampled_from("abcd")))
def test_expressions_mean_what_they_mean_in_python(expression: str, holding: set[str]) -> None:
    wanted = eval(expression, {word: word in holding for word in "abcd"})
    assert parse_keyword(expression)(" ".join(sorted(holding))) is wanted


_PLAN = plan(
    """\
    defaults: {tags: [every]}
    cases:
      - {op: relu, name: "add[float32](3, 3)", shapes: {input0: 2}, tags: [named]}
      - {op: add, shapes: {input0: 3}}
      - {op: add, shapes: {input0: 3}, tags: [second]}
      - {op: add, product: {m: [1, 11], n: [1]}, name: "x${m}", shapes: {input0: [$m, $n]}}
      - {op: relu, product: {m: [1, 3], seed: [0, 1]}, shapes: {input0: [$m]}}
      - {op: relu, name: "Foo[cpusim]::one", shapes: {input0: 2}}
    """
)
_IDS = [case.id for case in build(_PLAN)]


@given(st.sampled_from([*_IDS, "one", "Foo::"]), st.data())
def test_glob_filter_never_changes_a_selection(text: str, data: st.DataObject) -> None:
    start, end = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2)))
    glob = text[:start] + data.draw(st.sampled_from(["*", "?", "[a-z1]", "[!x]", "[", text[start:end]])) + text[end:]
    selected = matching_ids(glob, _IDS)
    built = [case.id for case in build(_PLAN, wanted=glob_filter([glob]))]
    assert [x for x in built if x in matching_ids(glob, built)] == [x for x in _IDS if x in selected]


@pytest.mark.parametrize(
    ("glob", "built"),
    [
        ("add[float32](3, 3)#2", [_IDS[1], _IDS[2], _IDS[9]]),
        ("x11*", [_IDS[3], _IDS[4], _IDS[9]]),
        ("*[3[]*", _IDS),
        ("[!x]elu*", _IDS[5:]),
    ],
)
def test_unwanted_cases_are_not_built(glob: str, built: list[str]) -> None:
    assert [case.id for case in build(_PLAN, wanted=glob_filter([glob]))] == built


def test_long_globs_are_matched_at_their_beginning() -> None:
    wanted = glob_filter(["ab" * 500 + "*"])
    assert wanted is not None
    assert wanted("ab" * 499, False)
    assert not wanted("ba", False)
    assert glob_filter([]) is None
