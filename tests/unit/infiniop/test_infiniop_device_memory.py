"""The image of a guarded buffer on a torch device; the CPU serves as the device."""

from __future__ import annotations

import numpy as np
import pytest

from optest.infiniop.values import TensorMemory
from optest.memory.buffers import Buffer
from optest.numerics import view
from optest.spec import TensorSpec, dtype

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("strides", "offset"), [((9, 2), 3), ((1, 3), 0), ((0, 1), 0), ((-4, 1), 8)])
def test_device_writes_are_fetched_with_guards(strides, offset) -> None:
    spec = TensorSpec(dtype=dtype("bfloat16"), shape=(3, 4), strides=strides, offset=offset)
    memory = TensorMemory(Buffer.allocate(spec, name="y"), "cpu")
    values = view(np.arange(spec.storage_elements).astype("float32").astype(memory.buffer.array.dtype), spec)
    memory.put(values)
    assert memory.address != memory.buffer.address
    assert np.array_equal(memory.fetch().array, values)
    tensor = memory.tensor()
    assert tensor.float().tolist() == values.astype(np.float32).tolist()
    if min(strides) >= 0:
        assert tensor.data_ptr() == memory.address
        tensor[1, 2] = -1
        assert float(memory.fetch().array[1, 2]) == -1
        assert memory.fetch().outside() is None
        memory._bytes[memory.buffer.region.end] ^= 1
        assert memory.fetch().outside().place == "behind"
