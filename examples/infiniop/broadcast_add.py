"""add with an operand that is broadcast by a stride of 0: python broadcast_add.py."""

from optest.infiniop import *
from optest.infiniop.utils import *


def test_broadcast_add():
    handle = create_handle()
    device = InfiniDeviceEnum.CPU

    # 3 x 1 broadcast to 3 x 4: the shape is that of the result, and the stride of the repeated axis is 0.
    A = TestTensor((3, 4), [1, 0], InfiniDtype.F32, device, mode="random")
    B = TestTensor((3, 4), None, InfiniDtype.F32, device, mode="random")
    C = TestTensor((3, 4), None, InfiniDtype.F32, device, mode="zeros")
    assert A.is_broadcast()

    descriptor = infiniopOperatorDescriptor_t()
    check_error(
        LIBINFINIOP.infiniopCreateAddDescriptor(
            handle, ctypes.byref(descriptor), C.descriptor, A.descriptor, B.descriptor
        )
    )
    # The library has copied them, and may not look at them again.
    for tensor in (A, B, C):
        tensor.destroy_desc()
    size = ctypes.c_size_t()
    check_error(LIBINFINIOP.infiniopGetAddWorkspaceSize(descriptor, ctypes.byref(size)))
    workspace = TestWorkspace(size.value, device)
    check_error(
        LIBINFINIOP.infiniopAdd(descriptor, workspace.data(), workspace.size(), C.data(), A.data(), B.data(), None)
    )

    expected = A.torch_tensor() + B.torch_tensor()
    debug(C.actual_tensor(), expected, rtol=1e-6)
    for tensor in (A, B):
        tensor.check_unchanged()
    C.check_guards()

    check_error(LIBINFINIOP.infiniopDestroyAddDescriptor(descriptor))
    destroy_handle(handle)


if __name__ == "__main__":
    test_broadcast_add()
