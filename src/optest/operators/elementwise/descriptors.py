"""Descriptors of the elementwise family, idea by idea."""

from __future__ import annotations

from optest.operators.elementwise.descriptors_arithmetic import ARITHMETIC
from optest.operators.elementwise.descriptors_comparison import COMPARISON
from optest.operators.elementwise.descriptors_math import MATH
from optest.operators.elementwise.descriptors_selection import SELECTION
from optest.spec import OperatorDescriptor

__all__ = ["DESCRIPTORS"]

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (*ARITHMETIC, *COMPARISON, *MATH, *SELECTION)
