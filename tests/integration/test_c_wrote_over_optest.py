"""A library that writes far outside of its buffers spoils the process that checks it; optest is never blamed."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ffi_plans import library_of, run_ffi_plan
from texts import says

from optest.core.phases import Phase
from optest.core.worker_death import death
from optest.spec import CaseResult, Reason, Status

pytestmark = [pytest.mark.cxx]

SPOILS = """
#include <stddef.h>
int PyGILState_Ensure(void); void PyGILState_Release(int); int PyRun_SimpleString(const char *);
static int wrote;
static void spoil(const char *text) {
    int state = PyGILState_Ensure();
    PyRun_SimpleString(text);
    PyGILState_Release(state);
}
void f(size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
    wrote |= n == 3;
    if (wrote && n == 4) { %s }
}
"""
IN_THE_DRIVER = """spoil("import contextlib; contextlib.ExitStack.__enter__ = None");"""
DIES_IN_THE_COMPARISON = """spoil("import weakref\\n"
    "weakref.WeakKeyDictionary.get.__code__ = "
    "(lambda self, key, default=None: __import__('ctypes').string_at(8)).__code__");"""
RAISES_IN_THE_COMPARISON = """spoil("import weakref; del weakref.ref");"""


def results(folder: Path, source: str) -> list[CaseResult]:
    """The results of a case that spoils the process, and of one after it that passes by itself."""
    config = library_of(folder, "relu", source)
    plan = [{"op": "relu", "dtypes": "float32", "shapes": {"input0": [size]}, "attributes": {}} for size in (3, 4)]
    return list(run_ffi_plan(folder, plan, **config).results)


@pytest.mark.parametrize(
    "fault", [IN_THE_DRIVER, DIES_IN_THE_COMPARISON, RAISES_IN_THE_COMPARISON], ids=["raises", "dies", "exits"]
)
def test_a_spoilt_process_is_no_fault_of_optest(tmp_path: Path, fault: str) -> None:
    _, after = results(tmp_path, SPOILS % fault)
    assert (after.status, after.reason) == (Status.SUSPECT, None), after.verdict
    assert after.verdict.message.startswith("passed at attempt 2, after "), after.verdict.message


def test_case_that_breaks_its_comparison_is_blamed(tmp_path: Path) -> None:
    first, _ = results(tmp_path, SPOILS.replace("wrote && n == 4", "n == 3") % DIES_IN_THE_COMPARISON)
    assert (first.status, first.reason) == (Status.CRASHED, Reason.SIGNAL)
    assert says(first.verdict.message, "integration.the_backend_corrupted_memory")


@pytest.mark.parametrize(
    ("native", "signal", "reason"),
    [
        (True, 11, Reason.SIGNAL),
        (True, 9, Reason.INTERNAL),
        (False, 11, Reason.INTERNAL),
        (True, None, Reason.INTERNAL),
    ],
)
def test_only_memory_fault_blames_native_code(native: bool, signal: int | None, reason: Reason) -> None:
    verdict = death(Phase.COMPARE, None if signal else 1, signal, "", native=native)
    assert verdict.reason is reason


def test_values_after_foreign_write_use_new_process(tmp_path: Path) -> None:
    """A write of relu breaks what tanh reads later; by itself, tanh is right."""
    source = """
#include <stddef.h>
#include <math.h>
static int broken;
void f(size_t n, const float *x, float *y) {
    for (size_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
    y[n] = broken = 1;
}
void g(size_t n, const float *x, float *y) { for (size_t i = 0; i < n; ++i) y[i] = broken ? 7 : tanhf(x[i]); }
"""
    config = library_of(tmp_path, "relu", source)
    header, mapping = tmp_path / "own.h", tmp_path / config["mapping"]
    header.write_text(header.read_text() + "void g(size_t n, const float *x, float *y);\n")
    held = yaml.safe_load(mapping.read_text())
    held["operators"]["tanh"] = [{**held["operators"]["relu"][0], "functions": {"float32": "g"}}]
    mapping.write_text(yaml.safe_dump(held))
    plan = [{"op": name, "dtypes": "float32", "shapes": {"input0": [5]}} for name in ("relu", "tanh")]
    relu, right = run_ffi_plan(tmp_path, plan, **config).results
    assert (relu.reason, right.status) == (Reason.OUT_OF_BOUNDS, Status.PASSED), right.verdict
