"""A CBLAS that is wrong in one way at a time: a check finds each, and nothing where it is right."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from optest.api import checking
from optest.spec import BAD_STATUSES, CaseResult, Reason, Status

SOURCE = Path(__file__).parent / "evil_blas"

pytestmark = pytest.mark.cxx

MOST = 12
"""A check ends with so many failures."""
Results = list[CaseResult]

# The operator that is asked, after a slash the case set that shows the fault, and its reason.
FAULTS = {
    "gemm_swaps_transpositions": ("gemm/layouts", Reason.READ_OUT_OF_BOUNDS),
    "gemm_ignores_transb": ("gemm/layouts", Reason.READ_OUT_OF_BOUNDS),
    "gemm_ignores_lda": ("gemm/layouts", Reason.READ_OUT_OF_BOUNDS),
    "gemm_ignores_ldb": ("gemm/layouts", Reason.READ_OUT_OF_BOUNDS),
    "gemm_ignores_ldc": ("gemm/output-layouts", Reason.OUT_OF_BOUNDS),
    "gemm_ignores_alpha": ("gemm/attributes", Reason.VALUE),
    "gemm_ignores_beta": ("gemm/attributes", Reason.VALUE),
    "gemm_drops_tail_of_k": ("gemm/ordinary", Reason.VALUE),
    "gemm_drops_last_column": ("gemm/ordinary", Reason.UNWRITTEN),
    "gemm_adds_in_half": ("gemm/ordinary", Reason.VALUE),
    "gemm_reads_one_beyond_k": ("gemm/ordinary", Reason.READ_OUT_OF_BOUNDS),
    "gemm_reads_c_if_beta_is_0": ("gemm/beta", Reason.NAN),
    "gemm_writes_padding": ("gemm/output-layouts", Reason.OUT_OF_BOUNDS),
    "gemm_writes_one_beyond": ("gemm/ordinary", Reason.OUT_OF_BOUNDS),
    "gemm_changes_a": ("gemm/ordinary", Reason.INPUT_MUTATED),
    "gemm_ignores_order": ("gemm/output-layouts", Reason.OUT_OF_BOUNDS),
    "gemm_scales_c_by_alpha": ("gemm/attributes", Reason.VALUE),
    "gemm_returns_for_alpha_0": ("gemm/attributes", Reason.VALUE),
    "ger_overwrites": ("gemm/attributes", Reason.VALUE),
    "ger_takes_lda_for_columns": ("gemm/output-layouts", Reason.OUT_OF_BOUNDS),
    "gemv_ignores_incx": ("matmul/input-layouts", Reason.READ_OUT_OF_BOUNDS),
    "gemv_ignores_incy": ("matmul/output-layouts", Reason.OUT_OF_BOUNDS),
    "gemv_ignores_lda": ("matmul/input-layouts", Reason.READ_OUT_OF_BOUNDS),
    "gemv_loses_tail_of_strided_x": ("matmul/input-layouts", Reason.VALUE),
    "gemv_begins_at_the_pointer": ("matmul/input-layouts", Reason.READ_OUT_OF_BOUNDS),
    "dot_ignores_incx": ("dot/layouts", Reason.READ_OUT_OF_BOUNDS),
    "dot_takes_increments_absolute": ("dot/layouts", Reason.VALUE),
    "dot_drops_tail": ("dot/ordinary", Reason.VALUE),
    "dot_takes_increment_0_for_1": ("dot/layouts", Reason.READ_OUT_OF_BOUNDS),
    "dot_remembers": ("dot/ordinary", Reason.VALUE),
    "dot_reads_behind": ("dot/ordinary", Reason.READ_OUT_OF_BOUNDS),
    "nrm2_overflows": ("norm/special", Reason.VALUE),
    "nrm2_without_root": ("norm/ordinary", Reason.VALUE),
    "nrm2_nan_for_infinity": ("norm/special", Reason.NAN),
    "asum_keeps_sign_of_one": ("norm/signs", Reason.VALUE),
    "asum_ignores_incx": ("norm/layouts-at-once", Reason.READ_OUT_OF_BOUNDS),
    "asum_without_abs": ("norm/attributes", Reason.VALUE),
    "axpy_ignores_incx": ("add/layouts", Reason.READ_OUT_OF_BOUNDS),
    "axpy_ignores_incy": ("add/output-layouts", Reason.OUT_OF_BOUNDS),
    "axpy_skips_increment_0": ("add/broadcast", Reason.VALUE),
    "axpy_ignores_alpha": ("add/attributes", Reason.VALUE),
    "axpy_overwrites": ("add/ordinary", Reason.VALUE),
    "axpy_writes_behind": ("add/ordinary", Reason.OUT_OF_BOUNDS),
    "geadd_takes_ldc_for_lda": ("add/layouts", Reason.READ_OUT_OF_BOUNDS),
    "scal_scales_the_gaps": ("neg/output-layouts", Reason.OUT_OF_BOUNDS),
    "scal_skips_the_last": ("neg/ordinary", Reason.VALUE),
    "copy_flushes_subnormals": ("reshape/special", Reason.VALUE),
    "max_of_absolute_values": ("argmax/special", Reason.VALUE),
    "max_starts_at_0": ("argmax/special", Reason.VALUE),
    "max_counts_from_1": ("argmax/ordinary", Reason.VALUE),
    "omatcopy_ignores_ldb": ("transpose/output-layouts", Reason.OUT_OF_BOUNDS),
    "omatcopy_never_transposes": ("transpose/squares", Reason.VALUE),
}
QUICK = ("gemm_ignores_ldc", "nrm2_overflows")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("blas") / "libevil.so"
    source = str(SOURCE / "evil_blas.c")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", str(file), source, "-lm"], check=True, timeout=600)
    return file


NAN_IS_PASSED_OVER = """
version: 1
expected:
  - {op: argmax, dtype: float32, where: {case_set: special, fill: data}, reason: VALUE, why: NaN is passed over}
