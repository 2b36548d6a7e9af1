"""What runtimes of scenes lack here; CUDA over a stand-in for its toolkit, in which all memory is the host's."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from texts import refusal, says_exactly

from optest.scenes import TaskArgs, Tensor
from optest.scenes.runtimes import RUNTIMES, lack_of_runtime, ordinal
from optest.scenes.runtimes.callables import orchestration_in_python
from optest.scenes.runtimes.cuda import CudaRuntime, lack_of_cuda
from optest.scenes.runtimes.triton import TritonRuntime
from optest.spec import Fault, Reason

ADD = """
extern "C" void add(const optest::Arguments& args) {
    for (int64_t i = 0; i < args[0].elements + EXTRA; ++i) args[1].as<float>()[i] = args[0].as<float>()[i] + 1;
}
extern "C" void fails(const optest::Arguments&) { fake_status = cudaErrorIllegalAddress; }
extern "C" void refused(const optest::Arguments&) { throw std::runtime_error("no such tile"); }
"""
TOOLKIT = """
#pragma once
#include <cstdlib>
#include <cstring>
enum cudaError_t { cudaSuccess, cudaErrorInvalidDevice, cudaErrorIllegalAddress };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
static cudaError_t fake_status = cudaSuccess;
inline cudaError_t cudaSetDevice(int device) { return device < 2 ? fake_status : cudaErrorInvalidDevice; }
inline cudaError_t cudaMalloc(void** to, std::size_t bytes) { *to = std::malloc(bytes); return fake_status; }
inline cudaError_t cudaFree(void* memory) { std::free(memory); return fake_status; }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
    std::memcpy(to, from, bytes);
    return fake_status;
}
inline cudaError_t cudaGetLastError() { return fake_status; }
inline cudaError_t cudaDeviceSynchronize() { return fake_status; }
inline const char* cudaGetErrorString(cudaError_t status) {
    return status == cudaErrorInvalidDevice ? "no such device" : "illegal address";
}
"""


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compile_cache: Path) -> Iterator[Path]:
    """nvcc and nvidia-smi of a machine with a GPU; the source that is compiled."""
    del compile_cache
    (tmp_path / "cuda_runtime.h").write_text(TOOLKIT)
    nvcc = f'[ "$1" = --version ] || set -- -x c++ -I{tmp_path} "$@"\nexec g++ $(echo "$@" | sed s/-Xcompiler//)'
    for name, text in (("nvcc", f"#!/bin/sh\n{nvcc}\n"), ("nvidia-smi", '#!/bin/sh\necho "GPU 0: a GPU"\n')):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    lack_of_cuda.cache_clear()
    (tmp_path / "add.cu").write_text(ADD.replace("EXTRA", "0"))
    yield tmp_path / "add.cu"
    lack_of_cuda.cache_clear()


def ran(source: Path, function: str = "add", device: int = 0) -> np.ndarray:
    runtime = CudaRuntime()
    program = runtime.build({"orchestration": {"source": str(source), "function_name": function}}, "cuda", level=2)
    y = np.zeros(5, np.float32)
    args = TaskArgs(Tensor("x", np.arange(5, dtype=np.float32)), Tensor("y", y))
    runtime.open("cuda", [device]).run(program, args, None)  # type: ignore[arg-type]
    return y


@pytest.mark.cxx
class TestCuda:
    def test_tensors_go_to_the_device_and_back(self, toolkit: Path) -> None:
        assert lack_of_runtime("cuda", "cuda") is None
        assert ran(toolkit).tolist() == [1, 2, 3, 4, 5]

    def test_a_write_beyond_a_tensor_is_found(self, toolkit: Path) -> None:
        toolkit.write_text(ADD.replace("EXTRA", "100"))
        with refusal(Fault, "scenes.memory_was_written_beyond") as caught:
            ran(toolkit)
        assert caught.value.reason is Reason.OUT_OF_BOUNDS

    @pytest.mark.parametrize(
        ("function", "device", "reason", "message"),
        [
            ("fails", 0, Reason.DEVICE_LOST, "launch: illegal address"),
            ("refused", 0, Reason.RAISED, "no such tile"),
            ("add", 2, Reason.RAISED, "cudaSetDevice: no such device"),
            ("gone", 0, Reason.BAD_CASE, 'the source has no function extern "C" gone'),
        ],
    )
    def test_errors_have_their_reason(
        self, toolkit: Path, function: str, device: int, reason: Reason, message: str
    ) -> None:
        with pytest.raises(Fault, match=message) as caught:
            ran(toolkit, function, device)
        assert caught.value.reason is reason

    @pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
    @pytest.mark.usefixtures("compile_cache")
    def test_kernels_compile(self, tmp_path: Path) -> None:
        text = (
            "__global__ void add(float* x) { x[threadIdx.x] += kOne; }\n"
            'extern "C" void launch(const optest::Arguments& args) { add<<<1, 32>>>(args[0].as<float>()); }\n'
        )
        (tmp_path / "add.cu").write_text(text)
        callable_ = {"orchestration": {"source": str(tmp_path / "add.cu"), "function_name": "launch"}}
        with pytest.raises(Fault, match=r"(?s)add.cu does not compile:.*add.cu\(1\): error: .*kOne") as caught:
            CudaRuntime().build(callable_, "cuda", level=2)
        assert caught.value.reason is Reason.COMPILE
        (tmp_path / "add.cu").write_text(text.replace("kOne", "1"))
        assert CudaRuntime().build(callable_, "cuda", level=2)[0].is_file()


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize(
    ("runtime", "platform", "why"),
    [
        ("cuda", "cuda", "compiler nvcc is unavailable: install nvcc, or set NVCC to another one"),
        ("cpp", "cpusim", "compiler g++ is unavailable: install g++, or set CXX to another one"),
        ("cpp", "cuda", "runtime cpp does not run on cuda, but on cpusim, a2a3sim, a5sim"),
        ("nobody", "cpusim", "runtime nobody is not installed; known: cpp, cuda, opencl, triton"),
    ],
)
def test_a_lack_is_explained(runtime: str, platform: str, why: str) -> None:
    assert str(lack_of_runtime(runtime, platform)).startswith(why)


def test_a_gpu_is_needed(no_programs: Path) -> None:
    (no_programs / "nvcc").touch(mode=0o755)
    assert says_exactly(lack_of_runtime("cuda", "cuda"), "scenes.cuda_is_unavailable_nvidia")


@pytest.fixture
def no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("CXX", "NVCC"):
        monkeypatch.delenv(variable, raising=False)
    lack_of_cuda.cache_clear()
    yield tmp_path
    lack_of_cuda.cache_clear()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    for name in ("optest.scenes.runtimes.opencl", "optest.backends.opencl_device"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(RUNTIMES._entries, "opencl", "optest.scenes.runtimes.opencl:OpenClRuntime")
    assert says_exactly(lack_of_runtime("opencl", "oclsim"), "scenes.runtime_opencl_is_unavailable")
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr("optest.scenes.runtimes.triton.is_installed", lambda name: name != "triton")
    assert says_exactly(lack_of_runtime("triton", "tritonsim"), "scenes.runtime_triton_is_unavailable")


@pytest.mark.parametrize("runtime", [CudaRuntime(), TritonRuntime()])
def test_one_device_is_level_2(runtime: CudaRuntime | TritonRuntime) -> None:
    with refusal(Fault, "scenes.has_one_device_for") as caught:
        runtime.build({}, "cuda", level=3)
    assert caught.value.reason is Reason.BAD_CASE


def test_ordinal_counts_masked_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [ordinal("cuda", each) for each in (0, 5)] == [0, 5]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5")
    assert [ordinal("cuda", each) for each in (4, 5)] == [0, 1]
    assert ordinal("cpusim", 5) == 5


@pytest.mark.parametrize(
    ("text", "name", "reason", "message"),
    [
        (None, "f", Reason.BAD_CASE, "source .*kernels.py does not exist"),
        ("g = 1", "f", Reason.BAD_CASE, "kernels.py has no function f"),
        ("def f(", "f", Reason.COMPILE, "kernels.py cannot be imported: SyntaxError"),
        ("import no_such_module_at_all", "f", Reason.COMPILE, "ModuleNotFoundError: No module named 'no_such"),
    ],
)
def test_a_python_source_that_is_wrong(
    tmp_path: Path, text: str | None, name: str, reason: Reason, message: str
) -> None:
    path = tmp_path / "kernels.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(Fault, match=message) as caught:
        orchestration_in_python({"orchestration": {"source": str(path), "function_name": name}})
    assert caught.value.reason is reason
