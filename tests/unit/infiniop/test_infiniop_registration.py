"""Hand-written signatures are compared with the header; drift names the function and the argument."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from optest.clib.ffi.headers import read_headers
from optest.clib.ffi.signatures import Header
from optest.infiniop.op_register import Drift, OpRegister

pytestmark = pytest.mark.cxx

HEADER = """
#include <stddef.h>
typedef enum { OK } status_t;
typedef struct Handle *handle_t;
typedef struct Descriptor *descriptor_t;
typedef int (*callback_t)(int);
status_t createGemm(handle_t handle, descriptor_t *out, const size_t *shape, float alpha);
status_t gemm(descriptor_t d, void *workspace, size_t workspace_size, float *c, const float *a, void *stream);
void watch(callback_t callback, const char *name);
int many(int count, ...);
"""


class Struct(ctypes.Structure):
    pass


P, INT = ctypes.POINTER, ctypes.c_int
GOOD: dict[str, list[Any]] = {
    "createGemm": [P(Struct), P(P(Struct)), P(ctypes.c_uint64), ctypes.c_float],
    "gemm": [P(Struct), *[ctypes.c_void_p], ctypes.c_size_t, *[ctypes.c_void_p] * 3],
}


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Header:
    path = tmp_path_factory.mktemp("h") / "ops.h"
    path.write_text(HEADER)
    return read_headers([path])


def check(header: Header, name: str, argtypes: list[Any] | None, restype: Any = ctypes.c_int32) -> None:
    """Compare only this signature with the header."""
    OpRegister.registry.clear()

    @OpRegister.operator
    def configure(lib: Any) -> None:
        function = getattr(lib, name)
        function.restype = restype
        if argtypes is not None:
            function.argtypes = argtypes

    assert callable(configure)
    OpRegister.register_lib(SimpleNamespace(header=header))


@pytest.mark.parametrize("name", sorted(GOOD))
def test_matching_registration_has_no_drift(header: Header, name: str) -> None:
    check(header, name, GOOD[name])
    check(header, name, None)
    check(header, "watch", [ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int), ctypes.c_char_p], None)


@pytest.mark.parametrize(
    ("name", "index", "ctype", "words"),
    [
        ("createGemm", 0, ctypes.c_int, r"argument 1 \(handle\) is declared c_int, expected handle_t"),
        ("createGemm", 1, P(Struct), r"argument 2 \(out\) is declared LP_Struct, expected descriptor_t \*"),
        ("createGemm", 2, P(ctypes.c_int64), r"argument 3 \(shape\) .* expected const size_t \*"),
        ("createGemm", 3, ctypes.c_double, r"argument 4 \(alpha\) is declared c_double, expected float"),
        ("gemm", 2, ctypes.c_void_p, r"argument 3 \(workspace_size\) is declared c_void_p, expected size_t"),
        ("gemm", 2, ctypes.c_uint32, r"argument 3 \(workspace_size\) is declared c_uint"),
        ("gemm", 3, ctypes.c_bool, r"argument 4 \(c\) is declared c_bool, expected float \*"),
        ("gemm", 4, P(ctypes.c_double), r"argument 5 \(a\) is declared LP_c_double, expected const float \*"),
        ("gemm", 5, ctypes.c_size_t, r"argument 6 \(stream\) is declared c_ulong, expected void \*"),
    ],
)
def test_drift_names_the_argument(header: Header, name: str, index: int, ctype: Any, words: str) -> None:
    argtypes = [*GOOD[name]]
    argtypes[index] = ctype
    with pytest.raises(Drift, match=rf"^{name}: {words}.*\n  at .*ops\.h:\d+: status_t {name}\(") as raised:
        check(header, name, argtypes)
    assert len(raised.value.differences) == 1


@pytest.mark.parametrize(
    ("name", "argtypes", "restype", "words"),
    [
        ("createGemm", GOOD["createGemm"][:-1], INT, "is declared with 3 arguments, expected 4 .*: float alpha"),
        ("createGemm", [*GOOD["createGemm"], INT], INT, "is declared with 5 arguments, expected 4 as in the header"),
        ("gemm", GOOD["gemm"], ctypes.c_double, "the result is declared c_double, expected status_t as in the header"),
        ("watch", None, INT, "the result is declared c_int, expected void as in the header"),
        ("gemmm", [], INT, "is registered, but no header declares it: .*did you mean 'gemm'"),
        ("many", [INT], INT, "is registered, but .* variable number of arguments"),
    ],
)
def test_drift_names_the_function(header: Header, name: str, argtypes: Any, restype: Any, words: str) -> None:
    with pytest.raises(Drift, match=rf"{name}:? {words}"):
        check(header, name, argtypes, restype)


def test_register_lib_reports_all_drift(header: Header) -> None:
    ran = []

    @OpRegister.operator
    def gemm(lib: Any) -> None:
        ran.append("gemm")
        lib.gemm.restype = ctypes.c_int32
        lib.gemm.argtypes = [ctypes.c_int] * 6

    assert ran == []
    with pytest.raises(Drift) as raised:
        OpRegister.register_lib(SimpleNamespace(header=header))
    assert ran == ["gemm"]
    names = ["d", "workspace", "workspace_size", "c", "a", "stream"]
    expected = [f"gemm: argument {position} ({name})" for position, name in enumerate(names, 1)]
    assert [line.partition(" is declared")[0] for line in raised.value.differences] == expected
