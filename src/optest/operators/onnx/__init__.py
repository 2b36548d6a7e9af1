"""ONNX's names for operators of the catalogue, where more than a name differs: standard library only."""

from __future__ import annotations

from optest.operators.onnx import contractions, elementwise, movements, normalizations, poolings, reductions
from optest.spec import Spelling

__all__ = ["SPELLINGS"]

SPELLINGS: dict[str, Spelling] = {
    each.name: each
    for family in (elementwise, reductions, normalizations, contractions, poolings, movements)
    for each in family.SPELLINGS
}
"""By ONNX's name; of a name that is not here and is no alias either, the catalogue has no operator."""
