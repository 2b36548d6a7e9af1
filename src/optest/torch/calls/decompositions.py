"""Check matrix factors that are unique only up to sign, phase or order, by the properties that define them.

Factors that differ from the reference's are correct if their product is the matrix, orthogonal factors are orthogonal,
sorted values are sorted, and unique values (singular values, eigenvalues of a Hermitian matrix) are right. The bounds
are those of LAPACK's own tests, in 1-norms: a threshold times the size of the matrix times ε of the dtype, times the
norm of the matrix if there is one (TESTING/svd.in, sep.in, dtest.in, ded.in of Reference LAPACK; Users' Guide, 3rd
edition, 4.7 to 4.9).
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
    """Return a zero error budget for each factor, so that :func:`as_right` checks all factors that differ.

    Raises:
        Fault: UNSUPPORTED for gradients, which depend on the signs that an implementation has chosen.
    """
    call = torch_call(attributes["call"]).call
    if attributes.get("grad"):
        message = f"the gradient of {call.function} depends on signs, phases or an order that are not unique"
        raise Fault(Reason.UNSUPPORTED, message)
    return [ErrorBudget(0.0)] * _kind_of(call).outputs


def as_right(inputs: Sequence[Any], attributes: Mapping[str, Any], actual: Sequence[Any]) -> list[Any]:
    """Return an all-True mask for each output if the outputs are factors of the matrix; None for each if an element
    is not finite or their number is wrong.

    Raises:
        Fault: VALUE with the violated property, if they are no factors.
    """
    call = torch_call(attributes["call"]).call
    factors = _kind_of(call)
    array = np.asarray(inputs[call.tensors()[0]])
    matrix, outputs = widen(array), [widen(np.asarray(output)) for output in actual]
    if len(outputs) != factors.outputs or not all(np.isfinite(output).all() for output in (matrix, *outputs)):
        return [None] * len(actual)
    epsilon = 2.0 * dtype_of(array.dtype).unit_roundoff
    for violation in _FAMILIES[factors.family](_Factorisation(matrix, outputs, epsilon, factors, call)):
        raise Fault(Reason.VALUE, f"{violation}; rule: {factors.formula}")
    return [np.ones(np.shape(output), np.bool_) for output in actual]


def _kind_of(call: Call) -> FactorKind:
    kind = facts_of(call.function).factors
    if kind is None:
        raise LookupError(f"{call.function} is no factorisation")
    return kind


class _Factorisation(NamedTuple):
    """A matrix or batch, the outputs to check, ε of the dtype, and the kind and call of the factorisation."""

    matrix: Array
    outputs: Sequence[Array]
    epsilon: float
    kind: FactorKind
    call: Call

    @property
    def relative(self) -> float:
        """Relative bound: threshold·max(m, n)·ε."""
        return float(self.kind.threshold * max(1, *self.matrix.shape[-2:]) * self.epsilon)


# Messages on violated properties. The functions below check one family of factorisations each.
_Violations = Iterator[str]


def _svd(computed: _Factorisation) -> _Violations:
    # torch.svd yields V, torch.linalg.svd its adjoint. Without compute_uv, torch.svd yields zeros for U and V, and
    # torch.linalg.svd's operator empty tensors.
    left, values, right = computed.outputs
    are_computed = computed.call.argument(2, "compute_uv") is not False
    if computed.kind.yields_v and not are_computed:
        if left.any() or right.any():
            yield "U or V is not zero, expected zeros with compute_uv=False"
    elif are_computed:
        transposed = _adjoint(right) if computed.kind.yields_v else right
        rank = values.shape[-1]
        yield from _check_product(
            computed, "U·S·Vᴴ", (left[..., :rank] * values[..., None, :]) @ transposed[..., :rank, :]
        )
        yield from _check_orthogonal(computed, "U", left)
        yield from _check_orthogonal(computed, "V", _adjoint(transposed))
    if (values < 0).any():
        yield "a singular value is negative"
    if (np.diff(values, axis=-1) > 0).any():
        yield "singular values do not descend"
    yield from _check_values(computed, "singular values", values, np.linalg.svd(computed.matrix, compute_uv=False))


def _eigh(computed: _Factorisation) -> _Violations:
    values, vectors = computed.outputs
    is_lower = computed.call.argument(1, "UPLO") in (None, "L", "l")
    lower = np.tril(computed.matrix, -1) if is_lower else _adjoint(np.triu(computed.matrix, 1))
    diagonal = np.real(np.diagonal(computed.matrix, axis1=-2, axis2=-1))
    hermitian = lower + _adjoint(lower) + diagonal[..., None, :] * np.eye(computed.matrix.shape[-1])
    computed = computed._replace(matrix=hermitian)
    if computed.call.argument(2, "compute_v") is not False:
        yield from _check_product(computed, "V·L·Vᴴ", (vectors * values[..., None, :]) @ _adjoint(vectors))
        yield from _check_orthogonal(computed, "V", vectors)
    if (np.diff(values, axis=-1) < 0).any():
        yield "eigenvalues do not ascend"
    yield from _check_values(computed, "eigenvalues", values, np.linalg.eigvalsh(hermitian))


def _eig(computed: _Factorisation) -> _Violations:
    values, vectors = computed.outputs
    residual = computed.matrix @ vectors - vectors * values[..., None, :]
    yield from _check_bound("A·V - V·L", _one_norm(residual), computed.relative * _one_norm(computed.matrix))
    lengths = np.abs(np.linalg.norm(vectors, axis=-2) - 1.0).max(axis=-1, initial=0.0)
    yield from _check_bound("the length of a column of V, less 1,", lengths, np.full_like(lengths, computed.relative))
    yield from _eigvals(computed._replace(outputs=(values,)))


def _eigvals(computed: _Factorisation) -> _Violations:
    (values,) = computed.outputs
    allowed = computed.relative * _one_norm(computed.matrix)
    farthest = singularity(computed.matrix, values).max(axis=-1, initial=0.0)
    yield from _check_bound("the smallest singular value of A - λ", farthest, allowed)
    size = computed.matrix.shape[-1]
    matrices, rows = computed.matrix.reshape(-1, size, size), values.reshape(-1, size)
    for matrix, got, error in zip(matrices, rows, allowed.reshape(-1), strict=True):
        expected = np.linalg.eigvals(matrix)
        far = reach(matrix, expected, float(error))
        if not is_rearranged(got, expected, far):
            should_be = f"{_listed(expected)} in some order, each within {far:.3g}"
            yield f"the eigenvalues are {_listed(got)}, expected {should_be}"


def _qr(computed: _Factorisation) -> _Violations:
    orthogonal, upper = computed.outputs
    if np.tril(upper, -1).any():
        yield "R has elements below its diagonal"
    if computed.call.argument(1, "mode") == "r":
        gram = _one_norm(_adjoint(upper) @ upper - _adjoint(computed.matrix) @ computed.matrix)
        size = np.maximum(_one_norm(computed.matrix), _one_norm(_adjoint(computed.matrix)))
        yield from _check_bound("RᴴR - AᴴA", gram, 2.0 * computed.relative * _one_norm(computed.matrix) * size)
    else:
        yield from _check_product(computed, "Q·R", orthogonal @ upper)
        yield from _check_orthogonal(computed, "Q", orthogonal)


def _geqrf(computed: _Factorisation) -> _Violations:
    # The reflectors are stored below the diagonal of R; torch multiplies them, in float64.
    packed, factors = computed.outputs
    rank = min(packed.shape[-2:])
    reflectors = np.ascontiguousarray(packed[..., :rank])
    product = torch.linalg.householder_product(torch.from_numpy(reflectors), torch.from_numpy(np.array(factors)))
    yield from _qr(computed._replace(outputs=(product.numpy(), np.triu(packed[..., :rank, :]))))


_FAMILIES: Mapping[str, Callable[[_Factorisation], _Violations]] = {
    "svd": _svd,
    "eigh": _eigh,
    "eig": _eig,
    "eigvals": _eigvals,
    "qr": _qr,
    "geqrf": _geqrf,
}


def _check_product(computed: _Factorisation, name: str, product: Array) -> _Violations:
    yield from _check_bound(
        f"A - {name}", _one_norm(computed.matrix - product), computed.relative * _one_norm(computed.matrix)
    )


def _check_orthogonal(computed: _Factorisation, name: str, factor: Array) -> _Violations:
    measured = _one_norm(_adjoint(factor) @ factor - np.eye(factor.shape[-1]))
    yield from _check_bound(f"{name}ᴴ{name} - 1", measured, np.full_like(measured, computed.relative))


def _check_values(computed: _Factorisation, name: str, got: Array, expected: Array) -> _Violations:
    # Weyl: sorted values move by at most the spectral norm of the error, which p(m, n)·ε·|A|₂ bounds.
    allowed = computed.relative * np.abs(expected).max(axis=-1, initial=0.0)
    yield from _check_bound(f"of {name} the error", np.abs(got - expected).max(axis=-1, initial=0.0), allowed)


def _check_bound(quantity: str, measured: Array, allowed: Array) -> _Violations:
    """Yield a message with the first matrix of the batch whose ``measured`` exceeds ``allowed`` or is NaN."""
    wrong = ~(measured <= allowed)
    if wrong.any():
        index = tuple(int(axis[0]) for axis in np.nonzero(np.atleast_1d(wrong)))
        value, bound = np.atleast_1d(measured)[index], np.atleast_1d(allowed)[index]
        where = f" of matrix {list(index)}" if np.ndim(measured) else ""
        yield f"{quantity}{where} is {value:.3g}, expected at most {bound:.3g}"


def _one_norm(matrix: Array) -> Array:
    return np.asarray(np.abs(matrix).sum(axis=-2).max(axis=-1, initial=0.0))


def _adjoint(matrix: Array) -> Array:
    return np.conj(np.swapaxes(matrix, -1, -2))


def _listed(values: Array) -> str:
    return ", ".join(f"{value:.6g}" for value in values[:8]) + (" …" if len(values) > 8 else "")


# A stable algorithm yields the eigenvalues of A + E with a small E. So A - λ has a singular value of at most |E|, and
# the results match A's eigenvalues one to one: within κ(V)·|E| (Bauer and Fike: Golub and Van Loan, Matrix
# Computations, 4th edition, theorem 7.2.2) if these discs are disjoint, else (2n - 1) times as far; or within
# 4·(|A| + |A + E|)^(1 - 1/n)·|E|^(1/n) (Bhatia, Elsner and Krause, Linear Algebra Appl. 142, 1990), also for
# defective A.


def singularity(matrix: Array, values: Array) -> Array:
    """Return the smallest singular value of A - λ for each λ of ``values`` (shape (…, n) for matrices (…, n, n))."""
    shifted = matrix[..., None, :, :] - values[..., None, None] * np.eye(matrix.shape[-1])
    return np.asarray(np.linalg.svd(shifted, compute_uv=False)[..., -1])


def reach(matrix: Array, values: Array, error: float) -> float:
    """Return how far an eigenvalue of A + E may be from its match in ``values``, the eigenvalues of A in float64.

    ``error`` is the spectral norm of E; 0 yields 0.
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
    """Return whether ``got`` can be matched one to one with ``expected``, each within ``reach``."""
    near = np.abs(got[:, None] - expected[None, :]) <= reach
    partner = [-1] * len(expected)
    return all(_augment(row, near, partner, set()) for row in range(len(got)))


def _augment(row: int, near: Array, partner: list[int], tried: set[int]) -> bool:
    """Return whether ``row`` can be matched; extend the matching ``partner`` along an augmenting path."""
    for column in np.flatnonzero(near[row]).tolist():
        if column not in tried:
            tried.add(column)
            if partner[column] < 0 or _augment(partner[column], near, partner, tried):
                partner[column] = row
                return True
    return False
