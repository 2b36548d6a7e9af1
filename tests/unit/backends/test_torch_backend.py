"""The torch backend: operators, errors, devices and compilers."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from handmade import case_of, spec
from texts import refusal, says

from optest.api.running import run
from optest.backends import BackendDriver, Fault, Reason, backend_manager
from optest.errors import Unavailable, UnknownName, UsageError
from optest.numerics import numpy_dtype, round_to
from optest.operators import operators
from optest.operators.catalogue import DESCRIPTORS
from optest.spec import BackendTarget, Numerics, OperatorDescriptor, Status, TestCase
from optest.spec import dtype as dtype_called
from optest.torch.eager import TorchBackend

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from optest.torch import devices as torch_devices  # noqa: E402
from optest.torch import eager as torch_eager  # noqa: E402
from optest.torch.operators import NOT_IN_TORCH, TORCH_OPERATORS  # noqa: E402

SIGNATURES = {
    "add": "input, other -> out",
    "div": "input, other -> out",
    "matmul": "input, other -> out",
    "gemm": "a, b, c? -> out",
    "layer_norm": "input, weight?, bias? -> out",
}


@pytest.fixture
def driver() -> BackendDriver:
    return torch_eager.TorchBackend()


def call(driver: BackendDriver, name: str, *arrays: Any, kind: str = "float64", **attributes: Any) -> Any:
    descriptor = OperatorDescriptor(name=name, signature=SIGNATURES.get(name, "input -> out"))
    given = [round_to(np.asarray(array, np.float64), dtype_called(kind)) for array in arrays]
    case = case_of(descriptor, *(spec(kind, *array.shape) for array in given), attributes=attributes)
    (output,) = driver.run(case, given)
    return output


A = [[1.0, 2.0], [3.0, 4.0]]
B = [[5.0, 6.0], [7.0, 8.0]]


def test_every_operator_has_a_call_or_a_reason(driver: Any) -> None:
    assert {*TORCH_OPERATORS, *NOT_IN_TORCH} == {descriptor.name for descriptor in DESCRIPTORS}
    assert not set(TORCH_OPERATORS) & set(NOT_IN_TORCH)
    assert driver.lacks(operators.get("softmax")) is None
    assert "models compose it" in driver.lacks(operators.get("rope"))
    assert fault_of(lambda: call(driver, "rope", A)).reason is Reason.UNSUPPORTED


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "words"),
    [
        ("scaled_dot_product_attention", [(1, 1, 2, 2)] * 3, {"softcap": 1.0}, "no softcap"),
        ("grouped_matmul", [(4, 3), (1, 3, 5), (1,)], {}, "multiple of 16 bytes"),
    ],
)
def test_attributes_that_torch_lacks(driver: Any, name: str, shapes: Any, attributes: Any, words: str) -> None:
    case = case_of(operators.get(name), *(spec("float32", *shape) for shape in shapes), attributes=attributes)
    found = fault_of(lambda: driver.run(case, [np.ones(shape, np.float32) for shape in shapes]))
    assert found.reason is Reason.UNSUPPORTED
    assert words in found.message


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16", "int32"])
@pytest.mark.parametrize("name", ["add", "relu", "matmul", "gemm", "transpose"])
def test_output_has_input_dtype(driver: BackendDriver, name: str, kind: str) -> None:
    arrays = (A,) if name in ("relu", "transpose") else (A, B)
    output = call(driver, name, *arrays, kind=kind, **({"dim0": 0, "dim1": 1} if name == "transpose" else {}))
    assert output.dtype == numpy_dtype(dtype_called(kind))


def test_whole_factors_of_integers(driver: BackendDriver) -> None:
    assert call(driver, "add", [1], [2], kind="int32", alpha=3.0).tolist() == [7]
    assert call(driver, "gemm", A, B, A, kind="int32", alpha=2.0, beta=3.0).tolist() == [[41, 50], [95, 112]]


def test_optional_input_is_matched_by_name(driver: BackendDriver) -> None:
    descriptor = OperatorDescriptor(name="layer_norm", signature=SIGNATURES["layer_norm"])
    attributes = {"normalized_shape": (2,), "eps": 0.0}
    case = case_of(descriptor, spec("float64", 1, 2), spec("float64", 2), attributes=attributes)
    case = replace(case, inputs=(case.inputs[0], replace(case.inputs[1], name="bias")))
    (output,) = driver.run(case, [np.array([[1.0, 3.0]]), np.array([10.0, 20.0])])
    assert output.tolist() == [[9, 21]]


def fault_of(action: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        action()
    return caught.value


def relu_case(**target: Any) -> TestCase:
    return case_of(operators.get("relu"), spec("float32", 2, 2), backend=BackendTarget(name="torch", **target))


def compiled_by(name: str, compiler: Any) -> BackendDriver:
    torch._dynamo.register_backend(compiler, name=name)
    driver = torch_eager.TorchBackend()
    driver.configure({"compile_backend": name})
    return driver


def test_unknown_operators_and_dtypes_are_unsupported(driver: BackendDriver) -> None:
    found = fault_of(lambda: call(driver, "conv9d", A))
    assert (found.reason, found.status) == (Reason.UNSUPPORTED, Status.SKIPPED)
    assert says(found.message, "backends.did_you_mean_conv")
    case = case_of(OperatorDescriptor(name="conv9d"), spec("float32", 2))
    assert "no operator 'conv9d'" in (driver.unsupported(case) or "")
    found = fault_of(lambda: call(driver, "gelu", [1], kind="int32"))
    assert found.reason is Reason.UNSUPPORTED
    assert says(found.message, "backends.not_implemented_for_int")


def test_other_torch_errors_pass_through(driver: BackendDriver) -> None:
    with refusal(RuntimeError, "backends.shapes_cannot_be_multiplied"):
        call(driver, "matmul", A, [[1.0, 2.0, 3.0]])


@pytest.fixture
def operator_that(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that replaces the operator relu."""
    return lambda function: monkeypatch.setitem(TORCH_OPERATORS, "relu", function)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4 GiB\nmore"), Reason.OUT_OF_MEMORY),
        (RuntimeError("NPU out of memory. Tried"), Reason.OUT_OF_MEMORY),
        (RuntimeError("CUDA error: device-side assert triggered"), Reason.DEVICE_LOST),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), Reason.DEVICE_LOST),
        (NotImplementedError("no such kernel"), Reason.UNSUPPORTED),
        (RuntimeError("GET was unable to find an engine to execute this computation"), Reason.UNSUPPORTED),
    ],
)
def test_torch_errors_get_a_reason(driver: BackendDriver, operator_that: Any, error: Exception, reason: Reason) -> None:
    def raising(*_: Any) -> None:
        raise error

    operator_that(raising)
    found = fault_of(lambda: call(driver, "relu", A))
    assert found.reason is reason
    assert "\n" not in found.message


