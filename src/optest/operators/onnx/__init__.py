"""ONNX's names for operators of the catalogue, if more than the name differs: standard library only.

Each module adds its spellings to ``SPELLINGS`` when it is imported.
"""

from __future__ import annotations

from optest.operators.onnx import arithmetic, movements, windows  # noqa: F401
from optest.operators.onnx.spelling import SPELLINGS

__all__ = ["SPELLINGS"]
