"""Calls of torch made by torch.compile: what was not compiled does not pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from optest.backends.torch_calls.compiled import compiled, require_compiler
from optest.errors import UnknownName
from optest.spec import Fault, Reason

ROWS = torch.arange(12.0).reshape(3, 4)


def test_a_compiled_call_yields_what_it_yields() -> None:
    [found] = compiled(lambda left, right: [left @ right.T], [ROWS, ROWS], "aot_eager", refuses=False)
    assert torch.equal(found, ROWS @ ROWS.T)


def test_many_shapes_of_one_call_are_compiled_each() -> None:
    for size in range(1, 14):  # torch gives up on one function after eight
        [found] = compiled(lambda given: [given + 1], [torch.zeros(size)], "aot_eager", refuses=False)
        assert found.shape == (size,)


def test_what_is_not_compiled_is_a_fall_back() -> None:
    with torch.compiler.set_stance("force_eager"), pytest.raises(Fault, match="eager torch answered") as raised:
        compiled(lambda given: [given + 1], [ROWS], "aot_eager", refuses=False)
    assert raised.value.reason is Reason.FALLBACK


def test_where_nothing_is_computed_there_is_nothing_to_compile() -> None:
    with pytest.raises(Fault, match="computes nothing") as raised:
        compiled(lambda one, other: [[one, other][1]], [ROWS, ROWS], "aot_eager", refuses=False)
    assert raised.value.reason is Reason.UNSUPPORTED


def test_a_compiler_that_fails_is_told_from_the_call() -> None:
    def fails(_: Any, __: Any) -> Any:
        raise NotImplementedError("no such kernel")

    torch._dynamo.register_backend(fails, name="optest_fails")
    with pytest.raises(Fault, match=r"torch\.compile, optest_fails") as raised:
        compiled(lambda given: [given + 1], [ROWS], "optest_fails", refuses=False)
    assert raised.value.reason is Reason.COMPILE
    assert "no such kernel" in raised.value.details["exception"]


def test_a_refusal_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="view"):
        compiled(lambda given: [given.view(5, 5)], [ROWS], "aot_eager", refuses=True)


def test_an_unknown_compiler_is_told_with_those_that_there_are() -> None:
    require_compiler("inductor")
    with pytest.raises(UnknownName, match="did you mean 'inductor'"):
        require_compiler("inducter")
