"""The fifteen weaknesses of the predecessor of ``optest.infiniop``, one test each: none of them is here.

Functions of the seed's names are asked where they exist, the backend ``ffi`` and ``optest run`` for the rest. Faults
are those of examples/c_library, each in a copy of the broken library, which reads its fault when it is loaded.
"""

from __future__ import annotations

import ctypes
import io
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from optest import timing
from optest.api.running import RunOutcome, run
from optest.clib.ffi.registration import Drift
from optest.clib.ffi.statuses import StatusError
from optest.errors import Unavailable, UnknownName, UsageError
from optest.infiniop import (
    LIBINFINIOP,
    InfiniDeviceEnum,
    InfiniDtype,
    InfiniLib,
    OpRegister,
    TestTensor,
    TestWorkspace,
    check_error,
    create_handle,
    debug,
    debug_all,
    destroy_handle,
    devices,
    filter_tensor_dtypes_by_device,
    get_args,
    get_tolerance,
    infiniopOperatorDescriptor_t,
    liboperators,
    open_lib,
    print_discrepancy,
    profile_operation,
    rearrange_tensor,
    timed_op,
)
from optest.infiniop import test_operator as run_operator
from optest.infiniop.arguments import chosen
from optest.infiniop.comparison import Discrepancy
from optest.infiniop.testing import OperatorTestFailed
from optest.spec import CaseResult, Fault, Reason, Status

CPU, F32 = InfiniDeviceEnum.CPU, InfiniDtype.F32
INF = float("inf")

pytestmark = [
    pytest.mark.cxx,
    pytest.mark.heavy,
    pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("make")), reason="needs gcc and make"),
]

OpenWith = Callable[[str], InfiniLib]


@pytest.fixture(scope="module")
def library(c_library: Path) -> Path:
    return c_library


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFINIOP_FAULT", raising=False)
    monkeypatch.delenv("INFINI_ROOT", raising=False)
    monkeypatch.setattr(liboperators, "_default", [])
    monkeypatch.setattr(OpRegister, "registry", [])
    for name, value in (("script", ""), ("seed", 0), ("only", None), ("only_of", "")):
        monkeypatch.setattr(chosen, name, value)


@pytest.fixture
def open_with(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenWith]:
    """Open a copy of the broken library with one fault, or of the right one with none."""
    opened: list[InfiniLib] = []

    def open_one(fault: str = "") -> InfiniLib:
        root = tmp_path / (fault or "right")
        shutil.copytree(library / ("broken/lib" if fault else "lib"), root / "lib")
        monkeypatch.setenv("INFINIOP_FAULT", fault)
        opened.append(open_lib(root, headers=library / "include"))
        monkeypatch.delenv("INFINIOP_FAULT")
        return opened[-1]

    yield open_one
    for each in opened:
        each.ledger.close()


def call(handle: Any, name: str, output: TestTensor, *inputs: TestTensor, short: int = 0) -> TestWorkspace:
    """The four calls of an operator without scalars."""
    descriptor = infiniopOperatorDescriptor_t()
    create = getattr(LIBINFINIOP, f"infiniopCreate{name}Descriptor")
    check_error(create(handle, ctypes.byref(descriptor), output.descriptor, *[each.descriptor for each in inputs]))
    for each in (output, *inputs):
        each.destroy_desc()
    size = ctypes.c_size_t()
    check_error(getattr(LIBINFINIOP, f"infiniopGet{name}WorkspaceSize")(descriptor, ctypes.byref(size)))
    workspace = TestWorkspace(size.value - short, CPU)
    operator = getattr(LIBINFINIOP, f"infiniop{name}")
    data = [each.data() for each in (output, *inputs)]
    check_error(operator(descriptor, workspace.data(), workspace.size(), *data, None))
    check_error(getattr(LIBINFINIOP, f"infiniopDestroy{name}Descriptor")(descriptor))
    return workspace


