"""Inputs of several cases that are drawn at once are, bit for bit, those that each case has alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optest.api import cases as cases_of
from optest.core.inputs import make_inputs, make_inputs_together
from optest.generators.random_tensors import RandomTensorGenerator
from optest.spec import Fill, TestCase


def case_of(seed: int, op: str = "add", dtype: str = "float32", fill: str = "randn", size: str = "40") -> TestCase:
    shapes = (f"input0={size}", f"input1={size}")
    (case,) = cases_of(op=op, dtype=dtype, shape=shapes)
    inputs = tuple(replace(each, fill=Fill(kind=fill)) for each in case.inputs)
    return replace(case, inputs=inputs, seed=seed)


def require_as_alone(cases: list[TestCase], *, but: tuple[int, ...] = ()) -> None:
    for place, (case, found) in enumerate(zip(cases, make_inputs_together(cases), strict=True)):
        if place in but:
            assert found is None
            continue
        assert found is not None
        alone, _ = make_inputs(case)
        assert len(found) == len(alone)
        for one, other in zip(found, alone, strict=True):
            assert (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides)
            assert one.tobytes() == other.tobytes()
            assert not one.flags.writeable


@pytest.mark.parametrize("fill", ["randn", "uniform", "randint"])
@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"]
)
def test_every_bit_is_that_of_the_case_alone(dtype: str, fill: str) -> None:
    require_as_alone([case_of(seed, "add", dtype, fill) for seed in range(3)])


@pytest.mark.parametrize("size", ["1", "8", "16", "17", "31", "32", "33", "5x7", "64x16", "1000"])
def test_any_size_is_drawn_so(size: str) -> None:
    require_as_alone([case_of(seed, size=size) for seed in range(40)])


def test_cases_of_many_forms_find_their_own() -> None:
    cases = [
        case_of(seed, op, dtype, size=size)
        for seed in range(3)
        for op, dtype, size in [("add", "float32", "4x5"), ("sub", "float32", "20"), ("mul", "float64", "20")]
    ]
    require_as_alone(cases)


def test_what_asks_the_case_is_drawn_alone() -> None:
    cases = [case_of(0), case_of(1, fill="special"), case_of(2), case_of(3, size="400x50")]
    strided = replace(cases[2].inputs[0], spec=replace(cases[2].inputs[0].spec, strides=(2,)))
    cases[2] = replace(cases[2], inputs=(strided, cases[2].inputs[1]))
    require_as_alone(cases, but=(1, 2, 3))


def test_a_generator_of_the_user_is_asked_alone() -> None:
    cases = [case_of(0), replace(case_of(1), generator="somewhere:made")]
    require_as_alone(cases, but=(1,))


def test_what_cannot_be_drawn_is_said_of_its_case_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(RandomTensorGenerator, "generate_together", fail)
    assert make_inputs_together([case_of(0), case_of(1)]) == [None, None]


def test_nothing_is_drawn_of_nothing() -> None:
    assert make_inputs_together([]) == []
    assert np.array_equal(make_inputs(case_of(0))[0][0], make_inputs_together([case_of(0)])[0][0])  # type: ignore[index]
