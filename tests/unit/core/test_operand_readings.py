"""0-d operands next to tensors of a narrower dtype: rounded or not, both readings are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_kit import planned_case, verdict_of

from optest.backends import BackendDriver
from optest.backends.numpy_reference import NumpyBackend
from optest.core.results import result_of
from optest.numerics import numpy_dtype
from optest.reporting.explain import explanation_of
from optest.spec import CheckState, Reason, Status, TestCase, dtype

SIZE = 400
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "fmod": np.fmod,
    "remainder": np.remainder,
    "maximum": np.maximum,
    "lt": np.less,
}
PAIRS = [("float64", "float32"), ("float32", "float16"), ("float32", "bfloat16"), ("int64", "float16")]


class Kernel(BackendDriver):
    """Driver that computes in float32 and rounds once; operands are first rounded to ``read``, if given."""

    name, kind = "kernel", "cpu"

    def __init__(self, read: str | None, off: float = 1.0) -> None:
        self.read, self.off = read, off

    def run(self, case: TestCase, inputs: Sequence[Any]) -> list[Any]:
        function = FUNCTIONS[case.descriptor.name]
        operands = [each if self.read is None else each.astype(numpy_dtype(dtype(self.read))) for each in inputs]
        with np.errstate(all="ignore"):
            found = function(*(each.astype(np.float64) for each in operands))
        found = found if found.dtype == np.bool_ else (found * self.off).astype(np.float32)
        return [np.asarray(found).astype(numpy_dtype(case.outputs[0].dtype))]


def case_of(op: str, dtypes: Sequence[str], scalar: int | None, folder: Path, **attributes: str) -> TestCase:
    names = ("input0", "input1")
    fill = {"fill": "uniform", "low": 1.0, "high": 4.0}
    fills = {
        name: {"fill": "randint", "low": 2049, "high": 4000} if each == "int64" else fill
        for name, each in zip(names, dtypes, strict=True)
    }
    shapes = {name: [] if index == scalar else [SIZE] for index, name in enumerate(names)}
    return planned_case(folder, op, list(dtypes), shapes=shapes, generator=fills, attributes=attributes)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("scalar", "tensor"), PAIRS)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_scalar_operand(op: str, scalar: str, tensor: str, place: int, tmp_path: Path) -> None:
    case = case_of(op, (scalar, tensor) if place == 0 else (tensor, scalar), place, tmp_path)
    for driver in (Kernel(None), Kernel(tensor), NumpyBackend()):
        found = verdict_of(driver, case)
        assert found.status is Status.PASSED, found.message
    if op != "lt":
        assert verdict_of(Kernel(tensor, off=1.01), case).status is Status.FAILED


@pytest.mark.torch
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(("scalar", "tensor"), PAIRS[:3])
@pytest.mark.parametrize("op", [*FUNCTIONS, "pow", "floor_divide", "minimum", "eq"])
def test_scalar_operand_of_torch(op: str, scalar: str, tensor: str, place: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from optest.torch.eager import TorchBackend

    case = case_of(op, (scalar, tensor) if place == 0 else (tensor, scalar), place, tmp_path)
    found = verdict_of(TorchBackend(), case)
    excused = op == "floor_divide" and tensor != "float32"  # a line of torch's expectations
    assert found.status is Status.PASSED or excused, found.message


@pytest.mark.torch
@pytest.mark.parametrize(("scalar", "tensor"), PAIRS[:3])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "fmod", "remainder", "pow"])
def test_scalar_operand_of_a_torch_call(op: str, scalar: str, tensor: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from optest.torch.eager import TorchBackend

    call = {"call": f"torch.{op}(input0, input1)"}
    found = verdict_of(TorchBackend(), case_of(f"torch.{op}", (scalar, tensor), 0, tmp_path, **call))
    assert found.status is Status.PASSED, found.message


def test_note_of_a_reading(tmp_path: Path) -> None:
    case = case_of("sub", ("float32", "float16"), 0, tmp_path)
    notes = [
        [check.detail for check in verdict_of(Kernel(read), case).checks if check.state is CheckState.NOTE]
        for read in (None, "float16")
    ]
    assert not any("rounded" in note for note in notes[0])
    assert any("rounded to float16" in note for note in notes[1])


def test_integer_tensors_are_rounded(tmp_path: Path) -> None:
    """A kernel that does not round them is wrong, and is not reported as rounding too often."""
    case = case_of("mul", ("int64", "float16"), None, tmp_path)
    assert verdict_of(Kernel("float16"), case).status is Status.PASSED
    found = verdict_of(Kernel(None), case)
    assert (found.status, found.reason) == (Status.FAILED, Reason.VALUE)
    assert "not rounded to float16" in found.details["integer_operands"]
    result = result_of(case, found)
    assert not explanation_of(result).hints
    assert explanation_of(replace(result, verdict=replace(found, details={}))).hints


def test_tensor_of_one_element_widens(tmp_path: Path) -> None:
    """One dimension of size 1 is a tensor, whose dtype counts."""
    case = planned_case(tmp_path, "add", ["float64", "float32"], shapes={"input0": [1], "input1": [9]})
    assert verdict_of(NumpyBackend(), case).status is Status.PASSED
    assert verdict_of(Kernel("float32"), case).status is Status.FAILED
