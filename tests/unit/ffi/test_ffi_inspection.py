"""What a library exports, held against what its header says."""

from __future__ import annotations

from pathlib import Path

import pytest

from optest.clib.ffi.headers import read_headers
from optest.clib.ffi.inspection import inspect_files

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
    library = build_library("int there(int a) { return a; } int print(const char *f, ...) { return !f; }")
    found = inspect_files([library], read_headers([tmp_path / "odd.h"]))
    assert list(found.callable) == ["there"]
    assert found.missing == ("absent", "gone")
    assert sorted(found.refused) == ["gone", "print"]
    assert len(found.problems) == 1
