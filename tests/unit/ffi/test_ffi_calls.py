"""A call that does not fit its prototype is refused before C is reached, and names the argument."""

from __future__ import annotations

import ctypes
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from texts import refusal

from optest.clib.ffi.calls import BadCall, Function, StatusCodes, StatusError, bind
from optest.clib.ffi.headers import read_headers
from optest.clib.ffi.libraries import open_library
from optest.clib.ffi.signatures import CKind, CType, Parameter, Prototype
from optest.errors import Unavailable
from optest.memory.buffers import Buffer
from optest.spec import DTYPES, TensorSpec, dtype

VOID = CType(kind=CKind.VOID, spelling="void")
NUMBERS = {
    "int8_t": CType(kind=CKind.INT, spelling="int8_t", size=1),
    "int": CType(kind=CKind.INT, spelling="int", size=4),
    "ptrdiff_t": CType(kind=CKind.INT, spelling="ptrdiff_t", size=8),
    "uint16_t": CType(kind=CKind.UINT, spelling="uint16_t", size=2),
    "size_t": CType(kind=CKind.UINT, spelling="size_t", size=8),
    "float": CType(kind=CKind.FLOAT, spelling="float", size=4),
    "double": CType(kind=CKind.FLOAT, spelling="double", size=8),
    "bool": CType(kind=CKind.BOOL, spelling="bool", size=1),
    "status_t": CType(kind=CKind.ENUM, spelling="status_t", size=4, tag="status_t"),
    "void": VOID,
    "void *": CType(kind=CKind.POINTER, spelling="void *", size=8, pointee=VOID),
    "struct H": CType(kind=CKind.STRUCT, spelling="struct H", tag="H"),
}


class Called:
    """Stand-in for a C function that records its arguments."""

    def __init__(self) -> None:
        self.arguments: tuple[Any, ...] | None = None

    def __call__(self, *arguments: Any) -> int:
        self.arguments = arguments
        return 11


def pointer(to: str, *, const: bool = False) -> CType:
    pointee = NUMBERS[to]
    if const:
        pointee = CType(kind=pointee.kind, spelling=pointee.spelling, size=pointee.size, tag=pointee.tag, is_const=True)
    return CType(kind=CKind.POINTER, spelling=f"{pointee} *", size=8, pointee=pointee)


def function(*types: CType, codes: StatusCodes | None = None) -> tuple[Function, Called]:
    called = Called()
    parameters = tuple(Parameter(name="abcdefgh"[index], type=type_) for index, type_ in enumerate(types))
    prototype = Prototype(name="f", result=NUMBERS["int"], parameters=parameters, where="f.h:3")
    return Function(prototype, called, codes), called


@pytest.mark.parametrize("name", ["int8_t", "int", "ptrdiff_t", "uint16_t", "size_t", "status_t"])
@given(data=st.data())
def test_integer_is_passed_unchanged_or_refused(name: str, data: st.DataObject) -> None:
    low, high = NUMBERS[name].limits
    call, called = function(NUMBERS[name])
    value = data.draw(st.one_of(st.integers(), st.integers(low - 2, low + 2), st.integers(high - 2, high + 2)))
    if low <= value <= high:
        call(value)
        assert called.arguments == (value,)
        assert call.prototype.argtypes[0](value).value == value
    else:
        with pytest.raises(BadCall, match=rf"f: argument 1 \(a\) is {value}, expected from {low} to {high}"):
            call(value)
        assert called.arguments is None


@given(st.floats())
def test_double_is_passed_bit_for_bit(value: float) -> None:
    call, called = function(NUMBERS["double"])
    call(value)
    assert called.arguments is not None
    assert np.float64(called.arguments[0]).tobytes() == np.float64(value).tobytes()


@given(st.one_of(st.floats(), st.floats(1e38, 1e39)))
def test_finite_number_never_becomes_infinite(value: float) -> None:
    call, called = function(NUMBERS["float"])
    with np.errstate(over="ignore"):
        overflows = math.isfinite(value) and math.isinf(np.float32(value))
    if overflows:
        with refusal(BadCall, "ffi.but_should_be_at"):
            call(value)
    else:
        call(value)
        assert called.arguments is not None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("int", 1.5, r"is 1\.5 \(float\), expected an integer \(int\)"),
        ("int", "3", r"is '3' \(str\), expected an integer"),
        ("int", None, r"is None \(NoneType\), expected an integer"),
        ("float", "x", r"is 'x' \(str\), expected a number"),
        ("float", 1j, "expected a number"),
        ("float", 2**24 + 1, "is 16777217, expected an integer that a float holds"),
        ("double", 2**53 + 1, "expected an integer that a double holds exactly"),
        ("double", 10**400, "expected an integer that a double holds exactly"),
        ("double", np.zeros(1), "expected a number"),
        ("bool", 2, r"expected True or False \(bool\)"),
        ("bool", "yes", "expected True or False"),
        ("void *", 1.0, r"is 1\.0 \(float\), expected a pointer \(void \*\)"),
        ("void *", -1, "expected an address from 0"),
        ("void *", 2**64, "expected an address from 0"),
        ("void *", "text", "expected a pointer"),
    ],
)
def test_misfit_names_the_argument(name: str, value: object, words: str) -> None:
    call, called = function(NUMBERS["double"], NUMBERS[name])
    with pytest.raises(BadCall, match=rf"f: argument 2 \(b\) .*{words}.*\n  at f\.h:3: int f\("):
        call(1.0, value)
    assert called.arguments is None


