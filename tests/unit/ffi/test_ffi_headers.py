"""Headers as libraries really write them, read with a C parser."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from texts import refusal, says

from optest.clib.ffi.headers import read_headers
from optest.clib.ffi.signatures import CKind, Header, HeaderError
from optest.errors import Unavailable, UnknownName, UsageError

pytestmark = pytest.mark.cxx

CBLAS = Path("/usr/include/x86_64-linux-gnu/cblas.h")

REAL_WORLD = """
#ifndef TINY_H
#define TINY_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#if defined(_WIN32)
#define TINY_API __declspec(dllexport)
#else
#define TINY_API __attribute__((visibility("default")))
#endif
#ifdef __cplusplus
#define TINY_C extern "C"
extern "C" {
#else
#define TINY_C
#endif

#define TINY_VERSION (3 << 8 | 1)
#define TINY_LIMIT -12L
#define TINY_NAME "tiny"
#define TINY_SUM(a, b) ((a) + (b))

typedef enum {
  TINY_OK = 0,
  TINY_BAD_PARAM = 3,
  TINY_AFTER, /* 4 */
  TINY_MASK = 1 << 4 | 0x3,
  TINY_LETTER = 'A',
  TINY_NEGATIVE = -7 / 2,
  TINY_LAST = TINY_MASK > 18 ? TINY_MASK + 1 : ~0
} tinyStatus_t;
enum tiny_device { TINY_CPU, TINY_GPU = 5 };

struct TinyHandle;
typedef struct TinyHandle *tinyHandle_t;
typedef struct TinyOptions { int threads; float scale; } tinyOptions_t;
typedef int (*tinyCallback_t)(const float *value, size_t index, void *user);
typedef unsigned long long tiny_u64;
typedef float tinyVector_t[4];

TINY_C TINY_API tinyStatus_t tinyCreate(tinyHandle_t *handle, enum tiny_device device);
TINY_C TINY_API tinyStatus_t tinyRun(tinyHandle_t handle, void *out, const float *x, const size_t shape[],
                              const ptrdiff_t *strides, double alpha, bool fast, tiny_u64 seed,
                              unsigned char flag, void *stream) __attribute__((nonnull(1)));
TINY_API void tinyEach(float x[restrict static 4], tinyCallback_t callback, void *user);
TINY_API void tinyInline(int (*compare)(int, int), tinyVector_t vector);
TINY_API const char *tinyName(void);
int tinyOld();
TINY_API int tinyPrint(FILE *to, const char *format, ...);
TINY_API void tinyByValue(tinyOptions_t options);
TINY_API void tinyByPointer(const tinyOptions_t *options);
TINY_API int tinyMany(char *const *names, const void *const *buffers);
static inline int tiny_half(int value) { if (value) { return value / 2; } return 0; }
_Static_assert(sizeof(int) == 4, "int");
extern int tiny_counter;

#ifdef __cplusplus
}
#endif
#endif
"""


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Header:
    return read(tmp_path_factory.mktemp("include"), REAL_WORLD)


def read(folder: Path, text: str) -> Header:
    path = folder / "tiny.h"
    path.write_text(text)
    return read_headers([path])


def test_prototypes_are_read_through_macros(header: Header) -> None:
    run = header.prototype("tinyRun")
    assert [each.name for each in run.parameters] == [
        "handle", "out", "x", "shape", "strides", "alpha", "fast", "seed", "flag", "stream",
    ]  # fmt: skip
    assert run.argtypes == (
        *(ctypes.c_void_p,) * 5, ctypes.c_double, ctypes.c_bool, ctypes.c_uint64, ctypes.c_uint8, ctypes.c_void_p,
    )  # fmt: skip
    assert run.restype is ctypes.c_int32
    assert run.result.tag == "tinyStatus_t"
    assert run.where.startswith(str(Path(header.files[0]).resolve()))
    assert REAL_WORLD.splitlines()[int(run.where.rpartition(":")[2]) - 1].startswith(
        "TINY_C TINY_API tinyStatus_t tinyRun"
    )


def test_pointers_have_pointees(header: Header) -> None:
    handle, out, x, shape, strides = header.prototype("tinyRun").parameters[:5]
    assert handle.pointee is not None
    assert (handle.pointee.kind, handle.pointee.tag) == (CKind.STRUCT, "TinyHandle")
    assert (str(out), out.is_const) == ("void * out", False)
    assert (str(x), x.is_const) == ("const float * x", True)
    assert shape.pointee is not None
    assert (shape.pointee.spelling, shape.pointee.kind, shape.pointee.size) == ("size_t", CKind.UINT, 8)
    assert strides.pointee is not None
    assert (strides.pointee.spelling, strides.pointee.kind, strides.is_const) == ("ptrdiff_t", CKind.INT, True)
    created = header.prototype("tinyCreate").parameters[0].pointee
    assert created is not None
    assert (created.is_pointer, created.spelling) == (True, "tinyHandle_t")


def test_arrays_and_functions_decay_to_pointers(header: Header) -> None:
    vector, callback, _ = header.prototype("tinyEach").parameters
    assert vector.is_pointer
    assert callback.type.is_callback
    assert callback.ctype is ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p)
    compare, typedefed = header.prototype("tinyInline").parameters
    assert compare.type.is_callback
    assert typedefed.ctype is ctypes.c_void_p
    assert header.prototype("tinyMany").argtypes == (ctypes.c_void_p, ctypes.c_void_p)


def test_function_without_parameters_has_none(header: Header) -> None:
    assert header.prototype("tinyName").parameters == ()
    assert header.prototype("tinyOld").parameters == ()
    assert header.prototype("tinyName").restype is ctypes.c_void_p


def test_enum_values_match_c(header: Header) -> None:
    values = {"OK": 0, "BAD_PARAM": 3, "AFTER": 4, "MASK": 19, "LETTER": 65, "NEGATIVE": -3, "LAST": 20}
    assert dict(header.enum("tinyStatus_t")) == {f"TINY_{name}": value for name, value in values.items()}
    assert dict(header.enum("tiny_device")) == {"TINY_CPU": 0, "TINY_GPU": 5}
    assert (header.constants["TINY_VERSION"], header.constants["TINY_LIMIT"]) == (769, -12)
    assert not {"TINY_NAME", "TINY_SUM", "TINY_API", "EOF", "TINY_H"} & set(header.constants)


def test_uncallable_function_is_refused_with_location(header: Header) -> None:
    with pytest.raises(HeaderError, match=r"tiny\.h:\d+: tinyPrint .* variable number of arguments\n +int tinyPrint\("):
        header.prototype("tinyPrint")
    with refusal(HeaderError, "ffi.argument_options_type_is"):
        header.prototype("tinyByValue")
    assert header.prototype("tinyByPointer").argtypes == (ctypes.c_void_p,)


def test_inline_and_system_functions_are_excluded(header: Header) -> None:
    assert not {"printf", "tiny_half", "tiny_counter"} & set(header.prototypes)
    assert header.problems == ()
    assert "TinyHandle" in header.opaque
    assert "TinyOptions" not in header.opaque


def test_unknown_function_suggests_the_nearest(header: Header) -> None:
    with pytest.raises(UnknownName, match="did you mean 'tinyCreate'"):
        header.prototype("tinycreate")
    with pytest.raises(UnknownName, match="unknown enum"):
        header.enum("tinyStatus")


@pytest.mark.parametrize(
    ("text", "readable", "refused"),
    [
        (
            "int good(int);\nint bad(int x, frob y);\nint worse(int int x y);\nint also_good(float);\n",
            {"good", "also_good"},
            {
                "bad": (2, r" .* unknown type frob.*\n +int bad\("),
                "worse": (3, r" .* it cannot be parsed.*\n +int worse\("),
            },
        ),
        ("int good(int);\nint first(int a)\nint second(int b);\n", {"good"}, {"first": (2, "")}),
        ("int good(int);\nint open_(int a;\nint lost(int);\n", {"good"}, {"open_": (2, "")}),
        (
            "int same(int);\nint same(int a);\nint f(int);\nint f(float);\n",
            {"same"},
            {"f": (4, r" .* its declaration at .*tiny\.h:3 differs: int f\(int\)")},
        ),
        ('extern "C" {\nint f(int);\n}\nextern "C" int g(void);\nint h(void);\n', {"f", "g", "h"}, {}),
        ("typedef _Float16 half;\nint f(const half *x);\nint g(half x);\n", {"f"}, {"g": (3, ".*type half")}),
    ],
    ids=["wrong-types", "no-semicolon", "no-bracket", "two-declarations", "unguarded-c++", "half-by-value"],
)
def test_bad_declaration_does_not_affect_others(
    tmp_path: Path, text: str, readable: set[str], refused: dict[str, tuple[int, str]]
) -> None:
    header = read(tmp_path, text)
    assert set(header.prototypes) == readable
    assert set(header.refused) == set(refused)
    for name, (line, why) in refused.items():
        with pytest.raises(HeaderError, match=rf"tiny\.h:{line}: {name}{why}"):
            header.prototype(name)


def test_unreadable_struct_is_a_problem(tmp_path: Path) -> None:
    header = read(tmp_path, "struct S { frob *x; void (*call)(int a int b); };\nint good(struct S *s);\n")
    assert (set(header.prototypes), dict(header.refused)) == ({"good"}, {})
    assert says(str(header.problems[0]), "ffi.type_frob_is_not")


def test_repeated_typedefs_and_type_named_parameters(tmp_path: Path) -> None:
    twice = "typedef int count;\ntypedef int count;\n"
    header = read(tmp_path, f"{twice}typedef struct S S;\nstruct S {{ S *next; }};\nint f(count count, S *S);\n")
    assert str(header.prototype("f")) == "int f(count count, S * S)"
    assert header.problems == ()


def test_half_precision_is_passed_by_pointer(tmp_path: Path) -> None:
    header = read(tmp_path, "typedef _Float16 half;\nint f(const half *x);\n")
    assert header.prototype("f").argtypes == (ctypes.c_void_p,)


def test_folder_means_all_headers_and_include_path(tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "base.h").write_text("#pragma once\ntypedef int status_t;\n")
    (tmp_path / "ops" / "add.h").write_text('#include "base.h"\nstatus_t add(void *out, const void *a);\n')
    assert set(read_headers([tmp_path]).prototypes) == {"add"}


def test_missing_header_or_compiler_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"header .*gone\.h does not exist"):
        read_headers([tmp_path / "gone.h"])
    with refusal(UsageError, "ffi.no_header_was_found"):
        read_headers([tmp_path])
    (tmp_path / "a.h").write_text('#include "nowhere.h"\n')
    with pytest.raises(UsageError, match=r"refuses .*a\.h\n(.|\n)*nowhere\.h: No such file"):
        read_headers([tmp_path])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="none of cc, gcc, clang is on the PATH"):
        read_headers([tmp_path])


def test_unreadable_header_does_not_affect_others(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("int f(void);\n")
    (tmp_path / "z.h").write_text('#include "nowhere.h"\nint g(void);\n')
    header = read_headers([tmp_path])
    assert set(header.prototypes) == {"f"}
    assert [(Path(each.file).name, "nowhere.h" in each.hint) for each in header.problems] == [("z.h", True)]
    for number in range(9):
        (tmp_path / f"a{number}.h").write_text('#include "nowhere.h"\n')
    (tmp_path / "a.h").unlink()
    with pytest.raises(UsageError, match=r"refuses [^,]*a0\.h, .*a3\.h and 6 more\n(.|\n)*a0\.h:1:.*nowhere\.h"):
        read_headers([tmp_path])


CPP = """
#include <cstddef>
#include <cstdint>
#include <vector>
struct Plan;
typedef Plan *plan_t;
extern "C" int plan_make(plan_t *slot, size_t count, const int64_t *sizes, bool keep);
extern "C" int plan_run(Plan *plan, std::vector<int> sizes);
"""


def test_cxx_header_with_c_functions_is_read(tmp_path: Path) -> None:
    (tmp_path / "plan.h").write_text(CPP)
    header = read_headers([tmp_path])
    kinds = [each.type.kind for each in header.prototype("plan_make").parameters]
    assert kinds == [CKind.POINTER, CKind.UINT, CKind.POINTER, CKind.BOOL]
    with refusal(HeaderError, "ffi.plan_run_cannot_be"):
        header.prototype("plan_run")


@pytest.mark.blas
def test_cblas() -> None:
    header = read_headers([CBLAS])
    gemm = header.prototype("cblas_sgemm")
    assert len(gemm.parameters) == 14
    assert [each.name for each in gemm.parameters][7:9] == ["A", "lda"]
    assert gemm.parameters[7].is_const
    assert not gemm.parameters[12].is_const
    assert gemm.parameters[1].type.tag == "CBLAS_TRANSPOSE"
    assert header.enum("CBLAS_TRANSPOSE")["CblasTrans"] == 112
    assert header.prototype("cblas_ddot").restype is ctypes.c_double
    assert header.problems == ()
    assert set(header.refused) == {"cblas_cdotu", "cblas_cdotc", "cblas_zdotu", "cblas_zdotc", "cblas_xerbla"}
