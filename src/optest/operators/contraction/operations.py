"""How many operations a contraction is, as people count them: a multiplication and an addition for each product.

Zeros that padding adds are multiplied too, and the bias is not counted, so that rates compare with those of others.
"""

from __future__ import annotations

from optest.operators.contraction.inference import (
    conv1d_length,
    conv2d_length,
    conv3d_length,
    equation_of,
    gemm_length,
    infer_bmm,
    infer_conv1d,
    infer_conv2d,
    infer_conv3d,
    infer_gemm,
    infer_linear,
    infer_matmul,
    last_size,
)
from optest.operators.shapes import Attributes, Specs
from optest.spec import TensorSpec

__all__ = [
    "bmm_operations",
    "conv1d_operations",
    "conv2d_operations",
    "conv3d_operations",
    "einsum_operations",
    "gemm_operations",
    "linear_operations",
    "matmul_operations",
]


def _two_for_each_product(outputs: tuple[TensorSpec, ...], length: int) -> int:
    return 2 * outputs[0].elements * length


def matmul_operations(specs: Specs, attributes: Attributes) -> int:
    return _two_for_each_product(infer_matmul(specs, attributes), last_size(specs, attributes))


def bmm_operations(specs: Specs, attributes: Attributes) -> int:
    return _two_for_each_product(infer_bmm(specs, attributes), last_size(specs, attributes))


def gemm_operations(specs: Specs, attributes: Attributes) -> int:
    """2·m·n·k, without alpha and beta."""
    return _two_for_each_product(infer_gemm(specs, attributes), gemm_length(specs, attributes))


def linear_operations(specs: Specs, attributes: Attributes) -> int:
    return _two_for_each_product(infer_linear(specs, attributes), last_size(specs, attributes))


def conv1d_operations(specs: Specs, attributes: Attributes) -> int:
    return _two_for_each_product(infer_conv1d(specs, attributes), conv1d_length(specs, attributes))


def conv2d_operations(specs: Specs, attributes: Attributes) -> int:
    """2·N·Cout·H·W·(Cin / groups)·kh·kw for the direct algorithm, whichever the kernel uses."""
    return _two_for_each_product(infer_conv2d(specs, attributes), conv2d_length(specs, attributes))


def conv3d_operations(specs: Specs, attributes: Attributes) -> int:
    """As conv2d, with one dimension more."""
    return _two_for_each_product(infer_conv3d(specs, attributes), conv3d_length(specs, attributes))


def einsum_operations(specs: Specs, attributes: Attributes) -> int | None:
    """For two operands; with more of them the number depends on the order of contraction, so none is declared."""
    if len(specs) != 2:
        return None
    equation = equation_of(specs, attributes)
    elements = 1
    for size in equation.shape:
        elements *= size
    return 2 * elements * equation.length
