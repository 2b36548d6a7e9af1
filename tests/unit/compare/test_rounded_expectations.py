"""Expected values that are already rounded: golden files, generators, a reference in float32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from judged_arrays import case_of, right

from optest.compare import Expected
from optest.compare.verdict import compare_outputs
from optest.numerics import round_to
from optest.operators import operators
from optest.registry import load_object
from optest.spec import Numerics, Reason, Status, TestCase, Verdict, dtype

RNG = np.random.default_rng(11)


def case_and_reference(op: str, inputs: list[np.ndarray[Any, Any]]) -> tuple[TestCase, Any, Any]:
    """Return the case, its unrounded reference and its terms."""
    descriptor = operators.get(op)
    hook = descriptor.terms
    terms = (
        None if hook is None else (load_object(hook) if isinstance(hook, str) else hook)(inputs, descriptor.bind({}))
    )
    return case_of(op, inputs, {}), right(op, *inputs), terms and terms[0]


def verdict(case: TestCase, actual: Any, value: Any, terms: Any, name: str) -> Verdict:
    expected = Expected(name="out", dtype=dtype(name), shape=np.shape(value), value=value, terms=terms)
    return compare_outputs(case, [actual], [expected], numerics=Numerics())


def matmul(name: str, rows: int = 64, k: int = 256) -> tuple[Any, ...]:
    inputs = [round_to(RNG.standard_normal(shape), dtype(name)) for shape in ((rows, k), (k, rows))]
    case, value, terms = case_and_reference("matmul", inputs)
    single = inputs[0].astype(np.float32) @ inputs[1].astype(np.float32)
    return case, value, terms, single


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("rows", [64, 3])
def test_a_right_kernel_passes_against_rounded_values(name: str, rows: int) -> None:
    """Near ties it rounds the other way than the golden file, by one unit."""
    for _ in range(5):
        case, value, terms, single = matmul(name, rows)
        actual = round_to(single.astype(np.float64), dtype(name))
        found = verdict(case, actual, round_to(value, dtype(name)), terms, name)
        assert found.status is Status.PASSED, found
        assert found.measures[0].rule is not None
        assert "rounded to" in found.measures[0].rule.text


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_truncation_is_found_against_rounded_values(name: str) -> None:
    case, value, terms, single = matmul(name)
    shift = np.uint32(16 if name == "bfloat16" else 13)
    cut = ((single.view(np.uint32) >> shift) << shift).view(np.float32)
    actual = cut.astype(np.float16) if name == "float16" else cut.astype(ml_dtypes.bfloat16)
    assert verdict(case, actual, round_to(value, dtype(name)), terms, name).status is Status.FAILED


@pytest.mark.parametrize("size", [12, 5000])
def test_function_truncation_is_found_against_rounded_values(size: int) -> None:
    case, value, terms = case_and_reference("exp", [RNG.standard_normal(size).astype(np.float16)])
    single = np.asarray(value, np.float64).astype(np.float32)
    cut = ((single.view(np.uint32) >> np.uint32(13)) << np.uint32(13)).view(np.float32).astype(np.float16)
    stored = round_to(value, dtype("float16"))
    assert verdict(case, stored, stored, terms, "float16").status is Status.PASSED
    assert verdict(case, cut, stored, terms, "float16").status is Status.FAILED


def test_two_units_are_wrong_against_rounded_values() -> None:
    case, value, terms, _ = matmul("float16", rows=20, k=4)
    stored = round_to(value, dtype("float16"))
    wrong = stored.copy()
    wrong[3, 4] = np.nextafter(np.nextafter(wrong[3, 4], np.float16(np.inf)), np.float16(np.inf))
    assert verdict(case, stored, stored, terms, "float16").status is Status.PASSED
    assert verdict(case, wrong, stored, terms, "float16").status is Status.FAILED


def test_bounds_follow_the_reference_dtype() -> None:
    case, value, terms, single = matmul("float16")
    actual = round_to(single.astype(np.float64), dtype("float16"))
    found = verdict(case, actual, np.asarray(value).astype(np.float32), terms, "float16")
    assert found.status is Status.PASSED, found
    case, value, terms, single = matmul("float32")
    stored = np.asarray(value).astype(np.float16)
    assert verdict(case, single, stored, terms, "float32").status is Status.PASSED
    off = single + 2.0 * np.spacing(np.abs(stored)).astype(np.float32)
    assert verdict(case, off, stored, terms, "float32").status is Status.FAILED


@pytest.mark.parametrize("size", [4, 400])
@pytest.mark.parametrize("byte", [2, 255])
def test_byte_beyond_bool_is_no_bool(size: int, byte: int) -> None:
    case = case_of("cast", [np.zeros(size, np.float32)], {"dtype": "bool"})
    wrong = np.full(size, 1, np.uint8)
    assert verdict(case, wrong.view(np.bool_), np.ones(size, np.bool_), None, "bool").status is Status.PASSED
    wrong[-1] = byte
    found = verdict(case, wrong.view(np.bool_), np.ones(size, np.bool_), None, "bool")
    assert found.reason is Reason.DTYPE
    assert f"[{size - 1}] is {byte}" in found.message
