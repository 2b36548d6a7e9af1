"""Functions and backends of torch tensors: operands, outputs, memory faults and changed settings."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optest.api import bootstrap
from optest.api.checking import check
from optest.api.report import Report
from optest.backends import backend_manager, function
from optest.operators import operators
from optest.spec import BAD_STATUSES, CaseResult, Evidence, Reason, Status

torch = pytest.importorskip("torch")

MODULE = """
import numpy as np
import torch
import optest
from optest.torch.driver import TorchDriver

class Lies(torch.Tensor):
    def __array__(self, *_, **__):
        return np.tanh(np.array(self.as_subclass(torch.Tensor)))

def lies(x: torch.Tensor):
    return torch.tanh(x).as_subclass(Lies)

def lies_by_array(x):
    return torch.zeros(x.shape).as_subclass(Lies)

def parameter(x: torch.Tensor):
    return torch.nn.Parameter(torch.tanh(x), requires_grad=x.is_floating_point())

def buffer(x: torch.Tensor):
    return torch.nn.Buffer(torch.tanh(x))

def of_a_class(x: torch.Tensor):
    return torch.tanh(x.as_subclass(Lies)).as_subclass(torch.Tensor)

def relu(x):
    assert isinstance(x, torch.Tensor)
    return torch.relu(x)

@optest.kernel("abs")
def into_out(x: torch.Tensor, out: torch.Tensor):
    torch.abs(x, out=out)

@optest.kernel("neg", out=("result",))
def out_comes_first(result: torch.Tensor, x):
    result.copy_(-x)

@optest.kernel("exp")
def beyond_out(x: torch.Tensor, out: torch.Tensor):
    torch.exp(x, out=out)
    out.as_strided((1,), (1,), out.storage_offset() + out.numel()).fill_(7)

@optest.kernel("sin", dtypes=("float32",))
def leaves_the_last(x: torch.Tensor, out: torch.Tensor):
    if x.numel():
        out.view(-1)[:-1] = x.contiguous().view(-1).sin()[:-1]

@optest.kernel("sigmoid", in_place=("input",), dtypes=("float32", "bfloat16"))
def in_place(x: torch.Tensor):
    x.sigmoid_()

@optest.kernel("topk")
def two_outputs(x: torch.Tensor, k, dim=-1, largest=True, sorted=True):
    return torch.topk(x, k, dim, largest, sorted)

@optest.kernel("floor", dtypes=("float32",), layouts=("dense",))
def leaves_the_first(x: torch.Tensor):
    y = torch.empty_like(x)
    if x.numel():
        y.view(-1)[1:] = x.contiguous().view(-1).floor()[1:]
    return y

compilations = []

def counted(graph, inputs):
    compilations.append(graph)
    return graph

@torch.compile(backend=counted, dynamic=True)
def compiled(x):
    return torch.zeros_like(x) + torch.relu(x)

@optest.kernel("relu", dtypes=("float32",), ranks=(2,), layouts=("dense",))
def calls_compiled(x: torch.Tensor):
    y = compiled(x)
    assert 0 < len(compilations) < 8
    return y

@optest.kernel("ceil")
def seeds(x: torch.Tensor):
    torch.manual_seed(20261129)
    return torch.ceil(x)

@optest.kernel("round")
def switches(x: torch.Tensor):
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float64)
    return torch.round(x)

buffers = {}

@optest.kernel("erf", dtypes=("float32", "bfloat16"), layouts=("dense",), ranks=(2,))
def one_buffer(x: torch.Tensor):
    # not dense, so that arrays of NumPy in bfloat16 are copies, as those of tensors on a device are
    y = buffers.setdefault((x.shape, x.dtype), torch.empty(x.shape[::-1], dtype=x.dtype).t())
    return y.copy_(torch.erf(x.float()))

@optest.kernel("top_k_top_p_sampling")
def draws(logits: torch.Tensor, top_k=None, top_p=None, dtype=torch.int32):
    torch.manual_seed(1)
    return logits.argmax(1).to(dtype)

class Mine(TorchDriver):
    name = "torch-driver"

    def unsupported(self, case):
        return None if case.descriptor.name == "tanh" else "no"

    def run_tensors(self, case, tensors):
        assert tensors[0].dtype is getattr(torch, case.inputs[0].spec.dtype.name)
        return {"out": torch.tanh(tensors[0])}
