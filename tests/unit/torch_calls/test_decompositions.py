"""Factors that are defined up to sign, phase or order: other factors pass, and what is no factor is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from texts import refusal, says
from torch_kit import Answering, Change, Outputs, Wrong, case, element, only, tensor, verdict

from optest.spec import Fault, Reason, Status, Tolerance, Verdict
from optest.torch.calls.decompositions import is_rearranged

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.qr is deprecated")]

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
    assert verdict(case(text, matrix)).status is Status.PASSED


def asked(text: str, matrix: Any, change: Change, **more: Any) -> Verdict:
    return verdict(case(text, matrix, **more), Wrong(change))


def test_another_sign_of_both_vectors_is_as_right() -> None:
    def turned(outputs: Outputs) -> Outputs:
        u, s, vh = outputs
        signs = np.array([1, -1, -1, 1, -1], np.float32)
        return [u * signs, s, vh * signs[:, None]]

    found = asked("torch.linalg.svd(input0)", SQUARE, turned)
    assert found.status is Status.PASSED, found.message


@pytest.mark.parametrize(
    ("text", "vectors"),
    [("torch.ops.aten._linalg_eigh.default(input0)", 1), ("torch.ops.aten._linalg_svd.default(input0)", 0)],
)
def test_other_sign_passes_for_aten_calls(text: str, vectors: int) -> None:
    signs = np.array([1, -1, -1, 1, -1], np.float32)

    def turned(outputs: Outputs) -> Outputs:
        outputs[vectors] = outputs[vectors] * signs
        if len(outputs) == 3:
            outputs[2] = outputs[2] * signs[:, None]
        return outputs

    assert asked(text, SQUARE, turned).status is Status.PASSED


def test_another_phase_of_both_vectors_is_as_right() -> None:
    def turned(outputs: Outputs) -> Outputs:
        u, s, vh = outputs
        phases = np.exp(1j * np.arange(4)).astype(np.complex64)
        return [u * phases, s, vh * phases.conj()[:, None]]

    assert asked("torch.linalg.svd(input0)", COMPLEX, turned).status is Status.PASSED


def test_other_sign_of_q_and_r_passes() -> None:
    signs = np.array([-1, 1, -1, 1], np.float32)
    found = asked("torch.linalg.qr(input0)", TALL, lambda given: [given[0] * signs, given[1] * signs[:, None]])
    assert found.status is Status.PASSED, found.message


def test_eigenvalues_in_another_order_are_as_right() -> None:
    assert asked("torch.linalg.eigvals(input0)", SQUARE, lambda given: [given[0][::-1]]).status is Status.PASSED
    found = asked("torch.linalg.eig(input0)", SQUARE, lambda given: [given[0][::-1], given[1][:, ::-1]])
    assert found.status is Status.PASSED, found.message


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


WRONG = [
    ("torch.linalg.svd(input0)", SQUARE, only(2, np.transpose), "A - U·S·Vᴴ is "),
    ("torch.svd(input0)", SQUARE, only(2, np.transpose), "A - U·S·Vᴴ is "),
    ("torch.linalg.svd(input0)", SQUARE, only(1, one_off(1, 1.001)), "A - U·S·Vᴴ is "),
    ("torch.linalg.svd(input0)", SQUARE, only(1, one_off(4, -1.0)), "A - U·S·Vᴴ is "),
    ("torch.linalg.svd(input0)", SQUARE, only(0, lambda u: -u), "A - U·S·Vᴴ is "),
    ("torch.linalg.svd(input0)", SQUARE, skewed, "UᴴU - 1 is "),
    ("torch.linalg.svd(input0)", SQUARE, rolled, "singular values do not descend"),
    ("torch.linalg.svd(input0)", TALL, only(0, lambda u: u[::-1]), "of matrix [0] is "),
    ("torch.svd(input0, compute_uv=False)", SQUARE, only(1, one_off(2, 0.999)), "of singular values the error is "),
    ("torch.svd(input0, compute_uv=False)", SQUARE, only(0, lambda u: u + 1), "expected zeros"),
    ("torch.ops.aten._linalg_svd.default(input0)", SQUARE, only(0, lambda u: -u), "A - U·S·Vᴴ is "),
    (
        "torch.ops.aten._linalg_svd.default(input0, False, False)",
        TALL,
        only(1, one_off(2, 0.999)),
        "of singular values the error of matrix [0] is ",
    ),
    ("torch.ops.aten._linalg_eigh.default(input0)", SQUARE, only(1, np.transpose), "A - V·L·Vᴴ is "),
    (
        "torch.ops.aten._linalg_eigh.default(input0, 'L', False)",
        SQUARE,
        only(0, one_off(0, 1.001)),
        "of eigenvalues the error is ",
    ),
    ("torch.linalg.eigh(input0)", SQUARE, only(0, one_off(0, 1.001)), "A - V·L·Vᴴ is "),
    (
        "torch.linalg.eigh(input0)",
        SQUARE,
        lambda given: [np.roll(given[0], 1), np.roll(given[1], 1, -1)],
        "eigenvalues do not ascend",
    ),
    ("torch.linalg.eigh(input0)", SQUARE, only(1, np.transpose), "A - V·L·Vᴴ is "),
    ("torch.linalg.eig(input0)", SQUARE, only(1, np.conj), "A·V - V·L is "),
    ("torch.linalg.eig(input0)", SQUARE, only(1, lambda v: 2 * v), "the length of a column of V"),
    ("torch.linalg.eigvals(input0)", SQUARE, only(0, one_off(0, 1.001)), "the smallest singular value of A - λ is "),
    (
        "torch.linalg.eigvals(input0)",
        SQUARE,
        only(0, lambda values: np.concatenate((values[:1], values[:-1]))),
        "the eigenvalues are ",
    ),
    ("torch.linalg.qr(input0)", TALL, only(1, one_off(1, 1.001)), "A - Q·R of matrix [0] is "),
    ("torch.linalg.qr(input0)", TALL, lambda given: [2 * given[0], given[1] / 2], "QᴴQ - 1 of matrix [0] is "),
    ("torch.linalg.qr(input0)", SQUARE, only(1, np.transpose), "R has elements below its diagonal"),
    ("torch.linalg.qr(input0, mode='r')", SQUARE, only(1, one_off(3, 1.001)), "RᴴR - AᴴA is "),
    ("torch.geqrf(input0)", TALL, only(1, one_off(0, 0.99)), "A - Q·R of matrix [0] is "),
    ("torch.geqrf(input0)", SQUARE, only(0, np.tril), "A - Q·R is "),
]


@pytest.mark.parametrize(("text", "matrix", "change", "says"), WRONG)
def test_what_is_no_factor_fails_and_says_why(text: str, matrix: Any, change: Change, says: str) -> None:
    found = asked(text, matrix, change)
    assert (found.status, found.reason) == (Status.FAILED, Reason.VALUE), found
    assert says in found.message
    assert "(LAPACK's own tests)" in found.message


@pytest.mark.parametrize("text", ["torch.linalg.svd(input0)", "torch.linalg.qr(input0)", "torch.linalg.eigh(input0)"])
def test_a_wide_tolerance_of_a_plan_excuses_nothing(text: str) -> None:
    found = asked(text, SQUARE, only(1, one_off(1, 1.01)), stated=Tolerance(rtol=10.0, atol=10.0))
    assert found.reason is Reason.VALUE


@pytest.mark.parametrize("output", [0, 1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_elements_that_are_no_numbers_fail(output: int, value: float) -> None:
    found = verdict(case("torch.linalg.svd(input0)", SQUARE), element(0, lambda _: value, output))
    assert found.status is Status.FAILED


def test_zeros_are_the_factors_of_nothing_else() -> None:
    for text in ("torch.linalg.svd(input0)", "torch.linalg.eig(input0)", "torch.linalg.qr(input0)"):
        found = asked(text, SQUARE, lambda given: [np.zeros_like(each) for each in given])
        assert found.status is Status.FAILED


def test_unused_triangle_is_ignored() -> None:
    """eigh of a matrix that is not symmetric: each triangle stands for another matrix."""
    lower, upper = (case(f"torch.linalg.eigh(input0, UPLO='{each}')", SQUARE) for each in "LU")
    assert verdict(lower).status is verdict(upper).status is Status.PASSED

    other = Answering(lambda outputs, _: outputs, lambda matrix: [matrix.T])
    assert verdict(lower, other).reason is Reason.VALUE


def test_gradients_are_not_asked() -> None:
    found = verdict(case("torch.linalg.svd(input0)", SQUARE, grad=True))
    assert found.reason is Reason.UNSUPPORTED
    assert says(found.message, "torch_calls.depends_on_signs_phases")


def test_a_defective_matrix_passes() -> None:
    """One eigenvalue three times with one vector: its eigenvalues move by the cube root of what is rounded."""
    jordan = tensor((3, 3), fill="data", values=[[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]])
    assert verdict(case("torch.linalg.eig(input0)", jordan)).status is Status.PASSED

    def moved(outputs: Outputs) -> Outputs:
        return [outputs[0] + np.array([1e-3, -1e-3, 0], np.complex64)]

    assert asked("torch.linalg.eigvals(input0)", jordan, moved).status is Status.PASSED
    assert asked("torch.linalg.eigvals(input0)", jordan, lambda given: [given[0] * 1.5]).status is Status.FAILED


def test_a_matching_gives_each_another_one() -> None:
    assert is_rearranged(np.array([0.0, 1.0]), np.array([1.1, 0.1]), 0.2)
    assert is_rearranged(np.array([0.0, 0.5]), np.array([0.4, -0.1]), 0.45)
    assert not is_rearranged(np.array([0.0, 0.0]), np.array([0.0, 1.0]), 0.5)


def test_random_matrices_of_many_sizes_pass_by_far() -> None:
    """No alarm on an honest factorisation, in float32 with sizes that samples do not have."""
    for rows, columns in ((1, 1), (40, 3), (3, 40), (64, 64)):
        for text in ("torch.linalg.svd(input0)", "torch.linalg.qr(input0)", "torch.geqrf(input0)"):
            assert verdict(case(text, tensor((rows, columns)))).status is Status.PASSED
    for text in ("torch.linalg.eigh(input0)", "torch.linalg.eig(input0)", "torch.linalg.eigvals(input0)"):
        assert verdict(case(text, tensor((48, 48)))).status is Status.PASSED


def test_fault_names_violated_property_only() -> None:
    """The hook alone, on exact factors and on ones that are not."""
    from optest.torch.calls.decompositions import as_right

    matrix = np.diag([3.0, 2.0]).astype(np.float32)
    eye = np.eye(2, dtype=np.float32)
    call = {"call": "torch.linalg.svd(input0)"}
    masks = as_right([matrix], call, [eye, np.array([3.0, 2.0], np.float32), eye])
    assert all(np.all(mask) for mask in masks)
    with refusal(Fault, "torch_calls.is_but_should_be"):
        as_right([matrix], call, [eye, np.array([3.0, 1.5], np.float32), eye])
    assert torch.linalg.svdvals(torch.from_numpy(matrix)).tolist() == [3.0, 2.0]
