"""libinfiniop from Python, by the names of its own test layer; docs/c-libraries/infiniop.md says what each does here.

Nothing is loaded at import: neither the library, which opens when it is first used, nor torch.
"""

from __future__ import annotations

from optest.infiniop.datatypes import InfiniDtype, InfiniDtypeNames
from optest.infiniop.devices import (
    InfiniDeviceEnum,
    InfiniDeviceNames,
    infiniDeviceEnum_str_map,
    torch_device_map,
)
from optest.infiniop.liboperators import LIBINFINIOP, InfiniLib, open_lib
from optest.infiniop.op_register import OpRegister
from optest.infiniop.structs import (
    Handle,
    OpDescriptor,
    TensorDescriptor,
    infiniopHandle_t,
    infiniopOperatorDescriptor_t,
    infiniopTensorDescriptor_t,
)
from optest.infiniop.utils import (
    CTensor,
    TestTensor,
    TestWorkspace,
    check_error,
    create_handle,
    debug,
    debug_all,
    destroy_handle,
    filter_tensor_dtypes_by_device,
    get_args,
    get_sync_func,
    get_test_devices,
    get_tolerance,
    print_discrepancy,
    profile_operation,
    rearrange_tensor,
    set_seed,
    synchronize_device,
    test_operator,
    timed_op,
    to_numpy_dtype,
    to_torch_dtype,
)

__all__ = [
    "LIBINFINIOP",
    "CTensor",
    "Handle",
    "InfiniDeviceEnum",
    "InfiniDeviceNames",
    "InfiniDtype",
    "InfiniDtypeNames",
    "InfiniLib",
    "OpDescriptor",
    "OpRegister",
    "TensorDescriptor",
    "TestTensor",
    "TestWorkspace",
    "check_error",
    "create_handle",
    "debug",
    "debug_all",
    "destroy_handle",
    "filter_tensor_dtypes_by_device",
    "get_args",
    "get_sync_func",
    "get_test_devices",
    "get_tolerance",
    "infiniDeviceEnum_str_map",
    "infiniopHandle_t",
    "infiniopOperatorDescriptor_t",
    "infiniopTensorDescriptor_t",
    "open_lib",
    "print_discrepancy",
    "profile_operation",
    "rearrange_tensor",
    "set_seed",
    "synchronize_device",
    "test_operator",
    "timed_op",
    "to_numpy_dtype",
    "to_torch_dtype",
    "torch_device_map",
]
