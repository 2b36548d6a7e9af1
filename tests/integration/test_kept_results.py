"""What a library keeps of its first call of all is found by a single case, whose values are those very ones."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from texts import says_exactly

from optest.api.running import run
from optest.spec import CaseResult, Check, CheckState, Reason, Status

pytestmark = pytest.mark.cxx

HEADER = "#include <stddef.h>\nRESULT f(size_t n, const float *x, const float *w, float *y);\n"
SOURCE = """
#include "kept.h"
#include <string.h>
static float kept[4096];
static int calls;
RESULT f(size_t n, const float *x, const float *w, float *y) {
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


ASCENDING = {"input0": {"fill": "data", "values": list(range(1, 41))}}


def asked(folder: Path, body: str, *, status: str = "", **case: Any) -> CaseResult:
    """The one case of a plan, by a library whose function ends with ``body`` and returns a ``status``, if any."""
    (folder / "kept.h").write_text(HEADER.replace("RESULT", status or "void"))
    (folder / "kept.c").write_text(SOURCE.replace("RESULT", status or "void").replace("BODY", body))
    command = ["gcc", "-O1", "-shared", "-fPIC", "-o", "libkept.so", "kept.c"]
    subprocess.run(command, cwd=folder, check=True, timeout=600)
    (folder / "own.yaml").write_text(yaml.safe_dump({**MAPPING, **({"status": status} if status else {})}))
    place = {"library": [str(folder / "libkept.so")], "headers": str(folder / "kept.h"), "mapping": "own.yaml"}
    plan = {
        "version": 1,
        "backend": "ffi",
        "defaults": {"timeout": 200, "backend_config": {"ffi": place}},
        "cases": [{"op": "mul", "dtypes": ["float32"], "shapes": {"input0": [40], "input1": [40]}, **case}],
    }
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    asked = {"plan": str(folder / "plan.yaml"), "runs_dir": str(folder / "runs"), "verbose": 1}
    with (folder / "report").open("w") as report:
        (result,) = run(asked, stream=report).results
    return result


def told_of_other_values(found: CaseResult) -> list[Check]:
    return [each for each in found.verdict.checks if each.name == "other values"]


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
    (check,) = told_of_other_values(found)
    assert (check.state, check.detail) == (CheckState.DONE, "of inputs input, other, one after the other")


def test_results_that_may_stay_what_they_were_pass(tmp_path: Path) -> None:
    """The reference says that they may: times 0, every operand yields 0."""
    found = asked(tmp_path, BODIES["right"], generator={"input0": "zeros"})
    assert found.status is Status.PASSED, found.verdict.message
    (check,) = told_of_other_values(found)
    assert (check.state, check.detail) == (CheckState.DONE, "of input other")


def test_a_library_that_refuses_other_values_is_told(tmp_path: Path) -> None:
    found = asked(tmp_path, "return x[0] > x[1];", status="int", generator=ASCENDING)
    assert found.status is Status.PASSED, found.verdict.message
    refused, done = told_of_other_values(found)
    assert (done.state, done.detail) == (CheckState.DONE, "of input other")
    assert refused.state is CheckState.NOT_POSSIBLE
    assert says_exactly(refused.detail, "integration.input_input_the_library")


def product(inputs: Sequence[Any], attributes: Any) -> Any:
    return [inputs[0].astype(np.float64) * inputs[1]]


def product_of_ascending(inputs: Sequence[Any], attributes: Any) -> Any:
    if inputs[0][0] > inputs[0][1]:
        raise ValueError("the values should ascend")
    return product(inputs, attributes)


def crash_of_descending(inputs: Sequence[Any], attributes: Any) -> Any:
    if inputs[0][0] > inputs[0][1]:
        ctypes.string_at(0)
    return product(inputs, attributes)


class Products:
    """A generator that knows the products of what it makes."""

    def generate(self, case: Any, rng: Any) -> Any:
        inputs = [rng.standard_normal(40).astype(np.float32) for _ in case.inputs]
        return inputs, product(inputs, {})


REFUSED = "input input: the reference raised ValueError: the values should ascend"
BY_GENERATOR = "inputs input, other: the case's generator knows the outputs for its own inputs only"


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("knows", "why"),
    [
        ({"reference": f"{__name__}:product_of_ascending", "generator": ASCENDING}, REFUSED),
        ({"generator": f"{__name__}:Products"}, BY_GENERATOR),
    ],
)
def test_where_nobody_knows_what_is_right_it_is_not_possible(tmp_path: Path, knows: dict[str, Any], why: str) -> None:
    found = asked(tmp_path, BODIES["right"], **knows)
    assert found.status is Status.PASSED, found.verdict.message
    assert (CheckState.NOT_POSSIBLE, why) in [(each.state, each.detail) for each in told_of_other_values(found)]
    assert f"other values ({why})" in (tmp_path / "report").read_text()


@pytest.mark.heavy
def test_a_reference_that_crashes_on_other_values_is_told_as_the_references(tmp_path: Path) -> None:
    knows = {"reference": f"{__name__}:crash_of_descending", "generator": ASCENDING}
    found = asked(tmp_path, BODIES["right"], **knows)
    assert (found.status, found.reason) == (Status.ERROR, Reason.REFERENCE_FAILED), found.verdict.message
    assert found.verdict.message.startswith("the reference died of SIGSEGV")
