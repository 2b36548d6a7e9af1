"""Faults that any kernel can have are detected in every operator; faults.py --source check tests all of them."""

from __future__ import annotations

import re

import pytest
from wrong_kernels import first_findings
from wrong_kernels.any_operator import faults_of

from optest.api import bootstrap
from optest.operators import operators
from optest.operators.catalogue import DESCRIPTORS

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

OF_ALL = re.compile(
    r": (input \d read as dense|offset of input \d ignored|wrong beyond 65,536 elements"
    r"|16-bit results truncated|float32 results 2\^-18 too large)$"
)
# They read no element, have no input of 16 bits in front, or results of 8 bits, which round it away.
SHOWS_NOTHING = {
    *(f"{name}: {kind}" for name in ("zeros_like", "ones_like")
      for kind in ("input 0 read as dense", "offset of input 0 ignored")),
    "dequantize: 16-bit results truncated",
    "dequantize_awq: 16-bit results truncated",
    "rotary_embedding: 16-bit results truncated",
    "dequantize_gptq: 16-bit results truncated",
    "fp8_block_scaled_matmul: 16-bit results truncated",
    "per_token_group_quant_fp8: float32 results 2^-18 too large",
    "per_token_quant_int8: float32 results 2^-18 too large",
}  # fmt: skip
CHECKED = [each.name for each in DESCRIPTORS if each.samples is not None]


@pytest.mark.heavy
@pytest.mark.parametrize("name", CHECKED)
def test_common_kernel_faults_are_detected(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The diagnosis of a failure takes as long as all the rest.
    monkeypatch.setattr("optest.core.verdicts.add_diagnosis", lambda _, verdict: verdict)
    bootstrap()
    holes = {f"{name}: {kind}" for kind, names in HOLES.items() if name in names}
    faults = [each for each in faults_of(operators.get(name)) if each.name in holes or OF_ALL.search(each.name)]
    faults = [each for each in faults if each.name not in SHOWS_NOTHING]
    expected = {each.name for each in faults}
    assert expected >= holes
    assert first_findings(name, faults).keys() == expected