def transposed_add(handle, device, size, tensor_dtype, sync):
    """A test function as the seed writes them."""
    added(handle, device, size, [1, size], tensor_dtype)


def dense_add(handle, device, size, tensor_dtype, sync):
    added(handle, device, size, None, tensor_dtype)


def added(handle: Any, device: Any, size: int, strides: list[int] | None, tensor_dtype: Any) -> None:
    a, b = (TestTensor((size, 3), strides, tensor_dtype, device) for _ in range(2))
    c = TestTensor((size, 3), None, tensor_dtype, device, mode="zeros")
    call(handle, "Add", c, a, b)
    debug(c, a.logical_array() + b.logical_array(), rtol=1e-6, verbose=False)


def answered(folder: Path, cases: list[dict[str, Any]], root: Path, **options: Any) -> RunOutcome:
    """What ``optest run`` says of a plan against the library of ``root``."""
    config = {"mapping": "infiniop", "library": str(root), "headers": str(root.parent / "include")}
    if (root / "include").exists():
        config["headers"] = str(root / "include")
    plan = {
        "version": 1,
        "backend": "ffi",
        "defaults": {"timeout": 200, "backend_config": {"ffi": config}},
        "cases": cases,
    }
    file = folder / "plan.yaml"
    file.write_text(yaml.safe_dump(plan))
    return run({"plan": str(file), "runs_dir": str(folder / "runs"), **options}, stream=io.StringIO())


def case(op: str, *shapes: Any, dtype: Any = "float32", **further: Any) -> dict[str, Any]:
    dtypes = dtype if isinstance(dtype, list) else [dtype]
    return {"op": op, "dtypes": dtypes, "shapes": {f"input{i}": each for i, each in enumerate(shapes)}, **further}


def reasons(outcome: RunOutcome) -> list[Reason | None]:
    return [result.reason for result in outcome.results]


def under(fault: str, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *cases: Any) -> list[CaseResult]:
    monkeypatch.setenv("INFINIOP_FAULT", fault)
    return list(answered(tmp_path, list(cases), library / "broken").results)


def test_weakness_01_the_dtype_filter_filters() -> None:
    assert filter_tensor_dtypes_by_device(InfiniDeviceEnum.MOORE, [12, 19]) == [12]
    assert filter_tensor_dtypes_by_device(InfiniDeviceEnum.QY, ["torch.float16", "torch.bfloat16"]) == ["torch.float16"]
    assert filter_tensor_dtypes_by_device(InfiniDeviceEnum.NVIDIA, [12, 19]) == [12, 19]


def test_weakness_02_profiling_synchronises_and_zero_iterations_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    card = SimpleNamespace(synchronize=lambda: heard.append("wait"))
    monkeypatch.setattr(devices, "loaded_torch", lambda: SimpleNamespace(cuda=card))
    profile_operation("op", lambda: heard.append("op"), InfiniDeviceEnum.NVIDIA, 1, 2)
    assert heard == ["op", "wait", "op", "op", "wait"], "the device's number is what every script passes"
    with pytest.raises(UsageError, match="zero iterations"):
        timed_op(lambda: None, 0, "cuda")
    with pytest.raises(SystemExit):
        get_args(["--num_iterations", "0"])
    (samples,) = timing.measure([timing.Subject(who="op", call=lambda: sum(range(100)))], target_s=0.01)
    assert samples.call_time().spread_s is not None, "a median with its spread, by a clock that never goes back"


def test_weakness_03_infinity_is_right_only_where_it_should_be() -> None:
    actual, expected = np.array([5, INF, INF, -INF]), np.array([INF, -INF, INF, 5])
    assert print_discrepancy(actual, expected, verbose=False).tolist() == [[0], [1], [3]]
    with pytest.raises(Discrepancy):
        debug_all([actual], [expected], "or", verbose=False)


