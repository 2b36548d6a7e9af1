"""`optest check` over the example C library: nothing to say of the right one, and every kind of fault found."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import warm_python
import yaml
from library_faults import headers_of

from optest.api.checking import check, write
from optest.api.running import Report, run
from optest.clib.ffi.headers import read_headers
from optest.clib.library.mapping_file import mapping_path
from optest.spec import BAD_STATUSES, CaseResult, Reason

pytestmark = [
    pytest.mark.cxx,
]

FAULTS = {
    "add_ignores_strides_of_b": ("add/layouts", {Reason.READ_OUT_OF_BOUNDS, Reason.VALUE}),
    "mul_ignores_strides_of_output": ("mul/output-layouts", {Reason.OUT_OF_BOUNDS}),
    "sub_drops_sign_of_strides": ("sub/layouts", {Reason.READ_OUT_OF_BOUNDS, Reason.VALUE}),
    "gelu_stride_of_size_1": ("gelu/layouts", {Reason.READ_OUT_OF_BOUNDS, Reason.VALUE}),
    "gemm_reads_square_b_transposed": ("gemm/squares", {Reason.VALUE}),
    "swiglu_writes_before_it_reads_b": ("swiglu/in-place", {Reason.VALUE}),
    "add_refuses_strides_of_empty": ("add/sizes", {Reason.RAISED}),
    "relu_refuses_bf16": ("relu/ordinary", {Reason.RAISED}),
    "add_loses_tail": ("add/ordinary", {Reason.UNWRITTEN}),
    "relu_writes_one_too_many": ("relu/ordinary", {Reason.OUT_OF_BOUNDS}),
    "silu_looks_past_the_end": ("silu/ordinary", {Reason.READ_OUT_OF_BOUNDS, Reason.SIGNAL}),
    "f16_ties_away": ("mul/ties", {Reason.VALUE}),
    "rms_norm_sums_in_f16": ("rms_norm/ordinary", {Reason.VALUE, Reason.NAN}),
    "relu_nan_becomes_0": ("relu/special", {Reason.NAN}),
    "gemm_reads_c_where_beta_is_0": (
        "gemm/ordinary",
        {Reason.NAN, Reason.VALUE, Reason.UNWRITTEN},
    ),  # what the output held
    "softmax_misreads_negative_axis": ("softmax/attributes", {Reason.VALUE}),
    "gelu_refuses_with_success": ("gelu/refused", {Reason.NOT_REFUSED}),
    "gemm_accepts_null": ("gemm/refused", {Reason.NOT_REFUSED, Reason.SIGNAL}),
    "gemm_accepts_output_in_input": ("gemm/refused", {Reason.NOT_REFUSED}),
    "rms_norm_accepts_short_workspace": ("rms_norm/refused", {Reason.NOT_REFUSED, Reason.WORKSPACE}),
    "sub_accepts_stride_zero_output": ("sub/refused", {Reason.NOT_REFUSED}),
    "swiglu_changes_input": ("swiglu/ordinary", {Reason.INPUT_MUTATED}),
    "add_keeps_tensor_descriptor": ("add/ordinary", set(Reason)),
    "rms_norm_shares_eps": ("rms_norm/ordinary", {Reason.STATE, Reason.VALUE}),
    "softmax_needs_zeroed_workspace": ("softmax/ordinary", {Reason.WORKSPACE}),
    "softmax_exits_on_f64": ("softmax/dtypes", {Reason.EXIT_CODE}),
    "gelu_aborts_on_nan": ("gelu/special", {Reason.SIGNAL}),
    "device_stays_selected": ("relu/session", {Reason.STATE}),
    "any_device_is_accepted": ("relu/session", {Reason.NOT_REFUSED}),
    "clip_u64_as_signed": ("clip/attributes", {Reason.VALUE}),
    "conv_accepts_other_channels": ("conv1d/refused", {Reason.NOT_REFUSED}),
    "rope_accepts_one_position_more": ("rope/refused", {Reason.NOT_REFUSED}),
    "clip_leaks": ("clip/ordinary", {Reason.LEAK}),
    "silu_prints": ("silu/ordinary", {Reason.STATE}),
    "random_sample_hangs_on_large_topk": ("random_sample/ordinary", {Reason.DEADLINE}),
    "tanh_leaves_rounding_upward": ("tanh/ordinary", set(Reason)),
}
"""Some of every kind, with the operator and the case set that are asked and the reasons that suit it."""


def options(library: Path, folder: Path, *names: str) -> dict[str, object]:
    """What a user types, as the command line hands it on."""
    return {
        "backend": "ffi",
        "library": (str(library),),
        "headers": (str(headers_of(library)),),
        "mapping": "infiniop",
        "op": names,
        "runs_dir": str(folder / "runs"),
    }


def bad(outcome: Report) -> list[CaseResult]:
    return [each for each in outcome.results if each.status in BAD_STATUSES]


def told(outcome: Report) -> list[str]:
    return [f"{each.id}: {each.verdict.message}" for each in bad(outcome)]


LARGE_SETS = (
    *("sizes", "pages", "size-1", "squares", "input-layouts", "layouts-at-once"),
    *("output-layouts", "in-place", "ranks", "refused"),
)
"""Most of the cases, each called once, between guards; test_openblas.py and test_plain_c_libraries.py call those of
their libraries often, too."""
ONE_OF_EACH_LOOP = (
    *("add", "relu", "clip", "gemm", "conv2d", "softmax", "causal_softmax", "rms_norm", "layer_norm"),
    *("rope", "random_sample", "clone", "zeros_like", "swiglu"),
)
"""Operators with a loop of their own; the others of the library share that of one of these."""
PARTS: dict[str, dict[str, object]] = {
    "called often": {"skip_tag": [f"set:{name}" for name in LARGE_SETS]},
    "called once": {"case_set": LARGE_SETS, "probes": "guards", "op": ONE_OF_EACH_LOOP},
}


@pytest.mark.heavy
@pytest.mark.parametrize(("part", "least"), [("called often", 21), ("called once", len(ONE_OF_EACH_LOOP))])
def test_correct_library_has_no_findings(c_library: Path, tmp_path: Path, part: str, least: int) -> None:
    stream = io.StringIO()
    outcome = check({**options(c_library, tmp_path), **PARTS[part]}, stream=stream)
    assert told(outcome) == []
    assert outcome.exit_status == 0
    operators = {each.operator for each in outcome.results if each.status.value == "passed"}
    assert len(operators) >= least
    of_all = re.search(r"\d+ operators are not in mapping infiniop( \(.*\))?\n", stream.getvalue())
    assert bool(of_all) is ("op" not in PARTS[part])


@pytest.mark.heavy
def test_a_library_needs_no_headers(c_library: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(c_library / "lib", bare / "lib")
    given = {**options(bare, tmp_path, "relu", "gemm", "conv2d"), "headers": (), "tier": "smoke"}
    outcome = check(given, stream=io.StringIO())
    assert told(outcome) == []
    assert {each.operator for each in outcome.results if each.status.value == "passed"} == {"relu", "gemm", "conv2d"}


def test_mapping_header_matches_library(c_library: Path) -> None:
    own = read_headers([mapping_path("infiniop", "").with_suffix(".h")])
    library = read_headers([headers_of(c_library)])
    both = own.prototypes.keys() & library.prototypes.keys()
    assert len(both) > 80
    for name in both:
        ours, theirs = ([each.type for each in header.prototype(name).parameters] for header in (own, library))
        assert [(each.kind, each.size, each.pointee and each.pointee.is_const) for each in ours] == [
            (each.kind, each.size, each.pointee and each.pointee.is_const) for each in theirs
        ], name
    assert {key: library.constants[key] for key in own.constants if key in library.constants}.items() <= (
        own.constants.items()
    )


@pytest.mark.heavy
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, c_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, reasons = FAULTS[fault]
    operator, case_set = asked.split("/")
    monkeypatch.setenv("INFINIOP_FAULT", fault)
    timeout = 3.0 if "hangs" in fault else 200.0
    given = {
        **options(c_library / "broken", tmp_path, operator),
        "case_set": (case_set,),
        "exitfirst": True,
        "jobs": 1,
        "timeout": timeout,
    }
    found = bad(check(given, stream=io.StringIO()))
    assert found, f"nothing found of {fault}"
    assert {each.reason for each in found} <= reasons, told_of(found)


def told_of(found: list[CaseResult]) -> list[str]:
    return [f"{each.id}: {each.reason}: {each.verdict.message}" for each in found]


def test_one_operator_passes_and_its_plan_runs(c_library: Path, tmp_path: Path) -> None:
    given = {**options(c_library, tmp_path, "relu"), "case_set": ("ordinary", "output-layouts", "refused", "in-place")}
    outcome = check(given, stream=io.StringIO())
    assert told(outcome) == []
    assert len(outcome.results) > 100
    plan = tmp_path / "elsewhere" / "plan.yaml"
    plan.parent.mkdir()
    write({**given, "case_set": ("output-layouts", "in-place")}, str(plan))
    held = yaml.safe_load(plan.read_text())["defaults"]["backend_config"]["ffi"]
    assert held == {"library": str(c_library), "headers": str(c_library / "include"), "mapping": "infiniop"}
    again = run({"plan": str(plan), "runs_dir": str(tmp_path / "again")}, stream=io.StringIO())
    assert told(again) == []
    assert len(again.results) > 60


def pasted(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(line)
    return warm_python.run(program, *words, cwd=folder, env=os.environ)


def test_reproduction_command_works_when_pasted(
    c_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFINIOP_FAULT", "relu_nan_becomes_0")
    monkeypatch.chdir(tmp_path)
    which = {"case_set": ("special", "layouts-at-once"), "exitfirst": True}
    given = {**options(c_library / "broken", tmp_path, "relu"), **which}
    result = bad(check(given, stream=io.StringIO()))[0]
    assert "--mapping infiniop" in result.repro
    assert "backend_config" not in result.repro
    done = pasted(result.repro, tmp_path)
    assert done.returncode == 1, done.stderr
    assert "FAILED  relu[float32](4x37)  NAN" in done.stdout


@pytest.mark.heavy
def test_reproduction_plan_has_the_layout(c_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINIOP_FAULT", "mul_ignores_strides_of_output")
    monkeypatch.chdir(tmp_path)
    given = {**options(c_library / "broken", tmp_path, "mul"), "case_set": ("output-layouts",), "exitfirst": True}
    result = bad(check(given, stream=io.StringIO()))[0]
    assert result.reason is Reason.OUT_OF_BOUNDS
    done = pasted(result.repro, tmp_path)
    assert done.returncode == 1, done.stderr
    assert "OUT_OF_BOUNDS" in done.stdout
