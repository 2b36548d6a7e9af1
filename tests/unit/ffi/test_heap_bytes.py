"""How much of the heap is taken, where that tells something of a library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from optest.ffi.glibc import has_glibc_malloc

pytestmark = pytest.mark.skipif(not has_glibc_malloc(), reason="needs glibc's malloc")


@pytest.mark.parametrize(("malloc", "is_known"), [("pymalloc", True), ("malloc", False), ("malloc_debug", False)])
def test_it_is_not_known_where_pythons_own_objects_lie_there(malloc: str, is_known: bool) -> None:
    program = "from optest.ffi.held import heap_bytes; print(heap_bytes() is not None)"
    variables = {**os.environ, "PYTHONMALLOC": malloc}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(is_known)]
