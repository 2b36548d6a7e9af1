"""What a check asks of a C library: derived from an operator's own calls and from the mapping, nothing loaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from optest.api.checking import check_request
from optest.backends import backend_manager
from optest.clib.library.config import read_ffi_config
from optest.core.messages import Request, encode
from optest.core.results import executions
from optest.core.wire import case_to_wire
from optest.errors import NothingSelected, Unavailable, UsageError
from optest.spec import TestCase
from optest.spec.tensors import format_shape

EXAMPLE = Path(__file__).parents[3] / "examples" / "c_library"
BUILT_IN = Path(__file__).parents[3] / "src" / "optest" / "clib" / "library" / "mappings" / "infiniop.yaml"
ADDED = {"input-layouts", "output-layouts", "layouts-at-once", "size-1", "squares", "pages", "threads"}


@lru_cache(maxsize=16)
def cases_of(name: str) -> tuple[TestCase, ...]:
    return tuple(asked(name))


def asked(*names: str, **options: Any) -> list[TestCase]:
    given = {"backend": "ffi", "library": (str(EXAMPLE),), "mapping": "infiniop", "op": names, **options}
    return list(check_request(given).run.cases)


def sets_of(cases: Iterable[TestCase]) -> Counter[str]:
    return Counter(tag.removeprefix("set:") for case in cases for tag in case.tags if tag.startswith("set:"))


@pytest.fixture(autouse=True)
def no_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INFINI_ROOT", str(tmp_path / "nowhere"))


@pytest.mark.parametrize("name", ["add", "gemm", "rms_norm"])
def test_every_case_set_has_legal_cases(name: str) -> None:
    cases = cases_of(name)
    found = sets_of(cases)
    assert found.keys() >= ADDED | {"refused", "layouts", "sizes"}
    driver = backend_manager.get("ffi")
    own = [case for case in cases if not ADDED.isdisjoint(tag.removeprefix("set:") for tag in case.tags)]
    assert [case.id for case in own if driver.unsupported(case)] == []
    assert len({case.id for case in cases}) == len(cases)


@pytest.mark.parametrize("name", ["rms_norm", "rope", "random_sample"])
def test_every_case_goes_to_a_worker(name: str) -> None:
    """Dtypes of a mapping are plain texts where a case holds them."""
    for case in cases_of(name):
        assert encode(Request(0, [""], [case_to_wire(case)]))


def test_output_layouts_come_with_and_without_inputs() -> None:
    cases = [case for case in cases_of("add") if "set:output-layouts" in case.tags]
    laid = [read_ffi_config(case)[0] for case in cases]
    strides = {config.layouts[0][1] for config in laid if config is not None}
    assert {(1, 4), (-37, 1), (37, -1), (40, 1), (74, 2)} <= strides
    assert all(argument.spec.is_dense for case in cases for argument in case.inputs)


def calls_of(cases: Iterable[TestCase]) -> list[Any]:
    found = [read_ffi_config(case) for case in cases if "set:refused" in case.tags]
    assert [problems for _, problems in found if problems] == []
    return [config.call for config, _ in found if config is not None]


def test_wrong_calls_cover_every_tensor() -> None:
    cases = cases_of("gemm")
    assert all(case.expects_error is not None for case in cases if "set:refused" in case.tags)
    calls = calls_of(cases)
    assert {name for call in calls for name in call.null} >= {
        "input:a",
        "input:b",
        "output:out",
        "descriptor",
        "handle",
    }
    assert {name for call in calls for name in call.null_descriptor} == {"input:a", "input:b", "output:out"}
    assert any(call.short_workspace for call in calls)
    assert {tuple(call.alias.items()) for call in calls} >= {(("output:out", "input:a"),), (("output:out", "input:b"),)}
    assert {str(call.dtypes["output:out"]) for call in calls if call.dtypes} >= {"float64", "float16", "int32"}
    assert {call.shapes["output:out"] for call in calls if call.shapes} >= {(6, 3), (5, 4), (5,), (3, 5)}
    shapes = {tuple(each.spec.shape for each in case.inputs) for case in cases if "set:refused" in case.tags}
    assert ((5, 8), (7, 3)) in {shape[:2] for shape in shapes}


def test_accepted_broadcasts_are_no_wrong_calls() -> None:
    """libinfiniop takes one matrix for all of a batch, and a log_softmax in another dtype than its input's."""
    for name, tensor, batches in (("gemm", "a", 3), ("bmm", "input", 2)):
        wrong = {case.description for case in cases_of(name) if "set:refused" in case.tags}
        assert f"shape 1x5x7 of input {tensor}" not in wrong
        shapes = ((batches + 1, 5, 7), (batches, 5, 1))
        assert {f"shape {format_shape(each)} of input {tensor}" for each in shapes} <= wrong
    assert "shape 1x7 of input a" in {case.description for case in cases_of("gemm")}
    of_outputs = {str(call.dtypes["output:out"]) for call in calls_of(cases_of("log_softmax")) if call.dtypes}
    assert of_outputs >= {"float64", "int32"}
    assert of_outputs.isdisjoint({"float16", "bfloat16"})


