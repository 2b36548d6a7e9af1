"""Plain functions in the styles of real libraries: descriptors and workspaces, plans, structs of tensors, suffixes,
a context in every call with shapes as arrays; and libraries that nobody here wrote.

Honest ones pass; single faults are found."""

from __future__ import annotations

import ctypes
import io
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ffi_plans import ffi_case, run_ffi_plan
from texts import says

from optest.api.checking import check
from optest.spec import CaseResult, Reason, Status

pytestmark = pytest.mark.cxx

SOURCES = Path(__file__).parent / "plain_styles"
EXAMPLES = Path(__file__).parents[2] / "examples"
REFUSED = {"type": "StatusError"}


class Libraries:
    """Compiles a library once for each fault."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def built(self, name: str, fault: str = "") -> Path:
        made = self.folder / f"lib{name}{fault}.so"
        if not made.exists():
            flags = [f"-D{fault}"] if fault else []
            command = ["gcc", "-O1", "-shared", "-fPIC", *flags, "-o", str(made), str(SOURCES / f"{name}.c"), "-lm"]
            subprocess.run(command, check=True)
        return made

    def asked(
        self, name: str, *cases: dict[str, Any], fault: str = "", changed: tuple[str, str] = ("", "")
    ) -> list[CaseResult]:
        """The results of these cases; of the mapping's text, the first of ``changed`` is replaced by the second."""
        mapping = self.folder / f"{name}.yaml"
        mapping.write_text((SOURCES / mapping.name).read_text().replace(*changed))
        place = {
            "library": str(self.built(name, fault)),
            "headers": str(SOURCES / f"{name}.h"),
            "mapping": str(mapping),
        }
        return list(run_ffi_plan(self.folder, cases, **place).results)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    return Libraries(tmp_path_factory.mktemp("styles"))


def case(op: str, *shapes: Any, out: Any = None, dtypes: list[str] | None = None, **further: Any) -> dict[str, Any]:
    ffi = {**({"outputs": {"out": out}} if out else {}), **further.pop("ffi", {})}
    made = ffi_case(op, *shapes, dtype=dtypes or "float32", **{"attributes": {}, **further})
    return {**made, "backend_config": {"ffi": ffi}} if ffi else made


