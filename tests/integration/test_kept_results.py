"""What a library keeps of its first call of all is found by a single case, whose values are those very ones."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from optest.api.running import run
from optest.spec import CaseResult, CheckState, Reason, Status

pytestmark = [pytest.mark.cxx, pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc")]

HEADER = "#include <stddef.h>\nvoid f(size_t n, const float *x, const float *w, float *y);\n"
SOURCE = """
#include "kept.h"
#include <string.h>
static float kept[4096];
static int calls;
void f(size_t n, const float *x, const float *w, float *y) {
    for (size_t i = 0; i < n; ++i) y[i] = x[i] * w[i];
    BODY
}
"""
BODIES = {
    "right": "",
    "all": "if (!calls++) memcpy(kept, y, 4 * n); memcpy(y, kept, 4 * n);",
    "an element": "if (!calls++) kept[7] = y[7]; y[7] = kept[7];",
    "an operand": "if (!calls++) memcpy(kept, w, 4 * n); for (size_t i = 0; i < n; ++i) y[i] = x[i] * kept[i];",
}
MAPPING = {
    "version": 1,
    "name": "kept",
    "library": ["kept"],
    "dtypes": {"float32": "float"},
    "operators": {
        "mul": [
            {
                "functions": {"float32": "f"},
                "dims": {"input": ["n"], "other": ["n"], "out": ["n"]},
                "call": ["size:n", "input:input", "input:other", "output:out"],
            }
        ]
    },
}


def asked(folder: Path, body: str, **case: Any) -> CaseResult:
    """The one case of a plan, by a library whose function ends with ``body``."""
    (folder / "kept.h").write_text(HEADER)
    (folder / "kept.c").write_text(SOURCE.replace("BODY", body))
    command = ["gcc", "-O1", "-shared", "-fPIC", "-o", "libkept.so", "kept.c"]
    subprocess.run(command, cwd=folder, check=True, timeout=600)
    (folder / "own.yaml").write_text(yaml.safe_dump(MAPPING))
    place = {"library": [str(folder / "libkept.so")], "headers": str(folder / "kept.h"), "mapping": "own.yaml"}
    plan = {
        "version": 1,
        "backend": "ffi",
        "defaults": {"timeout": 200, "backend_config": {"ffi": place}},
        "cases": [{"op": "mul", "dtypes": ["float32"], "shapes": {"input0": [40], "input1": [40]}, **case}],
    }
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    (result,) = run({"plan": str(folder / "plan.yaml"), "runs_dir": str(folder / "runs")}, stream=io.StringIO()).results
    return result


@pytest.mark.parametrize(
    ("kept", "reason", "words"),
    [
        ("all", Reason.STATE, "with other values of input input (40 of 40 elements as in the first call): out: "),
        (
            "an element",
            Reason.VALUE,
            "with other values of input input (1 of 40 elements as in the first call): out: 1",
        ),
        ("an operand", Reason.STATE, "with other values of input other (40 of 40 elements as in the first call): out"),
    ],
)
def test_what_is_kept_of_the_first_call_is_found(tmp_path: Path, kept: str, reason: Reason, words: str) -> None:
    found = asked(tmp_path, BODIES[kept])
    assert (found.status, found.reason) == (Status.FAILED, reason), found.verdict.message
    assert found.verdict.message.startswith(words)


def test_a_larger_case_shows_it_at_once(tmp_path: Path) -> None:
    """Before it the library is called with other values."""
    found = asked(tmp_path, BODIES["an element"], shapes={"input0": [4096], "input1": [4096]})
    assert (found.status, found.reason) == (Status.FAILED, Reason.VALUE), found.verdict.message
    assert found.verdict.message.startswith("out: 1 of 4096 elements is off")


def test_a_library_that_keeps_nothing_is_asked_with_other_values(tmp_path: Path) -> None:
    found = asked(tmp_path, BODIES["right"])
    assert found.status is Status.PASSED, found.verdict.message
    (check,) = [each for each in found.verdict.checks if each.name == "other values"]
    assert (check.state, check.detail) == (CheckState.DONE, "2 inputs changed one after the other")


def test_results_that_may_stay_what_they_were_pass(tmp_path: Path) -> None:
    """The reference says that they may: times 0, every operand yields 0."""
    found = asked(tmp_path, BODIES["right"], generator={"input0": "zeros"})
    assert found.status is Status.PASSED, found.verdict.message
    (check,) = [each for each in found.verdict.checks if each.name == "other values"]
    assert check.detail == "1 inputs changed one after the other"
