"""The usual loop around a C operator library: ctypes, torch tensors, the four calls, a comparison.

As a program, `python benchmarks/bare_add_loop.py LIBRARY COUNT`, it imports only ctypes and torch.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path

import torch

SHAPES = ((13, 4), (13, 4, 4), (16, 64), (4, 4, 8))
"""Small shapes, as in the predecessor's tests: the time around a call is measured."""


class BareLoop:
    """A library with a handle, and cases of ``add``."""

    def __init__(self, library: Path) -> None:
        ctypes.CDLL(str(library / "lib" / "libinfinirt.so"), mode=ctypes.RTLD_GLOBAL)
        self.lib = ctypes.CDLL(str(library / "lib" / "libinfiniop.so"))
        self.handle = ctypes.c_void_p()
        self._require(self.lib.infiniopCreateHandle(ctypes.byref(self.handle)))

    def _require(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"status {status}")

    def _descriptor(self, tensor: torch.Tensor) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        rank = tensor.dim()
        shape = (ctypes.c_size_t * rank)(*tensor.shape)
        strides = (ctypes.c_ssize_t * rank)(*tensor.stride())
        self._require(
            self.lib.infiniopCreateTensorDescriptor(ctypes.byref(descriptor), ctypes.c_size_t(rank), shape, strides, 13)
        )
        return descriptor

    def case(self, shape: tuple[int, ...], compare: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        lib = self.lib
        a, b, c = torch.rand(shape), torch.rand(shape), torch.zeros(shape)
        descriptors = [self._descriptor(tensor) for tensor in (c, a, b)]
        operator = ctypes.c_void_p()
        self._require(lib.infiniopCreateAddDescriptor(self.handle, ctypes.byref(operator), *descriptors))
        size = ctypes.c_size_t()
        self._require(lib.infiniopGetAddWorkspaceSize(operator, ctypes.byref(size)))
        workspace = torch.zeros(size.value, dtype=torch.uint8) if size.value else None
        pointer = ctypes.c_void_p(workspace.data_ptr() if workspace is not None else None)
        data = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (c, a, b)]
        self._require(lib.infiniopAdd(operator, pointer, size, *data, None))
        compare(c, torch.add(a, b))
        self._require(lib.infiniopDestroyAddDescriptor(operator))
        for descriptor in descriptors:
            self._require(lib.infiniopDestroyTensorDescriptor(descriptor))

    def run(self, count: int, compare: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        for number in range(count):
            self.case(SHAPES[number % len(SHAPES)], compare)


def by_allclose(actual: torch.Tensor, desired: torch.Tensor) -> None:
    assert torch.allclose(actual, desired, atol=0, rtol=1e-7)


def by_assert_close(actual: torch.Tensor, desired: torch.Tensor) -> None:
    torch.testing.assert_close(actual, desired)


if __name__ == "__main__":
    torch.set_num_threads(1)
    BareLoop(Path(sys.argv[1])).run(int(sys.argv[2]), by_assert_close)
