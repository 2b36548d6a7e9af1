"""Names of the seed's ``libinfiniop.utils``, with the modules that its scripts use without importing them."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.errors import UsageError
from optest.infiniop.comparison import debug, debug_all, get_tolerance, print_discrepancy
from optest.infiniop.datatypes import to_numpy_dtype, to_torch_dtype
from optest.infiniop.devices import get_sync_func, synchronize_device
from optest.infiniop.liboperators import check_error, create_handle, destroy_handle
from optest.infiniop.scope import set_seed, timed
from optest.infiniop.tensors import CTensor, TestTensor, TestWorkspace
from optest.infiniop.testing import filter_tensor_dtypes_by_device, get_args, get_test_devices, test_operator
from optest.infiniop.torch_bridge import is_torch, to_array, to_tensor, torch
from optest.infiniop.values import TensorMemory, layout_of
from optest.memory.buffers import Buffer
from optest.memory.poisons import Poison
from optest.numerics import dtype_of
from optest.timing import seconds_of_calls

__all__ = [
    "CTensor",
    "TestTensor",
    "TestWorkspace",
    "check_error",
    "create_handle",
    "ctypes",
    "debug",
    "debug_all",
    "destroy_handle",
    "filter_tensor_dtypes_by_device",
    "get_args",
    "get_sync_func",
    "get_test_devices",
    "get_tolerance",
    "print_discrepancy",
    "profile_operation",
    "rearrange_tensor",
    "set_seed",
    "synchronize_device",
    "test_operator",
    "timed_op",
    "to_numpy_dtype",
    "to_torch_dtype",
    "torch",
]


def timed_op(func: Callable[[], object], num_iterations: int, device: Any, *, warm_up: int = 0) -> float:
    """Return the mean seconds of one call, with ``device`` synchronised; raise UsageError without iterations."""
    synchronize = get_sync_func(device) or (lambda: None)
    with timed():
        return seconds_of_calls(func, num_iterations, warm_up=warm_up, synchronize=synchronize)


def profile_operation(
    desc: str,
    func: Callable[[], object],
    torch_device: Any,
    NUM_PRERUN: int,  # noqa: N803 - the seed's name
    NUM_ITERATIONS: int,  # noqa: N803
) -> float:
    """Call ``func`` ``NUM_PRERUN`` times, time ``NUM_ITERATIONS`` more; print and return the mean in seconds."""
    mean_s = timed_op(func, NUM_ITERATIONS, torch_device, warm_up=NUM_PRERUN)
    sys.stdout.write(f" {desc} time: {mean_s * 1000:.6f} ms\n")
    return mean_s


def rearrange_tensor(tensor: Any, new_strides: Sequence[int]) -> Any:
    """Copy values to a new storage with these strides; return a torch tensor or a NumPy array, as the input is.

    Gaps are poisoned: NaN for floats, never 0. Raise UsageError for strides of another rank, for values that differ
    where strides let elements share memory, and for negative strides of a torch tensor, which torch lacks.
    """
    source = to_array(tensor) if is_torch(tensor) else np.asarray(tensor)
    strides = tuple(int(stride) for stride in new_strides)
    memory = TensorMemory(Buffer.allocate(layout_of(dtype_of(source.dtype), source.shape, strides), poison=Poison.NAN))
    memory.put(source)
    result = memory.buffer.array
    if not is_torch(tensor):
        return result
    if any(stride < 0 for stride in strides):
        raise UsageError(f"strides are {list(strides)}, expected 0 or more for a torch tensor; pass a NumPy array")
    return to_tensor(result, tensor.device)
