"""Eigenvalues of any square matrix against those that float64 finds, in whatever order they come.

An algorithm that is stable gives the eigenvalues of A + E with a small E. So λ is one if A - λ is singular but for |E|.
That each stands for another one of A's is a matching: within κ(V)·|E| of it (Bauer and Fike: Golub and Van Loan, Matrix
Computations, 4th edition, theorem 7.2.2) where these discs are apart, (2n - 1) times as far where they are not; or
within 4·(|A| + |A + E|)^(1 - 1/n)·|E|^(1/n) (Bhatia, Elsner and Krause, Linear Algebra Appl. 142, 1990), which holds
for defective matrices, too.
"""

from __future__ import annotations

import numpy as np

from optest.numerics import Array

__all__ = ["is_rearranged", "reach", "singularity"]


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


def is_rearranged(got: Array, wanted: Array, reach: float) -> bool:
    """Whether each of ``got`` can be given another one of ``wanted`` within ``reach``: a matching of all."""
    near = np.abs(got[:, None] - wanted[None, :]) <= reach
    partner = [-1] * len(wanted)
    return all(_placed(row, near, partner, set()) for row in range(len(got)))


def _placed(row: int, near: Array, partner: list[int], tried: set[int]) -> bool:
    for column in np.flatnonzero(near[row]).tolist():
        if column not in tried:
            tried.add(column)
            if partner[column] < 0 or _placed(partner[column], near, partner, tried):
                partner[column] = row
                return True
    return False