"""
SETS = ("ordinary", "dtypes", "layouts", "sizes")


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "functions_of_tensors.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(function, "_DECLARED", {})
    yield
    sys.modules.pop("functions_of_tensors", None)


def report_of(name: str, **options: Any) -> Report:
    function = name if "=" in name else f"functions_of_tensors:{name}"
    given = {"function": (function,), "case_set": SETS, "isolate": "none", "jobs": 1, **options}
    return check(given, stream=io.StringIO())


def passed_of(outcome: Report) -> list[CaseResult]:
    return [each for each in outcome.results if each.status is Status.PASSED]


def reasons(outcome: Report) -> set[Reason | None]:
    return {each.reason for each in outcome.results if each.status in BAD_STATUSES}


@pytest.mark.parametrize("name", ["parameter", "buffer", "of_a_class"])
def test_module_tensors_are_plain_results(name: str) -> None:
    outcome = report_of(f"tanh=functions_of_tensors:{name}")
    assert reasons(outcome) == set()
    assert passed_of(outcome)


@pytest.mark.parametrize("name", ["lies", "lies_by_array"])
def test_tensor_subclass_is_no_result(name: str) -> None:
    outcome = report_of(f"tanh=functions_of_tensors:{name}")
    assert reasons(outcome) == {Reason.DTYPE}
    assert Evidence.MEASURED not in {each.verdict.evidence for each in passed_of(outcome)}


def differences_from_torch(operator: str, function: str, **options: Any) -> list[tuple[str, str]]:
    """Return the cases that pass on the torch backend and fail by torch's function, with their messages."""
    given = {"isolate": "none", "jobs": 1, **options}
    by_function = check({**given, "function": (f"{operator}={function}",)}, stream=io.StringIO()).results
    failed = {each.id: each.verdict.message for each in by_function if each.status in BAD_STATUSES}
    by_torch = check({**given, "backend": "torch", "op": (operator,)}, stream=io.StringIO()).results if failed else ()
    return [(each.id, failed[each.id]) for each in by_torch if each.id in failed and each.status is Status.PASSED]


def test_torch_functions_pass_like_the_backend() -> None:
    ordinary = dict.fromkeys(("cumsum", "concat", "gather"), "ordinary")
    for name, case_set in {"sum": "attributes", **ordinary, "add": "dtypes", "max": "attributes"}.items():
        assert not differences_from_torch(name, f"torch:{name}", case_set=(case_set,)), name
    for name in ("embedding", "scaled_dot_product_attention", "conv1d"):
        assert not differences_from_torch(name, f"torch.nn.functional:{name}", case_set=("ordinary",)), name
    statuses = {each.status for each in report_of("amax=torch:amax", case_set=("attributes",)).results}
    assert statuses == {Status.PASSED}, "of several dimensions, too"


@pytest.mark.heavy
@pytest.mark.parametrize("module", ["torch", "torch.nn.functional"])
def test_no_torch_function_differs_from_backend(module: str) -> None:
    bootstrap()
    names = [each.name for each in operators if callable(getattr(importlib.import_module(module), each.name, None))]
    assert len(names) > 20
    # torch.div ends the process for some integers; of all tiers, which take minutes, a survey by hand is the record.
    found = {name: differences_from_torch(name, f"{module}:{name}", tier="smoke") for name in names if name != "div"}
    mutating = {"batch_norm"}  # while it trains, torch's function updates the running statistics in place
    assert not {name: each for name, each in found.items() if each and name not in mutating}


@pytest.mark.parametrize("name", ["relu", "into_out", "out_comes_first", "in_place"])
def test_right_functions_pass_with_every_dtype(name: str) -> None:
    outcome = report_of(name)
    assert not [(each.id, each.verdict.message) for each in outcome.results if each.status in BAD_STATUSES]
    passed = passed_of(outcome)
    assert {"float32", "bfloat16"} <= {kind for each in passed for kind in each.dtypes}
    gaps = {each.verdict.message for each in outcome.results if each.status is Status.SKIPPED}
    assert any("negative strides" in each for each in gaps)
    assert len(passed) > 40


@pytest.mark.parametrize("name", ["two_outputs", "calls_compiled"])
def test_several_outputs_and_compiled_code_pass(name: str) -> None:
    outcome = report_of(name)
    assert not reasons(outcome)
    assert passed_of(outcome)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("beyond_out", "OUT_OF_BOUNDS"), ("leaves_the_last", "UNWRITTEN"), ("leaves_the_first", "UNWRITTEN")],
)
def test_memory_faults_of_outputs_are_found(name: str, reason: str) -> None:
    assert reasons(report_of(name)) == {Reason[reason]}


def test_shared_result_buffer_is_found() -> None:
    bad = [each for each in report_of("one_buffer").results if each.status in BAD_STATUSES]
    assert {(each.dtypes[0], each.reason) for each in bad} == {(kind, Reason.STATE) for kind in ("float32", "bfloat16")}
    assert all("overwrote the result of the call before it" in each.verdict.message for each in bad)


def test_backend_class_passes() -> None:
    from functions_of_tensors import Mine  # type: ignore[import-not-found]

    backend_manager.register(Mine(), replace=True)
    given = {"backend": "torch-driver", "op": ("tanh",), "isolate": "none", "jobs": 1, "case_set": SETS}
    outcome = check(given, stream=io.StringIO())
    passed = passed_of(outcome)
    assert {"bfloat16", "float16", "float64"} <= {kind for each in passed for kind in each.dtypes}
    assert {each.device for each in passed} == {"cpu"}
    assert not reasons(outcome) - {Reason.UNSUPPORTED}


@pytest.mark.parametrize(
    ("name", "words"), [("seeds", "initial_seed() was"), ("switches", "is_grad_enabled() was False")]
)
def test_changed_torch_settings_fail(name: str, words: str) -> None:
    before = torch.get_default_dtype(), torch.initial_seed()
    found = report_of(name, tier="smoke", case_set=None)
    assert reasons(found) == {Reason.STATE}
    assert words in found.results[0].verdict.message
    assert (torch.get_default_dtype(), torch.initial_seed()) == before


def test_random_operator_may_seed_torch() -> None:
    assert Reason.STATE not in reasons(report_of("draws", tier="smoke", case_set=None))
