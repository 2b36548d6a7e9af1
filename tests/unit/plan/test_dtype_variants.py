"""Dtypes that an operator supports, in short and complete words."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optest.api.run_request import run_request
from optest.errors import PlanError
from optest.operators import operators
from optest.plan.tensors import variants_in_words

_NAMES = st.sampled_from(("float32", "float16", "int8", "int64"))
_VARIANTS = st.lists(st.lists(_NAMES, max_size=3).map(tuple), unique=True)


def expanded(words: str) -> list[tuple[str, ...]]:
    """Return every combination that the words name."""
    return [
        combination
        for part in (words.split("; ") if words else [])
        for combination in product(*(each.split("|") for each in part.split(", ")))
    ]


@settings(max_examples=40)
@given(_VARIANTS.filter(lambda found: () not in found))
def test_the_words_name_each_combination_once(variants: list[tuple[str, ...]]) -> None:
    assert sorted(expanded(variants_in_words(variants))) == sorted(variants)


@pytest.mark.parametrize("operator", ["matmul", "gather", "dequantize", "where", "cast"])
def test_those_of_the_catalogue(operator: str) -> None:
    variants = operators.get(operator).dtype_variants
    assert sorted(expanded(variants_in_words(variants))) == sorted(variants)


def test_what_goes_together_stands_together() -> None:
    variants = [(value, index) for index in ("int64", "int32") for value in ("float32", "int8")]
    assert variants_in_words(variants) == "float32|int8, int64|int32"
    assert variants_in_words([("float32",), ("int8",)]) == "float32|int8"
    assert variants_in_words([("float32", "float32"), ("int8", "int8")]) == "float32, float32; int8, int8"


def test_one_unsupported_dtype_hints_at_one_each() -> None:
    request = {"op": ("dequantize",), "shape": ("input=2x3", "scale=1", "zero_point=1"), "dtype": "int8"}
    with pytest.raises(PlanError) as raised:
        run_request(request)
    (problem,) = raised.value.problems
    assert str(problem.hint).startswith("write one for each input, for example int8, float32, int8; supported: int8, ")
