"""What do references cost on one core, against torch in float64; and with the error terms that a verdict needs?

    python benchmarks/references.py [--quick] [--dtype float64]

Both get the same tensors; the least processor time counts. The references take them in ``--dtype``, as a case does, and
widen them; torch takes float64. Exits with 1 if the conv2d of the catalogue's promise costs more than 60 × torch's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import kit
import numpy as np
import torch

from optest.numerics import round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import dtype
from optest.torch.operators import TORCH_OPERATORS

CEILING = 60.0
PROMISED = "conv2d 1x64x56x56, 64 filters 3x3"

CALLS: dict[str, tuple[str, Sequence[tuple[int, ...]], dict[str, Any]]] = {
    PROMISED: ("conv2d", [(1, 64, 56, 56), (64, 64, 3, 3)], {"padding": 1}),
    "conv2d depthwise 1x128x28x28": ("conv2d", [(1, 128, 28, 28), (128, 1, 3, 3)], {"padding": 1, "groups": 128}),
    "conv1d 4x64x256, 64 filters 5": ("conv1d", [(4, 64, 256), (64, 64, 5)], {"padding": 2}),
    "matmul 512x512": ("matmul", [(512, 512), (512, 512)], {}),
    "linear 128x1024 to 1024": ("linear", [(128, 1024), (1024, 1024), (1024,)], {}),
    "einsum bhid,bhjd->bhij": ("einsum", [(2, 8, 128, 64), (2, 8, 128, 64)], {"equation": "bhid,bhjd->bhij"}),
    "max_pool2d 1x64x112x112": ("max_pool2d", [(1, 64, 112, 112)], {"kernel_size": 3, "stride": 2, "padding": 1}),
    "avg_pool2d 1x64x56x56": ("avg_pool2d", [(1, 64, 56, 56)], {"kernel_size": 3, "padding": 1}),
    "adaptive_avg_pool2d 1x512x14x14": ("adaptive_avg_pool2d", [(1, 512, 14, 14)], {"output_size": 3}),
    "attention 1x8x256x64": ("scaled_dot_product_attention", [(1, 8, 256, 64)] * 3, {"is_causal": True}),
    "rope 1x32x128x128": ("rope", [(1, 32, 128, 128), (128, 64), (128, 64)], {}),
}


def measured(
    operator: str, shapes: Sequence[tuple[int, ...]], attributes: dict[str, Any], name: str, repeats: int
) -> dict[str, float]:
    """Return the least seconds of torch, of the reference, and of the reference with its terms."""
    rng = np.random.default_rng(0)
    inputs = [round_to(rng.standard_normal(shape), dtype(name)) for shape in shapes]
    tensors = [torch.from_numpy(widen(x).astype(np.float64)) for x in inputs]
    descriptor = operators.get(operator)
    bound, call = descriptor.bind(attributes), TORCH_OPERATORS[operator]
    reference = load_object(descriptor.reference)
    terms = load_object(descriptor.terms) if descriptor.terms is not None else lambda *_: None
    (out,) = reference(inputs, bound)
    np.testing.assert_allclose(out, call(tensors, bound).numpy(), rtol=1e-9, atol=1e-9)
    sides = {
        "torch": lambda: call(tensors, bound),
        "reference": lambda: reference(inputs, bound),
        "both": lambda: (reference(inputs, bound), terms(inputs, bound)),
    }
    return {name: seconds.processor for name, seconds in kit.least(sides, repeats).items()}


def _restart_on_one_core() -> None:
    # NumPy's BLAS reads its number of threads from the environment when it is loaded.
    if any(os.environ.get(name) != value for name, value in kit.ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **kit.ONE_THREAD})
    torch.set_num_threads(1)


def main() -> int:
    parser = kit.parser(__doc__, quick="three repeats in place of nine")
    parser.add_argument("--dtype", default="float64", help="dtype of the references' inputs [float64]")
    options = parser.parse_args()
    _restart_on_one_core()
    rows, is_kept = [], True
    for label, (operator, shapes, attributes) in CALLS.items():
        seconds = measured(operator, shapes, attributes, options.dtype, 3 if options.quick else 9)
        reference, both = (seconds[name] / seconds["torch"] for name in ("reference", "both"))
        is_kept &= label != PROMISED or both <= CEILING
        rows.append((label, f"{seconds['torch'] * 1e3:.2f} ms", f"{reference:.1f}", f"{both:.1f}"))
    print(kit.table(("call", "torch, float64", "reference / torch", "with error terms / torch"), rows))
    print(f"\n{PROMISED}: {'at most' if is_kept else 'MORE THAN'} {CEILING:g} x torch, error terms included")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
