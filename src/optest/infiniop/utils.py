"""The seed's ``libinfiniop.utils``: names of other modules, the modules that its scripts use without an import,
timings, and other layouts for the values of a tensor."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.errors import UsageError
from optest.infiniop.arguments import get_args, get_test_devices
from optest.infiniop.comparison import debug, debug_all, get_tolerance, print_discrepancy
from optest.infiniop.devices import get_sync_func, synchronize_device
from optest.infiniop.elements import to_numpy_dtype, to_torch_dtype
from optest.infiniop.liboperators import create_handle, destroy_handle
from optest.infiniop.scope import set_seed, timed
from optest.infiniop.status import check_error
from optest.infiniop.tensors import CTensor, TestTensor, TestWorkspace
from optest.infiniop.testing import filter_tensor_dtypes_by_device, test_operator
from optest.infiniop.torch_bridge import is_torch, to_array, to_tensor, torch
from optest.memory.poisons import Poison
from optest.numerics import Array, dtype_of, empty_storage, view
from optest.spec import TensorSpec
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


def timed_op(func: Callable[[], object], num_iterations: int, device: Any) -> float:
    """The mean seconds of one call. ``device`` is the header's number or torch's name; both synchronise.

    Raises:
        UsageError: for fewer than one iteration.
        UnknownName: for a device that is neither.
    """
    return _mean_s(func, 0, num_iterations, device)


def profile_operation(
    desc: str,
    func: Callable[[], object],
    torch_device: Any,
    NUM_PRERUN: int,  # noqa: N803 - the seed's name
    NUM_ITERATIONS: int,  # noqa: N803
) -> float:
    """Call ``func`` ``NUM_PRERUN`` times, time ``NUM_ITERATIONS`` more, print and return the mean in seconds.

    Raises:
        UsageError: for fewer than one iteration.
        UnknownName: for a device that is neither a number of the header nor torch's name.
    """
    mean_s = _mean_s(func, NUM_PRERUN, NUM_ITERATIONS, torch_device)
    sys.stdout.write(f" {desc} time: {mean_s * 1000:.6f} ms\n")
    return mean_s


def _mean_s(func: Callable[[], object], warm_up: int, iterations: int, device: Any) -> float:
    sync = get_sync_func(device) or _finished
    with timed():
        return seconds_of_calls(func, iterations, warm_up=warm_up, synchronize=sync)


def _finished() -> None:
    """The processor's calls are finished when they return."""


def rearrange_tensor(tensor: Any, new_strides: Sequence[int]) -> Any:
    """The same values in a new storage with these strides, whose gaps are poisoned (NaN for floats), never 0.

    A torch tensor comes back as one (on its device, on which strides cannot be negative), a NumPy array as one.

    Raises:
        UsageError: for strides of another rank; for values that differ where the strides let elements share memory;
            for negative strides of a torch tensor, which torch has not.
    """
    source = to_array(tensor) if is_torch(tensor) else np.asarray(tensor)
    strides = tuple(int(stride) for stride in new_strides)
    arranged = _arranged(source, strides)
    if not is_torch(tensor):
        return arranged
    if any(stride < 0 for stride in strides):
        raise UsageError(f"strides are {list(strides)}, but torch has no negative ones; pass a NumPy array")
    moved = to_tensor(arranged)
    if 0 in strides:
        moved = moved.as_strided(source.shape, strides)
    return moved if tensor.device.type == "cpu" else _on(tensor.device, moved, strides)


def _on(device: Any, moved: Any, strides: tuple[int, ...]) -> Any:
    """A copy to a device is dense; the storage is copied as a whole and viewed again."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(moved.shape, strides, strict=True))
    storage = moved.as_strided((0 if 0 in moved.shape else reach,), (1,)).to(device)
    return storage.as_strided(moved.shape, strides)


def _arranged(source: Array, strides: tuple[int, ...]) -> Array:
    reaches = ((size - 1) * stride for size, stride in zip(source.shape, strides, strict=False))
    lowest = 0 if 0 in source.shape else -sum(min(0, reach) for reach in reaches)
    try:
        spec = TensorSpec(dtype=dtype_of(source.dtype), shape=source.shape, strides=strides, offset=lowest)
    except ValueError as error:
        raise UsageError(str(error)) from None
    storage = empty_storage(spec)
    pattern = Poison.NAN.pattern(spec.dtype)
    storage.view(np.uint8)[...] = np.frombuffer(pattern * storage.size, np.uint8)
    arranged = view(storage, spec)
    np.copyto(arranged, source)
    if np.ascontiguousarray(arranged).tobytes() != np.ascontiguousarray(source).tobytes():
        raise UsageError(f"values differ between elements that share memory (strides {list(strides)})")
    return arranged
