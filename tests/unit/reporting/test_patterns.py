"""Which cases fail where others pass, from results alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from texts import says_exactly

from optest.reporting.failure_groups import failure_groups, group_lines
from optest.reporting.patterns import pattern_of
from optest.spec import CaseResult, Measure, Reason, RuleUsed, Status, Verdict

Make = Callable[..., CaseResult]


def many(result: Make, **lists: Any) -> list[CaseResult]:
    """One result for each dtype, size and layout."""
    made = []
    for dtype in lists.get("dtypes", ("float32", "float16", "bfloat16")):
        for size in lists.get("sizes", (3, 8, 64, 100)):
            for strides in ((1, 4), None):
                spec = (dtype, (4, size), strides, 0) if strides else (dtype, (4, size))
                wire = {"inputs": ((("input",), "input0", spec),)}
                shapes = {"input0": (4, size)}
                name = f"{dtype} {size} {strides}"
                made.append(result(id=name, dtypes=(dtype,), shapes=shapes, case=wire, attributes={"dim": size % 2}))
    return made


def failing(
    results: list[CaseResult], fails: Callable[[CaseResult], Any], *, say: Callable[[CaseResult], Any] = lambda _: {}
) -> list[CaseResult]:
    """The results, of which some fail; ``say`` adds details to their verdicts."""

    def verdict(each: CaseResult) -> Verdict:
        return Verdict(**{"status": Status.FAILED, "reason": Reason.VALUE, **say(each)})

    return [replace(each, verdict=verdict(each)) if fails(each) else each for each in results]


def pattern_where(
    results: list[CaseResult], fails: Callable[[CaseResult], Any], diagnosis: tuple[str, ...] = ()
) -> str:
    failed = [each for each in results if fails(each)]
    return pattern_of(failed, [each for each in results if each not in failed], diagnosis)


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda each: "float16" in each.dtypes, "only in float16"),
        (lambda each: "(1, 4)" in each.id, "only with a strided input"),
        (lambda each: each.shapes["input0"][-1] % 4, "not a multiple of 4"),
        (lambda each: each.shapes["input0"][-1] > 64, "more than 256 elements"),
        (lambda each: "float16" in each.dtypes and "(1, 4)" in each.id, "in float16 and with a strided input"),
    ],
)
def test_what_failures_have_in_common(result: Make, fails: Callable[[CaseResult], bool], words: str) -> None:
    assert words in pattern_where(many(result), fails)


def test_attribute_of_the_diagnosis_hides_sizes(result: Make) -> None:
    results = many(result)
    assert "also" in pattern_where(results, lambda each: each.attributes["dim"])
    pattern = pattern_where(results, lambda each: each.attributes["dim"], ("as if dim were 0 not 1",))
    assert says_exactly(pattern, "reporting.only_with_dim_all")


def test_size_of_passing_cases_is_no_condition(result: Make) -> None:
    results = many(result, sizes=(2, 6, 8, 64))
    assert pattern_where(results, lambda each: each.shapes["input0"][-1] % 4 and "float32 2" not in each.id) == ""


@pytest.mark.parametrize(
    ("sizes", "words"), [((64, 64, 64, 64, 64, 64), ""), ((4, 8, 12, 20, 28, 36), "a multiple of 4")]
)
def test_a_factor_of_one_size_is_no_condition(result: Make, sizes: Sequence[int], words: str) -> None:
    failed = [result(id=str(at), shapes={"input0": (at + 2, size)}) for at, size in enumerate(sizes)]
    passed = [result(id=f"passed{size}", shapes={"input0": (5, size)}) for size in (1, 3, 5, 7, 9, 65, 129)]
    assert words in pattern_of(failed, passed)
    assert "multiple" in words or "multiple" not in pattern_of(failed, passed)


def test_passes_without_elements_do_not_count(result: Make) -> None:
    pattern = pattern_where(many(result, sizes=(0, 8, 64)), lambda each: each.shapes["input0"][-1] == 64)
    assert "all 6 such cases" in pattern
    assert "none of 6 others" in pattern


def test_few_passes_leave_two_conditions(result: Make) -> None:
    """As the rows of a causal mask by fours that see the same keys."""
    results = many(result, sizes=(3, 8, 64, 99, 100))
    shown = lambda each: "float16" in each.dtypes and each.attributes["dim"] and "99 None" not in each.id  # noqa: E731
    pattern = pattern_where([*results, *results, *results], shown)
    assert pattern.startswith("only in float16 and with dim=1 (9 of 12 such cases, none of ")


def test_an_input_that_is_given_is_a_condition(result: Make) -> None:
    def case(number: int, fails: bool, **more: str) -> CaseResult:
        inputs = {"query": "float32", **more}
        shape = (number + 2, 8)
        wire = tuple((name, f"input{at}", (kind, shape)) for at, (name, kind) in enumerate(inputs.items()))
        reason = {"reason": Reason.VALUE} if fails else {}
        return result(id=f"{number} {more}", shapes={"input0": shape}, case={"inputs": wire}, **reason)

    plain = [case(number, fails=False) for number in range(6)]
    bools = [case(number, fails=False, mask="bool") for number in range(6)]
    floats = [case(number, fails=True, mask="float16") for number in range(6)]
    assert pattern_of(floats, plain).startswith("only with mask (")
    assert pattern_of(floats, [*plain, *bools]).startswith("only with mask of floats (")
    assert pattern_of(plain, bools).startswith("only without mask (")
    assert pattern_of(floats[:4], [*plain, *floats[4:]]) == ""  # 4 of 6 with a mask may be chance


def test_attribute_precedes_correlated_size(result: Make) -> None:
    """Where nearly all cases with the attribute fail, the sizes of the few that pass are another matter."""
    results = [
        replace(each, id=f"{dim} {each.id}", attributes={"dim": dim})
        for dim in (0, 1)
        for each in many(result, sizes=(3, 5, 6, 7, 12))
    ]
    pattern = pattern_where(results, lambda each: each.attributes["dim"] and each.shapes["input0"][-1] != 12)
    assert pattern.startswith("only with dim=1 (24 of 30 such cases")


def test_group_of_few_failures_has_no_pattern(result: Make) -> None:
    def fails(each: CaseResult) -> bool:
        return each.dtypes == ("bfloat16",) or (each.dtypes == ("float16",) and each.shapes["input0"][-1] == 8)

    def diagnosis(each: CaseResult) -> dict[str, Any]:
        return {"details": {"diagnosis": ["as if alpha were 1" if "float16" in each.dtypes else "as if beta were 1"]}}

    results = failing(many(result), fails, say=diagnosis)
    small, large = sorted(failure_groups(results), key=lambda group: len(group.others))
    assert small.pattern == ""
    assert large.pattern.startswith("in this way only in bfloat16")


def test_scalars_and_empty_calls_stand_for_no_others(result: Make) -> None:
    def failed(*shape: int, diagnosis: str = "") -> CaseResult:
        details = {"diagnosis": [diagnosis]} if diagnosis else {}
        return result(id=str(shape), shapes={"input0": shape}, reason=Reason.VALUE, details=details)

    (group,) = failure_groups([failed(), failed(1), failed(3, 0), failed(4, 4)])
    assert group.first.id == "(4, 4)"
    beside_one = result(id="beside a scalar", shapes={"input0": (3,), "input1": ()}, reason=Reason.VALUE)
    (group,) = failure_groups([beside_one, failed(4, 4)])
    assert group.first.id == "(4, 4)"
    effect, cause = failed(2, 2, diagnosis="every element of out is 0.0"), failed(9, 9, diagnosis="as if k were 8")
    assert [group.first for group in failure_groups([effect, cause])] == [cause, effect]


def test_nothing_in_common(result: Make) -> None:
    results = many(result)
    chosen = [results[place] for place in (0, 5, 9, 14, 20)]
    assert pattern_where(results, chosen.__contains__) == ""


def test_block_of_group_has_pattern(result: Make) -> None:
    (group,) = failure_groups(failing(many(result), lambda each: each.dtypes == ("float16",)))
    assert any(line.startswith("  fails: only in float16") for line in group_lines(group))


def test_one_cause_in_many_operators_is_one_group(result: Make) -> None:
    said = "out: the shape is 1, expected scalar"
    results = [result(operator=f"op{n}", id=f"op{n}", reason=Reason.SHAPE, message=said) for n in range(20)]
    (group,) = failure_groups(results)
    assert len(group.others) == 19


def test_two_operators_with_wrong_values_are_two_groups(result: Make) -> None:
    results = [result(operator=f"op{n}", id=f"op{n}", reason=Reason.VALUE) for n in range(5)]
    assert len(failure_groups(results)) == 5


def test_other_diagnoses_are_other_groups(result: Make) -> None:
    said = [["as if alpha were 1.0 not 2.0"], ["as if alpha were 1.0 not 3.0"], ["the ratio is 2"], []]
    results = [result(id=str(at), reason=Reason.VALUE, details={"diagnosis": each}) for at, each in enumerate(said)]
    assert [len(group.others) for group in failure_groups(results)] == [1, 0, 0]


def test_the_simplest_call_stands_for_the_others(result: Make) -> None:
    def failed(name: str, size: int, *more: Any) -> CaseResult:
        wire = {"inputs": ((("input",), "input0", ("float32", (size,), *more)),)}
        return result(id=name, shapes={"input0": (size,)}, case=wire, reason=Reason.VALUE)

    results = [failed("large", 900), failed("strided", 4, (2,), 0), failed("op(dim=1)", 4), failed("simple", 8)]
    (group,) = failure_groups(results)
    assert group.first.id == "simple"


def test_a_pattern_holds_for_all_that_fail(result: Make) -> None:
    """Two causes: what is said of one group may not be said of the operator where others fail as well."""
    half = [each for each in many(result) if "float16" in each.dtypes]
    strided = [each for each in many(result) if "float16" not in each.dtypes and "(1, 4)" in each.id]
    failed = {each.id: reason for group, reason in ((half, Reason.VALUE), (strided, Reason.SHAPE)) for each in group}
    results = failing(many(result), lambda each: each.id in failed, say=lambda each: {"reason": failed[each.id]})
    patterns = {group.first.reason: group.pattern for group in failure_groups(results)}
    assert "only in float16" in patterns[Reason.VALUE]
    assert f"; {len(strided)} more cases of it fail in other ways" in patterns[Reason.VALUE]


@pytest.mark.parametrize("diagnosis", [(), ("as if alpha were 1, its default, not 2",)])
def test_a_parameter_tells_one_cause_from_another(result: Make, diagnosis: tuple[str, ...]) -> None:
    """Nothing explains most of them: those with another alpha have one cause, be one of them diagnosed or not."""

    cases = [
        result(id=f"{at} {size}", shapes={"input0": (4, size)}, attributes={"alpha": alpha})
        for at, alpha in enumerate((1, 1, 1, 1, 2))
        for size in (64, *range(8))
    ]
    results = failing(
        cases,
        lambda each: each.attributes["alpha"] == 2 or each.shapes["input0"] == (4, 3),
        say=lambda each: {"details": {"diagnosis": diagnosis}} if each.shapes["input0"] == (4, 64) else {},
    )
    sizes = {group.first.attributes["alpha"]: 1 + len(group.others) for group in failure_groups(results)}
    assert sizes == {1: 4, 2: 9}


def test_integers_do_not_hide_roundings(result: Make, measure: Callable[..., Measure]) -> None:
    def wrong(size: int, dtype: str, rule: str) -> CaseResult:
        measures = [measure(dtype=dtype, mismatched=8, rule=RuleUsed(layer="operator", name=rule, text=rule))]
        return result(id=f"{dtype} {size}", dtypes=(dtype,), reason=Reason.VALUE, measures=measures)

    rules = [("int64", "exact"), ("float16", "accumulate")]
    groups = failure_groups([wrong(size, *rule) for size in range(3) for rule in rules])
    assert [{*group.first.dtypes, *group.others[0].dtypes} for group in groups] == [{"int64"}, {"float16"}]


def test_float32_steps_in_float64_calls_are_reported_last(result: Make, measure: Callable[..., Measure]) -> None:
    """Many functions compute in float32 by intent, which is one cause of its own next to any other fault."""
    said = {"diagnosis": ["every result is a number of float32: rounded to it, or accumulated in it, on the way"]}
    narrowed = [
        result(id=str(at), dtypes=("float64",), reason=Reason.VALUE, details=said, measures=[measure(mismatched=8)])
        for at in range(4)
    ]
    wrong = result(id="wrong", dtypes=("float32",), reason=Reason.VALUE, measures=[measure(mismatched=8)])
    assert [group.first.id for group in failure_groups([*narrowed, wrong])] == ["wrong", "0"]


def test_16_bit_roundings_represent_no_wider_dtype(result: Make, measure: Callable[..., Measure]) -> None:
    """The block of a wrong eps, say, would ask whether steps are rounded to float16."""
    narrow, wide = (
        result(id=dtype, shapes={"input0": (size,)}, reason=Reason.VALUE, measures=[measure(dtype=dtype, mismatched=8)])
        for dtype, size in (("float16", 8), ("float32", 64))
    )
    (group,) = failure_groups([narrow, wide])
    assert group.first is wide


def test_group_shows_simplest_call_with_rounding_hint(result: Make, measure: Callable[..., Measure]) -> None:
    rule = RuleUsed(name="composed", layer="operator", text="steps")

    def wrong(size: int, error: float) -> CaseResult:
        measures = [measure(mismatched=8, max_ulp_error=error, rule=rule)]
        return result(id=str(size), shapes={"input0": (4, size)}, reason=Reason.VALUE, measures=measures)

    far, few, large = wrong(2, 900.0), wrong(7, 1.5), wrong(65536, 1.5)
    (group,) = failure_groups([large, few, far])
    assert group.first is few


@pytest.mark.parametrize(("texts", "words"), [(20, ""), (4, "only with given=3 (all 5 such cases, none of 16 others)")])
def test_unique_attribute_texts_are_no_pattern(result: Make, texts: int, words: str) -> None:
    """As the values in a model that a traced node gets; some nodes share one, and some have none."""
    results = [result(id=str(at), attributes={"given": str(at % texts), "kind": "same"}) for at in range(20)]
    results.append(result(id="none", attributes={"kind": "same"}))
    assert pattern_where(results, lambda each: each.attributes.get("given") == "3") == words
