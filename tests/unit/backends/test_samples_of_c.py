"""What a check asks of a C library: derived from an operator's own calls and from the mapping, nothing loaded."""

from __future__ import annotations

import dataclasses
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
from optest.operators import operators
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


def in_set(name: str, case_set: str) -> list[TestCase]:
    return [case for case in cases_of(name) if f"set:{case_set}" in case.tags]


def shapes_in_set(name: str, case_set: str) -> set[tuple[int, ...]]:
    return {case.inputs[0].spec.shape for case in in_set(name, case_set)}


def configs_of(cases: Iterable[TestCase]) -> list[Any]:
    return [config for config, _ in map(read_ffi_config, cases) if config is not None]


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


def test_layouts_of_samples() -> None:
    cases = in_set("add", "output-layouts")
    strides = {config.layouts[0][1] for config in configs_of(cases)}
    assert {(1, 4), (-37, 1), (37, -1), (40, 1), (74, 2)} <= strides
    assert all(argument.spec.is_dense for case in cases for argument in case.inputs)
    # Kernels move whole blocks first, and the edges that are none of them last.
    cases = in_set("clone", "blocks")
    assert shapes_in_set("clone", "blocks") == {(61, 67)}
    assert {case.inputs[0].spec.strides for case in cases} >= {(1, 61), None}
    assert any(config.layouts for config in configs_of(cases))


def calls_of(name: str) -> list[Any]:
    found = [read_ffi_config(case) for case in in_set(name, "refused")]
    assert [problems for _, problems in found if problems] == []
    return [config.call for config, _ in found if config is not None]


def test_wrong_calls_cover_every_tensor() -> None:
    cases, calls = in_set("gemm", "refused"), calls_of("gemm")
    assert all(case.expects_error is not None for case in cases)
    tensors = {"input:a", "input:b", "output:out"}
    assert {name for call in calls for name in call.null} >= {*tensors, "descriptor", "handle"}
    assert {name for call in calls for name in call.null_descriptor} == tensors
    assert any(call.short_workspace for call in calls)
    assert {tuple(call.alias.items()) for call in calls} >= {(("output:out", "input:a"),), (("output:out", "input:b"),)}
    assert {str(call.dtypes["output:out"]) for call in calls if call.dtypes} >= {"float64", "float16", "int32"}
    assert {call.shapes["output:out"] for call in calls if call.shapes} >= {(6, 3), (5, 4), (5,), (3, 5)}
    assert ((5, 8), (7, 3)) in {tuple(each.spec.shape for each in case.inputs[:2]) for case in cases}


def test_accepted_broadcasts_are_no_wrong_calls() -> None:
    """libinfiniop takes one matrix for all of a batch, and a log_softmax in another dtype than its input's."""
    for name, tensor, batches in (("gemm", "a", 3), ("bmm", "input", 2)):
        wrong = {case.description for case in in_set(name, "refused")}
        assert f"shape 1x5x7 of input {tensor}" not in wrong
        shapes = ((batches + 1, 5, 7), (batches, 5, 1))
        assert {f"shape {format_shape(each)} of input {tensor}" for each in shapes} <= wrong
    assert "shape 1x7 of input a" in {case.description for case in cases_of("gemm")}
    of_outputs = {str(call.dtypes["output:out"]) for call in calls_of("log_softmax") if call.dtypes}
    assert of_outputs >= {"float64", "int32"}
    assert of_outputs.isdisjoint({"float16", "bfloat16"})


def test_output_is_placed_in_every_allowed_input() -> None:
    pairs = {tuple(config.call.in_place.items()) for config in configs_of(in_set("swiglu", "in-place"))}
    assert pairs == {(("output:out", "input:up"),), (("output:out", "input:gate"),)}
    assert "in-place" not in sets_of(cases_of("gemm"))


def test_thread_samples_are_large_enough() -> None:
    cases = in_set("softmax", "threads")
    assert all(case.inputs[0].spec.elements > 40_000 for case in cases)
    assert {argument.spec.shape[0] > 1000 for case in cases for argument in case.inputs} == {True, False}


