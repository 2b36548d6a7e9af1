"""Case keys are a promise: results, resume and history of every version find each other by them."""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.spec import (
    Argument,
    Attribute,
    BackendTarget,
    Fill,
    OperatorDescriptor,
    TensorSpec,
    TestCase,
    Tolerance,
    dtype,
)
from optest.spec.case import Layer, ToleranceLayer

ADD = OperatorDescriptor(name="add", signature="input, other -> out")
GEMM = OperatorDescriptor(name="gemm", signature="a, b, c? -> out")


def argument(index: int, name: str, dtype_name: str, shape: tuple[int, ...], fill: Fill, **layout: Any) -> Argument:
    return Argument(
        name=name, path=f"input{index}", spec=TensorSpec(dtype=dtype(dtype_name), shape=shape, **layout), fill=fill
    )


RANDN = Fill(kind="randn")
PLAIN = TestCase(
    descriptor=ADD,
    inputs=(argument(0, "input", "float32", (4,), RANDN), argument(1, "other", "float32", (4,), RANDN)),
    outputs=(TensorSpec(dtype=dtype("float32"), shape=(4,)),),
    attributes={"alpha": 1.0},
)
RICH = TestCase(
    descriptor=GEMM,
    inputs=(
        argument(0, "a", "bfloat16", (2, 3), Fill(kind="uniform", parameters={"low": -1, "high": 2.5})),
        argument(1, "b", "float16", (3, 2), RANDN, strides=(1, 3), offset=2),
        argument(2, "c", "int4", (), Fill(kind="data", parameters={"values": [1, [2.0, "nan"]]}), offset=1),
    ),
    attributes={"β": float("inf"), "alpha": 2, "trans_a": True, "dim": (0, -1), "mode": None, "text": 'a"b\\ü'},
    generator="mine:draw",
    seed=-(2**70),
)
BARE = TestCase(descriptor=ADD, inputs=())

GOLDEN = [
    (PLAIN, "k1:04e44b1aad8cfccd8cbea466aa1d77a6"),
    (replace(PLAIN, seed=1), "k1:b422bbd29bcde96c33ba865c63c6c2d5"),
    (replace(PLAIN, attributes={"alpha": 1}), "k1:a539cc7fadffbe7fe03d5a99e4b43f05"),
    (RICH, "k1:761890b34277b59b48c91827561a8cb7"),
    (replace(RICH, generator=None, seed=True), "k1:a91b9601ced7979c8b516ebc214a6c96"),
    (BARE, "k1:9165b0da37339b3fa0b8d19aa78b731f"),
]


@pytest.mark.parametrize(("case", "key"), GOLDEN)
def test_keys_of_every_version(case: TestCase, key: str) -> None:
    assert case.key == key


def stated_in_full(case: TestCase) -> str:
    """The key as DESIGN §2 states it: BLAKE2b over the canonical JSON of signature and seed."""
    text = json.dumps({"signature": case.signature(), "seed": case.seed}, sort_keys=True, separators=(",", ":"))
    return "k1:" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


PARAMETERS = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=2,
)
SPECS = st.builds(
    TensorSpec,
    dtype=st.sampled_from([dtype(name) for name in ("float32", "int4", "bool")]),
    shape=st.lists(st.integers(0, 3), max_size=3).map(tuple),
    offset=st.integers(0, 2),
)
ARGUMENTS = st.builds(
    Argument,
    name=st.text(max_size=3),
    path=st.text(max_size=3),
    spec=SPECS,
    fill=st.builds(Fill, kind=st.text(max_size=3), parameters=PARAMETERS),
)
CASES = st.builds(
    TestCase,
    descriptor=st.sampled_from([ADD, GEMM]),
    inputs=st.lists(ARGUMENTS, max_size=3).map(tuple),
    outputs=st.lists(SPECS, max_size=2).map(tuple),
    attributes=PARAMETERS,
    generator=st.none() | st.text(max_size=3),
    seed=st.integers() | st.booleans(),
)


@given(CASES)
def test_a_key_is_the_hash_of_signature_and_seed_in_canonical_json(case: TestCase) -> None:
    assert case.key == stated_in_full(case)


@given(CASES)
def test_a_key_does_not_depend_on_which_case_was_asked_first(case: TestCase) -> None:
    first = case.key
    sibling = replace(case, seed=int(case.seed) + 1, attributes={**case.attributes, "more": 1})
    assert sibling.key == stated_in_full(sibling) != first
    assert replace(case).key == first


def test_what_is_not_computed_is_not_in_the_key() -> None:
    tolerance = ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=1.0))
    other = replace(
        PLAIN,
        name="n",
        tags=("t",),
        description="d",
        backend=BackendTarget(name="torch"),
        tolerances=(tolerance,),
        timeout_s=1.0,
        where="plan.yaml:1",
        base_dir="/elsewhere",
        reference="mine:reference",
    )
    assert other.key == PLAIN.key


def test_a_value_that_is_no_plain_data_is_refused() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        _ = replace(PLAIN, attributes={"alpha": object()}).key
    with pytest.raises(TypeError, match="not JSON serializable"):
        _ = replace(PLAIN, seed=1 + 2j).key  # type: ignore[arg-type]


def test_an_attribute_that_nobody_stated_is_no_part_of_the_identity() -> None:
    """An operator may gain one with the default None, and resume and history still find its cases."""
    grown = replace(ADD, attributes=(Attribute(name="out_dtype", type="dtype", default=None),))
    unstated = replace(PLAIN, descriptor=grown, attributes={"alpha": 1.0, "out_dtype": None})
    assert unstated.key == PLAIN.key
    stated = replace(unstated, attributes={"alpha": 1.0, "out_dtype": "int32"})
    assert stated.key != PLAIN.key
    undeclared = replace(PLAIN, attributes={"alpha": 1.0, "out_dtype": None})
    assert undeclared.key != PLAIN.key


def test_a_copy_of_an_attribute_is_as_required_as_it() -> None:
    required = Attribute(name="k", type="int")
    for copied in (copy.deepcopy(required), pickle.loads(pickle.dumps(required))):
        assert copied.is_required
        assert copied == required
