"""The Triton kernels of the examples, interpreted: right as they are, and each mistake shown as what it is."""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from texts import refusal

from optest.api.checking import check
from optest.api.report import Report
from optest.backends import backend_manager
from optest.backends.function import _DECLARED
from optest.errors import Unavailable, UsageError
from optest.reporting.explain import explain
from optest.settings.variables import environment
from optest.spec import BAD_STATUSES, Reason, Status

torch = pytest.importorskip("torch")
if find_spec("triton") is None:  # not imported: whether it interprets is decided before
    pytest.skip("Triton is large and no part of the test requirements: pip install triton", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, which the interpreter computes with
EXAMPLE = (Path(__file__).parents[2] / "examples" / "triton" / "rows_and_tiles.py").read_text()

MISTAKES = {
    "load of unused elements without a mask": ("matmul", "mask=(rows < M) & (left < K)", "mask=left < K"),
    "store without a mask": (
        "softmax",
        ", mask=at < columns)\n\n\n@triton.jit\ndef layer",
        ")\n\n\n@triton.jit\ndef layer",
    ),
    "load without a mask": ("softmax", ', mask=at < columns, other=-float("inf")', ""),
    "no maximum": ("softmax", "value - tl.max(value, axis=0)", "value"),
    "result in the input": ("softmax", "if x.numel():", "y = x = x.contiguous()\n    if x.numel():"),
    "mean of the block": (
        "layer_norm",
        "tl.where(at < columns, value - tl.sum(value, axis=0) / columns, 0.0)",
        "value",
    ),
    "no last rows": ("matmul", "triton.cdiv(m, 32), ", "m // 32, "),
    "no last columns of K": ("matmul", "range(0, K, BLOCK)", "range(0, K // BLOCK * BLOCK, BLOCK)"),
    "strides of dense tensors": ("matmul", "*a.stride(), *b.stride()", "k, 1, n, 1"),
    "stride of the output": ("matmul", "rows * N + columns", "rows * K + columns"),
}
REASONS = {
    "load of unused elements without a mask": Reason.READ_OUT_OF_BOUNDS,
    "store without a mask": Reason.OUT_OF_BOUNDS,
    "load without a mask": Reason.READ_OUT_OF_BOUNDS,
    "no maximum": Reason.NAN,
    "result in the input": Reason.INPUT_MUTATED,
    "mean of the block": Reason.VALUE,
    "no last rows": Reason.UNWRITTEN,
    "no last columns of K": Reason.VALUE,
    "strides of dense tensors": Reason.VALUE,
    "stride of the output": Reason.OUT_OF_BOUNDS,
}


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, operator: str, **options: Any) -> Report:
    (folder / "kernels_in_triton.py").write_text(source)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.delitem(sys.modules, "kernels_in_triton", raising=False)
    monkeypatch.delitem(_DECLARED, operator, raising=False)
    backend_manager.get("triton")._kernels.clear()
    given = {
        "backend": "triton",
        "function": (f"kernels_in_triton:{operator}",),
        "op": (operator,),
        "jobs": 1,
        "isolate": "none",
    }
    return check({**given, "runs_dir": str(folder / "runs"), **options}, stream=io.StringIO())


@pytest.mark.parametrize("operator", ["softmax", "layer_norm", "matmul"])
def test_right_kernels_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str) -> None:
    outcome = asked(tmp_path, monkeypatch, EXAMPLE, operator, case_set=("ordinary", "sizes", "layouts", "special"))
    assert not [each.id for each in outcome.results if each.status in BAD_STATUSES]
    assert sum(each.status is Status.PASSED for each in outcome.results) > 30


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_has_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    if torch.accelerator.is_available() and "unused" in mistake:
        pytest.skip("on a device nobody sees a load of which no value is used")
    operator, right, wrong = MISTAKES[mistake]
    assert right in EXAMPLE
    sets = ("ordinary", "sizes", "layouts", "special")
    outcome = asked(
        tmp_path, monkeypatch, EXAMPLE.replace(right, wrong, 1), operator, case_set=sets, dtype=("float32",)
    )
    assert REASONS[mistake] in {each.reason for each in outcome.results if each.status in BAD_STATUSES}


@pytest.mark.skipif(torch.accelerator.is_available(), reason="about the interpreter")
def test_what_computes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = asked(tmp_path, monkeypatch, EXAMPLE, "softmax", case_set=("ordinary",))
    assert {each.device for each in outcome.results} == {"interpreter"}
    gaps = {each.verdict.message for each in outcome.results if each.status is Status.SKIPPED}
    assert any("bfloat16" in each for each in gaps)


def test_a_variable_that_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = type(backend_manager.get("triton"))
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    if not torch.accelerator.is_available():
        with pytest.raises(Unavailable, match="TRITON_INTERPRET is '0'"):
            driver()
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.delitem(sys.modules, "triton")
    driver()
    assert environment().get("TRITON_INTERPRET") == (None if torch.accelerator.is_available() else "1")


TUNED = """
import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()
IS_HIP = triton.runtime.driver.active.get_current_target().backend == "hip"


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.jit
def neg_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, -tl.load(x + at, mask=at < n), mask=at < n)


def neg(x):
    assert x.device == DEVICE
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        neg_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


def relu(x):
    return torch.empty(x.shape, device="cuda", dtype=x.dtype)


exp = neg_kernel
"""


@pytest.mark.skipif(torch.accelerator.is_available(), reason="about the interpreter")
def test_modules_that_ask_the_driver_run_in_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = asked(tmp_path, monkeypatch, TUNED, "neg", case_set=("ordinary",))
    assert {each.status for each in outcome.results} == {Status.PASSED, Status.SKIPPED}
    wrong = asked(tmp_path, monkeypatch, TUNED.replace("-tl.load", "tl.load"), "neg", case_set=("ordinary",))
    assert Reason.VALUE in {each.reason for each in wrong.results}
    of_cuda = asked(tmp_path, monkeypatch, TUNED, "relu", case_set=("ordinary",), dtype=("float32",))
    assert "device=x.device" in explain(next(each for each in of_cuda.results if each.reason is Reason.RAISED))[-2]
    with refusal(UsageError, "integration.kernel_warmup_compiles_which"):
        asked(tmp_path, monkeypatch, f"{TUNED}\nneg_kernel.fn.warmup(1, 1, 1, BLOCK=64, grid=(1,))", "neg")
    with refusal(UsageError, "integration.is_triton_kernel_expected"):
        asked(tmp_path, monkeypatch, TUNED, "exp")
