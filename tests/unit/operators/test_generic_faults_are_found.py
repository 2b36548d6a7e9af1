"""Faults that any kernel can have: of every operator, and those that case sets once left out; all: check_faults.py."""

from __future__ import annotations

import re

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

CHECKED = [each.name for each in operators if each.samples is not None]
_READS_NOTHING = {"zeros_like", "ones_like"}


@pytest.mark.parametrize("name", CHECKED)
def test_a_fault_of_any_kernel_is_found(name: str) -> None:
    bootstrap()
    asked = {f"{name}: {kind}" for kind, names in HOLES.items() if name in names}
    asked |= {f"{name}: wrong beyond 65,536 elements"}
    faults = list(faults_of(operators.get(name)))
    if name not in _READS_NOTHING:
        asked |= {each.name for each in faults if re.search(r": input \d read as dense|: offset of", each.name)}
    faults = [each for each in faults if each.name in asked]
    assert {each.name for each in faults} == asked
    assert first_findings(name, faults).keys() == asked
