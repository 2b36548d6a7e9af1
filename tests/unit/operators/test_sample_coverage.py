"""Coverage of layouts, sizes and attributes: no property of an operator depends on a single case."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest
from sample_questions import questions
from sample_questions import widened_as_kernels_do as single

from optest.api import bootstrap
from optest.api.checking import sample_cases
from optest.operators import operators
from optest.operators.catalogue import DESCRIPTORS
from optest.spec import REQUIRED, TensorSpec, TestCase, contiguous_strides

NAMES = sorted(each.name for each in DESCRIPTORS if each.samples is not None)
# Their inputs have one dimension.
OF_VECTORS = {"dot", "random_sample"}
MATRICES = ("gaps", "padded rows", "transposed", "stride 0", "backwards", "offset")
NO_REACH = ("column", "stride 0 where the size is 1", "odd stride where the size is 1", "nothing, strides of 0")
# They refuse a column, and draws without elements.
WITHOUT = {
    ("causal_softmax", "column"), ("topkrouter", "column"), ("rotary_embedding", "column"),
    ("random_sample", "nothing, strides of 0"),
}  # fmt: skip
FAMILIES = {
    "binary": ("add", "mul", "eq", "lt", "logical_and", "bitwise_and"),
    "unary": ("neg", "abs", "relu"),
    "selection": ("where", "maximum"),
    "movement": ("clone", "transpose", "broadcast_to", "tile", "flip", "concat", "split", "slice"),
    "reduction": ("sum", "amax"),
}
# Blocks in the second and third dimension of a grid.
ROWS = 65_535


@cache
def cases_of(name: str) -> tuple[TestCase, ...]:
    bootstrap()
    return tuple(case for case in sample_cases(name) if case.expects_error is None)


def layouts(spec: TensorSpec) -> Iterator[str]:
    """Yield the kinds of layout of a tensor; none if it is dense, even in dimensions of size 1."""
    strides = spec.strides
    if strides is None:
        return
    if spec.elements == 0:
        if set(strides) == {0}:
            yield "nothing, strides of 0"
        return
    reaching = [stride for size, stride in zip(spec.shape, strides, strict=True) if size > 1]
    for size, stride, dense in zip(spec.shape, strides, contiguous_strides(spec.shape), strict=True):
        if size == 1 and stride != dense:
            yield "stride 0 where the size is 1" if stride == 0 else "odd stride where the size is 1"
    if spec.rank > 1 and spec.shape[-1] == 1 and reaching and reaching[-1] > 1:
        yield "column"
    elif reaching and min(reaching) > 1:
        yield "gaps"
    yield from of_matrices(reaching, spec)


def of_matrices(reaching: list[int], spec: TensorSpec) -> Iterator[str]:
    if spec.offset and min(reaching, default=0) >= 0:
        yield "offset"
    if min(reaching, default=1) < 0:
        yield "backwards"
    elif 0 in reaching:
        yield "stride 0"
    elif reaching != sorted(reaching, reverse=True):
        yield "transposed"
    elif not spec.is_dense and reaching[-1] == 1 and not spec.offset:
        yield "padded rows"


@cache
def table(name: str) -> Mapping[str, list[tuple[tuple[int, ...], str]]]:
    """Return (shape, dtype) of the inputs that have each kind of layout."""
    found = defaultdict(list)
    for case in cases_of(name):
        for argument in case.inputs:
            for kind in set(layouts(argument.spec)):
                found[kind].append((argument.spec.shape, argument.spec.dtype.name))
    return found


@pytest.mark.heavy
def test_layouts_occur_in_several_shapes_and_dtypes() -> None:
    thin = {
        (name, kind): table(name)[kind]
        for name in NAMES
        for kind in MATRICES
        if any(len({each[place] for each in table(name)[kind]}) < 2 for place in (0, 1))
    }
    assert {each: found for each, found in thin.items() if each[0] not in OF_VECTORS} == {}


@pytest.mark.heavy
def test_strides_of_size_one_occur_twice() -> None:
    thin = {(name, kind) for name in NAMES for kind in NO_REACH if len(set(table(name)[kind])) < 2}
    assert {each for each in thin if each[0] not in OF_VECTORS} <= WITHOUT


@pytest.mark.heavy
def test_sizes_cover_vectors_and_blocks() -> None:
    for name in NAMES:
        sizes = {size for case in cases_of(name) for each in case.inputs for size in each.spec.shape}
        assert sizes >= {1}, name
        assert any(16 < size < 128 and size % 8 for size in sizes), name
        assert max(each.spec.elements for case in cases_of(name) for each in case.inputs) > 1 << 16, name


@pytest.mark.parametrize("family", FAMILIES)
def test_families_have_calls_beyond_a_million(family: str) -> None:
    for name in FAMILIES[family]:
        large = [
            spec
            for case in cases_of(name)
            for spec in (*(each.spec for each in case.inputs), *case.outputs)
            if spec.elements > 1 << 20
        ]
        assert large, name
        assert any(spec.shape[0] > ROWS or spec.rank == 1 for spec in large), name


OF_FULL_CHECKS = {("cumsum", "exclusive"), ("cumsum", "reverse")}


def test_attributes_differ_from_default_in_several_cases() -> None:
    thin = {
        (name, attribute.name)
        for name in NAMES
        for attribute in operators.get(name).attributes
        if attribute.default is not REQUIRED
        and sum(case.attributes.get(attribute.name) != attribute.default for case in cases_of(name)) < 2
    }
    assert thin <= OF_FULL_CHECKS


# Too many operations or results for a check; draws from one distribution; vectors only.
_NOT_LARGE = {"scaled_dot_product_attention", "attention", "paged_attention", "dequantize_awq", "random_sample", "dot"}
_NOT_LARGE |= {"paged_prefill_attention", "varlen_attention", "grouped_matmul"}
_NOT_LARGE |= {"adamw", "causal_conv1d_update", "selective_scan", "dequantize_gptq"}
# Their ranks are fixed; broadcast_to declares its output shape.
_NOT_SIX = {"conv1d", "conv2d", "conv3d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d"}
_NOT_SIX |= {"bmm", "gemm", "dot", "random_sample", "broadcast_to", "topksoftmax", "topkrouter"}
_NOT_SIX |= {"attention", "paged_attention", "paged_prefill_attention", "paged_caching", "dequantize_awq"}
_NOT_SIX |= {"varlen_attention", "merge_attention_states", "rotary_embedding", "grouped_matmul", "moe_combine"}
_NOT_SIX |= {"top_k_top_p_mask", "top_k_top_p_sampling"}
_NOT_SIX |= {"causal_conv1d", "causal_conv1d_update", "selective_scan", "embedding_bag"}
_NOT_SIX |= {"dequantize_gptq", "gptq_gemm", "awq_gemm", "fp8_block_scaled_matmul"}


def test_large_calls_and_six_dimensions() -> None:
    shapes_of = {name: {each.spec.shape for case in cases_of(name) for each in case.inputs} for name in NAMES}
    large = {
        name
        for name, shapes in shapes_of.items()
        if any(prod(shape) > 1 << 20 and prod(shape[:-1]) > ROWS for shape in shapes)
    }
    six = {name for name, shapes in shapes_of.items() if any(len(shape) > 5 for shape in shapes)}
    assert (set(NAMES) - large, set(NAMES) - six) == (_NOT_LARGE, _NOT_SIX)


Array = np.ndarray[Any, Any]
Reduce = Callable[[Array, int], Array]


def shares(x: Array, dim: int) -> Array:
    exponentials = np.exp(x - x.max(dim, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(dim, keepdims=True))


def log_of_sum(x: Array, dim: int) -> Array:
    largest = x.max(dim, keepdims=True)
    return np.asarray(np.log(np.exp(x - largest).sum(dim)) + largest.squeeze(dim))


PADDED: dict[str, Reduce] = {
    "softmax": shares,
    "log_softmax": lambda x, dim: np.log(shares(x, dim)),
    "logsumexp": log_of_sum,
    "amax": np.max,
    "argmin": np.argmin,
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_with_zeros_fails_in_every_size(name: str) -> None:
    # A masked load without its mask value: zeros follow each row up to a power of two.
    seen = 0
    for question in questions(name):
        if not {"tier:smoke", "set:sizes"} & set(question.case.tags) or question.case.attributes["dim"] is None:
            continue
        (argument,), (dim,) = question.case.inputs, np.atleast_1d(question.case.attributes["dim"])
        size = argument.spec.shape[dim] if argument.spec.elements and argument.spec.dtype.is_float else 0
        if size & (size - 1):  # others need no padding
            wider = [(0, 0)] * argument.spec.rank
            wider[dim] = (0, (1 << size.bit_length()) - size)

            def kernel(inputs: Sequence[Any], _: object, wider: Any = wider, dim: int = dim, size: int = size) -> Array:
                reduced = PADDED[name](np.pad(single(inputs[0]), wider), dim)
                return reduced[..., :size] if reduced.ndim == len(wider) else reduced

            assert not question.is_answered(kernel), question.case.name
            seen += 1
    assert seen > 20
