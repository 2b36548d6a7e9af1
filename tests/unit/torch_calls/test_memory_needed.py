"""The memory that a case needs, and the most elements that its outputs may have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch_kit import case, tensor

from optest.spec import TensorSpec, dtype
from optest.torch.calls import memory_needed
from optest.torch.calls.call import torch_call
from optest.torch.calls.memory_needed import available_bytes, elements_at_most, why_too_large


@pytest.mark.parametrize(
    ("shape", "most", "said"),
    [
        ((2, 3), 10, "too large: it needs about 120 bytes of memory, but --max-bytes is 10 bytes"),
        ((20, 30), 2**11, "too large: it needs about 11.7 KiB of memory, but --max-bytes is 2.0 KiB"),
        ((2000, 300), 2**20, "too large: it needs about 11.4 MiB of memory, but --max-bytes is 1.0 MiB"),
        ((2000, 30_000), 2**30, "too large: it needs about 1.1 GiB of memory, but --max-bytes is 1.0 GiB"),
        ((2, 3), 2**20, None),
    ],
)
def test_a_limit_is_told_in_its_own_unit(shape: tuple[int, ...], most: int, said: str | None) -> None:
    assert why_too_large(case("torch.abs(input0)", tensor(shape)), most) == said


def test_the_limit_follows_the_memory_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, limit in ((None, 2 << 30), (3 << 30, 2 << 30), (24 << 30, 12 << 30)):
        monkeypatch.setattr(memory_needed, "available_bytes", lambda available=available: available)
        assert memory_needed.default_limit() == limit


def test_available_memory_is_part_of_total() -> None:
    left = available_bytes()
    assert 2**20 < left <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


ATTENTION = "torch.nn.functional.scaled_dot_product_attention(input0, input1, input2)"
KNOWN = {
    "torch.add(input0, input1)": [(3, 1), (1, 5)],
    "torch.mul(input0, 2.0)": [(3, 4)],
    "torch.truediv(input0, input1)": [(7, 1), (1, 7)],
    "torch.add_(input0, input1)": [(3, 4), (4,)],
    "torch.sum(input0)": [(3, 4)],
    "torch.max(input0, 1)": [(3, 4)],
    "torch.mean(input0, -1, keepdim=True)": [(3, 4)],
    "torch.cat([input0, input1], 0)": [(3, 4), (5, 4)],
    "torch.nn.functional.softmax(input0, -1)": [(3, 4)],
    "torch.ops.aten.cos.default(input0)": [(3, 4)],
    "torch.where(input0, input1, 0.0)": [(3, 1), (1, 4)],
    ATTENTION: [(1, 4, 3, 8), (1, 4, 9, 8), (1, 4, 9, 16)],
    "torch.matmul(input0, input1)": [(2, 1, 3, 4), (5, 4, 7)],
    "torch.bmm(input0, input1)": [(2, 3, 4), (2, 4, 7)],
    "torch.nn.functional.linear(input0, input1, input2)": [(2, 3, 4), (7, 4), (7,)],
}
NOT_KNOWN = {
    "torch.einsum('ij,jk->ik', input0, input1)": [(3, 4), (4, 5)],
    "torch.matmul(input0, input1)": [(3, 0), (0, 5)],
    "torch.repeat(input0, 1000, 1000)": [(3, 4)],
    "torch.zeros(100000, 100000)": [],
    "torch.Tensor.expand(input0, 1000, 3, 4)": [(3, 4)],
    "torch.nn.functional.pad(input0, [9, 9])": [(3, 4)],
    ATTENTION: [(1, 3, 8), (9, 9, 8), (9, 9, 8)],
    "torch.getitem(input0, input1)": [(3, 4), (100,)],
}


def specs(shapes: list[tuple[int, ...]], first: str = "float32") -> list[TensorSpec]:
    kinds = [first] + ["float32"] * len(shapes)
    return [TensorSpec(dtype=dtype(kind), shape=shape) for kind, shape in zip(kinds, shapes, strict=False)]


@pytest.mark.parametrize("text", KNOWN)
def test_no_output_has_more(text: str) -> None:
    shapes = KNOWN[text]
    most = elements_at_most(text, specs(shapes))
    tensors = [
        torch.ones(shape, dtype=torch.bool if "where" in text and not at else None) for at, shape in enumerate(shapes)
    ]
    leaves = torch_call(text).on(tensors, torch.device("cpu"))()
    assert most is not None
    assert max(leaf.numel() for leaf in leaves) <= most


@pytest.mark.parametrize("text", NOT_KNOWN)
def test_what_may_have_more_is_not_known(text: str) -> None:
    assert elements_at_most(text, specs(NOT_KNOWN[text])) is None


def test_no_element_by_element_operator_yields_more() -> None:
    """Of all that torch calls so: those that take tensors alone and can be made are made."""
    made = 0
    for name in dir(torch):
        shapes = [(3, 1), (1, 5)]
        text = f"torch.{name}(input0, input1)"
        try:
            most = elements_at_most(text, specs(shapes))
            leaves = torch_call(text).on([torch.ones(shape) for shape in shapes], torch.device("cpu"))()
        except Exception:  # no function of two tensors
            continue
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if most is not None:
            made += 1
            assert all(leaf.numel() <= most for leaf in tensors), name
    assert made > 30


SCRIPT = """
import sys
from optest.api import cases
from optest.torch.eager import TorchBackend
from optest.backends.function import FunctionBackend
from optest.core.runner import execute, why_not_run
driver = TorchBackend()
driver.configure({})
(case,) = cases(plan="m.yaml")
assert why_not_run(case, driver) is None
assert execute([case], driver).verdicts[0].status.value == "passed"
(case,) = cases(plan="f.yaml")
assert execute([case], FunctionBackend()).verdicts[0].status.value == "passed"
assert "torch._dynamo" not in sys.modules
"""
ADD = "{name: add, op: torch.add, inputs: [{tensor: {shape: [3, 4]}}, {tensor: {shape: [3, 4]}}]}"
RELU = "{op: relu, shapes: {input0: 3x4}, backend_config: {function: {relu: 'torch:relu'}}}"


@pytest.mark.heavy
def test_a_plain_call_loads_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(f"model: m\ncases:\n  - {ADD}\n")
    (tmp_path / "f.yaml").write_text(f"cases: [{RELU}]\n")
    command = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