PADDED = {"shape": [4, 5], "strides": [7, 1]}
GENERAL = {"shape": [7, 3], "strides": [9, 2]}
CONV = {"padding": [1, 2], "stride": [2, 1], "dilation": [2, 1]}
WEIGHTED = ([2, 3, 7, 9], [4, 3, 3, 2], [4])
CACHES = ([4, 2, 3, 5], [4, 2, 3, 5], [6, 2, 5], {"shape": [6, 2, 5], "strides": [30, 5, 1]}, [6])
HONEST = {
    "nnd": [
        case("relu", {"shape": [2, 3, 4], "strides": [1, -9, 2], "offset": 20}, out={"strides": [40, 3, 11]}),
        case("add", PADDED, [5], attributes={"alpha": 0.5}, out={"strides": [1, 4]}),
        case("add", PADDED, [5], dtypes=["float64", "float64"]),
        case("softmax", PADDED, attributes={"dim": -1}),
        case("conv2d", *WEIGHTED, attributes=CONV),
        case("conv2d", *WEIGHTED[:2], attributes={"padding": [1], "groups": 1}),
        case("relu", [4, 5], ffi={"call": {"shapes": {"output:out": [4, 6]}}}, expects_error=REFUSED),
        case("relu", [4, 5], ffi={"call": {"dtypes": {"output:out": "float64"}}}, expects_error=REFUSED),
        case("relu", [4, 5], ffi={"call": {"null_descriptor": ["input:input"]}}, expects_error=REFUSED),
        case("softmax", [4, 5], attributes={"dim": 1}, ffi={"call": {"workspace": "short"}}, expects_error=REFUSED),
        case("softmax", [4, 5], attributes={"dim": 1}, ffi={"call": {"null": ["handle"]}}, expects_error=REFUSED),
        case("paged_caching", *CACHES, dtypes=[*["float32"] * 4, "int64"]),
    ],
    "plx": [
        case("matmul", [5, 7], [7, 3]),
        case("softmax", [2, 3, 4], attributes={"dim": 2}),
        case("softmax", [2, 3, 4], attributes={"dim": 2}, dtypes=["float64"]),
        case("softmax", [3, 4], attributes={"dim": 1}, ffi={"call": {"in_place": {"output:out": "input:input"}}}),
    ],
    "gx": [
        case("rms_norm", {"shape": [3, 5], "strides": [9, 1]}, attributes={"normalized_shape": [5], "eps": 0.125}),
        case("rms_norm", [3, 4, 5], attributes={"normalized_shape": [5]}, dtypes=["float64"]),
        case("embedding", [6, 4], [2, 3], dtypes=["float32", "int32"]),
        case("permute", [2, 3, 4], attributes={"dims": [2, 0, 1]}, out={"strides": [1, 8, 30]}),
        case("clip", [4, 5], attributes={"min": -0.5}),
        case(
            "embedding",
            [6, 4],
            [2],
            dtypes=["float32", "int32"],
            generator={"indices": {"fill": "full", "value": 6}},
            expects_error={"type": "StatusError", "match": "an id is out of range"},
        ),
    ],
    "vk": [
        case("add", [4, 5], [4, 5]),
        case("clip", [4, 5], attributes={"max": 0.25}),
        case("sum", {"shape": [7], "strides": [3]}, attributes={"dim": [0]}),
        case("argmax", [9], attributes={"dim": 0}),
        case("gt", [4, 5], [4, 5]),
        case("cast", [4, 5], attributes={"dtype": "float64"}),
        case("embedding", [6, 4], [3], dtypes=["float32", "int32"]),
        case("exp", [4], ffi={"call": {"null": ["input:input"]}}, expects_error={**REFUSED, "match": "null pointer"}),
    ],
    "ctx": [
        case("softmax", PADDED, out={"strides": [7, 1]}, attributes={"dim": -1}),
        case("softmax", [4, 5], attributes={"dim": 1}),
        case("mul", PADDED, {"shape": [4, 5], "strides": [9, 1]}, out={"strides": [6, 1]}),
        case("sum", [2, 3, 4], attributes={"dim": [1]}),
        case("sum", [2, 3, 4], attributes={"dim": [-1], "keepdim": True}),
        case("neg", {"shape": [2, 3, 4], "strides": [1, -9, 2], "offset": 20}, out={"strides": [40, 3, 11]}),
        case("gelu", [3, 5], attributes={"approximate": "tanh"}),
        case("gelu", [3, 5]),
    ],
    "rc": [
        case("matmul", [5, 7], [7, 3]),
        case("matmul", {"shape": [5, 7], "strides": [1, 6]}, GENERAL, out={"strides": [-4, -1], "offset": 18}),
        case("matmul", {"shape": [5, 7], "strides": [0, 2]}, {"shape": [7, 3], "strides": [-3, 1], "offset": 18}),
        case("clone", GENERAL, out={"strides": [2, 20]}),
        case("relu", {"shape": [2, 3, 4], "strides": [30, -5, 1], "offset": 10}, out={"strides": [4, 8, 1]}),
    ],
}


