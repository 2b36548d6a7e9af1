"""What the reference of a call is: its dtype, its layout, its kernels, and the tolerance of unknown calls."""

from __future__ import annotations

import dataclasses
import itertools
import operator
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch_kit
from texts import says
from torch.testing._comparison import get_tolerances
from torch_kit import Wrong, by, case, fails, passes, separates, tensor, verdict

from optest.api.listing import explain
from optest.backends.numpy_reference import NumpyBackend
from optest.compare.assert_close import close_tolerance
from optest.compare.policy import describe_rule
from optest.operators import operators
from optest.settings import resolve
from optest.spec import (
    CheckState,
    ExpectedError,
    NamedOutput,
    Reason,
    ReferenceNote,
    Status,
    TensorSpec,
    TestCase,
    Tolerance,
    Unrounded,
    Verdict,
    dtype,
)
from optest.torch.calls.names import NoSuchCallable, find_callable
from optest.torch.calls.other_right_results import has_overlap
from optest.torch.calls.reference import compute_expected, expected_in_own_dtype
from optest.torch.cases import with_reference_in_case_dtype
from optest.torch.eager import TorchBackend
from optest.torch.tensors import cpu_copies, to_read, to_torch, wide_copies


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    """An operator that torch has in float32 alone."""

    @torch.library.custom_op("optest_reference::single", mutates_args=())
    def single(given: torch.Tensor) -> torch.Tensor:
        if given.dtype != torch.float32:
            raise RuntimeError(f"single is not implemented for {given.dtype}")
        return given * 3

    single.register_fake(torch.empty_like)
    single.register_autograd(lambda ctx, above: above * 3)


def plain_case(text: str, kind: str = "float32", **more: Any) -> TestCase:
    return torch_kit.case(text, tensor((5, 7), kind), **more)


def notes(of: Verdict) -> list[str]:
    return [check.detail for check in of.checks if check.state is CheckState.NOTE]


@pytest.mark.parametrize("more", [{}, {"grad": True}])
def test_narrow_reference_adds_note(more: dict[str, Any]) -> None:
    found = verdict(plain_case("torch.ops.optest_reference.single(input0)", **more))
    assert found.status is Status.SUSPECT, found  # it is its own reference
    assert says(notes(found)[0], "torch_calls.in_the_case_own")
    assert len(notes(found)) == 2 + len(more)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_one_that_is_has_nothing_to_say(kind: str) -> None:
    assert notes(passes(plain_case("torch.sin(input0)", kind, grad=True))) == []


def test_parity_reference_uses_case_dtype() -> None:
    array = np.linspace(0.1, 3, 35, dtype=np.float32).reshape(5, 7)
    attributes = {"call": "torch.special.i0(input0)", "grad": True}
    wide, narrow = compute_expected([array], attributes), expected_in_own_dtype([array], attributes)
    assert isinstance(wide[0], Unrounded)
    assert wide[0].values.dtype == np.float64
    assert np.array_equal(narrow[0], torch.special.i0(torch.from_numpy(array)).numpy())
    assert isinstance(narrow[2], NamedOutput)
    assert narrow[2].value.values.dtype == np.float32
    assert not any(isinstance(each, ReferenceNote) for each in (*wide, *narrow))


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("text", ["torch.special.i0(input0)", "torch.exp(input0)", "torch.t(input0)"])
def test_only_correct_device_passes_reference(text: str, kind: str) -> None:
    [asked] = with_reference_in_case_dtype([plain_case(text, kind, grad=True)])
    separates(asked, Wrong(lambda outputs: [outputs[0] + outputs[0].dtype.type(0.25), *outputs[1:]]))


def test_explicit_attribute_precedes_key() -> None:
    plain = plain_case("torch.sin(input0)")
    stated = dataclasses.replace(plain, reference="somewhere:reference")
    native = TestCase(descriptor=operators.get("exp"), inputs=())
    found = with_reference_in_case_dtype([plain, stated, native])
    assert found[0].key == plain.key
    assert [each.reference for each in found[1:]] == ["somewhere:reference", None]
    assert found[0].origins["reference"] == "--reference-dtype same"


def test_explain_says_what_is_compared_with() -> None:
    asked = {"op": ("torch.sin",), "backend": "torch", "dtype": "float32", "shape": ("input0=3",)}
    asked["attr"] = ("call=torch.sin(input0)",)
    assert resolve({})["reference_dtype"] == "float64"
    plain, same = ("\n".join(explain(None, {**asked, **more})) for more in ({}, {"reference_dtype": "same"}))
    assert says(plain, "torch_calls.torch_on_the_cpu_in")
    assert "expected_in_own_dtype  (--reference-dtype same)" in same


