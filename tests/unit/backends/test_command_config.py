"""Everything that is wrong with a command's configuration is said before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handmade import ADD, case_of, command_case, spec
from texts import says

from optest.backends import _BUILTINS, BackendManager, Fault, Reason
from optest.backends.command_config import read_config

GOOD: dict[str, Any] = {"command": ["bash", "run.sh", "-v", 910]}


def problems(config: Any, section: str = "command", **fields: Any) -> list[str]:
    case = command_case(section, config=config, **fields)
    return list(BackendManager(_BUILTINS).get(section).problems(case))


def test_the_seeds_configuration_is_read(tmp_path: Path) -> None:
    config = {
        "workdir": str(tmp_path),
        "command": ["bash", "run.sh", "-r", "cpu", "-v", "Ascend910B"],
        "inputs": [{"tensor": "input0", "path": "input/input_x.bin", "dtype": "half"}],
        "outputs": {"out": "output/output_z.bin"},
        "build": ["make"],
        "prepare": [["rm", "-rf", "x"], ["mkdir", "x"]],
        "env": {"N": 4},
    }
    read, wrong = read_config(command_case("ascend", kind="float16", config=config), "ascend")
    assert wrong == []
    assert read.command == ("bash", "run.sh", "-r", "cpu", "-v", "Ascend910B")
    assert [(file.tensor, file.path, file.dtype.name) for file in (*read.inputs, *read.outputs)] == [
        ("input0", "input/input_x.bin", "float16"),
        ("input1", "input/input1.bin", "float16"),
        ("output0", "output/output_z.bin", "float16"),
    ]
    assert (read.build, read.prepare) == ((("make",),), (("rm", "-rf", "x"), ("mkdir", "x")))
    assert read.env == {"N": "4"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"command": None}, "command is None, expected a list"),
        ({"command": []}, "command is [], expected a list"),
        ({"command": "bash run.sh -r 'a b'"}, "since it is not run by a shell: [bash, run.sh, '-r', 'a b']"),
        ({"command": ["sh", ["-c"]]}, "command[1] is ['-c'], expected a string"),
        ({"command": ["sh", True]}, "command[1] is True, expected a string"),
        ({"command": ["{inptu0}"]}, "unknown token {inptu0}; did you mean {input0}?"),
        ({"command": ["awk", "{print $1}"]}, "unknown token {print $1}"),
        ({"command": ["{chip}"]}, "no chip is selected"),
        ({"comand": ["x"]}, "comand is an unknown key; did you mean 'command'?"),
        ({"timeout": 3}, "timeout is an unknown key; it belongs to the case"),
        ({"pre_run": []}, "call it 'prepare'"),
        ({"build": "make"}, "build is 'make', expected a list, since it is not run by a shell: [make]"),
        ({"build": ["make", ["x"]]}, "build mixes words and lists"),
        ({"build": [["make"], []]}, "build[1] is [], expected a list"),
        ({"cleanup": {"a": 1}}, "cleanup is {'a': 1}, expected a list"),
        ({"workdir": "no/such/place"}, "workdir is 'no/such/place', but"),
        ({"workdir": "{input0}"}, "unknown token {input0}"),
        ({"env": ["A"]}, "env is ['A'], expected a map"),
        ({"env": {"A": "{x}"}}, "env.A '{x}': unknown token {x}"),
        ({"env": {"A=B": "x"}}, "env has the name 'A=B'"),
        ({"retries": 2}, "retries is an unknown key; it belongs to the case"),
        ({"inputs": "x.bin"}, "inputs is 'x.bin', expected a list of"),
        ({"inputs": [{"path": "x"}]}, "inputs[0] has no tensor"),
        ({"inputs": ["x.bin"]}, "inputs[0] is 'x.bin', expected a map"),
        ({"inputs": {"input7": "x"}}, "inputs.input7 names a tensor that add does not have"),
        ({"inputs": {"output0": "x"}}, "names 'output0', but the case has input0, input1 here"),
        ({"inputs": {"input0": {"pth": "x"}}}, "pth is an unknown key; did you mean 'path'?"),
        ({"inputs": {"input0": {"dtype": "flaot16"}}}, "did you mean 'float16'?"),
        ({"inputs": {"input0": {"dtype": 16}}}, "dtype is 16, expected the name of a dtype"),
        ({"inputs": {"input0": "a", "input": "b"}}, "names 'input', which has a file already"),
        ({"inputs": {"input0": "same", "input1": "same"}}, "has the path 'same' for input0 and for input1"),
        ({"outputs": {"out": "input/input0.bin"}}, "has the path 'input/input0.bin' for input0 and for output0"),
        ({"outputs": {"out": {"path": "o", "dtype": "float16"}}}, "dtype is float16, but add returns float32 here"),
        ({"outputs": {"out": "{output0}"}}, "unknown token {output0}"),
        ({"golden": {"load": {"out": "g"}, "dumb": {}}}, "golden.dumb is an unknown key; did you mean 'dump'?"),
        ({"golden": {"input0": "g"}}, "golden.input0 names 'input0', but the case has output0 here"),
    ],
)
def test_each_mistake_is_named(change: dict[str, Any], message: str) -> None:
    found = problems({**GOOD, **change})
    assert len(found) == 1, found
    assert message in found[0]
    assert found[0].startswith("backend_config.command")


def test_all_mistakes_at_once() -> None:
    found = problems({"command": "x", "env": 1, "retries": -1, "nonsense": 1})
    assert len(found) == 4


def test_a_case_without_a_section_or_command() -> None:
    assert "command is missing" in problems({})[0]
    assert "expected a map" in problems("bash run.sh")[0]
    assert "backend_config.ascend.command is missing" in problems({}, "ascend")[0]


def test_the_chip_token_needs_a_chip() -> None:
    assert problems({"command": ["{chip}"]}, "ascend", chip="ascend910b") == []


def test_outputs_have_to_be_known() -> None:
    (problem,) = problems(GOOD, outputs=())
    assert says(problem, "backends.the_shapes_of_the")
    assert "output0" in problem


def test_omitted_tensor_has_no_file() -> None:
    case = case_of(ADD, spec("float32", 2), outputs=(spec("float32", 2),))
    case = type(case)(
        descriptor=case.descriptor,
        inputs=case.inputs,
        outputs=case.outputs,
        backend_config={"command": {**GOOD, "inputs": {"input1": "y"}}},
    )
    assert says(read_config(case, "command")[1][0], "backends.names_input_but_the")


def test_a_case_with_mistakes_does_not_run() -> None:
    driver = BackendManager(_BUILTINS).get("command")
    with pytest.raises(Fault) as caught:
        driver.run(command_case(config={"command": "true"}), [])
    assert caught.value.reason is Reason.BAD_CASE
