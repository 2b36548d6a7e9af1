"""Tolerance by output, priority, retries and shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_kit import again_by_plan, build, case_of, cases_of, plan, problems_of
from texts import says, says_exactly

from optest.errors import UsageError
from optest.operators import operators
from optest.plan import CaseRequest, explain_case
from optest.plan.repro import command_line
from optest.plan.select import in_shard, parse_shard, select, sorted_by_priority
from optest.spec import DEFAULT_PRIORITY, Layer, TestCase, Tolerance, ToleranceLayer

# Tolerance by output

TWO = "op: mine, attributes: {k: 1}, shapes: {x: 4, y: 4, a: 4, b: 4}"


def layers(case: TestCase) -> list[tuple[Layer, str | None, Tolerance]]:
    return [(each.layer, each.output, each.tolerance) for each in case.tolerances]


def problems(text: str, **more: Any) -> list[tuple[str, str]]:
    return [(each.path, each.message) for each in problems_of(text, **more)]


def test_tolerances_by_output_and_flat() -> None:
    case = case_of(f"cases: [{{{TWO}, tolerance: {{rtol: 1e-3, b: {{atol: 1e-2, rel: 0}}}}}}]")
    assert layers(case) == [
        (Layer.CASE, None, Tolerance(rtol=1e-3)),
        (Layer.CASE, "output1", Tolerance(rtol=0, atol=1e-2)),
    ]
    alone = case_of(f"cases: [{{{TWO}, tolerance: {{output0: {{rtol: 1e-3}}}}}}]")
    assert layers(alone) == [(Layer.CASE, "output0", Tolerance(rtol=1e-3))]
    of_unruled = case_of("cases: [{op: unruled, shapes: {x: 4}, tolerance: {out: {rtol: 1}}}]")
    assert layers(of_unruled) == [(Layer.CASE, "output0", Tolerance(rtol=1))]


def test_default_outputs_reach_the_operators_that_have_them() -> None:
    defaults = "{tolerance: {rtol: 1e-3, b: {rtol: 1e-2}}}"
    cases = cases_of(f"defaults: {defaults}\ncases: [{{{TWO}}}, {{op: relu, shapes: {{input0: 4}}}}]")
    assert [[output for _, output, _ in layers(case)] for case in cases] == [[None, "output1"], [None]]


@pytest.mark.parametrize(
    ("tolerance", "path", "message"),
    [
        ("{c: {rtol: 1}}", ".c", "unknown tensor 'c'"),
        ("{x: {rtol: 1}}", ".x", "x is an input, but tolerances are for outputs"),
        ("{a: {rtol: 1}, output0: {rtol: 1}}", ".output0", "the tolerance of output0 is set twice"),
        ("{a: {rtol: -1}}", ".a.rtol", "rtol is -1, expected a finite number of 0 or more"),
        ("{a: {rtool: 1}}", ".a.rtool", "unknown key 'rtool' of tolerance"),
        ("{a: {}}", ".a", "tolerance is {}, expected a mapping with rtol, atol, mismatch_ratio or signed_zeros"),
        ("{rtol: x, a: {atol: y}}", ".rtol", "rtol is 'x', expected a number of 0 or more"),
    ],
)
def test_wrong_tolerances(tolerance: str, path: str, message: str) -> None:
    found = problems(f"cases: [{{{TWO}, tolerance: {tolerance}}}]")
    assert (f"$.cases[0].tolerance{path}", message) in found
    assert len(found) == (2 if "rtol: x" in tolerance else 1)


def test_a_default_output_that_nobody_has() -> None:
    assert problems("{defaults: {tolerance: {uot: {rtol: 1}}}, cases: [{op: relu, shapes: {input0: 4}}]}") == [
        ("$.defaults.tolerance.uot", "unknown output of any operator in the plan 'uot'")
    ]


def test_explain_and_case_plan_have_outputs() -> None:
    text = f"""\
        defaults: {{tolerance: {{atol: 1.0, a: {{rtol: 2.0}}}}}}
        cases: [{{{TWO}, tolerance: {{b: {{rtol: 1e-2}}}}}}]
        """
    case = case_of(text)
    rows = [(what, value) for what, value, _ in explain_case(case) if what.startswith("tolerance")]
    assert rows == [("tolerance.output1", "rtol=0.01"), ("tolerance", "atol=1"), ("tolerance.output0", "rtol=2")]
    assert command_line(case) is None
    assert layers(again_by_plan(case)) == layers(case)


def test_case_plan_keeps_flag_over_output_tolerances() -> None:
    flag = ToleranceLayer(layer=Layer.COMMAND_LINE, tolerance=Tolerance(rtol=0.5), where="--tolerance")
    text = f"cases: [{{{TWO}, tolerance: {{b: {{rtol: 1e-2, atol: 2.0}}}}}}]"
    case = case_of(text, CaseRequest(tolerance=flag.tolerance))
    assert layers(again_by_plan(case)) == [
        (Layer.CASE, None, Tolerance(rtol=0.5)),
        (Layer.CASE, "output1", Tolerance(rtol=0.5, atol=2.0)),
    ]


# Priority and retries


def test_priority_from_case_else_defaults() -> None:
    text = "cases: [{op: relu, shapes: {input0: 4}, priority: 0}, {op: relu, shapes: {input0: 5}}]"
    assert [case.priority for case in cases_of(text)] == [0, DEFAULT_PRIORITY]
    assert [case.priority for case in cases_of("{defaults: {priority: 7}, " + text + "}")] == [0, 7]


def test_priority_orders_and_limits_cases() -> None:
    case = "{op: relu, shapes: {input0: 4}, name: n%d, priority: %d}"
    text = f"cases: [{', '.join(case % (each, each) for each in (3, 1, 2))}]"
    cases = cases_of(text)
    assert [case.id for case in sorted_by_priority(cases)] == ["n1", "n2", "n3"]
    assert [case.id for case in select(cases, priority_max=2)] == ["n1", "n2"]
    assert select(cases, priority_max=0) == []
    alike = cases_of("cases: [{op: relu, shapes: {input0: 5}}, {op: relu, shapes: {input0: 3}}]")
    assert sorted_by_priority(alike) == alike


# Shards


@pytest.mark.parametrize(
    "text", ["", "1", "0/3", "4/3", "1/0", "-1/3", "1/3/5", "a/b", "1 / 3", "1.0/3", "9999999999/9"]
)
def test_wrong_shards(text: str) -> None:
    with pytest.raises(UsageError, match=r"--shard is .* expected a form like 2/5, the second of five parts"):
        parse_shard(text)


def many(sizes: Sequence[int], seeds: Sequence[int]) -> list[TestCase]:
    product = f"product: {{m: {list(sizes)}, seed: {list(seeds)}}}"
    return build(plan(f"cases: [{{op: relu, {product}, shapes: {{input0: [$m]}}}}]"))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=12, unique=True),
    seeds=st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True),
    extra=st.integers(51, 99),
    count=st.integers(1, 9),
)
def test_shards_are_disjoint_and_stable(sizes: list[int], seeds: list[int], extra: int, count: int) -> None:
    cases = many(sizes, seeds)
    shards = [select(cases, shard=(index, count)) for index in range(1, count + 1)]
    assert sorted(case.key for shard in shards for case in shard) == sorted(case.key for case in cases)
    assert sum(map(len, shards)) == len(cases)
    place = {case.key: [in_shard(case, index, count) for index in range(1, count + 1)] for case in cases}
    assert all(sum(where) == 1 for where in place.values())
    for case in many([extra, *reversed(sizes)], seeds):
        if case.key in place:
            assert place[case.key] == [in_shard(case, index, count) for index in range(1, count + 1)]


def test_shards_are_about_as_large() -> None:
    cases = many(range(100), range(10))
    sizes = [len(select(cases, shard=(index, 4))) for index in range(1, 5)]
    assert min(sizes) > 200
    assert max(sizes) < 300


def test_what_computes_the_same_is_in_one_shard() -> None:
    cases = cases_of("cases: [{op: relu, shapes: {input0: 4}}, {op: relu, shapes: {input0: 4}, tolerance: {rtol: 1}}]")
    assert len({case.id for case in cases}) == 2
    assert sorted(len(select(cases, shard=(index, 5))) for index in range(1, 6)) == [0, 0, 0, 0, 2]


SPLIT = "op: split, attributes: {split_size: 2}"


@pytest.mark.parametrize(
    ("case", "places"),
    [
        (SPLIT + ", shapes: {input0: 6}, tolerance: {output3: {rtol: 1}}", ["output3"]),
        ("op: max, shapes: {input0: 4x8}, tolerance: {rtol: 1, indices: {atol: 1}}", ["indices"]),
        (
            "op: max, shapes: {input0: 4x8}, product: {attributes: [{dim: 1}, {}]}, tolerance: {indices: {atol: 1}}",
            ["indices"],
        ),
    ],
)
def test_tolerance_of_missing_output_is_reported(case: str, places: list[str]) -> None:
    found = problems(f"cases: [{{{case}}}]", operators=operators)
    assert [path.rpartition(".")[2] for path, _ in found] == places
    assert says(found[0][1], "plan.there_is_no_output")


def test_shapes_and_dtypes_of_missing_outputs() -> None:
    case = SPLIT + ", shapes: {input0: 6, out3: 2}, dtypes: {input0: int8, out4: int8}"
    assert problems(f"cases: [{{{case}}}]", operators=operators) == [
        ("$.cases[0].shapes.out3", "there is no output3: split returns 3 outputs here"),
        ("$.cases[0].dtypes.out4", "there is no output4: split returns 3 outputs here"),
    ]


@pytest.mark.parametrize(
    ("case", "hint"),
    [
        ("op: relu, shapes: {input0: 4}, dtypes: [float16, float32]", "{dtypes: [float16, float32]}"),
        ("op: relu, shapes: {input0: [[2, 3], [4]]}", "{shapes.TENSOR: [[2, 3], [4]]}"),
        ("op: relu, shapes: [{input0: 4}, {input0: 5}]", "{shapes: [{input0: 4}, {input0: 5}]}"),
        ("op: relu, shapes: {input0: 4}, seed: [0, 1]", "{seed: [0, 1]}"),
        ("op: [relu, add], shapes: {input0: 4}", "{op: [relu, add]}"),
        ("op: norm, shapes: {input0: 4}, attributes: {eps: [0.5, 1.0]}", "{attributes.eps: [0.5, 1.0]}"),
    ],
)
def test_list_for_one_value_hints_at_product(case: str, hint: str) -> None:
    assert says_exactly(problems_of(f"cases: [{{{case}}}]")[0].hint, "plan.several_values_make_several", hint=hint)
