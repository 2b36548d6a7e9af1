"""Which of torch's factorisations are unique up to sign, phase or order alone, and what is allowed of their factors."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FACTORS", "FactorKind"]


@dataclass(frozen=True, slots=True)
class FactorKind:
    """``family`` says what the factors are, ``outputs`` how many there are, ``threshold`` is that of LAPACK's tests."""

    family: str
    outputs: int
    threshold: float
    formula: str


def _kind(family: str, outputs: int, threshold: float, promises: str) -> FactorKind:
    allowed = f"each within {threshold:g}·max(m, n)·ε, times |A|₁ if it is of A (LAPACK's own tests)"
    return FactorKind(family, outputs, threshold, f"0, or other factors: {promises}, {allowed}")


_ORTHOGONAL_PRODUCT = "A = Q·R, QᴴQ = 1, R triangular"
_SVD = _kind("svd", 3, 35.0, "A = U·S·Vᴴ, UᴴU = VᴴV = 1, S ≥ 0 and descending, S as in float64")
_EIGH = _kind("eigh", 2, 60.0, "A = V·L·Vᴴ, VᴴV = 1, L ascending, L as in float64")
_EIG = _kind("eig", 2, 20.0, "A·V = V·L, columns of V of length 1, L as in float64 in any order")
_EIGVALS = _kind("eigvals", 1, 20.0, "the smallest singular value of A - λ is 0, λ as in float64 in any order")
_QR = _kind("qr", 2, 30.0, _ORTHOGONAL_PRODUCT)
_GEQRF = _kind("geqrf", 2, 30.0, f"{_ORTHOGONAL_PRODUCT}, Q of its reflectors")

FACTORS = {
    "svd": _SVD,
    "linalg_svd": _SVD,
    "_linalg_svd": _SVD,
    "linalg_eigh": _EIGH,
    "_linalg_eigh": _EIGH,
    "linalg_eig": _EIG,
    "linalg_eigvals": _EIGVALS,
    "_linalg_eigvals": _EIGVALS,
    "qr": _QR,
    "linalg_qr": _QR,
    "geqrf": _GEQRF,
}
"""By canonical name: ``linalg_svd`` of ``torch.linalg.svd`` and of ``torch.ops.aten.linalg_svd``.

Those that begin with ``_`` are what the others become in torch's dispatcher.
"""
