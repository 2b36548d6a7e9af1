"""A mapping guessed from headers alone: right where they tell enough, marked where they do not, and always readable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from optest.clib.ffi.headers import read_headers
from optest.clib.ffi.inspection import Inspection
from optest.clib.ffi.preprocessor import find_header
from optest.clib.ffi.signatures import Header
from optest.clib.library.mapped import drift_of_mapping
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.mapping_file import mapping_path, read_mapping
from optest.clib.library.sketch import Sketch, sketch
from optest.errors import Unavailable
from optest.operators import operators

pytestmark = [
    pytest.mark.cxx,
    pytest.mark.skipif(not shutil.which("cc"), reason="needs a C compiler"),
]
EXAMPLE = Path(__file__).parents[3] / "examples" / "c_library" / "include"


def sketched(header: Header, *libraries: str) -> Sketch:
    inspection = Inspection(callable=header.prototypes)
    catalogue = [operators.get(name) for name in operators.names()]
    return sketch("mine", libraries or ("libmine.so",), header, inspection, catalogue)


def loaded(made: Sketch, header: Header, folder: Path) -> LibraryMapping:
    """What the loader makes of it; nothing of it drifts from the header that it was made of."""
    file = folder / "sketch.yaml"
    file.write_text(made.text)
    mapping = read_mapping(file)
    assert drift_of_mapping(mapping, header) == ()
    assert mapping.names
    assert set(mapping.names) == set(made.operators)
    return mapping


def of_text(folder: Path, text: str) -> tuple[Sketch, LibraryMapping, Header]:
    (folder / "mine.h").write_text(text)
    header = read_headers([folder / "mine.h"])
    made = sketched(header)
    return made, loaded(made, header, folder), header


def test_the_example_library_is_called_as_its_mapping_says(tmp_path: Path) -> None:
    """Held against the mapping that people wrote: where they differ, the sketch says that it guessed."""
    header = read_headers([EXAMPLE])
    made = sketched(header, "libinfiniop.so", "libinfinirt.so")
    mapping, written = loaded(made, header, tmp_path), read_mapping(mapping_path("infiniop", "."))
    for part in ("status", "set_device", "get_device", "synchronize", "handle", "tensor", "protocol", "devices"):
        assert getattr(mapping, part) == getattr(written, part), part
    assert mapping.dtypes == dict(written.dtypes)
    in_the_library = set(written.names) - {"softplus", "log_softmax", "bmm"}
    assert set(mapping.names) == in_the_library
    for name in in_the_library:
        ours, theirs = mapping.operators[name], written.operators[name]
        same = [each.replace("?", "") for each in (*ours.create, *ours.run)] == [
            each.replace("?", "") for each in (*theirs.create, *theirs.run)
        ]
        assert same or name in made.guessed, name
        assert ours.name == theirs.name
        assert ours.workspace == theirs.workspace
        if name not in made.guessed:
            assert (ours.implied, ours.left_out, ours.starts_as) == (theirs.implied, {}, theirs.starts_as) or (
                name == "random_sample"  # whose top_k of none nobody can guess
            ), name
    assert "swiglu" in made.guessed, "its header calls gate and up a and b"
    assert made.unplaced == {}
    assert "infinirtMalloc" in made.others


def installed(header: str) -> Header:
    try:
        return read_headers([find_header(header)])
    except Unavailable:
        pytest.skip(f"needs {header}")


def test_cblas_is_called_as_its_mapping_says(tmp_path: Path) -> None:
    header = installed("cblas.h")
    made = sketched(header)
    mapping, written = loaded(made, header, tmp_path), read_mapping(mapping_path("cblas", "."))
    (gemm,) = mapping.direct["gemm"]
    theirs = next(each for each in written.direct["gemm"] if each.functions["float32"] == "cblas_sgemm")
    assert (gemm.call, gemm.dims, gemm.swapped, gemm.starts_as) == (
        theirs.call,
        theirs.dims,
        theirs.swapped,
        theirs.starts_as,
    )
    assert gemm.functions["complex64"] == "cblas_cgemm", "whose pointers are void, and alpha's one of them"
    (dot,) = mapping.direct["dot"]
    assert dot.functions == {"float32": "cblas_sdot", "float64": "cblas_ddot"}
    assert dot.returns == "out"
    assert "negative_increments: lowest" in made.text
    assert (made.guesses, made.guessed) == (1, ()), "of the whole, not of an operator"
    assert "cblas_saxpy" in made.others


def test_liquid_is_called_as_its_mapping_says(tmp_path: Path) -> None:
    header = installed("liquid/liquid.h")
    made = sketched(header)
    mapping, written = loaded(made, header, tmp_path), read_mapping(mapping_path("liquid", "."))
    for name in ("add", "mul"):
        assert mapping.direct[name] == written.direct[name]
        assert name in made.guessed, "no pointer is const, so its output is told by its name alone"
    assert "matrixf_mul" in made.unplaced


PLAIN = """
#include <stddef.h>
#include <stdint.h>
typedef enum { CTX_OK = 0, CTX_BAD = 1 } ctx_status;
typedef struct ctx_s ctx;
ctx_status ctx_init(ctx **out);
void ctx_free(ctx *c);
ctx_status ctx_softmax_f32(ctx *c, float *out, const float *in, size_t rows, size_t cols, ptrdiff_t row_stride);
ctx_status ctx_rms_norm_f16(ctx *c, uint16_t *y, const uint16_t *x, const uint16_t *gamma, size_t rows, size_t cols,
                            float eps);