@pytest.mark.parametrize(
    ("name", "value", "passed"),
    [
        ("int", np.int64(7), 7),
        ("int", ctypes.c_size_t(7), 7),
        ("size_t", ctypes.c_uint64(2**63), 2**63),
        ("float", ctypes.c_float(0.5), 0.5),
        ("float", np.float32(0.5), 0.5),
        ("float", ml_dtypes.bfloat16(0.5), 0.5),
        ("float", 3, 3.0),
        ("bool", np.True_, True),
        ("bool", 0, False),
        ("void *", None, None),
        ("void *", 4096, 4096),
        ("void *", ctypes.c_void_p(64), 64),
    ],
)
def test_numpy_and_ctypes_numbers_are_accepted(name: str, value: object, passed: object) -> None:
    call, called = function(NUMBERS[name])
    call(value)
    assert called.arguments == (passed,)


def test_the_number_of_arguments_is_checked() -> None:
    call, called = function(NUMBERS["int"], NUMBERS["float"], NUMBERS["void *"])
    with pytest.raises(BadCall, match=r"f got 1 arguments, expected 3; missing: b, c\n  at f\.h:3"):
        call(1)
    with refusal(BadCall, "ffi.was_given_arguments_but"):
        call(1, 1.0, None, None)
    assert called.arguments is None


@pytest.mark.parametrize(
    "null", [None, 0, ctypes.c_void_p(), ctypes.POINTER(ctypes.c_float)()], ids=["None", "0", "void", "typed"]
)
def test_pointer_may_be_null(null: object) -> None:
    call, called = function(pointer("float"))
    call(null)
    assert called.arguments is not None
    assert not called.arguments[0]


@pytest.mark.parametrize(
    ("to", "value", "fits"),
    [
        ("float", (ctypes.c_float * 2)(), True),
        ("float", ctypes.byref(ctypes.c_float()), True),
        ("float", ctypes.byref((ctypes.c_float * 3)()), True),
        ("float", ctypes.pointer(ctypes.c_double()), False),
        ("float", (ctypes.c_int * 2)(), False),
        ("size_t", ctypes.byref(ctypes.c_size_t()), True),
        ("size_t", ctypes.byref(ctypes.c_uint32()), False),
        ("size_t", (ctypes.c_int64 * 2)(), False),
        ("ptrdiff_t", (ctypes.c_int64 * 2)(), True),
        ("void *", ctypes.byref(ctypes.c_void_p()), True),
        ("void *", ctypes.byref(ctypes.c_int64()), False),
        ("status_t", ctypes.byref(ctypes.c_int()), True),
        ("void", (ctypes.c_int * 2)(), True),
        ("float", np.zeros(3, np.float32), True),
        ("float", np.zeros(3, np.float64), False),
        ("float", np.zeros(3, np.complex64), True),
        ("uint16_t", np.zeros(3, np.float16), True),
        ("uint16_t", np.zeros(3, ml_dtypes.bfloat16), True),
        ("uint16_t", np.zeros(3, np.int16), False),
        ("int8_t", np.zeros(3, np.float64), True),
        ("void", np.zeros(3, np.float64), True),
        ("void", np.zeros(3, ">f4"), False),
    ],
)
def test_pointee_must_match_header(to: str, value: object, fits: bool) -> None:
    call, called = function(pointer(to))
    if fits:
        call(value)
        assert called.arguments is not None
    else:
        with pytest.raises(BadCall, match=r"argument 1 \(a\) (points at|is an array of)"):
            call(value)


def test_only_const_pointer_accepts_read_only_memory() -> None:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    function(pointer("float", const=True))[0](array)
    with refusal(BadCall, "ffi.is_an_array_that"):
        function(pointer("float"))[0](array)
    function(pointer("int8_t", const=True))[0](b"text")
    with pytest.raises(BadCall, match="expected a pointer"):
        function(pointer("int8_t"))[0](b"text")


