"""A plan drives the C library of examples/c_library: passes where it is right, and names what is wrong where not."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ffi_plans import ffi_case as case
from ffi_plans import run_ffi_plan
from texts import says, says_exactly

from optest.api.running import Report, run
from optest.errors import OptestError
from optest.reporting.explain import explain
from optest.spec import CaseResult, CheckState, Reason, Status

BUILT_IN = Path(__file__).parents[2] / "src" / "optest" / "clib" / "library" / "mappings" / "infiniop.yaml"

pytestmark = [
    pytest.mark.cxx,
]

SPECIAL = {"fill": "data", "values": [-float("inf"), -3.0, -1e-40, 0.0, 0.5, 2.0, float("inf"), float("nan")]}
TRANSPOSED = {"shape": [4, 5], "strides": [1, 4]}


def answered(folder: Path, cases: list[dict[str, Any]], **config: Any) -> Report:
    return run_ffi_plan(folder, cases, **{"mapping": "infiniop", **config})


def answer(folder: Path, asked: dict[str, Any], **config: Any) -> CaseResult:
    (result,) = answered(folder, [asked], **config).results
    return result


RIGHT = [
    case("add", [4, 5], [5]),
    case("add", [0, 3], [0, 3]),
    case("mul", [], []),
    case("mul", [4, 5], [4, 5], backend_config={"ffi": {"outputs": {"out": {"strides": [8, 1]}}}}),
    case("mul", [4, 5], [4, 5], backend_config={"ffi": {"outputs": {"out": {"strides": [-5, 1], "offset": 15}}}}),
    case("mul", {"shape": [4, 5], "strides": [0, 1]}, [4, 5], dtype="bfloat16"),
    case("relu", [8], generator=SPECIAL),
    case("softmax", TRANSPOSED, dtype="float64"),
    case("gemm", [3, 5], [5, 4], [3, 4], attributes={"alpha": 2.0, "beta": 0.5}),
    case("gemm", [3, 5], [5, 4], [4], attributes={"alpha": 2.0, "beta": 0.5}),
    case("add", [4, 5], [4, 6], expects_error={"type": "StatusError", "match": "BAD_TENSOR_SHAPE"}),
    case("mul", [3], [3], dtype=["float32", "float64"], expects_error={"type": "StatusError", "match": "DTYPE"}),
    case("gelu", [17], dtype="int32", expects_error={"type": "StatusError"}),
]


def test_the_right_library_passes(c_library: Path, tmp_path: Path) -> None:
    outcome = answered(tmp_path, RIGHT, library=str(c_library), headers=str(c_library / "include"), device="cpu")
    assert [(each.id, each.verdict.message) for each in outcome.results if each.status is not Status.PASSED] == []
    assert len(outcome.results) == len(RIGHT)
    assert outcome.exit_status == 0
    checks = {check.name: check.state for check in outcome.results[0].verdict.checks}
    assert checks == dict.fromkeys(checks, CheckState.DONE)
    assert checks.keys() >= {"inputs unchanged", "outputs written", "guard zones", "nothing else read", "workspace"}
    assert {each.isolation for each in outcome.results} == {"worker"}


def test_an_attribute_that_c_gets_narrower_is_noted(c_library: Path, tmp_path: Path) -> None:
    result = answer(tmp_path, case("gemm", [3, 5], [5, 4], attributes={"alpha": 0.1}), library=str(c_library))
    assert result.status is Status.PASSED
    (note,) = [each for each in result.verdict.checks if each.name == "attributes as stated"]
    assert note.state is CheckState.NOTE
    assert says(note.detail, "integration.alpha_is_but_takes")


SHIM = """
#include <stddef.h>
#include <unistd.h>
int infiniopRelu(void *d, void *w, size_t n, void *y, const void *x, void *s) { for (;;) sleep(1); }
int infiniopSilu(void *d, void *w, size_t n, void *y, const void *x, void *s) { *(volatile char *)0 = 1; return 0; }
int infiniopSigmoid(void *d, void *w, size_t n, void *y, const void *x, void *s) { return 2; }
int infiniopTanh(void *d, void *w, size_t n, void *y, const void *x, void *s) { return 11; }
"""


ENDING = """
int infiniopDestroyReluDescriptor(void *d) { return 2; }
int infiniopDestroyAddDescriptor(void *d) { return 11; }
"""


def test_a_descriptor_that_cannot_be_destroyed_is_no_gap_and_no_refusal(c_library: Path, tmp_path: Path) -> None:
    (tmp_path / "shim.c").write_text(ENDING)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libshim.so", "shim.c"], cwd=tmp_path, check=True, timeout=600)
    objects = ["libshim.so", *(str(c_library / "lib" / f"lib{name}.so") for name in ("infiniop", "infinirt"))]
    expected = {"type": "StatusError", "match": "BAD_TENSOR_SHAPE"}
    cases = [case("relu", [4]), case("add", [4], [4]), case("add", [4, 5], [4, 5], expects_error=expected)]
    results = answered(tmp_path, cases, library=objects, headers=str(c_library / "include")).results
    assert [each.reason for each in results[:2]] == [Reason.RAISED, Reason.RAISED], results[0].verdict.message
    assert "infiniopDestroyReluDescriptor returned 2" in results[0].verdict.message
    assert results[2].status is not Status.PASSED, "the call itself was not refused"


def test_a_hang_a_crash_and_refusals_of_other_objects(c_library: Path, tmp_path: Path) -> None:
    """Of several shared objects the first that has a symbol is asked."""
    (tmp_path / "shim.c").write_text(SHIM)
    command = ["gcc", "-shared", "-fPIC", "-o", "libshim.so", "shim.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    objects = ["libshim.so", *(str(c_library / "lib" / f"lib{name}.so") for name in ("infiniop", "infinirt"))]
    asked = [case(op, [4, 5]) for op in ("relu", "silu", "sigmoid", "tanh", "gelu")]
    asked[0]["timeout"] = 1
    results = answered(tmp_path, asked, library=objects, headers=str(c_library / "include")).results
    assert [(each.status, each.reason) for each in results] == [
        (Status.TIMEOUT, Reason.DEADLINE),
        (Status.CRASHED, Reason.SIGNAL),
        (Status.SKIPPED, Reason.UNSUPPORTED),
        (Status.ERROR, Reason.RAISED),
        (Status.PASSED, None),
    ]
    assert says_exactly(results[1].verdict.message, "integration.the_backend_died_of")
    assert "returned 2 (INFINI_STATUS_NOT_IMPLEMENTED)" in results[2].verdict.message
    assert "returned 11 (INFINI_STATUS_BAD_TENSOR_SHAPE)" in results[3].verdict.message
    told = "\n".join(explain(results[3]))
    assert "INFINI_STATUS_BAD_TENSOR_SHAPE" in told
    assert "frames" not in told


def test_what_is_missing_is_unavailable_for_its_case_alone(c_library: Path, tmp_path: Path) -> None:
    asked = [
        case("add", [3], [3]),
        case("add", [4], [4], backend_config={"ffi": {"library": "nowhere"}}),
        case("add", [5], [5], backend_config={"ffi": {"headers": "nowhere"}}),
        case("add", [6], [6], backend_config={"ffi": {"device": "nvidia"}}),
        case("mul", [7], [7], backend_config={"ffi": {"library": [str(c_library / "lib" / "libinfinirt.so")]}}),
        case("div", [3], [3]),
    ]
    results = answered(tmp_path, asked, library=str(c_library), headers=str(c_library / "include")).results
    assert [each.reason for each in results] == [None, *[Reason.UNAVAILABLE] * 4, Reason.UNSUPPORTED]
    messages = [each.verdict.message for each in results]
    assert "nowhere/lib/libinfiniop.so" in messages[1]
    assert says(messages[2], "integration.nowhere_does_not_exist")
    assert says(messages[3], "integration.device_nvidia_is_unavailable")
    assert "symbol infiniop" in messages[4]
    assert says(messages[5], "integration.mapping_infiniop_has_no")


def mapping_file(folder: Path, old: str, new: str) -> str:
    text = BUILT_IN.read_text()
    assert old in text
    (folder / "own.yaml").write_text(text.replace(old, new, 1))
    return "own.yaml"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("input:other", "inptu:other", "did you mean input?"),
        ("input:other", "input:others", "add has no input 'others'; did you mean other? it has input, other"),
        ("input:other", "handle:other", "expected one of"),
        ("attribute:dim as int", "attribute:dim", "should name its C type"),
        ("attribute:dim as int", "attribute:dim as long", "should name its C type"),
        ("version: 1", "version: 2", "version"),
        ("broadcasts: true", "broadcast: true", "unknown field `broadcast`"),
        ("  mul:", "  add:", "the key add is set twice"),
        ("protocol:", "protocol: [", "is not YAML"),
    ],
)
def test_a_wrong_mapping_is_refused_when_the_plan_is_read(tmp_path: Path, old: str, new: str, said: str) -> None:
    mapping = mapping_file(tmp_path, old, new)
    asked = [case("add", [3], [3]), case("softmax", [3, 5])]
    with pytest.raises(OptestError, match=r"backend_config\.ffi\.mapping") as refused:
        answered(tmp_path, asked, library="nowhere", mapping=mapping)
    assert said in str(refused.value)
    assert refused.value.exit_status == 2


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"librari": "x"}, "did you mean 'library'?"),
        ({"library": 3}, "library is 3, expected a folder"),
        ({"library": "libx.so", "mapping": "infiniop-2026-08"}, "headers is missing"),
        ({"mapping": "infiniopp"}, "did you mean infiniop?"),
        ({"mapping": "nowhere.yaml"}, "there is no mapping"),
        ({"device": "gpu"}, "device is 'gpu', expected one of mapping infiniop: cpu"),
        ({"outputs": {"y": {"strides": [1]}}}, "outputs.y is no output of add, which has out"),
        ({"outputs": {"out": {"strides": [1, 1]}}}, "outputs.out does not fit"),
    ],
)
def test_a_wrong_configuration_is_refused_when_the_plan_is_read(
    tmp_path: Path, config: dict[str, Any], said: str
) -> None:
    with pytest.raises(OptestError, match=r"backend_config\.ffi") as refused:
        answered(tmp_path, [case("add", [3], [3])], **config)
    assert said in str(refused.value)
    assert refused.value.exit_status == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("output:out, input:input, input:other, stream", "input:input, output:out, input:other, stream", "(a)"),
        ("output:out, input:input, input:other, stream", "output:out, input:input, stream", "should have 7"),
        ("arguments: [device, device_id]", "arguments: [device]", "should have 2"),
    ],
)
def test_a_mapping_that_drifted_from_the_header_names_the_argument(
    c_library: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    mapping = mapping_file(tmp_path, old, new)
    result = answer(tmp_path, case("add", [3], [3]), library=str(c_library), mapping=mapping)
    assert result.reason is Reason.BAD_CASE
    assert said in result.verdict.message
    assert ".h:" in result.verdict.message
    stated = next(number for number, line in enumerate(BUILT_IN.read_text().splitlines(), 1) if old in line)
    place = f"{tmp_path / 'own.yaml'}:{stated}"
    assert f"in {place}" in result.verdict.message
    assert says("\n".join(explain(result)), "integration.make_what_the_header", place=place)


def test_untrusted_plans_load_no_library(tmp_path: Path) -> None:
    asked = case("add", [3], [3], backend_config={"ffi": {"mapping": "infiniop"}})
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump({"version": 1, "backend": "ffi", "cases": [asked]}))
    with pytest.raises(OptestError, match="--untrusted refuses"):
        run({"plan": str(file), "untrusted": True, "runs_dir": str(tmp_path)}, stream=io.StringIO())