def test_output_is_placed_in_every_allowed_input() -> None:
    calls = [read_ffi_config(case)[0] for case in cases_of("swiglu") if "set:in-place" in case.tags]
    pairs = {tuple(config.call.in_place.items()) for config in calls if config is not None}
    assert pairs == {(("output:out", "input:up"),), (("output:out", "input:gate"),)}
    assert "in-place" not in sets_of(cases_of("gemm"))


def test_thread_samples_are_large_enough() -> None:
    cases = [case for case in cases_of("softmax") if "set:threads" in case.tags]
    assert all(case.inputs[0].spec.elements > 40_000 for case in cases)
    assert {argument.spec.shape[0] > 1000 for case in cases for argument in case.inputs} == {True, False}


def test_norm_sizes_change_with_their_attribute() -> None:
    cases = [case for case in cases_of("rms_norm") if "set:sizes" in case.tags]
    assert {case.inputs[0].spec.shape[-1] for case in cases} >= {3, 8, 9, 63, 65, 129}


def test_cases_differing_in_call_share_nothing() -> None:
    cases = [case for case in cases_of("relu") if not {"set:refused", "set:in-place"}.isdisjoint(case.tags)]
    assert len({case.key for case in cases}) < len(cases) / 2
    shared = [execution.cases for execution in executions(cases)]
    assert all(len({repr(case.backend_config) for case in group}) == 1 for group in shared)
    alike = {(case.key, repr(case.backend_config), repr(case.expects_error)) for case in cases}
    assert len(shared) == len(alike)


def test_no_wrong_calls_without_promises(tmp_path: Path) -> None:
    text = BUILT_IN.read_text().replace("refuses: [", "refuses: []  # [", 1)
    (tmp_path / "own.yaml").write_text(text)
    cases = asked("relu", mapping=str(tmp_path / "own.yaml"))
    assert not any("StatusError" in case.expects_error.type for case in cases if case.expects_error is not None)


def test_float_attributes_are_rounded_in_samples() -> None:
    alphas = {case.attributes["alpha"] for case in cases_of("gemm") if "alpha" in case.attributes}
    assert 0.1 not in alphas
    assert 0.10000000149011612 in alphas


@pytest.mark.heavy
def test_options_configure_every_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE.parent)
    given = {"library": ("c_library",), "headers": ("c_library/include",), "device": "cpu", "threads": "1,2"}
    case = asked("relu", guard="pages", **given)[0]
    assert case.backend_config["ffi"] == {
        "library": str(EXAMPLE),
        "headers": str(EXAMPLE / "include"),
        "mapping": "infiniop",
        "device": "cpu",
        "guard": "pages",
        "threads": [1, 2],
    }


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"mapping": None}, UsageError, "for example: --mapping infiniop"),
        ({"mapping": "infinop"}, UsageError, "did you mean infiniop?"),
        ({"library": ("nowhere",)}, Unavailable, "nowhere is unavailable: there is no such folder; set --library"),
        ({"library": ()}, Unavailable, "neither --library nor INFINI_ROOT"),
        ({"headers": ("nowhere",)}, Unavailable, "set --headers"),
        ({"threads": "two"}, UsageError, "--threads is two, expected numbers such as 1,2"),
        ({"device": "gpu"}, UsageError, "expected one of mapping infiniop: cpu, nvidia"),
        ({"op": ("erf",)}, NothingSelected, "erf is not in mapping infiniop"),
        ({"backend": "numpy"}, UsageError, "is not for backend numpy"),
    ],
)
def test_impossible_check_names_the_reason(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=r"(?s).*" + message.replace("?", r"\?")):
        asked(*options.pop("op", ("relu",)), **options)


