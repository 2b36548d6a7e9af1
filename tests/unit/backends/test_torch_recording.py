"""Recorded torch calls: the lines that outputs need, in order, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from texts import refusal

torch = pytest.importorskip("torch")

from optest.torch.scripts import Recording, Unwritable  # noqa: E402 - needs torch

pytestmark = pytest.mark.torch


def lines_of(function: Callable[[Any], Any], tensor: Any = None) -> tuple[list[str], list[str]]:
    given = torch.arange(12.0).reshape(3, 4) if tensor is None else tensor
    recording = Recording({"x": given}, torch.device("cpu"))
    output = recording.record(lambda: function(given))
    outputs = output if isinstance(output, tuple) else (output,)
    lines, expressions = recording.lines(outputs)
    names = {"torch": torch, "x": given.clone()}
    exec("\n".join(lines), names)
    for expression, want in zip(expressions, outputs, strict=True):
        assert torch.equal(eval(expression, names), want)
    return lines, expressions


def test_methods_operators_and_attributes() -> None:
    assert lines_of(lambda x: x.t() @ x) == (["t0 = x.t()", "out = t0.matmul(x)"], ["out"])
    assert lines_of(lambda x: (2 - x).to(torch.float16))[0][-1] == "out = t0.to(torch.float16)"
    assert lines_of(lambda x: x[1:, None, ..., ::2])[0] == [
        "out = x[(slice(1, None, None), None, ..., slice(None, None, 2))]"
    ]
    assert lines_of(lambda x: x.T.contiguous())[0] == ["t0 = x.T", "out = t0.contiguous()"]


def test_unneeded_calls_are_left_out() -> None:
    def function(x: Any) -> Any:
        torch.exp(x)
        assert x.dtype == torch.float32
        torch.result_type(x, x)
        return torch.neg(x + 1)

    assert lines_of(function)[0] == ["t1 = x.add(1)", "out = torch.neg(t1)"]


def test_inplace_changes_are_kept() -> None:
    def function(x: Any) -> Any:
        out = torch.zeros(3, 4)
        other = torch.ones(3)
        other.mul_(2)
        out[1] = 5
        out.add_(x)
        return out

    def through_view(x: Any) -> Any:
        out = x.clone()
        out.t()[1] = 5
        return out

    assert lines_of(function)[0] == ["t0 = torch.zeros(3, 4)", "t0[1] = 5", "t0.add_(x)"]
    assert lines_of(through_view)[0] == ["t0 = x.clone()", "t1 = t0.t()", "t1[1] = 5"]


def test_arguments_are_written() -> None:
    assert len(lines_of(torch.nn.functional.normalize)[0]) == 1  # out=None changes nothing
    lines, _ = lines_of(lambda x: torch.clamp(x, float("-inf"), 3.5))
    assert lines == ['out = torch.clamp(x, float("-inf"), 3.5)']


def test_outputs_and_their_parts_have_expressions() -> None:
    assert lines_of(lambda x: tuple(torch.topk(x, 2, dim=1))) == (
        ["t0 = torch.topk(x, 2, dim=1)"],
        ["t0[0]", "t0[1]"],
    )
    assert lines_of(lambda x: torch.split(x, 2)[1] * 2)[0] == [
        "t0 = torch.functional.split(x, 2, dim=0)",
        "out = t0[1].mul(2)",
    ]
    assert lines_of(lambda x: x) == ([], ["x"])


def test_raising_and_unwritable_calls() -> None:
    x = torch.arange(3.0)
    recording = Recording({"x": x}, torch.device("cpu"))
    foreign = torch.arange(100.0)
    out = recording.record(lambda: torch.add(x.sum(), foreign))
    with refusal(Unwritable, "backends.torch_add_has_an"):
        recording.lines((out,))
    x = torch.arange(3)
    recording = Recording({"x": x}, torch.device("cpu"))
    with pytest.raises(RuntimeError):
        recording.record(lambda: torch.matmul(torch.neg(x), torch.ones(5, 5)))
    lines, outputs = recording.lines(None)
    assert lines == ["t0 = torch.neg(x)", "t1 = torch.ones(5, 5)", "torch.matmul(t0, t1)"]
    assert outputs == []
    with pytest.raises(Unwritable, match="before the error"):
        Recording({"x": x}, torch.device("cpu")).lines(None)


def test_meta_device_is_replaced() -> None:
    x = torch.empty(3, device="meta")
    recording = Recording({"x": x}, torch.device("cuda:1"))
    out = recording.record(lambda: torch.add(x, torch.ones(3, device=x.device)))
    lines, _ = recording.lines((out,))
    assert lines[0] == 't0 = torch.ones(3, device=torch.device("cuda:1"))'
