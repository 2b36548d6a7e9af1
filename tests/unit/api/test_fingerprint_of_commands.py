"""Which files of a command a resumed run must find unchanged: not those that the run itself writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from optest.backends import backend_manager
from optest.core.provenance import changed, fingerprint
from optest.spec import Argument, BackendTarget, Fill, OperatorDescriptor, TensorSpec, TestCase, dtype

ADD = OperatorDescriptor(name="add", signature="x, y -> out", reference="optest.nowhere:add")
SPEC = TensorSpec(dtype=dtype("float32"), shape=(2,))
INPUTS = tuple(
    Argument(name=name, path=f"input{index}", spec=SPEC, fill=Fill(kind="ones")) for index, name in enumerate("xy")
)
PROGRAM = b"\x7fELF\0\0\1"


def prints(place: Path, **config: Any) -> dict[str, str]:
    case = TestCase(
        descriptor=ADD,
        inputs=INPUTS,
        outputs=(SPEC,),
        backend=BackendTarget(name="command"),
        backend_config={"command": config},
        base_dir=str(place),
    )
    return fingerprint(plans=[], cases=[case], plugins=[], driver=backend_manager.get("command"), options={})


def write(path: Path, content: bytes, at: float) -> None:
    path.write_bytes(content)
    os.utime(path, (at, at))


def test_tensor_files_are_not_in_the_fingerprint(tmp_path: Path) -> None:
    config = {
        "command": ["./run", "input/input0.bin", "./input/../b.bin", "out/z.bin"],
        "inputs": {"input1": "b.bin"},
        "outputs": [{"tensor": "output0", "path": "out/z.bin"}],
    }
    before = prints(tmp_path, **config)
    for name in ("input/input0.bin", "b.bin", "out/z.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"12345678")
    assert changed(before, prints(tmp_path, **config)) == []


def test_backend_options_are_in_the_fingerprint() -> None:
    numpy = backend_manager.get("numpy")
    one, other = (
        fingerprint(plans=[], cases=[], plugins=[], driver=numpy, options={"compile_backend": name})
        for name in ("eager", "mine")
    )
    assert changed(one, other) == ["option compile_backend is mine, but was eager"]


@pytest.mark.parametrize("there", [True, False])
def test_program_built_by_the_run_is_unchanged(tmp_path: Path, there: bool) -> None:
    config = {"build": ["make"], "command": ["./kernel", "{input0}"]}
    if there:
        write(tmp_path / "kernel", PROGRAM, at=500)
    before = prints(tmp_path, **config)
    write(tmp_path / "kernel", PROGRAM + b"built", at=1000)
    assert changed(before, prints(tmp_path, **config), until=1001) == []
    assert changed(prints(tmp_path, **config), prints(tmp_path, **config), until=1001) == []


@pytest.mark.parametrize(
    ("config", "content", "at", "kind"),
    [
        ({"build": ["make"], "command": ["./kernel", "{input0}"]}, PROGRAM, 1002, "built"),  # by hand, after the run
        ({"command": ["./kernel"]}, PROGRAM, 1000, "command"),  # nothing builds it
        ({"build": ["make"], "command": ["bash", "kernel"]}, b"cp input output\n", 1000, "command"),  # a script
        ({"build": ["./kernel"], "command": ["./run"]}, PROGRAM, 1000, "command"),  # the compiler itself
    ],
)
def test_files_that_the_run_did_not_build_have_changed(
    tmp_path: Path, config: Any, content: bytes, at: float, kind: str
) -> None:
    write(tmp_path / "kernel", content, at=500)
    before = prints(tmp_path, **config)
    write(tmp_path / "kernel", content + b"more", at=at)
    told = [f"{kind} file {tmp_path / 'kernel'} has changed"]
    assert changed(before, prints(tmp_path, **config), until=1001) == told
