"""A mapping may be read by two threads at once, as a run with several jobs does, in a process that never read one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

READERS = """
import os, threading
import msgspec, numpy, yaml
import optest.operators, optest.clib.ffi  # whatever takes long to import, but nothing that knows of mappings

def read_by_two():
    from optest.clib.library.mapping_file import mapping_path, read_mapping
    both = threading.Barrier(2)
    def read():
        both.wait()
        read_mapping(mapping_path("infiniop", ""))
    threads = [threading.Thread(target=read) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

died = 0
for _ in range(60):
    child = os.fork()
    if child == 0:
        read_by_two()
        os._exit(0)
    died += os.waitpid(child, 0)[1] != 0
print(died, "of 60 died")
"""
"""One process in nine died of SIGSEGV where msgspec got to know the types in both threads."""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.heavy
def test_two_threads_can_read_first_mapping() -> None:
    done = subprocess.run([sys.executable, "-c", READERS], capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout == "0 of 60 died\n", done.stderr