def test_unmapped_operators_are_one_line() -> None:
    given = {"backend": "ffi", "library": (str(EXAMPLE),), "mapping": "infiniop", "op": ("relu", "erf", "sin")}
    assert check_request(given).unsupported == ("2 operators are not in mapping infiniop (sin, erf)",)


@pytest.mark.parametrize("name", ["add", "gemm", "softmax", "rms_norm", "relu", "rope"])
def test_case_keys_are_unique(name: str) -> None:
    """Cases of one key and one configuration are run once: odd strides where the size is 1 were lost like that."""
    cases = [case for case in cases_of(name) if "set:size-1" in case.tags]
    assert len({(case.key, repr(case.backend_config)) for case in cases}) == len(cases)


def test_samples_include_rank_8_and_empty() -> None:
    cases = cases_of("relu")
    assert {len(case.inputs[0].spec.shape) for case in cases if "set:ranks" in case.tags} >= {8, 1}
    empty = {
        case.inputs[0].spec.shape for case in cases if "set:sizes" in case.tags and not case.inputs[0].spec.elements
    }
    assert {(0, 37), (4, 0)} <= empty


def test_samples_reach_last_indexable_row() -> None:
    cases = [case for case in cases_of("rope") if "set:indices" in case.tags]
    rows = {case.inputs[3].spec.dtype.name: case.inputs[1].spec.shape[0] for case in cases}
    assert rows["uint8"] == 256
    assert rows["int8"] == 128
    assert rows["uint16"] == 65536
    assert rows["int64"] > 256


@pytest.mark.heavy
def test_overlapping_outputs_are_wrong_calls() -> None:
    aliases = [call.alias for call in calls_of(cases_of("layer_norm"))]
    assert {"output:out": "output:std"} in aliases
    assert {"output:out": "input:input"} in aliases


@pytest.mark.heavy
def test_attribute_values_vary_at_every_rank() -> None:
    """An axis that is misread in one rank, a factor that is cut to a whole number, an epsilon above 1."""
    axes = {
        (len(case.inputs[0].spec.shape), case.attributes["dim"])
        for case in cases_of("softmax")
        if "set:attribute-values" in case.tags
    }
    assert {(5, 0), (5, -4), (4, 1), (3, 0), (2, -2)} <= axes
    assert {1.75, 11.0} <= {case.attributes["alpha"] for case in cases_of("gemm") if "alpha" in case.attributes}
    windows = [case.attributes for case in cases_of("conv2d") if "set:attribute-values" in case.tags]
    assert {(1, 2), (2, 1)} <= {each["dilation"] for each in windows} & {each["stride"] for each in windows}


def test_invalid_window_numbers_are_wrong_calls() -> None:
    cases = [case for case in cases_of("conv2d") if "set:refused" in case.tags]
    odd = {case.attributes["dilation"] for case in cases} | {case.attributes["stride"] for case in cases}
    assert any(0 in each for each in odd)
    assert any(-1 in each for each in odd)


def test_output_overlapping_input_is_wrong_call() -> None:
    calls = [call for call in calls_of(cases_of("gemm")) if call.alias]
    assert {call.behind for call in calls if call.alias == {"output:out": "input:b"}} == {1, 0, -1}
    cases = [case for case in cases_of("rms_norm") if "set:refused" in case.tags]
    laid = [read_ffi_config(case)[0] for case in cases]
    alike = [config for config in laid if config and config.call.alias == {"output:out": "input:input"}]
    assert all(config.layouts for config in alike if config.call.behind == 0)
    assert {config.call.behind for config in alike} == {1, 0, -1}


def test_truncatable_index_is_wrong_call() -> None:
    fills = [
        argument.fill
        for case in cases_of("rope")
        if "set:refused" in case.tags
        for argument in case.inputs
        if argument.name == "position_ids"
    ]
    assert any(str(1 << 32) in repr(fill) for fill in fills)


def test_rank_relative_to_another_tensor() -> None:
    """C's positions have a dimension for batches where its input has one."""
    driver = backend_manager.get("ffi")
    cases = [case for case in cases_of("rope") if len(case.inputs) == 4 and case.expects_error is None]
    ranks = {
        (case.inputs[0].spec.rank, case.inputs[3].spec.rank): driver.unsupported(case)
        for case in cases
        if "set:positions" in case.tags
    }
    assert ranks[4, 2] is ranks[4, 1] is None
    assert "position_ids of 2 dimensions" in str(ranks[3, 2])


