"""A C library of another style than BLAS: a context in every call, shapes as arrays, rows at distances in bytes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ffi_plans import ffi_case, run_ffi_plan

from optest.spec import CaseResult, Reason, Status

pytestmark = [pytest.mark.cxx, pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")]

HEADER = """
#include <stddef.h>
#include <stdint.h>
typedef enum { T_OK = 0, T_NULL = -1, T_ARG = -2 } t_status;
typedef struct t_ctx t_ctx;
#define T_TANH 2
t_status t_new(t_ctx **out, int threads);
t_ctx *t_made(void);
void t_end(t_ctx *);
t_status t_scale_rows(t_ctx *, float *out, const float *in, size_t rows, size_t cols, ptrdiff_t stride);
t_status t_mul(t_ctx *, void *out, size_t out_bytes, const void *a, size_t a_bytes, const void *b, size_t b_bytes,
               int rows, int cols);
t_status t_sum(t_ctx *, float *out, const float *in, int ndim, const int64_t *shape, int axis);
t_status t_copy(t_ctx *, float *out, const ptrdiff_t *to, const float *in, const ptrdiff_t *from, int ndim,
                const size_t *shape);
t_status t_norm(t_ctx *, float *out, const float *in, size_t rows, size_t cols, float eps, int flags);
"""

SOURCE = """
#include "t.h"
#include <math.h>
#include <stdlib.h>
struct t_ctx { int magic; };
static int wrong(t_ctx *c) { return !c || c->magic != 77; }
t_ctx *t_made(void) { t_ctx *c = malloc(sizeof *c); c->magic = 77; return c; }
t_status t_new(t_ctx **out, int threads) { *out = t_made(); return threads == 3 ? T_OK : T_ARG; }
void t_end(t_ctx *c) { free(c); }
t_status t_scale_rows(t_ctx *c, float *out, const float *in, size_t rows, size_t cols, ptrdiff_t stride) {
    if (wrong(c)) return T_NULL;
#ifdef IGNORES_STRIDE
    stride = cols;
#endif
    for (size_t r = 0; r < rows; ++r) {
        const float *x = in + (ptrdiff_t)r * stride; float *y = out + (ptrdiff_t)r * stride;
        float most = -INFINITY; double sum = 0;
        for (size_t j = 0; j < cols; ++j) most = x[j] > most ? x[j] : most;
        for (size_t j = 0; j < cols; ++j) sum += exp((double)x[j] - most);
        for (size_t j = 0; j < cols; ++j) y[j] = (float)(exp((double)x[j] - most) / sum);
    }
    return T_OK;
}
t_status t_mul(t_ctx *c, void *out, size_t ob, const void *a, size_t ab, const void *b, size_t bb, int rows, int cols) {
    if (wrong(c)) return T_NULL;
    for (int r = 0; r < rows; ++r) for (int j = 0; j < cols; ++j)
        ((float *)((char *)out + r * ob))[j] = ((float *)((char *)a + r * ab))[j] * ((float *)((char *)b + r * bb))[j];
    return T_OK;
}
t_status t_sum(t_ctx *c, float *out, const float *in, int ndim, const int64_t *shape, int axis) {
    if (wrong(c)) return T_NULL;
    if (axis < 0) axis += ndim;
    size_t outer = 1, inner = 1, k = shape[axis];
    for (int i = 0; i < axis; ++i) outer *= shape[i];
    for (int i = axis + 1; i < ndim; ++i) inner *= shape[i];
    for (size_t o = 0; o < outer; ++o) for (size_t i = 0; i < inner; ++i) {
        double s = 0;
        for (size_t j = 0; j < k; ++j) s += in[(o * k + j) * inner + i];
        out[o * inner + i] = (float)s;
    }
    return T_OK;
}
t_status t_copy(t_ctx *c, float *out, const ptrdiff_t *to, const float *in, const ptrdiff_t *from, int ndim,
                const size_t *shape) {
    if (wrong(c)) return T_NULL;
    size_t count = 1;
    for (int d = 0; d < ndim; ++d) count *= shape[d];
    for (size_t i = 0; i < count; ++i) {
        ptrdiff_t source = 0, target = 0; size_t rest = i;
        for (int d = ndim - 1; d >= 0; --d) {
            source += (ptrdiff_t)(rest % shape[d]) * from[d];
            target += (ptrdiff_t)(rest % shape[d]) * to[d];
            rest /= shape[d];
        }
        out[target] = -in[source];
    }
    return T_OK;
}
t_status t_norm(t_ctx *c, float *out, const float *in, size_t rows, size_t cols, float eps, int flags) {
    if (wrong(c)) return T_NULL;
    for (size_t i = 0; i < rows * cols; ++i) {
        double x = in[i];
        out[i] = (float)(flags == T_TANH ? 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)))
                                         : 0.5 * x * erfc(-x * 0.70710678118654752440));
    }
    return T_OK;
}
"""

MAPPING = """
version: 1
name: t
library: [libt.so]
status: t_status
handle:
  create: {function: t_new, arguments: [slot, constant:3 as int]}
  destroy: t_end
