"""Whatever a message proposes to write or to run is itself right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from user_shell import Shell

from optest.api import cases
from optest.errors import PlanError, Problem
from optest.operators import operators
from optest.plan.problems import _CASE, _EXAMPLES

SOURCE = Path(__file__).parents[2] / "src" / "optest"


@pytest.mark.parametrize("words", [(), ("--function", "my_kernels:relu"), ("--backend", "numpy")])
def test_what_run_proposes_runs(optest: Shell, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "my_kernels.py").write_text("def relu(x):\n    return [(x > 0) * x]\n")
    ended = optest("run", *words)
    proposed = re.findall(r": optest (.*)", ended.err)
    assert (ended.status, len(proposed)) == (2, 2)
    for line in proposed:
        optest(*shlex.split(line), *(("--tier", "smoke", "--list") if line.startswith("check") else ())).expect(0)


@pytest.mark.torch
def test_what_check_proposes_runs(optest: Shell) -> None:
    pytest.importorskip("torch")
    proposed = re.findall(r"for example: optest (.*)", optest("check").err)
    assert [optest(*shlex.split(line), "--op", "relu", "--tier", "smoke").status for line in proposed] == [0]


@pytest.mark.heavy
def test_shapes_that_are_proposed_are_taken() -> None:
    proposals = 0
    for descriptor in operators:
        for shape in ("2x3", "8x9", "4", "2x3x4"):
            hints = [each.hint for each in _problems(descriptor.name, [f"input0={shape}"])]
            for hint in hints:
                if hint.startswith("for example --shape"):
                    proposals += 1
                    assert not _problems(descriptor.name, shlex.split(hint.removeprefix("for example "))[1::2]), hint
    assert proposals > 50


def _problems(operator: str, shapes: list[str]) -> tuple[Problem, ...]:
    try:
        cases(op=operator, shape=shapes)
    except PlanError as error:
        return error.problems
    return ()


def test_keys_that_are_proposed_are_taken(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "build").mkdir()
    below = ("cases", "defaults", "report")
    for key, example in _EXAMPLES.items():
        text = "op: relu" if key == "op" else example
        if key in below:
            plan = text if key == "cases" else f"{text}\ncases: [{_CASE}]"
        else:
            op, shapes = ("elu", "{input0: 2x3}") if key == "attributes" else ("relu", "{input0: 2x3}")
            op, shapes = ("matmul", "") if key == "shapes" else (op, f"shapes: {shapes}")
            lines = [text, shapes, "" if key == "op" else f"op: {op}"]
            plan = "cases:\n- " + "\n  ".join(line for line in lines if line)
        (tmp_path / "plan.yaml").write_text(plan)
        ended = optest("list", "cases", "--plan", "plan.yaml")
        assert ended.status == 0, (plan, ended.text)
    (tmp_path / "plan.yaml").write_text("")
    proposed = optest("list", "cases", "--plan", "plan.yaml").err.splitlines()[1].strip()
    (tmp_path / "plan.yaml").write_text(proposed)
    assert optest("list", "cases", "--plan", "plan.yaml").status == 0


def test_messages_name_no_extras_of_optest() -> None:
    assert [path for path in SOURCE.rglob("*.py") if re.search(r"install [^\n]*optest\[", path.read_text())] == []