def test_invalid_rank_is_mapping_problem(tmp_path: Path) -> None:
    text = BUILT_IN.read_text().replace("position_ids: [1, input-2]", "position_ids: [1, as input]")
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"(?s).*as in input-2"):
        asked("rope", mapping=str(tmp_path / "own.yaml"))


def test_block_matrices_are_transposed_one_by_one() -> None:
    """Kernels move whole blocks first, and the edges that are none of them last."""
    cases = [case for case in cases_of("clone") if "set:blocks" in case.tags]
    specs = [case.inputs[0].spec for case in cases]
    assert {spec.shape for spec in specs} == {(61, 67)}
    assert {spec.strides for spec in specs} >= {(1, 61), None}
    assert any(config is not None and config.layouts for config in (read_ffi_config(case)[0] for case in cases))


def test_samples_include_block_multiples_and_millions() -> None:
    cases = cases_of("add")
    shapes = {case.inputs[0].spec.shape for case in cases if "set:sizes" in case.tags}
    assert {(256,), (1024,), (4096,)} <= shapes
    (case,) = [case for case in cases if "set:large" in case.tags]
    assert case.inputs[0].spec.elements > 1 << 21
    assert not [case for case in cases_of("gemm") if "set:large" in case.tags]


def test_too_narrow_index_output_is_wrong_call() -> None:
    cases = [case for case in cases_of("random_sample") if "set:refused" in case.tags]
    asked_of = [(read_ffi_config(case)[0], case.inputs[0].spec.elements) for case in cases]
    narrow = {(config.call.dtypes["output:out"], size) for config, size in asked_of if config and config.call.dtypes}
    assert {("int8", 129), ("uint8", 257), ("int16", 32769), ("uint16", 65537)} <= narrow


def test_image_batches_are_channels_last_with_gaps() -> None:
    cases = [case for case in cases_of("relu") if "set:ranks" in case.tags]
    assert {(2, 3, 4, 37)} <= {case.inputs[0].spec.shape for case in cases}
    assert (740, 1, 185, 5) in {case.inputs[0].spec.strides for case in cases}


@pytest.mark.heavy
def test_every_function_gets_signs_and_special_values() -> None:
    given = {"backend": "ffi", "library": (str(EXAMPLE),), "mapping": "cblas", "op": ("norm",)}
    cases = [case for case in check_request(given).run.cases if case.attributes["p"] == 1.0 and case.outputs]
    fills = {(case.inputs[0].spec.elements, case.inputs[0].fill.kind, case.inputs[0].spec.dtype.name) for case in cases}
    assert {(37, "randn", "float32"), (37, "data", "float64"), (37, "full", "float32")} <= fills
    assert any(case.inputs[0].spec.elements == 1 and "set:signs" in case.tags for case in cases)


def test_negative_dimensions_are_gaps_if_unsupported() -> None:
    driver = backend_manager.get("ffi")
    cases = [case for case in asked("index_copy", mapping="infiniop-2026-08") if case.expects_error is None]
    gaps = {case.attributes["dim"]: driver.unsupported(case) for case in cases if case.attributes["dim"] < 0}
    assert gaps
    assert all("dim" in str(gap) for gap in gaps.values())
    assert any(driver.unsupported(case) is None for case in cases if case.attributes["dim"] == 0)


@pytest.mark.heavy
def test_index_of_empty_dimension_is_empty() -> None:
    for name in ("index_copy", "scatter"):
        for case in asked(name, mapping="infiniop-2026-08"):
            shapes = {each.name: each.spec.shape for each in case.inputs}
            if case.expects_error is None and shapes["input"] and shapes["input"][case.attributes["dim"]] == 0:
                assert 0 in shapes["index"], case.id


def test_every_wrong_call_describes_its_fault() -> None:
    own = {case.description for name in ("add", "gemm", "rope", "random_sample") for case in cases_of(name)} - {""}
    assert own >= {
        "dtype float64 of output out",
        "dtype bool of all tensors",
        "dtype int64 of input other",
        "shape 4x38 of output out",
        "output out with stride 0",
        "NULL for input b",
        "NULL for the descriptor of input a",
        "a workspace that is too small",
        "output out overlaps input a",
        "output out begins at the address of input input, with other strides (padded rows)",
        "index -1 in input position_ids",
        "top_p=-1.0",
    }
    silent = [
        case.id
        for name in ("gemm", "rope")
        for case in cases_of(name)
        if case.backend_config["ffi"].get("call") and case.expects_error and not case.description
    ]
    assert silent == []
