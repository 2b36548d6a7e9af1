"""The built-in operators, family by family; listing them needs neither NumPy nor a framework."""

from __future__ import annotations

from optest.operators.activation.descriptors import DESCRIPTORS as ACTIVATION
from optest.operators.attention.descriptors import DESCRIPTORS as ATTENTION
from optest.operators.contraction.descriptors import DESCRIPTORS as CONTRACTION
from optest.operators.elementwise.descriptors import DESCRIPTORS as ELEMENTWISE
from optest.operators.indexing.descriptors import DESCRIPTORS as INDEXING
from optest.operators.movement.descriptors import DESCRIPTORS as MOVEMENT
from optest.operators.normalization.descriptors import DESCRIPTORS as NORMALIZATION
from optest.operators.pooling.descriptors import DESCRIPTORS as POOLING
from optest.operators.quantization.descriptors import DESCRIPTORS as QUANTIZATION
from optest.operators.reduction.descriptors import DESCRIPTORS as REDUCTION
from optest.spec import OperatorDescriptor

__all__ = ["DESCRIPTORS"]

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    *ELEMENTWISE,
    *ACTIVATION,
    *REDUCTION,
    *NORMALIZATION,
    *CONTRACTION,
    *POOLING,
    *ATTENTION,
    *MOVEMENT,
    *INDEXING,
    *QUANTIZATION,
)