@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_buffer_element_type_is_checked(kind) -> None:
    buffer = Buffer.allocate(TensorSpec(dtype=kind, shape=(2,), offset=1), name="x")
    call, called = function(pointer("void"), pointer("int8_t"))
    call(buffer, buffer)
    assert called.arguments == (buffer.address, buffer.address)
    call, called = function(pointer("float"))
    if kind.name in ("float32", "complex64"):
        call(buffer)
    else:
        with pytest.raises(BadCall, match=rf"points at {kind} elements, expected float \(float \*\)"):
            call(buffer)


def test_fitting_buffer_does_not_admit_others() -> None:
    call, _ = function(pointer("float"))
    single, double = (Buffer.allocate(TensorSpec(dtype=dtype(name), shape=(2,))) for name in ("float32", "float64"))
    for _ in range(2):
        call(single)
        with pytest.raises(BadCall, match="points at float64 elements"):
            call(double)


def test_status_has_a_name() -> None:
    codes = StatusCodes.of({"OK": 0, "BAD_TENSOR_SHAPE": 11, "SAME": 11})
    call, _ = function(codes=codes)
    with pytest.raises(StatusError, match=r"^f returned 11 \(BAD_TENSOR_SHAPE\)$") as raised:
        call.call_converted(call.convert_arguments(()))
    assert (raised.value.function, raised.value.code, raised.value.name) == ("f", 11, "BAD_TENSOR_SHAPE")
    codes.require("g", 0)
    with refusal(StatusError, "ffi.returned_status_that_the"):
        codes.require("g", 12)
    assert function()[0].call_converted(()) == 11, "no status"


TINY = """
#include <stddef.h>
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif
typedef enum { TINY_OK, TINY_BAD_SHAPE = 11 } tiny_t;
tiny_t tiny_scale(float *out, const float *x, size_t n, double by, bool negate);
double tiny_sum(const double *x, const ptrdiff_t strides[], unsigned char n);
tiny_t tiny_each(const float *x, size_t n, int (*f)(float, void *), void *user);
tiny_t tiny_absent(void);
#ifdef __cplusplus
}
#endif
"""
TINY_SOURCE = """
#include "tiny.h"
tiny_t tiny_scale(float *out, const float *x, size_t n, double by, bool negate) {
  if (n > 4) return TINY_BAD_SHAPE;
  for (size_t i = 0; i < n; i++) out[i] = (float)(x[i] * by) * (negate ? -1 : 1);
  return TINY_OK;
}
double tiny_sum(const double *x, const ptrdiff_t strides[], unsigned char n) {
  double sum = 0;
  for (int i = 0; i < n; i++) sum += x[i * strides[0]];
  return sum;
}
tiny_t tiny_each(const float *x, size_t n, int (*f)(float, void *), void *user) {
  for (size_t i = 0; i < n; i++) if (f(x[i], user)) return TINY_BAD_SHAPE;
  return TINY_OK;
}
"""


@pytest.mark.cxx
def test_real_library_is_called_by_header(build_library, tmp_path: Path) -> None:
    (tmp_path / "tiny.h").write_text(TINY)
    library = open_library(build_library(TINY_SOURCE, folder=tmp_path))
    header = read_headers([tmp_path / "tiny.h"])
    codes = StatusCodes.of(header.enum("tiny_t"))
    spec = TensorSpec(dtype=dtype("float32"), shape=(4,))
    out, x = Buffer.allocate(spec, name="out"), Buffer.allocate(spec, name="x")
    x.put(np.arange(4, dtype=np.float32))

    scale = bind(library, header.prototype("tiny_scale"), codes=codes)
    scale.call_converted(scale.convert_arguments((out, x, 4, 2.5, True)))
    assert out.array.tolist() == [0.0, -2.5, -5.0, -7.5]
    assert (out.outside(), x.mutated(np.arange(4, dtype=np.float32))) == (None, None)
    with pytest.raises(StatusError, match=r"tiny_scale returned 11 \(TINY_BAD_SHAPE\)"):
        scale.call_converted(scale.convert_arguments((out, x, 5, 2.5, True)))

    add = bind(library, header.prototype("tiny_sum"))
    assert add(np.arange(6.0), (ctypes.c_ssize_t * 1)(2), 3) == 6.0
    with refusal(BadCall, "ffi.argument_is_but_should"):
        add(np.arange(6.0), (ctypes.c_ssize_t * 1)(2), 256)

    each = bind(library, header.prototype("tiny_each"), codes=codes)
    values: list[float] = []
    remember = each.prototype.argtypes[2](lambda value, _user: values.append(value) or 0)
    assert each(x, 4, remember, None) == 0
    assert values == [0.0, 1.0, 2.0, 3.0]

    with refusal(Unavailable, "ffi.symbol_tiny_absent_is"):
        bind(library, header.prototype("tiny_absent"))
    assert library.missing(header.prototypes) == ("tiny_absent",)
