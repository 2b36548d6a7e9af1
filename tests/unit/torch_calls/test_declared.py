"""Which share of torch's operators was asked for: a function, its method and its in-place form are one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from optest.torch.calls.names import declared_operators

ONE_OF_THEM = "torch.add", "torch.add_", "torch.Tensor.add", "torch.getitem", "torch.ops.aten.view", "torch.truediv"
NONE_OF_THEM = "torch.zeros", "torch.arange", "torch.ops.vendor.view", "torch.nonsense"


def test_every_form_of_an_operator_is_one_that_torch_declares() -> None:
    count, others = declared_operators([*ONE_OF_THEM, *NONE_OF_THEM, "torch.nn.functional.linear"])
    assert others == sorted(NONE_OF_THEM)
    assert 500 < count < 2000
