"""A golden file belongs to the bytes that it was made from, also where the case's key does not tell them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from handmade import command_case, inputs

from optest.backends import _BUILTINS, BackendManager, Fault, Reason
from optest.spec import Fill, TestCase

COMMAND = ["cp", "{input1}", "{output0}"]
BOTH = {"command": COMMAND, "golden": {"output0": "golden/z.bin"}}
LOAD = {"command": COMMAND, "golden": {"load": {"output0": "golden/z.bin"}}}


def case_of_a_file(place: Path, config: Any, **fields: Any) -> TestCase:
    """Its first input comes from x.npy."""
    case = command_case(config=config, base_dir=str(place), **fields)
    first, *others = case.inputs
    return replace(case, inputs=(replace(first, fill=Fill(kind="file", parameters={"path": "x.npy"})), *others))


def test_changed_input_file_makes_golden_stale(tmp_path: Path) -> None:
    driver = BackendManager(_BUILTINS).get("command")
    np.save(tmp_path / "x.npy", inputs()[0])
    case = case_of_a_file(tmp_path, BOTH)
    driver.run(case, inputs())
    assert driver.golden(case) is not None
    assert driver.golden(case_of_a_file(tmp_path, LOAD)) is not None
    np.save(tmp_path / "x.npy", inputs()[0] + 1)
    assert driver.golden(case) is None  # so that the reference is asked
    with pytest.raises(Fault, match="other inputs") as caught:
        driver.golden(case_of_a_file(tmp_path, LOAD))
    assert caught.value.reason is Reason.BAD_CASE
    driver.run(case, inputs())
    assert driver.golden(case) is not None


@pytest.mark.parametrize("hook", ["reference", "generator"])
def test_changed_code_makes_golden_file_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: str) -> None:
    driver = BackendManager(_BUILTINS).get("command")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = tmp_path / f"golden_{hook}_of_mine.py"
    code.write_text("def named(inputs, attributes):\n    return (inputs[0] + inputs[1],)\n")
    case = command_case(config=BOTH, base_dir=str(tmp_path), **{hook: f"golden_{hook}_of_mine:named"})
    driver.run(case, inputs())
    assert driver.golden(case) is not None
    code.write_text("def named(inputs, attributes):\n    return (inputs[0] - inputs[1],)\n")
    assert driver.golden(case) is None


def test_user_key_covers_only_the_case(tmp_path: Path) -> None:
    driver = BackendManager(_BUILTINS).get("command")
    np.save(tmp_path / "x.npy", inputs()[0])
    case = case_of_a_file(tmp_path, LOAD)
    (tmp_path / "golden").mkdir()
    np.zeros(6, np.float32).tofile(tmp_path / "golden" / "z.bin")
    (tmp_path / "golden" / "z.bin.key").write_text(f"{case.key}\n")
    assert driver.golden(case) is not None
