"""Defects of the optest before this one that no test of a part shows; none of them is here.

Numbers are those of the list that was made of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from user_shell import Ended, Shell

from optest.spec import CaseResult, Reason
from optest.store import read_journal

Write = Callable[[str], Path]
PYTHON = sys.executable

RIGHT = (
    "import numpy as np; a = np.fromfile('input/input0.bin', np.float32); "
    "(a + np.fromfile('input/input1.bin', np.float32)).tofile('output/output0.bin')"
)


def command_plan(command: list[Any], *, case: str = "", shape: str = "2x3", **config: Any) -> str:
    """A plan of one add through a command; JSON is YAML."""
    section = json.dumps({"command": {"command": command, **config}})
    return (
        f"backend: command\ncases:\n"
        f"  - {{op: add, dtypes: float32, shapes: {{input0: {shape}, input1: {shape}}}, name: one, "
        f"backend_config: {section}{case}}}\n"
    )


def results(folder: Path) -> tuple[CaseResult, ...]:
    *_, newest = sorted((folder / ".optest" / "runs").glob("*/journal.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return read_journal(newest).results


def test_06_paths_are_relative_to_the_plan(optest: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    (folder / "kernel").mkdir(parents=True)
    (folder / "kernel" / "add.py").write_text(RIGHT)
    (folder / "p.yaml").write_text(command_plan([PYTHON, "add.py"], workdir="kernel"))
    optest("run", "--plan", folder / "p.yaml").expect(0)


OWN = """
import numpy as np
print("executed", flush=True)
open("executed", "a").write("x")
def draw(case, rng):
    return [rng.random(argument.spec.shape, "f4") for argument in case.inputs], None
"""


def test_08_function_generates_and_35_module_runs_once(optest: Shell, plan: Write, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    rows = "\n".join(
        f"  - {{op: relu, dtypes: float32, shapes: {{input0: {size}}}, generator: 'own:draw', name: c{size}}}"
        for size in (3, 4, 5)
    )
    optest("run", "--plan", plan(f"cases:\n{rows}"), "--isolate", "worker", "--jobs", 1).expect(0)
    assert (tmp_path / "executed").read_text() == "xx"  # once in each process: the path is tried before the run


INTEGERS = "cases:\n" + "\n".join(
    f"  - {{op: add, dtypes: {name}, shapes: {{input0: 40, input1: 40}}, name: {name}}}"
    for name in ("uint8", "int8", "int16", "int32", "int64")
)


def test_09_and_21_integer_inputs_vary(optest: Shell, plan: Write, tmp_path: Path) -> None:
    optest("run", "--plan", plan(INTEGERS)).expect(0)
    from optest.core.expected import make_inputs
    from optest.core.wire import case_from_wire
    from optest.operators import operators

    for result in results(tmp_path):
        inputs, _ = make_inputs(case_from_wire(result.case, operators.get))
        assert len({int(value) for value in inputs[0]}) > 5, result.id
        assert inputs[0].tobytes() != inputs[1].tobytes()  # 20: inputs are drawn apart


WRONG = """
import numpy as np
from optest.backends import BackendDriver, backend_manager
from optest.backends.numpy_reference import NumpyBackend
from optest.operators import operators
from optest.spec import OperatorDescriptor, Rule, RuleClass

honest = NumpyBackend()


class Wrong(BackendDriver):
    name = kind = "wrong"

    def run(self, case, inputs):
        outs = [np.array(out) for out in honest.run(case, inputs)]
        for out in outs if len(outs) > 1 else []:
            out.flat[-1] += 1
        return outs


backend_manager.register(Wrong())
exact = Rule(kind=RuleClass.EXACT)
halves = lambda i, a: [i[0] / 2, i[0] * 2]
operators.register(OperatorDescriptor(name="halves", signature="x -> low, high", reference=halves, rule=exact))
operators.register(OperatorDescriptor(name="same", signature="x -> out", reference=lambda i, a: [i[0]], rule=exact))
"""
MINE = {"OPTEST_PLUGINS": "wrong"}


@pytest.fixture
def wrong(optest: Shell, plan: Write, tmp_path: Path) -> Callable[..., Ended]:
    """Run one case on a backend that is wrong at the end of each of several outputs."""
    (tmp_path / "wrong.py").write_text(WRONG)

    def run(op: str, more: str = "") -> Ended:
        case = f"{{op: {op}, dtypes: float32, shapes: {{input0: 4x5}}, name: one{more}}}"
        return optest("run", "--plan", plan(f"backend: wrong\ncases: [{case}]"), env=MINE)

    return run


def test_14_arguments_reach_the_program_as_they_are(optest: Shell, tmp_path: Path) -> None:
    folder = tmp_path / "sp ace"
    folder.mkdir()
    code = RIGHT + "; import sys; open('seen', 'w').write(repr(sys.argv[1:]))"
    (folder / "p.yaml").write_text(command_plan([PYTHON, "-c", code, "{shape0}", "it's", "$HOME", "{workdir}"]))
    optest("run", "--plan", folder / "p.yaml").expect(0)
    assert (folder / "seen").read_text() == repr(["2x3", "it's", "$HOME", str(folder)])


def test_15_files_of_another_case_are_never_inputs(optest: Shell, plan: Write) -> None:
    """The two cases share their files; there the second read what was left of the first."""
    one = command_plan([PYTHON, "-c", RIGHT])
    other = command_plan([PYTHON, "-c", RIGHT], shape="4x4").splitlines()[-1].replace("name: one", "name: two")
    optest("run", "--plan", plan(one + other)).expect(0)


@pytest.mark.parametrize("status", ["failed", "error"])
def test_17_xfail_hides_no_broken_setup(optest: Shell, plan: Write, tmp_path: Path, status: str) -> None:
    case = f", xfail: {{reason: known, status: {status}}}"
    ended = optest("run", "--plan", plan(command_plan(["no-such-binary"], case=case)))
    assert (ended.status, [each.reason for each in results(tmp_path)]) == (1, [Reason.UNAVAILABLE])


def test_17_an_unexpected_pass_is_counted_once(wrong: Callable[..., Ended]) -> None:
    ended = wrong("same", ", xfail: known").expect(1, out="1 xpassed")
    assert "xfailed" not in ended.out.splitlines()[-2]


def test_18_timeout_is_retried(optest: Shell, plan: Write, tmp_path: Path) -> None:
    made = f'{PYTHON} -c "{RIGHT}"; cp output/output0.bin right'
    assert optest("run", "--plan", plan(command_plan(["sh", "-c", made]))).status == 0
    body = "test -e tried && exec cp right output/output0.bin; touch tried; sleep 600"
    ended = optest("run", "--plan", plan(command_plan(["sh", "-c", body], case=", timeout: 3, retries: 1")))
    (result,) = results(tmp_path)
    assert (ended.status, result.status.value, result.attempts) == (1, "suspect", 2), ended.text


def test_26_every_output_is_compared_and_located(wrong: Callable[..., Ended], tmp_path: Path) -> None:
    ended = wrong("halves")
    assert "np.int64" not in ended.out  # 10: an index is printed as numbers
    low, high = results(tmp_path)[0].verdict.measures
    assert (low.mismatched, high.mismatched) == (1, 1)
    assert low.worst_index == high.worst_index == (3, 4)
    assert ended.out.count("worst at [3, 4]") == 2
