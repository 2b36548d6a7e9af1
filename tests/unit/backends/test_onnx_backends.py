"""Operators as ONNX models: what is asked, what is a gap, and that a wrong model is found."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from optest.api.checking import check, sample_cases
from optest.api.report import Report
from optest.backends import backend_manager
from optest.core.expected import make_inputs
from optest.core.runner import execute
from optest.errors import UnknownName
from optest.operators import operators
from optest.spec import BackendTarget, Reason, Status, TestCase, Tier

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from texts import refusal

from optest.onnx import nodes
from optest.onnx.models import meaning_of, model_of, why_no_model
from optest.onnx.nodes.node import Differs, Node, OnnxCall

STATED_OTHERWISE = ("out_dtype", "threshold", "enable_gqa", "saturate", "split_size_or_sections")
FEW = ("relu", "softmax", "sum", "conv2d", "topk", "where", "gather", "batch_norm", "cast", "split")


def asked(backend: str, **options: Any) -> Report:
    if backend == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    given = {"backend": backend, "isolate": "none", "jobs": 1, "tier": "smoke", **options}
    return check(given, stream=io.StringIO())


@pytest.fixture
def runtime() -> Any:
    driver = backend_manager.get("onnxruntime")
    driver.configure({})
    return driver


def case_of(operator: str, **attributes: Any) -> TestCase:
    """The first sample of the operator, with these attributes."""
    case = sample_cases(operator, Tier.SMOKE)[0]
    return replace(case, attributes={**case.attributes, **attributes})


HEAVY_BACKENDS = [pytest.param(each, marks=pytest.mark.heavy) for each in ("onnx-reference", "openvino")]


@pytest.mark.parametrize("backend", ["onnxruntime", *HEAVY_BACKENDS])
def test_operators_of_every_family_pass(backend: str) -> None:
    outcome = asked(backend, op=FEW)
    assert {each.status for each in outcome.results} == {Status.PASSED}
    assert outcome.exit_status == 0


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("backend", "variant"),
    [("onnxruntime", "disabled"), ("onnxruntime", "all"), ("onnx-reference", None), ("openvino", "f32")],
)
def test_the_whole_catalogue(backend: str, variant: str | None) -> None:
    outcome = asked(backend, variant=variant)
    assert outcome.exit_status == 0
    passed = {each.operator for each in outcome.results if each.status is Status.PASSED}
    assert len(passed) > 85
    assert {each.status for each in outcome.results} <= {Status.PASSED, Status.SKIPPED, Status.XFAILED}


@pytest.mark.heavy
def test_openvino_converts_to_bfloat16_as_its_processor_does() -> None:
    """Processors without instructions for it get code that cuts bits off; the lines for both kinds have to be right."""
    outcome = asked("openvino", tier="parity", dtype=("bfloat16",), op=("add", "matmul", "sigmoid", "where", "abs"))
    assert outcome.exit_status == 0
    versions = backend_manager.get("openvino").versions()
    converted = [each for each in outcome.results if each.operator == "add" and "special" not in each.id]
    is_rounded = {each.status for each in converted} <= {Status.PASSED, Status.SKIPPED}
    assert is_rounded is (versions["openvino_bfloat16"] != "emulated")


def test_wrong_models_and_attributes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(nodes.NODES, "softmax", lambda _: Node(op="Softmax", attributes={"axis": 0}))
    assert {each.reason for each in asked("onnxruntime", op=("softmax",)).results} == {Reason.VALUE}

    def mean(made: OnnxCall) -> Node:
        return Node(op="ReduceMean", attributes={"axes": made["dim"], "keepdims": made["keepdim"]})

    monkeypatch.setitem(nodes.NODES, "sum", mean)
    outcome = asked("onnxruntime", op=("sum",), dtype=("float32",))
    assert {each.reason for each in outcome.results} == {Reason.VALUE}
    assert outcome.exit_status == 1


def test_cases_that_differ_in_sizes_share_a_session(runtime: Any) -> None:
    cases = [
        each
        for each in sample_cases("relu")
        if each.dtypes[0].name == "float32" and each.inputs[0].spec.rank == 2 and not each.expects_error
    ]
    assert len({model_of(each).content for each in cases}) == 1
    first, second = (execute([each], runtime).timings for each in cases[:2])
    assert (first.compile_s is None, second.compile_s) == (False, None)


def test_every_dtype_goes_through_unchanged(runtime: Any) -> None:
    found = {each.dtypes[0].name: each for each in sample_cases("clone") if why_no_model(each) is None}
    for name in ("bool", "uint64", "float8_e4m3fn", "bfloat16", "float16", "float64"):
        inputs, _ = make_inputs(found[name])
        (output,) = runtime.run(found[name], inputs)
        assert output.dtype == inputs[0].dtype
        assert output.tobytes() == np.ascontiguousarray(inputs[0]).tobytes()


@pytest.mark.parametrize(
    ("operator", "attributes", "words"),
    [
        ("add", {"alpha": 2.0}, "Add has no alpha"),
        ("norm", {"p": 3.0}, "only the norms"),
        ("argmax", {"dim": None}, "accepts one dimension"),
        ("batch_norm", {"training": True}, "running statistics"),
        ("avg_pool2d", {"divisor_override": 3}, "no divisor_override"),
        ("remainder", {}, "ONNX accepts 0 for integers only"),
        ("max", {"dim": 1}, "no indices"),
    ],
)
def test_another_definition_is_a_gap(operator: str, attributes: dict[str, Any], words: str) -> None:
    reason = why_no_model(case_of(operator, **attributes))
    assert reason is not None
    assert words in reason


def test_operators_and_dtypes_that_onnx_lacks() -> None:
    found = {each.dtypes[0].name: why_no_model(each) for each in sample_cases("relu") if not each.expects_error}
    assert found["float32"] is None
    assert "unsupported type: tensor(uint8)" in str(found["uint8"])
    mixed = next(each for each in sample_cases("add") if len({entry.name for entry in each.dtypes}) > 1)
    assert "inconsistent type" in str(why_no_model(mixed))
    driver: Any = backend_manager.get("onnx-reference")
    assert driver.lacks(operators.get("digamma")) == "not in ONNX"
    assert driver.lacks(operators.get("exp")) is None
    with pytest.raises(UnknownName, match=r"(?s)execution provider of onnxruntime.*CPUExecutionProvider"):
        asked("onnxruntime", op=("relu",), provider="Abacus")
    with refusal(UnknownName, "backends.all_basic_disabled_extended"):
        asked("onnxruntime", op=("relu",), variant="most")


def test_another_provider_does_not_fall_back() -> None:
    import onnxruntime

    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this build has the CPU alone")
    outcome = asked("onnxruntime", op=("relu",), provider="Azure")
    assert {each.verdict.message for each in outcome.results} == {
        "ONNX Runtime: the provider has no kernel, and fallback is disabled"
    }


def test_a_session_can_be_timed(runtime: Any) -> None:
    case = case_of("softmax")
    inputs, _ = make_inputs(case)
    with runtime.prepared(case, inputs) as ready:
        ready.call()
        (timed,) = ready.outputs()
    (ran,) = runtime.run(case, inputs)
    assert timed.tobytes() == ran.tobytes()


def test_openvino_says_its_precision() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    driver: Any = backend_manager.get("openvino")
    case = case_of("softmax")
    found = {
        variant: driver.numerics_of(replace(case, backend=BackendTarget(name="openvino", variant=variant))).operands
        for variant in driver.variants
    }
    assert found["f32"] == driver.numerics_of(case).operands == "float32"
    assert found["default"] in ("float32", "bfloat16")
    assert "variant f32 computes in float32" in driver.doctor()


@pytest.mark.heavy
def test_node_has_meaning_of_onnx_name() -> None:
    """The table of this backend and that of ONNX's names in plans are each other's inverse."""
    seen = set()
    for descriptor in operators:
        make = nodes.node_of(descriptor)
        for case in sample_cases(descriptor.name, Tier.SMOKE) if make else ():
            made = OnnxCall(case)
            try:
                node = make(made) if make else Node(op="")
            except Differs:
                continue
            if descriptor.name == "remainder":  # of floats, which ONNX's Mod is not for
                continue
            call = meaning_of(node, made)
            if call is None:
                continue
            assert call.operator == descriptor.name
            bound = descriptor.bind(call.attributes)
            for name, value in case.attributes.items():
                if name not in STATED_OTHERWISE and value is not None:
                    assert np.all(np.equal(bound[name], value)), (node, name)
            seen.add(node.op)
    assert len(seen) > 15
