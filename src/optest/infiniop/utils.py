"""The seed's ``libinfiniop.utils``: names of other modules, and the modules that its scripts use without an import."""

from __future__ import annotations

import ctypes

from optest.infiniop.arguments import get_args, get_test_devices
from optest.infiniop.arranging import rearrange_tensor
from optest.infiniop.comparison import debug, debug_all, get_tolerance, print_discrepancy
from optest.infiniop.devices import get_sync_func, synchronize_device
from optest.infiniop.elements import to_numpy_dtype, to_torch_dtype
from optest.infiniop.handles import create_handle, destroy_handle
from optest.infiniop.scope import set_seed
from optest.infiniop.status import check_error
from optest.infiniop.tensors import CTensor, TestTensor, TestWorkspace
from optest.infiniop.testing import filter_tensor_dtypes_by_device, test_operator
from optest.infiniop.timings import profile_operation, timed_op
from optest.infiniop.torch_bridge import torch

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