operators:
  softmax:
    functions: {float32: t_scale_rows}
    dims: {input: [m..., k], out: [m..., k]}
    when: {dim: last}
    same_layout: [input, out]
    call: [handle, output:out, input:input, size:m, size:k, leading:input]
  mul:
    functions: {float32: t_mul}
    dims: {input: [m, k], other: [m, k], out: [m, k]}
    call: [handle, output:out, leading:out as bytes, input:input, leading:input as bytes,
           input:other, leading:other as bytes, size:m, size:k]
  sum:
    functions: {float32: t_sum}
    dims: {input: [n...], out: [o...]}
    ignores: [keepdim]
    call: [handle, output:out, input:input, ndim:input, "shape:input as int64_t[]", attribute:dim as int]
  neg:
    functions: {float32: t_copy}
    dims: {input: [n...], out: [n...]}
    call: [handle, output:out, "strides:out as ptrdiff_t[]", input:input, "strides:input as ptrdiff_t[]",
           ndim:out, "shape:out as size_t[]"]
  gelu:
    functions: {float32: t_norm}
    dims: {input: [m..., k], out: [m..., k]}
    choices: {approximate: {none: 0, tanh: T_TANH}}
    call: [handle, output:out, input:input, size:m, size:k, constant:0 as float, attribute:approximate as int]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("t")
    Path(made, "t.h").write_text(HEADER)
    Path(made, "t.c").write_text(SOURCE)
    Path(made, "t.yaml").write_text(MAPPING)
    Path(made, "made.yaml").write_text(
        MAPPING.replace("{function: t_new, arguments: [slot, constant:3 as int]}", "{function: t_made, arguments: []}")
    )
    Path(made, "refused.yaml").write_text(MAPPING.replace("constant:3", "constant:2"))
    for name, flags in (("libt.so", []), ("libwrong.so", ["-DIGNORES_STRIDE"])):
        command = ["gcc", "-O1", "-shared", "-fPIC", *flags, "-o", str(made / name), str(made / "t.c"), "-lm"]
        subprocess.run(command, check=True)
    return made


def asked(folder: Path, *cases: dict[str, Any], library: str = "libt.so", mapping: str = "t.yaml") -> list[CaseResult]:
    place = {"library": str(folder / library), "headers": str(folder), "mapping": str(folder / mapping)}
    return list(run_ffi_plan(folder, cases, **place).results)


def case(op: str, *shapes: Any, out: Any = None, **attributes: Any) -> dict[str, Any]:
    made = ffi_case(op, *shapes, attributes=attributes)
    return made if out is None else {**made, "backend_config": {"ffi": {"outputs": {"out": out}}}}


PADDED = {"shape": [4, 5], "strides": [7, 1]}


@pytest.mark.parametrize("mapping", ["t.yaml", "made.yaml"])
def test_every_kind_of_argument_arrives(folder: Path, mapping: str) -> None:
    results = asked(
        folder,
        case("softmax", PADDED, out={"strides": [7, 1]}, dim=-1),
        case("softmax", [4, 5], dim=1),
        case("mul", PADDED, {"shape": [4, 5], "strides": [9, 1]}, out={"strides": [6, 1]}),
        case("sum", [2, 3, 4], dim=[1]),
        case("sum", [2, 3, 4], dim=[-1], keepdim=True),
        case("neg", {"shape": [2, 3, 4], "strides": [1, -9, 2], "offset": 20}, out={"strides": [40, 3, 11]}),
        case("gelu", [3, 5], approximate="tanh"),
        case("gelu", [3, 5]),
        mapping=mapping,
    )
    assert [(each.status, each.verdict.message) for each in results] == [(Status.PASSED, "")] * 8


def test_one_layout_for_two_tensors_is_asked_and_required(folder: Path) -> None:
    wrong, apart = asked(
        folder,
        case("softmax", PADDED, out={"strides": [7, 1]}, dim=-1),
        case("softmax", PADDED, dim=-1),
        library="libwrong.so",
    )
    assert wrong.verdict.reason is Reason.OUT_OF_BOUNDS
    assert apart.verdict.reason is Reason.UNSUPPORTED
    assert "takes input and out in one layout, but the steps are [7, 1] and [5, 1]" in apart.verdict.message


def test_what_an_attribute_cannot_be_is_a_gap(folder: Path) -> None:
    none, other = asked(folder, case("sum", [2, 3]), case("softmax", [2, 3], dim=0))
    assert none.verdict.reason is Reason.UNSUPPORTED
    assert "takes a number as dim, but it is None; left_out may say" in none.verdict.message
    assert "has no dim of 0" in other.verdict.message


def test_a_handle_that_is_refused_names_function_and_status(folder: Path) -> None:
    (result,) = asked(folder, case("gelu", [3]), mapping="refused.yaml")
    assert result.status is Status.ERROR
    assert "t_new returned -2 (T_ARG)" in result.verdict.message