# Calls of torch that the catalogue does not know: torch.testing's own tolerances, against float64.


DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


def unknown_case(text: str, kind: str = "float32", *, low: float = 0.5, high: float = 4.0, **more: Any) -> TestCase:
    return torch_kit.case(text, tensor((6, 7), kind, "uniform", low=low, high=high), **more)


def scaled(factor: float) -> Wrong:
    """Torch with results that are off by a factor."""
    return Wrong(lambda outputs: [each * each.dtype.type(factor) for each in outputs])


@pytest.mark.parametrize("name", DTYPES)
def test_they_are_those_of_torch(name: str) -> None:
    assert close_tolerance(dtype(name)) == get_tolerances(getattr(torch, name), rtol=None, atol=None)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
def test_function_outside_catalogue_is_compared(kind: str) -> None:
    asked = unknown_case("torch.lgamma(input0)", kind)
    found = passes(asked)
    rule = found.measures[0].rule
    assert (rule.name, rule.layer) == ("close", "operator")
    assert says(rule.text, "torch_calls.torch_testing_default_for", kind=kind)
    assert says(describe_rule(asked), "torch_calls.torch_testing_default_for", kind=kind)


I0, POLYGAMMA = "torch.special.i0(input0)", "torch.special.polygamma(2, input0)"
SMALL = unknown_case("torch.special.i1(input0)", low=1e-9, high=1e-6)
LIMITS = [
    (unknown_case(I0), 1 + 5e-7, 1 + 2e-5),
    (SMALL, 1.0, 1.001),
    (SMALL, 1.0, 0.0),
    (unknown_case(POLYGAMMA, "float16", high=9.5), 1.002, None),
    (unknown_case(POLYGAMMA, "float16", high=9.5, stated=Tolerance(rtol=1e-6)), None, 1.002),
    (unknown_case(I0, stated=Tolerance(rtol=0.1)), 1.05, None),
]
"""Factors of the results that pass and that fail: an explicit tolerance is used as it is, the default for small results
has a smaller atol."""


@pytest.mark.parametrize(("of", "right", "wrong"), LIMITS)
def test_factor_beyond_tolerance_fails(of: TestCase, right: float | None, wrong: float | None) -> None:
    if right is not None:
        passes(of, scaled(right))
    if wrong is not None:
        fails(of, scaled(wrong))


def test_what_the_inputs_rounding_changes_is_no_fault() -> None:
    """Differences of neighbours lose digits, in torch's own 16 bits too; what is farther off than that is wrong."""
    asked = unknown_case("torch.gradient(input0, dim=0)", "float16", low=99, high=101)
    found = passes(asked)
    assert says((found.measures[0].rule or found).text, "torch_calls.times_what_one_rounding")
    fails(asked, scaled(5.0))


def test_dtype_without_default_needs_tolerance() -> None:
    found = verdict(unknown_case("torch.Tensor.xlogy(input0, input0)", "float8_e5m2"))
    assert found.status is not Status.PASSED
    assert close_tolerance(dtype("float8_e5m2")) is None


# The reference sees the memory layout that the backend sees, in tensors that it may only read.


GAPS, REPEATED, OVERLAP = (12, 1), (0, 1), (2, 1)
FLOAT = dtype("float32")


@pytest.mark.parametrize("strides", [GAPS, REPEATED, OVERLAP])
@pytest.mark.parametrize(
    "call",
    [
        "torch.as_strided(input0, [2, 2], [3, 2])",
        "torch.Tensor.stride(input0)",
        "torch.Tensor.is_contiguous(input0)",
        "torch.Tensor.unfold(input0, 1, 3, 2)",
        "torch.flatten(input0)",
        "torch.Tensor.view(input0, torch.int16)",
        "torch.Tensor.fill_(input0, 2.0)",
        "torch.Tensor.sum(input0, 1)",
        "torch.matmul(input0, input0)",
    ],
)
def test_a_call_is_right_against_itself(call: str, strides: tuple[int, ...]) -> None:
    shape = (6, 6) if "matmul" in call else (4, 6)
    passes(case(call, tensor(shape, strides=strides)))


