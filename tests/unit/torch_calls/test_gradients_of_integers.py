"""Calls asked for gradients that are given nothing that could have one."""

from __future__ import annotations

import pytest
from torch_kit import case, tensor, verdict

from optest.spec import Status

pytestmark = pytest.mark.torch


def test_a_call_without_floating_inputs_is_judged_by_its_results() -> None:
    """Numbers and integers have no gradient, so there is nothing that could say which of them exist."""
    for text, *given in (
        ("torch.linspace(0, 1, 5)",),
        ("torch.linspace(input0, 3, 5)", tensor((), "int64", "ones")),
        ("torch.add(input0, input0)", tensor(4, "int64", "arange")),
    ):
        found = verdict(case(text, *given, grad=True))
        assert found.status is Status.PASSED, found
        assert [measure.output for measure in found.measures] == ["output0"]