def test_weakness_04_empty_tensors_can_be_debugged(capsys: pytest.CaptureFixture[str]) -> None:
    debug(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.float32))
    assert "off: 0 of 0 elements" in capsys.readouterr().out


def test_weakness_05_every_layout_is_there_and_what_lies_between_is_watched(open_with: OpenWith) -> None:
    open_with("")
    handle = create_handle()
    for strides in [(-3, 1), (3, -1), (0, 1), (1, 1), (9, 2), (1, 77)]:
        source = TestTensor((2, 3), strides, F32, CPU)
        target = TestTensor((2, 3), (7, 2), F32, CPU, mode="empty")
        call(handle, "Add", target, source, source)
        debug(target, 2 * source.logical_array(), rtol=0, verbose=False)
        target.check_written()
        target.check_guards()
    scalar = TestTensor((), [], F32, CPU)
    assert scalar.logical_array().shape == ()
    gaps = rearrange_tensor(np.ones((2, 2), np.float32), (3, 1))
    assert np.isnan(np.lib.stride_tricks.as_strided(gaps, (2, 3), (12, 4))[0, 2]), "and no harmless 0"
    destroy_handle(handle)

    for fault, name, mode in [
        ("relu_writes_one_too_many", "Relu", "random"),
        ("mul_writes_before_the_first", "Mul", "random"),
    ]:
        open_with(fault)
        handle = create_handle()
        output, source = TestTensor((5,), None, F32, CPU, mode="empty"), TestTensor((5,), None, F32, CPU, mode=mode)
        call(handle, name, output, *[source] * (1 if name == "Relu" else 2))
        with pytest.raises(Fault) as caught:
            output.check_guards()
        assert caught.value.reason is Reason.OUT_OF_BOUNDS, fault
        destroy_handle(handle)

    open_with("sigmoid_last_needs_its_neighbour")
    handle = create_handle()
    output, source = TestTensor((5,), None, F32, CPU, mode="empty"), TestTensor((5,), None, F32, CPU)
    call(handle, "Sigmoid", output, source)
    assert np.isnan(output.actual_array()[-1]), "what lies behind an input is NaN, so that reading it shows"
    destroy_handle(handle)

    open_with("ones_fills_gaps")
    handle = create_handle()
    output = TestTensor((2, 3), (5, 1), F32, CPU, mode="empty")
    call(handle, "Ones", output, TestTensor((2, 3), None, F32, CPU))
    with pytest.raises(Fault, match="in a gap between the elements"):
        output.check_guards()
    destroy_handle(handle)


def test_weakness_06_every_dtype_can_be_random_and_read_from_a_file(tmp_path: Path) -> None:
    for dt in InfiniDtype:
        if dt is InfiniDtype.INVALID:
            continue
        drawn = TestTensor((64,), None, dt, CPU, seed=1)
        assert len({each.tobytes() for each in drawn.actual_array()}) > 1
        file = tmp_path / f"{dt.name}.bin"
        file.write_bytes(drawn._memory.buffer.array.tobytes())
        again = TestTensor.from_binary(file, (8, 8), None, dt, CPU)
        assert again.logical_array().tobytes() == drawn.logical_array().tobytes()
    values = TestTensor((4096,), None, F32, CPU, seed=1).logical_array()
    assert values.min() < 0 < values.max()
    special = TestTensor((4096,), None, F32, CPU, mode="special", seed=1).logical_array()
    assert np.isnan(special).any()
    assert np.isinf(special).any()
    assert (special == 0).any()
    assert np.abs(special[np.isfinite(special)]).max() > 1e38
    assert TestTensor.from_numpy(np.broadcast_to(np.float32(1), (3, 4)), F32, CPU).is_broadcast()


