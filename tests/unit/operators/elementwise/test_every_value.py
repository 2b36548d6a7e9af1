"""The generator of exhaustive cases."""

from __future__ import annotations

import numpy as np
import pytest

from optest.numerics import bits, numpy_dtype
from optest.operators import operators
from optest.operators.every_value import EveryValue
from optest.registry import load_object
from optest.spec import Argument, Fault, Fill, TensorSpec, TestCase, Tier, dtype


def case_of(name: str, shape: tuple[int, ...]) -> TestCase:
    spec = TensorSpec(dtype=dtype(name), shape=shape)
    argument = Argument(name="input", path="input0", spec=spec, fill=Fill(kind="randn"))
    return TestCase(descriptor=operators.get("exp"), inputs=(argument,), outputs=(spec,))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "int8", "uint16"])
def test_every_bit_pattern_occurs_once(name: str) -> None:
    count = 1 << dtype(name).bits
    ((values,), known) = EveryValue().generate(case_of(name, (count // 16, 16)), None)
    assert known is None
    assert values.dtype == numpy_dtype(dtype(name))
    assert np.array_equal(np.sort(bits(values).reshape(-1).view(f"u{values.itemsize}")), np.arange(count))


def test_generator_repeats_after_all_patterns() -> None:
    ((values,), _) = EveryValue().generate(case_of("float16", (2, 1 << 16)), None)
    assert np.array_equal(bits(values[0]), bits(values[1]))


@pytest.mark.parametrize("name", ["float32", "int4"])
def test_other_dtypes_are_bad_cases(name: str) -> None:
    with pytest.raises(Fault, match=f"an input is {name}, expected a dtype of 8 or 16 bits"):
        EveryValue().generate(case_of(name, (4,)), None)


def test_exhaustive_samples_are_in_tier_full() -> None:
    for name in ("exp", "round", "abs", "gelu", "relu"):
        samples = list(load_object(str(operators.get(name).samples))())
        exhaustive = [sample for sample in samples if sample.case_set == "exhaustive"]
        assert {sample.case["dtypes"][0] for sample in exhaustive} == {"float16", "bfloat16"}
        assert all(sample.tier is Tier.FULL for sample in exhaustive)
        assert all(sample.case["shapes"] == {"input": [1 << 16]} for sample in exhaustive)
