"""A library with the interface in sixty lines of C: one correct operator and several wrong ones."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # pycparser may be absent: then the test modules are skipped, which a conftest cannot be
    from optest.clib.ffi.signatures import Header
    from optest.infiniop.liboperators import InfiniLib

SOURCES = Path(__file__).parent / "tiny"


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with lib/ and include/, as INFINI_ROOT names one."""
    root = shutil.copytree(SOURCES, tmp_path_factory.mktemp("tiny") / "tiny")
    (root / "lib").mkdir()
    for name in ("infinirt", "infiniop"):
        command = ["gcc", "-O1", "-shared", "-fPIC", "-Iinclude", f"{name}.c", "-o", f"lib/lib{name}.so"]
        subprocess.run(command, cwd=root, check=True, capture_output=True)
    return root


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No library, registration or command line of another test; none installed on this machine."""
    from optest.infiniop import liboperators
    from optest.infiniop.op_register import OpRegister
    from optest.infiniop.testing import ScriptOptions, script_options

    monkeypatch.setattr(liboperators, "_default", [])
    monkeypatch.setattr(OpRegister, "registry", [])
    monkeypatch.setenv("INFINI_ROOT", str(tmp_path / "nothing"))
    monkeypatch.setenv("OPTEST_RUNS_DIR", str(tmp_path / "runs"))
    script_options.set(ScriptOptions())


@pytest.fixture(scope="session")
def tiny_header(tiny_root: Path) -> Header:
    from optest.clib.ffi.headers import read_headers

    return read_headers([tiny_root / "include"])


@pytest.fixture
def lib(tiny_root: Path, tiny_header: Header) -> Iterator[InfiniLib]:
    """The tiny library, opened anew; its header was read once for all tests."""
    from optest.infiniop.liboperators import open_lib

    library = open_lib(tiny_root)
    vars(library)["header"] = tiny_header
    yield library
    library.ledger.release()
