"""What a name in a header says, and what it does not."""

from __future__ import annotations

import pytest

from optest.clib.library.sketch_names import (
    Catalogue,
    assigned,
    attribute_called,
    dtype_called,
    dtype_of_function,
    plain,
)
from optest.operators import operators

CATALOGUE = Catalogue([operators.get(name) for name in operators.names()])


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        ("mine_relu", "relu"),
        ("mine_relu_f32", "relu"),
        ("my_log_softmax_float", "log_softmax"),
        ("rms_norm_bf16", "rms_norm"),
        ("RMSNormForward", "rms_norm"),
        ("log1p_f64", "log1p"),
        ("conv2d_f32", "conv2d"),
        ("vsLog1p", "log1p"),
        ("vdExp", "exp"),
        ("ippsAdd_32f", "add"),
        ("liquid_vectorcf_add", "add"),
        ("cblas_sgemm", "gemm"),
        ("cblas_zgemm", "gemm"),
        ("mine_relu_backward", None),
        ("firfilt_reset", None),
        ("cblas_saxpy", None),
        ("cblas_dsdot", None),
        ("destroy", None),
        ("", None),
    ],
)
def test_a_function_has_the_operator_that_its_name_ends_with(function: str, operator: str | None) -> None:
    found = CATALOGUE.of_function(function)
    assert (found.name if found else None) == operator


def test_a_name_in_c_may_be_an_alias_or_leave_the_rank_out() -> None:
    told = {name: [each.name for each in CATALOGUE.called(name)] for name in ("RMSNorm", "Ones", "Conv", "Twist")}
    assert told == {"RMSNorm": ["rms_norm"], "Ones": ["ones_like"], "Conv": ["conv1d", "conv2d", "conv3d"], "Twist": []}


@pytest.mark.parametrize(
    ("function", "is_blas", "name"),
    [
        ("cblas_cgemm", True, "complex64"),
        ("cblas_cgemm", False, ""),
        ("mine_add_bf16", False, "bfloat16"),
        ("ippsAdd_32f", False, "float32"),
        ("mine_half", False, "float16"),
        ("add", False, ""),
    ],
)
def test_the_dtype_that_a_function_names(function: str, is_blas: bool, name: str) -> None:
    assert dtype_of_function(function, is_blas=is_blas) == name


def test_words_for_dtypes() -> None:
    told = ("F16", "BF16", "FLOAT", "DOUBLE", "HALF", "I8", "U64", "F8", "C64", "32f", "INVALID", "COUNT")
    assert [dtype_called(each) for each in told] == [
        *("float16", "bfloat16", "float32", "float64", "float16", "int8", "uint64", "float8_e4m3fn"),
        *("complex64", "float32", "", ""),
    ]


def test_an_arguments_name_without_what_says_nothing() -> None:
    given = ("min_val_desc", "_a", "a_desc", "p_out", "sin_table_desc", "desc", "pos_ids_desc")
    assert [plain(each) for each in given] == ["min", "a", "a", "out", "sin", "desc", "posids"]


@pytest.mark.parametrize(
    ("in_c", "wanted", "names", "by_order"),
    [
        (["a", "b"], ["input", "other"], ("input", "other"), ()),
        (["x"], ["input"], ("input",), ()),
        (["gamma", "x"], ["input", "weight"], ("weight", "input"), ()),
        (["x", "w", "bias"], ["input", "weight", "bias"], ("input", "weight", "bias"), ()),
        (["a", "b"], ["gate", "up"], ("gate", "up"), ("a", "b")),
        (["u", "v"], ["input", "other"], ("input", "other"), ("u", "v")),
        (["up", "g"], ["gate", "up"], ("up", "gate"), ("g",)),
    ],
)
def test_tensors_are_told_by_their_names_and_else_by_their_order(
    in_c: list[str], wanted: list[str], names: tuple[str, ...], by_order: tuple[str, ...]
) -> None:
    found = assigned(in_c, wanted)
    assert found is not None
    assert (found.names, found.by_order) == (names, by_order)


def test_more_tensors_than_the_operator_has_are_none_of_it() -> None:
    assert assigned(["a", "b"], ["input"]) is None


def test_attributes_by_name_alias_and_usual_word() -> None:
    norm, softmax = operators.get("rms_norm"), operators.get("softmax")
    assert attribute_called(norm, "epsilon") == attribute_called(norm, "eps") == "eps"
    assert attribute_called(softmax, "axis") == "dim"
    assert attribute_called(softmax, "n") == ""