@pytest.mark.parametrize("strides", [GAPS, REPEATED, OVERLAP])
def test_refused_view_is_bad_case(strides: tuple[int, ...]) -> None:
    """A reference that is given a dense tensor would blame the backend."""
    view = case("torch.Tensor.view(input0, 24)", tensor((4, 6), strides=strides))
    assert says(fails(view, reason=Reason.BAD_CASE).message, "torch_calls.view_size_is_not")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_torch_leaves_open_is_left_out(backend: str) -> None:
    """Eager torch adds to a shared element as often as it is met, a compiler once."""
    driver, apart, overlapping = by(backend), tensor((4, 6), strides=GAPS), tensor((4, 6), strides=OVERLAP)
    add = "torch.Tensor.add_(input0, 1)"
    assert says(driver.unsupported(case(add, overlapping)) or "", "torch_calls.input_several_of_whose")
    assert driver.unsupported(case("torch.setitem(input0, 1, input1)", overlapping, tensor((6,))))
    for other in (
        case(add, apart),
        case("torch.Tensor.add(input0, 1)", overlapping),
        case("torch.Tensor.fill_(input0, 1)", overlapping),
        case("torch.setitem(input0, 1, 2.0)", overlapping),
        case(add, overlapping, expects_error=ExpectedError(type="RuntimeError")),
    ):
        assert driver.unsupported(other) is None


def test_overlap_is_that_of_counting_places() -> None:
    for shape in [(3,), (2, 3), (3, 1, 2), (0, 3)]:
        steps = [*itertools.product(*map(range, shape))]
        for strides in itertools.product(range(5), repeat=len(shape)):
            places = {sum(map(operator.mul, each, strides)) for each in steps}
            spec = TensorSpec(dtype=FLOAT, shape=shape, strides=strides)
            assert has_overlap(spec) == (len(places) < len(steps)), (shape, strides)
    assert not has_overlap(TensorSpec(dtype=FLOAT, shape=(4, 6)))


STORED = [np.float16, np.float32, np.complex64, np.int64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]


def read_only(dtype: Any) -> Any:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    array.setflags(write=False)
    return array


def test_memory_stays_as_long_as_the_tensor() -> None:
    tensor = to_read(read_only(np.float32))
    others = [np.full(12, 7.0, np.float32) for _ in range(100)]
    assert tensor.sum() == 66.0
    assert len(others) == 100


