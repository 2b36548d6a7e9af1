"""Python interface to libinfiniop, with the names of its test layer; see docs/c-libraries/infiniop.md.

Importing it loads neither torch nor the library, which opens at its first use.
"""

from __future__ import annotations

from optest.infiniop import utils
from optest.infiniop.datatypes import InfiniDtype, InfiniDtypeNames
from optest.infiniop.devices import InfiniDeviceEnum, InfiniDeviceNames, infiniDeviceEnum_str_map, torch_device_map
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
from optest.infiniop.utils import *  # noqa: F403 - as the seed's package does

__all__ = [
    "LIBINFINIOP",
    "Handle",
    "InfiniDeviceEnum",
    "InfiniDeviceNames",
    "InfiniDtype",
    "InfiniDtypeNames",
    "InfiniLib",
    "OpDescriptor",
    "OpRegister",
    "TensorDescriptor",
    "infiniDeviceEnum_str_map",
    "infiniopHandle_t",
    "infiniopOperatorDescriptor_t",
    "infiniopTensorDescriptor_t",
    "open_lib",
    "torch_device_map",
]
__all__ += utils.__all__
