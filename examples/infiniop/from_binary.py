"""An operand from a file, for a regression test: python from_binary.py."""

import tempfile
from pathlib import Path

import numpy as np

from optest.infiniop import *
from optest.infiniop.utils import *


def test_from_binary(binary_file):
    tensor = TestTensor.from_binary(
        binary_file=binary_file,
        shape=(1024, 1024),
        strides=(1024, 1),
        dt=InfiniDtype.F16,
        device=InfiniDeviceEnum.CPU,
    )
    print(f"{tensor}: C gets {'an address' if tensor.data() else 'nothing'}")
    print(f"torch computes with {tensor.torch_tensor().dtype}, {tuple(tensor.torch_tensor().shape)}")
    return tensor


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "matmul_input_A.bin"
        np.linspace(-1, 1, 1024 * 1024).astype(np.float16).tofile(file)
        test_from_binary(file)
