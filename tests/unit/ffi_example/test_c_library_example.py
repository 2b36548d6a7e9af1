"""examples/c_library is right in every layout and dtype, and wrong in one way where a fault is asked for."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

SOURCE = Path(__file__).parents[3] / "examples" / "c_library"
WALK = Path(__file__).with_name("infiniop_walk.py")
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

pytestmark = [
    pytest.mark.cxx,
    pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("make")), reason="needs gcc and make"),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library") / "c_library"
    return shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("build", "lib", "broken", "asan"))


def make(folder, *targets):
    """What make prints; warnings are errors in the Makefile, and nothing may be said beside the commands."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-s", "-j2", *targets]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def library(copy):
    make(copy)
    return copy / "lib"


@pytest.fixture(scope="module")
def broken(copy):
    make(copy, "broken")
    return copy / "broken" / "lib"


def walk(folder, *cases, timeout=600, **environment):
    command = [sys.executable, str(WALK), str(folder), *cases]
    variables = {**os.environ, **QUIET, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=variables)


def report(folder, *cases, **environment):
    done = walk(folder, *cases, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def what_is_wrong(folder, *cases, **environment):
    return [each for wrong in report(folder, *cases, **environment)["results"].values() for each in wrong]


def declared_faults():
    return re.findall(r"^FAULT_LINE\((\w+), \"([^\"]+)\", \"([^\"]+)\", \"([^\"]+)\"\)$", faults_text(), re.MULTILINE)


def faults_text():
    return (SOURCE / "faults.def").read_text()


def test_every_operator_is_right(library):
    results = report(library, INFINIOP_THREADS="2")["results"]
    assert results == {name: [] for name in results}
    assert len(results) == 13


def test_the_number_of_threads_changes_no_bit(library):
    cases = ("gemm", "norms", "softmax", "conv", "movement")
    reports = [report(library, *cases, INFINIOP_THREADS=threads) for threads in ("1", "3")]
    assert reports[0] == reports[1]


@pytest.mark.heavy
def test_no_sanitizer_has_anything_to_say(copy):
    make(copy, "asan")
    preload = [
        subprocess.run(["gcc", f"-print-file-name={each}"], capture_output=True, text=True).stdout.strip()
        for each in ("libasan.so", "libubsan.so")
    ]
    if not all(os.path.isabs(each) for each in preload):
        pytest.skip("gcc comes without the sanitizers' libraries")
    done = walk(
        copy / "asan" / "lib",
        LD_PRELOAD=":".join(preload),
        ASAN_OPTIONS="detect_leaks=0",
        INFINIOP_WALK_EXACT="1",
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert not any(json.loads(done.stdout)["results"].values())


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
def conversions(copy):
    source = copy / "conversions.c"
    source.write_text("#include <stddef.h>\n" + CONVERSIONS)
    built = copy / "conversions.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", f"-I{copy}/src", "-o", str(built), str(source)], check=True)
    return ctypes.CDLL(str(built))


def converted(conversions, name, values, to):
    out = np.empty(values.shape, to)
    arguments = (ctypes.c_void_p(each.ctypes.data) for each in (values, out))
    getattr(conversions, f"list_{name}")(ctypes.c_size_t(values.size), *arguments)
    return out


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_conversions_of_every_pattern_and_at_every_tie(conversions, dtype):
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
        for given, wanted in (
            (ties, even),
            (np.nextafter(ties, np.inf), lower + 1),
            (np.nextafter(ties, 0), lower),
        ):
            got = converted(conversions, f"{dtype}_of_double", sign * given, np.uint16)
            np.testing.assert_array_equal(got, wanted | bit)
    extremes = np.array([5e-324, -1e-310, 1e308, -np.inf, -0.0])
    got = converted(conversions, f"{dtype}_of_double", extremes, np.uint16)
    np.testing.assert_array_equal(got, [0, 0x8000, infinity, infinity | 0x8000, 0x8000])


