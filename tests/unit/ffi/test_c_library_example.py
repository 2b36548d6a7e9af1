"""examples/c_library: its conversions, its symbols and its table of faults.

That its operators are right, and each fault shows, is tested with optest's own calls in test_ffi_operators.py."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from texts import says

from optest.clib.ffi.libraries import open_library
from optest.clib.library_report import inspect

SOURCE = Path(__file__).parents[3] / "examples" / "c_library"

pytestmark = pytest.mark.cxx


def declared_faults():
    return re.findall(r"^FAULT_LINE\((\w+), \"([^\"]+)\", \"([^\"]+)\", \"([^\"]+)\"\)$", faults_text(), re.MULTILINE)


def faults_text():
    return (SOURCE / "faults.def").read_text()


CONVERSIONS = """
#include "number.h"
#define LIST(name, from, to)                                  \\
    void list_##name(size_t n, const from *in, to *out) {     \\
        for (size_t i = 0; i < n; ++i) out[i] = name(in[i]);  \\
    }
LIST(double_of_f16, uint16_t, double)
LIST(double_of_bf16, uint16_t, double)
LIST(f16_of_double, double, uint16_t)
LIST(bf16_of_double, double, uint16_t)
"""


@pytest.fixture(scope="module")
def conversions(c_library):
    source = c_library / "conversions.c"
    source.write_text("#include <stddef.h>\n" + CONVERSIONS)
    built = c_library / "conversions.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", f"-I{c_library}/src", "-o", str(built), str(source)], check=True)
    return ctypes.CDLL(str(built))


def converted(conversions, name, values, to):
    out = np.empty(values.shape, to)
    arguments = (ctypes.c_void_p(each.ctypes.data) for each in (values, out))
    getattr(conversions, f"list_{name}")(ctypes.c_size_t(values.size), *arguments)
    return out


@pytest.mark.heavy
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_conversions_match_every_pattern_and_tie(conversions, dtype):
    numpy_dtype = np.dtype(np.float16 if dtype == "f16" else ml_dtypes.bfloat16)
    patterns = np.arange(1 << 16, dtype=np.uint16)
    values = converted(conversions, f"double_of_{dtype}", patterns, np.float64)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(values, patterns.view(numpy_dtype).astype(np.float64))
    assert (np.signbit(values) == (patterns >> 15 == 1)).all()

    back = converted(conversions, f"{dtype}_of_double", values, np.uint16)
    quiet = np.uint16(0x200 if dtype == "f16" else 0x40)
    np.testing.assert_array_equal(back, np.where(np.isnan(values), patterns | quiet, patterns))

    infinity = int(patterns[np.isinf(values)][0])
    steps = values[: infinity + 1].copy()
    steps[-1] = 2 * steps[-2] - steps[-3]  # where the next value would be, if there were one
    ties = (steps[:-1] + steps[1:]) / 2  # exact in float64
    lower = np.arange(infinity, dtype=np.uint16)
    even = lower + (lower & 1)
    for sign, bit in ((1.0, 0), (-1.0, 0x8000)):
        for given, rounded in ((ties, even), (np.nextafter(ties, np.inf), lower + 1), (np.nextafter(ties, 0), lower)):
            got = converted(conversions, f"{dtype}_of_double", sign * given, np.uint16)
            np.testing.assert_array_equal(got, rounded | bit)
    extremes = np.array([5e-324, -1e-310, 1e308, -np.inf, -0.0])
    got = converted(conversions, f"{dtype}_of_double", extremes, np.uint16)
    np.testing.assert_array_equal(got, [0, 0x8000, infinity, infinity | 0x8000, 0x8000])


def test_correct_library_has_no_faults_or_globals(c_library):
    symbols = subprocess.run(["nm", str(c_library / "lib" / "libinfiniop.so")], capture_output=True, text=True).stdout
    of_the_compiler = re.compile(r"completed\.\d+|_\w+")
    data = [name for name in re.findall(r" [bBdD] (\S+)", symbols) if not of_the_compiler.fullmatch(name)]
    assert data == []
    content = b"".join(file.read_bytes() for file in (c_library / "lib").glob("*.so"))
    assert b"INFINIOP_THREADS" in content
    assert b"INFINIOP_FAULT" not in content
    assert [name for name, *_ in declared_faults() if name.encode() in content] == []


def test_exports_match_declarations(c_library):
    paths = open_library(["infiniop", "infinirt"], root=c_library).paths
    report = inspect(paths, [str(c_library / "include")])
    assert (report.missing, dict(report.header.refused), report.header.problems) == ((), {}, ())
    exported = set()
    for path in paths:
        listed = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True)
        exported.update(re.findall(r" T (\w+)", listed.stdout))
    assert exported == set(report.callable)
    assert len(exported) == 4 * 21 - 1 + 4 + 12


def test_make_faults_lists_every_fault_in_sources(c_library):
    done = subprocess.run(["make", "-s", "faults"], cwd=c_library, capture_output=True, text=True, check=True)
    listed = [tuple(line.split("\t")) for line in done.stdout.splitlines()]
    assert listed == declared_faults()
    assert len(listed) == faults_text().count("FAULT_LINE(")
    assert len(listed) >= 45
    assert len({kind for _, _, kind, _ in listed}) >= 12
    sources = "".join(each.read_text() for each in (SOURCE / "src").glob("*.[ch]"))
    used = set(re.findall(r"FAULT\((\w+)\)", sources)) - {"name"}
    assert used == {name for name, *_ in listed}


def test_unknown_fault_aborts(c_library):
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).infiniopCreateHandle(ctypes.byref(ctypes.c_void_p()))"
    command = [sys.executable, "-c", load, str(c_library / "broken" / "lib" / "libinfiniop.so")]
    variables = {**os.environ, "INFINIOP_FAULT": "gemm_is_lazy"}
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    assert done.returncode == -6
    assert says(done.stderr, "ffi.infiniop_fault_is_gemm")