ctx_status ctx_rms_norm_f32(ctx *c, float *y, const float *x, const float *gamma, size_t rows, size_t cols, float eps);
ctx_status ctx_leaky_relu_f32(ctx *c, float *y, const float *x, size_t n, float slope);
ctx_status ctx_leaky_relu_f64(ctx *c, double *y, const double *x, size_t n, double slope);
ctx_status ctx_exp(ctx *c, float *data, size_t n);
ctx_status ctx_matmul(ctx *c, const float *a, const float *b, float *out, int m, int n, int k);
int ctx_tanh(ctx *c, float *y, const float *x, size_t n);
float ctx_sum_f32(const float *x, size_t n);
void ctx_mean_f32(const float *x, size_t n, float *result);
ctx_status ctx_topk(ctx *c, const float *x, size_t n, int k, float *values, int64_t *indices);
ctx_status ctx_sqrt(ctx *c, void *y, const void *x, size_t n);
ctx_status ctx_cos(ctx *c, float *y, const float *x, size_t n, int speed);
ctx_status ctx_twist(ctx *c, float *y, const float *x, size_t n);
"""


def test_plain_functions_with_a_context(tmp_path: Path) -> None:
    made, mapping, _ = of_text(tmp_path, PLAIN)
    assert mapping.status == "ctx_status"
    assert (mapping.handle.create.function, mapping.handle.destroy) == ("ctx_init", "ctx_free")
    entries = {name: each[0] for name, each in mapping.direct.items()}
    assert all(len(each) == 1 for each in mapping.direct.values())
    assert entries["softmax"].call == (
        *("handle", "output:out", "input:input", "size:m", "size:n", "leading:input"),
    )  # fmt: skip
    assert entries["softmax"].dims == {"out": ("m...", "n"), "input": ("m...", "n")}
    assert entries["softmax"].same_layout == ("out", "input")
    assert entries["softmax"].when == {"dim": "last"}
    assert entries["rms_norm"].functions == {"float16": "ctx_rms_norm_f16", "float32": "ctx_rms_norm_f32"}
    assert entries["rms_norm"].dims["weight"] == ("n",)
    assert entries["rms_norm"].call[-1] == "attribute:eps as float"
    assert entries["leaky_relu"].functions == {"float32": "ctx_leaky_relu_f32", "float64": "ctx_leaky_relu_f64"}
    assert entries["leaky_relu"].call[-1] == "attribute:negative_slope as scalar"
    assert entries["exp"].starts_as is not None
    assert entries["matmul"].dims == {"input": ("m", "k"), "other": ("k", "n"), "out": ("m", "n")}
    assert entries["sum"].returns == "out"
    assert entries["mean"].dims["out"] == ()
    assert set(made.guessed) == {"softmax", "rms_norm", "exp"}


@pytest.mark.parametrize(("result", "success"), [("int", "0"), ("_Bool", "true")])
def test_results_that_most_functions_have_are_taken_for_statuses(tmp_path: Path, result: str, success: str) -> None:
    functions = "".join(
        f"{result} my_{name}(const float *x, float *y, int n);\n" for name in ("relu", "tanh", "exp", "sqrt")
    )
    made, mapping, _ = of_text(tmp_path, functions + "float my_sum(const float *x, int n);\n")
    assert mapping.status == result.strip("_").lower()
    assert set(mapping.names) == {"relu", "tanh", "exp", "sqrt", "sum"}
    assert f"# guess: functions return a status, and {success} is success\nstatus: " in made.text


def test_what_cannot_be_placed_is_told_with_why(tmp_path: Path) -> None:
    made, _, _ = of_text(tmp_path, PLAIN)
    assert made.unplaced == {
        "ctx_tanh": "it returns int, and nothing says which of these are errors",
        "ctx_topk": "its tensors have several dtypes: float32, int64",
        "ctx_sqrt": "its tensors are void, and its name says no dtype",
        "ctx_cos": "nothing is known of int speed",
    }
    assert made.others == ("ctx_twist",)
    for function, why in made.unplaced.items():
        assert f"#   {function}: {why}" in made.text
    assert "# 1 function has the name of no operator:\n#   ctx_twist" in made.text


DESCRIBED = """
typedef enum { MY_SUCCESS = 0, MY_NOT_IMPLEMENTED = 1 } myStatus_t;
typedef enum { MY_TYPE_BYTE = 0, MY_TYPE_U8 = 1, MY_TYPE_F32 = 2, MY_TYPE_COUNT = 3 } myType_t;
typedef struct MyHandle *myHandle_t;
typedef struct MyTensor *myTensor_t;
typedef struct MyOp *myOp_t;
myStatus_t mySetDevice(int device, int id);
myStatus_t myCreateHandle(myHandle_t *handle);
myStatus_t myDestroyHandle(myHandle_t handle);
myStatus_t myCreateTensor(myTensor_t *t, unsigned long n, const unsigned long *shape, const long *strides, myType_t e);
myStatus_t myDestroyTensor(myTensor_t t);
myStatus_t myCreateReluDescriptor(myHandle_t handle, myOp_t *op, myTensor_t y, myTensor_t x, float ceiling);
myStatus_t myGetReluWorkspaceSize(myOp_t op, unsigned long *size);
myStatus_t myRelu(myOp_t op, void *workspace, unsigned long size_workspace, void *y, const void *x, void *stream);
myStatus_t myDestroyReluDescriptor(myOp_t op);
myStatus_t myCreateTwistDescriptor(myHandle_t handle, myOp_t *op, myTensor_t y, myTensor_t x);
myStatus_t myTwist(myOp_t op, void *y, const void *x, void *stream);
myStatus_t myDestroyTwistDescriptor(myOp_t op);
myStatus_t myCreateTanhDescriptor(myHandle_t handle, myOp_t *op, myTensor_t y, myTensor_t a, myTensor_t b);
myStatus_t myTanh(myOp_t op, void *y, const void *a, const void *b, void *stream);
myStatus_t myDestroyTanhDescriptor(myOp_t op);
"""


def test_operators_with_descriptors(tmp_path: Path) -> None:
    made, mapping, _ = of_text(tmp_path, DESCRIBED)
    assert mapping.dtypes == {"uint8": "MY_TYPE_U8", "float32": "MY_TYPE_F32"}
    assert mapping.unsupported == ("MY_NOT_IMPLEMENTED",)
    relu = mapping.operators["relu"]
    assert relu.create == ("handle", "slot", "output:out", "input:input", "constant:0 as float")
    assert relu.run == ("descriptor", "workspace", "workspace_size", "output:out", "input:input", "stream")
    assert "# guess: 0 is passed for float ceiling, which nothing is known of" in made.text
    assert made.unplaced == {
        "myCreateTwistDescriptor": "no operator of optest has this name",
        "myCreateTanhDescriptor": "myTanh has 2 inputs, tanh has 1",
    }


def test_without_a_function_that_selects_a_device_no_descriptor_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "mine.h").write_text(DESCRIBED.replace("mySetDevice", "myChoose"))
    made = sketched(read_headers([tmp_path / "mine.h"]))
    assert made.operators == ()
    assert "no function for set_device" in made.unplaced["myCreateReluDescriptor"]


def test_the_text_is_for_people(tmp_path: Path) -> None:
    made, _, _ = of_text(tmp_path, PLAIN)
    lines = made.text.splitlines()
    assert max(map(len, lines)) <= 120
    assert made.text.endswith("\n")
    assert "\N{NO-BREAK SPACE}" not in made.text
    assert sum("# guess: " in line for line in lines) == made.guesses >= len(made.guessed)
    assert yaml.safe_load(made.text)["library"] == ["libmine.so"]


def test_arguments_without_names_and_types_that_say_nothing(tmp_path: Path) -> None:
    made, mapping, _ = of_text(
        tmp_path,
        """
        typedef void *my_handle;
        my_handle my_create(void);
        void my_destroy(my_handle);
        void my_relu(my_handle, long, const float *, float *);
        void my_tanh(float *y, const float *x, int much);
        void my_exp(char *text, int n);
        void my_elu(const float *alpha, int n);
        void my_mul(my_handle, long, const float *, const float *, float *);
        """,
    )
    assert (mapping.handle.create.arguments, mapping.handle.destroy) == ((), "my_destroy")
    (relu,) = mapping.direct["relu"]
    assert relu.call == ("handle", "size:n", "input:input", "output:out")
    assert "# guess: long argument2 is the size" in made.text
    assert "# guess: argument3 is input:input, argument4 is input:other; by their order" in made.text
    assert mapping.direct["tanh"][0].call == ("output:out", "input:input", "size:n")
    assert made.unplaced == {"my_elu": "it takes no pointer to numbers"}
    assert "my_exp" in made.others