def test_outputs_of_wrong_kind_fail(driver: BackendDriver, operator_that: Any) -> None:
    operator_that(lambda *_: torch.empty(10**15))
    assert fault_of(lambda: call(driver, "relu", A)).reason is Reason.OUT_OF_MEMORY
    operator_that(lambda tensors, _: tensors[0].to("meta"))
    found = fault_of(lambda: call(driver, "relu", A))
    assert found.reason is Reason.WRONG_DEVICE
    assert says(found.message, "backends.is_on_meta_but")
    operator_that(lambda *_: torch.zeros(2, dtype=torch.float8_e5m2fnuz))
    assert fault_of(lambda: call(driver, "relu", A)).reason is Reason.DTYPE
    operator_that(lambda *_: None)
    assert "is of type NoneType" in fault_of(lambda: call(driver, "relu", A)).message


@pytest.mark.parametrize(("device", "calls"), [("cuda:0", [()]), ("cuda:1", [(torch.device("cuda:1"),)])])
def test_device_is_synchronised_before_reading(
    driver: Any, monkeypatch: pytest.MonkeyPatch, device: str, calls: list[Any]
) -> None:
    # The tensors stay on the CPU, which is then the wrong device.
    waited: list[Any] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *given: waited.append(given))
    monkeypatch.setattr(torch_eager, "to_torch", lambda array, *_, **__: torch.from_numpy(array))
    driver._device = torch.device(device)
    assert fault_of(lambda: call(driver, "relu", A)).reason is Reason.WRONG_DEVICE
    assert waited == calls


