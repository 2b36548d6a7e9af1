"""A library of the interface in sixty lines of C: one operator that is right, and others that are not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from optest.clib.ffi.headers import read_headers
from optest.clib.ffi.signatures import Header
from optest.infiniop import liboperators
from optest.infiniop.arguments import chosen
from optest.infiniop.liboperators import InfiniLib, open_lib
from optest.infiniop.op_register import OpRegister

RUNTIME = r"""
#include "tiny.h"
infiniStatus_t infinirtSetDevice(infiniDevice_t device, int id) {
    return device == INFINI_DEVICE_CPU && id == 0 ? INFINI_STATUS_SUCCESS : INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED;
}
infiniStatus_t both(void) { return INFINI_STATUS_BAD_PARAM; }
"""

OPERATORS = r"""
#include "tiny.h"
#include <stdlib.h>
#include <string.h>
struct InfiniopTensorDescriptor { size_t elements; int dtype; };
struct InfiniopHandle { int device; };
struct InfiniopDescriptor { size_t elements; };
static int alive;
int aliveNow(void) { return alive; }
infiniStatus_t both(void) { return INFINI_STATUS_SUCCESS; }
static void *made(size_t size) { ++alive; return calloc(1, size); }
static infiniStatus_t ended(void *p) {
    if (p == NULL) return INFINI_STATUS_NULL_POINTER;
    --alive;
    free(p);
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopCreateHandle(infiniopHandle_t *h) { *h = made(sizeof **h); return INFINI_STATUS_SUCCESS; }
infiniStatus_t infiniopDestroyHandle(infiniopHandle_t h) { return ended(h); }
infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t *t, size_t ndim, const size_t *shape,
                                              const ptrdiff_t *strides, infiniDtype_t dtype) {
    (void)strides;
    if (dtype == INFINI_DTYPE_BF16) return INFINI_STATUS_BAD_TENSOR_DTYPE;
    *t = made(sizeof **t);
    (*t)->elements = 1;
    for (size_t i = 0; i < ndim; ++i) (*t)->elements *= shape[i];
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t t) { return ended(t); }
infiniStatus_t infiniopCreateTwiceDescriptor(infiniopHandle_t h, infiniopTwiceDescriptor_t *d,
                                             infiniopTensorDescriptor_t y, infiniopTensorDescriptor_t x) {
    if (h == NULL || y == NULL || x == NULL) return INFINI_STATUS_NULL_POINTER;
    if (y->elements != x->elements) return INFINI_STATUS_BAD_TENSOR_SHAPE;
    *d = made(sizeof **d);
    (*d)->elements = x->elements;
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopDestroyTwiceDescriptor(infiniopTwiceDescriptor_t d) { return ended(d); }
infiniStatus_t infiniopGetTwiceWorkspaceSize(infiniopTwiceDescriptor_t d, size_t *size) {
    *size = d->elements;
    return INFINI_STATUS_SUCCESS;
}
static infiniStatus_t twice(infiniopTwiceDescriptor_t d, float *y, const float *x) {
    for (size_t i = 0; i < d->elements; ++i) y[i] = 2 * x[i];
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopTwice(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)stream;
    if (n < d->elements) return INFINI_STATUS_INSUFFICIENT_WORKSPACE;
    if (n > 0) memset(w, 0, n);
    return twice(d, y, x);
}
infiniStatus_t infiniopThrice(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)w, (void)n, (void)stream;
    for (size_t i = 0; i < d->elements; ++i) ((float *)y)[i] = 3 * ((const float *)x)[i];
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopOverrun(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)w, (void)n, (void)stream;
    ((float *)y)[d->elements] = 0;
    return twice(d, y, x);
}
infiniStatus_t infiniopScratch(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)stream;
    ((char *)w)[n] = 0;
    return twice(d, y, x);
}
infiniStatus_t infiniopMutate(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)w, (void)n, (void)stream;
    twice(d, y, x);
    ((float *)x)[0] += 1;
    return INFINI_STATUS_SUCCESS;
}
infiniStatus_t infiniopLacking(infiniopTwiceDescriptor_t d, void *w, size_t n, void *y, const void *x, void *stream) {
    (void)d, (void)w, (void)n, (void)y, (void)x, (void)stream;
    return INFINI_STATUS_NOT_IMPLEMENTED;
}
infiniStatus_t infiniopHidden(int number) { return number; }
"""

_RUNS = "\n".join(
    f"infiniStatus_t infiniop{name}(infiniopTwiceDescriptor_t desc, void *workspace, size_t workspace_size, void *y,"
    " const void *x, void *stream);"
    for name in ("Twice", "Thrice", "Overrun", "Scratch", "Mutate", "Lacking", "Absent")
)

HEADER = f"""
#ifndef TINY_H
#define TINY_H
#include <stddef.h>
typedef enum {{
    INFINI_STATUS_SUCCESS = 0,
    INFINI_STATUS_NOT_IMPLEMENTED = 2,
    INFINI_STATUS_BAD_PARAM = 3,
    INFINI_STATUS_NULL_POINTER = 4,
    INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED = 5,
    INFINI_STATUS_BAD_TENSOR_DTYPE = 10,
    INFINI_STATUS_BAD_TENSOR_SHAPE = 11,
    INFINI_STATUS_INSUFFICIENT_WORKSPACE = 13,
    INFINI_STATUS_OF_THIS_LIBRARY = 77,
}} infiniStatus_t;
typedef enum {{ INFINI_DEVICE_CPU = 0, INFINI_DEVICE_NVIDIA = 1 }} infiniDevice_t;
typedef enum {{ INFINI_DTYPE_F32 = 13, INFINI_DTYPE_BF16 = 19 }} infiniDtype_t;
typedef struct InfiniopHandle *infiniopHandle_t;
typedef struct InfiniopTensorDescriptor *infiniopTensorDescriptor_t;
typedef struct InfiniopDescriptor *infiniopTwiceDescriptor_t;
infiniStatus_t infinirtSetDevice(infiniDevice_t device, int device_id);
infiniStatus_t both(void);
int aliveNow(void);
infiniStatus_t infiniopCreateHandle(infiniopHandle_t *handle_ptr);
infiniStatus_t infiniopDestroyHandle(infiniopHandle_t handle);
infiniStatus_t infiniopCreateTensorDescriptor(infiniopTensorDescriptor_t *desc_ptr, size_t ndim, const size_t *shape,
                                              const ptrdiff_t *strides, infiniDtype_t dtype);