def test_weakness_07_a_failure_can_be_drawn_again_and_stands_in_a_report(
    open_with: OpenWith, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    open_with("add_ignores_strides_of_b")
    texts = []
    for _ in range(2):
        run_operator(CPU, transposed_add, [(4,), (9,)], [F32], seed=7, raise_at_end=False)
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1], "the same values, to the last digit"
    assert "again: test_operator(…, seed=7, only=1)" in texts[0]
    run_operator(CPU, transposed_add, [(4,), (9,)], [F32], seed=7, only=1, raise_at_end=False)
    alone = re.findall(r"worst at .*", capsys.readouterr().out)
    assert alone == re.findall(r"worst at .*", texts[0])[1:]

    monkeypatch.setenv("INFINIOP_FAULT", "add_ignores_strides_of_b")
    report = tmp_path / "report.xml"
    transposed = {"shape": [4, 3], "strides": [1, 4]}
    outcome = answered(
        tmp_path, [case("add", [4, 3], transposed)], library / "broken", report=["junit"], report_path=str(report)
    )
    (result,) = outcome.results
    assert result.key.startswith("k1:")
    assert "--seed" in result.repro or "--only" in result.repro or result.repro.startswith("optest run")
    assert ElementTree.parse(report).getroot().find(".//failure") is not None


