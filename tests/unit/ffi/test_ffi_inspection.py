"""What a library exports, held against what its header says."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from optest.clib.ffi.headers import read_headers
from optest.clib.ffi.inspection import inspect_library
from optest.clib.ffi.libraries import open_library
from optest.clib.ffi.registration import SignatureRegistry

pytestmark = pytest.mark.cxx

HEADER = """
int there(int);
int absent(float);
int print(const char *format, ...);
int gone(frob *x);
struct Odd { frob x; };
"""


def test_a_library_is_held_against_its_header(build_library, tmp_path: Path) -> None:
    (tmp_path / "odd.h").write_text(HEADER)
    library = open_library(build_library("int there(int a) { return a; } int print(const char *f, ...) { return !f; }"))
    registry = SignatureRegistry()

    @registry.operator
    def there(lib: Any) -> None:
        lib.there.argtypes = [ctypes.c_double]

    found = inspect_library(library, read_headers([tmp_path / "odd.h"]), registry)
    assert list(found.callable) == ["there"]
    assert found.missing == ("absent", "gone")
    assert sorted(found.refused) == ["gone", "print"]
    assert len(found.problems) == 1
    assert [line.splitlines()[0] for line in found.drift] == [
        "there: argument 1 is declared c_double, but the header says int"
    ]
    assert inspect_library(library, read_headers([tmp_path / "odd.h"])).drift == ()
