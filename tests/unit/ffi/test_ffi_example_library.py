"""The whole layer on the example library: headers, four-call protocol, layouts, refusals, leaks."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from optest.clib.ffi.calls import BadCall, Function, bind
from optest.clib.ffi.handles import Handle, Ledger
from optest.clib.ffi.headers import read_headers
from optest.clib.ffi.inspection import Inspection, inspect_files
from optest.clib.ffi.libraries import open_library
from optest.clib.ffi.signatures import Header
from optest.clib.ffi.statuses import StatusCodes, StatusError
from optest.clib.ffi.workspace import WORKSPACE_CONTENTS, Workspace
from optest.memory.buffers import Buffer
from optest.memory.poisons import READ_POISONS, Poison
from optest.spec import TensorSpec, dtype

EXAMPLE = Path(__file__).parents[3] / "examples" / "c_library"

pytestmark = [
    pytest.mark.cxx,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (EXAMPLE / "Makefile").exists() or not shutil.which("make"), reason="needs the example, make"
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    header: Header
    inspection: Inspection
    functions: dict[str, Function]


@pytest.fixture(scope="module")
def example(c_library: Path) -> Example:
    header = read_headers([c_library / "include"])
    library = open_library(["infiniop", "infinirt"], root=c_library)
    inspection = inspect_files(library.paths, header)
    codes = StatusCodes.of(header.enum("infiniStatus_t"))
    functions = {
        name: bind(library, prototype, codes=codes, enums=header.enums)
        for name, prototype in inspection.callable.items()
    }
    return Example(header=header, inspection=inspection, functions=functions)


def create_handle(example: Example, ledger: Ledger) -> Handle:
    f = example.functions
    f["infinirtSetDevice"].succeed(example.header.constants["INFINI_DEVICE_CPU"], 0)
    create, destroy = f["infiniopCreateHandle"].succeed, f["infiniopDestroyHandle"].succeed
    return ledger.make("handle", create, destroy, tag="InfiniopHandle")


def describe(example: Example, ledger: Ledger, spec: TensorSpec) -> Handle:
    create, destroy = (example.functions[f"infiniop{verb}TensorDescriptor"] for verb in ("Create", "Destroy"))
    shape = (ctypes.c_size_t * spec.rank)(*spec.shape)
    strides = None if spec.strides is None else (ctypes.c_ssize_t * spec.rank)(*spec.strides)
    kind = example.header.enum("infiniDtype_t")["INFINI_DTYPE_F32"]
    return ledger.make(
        "tensor descriptor",
        lambda out: create.succeed(out, spec.rank, shape, strides, kind),
        destroy.succeed,
        tag="InfiniopTensorDescriptor",
    )


def describe_add(example: Example, ledger: Ledger, handle: Handle, *specs: TensorSpec) -> Handle:
    """The operator's descriptor; those of the tensors are destroyed, for the library has copied them."""
    f = example.functions
    tensors = [describe(example, ledger, spec) for spec in specs]
    try:
        return ledger.make(
            "add descriptor",
            lambda out: f["infiniopCreateAddDescriptor"].succeed(handle, out, *tensors),
            f["infiniopDestroyAddDescriptor"].succeed,
            tag="InfiniopDescriptor",
        )
    finally:
        for tensor in tensors:
            tensor.destroy()


def float32(*shape: int, strides: tuple[int, ...] | None = None, offset: int = 0) -> TensorSpec:
    return TensorSpec(dtype=dtype("float32"), shape=shape, strides=strides, offset=offset)


def test_the_headers_and_the_library_agree(example: Example) -> None:
    assert len(example.inspection.callable) > 90
    assert example.inspection.missing == ()
    assert dict(example.inspection.refused) == {}
    assert example.inspection.problems == ()


@pytest.mark.parametrize("poison", READ_POISONS)
@pytest.mark.parametrize("content", WORKSPACE_CONTENTS)
def test_add_over_layouts_touches_what_it_should_and_no_more(example: Example, poison: Poison, content: int) -> None:
    f = example.functions
    specs = (float32(5, 7, strides=(1, 6)), float32(5, 7, strides=(-9, 1), offset=36), float32(5, 7, strides=(0, 2)))
    a, b = np.arange(35, dtype=np.float32).reshape(5, 7), np.tile(np.arange(7, dtype=np.float32), (5, 1))
    with Ledger() as ledger, create_handle(example, ledger) as handle:
        buffers = [Buffer.allocate(spec, name=name, poison=poison) for spec, name in zip(specs, "cab", strict=True)]
        buffers[1].put(a)
        buffers[2].put(b)
        with describe_add(example, ledger, handle, *specs) as add:
            size = ctypes.c_size_t()
            f["infiniopGetAddWorkspaceSize"].succeed(add, ctypes.byref(size))
            workspace = Workspace.allocate(size.value, content=content)
            f["infiniopAdd"].succeed(add, workspace, workspace.size, *buffers, None)
        assert np.array_equal(buffers[0].array, a + b)
        assert [buffers[0].outside(), buffers[1].mutated(a), buffers[2].mutated(b), workspace.outside()] == [None] * 4
    assert ledger.leaks() == ()
    assert ledger.created == {"handle": 1, "tensor descriptor": 3, "add descriptor": 1}


def test_a_refusal_has_the_librarys_name(example: Example) -> None:
    with Ledger() as ledger, create_handle(example, ledger) as handle:
        expected = r"^infiniopCreateAddDescriptor returned 11 \(INFINI_STATUS_BAD_TENSOR_SHAPE\)$"
        with pytest.raises(StatusError, match=expected):
            describe_add(example, ledger, handle, float32(2, 3), float32(2, 3), float32(2, 4))
    assert ledger.leaks() == ()


def test_handles_of_another_kind_never_reach_the_library(example: Example) -> None:
    with Ledger() as ledger, create_handle(example, ledger) as handle:
        spec = float32(2)
        with (
            describe(example, ledger, spec) as tensor,
            pytest.raises(
                BadCall, match=r"argument 3 \(c_desc\) is a handle of InfiniopHandle, but should be infiniopTe"
            ),
        ):
            example.functions["infiniopCreateAddDescriptor"](
                handle, ctypes.byref(ctypes.c_void_p()), handle, tensor, tensor
            )
