"""LIBINFINIOP: opened when used, signatures from the header, registrations compared with it, descriptors counted."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from texts import refusal, says

from optest.clib.ffi.calls import BadCall, StatusError
from optest.clib.ffi.handles import HandleError
from optest.errors import Unavailable, UsageError
from optest.infiniop import (
    LIBINFINIOP,
    CTensor,
    InfiniDtype,
    InfiniLib,
    OpRegister,
    check_error,
    create_handle,
    destroy_handle,
    infiniopHandle_t,
    infiniopOperatorDescriptor_t,
    infiniopTensorDescriptor_t,
    open_lib,
)
from optest.infiniop.liboperators import Status, UncheckedSignature
from optest.infiniop.op_register import Drift

pytestmark = pytest.mark.cxx
POINTER = ctypes.c_void_p


def twice(handle: object, *tensors: CTensor) -> object:
    descriptor = infiniopOperatorDescriptor_t()
    create = LIBINFINIOP.infiniopCreateTwiceDescriptor
    check_error(create(handle, ctypes.byref(descriptor), *[each.descriptor for each in tensors]))
    return descriptor


def register(name: str, *argtypes: Any) -> None:
    @OpRegister.operator
    def configure(lib: Any) -> None:
        getattr(lib, name).argtypes = list(argtypes)

    assert callable(configure)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)


def test_import_loads_no_library_torch_or_parser() -> None:
    done = run_python(
        "import sys\nfrom optest.infiniop import *\nfrom optest.infiniop.utils import *\n"
        "print(repr(LIBINFINIOP), [m for m in ('torch', 'pycparser') if m in sys.modules])"
    )
    assert (done.returncode, done.stdout) == (0, "<LIBINFINIOP, not opened yet> []\n")


def test_missing_library_is_unavailable() -> None:
    with pytest.raises(Unavailable, match=r"library infini(op|rt) is unavailable: not found at .*nothing/lib/"):
        LIBINFINIOP.infiniopAdd  # noqa: B018 - the look-up fails


def test_default_library_is_opened_at_first_use(tiny_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINI_ROOT", str(tiny_root))
    assert LIBINFINIOP.aliveNow() == 0
    assert repr(LIBINFINIOP) == f"<InfiniLib of {tiny_root}>"


def test_operators_come_before_the_runtime(lib: InfiniLib) -> None:
    assert lib.both() == 0, "libinfiniop.so's, which succeeds, and not libinfinirt.so's"
    assert lib.infinirtSetDevice(0, 0) == 0, "only the runtime has it"
    assert lib.libop._name.endswith("libinfiniop.so")
    assert lib.librt._name.endswith("libinfinirt.so")


def test_loaded_objects_make_a_library(lib: InfiniLib, tiny_root: Path) -> None:
    own = InfiniLib(ctypes.CDLL(lib.librt._name), ctypes.CDLL(lib.libop._name), headers=[tiny_root / "include"])
    assert own.infinirtSetDevice(0, 0) == 0


def test_header_operators_need_no_registration(lib: InfiniLib) -> None:
    assert lib.infiniopTwice.argtypes == (ctypes.c_void_p, *lib.infiniopTwice.argtypes[1:])
    assert "infiniopTwice(infiniopTwiceDescriptor_t desc" in repr(lib.infiniopTwice)


def test_missing_symbol_affects_only_its_operator(lib: InfiniLib) -> None:
    register("infiniopAbsent", POINTER, POINTER, ctypes.c_size_t, POINTER, POINTER, POINTER)
    register("infiniopTwyce", POINTER)
    assert lib.infiniopTwice is lib.infiniopTwice
    assert not hasattr(lib, "infiniopTwyce")
    with pytest.raises(Unavailable, match=r"symbol infiniopAbsent is unavailable"):
        lib.infiniopAbsent(None)
    with pytest.raises(AttributeError, match=r"did you mean infiniopTwice\?"):
        lib.infiniopTwyce  # noqa: B018


def test_call_reports_drift_of_registration(lib: InfiniLib) -> None:
    register("infiniopTwice", POINTER, POINTER, ctypes.c_int, POINTER, POINTER, POINTER)
    with pytest.raises(Drift, match=r"infiniopTwice: argument 3 \(workspace_size\) is declared c_int, expected size_t"):
        lib.infiniopTwice(None, None, 0, None, None, None)
    with pytest.raises(Drift, match="workspace_size"):
        OpRegister.register_lib(lib)
    assert lib.infinirtSetDevice(0, 0) == 0, "no other function is concerned"


def test_assigned_signature_is_checked_for_drift(lib: InfiniLib) -> None:
    with refusal(Drift, "infiniop.declared_with_arguments_but"):
        lib.infiniopTwice.argtypes = [ctypes.c_void_p]
    lib.infinirtSetDevice.argtypes = [ctypes.c_int, ctypes.c_int]
    with refusal(Drift, "infiniop.the_result_is_declared"):
        lib.infinirtSetDevice.restype = ctypes.c_double


def test_undeclared_function_needs_a_registration(lib: InfiniLib) -> None:
    with pytest.raises(UsageError, match=r"infiniopHidden has no signature, .*write @OpRegister.operator"):
        lib.infiniopHidden(2)
    register("infiniopHidden", ctypes.c_int)
    with pytest.warns(UncheckedSignature, match="declares infiniopHidden"):
        status = lib.infiniopHidden(2)
    assert (status, repr(status)) == (2, "2 (INFINI_STATUS_NOT_IMPLEMENTED)")
    with refusal(UsageError, "infiniop.given_arguments_but_should"):
        lib.infiniopHidden(2, 3)


def test_library_without_headers_creates_tensors(tiny_root: Path, tmp_path: Path) -> None:
    lib = open_lib(tiny_root, headers=[])
    assert lib.header is None
    tensor = CTensor(InfiniDtype.F32, (2, 3), None)
    assert tensor.descriptor
    tensor.destroy_desc()
    with pytest.raises(StatusError, match=r"infiniopCreateTensorDescriptor returned 10 \(INFINI_STATUS_BAD_TENSOR_D"):
        CTensor(InfiniDtype.BF16, (2,), None).descriptor  # noqa: B018


def test_arguments_are_checked_before_the_call(lib: InfiniLib) -> None:
    with pytest.raises(BadCall, match=r"argument 3 \(workspace_size\) is -1, expected from 0"):
        lib.infiniopTwice(None, None, -1, None, None, None)


def test_tensor_descriptor_is_no_handle(lib: InfiniLib) -> None:
    tensor = CTensor(InfiniDtype.F32, (2,), None)
    with refusal(BadCall, "infiniop.is_handle_of_infinioptensordescriptor"):
        twice(tensor.descriptor, tensor, tensor)
    with refusal(HandleError, "infiniop.tensor_descriptor_is_given"):
        lib.infiniopDestroyHandle(tensor.descriptor)
    tensor.destroy_desc()


def test_status_names_come_from_library_header(lib: InfiniLib) -> None:
    assert lib.codes.name(77) == "INFINI_STATUS_OF_THIS_LIBRARY"
    with pytest.raises(StatusError, match=r"infinirtSetDevice returned 5 \(INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED\)"):
        check_error(lib.infinirtSetDevice(1, 0))
    with pytest.raises(StatusError, match=r"returned 4 \(INFINI_STATUS_NULL_POINTER\)"):
        check_error(4)
    check_error(0)


def test_unchecked_status_is_kept(lib: InfiniLib) -> None:
    lib.infinirtSetDevice(1, 0)
    looked = lib.infinirtSetDevice(1, 0)
    assert looked != 0
    (left,) = lib.take_unseen()
    assert isinstance(left, Status)
    assert left.function == "infinirtSetDevice"
    assert lib.take_unseen() == []


def test_destroying_tensor_descriptor_twice_is_harmless(lib: InfiniLib) -> None:
    before = lib.aliveNow()
    tensor = CTensor(InfiniDtype.F32, (2, 3), (3, 1))
    assert isinstance(tensor.descriptor, infiniopTensorDescriptor_t)
    assert lib.aliveNow() == before + 1
    tensor.destroy_desc()
    tensor.destroy_desc()
    assert tensor.descriptor is None
    assert lib.aliveNow() == before
    assert not lib.ledger.kept()


def test_forgotten_descriptor_is_destroyed(lib: InfiniLib) -> None:
    before = lib.aliveNow()
    tensor = CTensor(InfiniDtype.F32, (2, 3), None)
    assert tensor.descriptor
    del tensor
    gc.collect()
    assert lib.aliveNow() == before


def test_operator_descriptor_is_never_freed_twice(lib: InfiniLib) -> None:
    handle = create_handle()
    assert isinstance(handle, infiniopHandle_t)
    descriptor = twice(handle, CTensor(InfiniDtype.F32, (2,), None), CTensor(InfiniDtype.F32, (2,), None))
    assert len(lib.ledger.kept()) == 2
    assert lib.infiniopDestroyTwiceDescriptor(descriptor) == 0
    with pytest.raises(HandleError, match="was destroyed before"):
        lib.infiniopDestroyTwiceDescriptor(descriptor)
    destroy_handle(handle)
    assert not lib.ledger.kept()
    with pytest.raises(HandleError):
        destroy_handle(handle)


def test_refused_creation_leaves_nothing(lib: InfiniLib) -> None:
    handle = create_handle()
    with pytest.raises(StatusError, match="BAD_TENSOR_SHAPE"):
        twice(handle, CTensor(InfiniDtype.F32, (2,), None), CTensor(InfiniDtype.F32, (3,), None))
    destroy_handle(handle)
    assert not lib.ledger.kept()


def test_headers_without_parser_are_unavailable(tiny_root: Path) -> None:
    done = run_python(
        "import sys; sys.modules['pycparser'] = None\n"
        f"from optest.infiniop import *; open_lib({str(tiny_root)!r}).infinirtSetDevice(0, 0)"
    )
    assert says(done.stderr, "infiniop.unavailable_pycparser_is_unavailable")
