"""Factors of a matrix that are defined up to sign, phase or order alone, judged by what makes them factors of it.

What differs from the reference's is as right if the product is the matrix, what should be orthogonal is, what is sorted
is sorted, and what is unique (singular values, eigenvalues of a Hermitian matrix) is right. How far each may be off is
what LAPACK's own tests of these factorisations allow, in norms that are the largest sum over a column: a threshold
times the size of the matrix times ε of the dtype, times the norm of the matrix where there is one (TESTING/svd.in,
sep.in, dtest.in, ded.in of Reference LAPACK; Users' Guide, 3rd edition, 4.7 to 4.9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from optest.numerics import Array, dtype_of, widen
from optest.spec import ErrorBudget, Fault, Reason
from optest.spec.calls import Call
from optest.torch.calls.call import torch_call
from optest.torch.fact_sheet import facts_of
from optest.torch.facts import FactorKind


def budgets(_: Sequence[Any], attributes: Mapping[str, Any]) -> list[ErrorBudget]:
    """No error at all of any factor: what differs is for :func:`as_right` to look at.

    Raises:
        Fault: UNSUPPORTED for gradients, which follow the signs that an implementation has chosen.
    """
    call = torch_call(attributes["call"]).call
    if attributes.get("grad"):
        message = f"the gradient of {call.function} depends on signs, phases or an order that nobody prescribes"
        raise Fault(Reason.UNSUPPORTED, message)
    return [ErrorBudget(0.0)] * _kind_of(call).outputs


def as_right(inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> list[Any]:
    """Masks for outputs that are factors of the matrix, all True; None where elements are not finite.

    Raises:
        Fault: VALUE if they are no factors of it, which says what is wrong with them.
    """
    call = torch_call(attributes["call"]).call
    kind = _kind_of(call)
    array = np.asarray(inputs[call.tensors()[0]])
    matrix, outputs = widen(array), [widen(np.asarray(each)) for each in actual]
    if len(outputs) != kind.outputs or not all(np.isfinite(each).all() for each in (matrix, *outputs)):
        return [None] * len(actual)
    epsilon = 2.0 * dtype_of(array.dtype).unit_roundoff
    for fault in _FAMILIES[kind.family](_Factorisation(matrix, outputs, epsilon, kind, call)):
        raise Fault(Reason.VALUE, f"{fault}; rule: {kind.formula}")
    return [np.ones(np.shape(each), np.bool_) for each in actual]


def _kind_of(call: Call) -> FactorKind:
    kind = facts_of(call.function).factors
    if kind is None:
        raise LookupError(f"{call.function} is no factorisation")
    return kind


class _Factorisation(NamedTuple):
    matrix: Array
    outputs: Sequence[Array]
    epsilon: float
    kind: FactorKind
    call: Call

    @property
    def relative(self) -> float:
        """threshold·max(m, n)·ε."""
        return float(self.kind.threshold * max(1, *self.matrix.shape[-2:]) * self.epsilon)


_Faults = Iterator[str]


def _svd(made: _Factorisation) -> _Faults:
    """``torch.svd`` yields V where ``torch.linalg.svd`` yields its adjoint.

    Not asked for U and V, ``torch.svd`` yields zeros, and what stands below ``torch.linalg.svd`` nothing.
    """
    left, values, right = made.outputs
    are_computed = made.call.argument(2, "compute_uv") is not False
    if made.kind.yields_v and not are_computed:
        if left.any() or right.any():
            yield "U and V are not asked for, expected zeros"
    elif are_computed:
        transposed = _adjoint(right) if made.kind.yields_v else right
        rank = values.shape[-1]
        yield from _of_product(made, "U·S·Vᴴ", (left[..., :rank] * values[..., None, :]) @ transposed[..., :rank, :])
        yield from _of_orthogonal(made, "U", left)
        yield from _of_orthogonal(made, "V", _adjoint(transposed))
    if (values < 0).any():
        yield "a singular value is negative"
    if (np.diff(values, axis=-1) > 0).any():
        yield "singular values do not descend"
    yield from _of_values(made, "singular values", values, np.linalg.svd(made.matrix, compute_uv=False))


def _eigh(made: _Factorisation) -> _Faults:
    values, vectors = made.outputs
    is_lower = made.call.argument(1, "UPLO") in (None, "L", "l")
    lower = np.tril(made.matrix, -1) if is_lower else _adjoint(np.triu(made.matrix, 1))
    diagonal = np.real(np.diagonal(made.matrix, axis1=-2, axis2=-1))
    hermitian = lower + _adjoint(lower) + diagonal[..., None, :] * np.eye(made.matrix.shape[-1])
    made = made._replace(matrix=hermitian)
    if made.call.argument(2, "compute_v") is not False:
        yield from _of_product(made, "V·L·Vᴴ", (vectors * values[..., None, :]) @ _adjoint(vectors))
        yield from _of_orthogonal(made, "V", vectors)
    if (np.diff(values, axis=-1) < 0).any():
        yield "eigenvalues do not ascend"
    yield from _of_values(made, "eigenvalues", values, np.linalg.eigvalsh(hermitian))


def _eig(made: _Factorisation) -> _Faults:
    values, vectors = made.outputs
    yield from _beyond(
        "A·V - V·L",
        _norm(made.matrix @ vectors - vectors * values[..., None, :]),
        made.relative * _norm(made.matrix),
    )
    lengths = np.abs(np.linalg.norm(vectors, axis=-2) - 1.0).max(axis=-1, initial=0.0)
    yield from _beyond("the length of a column of V, less 1,", lengths, np.full_like(lengths, made.relative))
    yield from _eigvals(made._replace(outputs=(values,)))


def _eigvals(made: _Factorisation) -> _Faults:
    (values,) = made.outputs
    allowed = made.relative * _norm(made.matrix)
    farthest = singularity(made.matrix, values).max(axis=-1, initial=0.0)
    yield from _beyond("the smallest singular value of A - λ", farthest, allowed)
    size = made.matrix.shape[-1]
    matrices, found = made.matrix.reshape(-1, size, size), values.reshape(-1, size)
    for matrix, got, error in zip(matrices, found, allowed.reshape(-1), strict=True):
        expected = np.linalg.eigvals(matrix)
        far = reach(matrix, expected, float(error))
        if not is_rearranged(got, expected, far):
            should_be = f"{_shown(expected)} in some order, each within {far:.3g}"
            yield f"the eigenvalues are {_shown(got)}, expected {should_be}"


def _qr(made: _Factorisation) -> _Faults:
    orthogonal, upper = made.outputs
    if np.tril(upper, -1).any():
        yield "R has elements below its diagonal"
    if made.call.argument(1, "mode") == "r":
        gram = _norm(_adjoint(upper) @ upper - _adjoint(made.matrix) @ made.matrix)
        size = np.maximum(_norm(made.matrix), _norm(_adjoint(made.matrix)))
        yield from _beyond("RᴴR - AᴴA", gram, 2.0 * made.relative * _norm(made.matrix) * size)
    else:
        yield from _of_product(made, "Q·R", orthogonal @ upper)
        yield from _of_orthogonal(made, "Q", orthogonal)


def _geqrf(made: _Factorisation) -> _Faults:
    """Reflectors stand below the diagonal of R; torch multiplies them, in float64."""
    packed, factors = made.outputs
    rank = min(packed.shape[-2:])
    reflectors = np.ascontiguousarray(packed[..., :rank])
    product = torch.linalg.householder_product(torch.from_numpy(reflectors), torch.from_numpy(np.array(factors)))
    yield from _qr(made._replace(outputs=(product.numpy(), np.triu(packed[..., :rank, :]))))


_FAMILIES: Mapping[str, Callable[[_Factorisation], _Faults]] = {
    "svd": _svd,
    "eigh": _eigh,
    "eig": _eig,
    "eigvals": _eigvals,
    "qr": _qr,
    "geqrf": _geqrf,
}


def _of_product(made: _Factorisation, name: str, product: Array) -> _Faults:
    yield from _beyond(f"A - {name}", _norm(made.matrix - product), made.relative * _norm(made.matrix))


def _of_orthogonal(made: _Factorisation, name: str, factor: Array) -> _Faults:
    measured = _norm(_adjoint(factor) @ factor - np.eye(factor.shape[-1]))
    yield from _beyond(f"{name}ᴴ{name} - 1", measured, np.full_like(measured, made.relative))


def _of_values(made: _Factorisation, name: str, got: Array, expected: Array) -> _Faults:
    """Weyl: what is sorted moves by no more than the spectral norm of the error, which p(m, n)·ε·|A|₂ bounds."""
    allowed = made.relative * np.abs(expected).max(axis=-1, initial=0.0)
    yield from _beyond(f"of {name} the error", np.abs(got - expected).max(axis=-1, initial=0.0), allowed)


def _beyond(what: str, measured: Array, allowed: Array) -> _Faults:
    """A fault if one of the matrices has more than it may have; says which of them."""
    wrong = ~(measured <= allowed)
    if wrong.any():
        place = tuple(int(each[0]) for each in np.nonzero(np.atleast_1d(wrong)))
        one, most = np.atleast_1d(measured)[place], np.atleast_1d(allowed)[place]
        where = f" of matrix {list(place)}" if np.ndim(measured) else ""
        yield f"{what}{where} is {one:.3g}, expected at most {most:.3g}"


def _norm(matrix: Array) -> Array:
    """The largest sum of magnitudes over a column of each matrix."""
    return np.asarray(np.abs(matrix).sum(axis=-2).max(axis=-1, initial=0.0))


def _adjoint(matrix: Array) -> Array:
    return np.conj(np.swapaxes(matrix, -1, -2))


def _shown(values: Array) -> str:
    return ", ".join(f"{each:.6g}" for each in values[:8]) + (" …" if len(values) > 8 else "")


# Eigenvalues of any square matrix against those that float64 finds, in whatever order they come.
#
# An algorithm that is stable gives the eigenvalues of A + E with a small E. So λ is one if A - λ is singular but for
# |E|. That each stands for another one of A's is a matching: within κ(V)·|E| of it (Bauer and Fike: Golub and Van Loan,
# Matrix Computations, 4th edition, theorem 7.2.2) where these discs are apart, (2n - 1) times as far where they are
# not; or within 4·(|A| + |A + E|)^(1 - 1/n)·|E|^(1/n) (Bhatia, Elsner and Krause, Linear Algebra Appl. 142, 1990),
# which holds for defective matrices, too.


def singularity(matrix: Array, values: Array) -> Array:
    """The smallest singular value of A - λ for each λ; shaped like ``values``, n for one matrix n x n."""
    shifted = matrix[..., None, :, :] - values[..., None, None] * np.eye(matrix.shape[-1])
    return np.asarray(np.linalg.svd(shifted, compute_uv=False)[..., -1])


def reach(matrix: Array, values: Array, error: float) -> float:
    """How far an eigenvalue of one matrix may be from the one of ``values`` that it stands for.

    ``error`` is the spectral norm of E, ``values`` are the eigenvalues that float64 finds.
    """
    count = matrix.shape[-1]
    if not error:
        return 0.0
    size = float(np.linalg.norm(matrix, 2))
    general = 4.0 * (2.0 * size + error) ** (1.0 - 1.0 / count) * error ** (1.0 / count)
    condition = float(np.linalg.cond(np.linalg.eig(matrix)[1]))
    near = condition * error
    gaps = np.abs(values[:, None] - values[None, :])[~np.eye(count, dtype=bool)]
    if gaps.size and not gaps.min() > 2.0 * near:
        near *= 2 * count - 1
    return float(np.fmin(near, general))


def is_rearranged(got: Array, expected: Array, reach: float) -> bool:
    """Whether each of ``got`` can be given another one of ``wanted`` within ``reach``: a matching of all."""
    near = np.abs(got[:, None] - expected[None, :]) <= reach
    partner = [-1] * len(expected)
    return all(_placed(row, near, partner, set()) for row in range(len(got)))


def _placed(row: int, near: Array, partner: list[int], tried: set[int]) -> bool:
    for column in np.flatnonzero(near[row]).tolist():
        if column not in tried:
            tried.add(column)
            if partner[column] < 0 or _placed(partner[column], near, partner, tried):
                partner[column] = row
                return True
    return False
