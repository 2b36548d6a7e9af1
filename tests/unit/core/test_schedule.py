"""Cases that compute the same thing share an execution; the shortcut by keys groups them as a full comparison does."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

from core_kit import case_of, spec_of
from hypothesis import given
from hypothesis import strategies as st

from optest.core.results import Execution, executions
from optest.spec import BackendTarget, ExpectedError, OperatorDescriptor, Skip, TestCase

COPY = OperatorDescriptor(name="copy", signature="x -> out", reference="nowhere:copy")
PLAIN = case_of(COPY, spec_of(2))
COMPUTED = attrgetter("expects_error", "seed", "backend", "reference", "backend_config", "timeout_s", "base_dir")

CASES = st.builds(
    lambda **changes: replace(PLAIN, **changes),
    name=st.sampled_from(["", "a", "b"]),
    seed=st.integers(0, 3),
    reference=st.none() | st.just("m:f"),
    backend=st.sampled_from([BackendTarget(name="numpy"), BackendTarget(name="numpy", chip="b")]),
    backend_config=st.sampled_from([{}, {"numpy": {"x": 1}}, {"numpy": {"x": 2}}]),
    timeout_s=st.none() | st.just(1.0),
    base_dir=st.sampled_from(["", "elsewhere"]),
    skip=st.none() | st.just(Skip(reason="no")),
    expects_error=st.none() | st.sampled_from([ExpectedError(type="E"), ExpectedError(type="E", match="m")]),
)


def computes_the_same(one: TestCase, other: TestCase) -> bool:
    if one is other:
        return True
    seen = [(item.signature(), COMPUTED(item)) for item in (one, other)]
    return one.skip is None and other.skip is None and seen[0] == seen[1]


def told_apart(cases: list[TestCase]) -> list[list[int]]:
    """Group cases by comparing each with the first of every group; return their indices."""
    groups: list[list[int]] = []
    for place, case in enumerate(cases):
        found = next((group for group in groups if computes_the_same(cases[group[0]], case)), None)
        if found is None:
            groups.append([place])
        else:
            found.append(place)
    return groups


def by_place(planned: list[TestCase], found: list[Execution]) -> list[list[int]]:
    places = {id(case): place for place, case in enumerate(planned)}
    return [[places[id(case)] for case in execution.cases] for execution in found]


@given(st.lists(CASES, max_size=8))
def test_groups_match_pairwise_comparison(cases: list[TestCase]) -> None:
    planned = [replace(case) for case in cases]
    assert by_place(planned, list(executions(planned))) == told_apart(planned)


@given(st.lists(CASES, max_size=6, unique_by=lambda case: case.seed))
def test_cases_with_unique_keys_run_one_by_one(cases: list[TestCase]) -> None:
    assert by_place(cases, list(executions(cases))) == told_apart(cases) == [[place] for place in range(len(cases))]


def test_rounds_repeat_plan() -> None:
    cases = [replace(PLAIN, seed=seed, name=str(place)) for place, seed in enumerate((1, 2, 1))]
    found = executions(cases, rounds=2)
    once = [["0", "2"], ["1"]]
    assert [[case.name for case in item.cases] for item in found] == once * 2
    assert [item.round_index for item in found] == [0, 0, 1, 1]
    assert [item.cases for item in executions(cases, dedupe=False)] == [(case,) for case in cases]