def test_the_correct_library_has_neither_faults_nor_global_state(library):
    symbols = subprocess.run(["nm", str(library / "libinfiniop.so")], capture_output=True, text=True).stdout
    of_the_compiler = re.compile(r"completed\.\d+|_\w+")
    data = [name for name in re.findall(r" [bBdD] (\S+)", symbols) if not of_the_compiler.fullmatch(name)]
    assert data == []
    content = (library / "libinfiniop.so").read_bytes() + (library / "libinfinirt.so").read_bytes()
    assert b"INFINIOP_THREADS" in content
    assert b"INFINIOP_FAULT" not in content
    assert [name for name, *_ in declared_faults() if name.encode() in content] == []


def test_exports_are_what_the_headers_declare(library):
    declared = set()
    for header in SOURCE.glob("include/**/*.h"):
        declared.update(re.findall(r"__export infiniStatus_t (\w+)\(", header.read_text()))
    exported = set()
    for name in ("libinfiniop.so", "libinfinirt.so"):
        listed = subprocess.run(["nm", "-D", "--defined-only", str(library / name)], capture_output=True, text=True)
        exported.update(re.findall(r" T (\w+)", listed.stdout))
    assert exported == declared
    assert len(declared) == 4 * 21 - 1 + 4 + 12


def test_make_faults_lists_the_table_and_every_fault_is_somewhere_in_the_sources(copy):
    listed = [tuple(line.split("\t")) for line in make(copy, "faults").splitlines()]
    assert listed == declared_faults()
    assert len(listed) == faults_text().count("FAULT_LINE(")
    assert len(listed) >= 45
    assert len({kind for _, _, kind, _ in listed}) >= 12
    sources = "".join(each.read_text() for each in (SOURCE / "src").glob("*.[ch]"))
    used = set(re.findall(r"FAULT\((\w+)\)", sources)) - {"name"}
    assert used == {name for name, *_ in listed}


def test_the_broken_library_without_a_fault_gives_the_same_numbers(library, broken):
    assert report(broken, "gemm", "conv") == report(library, "gemm", "conv")


@pytest.mark.parametrize(
    ("fault", "cases", "sign"),
    [
        ("gemm_ignores_stride_of_a", ["gemm"], "Gemm"),
        ("bf16_truncates", ["norms"], "bfloat16"),
        ("relu_writes_one_too_many", ["unary"], "wrote outside"),
        ("swiglu_changes_input", ["binary"], "changed input"),
        ("conv_unpacks_weight_once", ["conv"], "another workspace"),
        ("rope_accepts_any_position", ["refusals"], "gives 0, not 3"),
        ("rms_norm_shares_eps", ["state"], "epsilon of another descriptor"),
        ("tanh_leaves_rounding_upward", ["unary"], "rounding mode"),
    ],
)
def test_a_fault_shows(broken, fault, cases, sign):
    wrong = what_is_wrong(broken, *cases, INFINIOP_FAULT=fault)
    assert any(sign in each for each in wrong), wrong


def test_a_race_shows_in_one_of_several_walks(broken):
    """On a busy core the threads often run one after the other."""
    walks = (what_is_wrong(broken, "softmax", INFINIOP_FAULT="softmax_threads_share_row") for _ in range(30))
    assert any("Softmax" in each for wrong in walks for each in wrong)


def test_faults_that_end_the_process_or_never_end(broken):
    assert walk(broken, "unary", INFINIOP_FAULT="gelu_aborts_on_nan").returncode == -6
    exited = walk(broken, "softmax", INFINIOP_FAULT="softmax_exits_on_f64")
    assert (exited.returncode, exited.stdout) == (0, "")
    assert walk(broken, "unary", INFINIOP_FAULT="silu_prints").stdout.startswith("silu: done\n")
    with pytest.raises(subprocess.TimeoutExpired):
        walk(broken, "random_sample", INFINIOP_FAULT="random_sample_hangs_on_large_topk", timeout=3)


def test_an_unknown_fault_is_no_correct_library(broken):
    done = walk(broken, "state", INFINIOP_FAULT="gemm_is_lazy")
    assert done.returncode == -6
    assert "INFINIOP_FAULT is gemm_is_lazy, but should be a name that `make faults` prints" in done.stderr