LAYOUTS = {
    "gaps": lambda array: array[:, ::2],
    "stride 0": lambda array: np.broadcast_to(array[:1], (5, 4)),
    "overlap": lambda array: np.ndarray(
        (4, 3), array.dtype, buffer=array.view(np.uint8), strides=(2 * array.itemsize, array.itemsize)
    ),
    "transposed": lambda array: array.T,
    "empty": lambda array: array[:0],
}


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("name", LAYOUTS)
def test_the_layout_of_read_only_memory_is_kept(name: str, dtype: Any) -> None:
    """Whether a view can be had, and what as_strided yields, follows from it."""
    each = LAYOUTS[name](read_only(dtype))
    each.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read, device = to_read(each), to_torch(each, torch.device("cpu"))
        (copied,), (wide,) = cpu_copies([each]), wide_copies([each])
    steps = tuple(stride // each.itemsize for stride in each.strides)
    for made in (read, device, copied, wide):
        assert made.shape == each.shape
        assert made.stride() == steps or not each.size
        assert np.array_equal(made.to(torch.complex128).numpy(), each.astype(np.complex128))
    if each.size and name != "transposed":
        assert read.data_ptr() == each.ctypes.data
    for own in (device, copied, wide):
        assert own.data_ptr() != each.ctypes.data or not each.size


# A kernel that somebody registered for an operator of torch's own is under test, and no reference for itself.


PLUGIN = """
import torch
replaced = torch.library.Library("aten", "IMPL")
replaced.impl("silu", lambda x: x * 0.5, "CPU")
added = torch.library.Library("aten", "FRAGMENT")
added.define("my_relu(Tensor x) -> Tensor")
added.impl("my_relu", lambda x: x.clone(), "CompositeImplicitAutograd")
elsewhere = torch.library.Library("quantized", "FRAGMENT")
elsewhere.define("my_silu(Tensor x) -> Tensor")
elsewhere.impl("my_silu", lambda x: x * 0, "CPU")
"""
PLAN = """
model: m
cases:
  - {name: replaced, op: torch.nn.functional.silu, inputs: [{tensor: {shape: [4]}}]}
  - {name: added, op: torch.ops.aten.my_relu, inputs: [{tensor: {shape: [4]}}]}
  - {name: elsewhere, op: torch.ops.quantized.my_silu, inputs: [{tensor: {shape: [4]}}]}
  - {name: untouched, op: torch.add, inputs: [{tensor: {shape: [4]}}, {tensor: {shape: [4]}}]}
"""


@pytest.mark.heavy
def test_a_foreign_kernel_is_no_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels.py").write_text(PLUGIN)
    (tmp_path / "m.yaml").write_text(PLAN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("OPTEST_PLUGINS", "kernels")
    command = [sys.executable, "-W", "ignore", "-m", "optest", "run", "--plan", "m.yaml", "--isolate", "none"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    for name in ("replaced", "added", "elsewhere"):
        assert f"SUSPECT m::{name}" in said
    assert "PASSED  m::untouched" in said


@pytest.mark.heavy
def test_torch_alone_has_none() -> None:
    code = "from optest.torch.calls.reference import foreign_kernels; assert not foreign_kernels(), foreign_kernels()"
    subprocess.run([sys.executable, "-c", code], check=True)


# An operator of somebody's library is its own reference on the CPU: a pass by that shows nothing.


LIBRARY = torch.library.Library("optest_own", "DEF")
LIBRARY.define("softmax(Tensor x, int dim) -> Tensor")
LIBRARY.define("zero(Tensor x) -> Tensor")
LIBRARY.define("two(Tensor x, Tensor y) -> (Tensor, Tensor)")
LIBRARY.impl("softmax", lambda x, dim: torch.softmax(x, dim) * 1.5, "CompositeImplicitAutograd")
LIBRARY.impl("zero", torch.zeros_like, "CPU")
LIBRARY.impl("two", lambda x, y: (x * 2, (y + 1)[:1]), "CPU")

CALLS = {
    "torch.ops.optest_own.softmax(input0, -1)": [tensor((8, 100))],
    "torch.ops.optest_own.softmax.default(input0, -1)": [tensor((8, 100))],
    "torch.ops.optest_own.zero(input0)": [tensor((8, 10))],
    "torch.ops.optest_own.two(input0, input1)": [tensor((8, 10))] * 2,
}


def softmax(inputs: Sequence[Any], _: Mapping[str, Any]) -> Any:
    exponentials = np.exp(inputs[0].astype(np.float64))
    return exponentials / exponentials.sum(-1, keepdims=True)


def as_registered(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    return 1.5 * softmax(inputs, attributes)


def test_kernel_elsewhere_and_own_operator_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    passes(case("torch.ops.aten.softmax.int(input0, -1)", tensor((8, 10))))
    monkeypatch.setattr(TorchBackend, "device", lambda _: "npu:0")  # a device that has a kernel of its own
    passes(case("torch.ops.optest_own.zero(input0)", tensor(8)))


def test_an_independent_reference_judges_it() -> None:
    text = next(iter(CALLS))
    fails(dataclasses.replace(case(text, *CALLS[text]), reference=softmax))
    right = passes(dataclasses.replace(case(text, *CALLS[text]), reference=as_registered))
    assert [measure.rule and measure.rule.name for measure in right.measures] == ["close"]  # not that of the suffix


@pytest.mark.parametrize(("text", "grad"), [*((each, False) for each in CALLS), (next(iter(CALLS)), True)])
def test_what_is_its_own_reference_does_not_pass(text: str, grad: bool) -> None:
    found = verdict(case(text, *CALLS[text], grad=grad))
    assert found.status is Status.SUSPECT
    assert "`reference:`" in found.message


@pytest.mark.parametrize("text", CALLS)
def test_nor_by_the_backend_that_answers_with_references(text: str) -> None:
    assert verdict(case(text, *CALLS[text]), NumpyBackend()).status is Status.SUSPECT


def test_foreign_name_gets_no_aten_proposal() -> None:
    with pytest.raises(NoSuchCallable, match="OPTEST_PLUGINS") as found:
        find_callable("torch.ops.optest_nowhere.softmax")
    assert "torch.softmax" not in str(found.value)
    with pytest.raises(NoSuchCallable, match=r"torch\.ops\.optest_own\.softmax"):
        find_callable("torch.ops.optest_own.sofmax.default")


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "text", ["torch.topk(input0, 3)", "torch.softmax(input0, -1)", "torch.Tensor.mul_(input0, 0.5)"]
)
def test_call_allocates_reference_outputs(text: str, grad: bool) -> None:
    """Several of them, of several dtypes and shapes, with gradients and notes behind them."""
    passes(case(text, tensor((4, 8), "bfloat16"), grad=grad), NumpyBackend())
