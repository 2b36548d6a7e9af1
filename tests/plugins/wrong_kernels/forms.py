"""Kernels that are wrong for calls of one form: a test that a sample of that form exists, for each operator.

Such forms have a kernel of their own in some library, or the end of a counter. The last element is wrong there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wrong_kernels.changes import is_dense, wide, wrong_where
from wrong_kernels.registry import Array, Call, rare

Form = Callable[[Call], Any]
_ATTENTION = "scaled_dot_product_attention"


def wrong_for(name: str, ops: str, form: Form) -> None:
    """Register a fault for each operator; ``name`` has the fields ``op`` and ``dashed``."""
    for op in ops.split():
        rare(name.format(op=op, dashed=op.replace("_", "-")), op)(wrong_where(form))


# How tensors lie


def _apart(array: Array) -> bool:
    """Dense matrices with a gap between them."""
    if array.ndim < 3 or is_dense(array) or array.size < 2 or min(array.strides) <= 0:
        return False
    inner = array[(0,) * (array.ndim - 2)]
    return is_dense(inner) and inner.size > 1 and array.strides[-3] != inner.nbytes and array.shape[-3] > 1


def _channels_last(array: Array) -> bool:
    return array.ndim == 4 and not is_dense(array) and is_dense(array.transpose(0, 2, 3, 1))


def _square_in_columns(call: Call) -> bool:
    source = call.inputs[0]
    return source.ndim == 2 and len(set(source.shape)) == 1 and is_dense(source.T) and not is_dense(source)


wrong_for(
    "{op}-takes-matrices-as-adjacent",
    "add mul softmax sum cumsum matmul bmm layer_norm sort clone flip gelu",
    lambda call: any(_apart(array) for array in call.inputs),
)
wrong_for(
    "{op}-of-three-dimensions-out-of-order",
    "add sub mul eq ge bitwise_and logical_xor floor_divide fmod minimum remainder",
    lambda call: any(each.ndim == 3 and each.size and not is_dense(each) for each in call.inputs),
)
wrong_for("clone-of-repeated-planes", "clone", lambda call: call[0].ndim == 3 and call[0].strides[1] == 0)
wrong_for("clone-of-five-out-of-order", "clone", lambda call: call[0].ndim == 5 and not is_dense(call[0]))
wrong_for("reshape-of-a-square-in-columns", "reshape", _square_in_columns)
wrong_for(
    "pad-mirrors-what-lies-there",
    "pad",
    lambda call: call.attribute("mode") != "constant" and not is_dense(call.inputs[0]),
)
wrong_for(
    "gather-of-indices-with-gaps",
    "gather",
    lambda call: call.dtype(1) == "int32" and not is_dense(call.inputs[1]),
)
wrong_for(
    "batch-norm-of-half-channels-last",
    "batch_norm",
    lambda call: len(call.shape()) == 4 and call.dtype() == "float16" and not is_dense(call.inputs[0]),
)
wrong_for(
    "conv2d-of-groups-channels-last",
    "conv2d",
    lambda call: call.attribute("groups") > 1 and _channels_last(call.inputs[0]),
)
wrong_for(
    "attention-of-heads-side-by-side",
    _ATTENTION,
    lambda call: call[0].ndim == 4 and not is_dense(call[0]) and is_dense(call[0].transpose(0, 2, 1, 3)),
)

# Long dimensions, many elements


def _long_dim(at: Callable[[int, int], bool], size: int) -> Form:
    def holds(call: Call) -> bool:
        dim, rank = call.case.attributes.get("dim"), call.inputs[0].ndim
        dim = dim[0] if isinstance(dim, tuple) and len(dim) == 1 else dim
        return isinstance(dim, int) and rank > 1 and at(dim % rank, rank) and call.inputs[0].shape[dim] > size

    return holds


def _beyond(dtype: str, elements: int) -> Form:
    return lambda call: call.inputs[0].dtype.name == dtype and call.inputs[0].size > elements


def _output_beyond(dim: int, size: int) -> Form:
    return lambda call: call.right[0].ndim > 1 and call.right[0].shape[dim] > size


def _is_vector(call: Call) -> bool:
    return len(call.shape()) == 1


wrong_for(
    "{op}-of-a-long-middle",
    "softmax log_softmax sum mean cumsum prod sort topk argmax max amax concat gather scatter_add any norm var",
    _long_dim(lambda dim, rank: 0 < dim < rank - 1, 256),
)
wrong_for(
    "{op}-of-a-long-front",
    "sort topk concat gather scatter_add any all",
    _long_dim(lambda dim, rank: dim == 0, 1024),
)
wrong_for("{op}-of-float64-beyond-a-tile", "add sum softmax gelu layer_norm sort exp mean", _beyond("float64", 4096))
wrong_for("{op}-of-bfloat16-beyond-a-tile", "add gelu silu mul sort", _beyond("bfloat16", 4096))
wrong_for("{op}-of-long-int64", "amax argmax cumsum sort max", _beyond("int64", 4096))
wrong_for("{op}-of-many-columns", "matmul linear bmm einsum", _output_beyond(-1, 512))
wrong_for("{op}-of-many-rows", "gemm bmm", _output_beyond(-2, 512))
wrong_for(
    "{dashed}-of-many-channels",
    "max_pool2d avg_pool2d adaptive_avg_pool2d conv1d conv3d",
    lambda call: call.right[0].ndim > 2 and call.right[0].shape[1] in range(65, 100),
)
wrong_for("add-has-65535-rows", "add", lambda call: call.right[0].ndim == 2 and len(call.right[0]) > 65_535)
wrong_for("matmul-has-65535-batches", "matmul", lambda call: call.right[0].ndim == 3 and len(call.right[0]) > 65_535)
wrong_for(
    "{op}-has-65535-inner-elements",
    "softmax log_softmax",
    lambda call: len(call.shape()) == 2 and call.dim == 0 and call.shape()[1] > 65_535,
)
wrong_for(
    "{op}-counts-on-in-one-column",
    "argmax argmin",
    lambda call: len(call.shape()) == 2 and call.shape()[1] == 1 and call.shape()[0] > 32_767,
)
wrong_for("concat-of-128", "concat", lambda call: len(call.inputs) > 128)
wrong_for("topk-of-more-than-1024", "topk", lambda call: call.attribute("k") > 1024)
wrong_for(
    "sort-of-long-vectors-of-integers",
    "sort",
    lambda call: _is_vector(call) and not call.is_float and call.shape()[0] >= 32_768,
)
wrong_for(
    "scatter-add-of-many-into-a-vector",
    "scatter_add",
    lambda call: _is_vector(call) and call.shape(1)[0] > 1024,
)
wrong_for("broadcast-of-one-to-many", "broadcast_to", lambda call: call[0].size == 1 and call.right[0].size > 4096)

# Sizes between two blocks


def _odd_row_of_two_blocks(call: Call) -> bool:
    if call.dtype() != "float64" or len(call.shape()) < 2:
        return False
    return 512 < call.shape()[-1] < 1024 and call.shape()[-1] % 2 == 1 and call.shape()[-1] % 32 != 31


def _three_columns_behind_four(call: Call) -> bool:
    if call.attribute("trans_a") == call.attribute("trans_b") or call.right[0].ndim != 2:
        return False
    return call.right[0].shape[1] > 4 and call.right[0].shape[1] % 4 == 3


wrong_for("{op}-of-float64-has-odd-rows-of-two-blocks", "softmax log_softmax", _odd_row_of_two_blocks)
wrong_for("gemm-of-three-columns-behind-four", "gemm", _three_columns_behind_four)
wrong_for(
    "group-norm-of-planes-behind-the-last-vector",
    "group_norm",
    lambda call: len(call.shape()) == 4 and np.prod(call.shape()[2:]) > 64 and np.prod(call.shape()[2:]) % 4,
)

# Broadcasting, and shapes that hide what they are


def _stretched(dtype: str) -> Form:
    def holds(call: Call) -> bool:
        shapes = {array.shape for array in call.inputs if array.ndim}
        return len(shapes) > 1 and call.inputs[-1].dtype.name == dtype

    return holds


def _middle_is_stretched(call: Call) -> bool:
    out = call.right[0].shape
    return any(len(out) == 3 and array.shape == (out[0], 1, out[2]) and out[1] > 1 for array in call.inputs)


def _channels_like_columns(call: Call) -> bool:
    left, right = call.shape(), call.shape(1)
    return len(left) == 4 and right[1:] == (1, 1) and right[0] == left[3] > 1


def _scalar_of_another_dtype(call: Call) -> bool:
    scalars = [array.dtype for array in call.inputs if not array.ndim]
    tensors = [array for array in call.inputs if array.ndim]
    return bool(scalars and tensors and call.right[0].ndim and scalars[0] != tensors[0].dtype)


wrong_for("{op}-stretches-no-middle", "add mul where maximum eq div bitwise_and logical_or", _middle_is_stretched)
for _op, _dtype in (
    *(("where", "float16"), ("where", "bool"), ("maximum", "bfloat16"), ("maximum", "int64"), ("mul", "bool")),
):
    wrong_for(f"{{op}}-stretches-no-{_dtype}", _op, _stretched(_dtype))
wrong_for("{op}-adds-channels-to-columns", "add mul pow", _channels_like_columns)
wrong_for(
    "{op}-broadcasts-four-dimensions",
    "add mul pow",
    lambda call: len(call.shape()) == 5 and call.shape() != call.shape(1),
)
wrong_for("{op}-is-widened-by-a-scalar", "add mul maximum remainder", _scalar_of_another_dtype)
wrong_for("add-scales-no-scalar", "add", lambda call: call.shape(1) == () and call.attribute("alpha") != 1)
wrong_for(
    "where-has-one-row-of-conditions",
    "where",
    lambda call: len(call.shape()) == 2 and call.shape()[0] == 1 < call.right[0].shape[0],
)
wrong_for("broadcast-to-six", "broadcast_to", lambda call: len(call.attribute("size")) > 5)
wrong_for(
    "rope-of-as-many-heads-as-places",
    "rope",
    lambda call: len(call.shape()) == 3 and call.shape()[0] == call.shape()[1] > 1,
)
wrong_for(
    "batch-norm-of-squares",
    "batch_norm",
    lambda call: call.attribute("training") and len(call.shape()) == 2 and len(set(call.shape())) == 1,
)
wrong_for("{op}-of-one-vector", "softmax log_softmax", lambda call: _is_vector(call) and call.shape()[0] > 1)
wrong_for("group-norm-knows-no-volumes", "group_norm", lambda call: call.inputs[0].ndim == 5)

# Zeros beside NaN or infinity


def _zeros_meet_specials(zeros: int, specials: int) -> Form:
    def holds(call: Call) -> bool:
        if not call.is_float or len(call.inputs) < 2:
            return False
        return not wide(call.inputs[zeros]).any() and not np.isfinite(wide(call.inputs[specials])).all()

    return holds


_CONTRACTIONS = "matmul bmm gemm linear einsum conv1d conv2d conv3d"
wrong_for("{op}-skips-zeros", _CONTRACTIONS, _zeros_meet_specials(0, 1))
wrong_for("{op}-skips-zeros-of-the-second", _CONTRACTIONS, _zeros_meet_specials(1, 0))

# Convolution and pooling


def _pair(call: Call, name: str) -> tuple[int, ...]:
    """Return an attribute of a convolution or pooling with one value per dimension."""
    stated = call.attribute(name)
    count = len(call.shape(1)) - 2 if call.case.descriptor.name.startswith("conv") else 2
    return tuple(stated) * count if len(stated) == 1 else tuple(stated)


def _one_filter_for_each(call: Call) -> bool:
    return bool(call.attribute("groups") == call.shape()[1] > 1) if len(call.shape()) > 2 else False


def _square_kernel(size: int, attribute: str) -> Form:
    return lambda call: call.shape(1)[2:] == (size, size) and _pair(call, attribute) == (2, 2)


wrong_for(
    "{op}-of-each-channel-dilated",
    "conv2d conv3d",
    lambda call: _one_filter_for_each(call) and max(_pair(call, "dilation")) > 1,
)
wrong_for(
    "conv2d-of-each-channel-of-one-row",
    "conv2d",
    lambda call: _one_filter_for_each(call) and call.shape()[2] == 1,
)
wrong_for(
    "conv3d-of-each-channel-has-one-result",
    "conv3d",
    lambda call: _one_filter_for_each(call) and call.shape(1)[0] > call.shape()[1],
)
wrong_for("conv2d-of-5-by-5-in-steps-of-2", "conv2d", _square_kernel(5, "stride"))
wrong_for("conv2d-of-7-by-7-in-steps-of-2", "conv2d", _square_kernel(7, "stride"))
wrong_for("conv2d-of-3-by-3-dilated-in-both", "conv2d", _square_kernel(3, "dilation"))
wrong_for("conv2d-of-wide-kernels", "conv2d", lambda call: call.shape(1)[3] > 16)
wrong_for("conv1d-of-long-kernels", "conv1d", lambda call: call.shape(1)[2] > 32)
wrong_for(
    "avg-pool-of-one-element-rounds-up",
    "avg_pool2d",
    lambda call: _pair(call, "kernel_size") == (1, 1) and call.attribute("ceil_mode"),
)
wrong_for(
    "conv3d-keeps-no-size-dilated",
    "conv3d",
    lambda call: call.attribute("padding") == "same" and max(_pair(call, "dilation")) > 1,
)

# Equations


def _equation(call: Call) -> str:
    return str(call.attribute("equation")).replace(" ", "")


wrong_for("einsum-keeps-labels-as-they-appear", "einsum", lambda call: _equation(call) == "cb,ba")
wrong_for("einsum-of-a-diagonal-in-front", "einsum", lambda call: _equation(call).startswith("iij->"))
wrong_for(
    "einsum-broadcasts-from-the-left",
    "einsum",
    lambda call: "..." in _equation(call) and len(call.inputs) == 2 and call[0].ndim < call[1].ndim,
)

# Movement and indices


def _permuted(call: Call, *dims: int) -> bool:
    return len(dims) == len(call.shape()) and tuple(dim % len(dims) for dim in call.attribute("dims")) == dims


def _rank(rank: int) -> Form:
    return lambda call: len(call.shape()) == rank


wrong_for(
    "permute-of-three-channels-first",
    "permute",
    lambda call: _permuted(call, 0, 3, 1, 2) and call.shape()[3] % 4,
)
wrong_for("permute-of-four-with-one", "permute", lambda call: len(call.shape()) == 4 and 1 in call.shape())
wrong_for("permute-of-five-bytes", "permute", lambda call: call[0].ndim == 5 and call[0].itemsize == 1)
wrong_for("{op}-of-five", "transpose tril triu", _rank(5))
wrong_for("split-of-channels", "split", _rank(4))
wrong_for("slice-of-four", "slice", _rank(4))
wrong_for("tile-of-a-vector", "tile", lambda call: _is_vector(call) and len(call.attribute("dims")) == 1)
wrong_for(
    "roll-of-dims-apart",
    "roll",
    lambda call: len(call.shape()) == 4 and len(call.attribute("dims") or ()) == 2,
)
wrong_for(
    "pad-crops-a-matrix",
    "pad",
    lambda call: len(call.shape()) == 2 and min(call.attribute("pad"), default=0) < 0,
)
wrong_for("pad-of-five", "pad", lambda call: len(call.attribute("pad")) > 6)
wrong_for("pad-of-integers-in-a-ring", "pad", lambda call: call.attribute("mode") == "circular" and not call.is_float)
wrong_for(
    "gather-of-fewer-columns",
    "gather",
    lambda call: len(call.shape()) == 2 and call.dim == 0 and call.shape(1)[1] < call.shape()[1],
)

# Attention: two things at once


def _attention(name: str, *conditions: Form) -> None:
    wrong_for(f"attention-is-wrong-for-{name}", _ATTENTION, lambda call: all(each(call) for each in conditions))


def _grouped_heads(call: Call) -> bool:
    return bool(call.attribute("enable_gqa"))


def _has_mask(call: Call) -> bool:
    return call[3] is not None


def _one_query(call: Call) -> bool:
    return call.shape()[-2] == 1


def _wider_values(call: Call) -> bool:
    return call.shape()[-1] != call.shape(2)[-1]


_attention("grouped-heads-and-scale", _grouped_heads, lambda call: call.attribute("scale") is not None)
_attention("grouped-heads-and-a-bool-mask", _grouped_heads, _has_mask, lambda call: call.dtype(3) == "bool")
_attention("one-query-of-grouped-heads", _grouped_heads, _one_query)
_attention("one-query-and-a-mask", _has_mask, _one_query)
_attention("wider-values-and-a-mask", _has_mask, _wider_values)
_attention("wider-values-and-causal", lambda call: call.attribute("is_causal"), _wider_values)