@pytest.mark.parametrize("name", list(HONEST))
def test_honest_libraries_pass(libraries: Libraries, name: str) -> None:
    results = libraries.asked(name, *HONEST[name])
    assert [each.verdict.message for each in results if each.status is not Status.PASSED] == []
    assert len(results) == len(HONEST[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fault", "asked", "reason"),
    [
        pytest.param(
            "nnd", "STRIDES_IGNORED", case("relu", PADDED), Reason.READ_OUT_OF_BOUNDS, marks=pytest.mark.heavy
        ),
        ("nnd", "SHAPES_UNCHECKED", HONEST["nnd"][6], Reason.NOT_REFUSED),
        ("nnd", "DESCRIPTORS_LEAK", case("relu", [4, 5]), Reason.LEAK),
        pytest.param("nnd", "REFUSALS_LEAK", HONEST["nnd"][6], Reason.LEAK, marks=pytest.mark.heavy),
        pytest.param("nnd", "REFUSALS_OPEN_FILES", HONEST["nnd"][6], Reason.LEAK, marks=pytest.mark.heavy),
        ("nnd", "WORKSPACE_OVERRUN", case("softmax", [4, 5], attributes={"dim": 1}), Reason.WORKSPACE),
        pytest.param(
            "nnd",
            "WORKSPACE_STALE",
            case("softmax", [4, 5], attributes={"dim": 1}),
            Reason.WORKSPACE,
            marks=pytest.mark.heavy,
        ),
        ("nnd", "DILATION_OF_THE_OTHER_AXIS", case("conv2d", *WEIGHTED, attributes=CONV), Reason.VALUE),
        ("nnd", "VALUES_ARE_NOT_CACHED", HONEST["nnd"][-1], Reason.VALUE),
        ("plx", "ROW_IS_NOT_CLEARED", case("matmul", [5, 7], [7, 3]), Reason.STATE),
        pytest.param("plx", "ROWS_LEAK", case("matmul", [65, 66], [66, 65]), Reason.LEAK, marks=pytest.mark.heavy),
        pytest.param("gx", "EPSILON_IGNORED", HONEST["gx"][0], Reason.VALUE, marks=pytest.mark.heavy),
        ("gx", "INDICES_UNCHECKED", HONEST["gx"][5], Reason.NOT_REFUSED),
        ("rc", "STRIDES_SWAPPED", case("matmul", [5, 7], GENERAL), Reason.READ_OUT_OF_BOUNDS),
        ("rc", "COLUMNS_ARE_DENSE", HONEST["rc"][3], Reason.OUT_OF_BOUNDS),
        ("ctx", "IGNORES_STRIDE", HONEST["ctx"][0], Reason.OUT_OF_BOUNDS),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_single_fault_is_found(
    libraries: Libraries, name: str, fault: str, asked: dict[str, Any], reason: Reason
) -> None:
    (result,) = libraries.asked(name, asked, fault=fault)
    assert (result.status, result.verdict.reason) == (Status.FAILED, reason), result.verdict.message


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, *(pytest.param(size, marks=pytest.mark.heavy) for size in (4, 5, 6))])
def test_a_leak_is_found_in_the_first_case_of_a_function_whatever_its_key_is(libraries: Libraries, size: int) -> None:
    """Two calls do not show one that is lost now and then, nor one that malloc takes from its own store."""
    (result,) = libraries.asked("nnd", case("relu", [3, size]), fault="SOME_DESCRIPTORS_LEAK")
    assert result.verdict.reason is Reason.LEAK


@pytest.mark.heavy
def test_arrays_that_a_descriptor_was_made_of_are_the_callers_again(libraries: Libraries) -> None:
    """Asked of one case in sixteen."""
    results = libraries.asked("nnd", *[case("relu", [2, size]) for size in range(1, 49)], fault="ARRAY_IS_KEPT")
    reasons = {each.verdict.reason for each in results if each.status is not Status.PASSED}
    assert reasons == {Reason.STATE}


def test_the_librarys_own_text_is_told(libraries: Libraries) -> None:
    (result,) = libraries.asked("vk", {**HONEST["vk"][-1], "expects_error": {"type": "ValueError"}})
    assert "vexp_f32 returned -1: null pointer" in result.verdict.message


HANDLE = "{function: t_new, arguments: [slot, constant:3 as int]}"


def test_a_handle_may_be_what_its_function_returns(libraries: Libraries) -> None:
    results = libraries.asked("ctx", *HONEST["ctx"], changed=(HANDLE, "{function: t_made, arguments: []}"))
    assert [each.status for each in results] == [Status.PASSED] * len(HONEST["ctx"])


def test_a_handle_that_is_refused_names_function_and_status(libraries: Libraries) -> None:
    (result,) = libraries.asked("ctx", case("gelu", [3]), changed=("constant:3", "constant:2"))
    assert result.status is Status.ERROR
    assert "t_new returned -2 (T_ARG)" in result.verdict.message


def test_what_a_function_does_not_take_is_a_gap_in_words(libraries: Libraries) -> None:
    gaps = {
        "takes input and out in one layout, but the strides are [7, 1] and [5, 1]": case(
            "softmax", PADDED, attributes={"dim": -1}
        ),
        "takes a number as dim, but it is None; left_out in the mapping can set": case("sum", [2, 3]),
        "has no dim of 0": case("softmax", [2, 3], attributes={"dim": 0}),
    }
    results = libraries.asked("ctx", *gaps.values())
    assert {each.verdict.reason for each in results} == {Reason.UNSUPPORTED}
    for words, result in zip(gaps, results, strict=True):
        assert words in result.verdict.message


def test_a_stride_that_c_is_not_told_has_to_be_dense(libraries: Libraries) -> None:
    gaps = [
        case("relu", {"shape": [2, 3, 4], "strides": [30, 10, 2]}),
        case("clone", [7, 3], out={"strides": [-3, 1], "offset": 18}),
    ]
    results = libraries.asked("rc", *gaps)
    assert {each.verdict.reason for each in results} == {Reason.UNSUPPORTED}
    assert says(results[0].verdict.message, "integration.input_which_has_the")
    assert says(results[1].verdict.message, "integration.out_which_has_the")


def test_what_no_argument_of_c_holds_c_cannot_refuse(libraries: Libraries) -> None:
    wrong = case("conv2d", *WEIGHTED, attributes={**CONV, "groups": 2**40}, expects_error=REFUSED)
    (result,) = libraries.asked("nnd", wrong)
    assert (result.status, result.verdict.reason) == (Status.SKIPPED, Reason.UNSUPPORTED)
    assert says(result.verdict.message, "integration.groups_is_but_should")


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["nnd", "plx", "gx", "vk", "rc"])
def test_a_check_of_an_honest_library_raises_no_alarm(libraries: Libraries, name: str) -> None:
    given = {
        "backend": "ffi",
        "library": [str(libraries.built(name))],
        "headers": [str(SOURCES / f"{name}.h")],
        "mapping": str(SOURCES / f"{name}.yaml"),
        "runs_dir": str(libraries.folder / "runs"),
        # of a kernel's loops, and not of how it is called
        "skip_tag": [f"set:{each}" for each in ("sizes", "pages", "threads", "size-1", "squares")],
    }
    outcome = check(given, stream=io.StringIO())
    assert [each.verdict.message for each in outcome.results if each.status is Status.FAILED] == []
    assert outcome.exit_status == 0