infiniStatus_t infiniopDestroyTensorDescriptor(infiniopTensorDescriptor_t desc);
infiniStatus_t infiniopCreateTwiceDescriptor(infiniopHandle_t handle, infiniopTwiceDescriptor_t *desc_ptr,
                                             infiniopTensorDescriptor_t y, infiniopTensorDescriptor_t x);
infiniStatus_t infiniopGetTwiceWorkspaceSize(infiniopTwiceDescriptor_t desc, size_t *size);
infiniStatus_t infiniopDestroyTwiceDescriptor(infiniopTwiceDescriptor_t desc);
{_RUNS}
#endif
"""


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with lib/ and include/, as INFINI_ROOT names one."""
    if not shutil.which("gcc"):
        pytest.skip("needs gcc")
    root = tmp_path_factory.mktemp("tiny")
    (root / "lib").mkdir()
    (root / "include").mkdir()
    (root / "include" / "tiny.h").write_text(HEADER)
    for name, text in (("infinirt", RUNTIME), ("infiniop", OPERATORS)):
        (root / f"{name}.c").write_text(text)
        target = str(root / "lib" / f"lib{name}.so")
        command = ["gcc", "-O1", "-shared", "-fPIC", f"-I{root / 'include'}", str(root / f"{name}.c"), "-o", target]
        subprocess.run(command, check=True, capture_output=True)
    return root


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No library, registration or command line of another test; none installed on this machine."""
    monkeypatch.setattr(liboperators, "_default", [])
    monkeypatch.setattr(OpRegister, "registry", [])
    monkeypatch.setenv("INFINI_ROOT", str(tmp_path / "nothing"))
    monkeypatch.setattr(chosen, "script", "")
    monkeypatch.setattr(chosen, "seed", 0)
    monkeypatch.setattr(chosen, "only", None)
    monkeypatch.setattr(chosen, "only_of", "")


@pytest.fixture(scope="session")
def tiny_header(tiny_root: Path) -> Header:
    return read_headers([tiny_root / "include"])


@pytest.fixture
def lib(tiny_root: Path, tiny_header: Header) -> Iterator[InfiniLib]:
    """The tiny library, opened anew; its header was read once for all tests."""
    library = open_lib(tiny_root)
    vars(library)["header"] = tiny_header
    yield library
    library.ledger.close()
