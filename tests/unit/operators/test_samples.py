"""Shared case sets, and the samples of every operator of the catalogue."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.api.checking import pairs_of_catalogue, sample_cases
from optest.api.listing import declared_samples, samples_of
from optest.backends import backend_manager
from optest.backends.arguments import in_signature_order
from optest.core.runner import TestRunner
from optest.operators import operators
from optest.operators.calls import LARGE_SIZE, SIZES, call, layouts_of
from optest.operators.catalogue import DESCRIPTORS
from optest.operators.derived_samples import INVARIANT_SET
from optest.operators.samples import (
    in_every_layout,
    in_layouts_at_once,
    of_every_magnitude,
    standard_samples,
    with_special_rows,
    with_special_values,
)
from optest.operators.shapes import batch_inputs
from optest.plan.expectations import read_expectations
from optest.spec import OperatorDescriptor, Status, TensorSpec, Tier, dtype

# Cases of one operator in a default check; the whole catalogue has to fit into five minutes on two processors.
MOST = 360
SHARE = 0.05


def spec(layout: Any) -> TensorSpec:
    return TensorSpec(
        dtype=dtype("float32"),
        shape=tuple(layout["shape"]),
        strides=tuple(layout["strides"]),
        offset=layout.get("offset", 0),
    )


@given(st.lists(st.integers(2, 7), min_size=1, max_size=5))
def test_layouts_are_legal_distinct_and_not_dense(shape: list[int]) -> None:
    made = [spec(layout) for layout in layouts_of(shape)]
    assert all(each.shape == tuple(shape) and not each.is_dense for each in made)
    assert len({(each.strides, each.offset) for each in made}) == len(made) or set(shape) == {2} or len(shape) == 2
    assert any(0 in (each.strides or ()) for each in made)
    assert any(min(each.strides or (0,)) < 0 for each in made)
    assert any(each.offset and min(each.strides or (0,)) >= 0 for each in made)


def test_common_layouts_are_included() -> None:
    made = [(layout["strides"], layout.get("offset", 0)) for layout in layouts_of([2, 3, 4, 5])]
    assert ([60, 1, 15, 3], 0) in made  # channels last
    assert ([96, 32, 8, 1], 0) in made  # rows of 5 that stand 8 apart
    assert ([60, 20, 1, 4], 0) in made  # the last two swapped
    assert ([60, 20, 5, -1], 4) in made
    assert ([120, 40, 10, 2], 0) in made


def test_layouts_of_single_inputs_and_of_all() -> None:
    pair = call(input=(4, 5), other=(4, 5))
    each = [sample.case["shapes"] for sample in in_every_layout([pair])]
    assert all(sum(isinstance(shape, dict) for shape in shapes.values()) == 1 for shapes in each)
    both = [sample.case for sample in in_layouts_at_once([pair], dtype="float16")]
    assert len(both) == 4
    for case in both:
        one, other = case["shapes"].values()
        assert one == other
        assert not spec(one).is_dense
        assert case["dtypes"] == ["float16"]
    some = [sample.case["shapes"] for sample in in_layouts_at_once([pair], names=["other"])]
    assert all(shapes["input"] == [4, 5] for shapes in some)
    assert not list(in_layouts_at_once([call(input=())]))


def test_magnitudes_skip_calls_with_generators() -> None:
    made = list(of_every_magnitude([call(input=(2,)), call(input=(3,), generator="ones")], dtypes=("float32",)))
    assert [sample.case["shapes"] for sample in made] == [{"input": [2]}] * 3
    assert len({str(sample.case["generator"]) for sample in made}) == 3


def test_special_values_have_two_rates() -> None:
    made = [(each.case["dtypes"], str(each.case["generator"])) for each in with_special_values([call(input=(9,))])]
    assert [dtypes for dtypes, fill in made if fill == "special"] == [["float32"], ["float16"], ["bfloat16"]]
    assert [dtypes for dtypes, fill in made if "rate" in fill] == [["float32"]]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_special_rows_spare_a_row_and_a_column(shape: list[int]) -> None:
    (sample,) = with_special_rows([call(input=shape, other=(2,))], ["input"], dtypes=("float32",))
    values = np.array(sample.case["generator"]["input"]["values"], np.float64)
    assert values.shape == tuple(shape)
    grid = np.isfinite(values.reshape(-1, shape[-1]))
    free = shape[-1] if len(shape) == 1 else min(grid.shape)
    assert (~grid).sum() == min(3, free - 1)
    assert grid.all(0).any()
    assert grid.all(1).any() or len(shape) == 1
    assert (values != 0).all()


def test_standard_begins_with_smoke_and_exceeds_16_bits() -> None:
    calls = [call(input=(4, 5)), call(input=(2, 3, 4))]
    made = list(standard_samples(calls, [("float32",), ("float16",), ("int8",)], sized=lambda n: call(input=(n,))))
    assert [sample.tier for sample in made].count(Tier.SMOKE) == 1
    assert made[0].tier is Tier.SMOKE
    sizes = Counter(sample.case["shapes"]["input"][0] for sample in made if sample.case_set == "sizes")
    assert sizes == {**dict.fromkeys(SIZES, 2), LARGE_SIZE: 1}
    deep = [sample for sample in made if sample.case_set == "layouts" and "[2, 3, 4]" in str(sample.case["shapes"])]
    assert len(deep) == 5
    calm = standard_samples(calls, [("float32",)], sized=lambda n: call(input=(n,)), sizes=(1, 2))
    assert LARGE_SIZE not in {sample.case["shapes"]["input"][0] for sample in calm if sample.case_set == "sizes"}


@pytest.mark.heavy
def test_derived_samples_use_existing_case_sets() -> None:
    # Shell completion offers the operator's own sets and the invariants only.
    for descriptor in DESCRIPTORS:
        own = declared_samples(descriptor)
        sets = {sample.case_set for sample in own}
        assert {sample.case_set for sample in samples_of(descriptor)} - {INVARIANT_SET} == sets, descriptor.name
        assert any(sample.tier is Tier.SMOKE for sample in own), descriptor.name


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda descriptor: descriptor.name)
def test_samples_are_cases(descriptor: OperatorDescriptor) -> None:
    cases = sample_cases(descriptor.name, Tier.FULL)
    assert len({case.id for case in cases}) == len(cases)
    assert sum("tier:full" not in case.tags for case in cases) <= MOST
    asked = {case.dtypes[0].name for case in cases if case.inputs and case.expects_error is None}
    assert asked >= {variant[0] for variant in descriptor.dtype_variants}
    assert all(case.outputs for case in cases if case.expects_error is None)


INDEXED = ("gather", "index_select", "take", "scatter_add", "embedding", "index_add", "index_copy", "scatter")


@pytest.mark.parametrize("name", INDEXED)
def test_indices_out_of_range_expect_errors(name: str) -> None:
    sets = Counter(case.name.split("/")[1] for case in sample_cases(name) if case.expects_error is not None)
    assert sets["outside"] == 4
    assert sets["refused"] >= 3


@pytest.mark.torch
def test_torch_expectations_are_few_and_valid() -> None:
    path = backend_manager.get("torch").expectations()
    assert path is not None
    lines = read_expectations(path, operators=operators).lines
    pairs = pairs_of_catalogue(operators)
    assert {line.pair for line in lines} <= pairs
    assert len({line.pair for line in lines}) <= SHARE * len(pairs)
    for line in lines:
        assert set(line.case_sets) <= {each.case_set for each in declared_samples(operators.get(line.op))}
    assert backend_manager.get("numpy").expectations() is None


BATCHES = {
    "softmax": {"input"},
    "layer_norm": {"input"},
    "rms_norm": {"input"},
    "batch_norm": {"input"},
    "matmul": {"input", "other"},
    "bmm": {"input", "mat2"},
    "linear": {"input"},
    "scaled_dot_product_attention": {"query", "key", "value"},
    "conv2d": {"input"},
    "max_pool2d": {"input"},
    "sum": {"input"},
    "embedding": {"indices"},
}


@pytest.mark.parametrize("operator", BATCHES)
def test_invariants_apply_to_batch_inputs(operator: str) -> None:
    (case,) = [each for each in sample_cases(operator) if f"set:{INVARIANT_SET}" in each.tags]
    specs = in_signature_order(case, [each.spec for each in case.inputs])
    (places,) = batch_inputs(case.descriptor, specs, case.attributes, case.outputs[0].shape[0])
    assert {case.descriptor.tensors.input_name(place) for place in places} == BATCHES[operator]


@pytest.mark.heavy
def test_references_keep_invariants() -> None:
    cases = [case for each in DESCRIPTORS for case in sample_cases(each.name) if f"set:{INVARIANT_SET}" in case.tags]
    assert len(cases) > 50
    results = TestRunner().run(cases)
    assert [each.id for each in results if each.status is not Status.PASSED] == []
    assert all(len([check for check in each.verdict.checks if "invariant" in check.name]) == 4 for each in results)