def test_configure_checks_the_device(driver: BackendDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.configure({"torch_device": None})
    driver.configure({})
    driver.configure({"torch_device": "cpu"})
    assert driver.device() == "cpu"
    with pytest.raises(UnknownName) as caught:
        driver.configure({"torch_device": "cudda"})
    assert caught.value.suggestion == "cuda"
    with refusal(UsageError, "backends.should_look_like_cuda"):
        driver.configure({"torch_device": "cuda:x"})
    with pytest.raises(Unavailable, match="install torch_npu"):
        driver.configure({"torch_device": "npu"})
    assert driver.device() == "cpu"
    monkeypatch.setattr(torch_devices, "device_count", lambda kind: 0)
    with pytest.raises(Unavailable, match="torch build with CUDA"):
        driver.configure({"torch_device": "cuda"})
    monkeypatch.setattr(torch_devices, "device_count", lambda kind: 2)
    with refusal(Unavailable, "backends.this_machine_has_cuda"):
        driver.configure({"torch_device": "cuda:2"})
    with pytest.raises(UnknownName, match="optestium"):
        TorchBackend().configure({"torch_device": "optestium"})


def test_numerics_follow_device_and_settings(driver: BackendDriver) -> None:
    assert (driver.numerics.processor, driver.numerics.overflow) == ("cpu", "infinity")
    assert torch_eager._numerics("float32", "cuda") == Numerics(processor="accelerator")
    assert torch_eager._numerics("float32", "npu") == Numerics(processor="accelerator", overflow="saturate")
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert driver.numerics.operands == "float32"
        assert torch_eager._operand_precision("cuda") == "float32"
        torch.set_float32_matmul_precision("high")
        assert torch_eager._operand_precision("cuda") == "tf32"
        torch.set_float32_matmul_precision("medium")
        assert driver.numerics.operands == "bfloat16"
    finally:
        torch.set_float32_matmul_precision(before)


def test_user_compiler_runs_catalogue_operators() -> None:
    def doubled(graph: torch.fx.GraphModule, _: Any) -> Any:
        return lambda *given: [2 * each for each in graph(*given)]

    (output,) = compiled_by("optest_doubled", doubled).run(relu_case(), [np.array(A, np.float32)])
    assert output.tolist() == [[2 * each for each in row] for row in A]


def test_words_of_compiler_errors_decide_nothing() -> None:
    """Only dynamo's own exceptions for untraceable code mean that the call cannot be compiled."""

    def fails(_: Any, __: Any) -> Any:
        raise RuntimeError("Unsupported dtype")

    driver = compiled_by("optest_unsupported", fails)
    assert fault_of(lambda: driver.run(relu_case(), [np.array(A, np.float32)])).reason is Reason.COMPILE


def test_results_name_compiler() -> None:
    def negated(graph: torch.fx.GraphModule, _: Any) -> Any:
        return lambda *given: [-each for each in graph(*given)]

    driver = compiled_by("optest_named", negated)
    for name, label in (("optest_named", "torch:cpu:optest_named"), ("eager", "torch:cpu")):
        driver.configure({"compile_backend": name})
        assert backend_manager.target(driver).label() == label
    given = {"op": ("sign",), "dtype": ("float32",), "shape": ("input0=2x2",), "backend": "torch", "isolate": "none"}
    outcome = run({**given, "compile_backend": "optest_named"}, stream=(stream := io.StringIO()))
    (wrong,) = outcome.results
    assert says(stream.getvalue(), "backends.case_on_torch_cpu")
    assert (wrong.status, wrong.target) == (Status.FAILED, "torch:cpu:optest_named")
    assert "--compile-backend optest_named" in wrong.repro
    assert "--variant" not in wrong.repro, "it is none of the backend's"


@pytest.mark.parametrize("keeps_memory", [False, True])
def test_compiler_that_reuses_results_fails(keeps_memory: bool) -> None:
    def keeping(graph: torch.fx.GraphModule, _: Any) -> Any:
        first: list[torch.Tensor] = []

        def call(*given: torch.Tensor) -> list[torch.Tensor]:
            results = graph(*given)
            first[:] = first or [each.clone() for each in results]
            if keeps_memory:
                first[0].copy_(results[0])
            return first

        return call

    driver = compiled_by(f"optest_keeping_{keeps_memory}", keeping)
    for name, kind in (("exp", "float32"), ("sign", "float32"), ("argmax", "float64"), ("bitwise_not", "int32")):
        case = case_of(operators.get(name), spec(kind, 2, 2), backend=BackendTarget(name="torch"))
        words = "overwrites the results" if keeps_memory else "returns its first results"
        with pytest.raises(Fault, match=words) as caught:
            driver.run(case, [np.array([[1, -2], [-3, -4]], kind)])
        assert caught.value.reason is Reason.STATE


@pytest.mark.slow
def test_variant_is_compiled(driver: BackendDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    given = [np.array(A, np.float32)]
    case = relu_case(variant="aot_eager")
    (output,) = driver.run(case, given)
    assert output.tolist() == A
    assert (driver.compile_s() or 0) > 0
    monkeypatch.setitem(TORCH_OPERATORS, "relu", lambda tensors, _: tensors[0] if tensors[0].sum() > 0 else -tensors[0])
    with refusal(Fault, "backends.optest_call_of_torch") as caught:
        driver.run(case, given)
    assert caught.value.reason is Reason.UNSUPPORTED


REGISTERED = """
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend
_setup_privateuseone_for_python_backend("optestium")
from optest.torch.eager import TorchBackend
driver = TorchBackend()
for device in ("optestium", "optestium:0"):
    driver.configure({"torch_device": device})
    print(driver.device())
try:
    driver.configure({"torch_device": "optestium:7"})
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.heavy
def test_registered_device_opens() -> None:
    # In another process, since torch cannot unregister the device.
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this torch makes no device of Python")
    ran = subprocess.run([sys.executable, "-c", REGISTERED], capture_output=True, text=True, check=False, timeout=300)
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:2] == ["optestium:0", "optestium:0"]
    assert says(lines[2], "backends.this_machine_has_optestium")


def test_known_device_names_its_package() -> None:
    if str(torch._C._get_privateuse1_backend_name()) == "spyre":
        pytest.skip("it is there")
    with pytest.raises(Unavailable, match="torch_spyre"):
        TorchBackend().configure({"torch_device": "spyre"})
