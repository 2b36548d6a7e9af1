"""A byte of an output file that stands for no element is not read as one by leaving bits out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from handmade import command_case

from optest.backends import _BUILTINS, BackendManager, Fault, Reason
from optest.numerics import numpy_dtype
from optest.spec import dtype


def read(place: Path, kind: str, content: bytes) -> list[int]:
    (place / "made.bin").write_bytes(content)
    case = command_case(kind=kind, config={"command": ["cp", "made.bin", "{output0}"]}, base_dir=str(place))
    given = np.zeros((2, 3), dtype=numpy_dtype(dtype(kind)))
    (output,) = BackendManager(_BUILTINS).get("command").run(case, [given, given])
    return [int(each) for each in output.reshape(-1)]


@pytest.mark.parametrize(
    ("kind", "content", "values"),
    [
        ("int4", bytes([0, 1, 7, 0x08, 0x0F, 0x0A]), [0, 1, 7, -8, -1, -6]),
        ("int4", bytes([0, 1, 7, 0xF8, 0xFF, 0xFA]), [0, 1, 7, -8, -1, -6]),
        ("uint4", bytes([0, 1, 7, 8, 15, 10]), [0, 1, 7, 8, 15, 10]),
        ("bool", bytes([0, 1, 1, 0, 0, 1]), [0, 1, 1, 0, 0, 1]),
    ],
)
def test_bytes_that_are_elements(tmp_path: Path, kind: str, content: bytes, values: list[int]) -> None:
    assert read(tmp_path, kind, content) == values


@pytest.mark.parametrize(
    ("kind", "byte"),
    [("int4", 0x13), ("int4", 0x83), ("int4", 0xF7), ("uint4", 0x10), ("uint4", 0xFF), ("bool", 2), ("bool", 0xFF)],
)
def test_bytes_that_are_none(tmp_path: Path, kind: str, byte: int) -> None:
    with pytest.raises(Fault) as caught:
        read(tmp_path, kind, bytes([0, 1, 1, byte, 0, byte]))
    assert caught.value.reason is Reason.DTYPE
    assert f"has 2 of 6 bytes that are no {kind}; the first is {byte:#04x}, of element 3" in caught.value.message
