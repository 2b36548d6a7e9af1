"""The quick way to a dense tensor spec makes the spec that its class makes, and refuses what that refuses."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import refusal

from optest.spec import TensorSpec, dtype
from optest.spec.tensors import dense

FLOAT32 = dtype("float32")


@given(st.lists(st.integers(0, 4), max_size=4).map(tuple))
def test_dense_is_the_class_without_strides(shape: tuple[int, ...]) -> None:
    found, wanted = dense(FLOAT32, shape), TensorSpec(dtype=FLOAT32, shape=shape)
    assert type(found) is TensorSpec
    assert found == wanted
    assert hash(found) == hash(wanted)
    assert (found.is_dense, found.strides, found.offset) == (True, None, 0)
    assert pickle.loads(pickle.dumps(found)) == wanted


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=4).filter(lambda shape: min(shape) < 0).map(tuple))
def test_a_negative_size_is_refused_in_the_same_words(shape: tuple[int, ...]) -> None:
    with refusal(ValueError, "spec.sizes_should_be_or") as quick:
        dense(FLOAT32, shape)
    with refusal(ValueError, "spec.sizes_should_be_or") as slow:
        TensorSpec(dtype=FLOAT32, shape=shape)
    assert str(quick.value) == str(slow.value)


def test_it_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        dense(FLOAT32, (2,)).offset = 3  # type: ignore[misc]
