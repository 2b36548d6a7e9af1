"""Detection of glibc's malloc in other programs: Debian's Python, which is not position-independent, a program built
like it, and one with a replaced malloc; and settings of Python and malloc that make the heap's size meaningless."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from optest.memory import glibc

pytestmark = [
    pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc"),
    pytest.mark.cxx,
]

# Prints whether malloc's address is glibc's, and the module's result; it needs only Python's library.
PROGRAM = """
import ctypes, runpy, sys

def address(library):
    return ctypes.cast(library.malloc, ctypes.c_void_p).value

print(address(ctypes.CDLL(None)) == address(ctypes.CDLL("libc.so.6")))
print(runpy.run_path(sys.argv[1])["has_glibc_malloc"]())
"""

EMBEDS_PYTHON = """
#include <stdlib.h>

int Py_BytesMain(int count, char **words);
void *(*volatile taken)(size_t);

int main(int count, char **words)
{
    taken = malloc;
    return Py_BytesMain(count, words);
}
"""

TAKES_MALLOCS_PLACE = """
#include <string.h>

static _Alignas(16) char store[256 << 20];
static size_t used;

void *malloc(size_t size)
{
    size_t start = __atomic_fetch_add(&used, (size + 31) / 16 * 16, __ATOMIC_SEQ_CST);
    size_t *block = (size_t *)(store + start);
    if (start + size + 32 > sizeof store) return NULL;
    *block = size;
    return block + 2;
}

size_t malloc_usable_size(void *block) { return block ? ((size_t *)block)[-2] : 0; }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }

void *realloc(void *old, size_t size)
{
    size_t had = malloc_usable_size(old);
    void *block = malloc(size);
    if (block && old) memcpy(block, old, had < size ? had : size);
    return block;
}
"""


def built(text: str, target: Path, *flags: str) -> Path:
    source = target.with_suffix(".c")
    source.write_text(text)
    command = ["gcc", "-O1", "-fno-builtin", str(source), "-o", str(target), *flags]
    subprocess.run(command, check=True, capture_output=True)
    return target


def output_of(python: str | Path, **variables: str) -> list[str]:
    """Return the output of ``PROGRAM`` in another Python, without this process's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))}
    command = [str(python), "-S", "-c", PROGRAM, glibc.__file__]
    done = subprocess.run(command, env={**kept, **variables}, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not sysconfig.get_config_var("Py_ENABLE_SHARED"), reason="no program can embed this Python")
def test_glibc_malloc_is_detected_behind_stub(tmp_path: Path) -> None:
    folder, version = map(sysconfig.get_config_var, ("LIBDIR", "LDVERSION"))
    flags = ("-fno-pie", "-no-pie", f"-L{folder}", f"-lpython{version}", f"-Wl,-rpath,{folder}")
    program = built(EMBEDS_PYTHON, tmp_path / "embeds", *flags)
    by_address, detected = output_of(program, PYTHONHOME=sys.base_prefix)
    if by_address == "True":
        pytest.skip("this linker puts no stub of malloc into the program")
    assert detected == "True"


def is_new_enough(python: str) -> bool:
    program = "import sys; sys.exit(sys.version_info < (3, 10))"
    return Path(python).exists() and subprocess.run([python, "-c", program], check=False).returncode == 0


@pytest.mark.skipif(not is_new_enough("/usr/bin/python3"), reason="the system has no Python of its own, or an old one")
def test_glibc_malloc_is_detected_in_system_python() -> None:
    assert output_of("/usr/bin/python3")[1] == "True"


def test_preloaded_malloc_is_detected(tmp_path: Path) -> None:
    preloaded = built(TAKES_MALLOCS_PLACE, tmp_path / "libplace.so", "-shared", "-fPIC")
    assert output_of(sys.executable)[1] == "True"
    assert output_of(sys.executable, LD_PRELOAD=str(preloaded))[1] == "False"


@pytest.mark.parametrize(
    ("variable", "value", "is_known"),
    [
        ("PYTHONMALLOC", "pymalloc", True),
        ("PYTHONMALLOC", "malloc", False),
        ("PYTHONMALLOC", "malloc_debug", False),
        ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=255", True),
        ("GLIBC_TUNABLES", "glibc.malloc.perturb=0:glibc.malloc.tcache_count=1000", False),
        ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=many:", True),
    ],
)
@pytest.mark.skipif(not glibc.has_glibc_malloc(), reason="needs glibc's malloc")
def test_heap_is_unknown_with_foreign_blocks(variable: str, value: str, is_known: bool) -> None:
    program = "from optest.memory.heap import heap_bytes; print(heap_bytes() is not None)"
    variables = {**os.environ, variable: value}
    done = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(is_known)]
