"""How many threads numerical work of optest's own may take."""

from __future__ import annotations

import os

import pytest

from optest.settings import numerical_threads


@pytest.mark.parametrize(("stated", "threads"), [("1", 1), ("3", 3), (" 2 ", 2), ("4,2", 4)])
def test_as_many_as_openmp_may_take(stated: str, threads: int) -> None:
    assert numerical_threads({"OMP_NUM_THREADS": stated}) == threads


@pytest.mark.parametrize("stated", ["", "0", "-1", "many", "²"])
def test_without_a_number_as_many_as_there_are_processors(stated: str) -> None:
    assert numerical_threads({"OMP_NUM_THREADS": stated}) == len(os.sched_getaffinity(0))


def test_a_process_bound_to_one_processor_takes_one() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert numerical_threads({}) == 1
    finally:
        os.sched_setaffinity(0, allowed)
