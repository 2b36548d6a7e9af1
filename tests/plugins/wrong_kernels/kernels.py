"""Wrong kernels of training and serving: gradients of norms, optimizer steps, state spaces, packed weights, float8."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wrong_kernels.changes import half, ignoring, read_as_dense, single, wide, with_input
from wrong_kernels.registry import Array, Call, fault, rare


def _of_rows(call: Call) -> tuple[tuple[int, ...], Array, Array, Array]:
    """The dimensions of a row; grad_output · weight, z and r by float64."""
    dims = tuple(range(-len(call.attribute("normalized_shape")), 0))
    grad, x = wide(call[0]), wide(call[1])
    eps = call.attribute("eps")
    centred = x - x.mean(dims, keepdims=True) * (call.case.descriptor.name == "layer_norm_backward")
    r = 1 / np.sqrt((centred**2).mean(dims, keepdims=True) + (2.0**-23 if eps is None else eps))
    return dims, grad if call[2] is None else grad * wide(call[2]), centred * r, r


for _op in ("rms_norm_backward", "layer_norm_backward"):
    _name = _op.replace("_", "-")

    @fault(f"{_name}-forgets-what-the-statistics-add", _op)
    def _(call: Call) -> Sequence[Array] | None:
        _, g, _, r = _of_rows(call)
        return [r * g, *call.right[1:]] if call[1].size else None

    @fault(f"{_name}-takes-the-mean-of-the-gradient-without-weight", _op)
    def _(call: Call) -> Sequence[Array] | None:
        dims, g, z, r = _of_rows(call)
        if not call[1].size or call[2] is None:
            return None
        missing = (g * z).mean(dims, keepdims=True) - (wide(call[0]) * z).mean(dims, keepdims=True)
        return [wide(call.right[0]) + r * z * missing, *call.right[1:]]

    @fault(f"{_name}-sums-the-gradient-alone", _op)
    def _(call: Call) -> Sequence[Array] | None:
        if call[2] is None:
            return None
        rows = tuple(range(call[0].ndim - call[2].ndim))
        return [call.right[0], wide(call[0]).sum(rows), *call.right[2:]]

    @rare(f"{_name}-loses-the-last-block-of-rows", _op)
    def _(call: Call) -> Sequence[Array] | None:
        rest = call.shape()[0] % 64
        if call[2] is None or call[0].ndim != 2 or call.shape()[0] < 64 or not rest:
            return None
        less = [call.inputs[0][:-rest], call.inputs[1][:-rest], call.inputs[2]]
        return [call.right[0], *call.with_inputs(*less)[1:]]

    @rare(f"{_name}-adds-rows-up-in-16-bits", _op)
    def _(call: Call) -> Sequence[Array] | None:
        if call[2] is None or call[0].ndim != 2 or call[0].dtype == np.float64:
            return None
        total = np.zeros(call.shape(2), np.float32)
        for row in single(_of_rows(call)[2] * wide(call[0])):
            total = half(total + row)
        return [call.right[0], total, *call.right[2:]]

    rare(f"{_name}-ignores-eps", _op)(ignoring("eps"))
    rare(f"{_name}-reads-the-gradient-as-dense", _op)(lambda call: with_input(call, 0, read_as_dense(call)))


@rare("layer-norm-backward-takes-the-variance-from-squares", "layer_norm_backward")
def _(call: Call) -> Sequence[Array] | None:
    if call[1].dtype == np.float64 or not call[1].size or (call[2] is not None and call[2].dtype != call[1].dtype):
        return None
    dims, g, _, _ = _of_rows(call)
    x = single(call[1])
    mean = x.mean(dims, keepdims=True)
    variance = np.maximum((x * x).mean(dims, keepdims=True) - mean * mean, 0)
    r = 1 / np.sqrt(variance + np.float32(call.attribute("eps")))
    z = (x - mean) * r
    grad = r * (g - g.mean(dims, keepdims=True) - z * (g * z).mean(dims, keepdims=True))
    return [grad, *call.right[1:]]
