"""How much of the heap is taken, where that tells something of a library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from optest.memory.glibc import has_glibc_malloc

pytestmark = pytest.mark.skipif(not has_glibc_malloc(), reason="needs glibc's malloc")


@pytest.mark.parametrize(("malloc", "is_known"), [("pymalloc", True), ("malloc", False), ("malloc_debug", False)])
def test_it_is_not_known_where_pythons_own_objects_lie_there(malloc: str, is_known: bool) -> None:
    assert known({"PYTHONMALLOC": malloc}) is is_known


@pytest.mark.parametrize(
    ("tunables", "is_known"),
    [
        ("glibc.malloc.tcache_count=255", True),
        ("glibc.malloc.perturb=0:glibc.malloc.tcache_count=1000", False),
        ("glibc.malloc.tcache_count=many:", True),
    ],
)
def test_it_is_not_known_where_malloc_keeps_many_free_blocks(tunables: str, is_known: bool) -> None:
    assert known({"GLIBC_TUNABLES": tunables}) is is_known


def known(stated: dict[str, str]) -> bool:
    program = "from optest.clib.ffi.held import heap_bytes; print(heap_bytes() is not None)"
    variables = {**os.environ, **stated}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    return done.stdout.split() == ["True"]
