"""Dtypes, devices, the command line and timings: names, numbers, vendors' modules, synchronisation."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
from texts import refusal, says

from optest.errors import Unavailable, UnknownName, UsageError
from optest.infiniop import (
    InfiniDeviceEnum,
    InfiniDeviceNames,
    InfiniDtype,
    InfiniDtypeNames,
    devices,
    get_args,
    get_sync_func,
    get_test_devices,
    profile_operation,
    synchronize_device,
    timed_op,
    to_numpy_dtype,
    to_torch_dtype,
    torch_device_map,
)
from optest.infiniop.datatypes import element_of, infini_dtype

NUMBERS = ("I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64", "F8", "F16", "F32", "F64")
HEADER = ["INVALID", "BYTE", "BOOL", *NUMBERS, "C16", "C32", "C64", "C128", "BF16"]


class FakeTorch(SimpleNamespace):
    """A torch with devices ``cuda``, ``npu`` and ``mlu`` that records the calls of their modules."""

    def __init__(self, *, available: bool = True) -> None:
        self.calls: list[str] = []

        def backend(name: str) -> SimpleNamespace:
            return SimpleNamespace(
                is_available=lambda: available,
                synchronize=lambda: self.calls.append(f"{name}.synchronize"),
                set_device=lambda number: self.calls.append(f"{name}.set_device({number})"),
            )

        super().__init__(cuda=backend("cuda"), npu=backend("npu"), mlu=backend("mlu"))


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    fake = FakeTorch()
    monkeypatch.setattr(devices, "loaded_torch", lambda: fake)
    return fake


def test_dtype_numbers_and_names_match_header() -> None:
    assert [InfiniDtypeNames[number] for number in range(20)] == HEADER
    assert InfiniDtype["C8"] is InfiniDtype["C16"]
    assert [InfiniDtype[name].value for name in ("C8", "C16", "C32", "C64", "C128")] == [15, 15, 16, 17, 18]
    sizes = [element_of(dt).itemsize_bytes for dt in InfiniDtype if dt]
    assert sizes == [1, 1, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 16, 2]


@pytest.mark.parametrize("dt", [dt for dt in InfiniDtype if dt], ids=lambda dt: dt.name)
def test_numpy_dtype_has_same_width(dt: InfiniDtype) -> None:
    assert to_numpy_dtype(dt).itemsize == element_of(dt).itemsize_bytes
    assert to_numpy_dtype(dt, compatability_mode=True).kind != "u" or element_of(dt).bits == 8


@pytest.mark.torch
def test_torch_dtypes_round_trip() -> None:
    import torch

    assert to_torch_dtype(InfiniDtype.F8) is torch.float8_e4m3fn
    assert to_torch_dtype(InfiniDtype.BYTE) is torch.uint8
    assert to_torch_dtype(InfiniDtype.U32) is torch.uint32
    assert to_torch_dtype(InfiniDtype.U32, compatability_mode=True) is torch.int32
    assert to_torch_dtype(InfiniDtype.C32) is torch.complex32
    for dt in InfiniDtype:
        if dt not in (InfiniDtype.INVALID, InfiniDtype.BYTE, InfiniDtype.C16):
            assert infini_dtype(to_torch_dtype(dt)) is dt
    with pytest.raises(UsageError, match="C16 is two float8"):
        to_torch_dtype(InfiniDtype.C16)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(12, "F16"), ("F16", "F16"), ("float16", "F16"), ("torch.bfloat16", "BF16"), ("uint8", "U8"), (True, "BYTE")],
)
def test_spellings_of_a_dtype(value: object, expected: str) -> None:
    assert infini_dtype(value) is InfiniDtype[expected]
    with pytest.raises(UnknownName):
        infini_dtype(f"{value}x")


def test_devices_match_header() -> None:
    names = ["CPU", "NVIDIA", "Cambricon", "Ascend", "Metax", "Moore", "Iluvatar", "Kunlun", "Hygon", "QY"]
    assert {device.value: InfiniDeviceNames[device] for device in InfiniDeviceEnum} == dict(enumerate(names))
    in_torch = ["cpu", "cuda", "mlu", "npu", "cuda", "musa", *["cuda"] * 4]
    assert [torch_device_map[device] for device in InfiniDeviceEnum] == in_torch


@pytest.mark.parametrize("device", [InfiniDeviceEnum.NVIDIA, 1, "cuda", "cuda:3", "NVIDIA", InfiniDeviceEnum.KUNLUN])
def test_every_device_spelling_is_synchronised(torch: FakeTorch, device: object) -> None:
    synchronize_device(device)
    assert torch.calls == ["cuda.synchronize"]
    assert get_sync_func(InfiniDeviceEnum.CAMBRICON) is not None
    assert get_sync_func("cpu") is get_sync_func(InfiniDeviceEnum.CPU) is None
    with pytest.raises(UnknownName, match="unknown device 'gpu'"):
        synchronize_device("gpu")


def test_timing_synchronises_and_refuses_zero_iterations(torch: FakeTorch) -> None:
    def work() -> None:
        torch.calls.append("work")

    assert timed_op(work, 3, InfiniDeviceEnum.NVIDIA) > 0
    assert torch.calls == ["cuda.synchronize", "work", "work", "work", "cuda.synchronize"]
    with refusal(UsageError, "infiniop.zero_iterations_are_no"):
        timed_op(work, 0, "cuda")
    with pytest.raises(UsageError, match="expected 1 or more"):
        profile_operation("op", work, InfiniDeviceEnum.CPU, 2, 0)


def test_profiling_prints_the_mean(capsys: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []
    seconds = profile_operation("Matmul", lambda: calls.append(1), InfiniDeviceEnum.CPU, 2, 5)
    assert len(calls) == 7
    assert capsys.readouterr().out == f" Matmul time: {seconds * 1000:.6f} ms\n"


def test_vendor_module_is_imported_for_requested_device(torch: FakeTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))
    assert get_test_devices(get_args(["--ascend", "--nvidia"])) == [InfiniDeviceEnum.NVIDIA, InfiniDeviceEnum.ASCEND]
    assert torch.calls == ["npu.set_device(0)"]
    assert devices.require_device(InfiniDeviceEnum.ASCEND) == "npu"
    assert torch.calls == ["npu.set_device(0)"], "once, and not for every tensor"


def test_missing_vendor_modules_are_named(torch: FakeTorch) -> None:
    for name, module in (("Cambricon", "mlu"), ("Ascend", "npu"), ("Moore", "musa"), ("Kunlun", "xmlir")):
        with pytest.raises(Unavailable, match=f"device {name} is unavailable: install the vendor's torch_{module}$"):
            get_test_devices(get_args([f"--{name.lower()}"]))
    with pytest.raises(UsageError, match=r"(?s)device Cambricon .*device Moore "):
        get_test_devices(get_args(["--cambricon", "--moore", "--nvidia"]))


def test_device_missing_in_torch_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "loaded_torch", lambda: FakeTorch(available=False))
    with refusal(Unavailable, "infiniop.device_nvidia_is_unavailable"):
        get_test_devices(get_args(["--nvidia"]))


def test_processor_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> object:
        raise Unavailable("torch", "pip install torch")

    monkeypatch.setattr(devices, "loaded_torch", absent)
    for options in ([], ["--cpu"]):
        assert get_test_devices(get_args(options)) == [InfiniDeviceEnum.CPU]
    with refusal(Unavailable, "infiniop.device_nvidia_is_unavailable_pip"):
        get_test_devices(get_args(["--nvidia"]))


def test_command_line_options(capsys: pytest.CaptureFixture[str]) -> None:
    args = get_args(["--num_prerun", "0", "--debug"])
    assert (args.num_prerun, args.num_iterations, args.debug, args.profile, args.seed) == (0, 1000, True, False, 0)
    with pytest.raises(SystemExit):
        get_args(["--num_iterations", "0"])
    assert says(capsys.readouterr().err, "infiniop.is_but_should_be")
