"""Factors that are defined up to sign, phase or order: other factors pass, and what is no factor is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch_kit
from texts import refusal, says
from torch_kit import Answering, Change, Outputs, Wrong, case, element, fails, only, passes, separates, tensor, verdict

from optest.spec import Fault, Reason, Status, Tolerance
from optest.torch.calls.decompositions import as_right, is_rearranged

pytestmark = pytest.mark.filterwarnings("ignore:torch.qr is deprecated")

SQUARE, TALL, WIDE, COMPLEX = tensor((5, 5)), tensor((2, 6, 4)), tensor((3, 7)), tensor((4, 4), "complex64")

HONEST = [
    ("torch.linalg.svd(input0, full_matrices=True)", TALL),
    ("torch.linalg.svd(input0, full_matrices=False)", WIDE),
    ("torch.linalg.svd(input0)", COMPLEX),
    ("torch.svd(input0)", TALL),
    ("torch.svd(input0, some=False)", WIDE),
    ("torch.svd(input0, compute_uv=False)", SQUARE),
    ("torch.Tensor.svd(input0)", COMPLEX),
    ("torch.ops.aten.linalg_svd.default(input0)", SQUARE),
    ("torch.ops.aten._linalg_svd.default(input0)", TALL),
    ("torch.ops.aten._linalg_svd.default(input0, True)", WIDE),
    ("torch.ops.aten._linalg_svd.default(input0, False, False)", TALL),
    ("torch.ops.aten._linalg_eigh.default(input0)", SQUARE),
    ("torch.ops.aten._linalg_eigh.default(input0, 'U', compute_v=True)", COMPLEX),
    ("torch.ops.aten._linalg_eigh.default(input0, 'L', False)", SQUARE),
    ("torch.ops.aten._linalg_eigvals.default(input0)", SQUARE),
    ("torch.linalg.eigh(input0)", SQUARE),
    ("torch.linalg.eigh(input0, UPLO='U')", COMPLEX),
    ("torch.linalg.eig(input0)", SQUARE),
    ("torch.linalg.eig(input0)", COMPLEX),
    ("torch.linalg.eigvals(input0)", SQUARE),
    ("torch.linalg.qr(input0)", TALL),
    ("torch.linalg.qr(input0, mode='complete')", TALL),
    ("torch.linalg.qr(input0, mode='r')", COMPLEX),
    ("torch.qr(input0)", WIDE),
    ("torch.geqrf(input0)", TALL),
    ("torch.geqrf(input0)", WIDE),
    ("torch.geqrf(input0)", COMPLEX),
]


@pytest.mark.parametrize(("text", "matrix"), HONEST)
def test_torch_passes(text: str, matrix: Any) -> None:
    passes(case(text, matrix))


PHASES = np.exp(1j * np.arange(4)).astype(np.complex64)


def scaled(outputs: Outputs, columns: int, rows: int | None, factors: Any) -> Outputs:
    outputs[columns] = outputs[columns] * factors
    if rows is not None:
        outputs[rows] = outputs[rows] * factors.conj()[:, None]
    return outputs


SIGNS = np.array([1, -1, -1, 1, -1], np.float32)
AS_RIGHT: list[tuple[str, Any, Change]] = [
    ("torch.linalg.svd(input0)", SQUARE, lambda outputs: scaled(outputs, 0, 2, SIGNS)),
    ("torch.ops.aten._linalg_svd.default(input0)", SQUARE, lambda outputs: scaled(outputs, 0, 2, SIGNS)),
    ("torch.ops.aten._linalg_eigh.default(input0)", SQUARE, lambda outputs: scaled(outputs, 1, None, SIGNS)),
    ("torch.linalg.svd(input0)", COMPLEX, lambda outputs: scaled(outputs, 0, 2, PHASES)),
    ("torch.linalg.qr(input0)", TALL, lambda outputs: scaled(outputs, 0, 1, -SIGNS[:4])),
    ("torch.linalg.eigvals(input0)", SQUARE, lambda outputs: [outputs[0][::-1]]),
    ("torch.linalg.eig(input0)", SQUARE, lambda outputs: [outputs[0][::-1], outputs[1][:, ::-1]]),
]
"""Another sign or phase of the vectors of both factors, and eigenvalues in another order."""


@pytest.mark.parametrize(("text", "matrix", "change"), AS_RIGHT)
def test_equivalent_factors_pass(text: str, matrix: Any, change: Change) -> None:
    passes(case(text, matrix), Wrong(change))


def one_off(place: int, factor: float) -> Any:
    def changed(values: Any) -> Any:
        values[..., place] *= factor
        return values

    return changed


def rolled(outputs: Outputs) -> Outputs:
    """Singular values and their vectors in another order: still a product, and orthogonal."""
    u, s, vh = outputs
    return [np.roll(u, 1, -1), np.roll(s, 1), np.roll(vh, 1, -2)]


def skewed(outputs: Outputs) -> Outputs:
    """The product stays, but U and V have columns of other lengths."""
    u, s, vh = outputs
    return [u * np.float32(2), s, vh / np.float32(2)]


def rolled_pair(outputs: Outputs) -> Outputs:
    return [np.roll(outputs[0], 1), np.roll(outputs[1], 1, -1)]


def first_twice(values: Any) -> Any:
    return np.concatenate((values[:1], values[:-1]))


ATEN_SVD, ATEN_EIGH = "torch.ops.aten._linalg_svd.default", "torch.ops.aten._linalg_eigh.default"
OF_SINGULAR = "of singular values the error"
WRONG = [
    ("torch.linalg.svd(input0)", SQUARE, only(2, np.transpose), "A - U·S·Vᴴ is "),
    ("torch.svd(input0)", SQUARE, only(2, np.transpose), "A - U·S·Vᴴ is "),
    ("torch.linalg.svd(input0)", SQUARE, only(1, one_off(1, 1.001)), "A - U·S·Vᴴ is "),
    ("torch.linalg.svd(input0)", SQUARE, only(1, one_off(4, -1.0)), "A - U·S·Vᴴ is "),
    ("torch.linalg.svd(input0)", SQUARE, only(0, lambda u: -u), "A - U·S·Vᴴ is "),
    ("torch.linalg.svd(input0)", SQUARE, skewed, "UᴴU - 1 is "),
    ("torch.linalg.svd(input0)", SQUARE, rolled, "singular values do not descend"),
    ("torch.linalg.svd(input0)", TALL, only(0, lambda u: u[::-1]), "of matrix [0] is "),
    ("torch.svd(input0, compute_uv=False)", SQUARE, only(1, one_off(2, 0.999)), f"{OF_SINGULAR} is "),
    ("torch.svd(input0, compute_uv=False)", SQUARE, only(0, lambda u: u + 1), "expected zeros"),
    ("torch.ops.aten._linalg_svd.default(input0)", SQUARE, only(0, lambda u: -u), "A - U·S·Vᴴ is "),
    (f"{ATEN_SVD}(input0, False, False)", TALL, only(1, one_off(2, 0.999)), f"{OF_SINGULAR} of matrix [0] is "),
    ("torch.ops.aten._linalg_eigh.default(input0)", SQUARE, only(1, np.transpose), "A - V·L·Vᴴ is "),
    (f"{ATEN_EIGH}(input0, 'L', False)", SQUARE, only(0, one_off(0, 1.001)), "of eigenvalues the error is "),
    ("torch.linalg.eigh(input0)", SQUARE, only(0, one_off(0, 1.001)), "A - V·L·Vᴴ is "),
    ("torch.linalg.eigh(input0)", SQUARE, rolled_pair, "eigenvalues do not ascend"),
    ("torch.linalg.eigh(input0)", SQUARE, only(1, np.transpose), "A - V·L·Vᴴ is "),
    ("torch.linalg.eig(input0)", SQUARE, only(1, np.conj), "A·V - V·L is "),
    ("torch.linalg.eig(input0)", SQUARE, only(1, lambda v: 2 * v), "the length of a column of V"),
    ("torch.linalg.eigvals(input0)", SQUARE, only(0, one_off(0, 1.001)), "the smallest singular value of A - λ is "),
    ("torch.linalg.eigvals(input0)", SQUARE, only(0, first_twice), "the eigenvalues are "),
    ("torch.linalg.qr(input0)", TALL, only(1, one_off(1, 1.001)), "A - Q·R of matrix [0] is "),
    ("torch.linalg.qr(input0)", TALL, lambda given: [2 * given[0], given[1] / 2], "QᴴQ - 1 of matrix [0] is "),
    ("torch.linalg.qr(input0)", SQUARE, only(1, np.transpose), "R has elements below its diagonal"),
    ("torch.linalg.qr(input0, mode='r')", SQUARE, only(1, one_off(3, 1.001)), "RᴴR - AᴴA is "),
    ("torch.geqrf(input0)", TALL, only(1, one_off(0, 0.99)), "A - Q·R of matrix [0] is "),
    ("torch.geqrf(input0)", SQUARE, only(0, np.tril), "A - Q·R is "),
]


@pytest.mark.parametrize(("text", "matrix", "change", "words"), WRONG)
def test_what_is_no_factor_fails_and_says_why(text: str, matrix: Any, change: Change, words: str) -> None:
    found = fails(case(text, matrix), Wrong(change), words=words)
    assert found.status is Status.FAILED
    assert "(LAPACK's own tests)" in found.message


@pytest.mark.parametrize("text", ["torch.linalg.svd(input0)", "torch.linalg.qr(input0)", "torch.linalg.eigh(input0)"])
def test_a_wide_tolerance_of_a_plan_excuses_nothing(text: str) -> None:
    fails(case(text, SQUARE, stated=Tolerance(rtol=10.0, atol=10.0)), Wrong(only(1, one_off(1, 1.01))))


@pytest.mark.parametrize("output", [0, 1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_elements_that_are_no_numbers_fail(output: int, value: float) -> None:
    found = verdict(case("torch.linalg.svd(input0)", SQUARE), element(0, lambda _: value, output))
    assert found.status is Status.FAILED


@pytest.mark.parametrize("text", ["torch.linalg.svd(input0)", "torch.linalg.eig(input0)", "torch.linalg.qr(input0)"])
def test_zeros_are_the_factors_of_nothing_else(text: str) -> None:
    assert verdict(case(text, SQUARE), torch_kit.zeros()).status is Status.FAILED


def test_unused_triangle_is_ignored() -> None:
    """eigh of a matrix that is not symmetric: each triangle stands for another matrix."""
    passes(case("torch.linalg.eigh(input0, UPLO='U')", SQUARE))
    other = Answering(lambda outputs, _: outputs, lambda matrix: [matrix.T])
    separates(case("torch.linalg.eigh(input0, UPLO='L')", SQUARE), other)


def test_gradients_are_not_asked() -> None:
    found = fails(case("torch.linalg.svd(input0)", SQUARE, grad=True), reason=Reason.UNSUPPORTED)
    assert says(found.message, "torch_calls.depends_on_signs_phases")


def test_a_defective_matrix_passes() -> None:
    """One eigenvalue three times with one vector: its eigenvalues move by the cube root of what is rounded."""
    jordan = tensor((3, 3), fill="data", values=[[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]])
    values = case("torch.linalg.eigvals(input0)", jordan)
    passes(case("torch.linalg.eig(input0)", jordan))
    passes(values, Wrong(lambda outputs: [outputs[0] + np.array([1e-3, -1e-3, 0], np.complex64)]))
    fails(values, Wrong(lambda outputs: [outputs[0] * 1.5]))


def test_a_matching_gives_each_another_one() -> None:
    assert is_rearranged(np.array([0.0, 1.0]), np.array([1.1, 0.1]), 0.2)
    assert is_rearranged(np.array([0.0, 0.5]), np.array([0.4, -0.1]), 0.45)
    assert not is_rearranged(np.array([0.0, 0.0]), np.array([0.0, 1.0]), 0.5)


def test_random_matrices_of_many_sizes_pass_by_far() -> None:
    """No alarm on an honest factorisation, in float32 with sizes that samples do not have."""
    for shape in ((1, 1), (40, 3), (3, 40), (64, 64)):
        for text in ("torch.linalg.svd(input0)", "torch.linalg.qr(input0)", "torch.geqrf(input0)"):
            passes(case(text, tensor(shape)))
    for text in ("torch.linalg.eigh(input0)", "torch.linalg.eig(input0)", "torch.linalg.eigvals(input0)"):
        passes(case(text, tensor((48, 48))))


def test_fault_names_violated_property_only() -> None:
    """The hook alone, on exact factors and on ones that are not."""
    matrix = np.diag([3.0, 2.0]).astype(np.float32)
    eye = np.eye(2, dtype=np.float32)
    call = {"call": "torch.linalg.svd(input0)"}
    masks = as_right([matrix], call, [eye, np.array([3.0, 2.0], np.float32), eye])
    assert all(np.all(mask) for mask in masks)
    with refusal(Fault, "torch_calls.is_but_should_be"):
        as_right([matrix], call, [eye, np.array([3.0, 1.5], np.float32), eye])
    assert torch.linalg.svdvals(torch.from_numpy(matrix)).tolist() == [3.0, 2.0]