def test_weakness_08_a_failure_a_crash_and_a_hang_end_their_case_alone(
    open_with: OpenWith, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_with("add_loses_tail")
    with pytest.raises(OperatorTestFailed) as caught:
        run_operator(CPU, dense_add, [(8,), (5,), (16,)], [F32])
    statuses = [result.status for result in caught.value.report.results]
    assert statuses == [Status.PASSED, Status.FAILED, Status.PASSED]

    nan = {"fill": "data", "values": [0.0, float("nan")]}
    crashed, passed = under(
        "gelu_aborts_on_nan", library, tmp_path, monkeypatch, case("gelu", [2], generator=nan), case("gelu", [5])
    )
    assert (crashed.status, crashed.reason) == (Status.CRASHED, Reason.SIGNAL)
    assert passed.status is Status.PASSED
    (ended,) = under("softmax_exits_on_f64", library, tmp_path, monkeypatch, case("softmax", [3, 4], dtype="float64"))
    assert ended.status in (Status.ERROR, Status.CRASHED), "exit(0) in the library is no success"
    endless = {"random_value": 0.5, "top_p": 0.9, "top_k": 50, "temperature": 1.0}
    hung = case("random_sample", [7], attributes=endless, timeout=2)
    (late,) = under("random_sample_hangs_on_large_topk", library, tmp_path, monkeypatch, hung)
    assert (late.status, late.reason) == (Status.TIMEOUT, Reason.DEADLINE)


def test_weakness_09_no_status_is_ignored(open_with: OpenWith, capsys: pytest.CaptureFixture[str]) -> None:
    lib = open_with("")
    with pytest.raises(StatusError, match=r"infinirtSetDevice returned 5 \(INFINI_STATUS_DEVICE_TYPE_NOT_SUPPORTED\)"):
        run_operator(InfiniDeviceEnum.NVIDIA, transposed_add, [(3,)], [F32])
    with pytest.raises(UnknownName, match="99"):
        TestTensor((2,), None, 99, CPU)
    made = infiniopOperatorDescriptor_t()
    status = lib.infiniopCreateTensorDescriptor(ctypes.byref(made), 0, None, None, 99)
    assert status == 10
    assert repr(status) == "10 (INFINI_STATUS_BAD_TENSOR_DTYPE)"

    def test_careless(handle, device, tensor_dtype, sync):
        x = TestTensor((2,), None, tensor_dtype, device)
        y = TestTensor((3,), None, tensor_dtype, device)
        create = LIBINFINIOP.infiniopCreateReluDescriptor
        create(handle, ctypes.byref(infiniopOperatorDescriptor_t()), y.descriptor, x.descriptor)

    with pytest.raises(OperatorTestFailed):
        run_operator(CPU, test_careless, [()], [F32])
    assert "BAD_TENSOR_SHAPE), and nobody looked at it" in capsys.readouterr().out


def test_weakness_10_a_missing_symbol_breaks_its_operator_alone_and_drift_is_found(
    library: Path, tmp_path: Path, open_with: OpenWith
) -> None:
    include = tmp_path / "include"
    shutil.copytree(library / "include", include)
    absent = (include / "infiniop" / "ops" / "relu.h").read_text().replace("Relu", "Absent").replace("RELU", "ABSENT")
    (include / "infiniop" / "ops" / "absent.h").write_text(absent)
    open_with("")
    lib = open_lib(library, headers=include)
    run_operator(CPU, transposed_add, [(3,)], [F32])
    with pytest.raises(Unavailable, match="symbol infiniopCreateAbsentDescriptor is unavailable"):
        lib.infiniopCreateAbsentDescriptor(None, None, None, None)

    @OpRegister.operator
    def causal_softmax_(each):
        each.infiniopCreateCausalSoftmaxDescriptor.argtypes = [ctypes.c_void_p] * 3

    @OpRegister.operator
    def random_sample_(each):
        pointer, number = ctypes.c_void_p, ctypes.c_float
        each.infiniopRandomSample.argtypes = [
            *(pointer, pointer, ctypes.c_size_t, ctypes.c_size_t, pointer),
            *(number, number, ctypes.c_int, number, pointer),
        ]

    with pytest.raises(Drift) as caught:
        OpRegister.register_lib(lib)
    assert "infiniopCreateCausalSoftmaxDescriptor is declared with 3 arguments, but the header has 4" in str(
        caught.value
    )
    assert "infiniopRandomSample: argument 4 (result) is declared c_ulong, but the header says void *" in str(
        caught.value
    )


def test_weakness_11_tolerances_follow_from_operator_dtype_and_length(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = answered(
        tmp_path,
        [
            case("gemm", [4, 8], [8, 4], dtype="float16"),
            case("gemm", [4, 2048], [2048, 4], dtype="float16"),
            case("add", [33], [33], dtype="int8"),
            case("ones_like", [7], dtype="bool"),
        ],
        library,
    )
    assert reasons(outcome) == [None] * 4
    rules = [result.verdict.measures[0].rule for result in outcome.results]
    texts = [rule.text for rule in rules if rule is not None]
    assert "k=8" in texts[0]
    assert "k=2048" in texts[1]
    assert [measure.worst_bound or 0.0 for result in outcome.results[2:] for measure in result.verdict.measures] == [
        0,
        0,
    ]
    assert get_tolerance({}, InfiniDtype.I8) == get_tolerance({}, InfiniDtype.BOOL) == (0, 0)
    (truncated,) = under("bf16_truncates", library, tmp_path, monkeypatch, case("add", [400], [400], dtype="bfloat16"))
    assert truncated.reason is Reason.VALUE, "less than a unit in the last place, and found"


def test_weakness_12_the_reference_is_float64_rounded_once(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = answered(
        tmp_path, [case("sub", [400], [400], dtype="float64"), case("gelu", [400], dtype="float16")], library
    )
    assert reasons(right) == [None, None]
    assert {result.reference for result in right.results} == {"numpy"}
    (narrowed,) = under(
        "sub_f64_through_f32", library, tmp_path, monkeypatch, case("sub", [400], [400], dtype="float64")
    )
    (twice,) = under("gelu_f16_through_bf16", library, tmp_path, monkeypatch, case("gelu", [400], dtype="float16"))
    assert narrowed.reason is twice.reason is Reason.VALUE


def test_weakness_13_data_is_such_that_a_wrong_kernel_shows(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = {"generator": {"input": {"fill": "randn", "mean": 1000.0}}, "attributes": {"normalized_shape": [64]}}
    (one_pass,) = under(
        "layer_norm_one_pass", library, tmp_path, monkeypatch, case("layer_norm", [8, 64], [64], [64], **far)
    )
    assert one_pass.reason is Reason.VALUE, "the input is not zeros"
    (beta,) = under("gemm_reads_c_where_beta_is_0", library, tmp_path, monkeypatch, case("gemm", [3, 5], [5, 4]))
    assert beta.reason is not None, "what an output held before is poison, not ones"


def test_weakness_14_refusals_overlap_repetition_threads_inputs_and_leaks_are_asked(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = {"expects_error": {"type": "StatusError"}}
    found = {
        "mul_accepts_any_dtype": case("mul", [3], [3], dtype=["float32", "float64"], **refusal),
        "mul_descriptor_leaks": case("mul", [300], [300]),
        "softmax_needs_zeroed_workspace": case("softmax", [3, 200]),
        "gemm_accepts_output_in_input": case(
            "gemm",
            [4, 4],
            [4, 4],
            backend_config={"ffi": {"call": {"alias": {"output:out": "input:a"}}}},
            **refusal,
        ),
        "rms_norm_accepts_short_workspace": case(
            "rms_norm",
            [3, 70],
            [70],
            attributes={"normalized_shape": [70]},
            backend_config={"ffi": {"call": {"workspace": "short"}}},
            **refusal,
        ),
    }
    reported = {fault: under(fault, library, tmp_path, monkeypatch, asked)[0].reason for fault, asked in found.items()}
    assert reported == {
        "mul_accepts_any_dtype": Reason.NOT_REFUSED,
        "mul_descriptor_leaks": Reason.LEAK,
        "softmax_needs_zeroed_workspace": Reason.WORKSPACE,
        "gemm_accepts_output_in_input": Reason.NOT_REFUSED,
        "rms_norm_accepts_short_workspace": Reason.NOT_REFUSED,
    }
    several = case("add", [5001], [5001], backend_config={"ffi": {"threads": [1, 2]}})
    (dropped,) = under("threads_drop_remainder", library, tmp_path, monkeypatch, several)
    assert dropped.status is Status.FAILED
    monkeypatch.delenv("INFINIOP_FAULT")
    outcome = answered(tmp_path, [*found.values(), several], library)
    assert [result.verdict.message for result in outcome.results if result.status is not Status.PASSED] == []
    looked = {check.name: check.detail for check in outcome.results[-1].verdict.checks}
    assert looked["threads"].startswith("1, 2 by ")
    assert looked.keys() >= {"inputs unchanged", "outputs written", "guard zones", "workspace", "races"}


def test_weakness_15_gaps_isolation_private_inputs_and_one_account_of_skips(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert np.isnan(
        np.lib.stride_tricks.as_strided(rearrange_tensor(np.ones((2, 1), np.float32), (-2, 1))[1:], (2,), (4,))[1]
    )
    (changed,) = under("swiglu_changes_input", library, tmp_path, monkeypatch, case("swiglu", [4], [4]))
    assert changed.reason is Reason.INPUT_MUTATED, "and not a wrong value: the reference has inputs of its own"
    assert changed.isolation == "worker"
    monkeypatch.delenv("INFINIOP_FAULT")
    text = _printed(tmp_path, library)
    assert "1 skipped" in text.stdout
    assert text.returncode == 5, "a run in which all is skipped is neither a success nor a failure, in words and status"


def _printed(folder: Path, library: Path) -> subprocess.CompletedProcess[str]:
    """What a user sees of a plan whose one operator the mapping lacks."""
    config = {"ffi": {"mapping": "infiniop", "library": str(library)}}
    plan = {"version": 1, "backend": "ffi", "cases": [case("erf", [3], backend_config=config)]}
    (folder / "skipped.yaml").write_text(yaml.safe_dump(plan))
    command = [sys.executable, "-m", "optest", "run", "--plan", str(folder / "skipped.yaml")]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=dict(os.environ))
