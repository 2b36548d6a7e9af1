"""Functions as a backend: what they get, what is a gap, and what is refused before anything runs."""

from __future__ import annotations

import io
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import optest
from optest.api.checking import check
from optest.api.report import Report
from optest.api.run_request import run_request
from optest.backends import function
from optest.errors import NothingSelected, UsageError
from optest.spec import CaseResult, Reason, Status

MODULE = """
    import numpy as np
    import torch
    import optest
    from optest.backends import Numerics

    def softmax(x, axis=-1):
        e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True, initial=-np.inf).astype(np.float64))
        return (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)

    def forgets_the_axis(x):
        return softmax(x)

    def relu_of_tensors(x: torch.Tensor) -> torch.Tensor:
        assert isinstance(x, torch.Tensor)
        return torch.relu(x)

    def one_tensor(x):
        return x

    def not_yet(x):
        raise NotImplementedError("not for this shape")

    @optest.kernel("relu", dtypes=("float32",), ranks=(2,), refuses=True)
    def narrow(x):
        return np.maximum(x, 0)

    @optest.kernel("topk", dtypes=("float32",), ignores=("sorted",))
    def by_name(x, k, dim=-1, largest=True):
        indices = np.take(np.argsort(-x if largest else x, axis=dim, kind="stable"), range(k), axis=dim)
        return {"indices": indices, "values": np.take_along_axis(x, indices, dim)}

    class Tensor:
        def __init__(self, array):
            self.array = array

        def __array__(self):
            return self.array

    @optest.kernel("sin", dtypes=("float32",), numerics=Numerics(denormals="flush"))
    def of_another_library(x):
        with np.errstate(invalid="ignore"):
            y = np.sin(x)
        return Tensor(np.where(abs(y) < np.finfo(np.float32).tiny, 0, y).astype(np.float32))

    def by_torchs_signature(x, normalized_shape, weight=None, bias=None, eps=1e-5):
        axes = tuple(range(-len(normalized_shape), 0))
        wide = x.astype(np.float64)
        out = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + eps)
        out = out if weight is None else out * weight
        return (out if bias is None else out + bias).astype(x.dtype)

    def not_yet_and_no_word(x):
        raise NotImplementedError

    NUMBER = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "kernels_under_test.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(function, "_DECLARED", {})
    yield
    sys.modules.pop("kernels_under_test", None)


def asked(name: str, **options: Any) -> Report:
    given = {"function": (name,), "isolate": "none", "jobs": 1, "tier": "parity", **options}
    return check(given, stream=io.StringIO())


def by_status(outcome: Report, status: Status) -> list[CaseResult]:
    return [each for each in outcome.results if each.status is status]


@pytest.mark.usefixtures("module")
def test_a_function_is_asked_the_operator_of_its_name() -> None:
    outcome = asked("kernels_under_test:softmax", dtype=("float32",), case_set=("ordinary", "attributes"))
    assert not [each for each in outcome.results if each.status not in (Status.PASSED, Status.SKIPPED)]
    assert len(by_status(outcome, Status.PASSED)) > 5
    assert {each.operator for each in outcome.results} == {"softmax"}


@pytest.mark.usefixtures("module")
def test_an_attribute_that_it_does_not_take_is_a_gap_unless_it_has_the_default() -> None:
    outcome = asked("softmax=kernels_under_test:forgets_the_axis", dtype=("float32",), case_set=("attributes",))
    assert not by_status(outcome, Status.FAILED)
    gaps = by_status(outcome, Status.SKIPPED)
    assert any("takes no dim, which is 0 here" in each.verdict.message for each in gaps)


@pytest.mark.usefixtures("module")
def test_an_annotation_says_that_it_takes_torch_tensors() -> None:
    pytest.importorskip("torch")
    outcome = asked("relu=kernels_under_test:relu_of_tensors")
    assert by_status(outcome, Status.PASSED)
    assert {each.verdict.message for each in by_status(outcome, Status.SKIPPED)} == {
        "torch has no negative strides",
        "relu_of_tensors: it does not promise to refuse wrong calls (refuses=True)",
    }
    assert {each.status for each in outcome.results} == {Status.PASSED, Status.SKIPPED}


@pytest.mark.usefixtures("module")
def test_what_a_kernel_promises_is_asked_and_the_rest_is_a_gap() -> None:
    outcome = asked("kernels_under_test:narrow", tier="full")
    assert {each.operator for each in outcome.results} == {"relu"}
    passed = by_status(outcome, Status.PASSED)
    assert passed
    assert {tuple(map(len, each.shapes.values())) for each in passed} == {(2,)}
    assert {each.dtypes for each in passed} == {("float32",)}
    wrong = [each for each in outcome.results if each.reason is Reason.NOT_REFUSED]
    assert not [each for each in outcome.results if each.status is Status.FAILED and each not in wrong]


@pytest.mark.usefixtures("module")
def test_a_tensor_of_another_library_and_how_it_computes() -> None:
    outcome = asked("kernels_under_test:of_another_library", case_set=("ordinary", "special"))
    assert len(by_status(outcome, Status.PASSED)) > 5
    assert {each.status for each in outcome.results} == {Status.PASSED, Status.SKIPPED}


@pytest.mark.usefixtures("module")
def test_outputs_by_name() -> None:
    outcome = asked("kernels_under_test:by_name", case_set=("ordinary",))
    assert by_status(outcome, Status.PASSED)
    assert {each.status for each in outcome.results} <= {Status.PASSED, Status.SKIPPED}


@pytest.mark.usefixtures("module")
def test_tensors_behind_an_attribute_go_by_name() -> None:
    """As in ``torch.nn.functional.layer_norm(x, normalized_shape, weight, bias, eps)``."""
    outcome = asked("layer_norm=kernels_under_test:by_torchs_signature", dtype=("float32",), case_set=("attributes",))
    assert {each.status for each in outcome.results} == {Status.PASSED}
    assert {len(each.shapes) for each in outcome.results} >= {1, 3}


@pytest.mark.usefixtures("module")
def test_too_few_parameters_and_not_implemented_are_gaps() -> None:
    for name, own, why in (
        ("add", "one_tensor", "fewer tensors"),
        ("relu", "not_yet", "not for this shape"),
        ("relu", "not_yet_and_no_word", "not_yet_and_no_word: NotImplementedError"),
    ):
        outcome = asked(f"{name}=kernels_under_test:{own}", case_set=("ordinary",))
        assert {each.status for each in outcome.results} == {Status.SKIPPED}
        assert all(why in each.verdict.message for each in outcome.results)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("kernels_under_test:absent", UsageError, "no attribute 'absent'"),
        ("no_such_module:f", UsageError, "does not exist on the import path"),
        ("kernels_under_test:NUMBER", UsageError, "is 3, but should be a function"),
        ("nothing_of_the_kind=kernels_under_test:softmax", NothingSelected, "for nothing_of_the_kind"),
    ],
)
def test_refused_before_anything_runs(name: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        asked(name)


def test_a_decorator_with_a_wrong_word() -> None:
    with pytest.raises(UsageError, match="there is no dtype 'float'"):
        optest.kernel("relu", dtypes=("float",))
    with pytest.raises(UsageError, match="expected one of numpy, torch, jax"):
        optest.kernel("relu", arrays="cupy")
    with pytest.raises(UsageError, match="has a parameter normalized_shape, which `ignores` names"):
        optest.kernel("layer_norm", ignores=("normalized_shape",))(lambda x, normalized_shape: x)
    with pytest.raises(UsageError, match="should be a function"):
        optest.kernel("relu")(3)  # type: ignore[arg-type]


def test_without_a_function_there_is_nothing_to_ask() -> None:
    with pytest.raises(UsageError, match="no function is named"):
        check({"backend": "function"}, stream=io.StringIO())


@pytest.mark.usefixtures("module")
def test_a_run_finds_the_backend_by_the_option() -> None:
    request = run_request(
        {"function": ("kernels_under_test:softmax",), "op": ("softmax",), "dtype": "float32", "shape": ("input0=2x3",)}
    )
    assert request.driver.name == "function"
    with pytest.raises(UsageError, match="optest check --function kernels_under_test:softmax"):
        run_request({"function": ("kernels_under_test:softmax",)})
    with pytest.raises(UsageError, match="--function is not for backend numpy"):
        run_request(
            {"function": ("kernels_under_test:softmax",), "op": ("softmax",), "dtype": "float32", "backend": "numpy"}
        )