"""
"""As examples/openblas/expectations.yaml has it of OpenBLAS itself: no fault may count as found for that."""


def asked(library: Path, tmp_path: Path, operator: str, *case_sets: str, **further: Any) -> Results:
    expectations = tmp_path / "expectations.yaml"
    expectations.write_text(NAN_IS_PASSED_OVER)
    given = {
        "backend": "ffi",
        "mapping": "cblas",
        "library": [str(library)],
        "headers": [str(SOURCE)],
        "op": (operator,),
        "case_set": case_sets,
        "expectations": [str(expectations)],
        "runs_dir": str(tmp_path),
        "jobs": 1,
        **further,
    }
    return list(checking.check(given, stream=io.StringIO()).results)


def test_every_fault_of_the_source_is_asked_for() -> None:
    assert set(re.findall(r'evil\("(\w+)"\)', (SOURCE / "evil_blas.c").read_text())) == set(FAULTS)


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=() if each in QUICK else pytest.mark.heavy) for each in FAULTS]
)
def test_a_fault_is_found(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    which, reason = FAULTS[fault]
    monkeypatch.setenv("EVIL_BLAS", fault)
    results = asked(library, tmp_path, *which.split("/"), maxfail=MOST)
    reasons = {each.verdict.reason for each in results if each.status in BAD_STATUSES}
    wanted = {reason, Reason.SIGNAL} if reason is Reason.READ_OUT_OF_BOUNDS else {reason}  # at a page it is a crash
    assert reasons & wanted, f"{fault}: {sorted(map(str, reasons))}"


OPERATORS = sorted({which.partition("/")[0] for which, _ in FAULTS.values()})


@pytest.mark.parametrize(
    "operator", [pytest.param(each, marks=() if each == "dot" else pytest.mark.heavy) for each in OPERATORS]
)
def test_the_right_library_passes(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str
) -> None:
    """The case sets that show faults; OpenBLAS itself is asked all of them."""
    monkeypatch.delenv("EVIL_BLAS", raising=False)
    case_sets = sorted({which.partition("/")[2] for which, _ in FAULTS.values() if which.startswith(f"{operator}/")})
    results = asked(library, tmp_path, operator, *case_sets)
    assert [(each.id, each.verdict.message) for each in results if each.status in BAD_STATUSES] == []
    assert {each.status for each in results} >= {Status.PASSED}
