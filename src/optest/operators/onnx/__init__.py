"""ONNX's names for operators of the catalogue, where more than a name differs: standard library only.

Each module adds its records to ``SPELLINGS`` when it is imported.
"""

from __future__ import annotations

from optest.operators.onnx import contractions, elementwise, movements, normalizations, poolings, reductions  # noqa: F401
from optest.operators.onnx.spelling import SPELLINGS

__all__ = ["SPELLINGS"]
