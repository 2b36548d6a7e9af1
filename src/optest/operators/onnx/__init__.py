"""ONNX's names for operators of the catalogue, if more than the name differs: standard library only.

Each module adds its spellings to ``SPELLINGS`` when it is imported.
"""

from __future__ import annotations

from optest.operators.onnx import contractions, elementwise, movements, normalizations, poolings, reductions  # noqa: F401
from optest.operators.onnx.spelling import SPELLINGS

__all__ = ["SPELLINGS"]
