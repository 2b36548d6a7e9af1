"""Operators of ``torch.ops`` that a model calls, its own among them, and functions of functions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
from capture_kit import call_of, entries_of, recorded  # noqa: E402

pytestmark = pytest.mark.torch


def _bump(x: torch.Tensor, y: torch.Tensor) -> None:
    x.add_(y)


LIBRARY = torch.library.Library("optest_captured", "DEF")
LIBRARY.define("scale(Tensor x, float by) -> Tensor")
LIBRARY.define("bump(Tensor(a!) x, Tensor y) -> ()")
LIBRARY.impl("scale", lambda x, by: x * by, "CPU")
LIBRARY.impl("bump", _bump, "CPU")
scale, bump = torch.ops.optest_captured.scale.default, torch.ops.optest_captured.bump.default

X, Y = torch.rand(2, 3), torch.rand(2, 3)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: torch.ops.aten.add(X, Y), "torch.ops.aten.add(2x3, 2x3)"),
        (lambda: torch.ops.aten.add.Tensor(X, Y), "torch.ops.aten.add.Tensor(2x3, 2x3)"),
        (lambda: torch.ops.optest_captured.scale(X, 0.5), "torch.ops.optest_captured.scale(2x3, 0.5)"),
        (lambda: scale(X, 0.5), "torch.ops.optest_captured.scale.default(2x3, 0.5)"),
        (lambda: bump(X.clone(), Y), "torch.ops.optest_captured.bump.default(2x3, 2x3)"),
    ],
)
def test_operators_have_the_names_of_torch_ops(function: Callable[[], object], text: str) -> None:
    inner = [entry for entry in entries_of(function) if entry["op"] not in ("torch.Tensor.clone", "torch.clone")]
    assert [entry["op"] for entry in inner] == [text.partition("(")[0]]
    if "bump" not in text:
        assert call_of(function) == text


def test_what_changes_its_arguments_and_returns_nothing_is_a_case() -> None:
    several = [torch.rand(2), torch.rand(3)]
    assert call_of(lambda: torch._foreach_add_(several, 1.0)) == "torch._foreach_add_([2, 3], 1.0)"


def test_cases_of_ones_own_operators_are_called_by_them() -> None:
    (case,) = recorded(lambda: scale(X, 0.5)).cases()
    assert case["name"] == "optest_captured.scale.default.1"


@pytest.mark.parametrize("pattern", ["scale", "torch.ops.optest_captured.*"])
def test_an_operator_is_asked_for_by_its_name(pattern: str) -> None:
    assert len(entries_of(lambda: (scale(X, 0.5), torch.ops.aten.add(X, Y)), ops=(pattern,))) == 1


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_same_of_the_dispatcher() -> None:
    """What it is asked for first takes torch some seconds."""
    ops = [entry["op"] for entry in entries_of(lambda: bump(torch.rand(2), torch.ones(2)), "aten")]
    assert "torch.ops.optest_captured.bump.default" in ops
    assert len(entries_of(lambda: (scale(X, 0.5), torch.add(X, Y)), "aten", ops=("add",))) == 1
    found = recorded(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "aten")
    assert any("nested" in reason for _, reason in found.left_out)


@pytest.mark.heavy
@pytest.mark.parametrize("level", ["torch", "aten"])
def test_a_function_of_functions_keeps_nothing_else_from_being_captured(level: str) -> None:
    found = recorded(lambda: torch.cond(X.sum() > 0, lambda t: t + 1, lambda t: t - 1, (X,)), level)
    assert any(case["op"].endswith(("sum", "sum.default")) for case in found.cases())
