"""gemm of a library, tested as libinfiniop's own tests do: python gemm.py [--cpu] [--debug] [--profile].

INFINI_ROOT names the folder with lib/ and include/.
"""

from optest.infiniop import *
from optest.infiniop.utils import *

args = get_args()
devices = get_test_devices(args)


def test_gemm(handle, device, m, n, k, tensor_dtype, sync_func):
    A = TestTensor((m, k), None, InfiniDtype.F32, device, mode="random")
    B = TestTensor((k, n), None, InfiniDtype.F32, device, mode="random")
    C = TestTensor((m, n), None, InfiniDtype.F32, device, mode="zeros")

    # The header's order: the output first, then the operands.
    descriptor = infiniopOperatorDescriptor_t()
    check_error(
        LIBINFINIOP.infiniopCreateGemmDescriptor(
            handle,
            ctypes.byref(descriptor),
            C.descriptor,
            A.descriptor,
            B.descriptor,
        )
    )

    workspace_size = ctypes.c_size_t()
    check_error(LIBINFINIOP.infiniopGetGemmWorkspaceSize(descriptor, ctypes.byref(workspace_size)))
    workspace = TestWorkspace(workspace_size.value, device)

    def gemm():
        check_error(
            LIBINFINIOP.infiniopGemm(
                descriptor,
                workspace.data(),
                workspace.size(),
                C.data(),
                A.data(),
                B.data(),
                ctypes.c_float(1.0),  # alpha
                ctypes.c_float(0.0),  # beta
                None,  # stream
            )
        )

    gemm()
    if sync_func:
        sync_func()

    expected = torch.matmul(A.torch_tensor(), B.torch_tensor())
    if args.debug:
        debug(C.actual_tensor(), expected, atol=1e-3, rtol=1e-2)
    else:
        torch.testing.assert_close(C.actual_tensor(), expected, rtol=1e-2, atol=1e-3)

    if args.profile:
        profile_operation("library", gemm, device, args.num_prerun, args.num_iterations)
        profile_operation(
            "torch",
            lambda: torch.matmul(A.torch_tensor(), B.torch_tensor()),
            device,
            args.num_prerun,
            args.num_iterations,
        )

    check_error(LIBINFINIOP.infiniopDestroyGemmDescriptor(descriptor))


test_cases = [
    (128, 256, 512),  # m, n, k
    (1, 1, 1),
    (64, 128, 256),
]

if __name__ == "__main__":
    for device in devices:
        test_operator(device, test_gemm, test_cases, [torch.float32])
