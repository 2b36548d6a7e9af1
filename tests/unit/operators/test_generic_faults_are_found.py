"""Faults that any kernel can have, of operators whose case sets once left them out; all of them: check_faults.py."""

from __future__ import annotations

import pytest
from wrong_kernels import first_findings
from wrong_kernels.any_operator import faults_of

from optest.api import bootstrap
from optest.operators import operators

HOLES = {
    "wrong for one element": (
        "amax", "any", "layer_norm", "rms_norm", "batch_norm", "matmul", "bmm", "gemm", "linear", "conv1d", "conv2d",
        "conv3d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "scaled_dot_product_attention", "tril", "concat",
        "split", "slice", "pad", "embedding",
    ),
    "wrong for scalars": ("amax", "amin", "all", "any"),
    "wrong from 4 dimensions on": ("reshape", "gather", "scatter_add", "quantize", "dequantize"),
    "wrong in 16 bits where not dense": ("all", "any", "gather", "scatter_add", "embedding", "quantize"),
    "wrong beyond 65,536 elements": ("einsum", "quantize", "dequantize"),
    "wrong for last sizes beyond 256 that are odd": (
        "conv2d", "conv3d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "scaled_dot_product_attention", "split",
    ),
    "wrong for last sizes that are multiples of 16": ("split",),
    "subnormal inputs taken as 0": ("any",),
}  # fmt: skip


OPERATORS = sorted({name for names in HOLES.values() for name in names})


@pytest.mark.parametrize("name", OPERATORS)
def test_a_fault_of_any_kernel_is_found(name: str) -> None:
    bootstrap()
    asked = {f"{name}: {kind}" for kind, names in HOLES.items() if name in names}
    faults = [each for each in faults_of(operators.get(name)) if each.name in asked]
    assert {each.name for each in faults} == asked
    assert first_findings(name, faults).keys() == asked