def test_samples_have_sizes_and_ranks() -> None:
    assert {shape[-1] for shape in shapes_in_set("rms_norm", "sizes")} >= {3, 8, 9, 63, 65, 129}
    assert {(0, 37), (4, 0)} <= shapes_in_set("relu", "sizes")
    ranks = in_set("relu", "ranks")
    assert {case.inputs[0].spec.rank for case in ranks} >= {8, 1}
    assert (2, 3, 4, 37) in shapes_in_set("relu", "ranks")
    assert (740, 1, 185, 5) in {case.inputs[0].spec.strides for case in ranks}  # channels last, with gaps
    assert {(256,), (1024,), (4096,)} <= shapes_in_set("add", "sizes")
    (case,) = in_set("add", "large")
    assert case.inputs[0].spec.elements > 1 << 21
    assert not in_set("gemm", "large")


def test_cases_differing_in_call_share_nothing() -> None:
    cases = [case for case in cases_of("relu") if not {"set:refused", "set:in-place"}.isdisjoint(case.tags)]
    assert len({case.key for case in cases}) < len(cases) / 2
    shared = [execution.cases for execution in executions(cases)]
    assert all(len({repr(case.backend_config) for case in group}) == 1 for group in shared)
    alike = {(case.key, repr(case.backend_config), repr(case.expects_error)) for case in cases}
    assert len(shared) == len(alike)


def test_unmapped_operators_are_one_line() -> None:
    given = {"backend": "ffi", "library": (str(EXAMPLE),), "mapping": "infiniop", "op": ("relu", "erf", "sin")}
    assert check_request(given).unsupported == ("2 operators are not in mapping infiniop (sin, erf)",)