REAL = {
    "libliquid.so": (
        "liquid",
        [
            case("dot", [129], [129]),
            case("dot", [1], [1]),
            case("matmul", [5, 7], [7, 3], dtypes=["float64"]),
            case("sub", [3, 37], [3, 37], dtypes=["float64"]),
            case("div", [3, 37], [3, 37]),
        ],
    ),
    "libgsl.so.27": (
        str(EXAMPLES / "gsl" / "gsl.yaml"),
        [
            case("gemm", PADDED, [5, 3], [4, 3], attributes={"alpha": 0.5, "beta": -1.5}, dtypes=["float64"]),
            case("gemm", [5, 4], [5, 3], attributes={"trans_a": True}, dtypes=["float64"]),
            case("add", PADDED, {"shape": [4, 5], "strides": [6, 1]}, out={"strides": [9, 1]}, dtypes=["float64"]),
            case("sub", {"shape": [9], "strides": [3]}, [9], dtypes=["float64"]),
            case("mean", {"shape": [65], "strides": [2]}, attributes={"dim": [0]}, dtypes=["float64"]),
        ],
    ),
    "libvolk.so.2.5": (
        str(EXAMPLES / "volk" / "volk.yaml"),
        [
            case("add", [3, 37], [3, 37]),
            case("mul", [37], [37], dtypes=["float64"]),
            case("bitwise_and", [37], [37], dtypes=["int32"]),
            case("cast", [37], attributes={"dtype": "float32"}, dtypes=["float64"]),
            case("dot", [129], [129]),
        ],
    ),
}


@pytest.mark.parametrize("library", list(REAL))
def test_a_real_library_passes(tmp_path: Path, library: str) -> None:
    try:
        ctypes.CDLL(library)
    except OSError:
        pytest.skip(f"needs {library}")
    mapping, cases = REAL[library]
    results = run_ffi_plan(tmp_path, cases, mapping=mapping).results
    assert [each.verdict.message for each in results if each.status is not Status.PASSED] == []
    assert len(results) == len(cases)