def test_changed_mappings_change_samples(tmp_path: Path) -> None:
    text = BUILT_IN.read_text().replace("refuses: [", "refuses: []  # [", 1)
    (tmp_path / "own.yaml").write_text(text)
    cases = asked("relu", mapping=str(tmp_path / "own.yaml"))
    assert not any("StatusError" in case.expects_error.type for case in cases if case.expects_error is not None)
    text = BUILT_IN.read_text().replace("position_ids: [1, input-2]", "position_ids: [1, as input]")
    (tmp_path / "ranks.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"(?s).*as in input-2"):
        asked("rope", mapping=str(tmp_path / "ranks.yaml"))


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


@pytest.mark.parametrize("name", ["add", "gemm", "softmax", "rms_norm", "relu", "rope"])
def test_case_keys_are_unique(name: str) -> None:
    """Cases of one key and one configuration are run once: odd strides where the size is 1 were lost like that."""
    cases = in_set(name, "size-1")
    assert len({(case.key, repr(case.backend_config)) for case in cases}) == len(cases)


def test_indices_of_samples() -> None:
    cases = in_set("rope", "indices")
    rows = {case.inputs[3].spec.dtype.name: case.inputs[1].spec.shape[0] for case in cases}
    assert (rows["uint8"], rows["int8"], rows["uint16"]) == (256, 128, 65536)
    assert rows["int64"] > 256
    arguments = [argument for case in in_set("rope", "refused") for argument in case.inputs]
    assert any(str(1 << 32) in repr(each.fill) for each in arguments if each.name == "position_ids")
    cases = in_set("random_sample", "refused")
    calls = [(read_ffi_config(case)[0], case.inputs[0].spec.elements) for case in cases]
    narrow = {(config.call.dtypes["output:out"], size) for config, size in calls if config and config.call.dtypes}
    assert {("int8", 129), ("uint8", 257), ("int16", 32769), ("uint16", 65537)} <= narrow


@pytest.mark.heavy
def test_attribute_values_and_overlaps_vary() -> None:
    aliases = [call.alias for call in calls_of("layer_norm")]
    assert {"output:out": "output:std"} in aliases
    assert {"output:out": "input:input"} in aliases
    # An axis that is misread in one rank, a factor that is cut to a whole number, an epsilon above 1.
    softmax = in_set("softmax", "attribute-values")
    axes = {(case.inputs[0].spec.rank, case.attributes["dim"]) for case in softmax}
    assert {(5, 0), (5, -4), (4, 1), (3, 0), (2, -2)} <= axes
    assert {1.75, 11.0} <= {case.attributes["alpha"] for case in cases_of("gemm") if "alpha" in case.attributes}
    windows = [case.attributes for case in in_set("conv2d", "attribute-values")]
    assert {(1, 2), (2, 1)} <= {each["dilation"] for each in windows} & {each["stride"] for each in windows}


def test_invalid_window_numbers_are_wrong_calls() -> None:
    windows = [case.attributes for case in in_set("conv2d", "refused")]
    odd = {each["dilation"] for each in windows} | {each["stride"] for each in windows}
    assert {0, -1} <= {number for pair in odd for number in pair}


def test_output_overlapping_input_is_wrong_call() -> None:
    calls = [call for call in calls_of("gemm") if call.alias]
    assert {call.behind for call in calls if call.alias == {"output:out": "input:b"}} == {1, 0, -1}
    configs = configs_of(in_set("rms_norm", "refused"))
    alike = [config for config in configs if config.call.alias == {"output:out": "input:input"}]
    assert all(config.layouts for config in alike if config.call.behind == 0)
    assert {config.call.behind for config in alike} == {1, 0, -1}


def test_rank_relative_to_another_tensor() -> None:
    """C's positions have a dimension for batches where its input has one."""
    driver = backend_manager.get("ffi")
    ranks = {
        (case.inputs[0].spec.rank, case.inputs[3].spec.rank): driver.unsupported(case)
        for case in in_set("rope", "positions")
        if len(case.inputs) == 4 and case.expects_error is None
    }
    assert ranks[4, 2] is ranks[4, 1] is None
    assert "position_ids of 2 dimensions" in str(ranks[3, 2])


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


MAPPING = """
version: 1
name: mine
library: [libmine.so]
operators:
  norm:
    functions: {{{dtype}: mine_norm}}
    dims: {{input: [n...]}}
    when: {{p: 2.0}}
    ignores: [dim, keepdim]
    returns: out
    call: [input:input, size:n]
  softmax:
    functions: {{float32: mine_softmax}}
    dims: {{input: [m..., k], out: [m..., k]}}
    when: {{dim: last}}
    same_layout: [input, out]
    call: [output:out, input:input, size:m, size:k, leading:input]
"""


def direct_options(tmp_path: Path, op: str, dtype: str = "float64") -> dict[str, Any]:
    (tmp_path / "mine.yaml").write_text(MAPPING.format(dtype=dtype))
    (tmp_path / "libmine.so").touch()
    return {
        "backend": "ffi",
        "library": (str(tmp_path / "libmine.so"),),
        "headers": (str(tmp_path),),
        "mapping": str(tmp_path / "mine.yaml"),
        "op": (op,),
    }


def supported(tmp_path: Path, op: str, dtype: str = "float64") -> list[TestCase]:
    driver = backend_manager.get("ffi")
    cases = check_request(direct_options(tmp_path, op, dtype)).run.cases
    return [case for case in cases if not driver.unsupported(case)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_function_of_any_dtype_gets_every_set(tmp_path: Path, dtype: str) -> None:
    cases = supported(tmp_path, "norm", dtype)
    assert {each.spec.dtype.name for case in cases for each in case.inputs} == {dtype}
    sets = {tag for case in cases for tag in case.tags}
    assert sets >= {"set:ordinary", "set:special", "set:long", "set:sizes", "set:pages", "set:threads"}
    assert len(cases) > 100


def test_same_layout_tensors_get_padded_rows(tmp_path: Path) -> None:
    cases = [case for case in supported(tmp_path, "softmax") if "set:layouts-at-once" in case.tags]
    outputs = [case.backend_config["ffi"]["outputs"]["out"]["strides"] for case in cases]
    inputs = [case.inputs[0].spec.strides for case in cases]
    assert ((40, 1), [40, 1]) in zip(inputs, outputs, strict=True)


def test_unmapped_operator_lists_mapped_ones(tmp_path: Path) -> None:
    case = check_request(direct_options(tmp_path, "norm")).run.cases[0]
    other = dataclasses.replace(case, descriptor=operators.get("relu"))
    why = backend_manager.get("ffi").unsupported(other)
    assert why is not None
    assert why.endswith("mapping mine has no operator relu; it has norm, softmax")
