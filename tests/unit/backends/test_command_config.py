"""Everything that is wrong with a command's configuration is said before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handmade import ADD, case_of, command_case, command_driver, spec
from hypothesis import given
from hypothesis import strategies as st
from texts import says

from optest.backends import Fault, Reason
from optest.backends.command_config import read_config
from optest.backends.tokens import BadTemplate, expand, problems_of

GOOD: dict[str, Any] = {"command": ["bash", "run.sh", "-v", 910]}


def problems(config: Any, section: str = "command", **fields: Any) -> list[str]:
    case = command_case(section, config=config, **fields)
    return list(command_driver(section).problems(case))


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


def test_mistakes_of_a_whole_section() -> None:
    found = problems({"command": "x", "env": 1, "retries": -1, "nonsense": 1})
    assert len(found) == 4
    assert "command is missing" in problems({})[0]
    assert "expected a map" in problems("bash run.sh")[0]
    assert "backend_config.ascend.command is missing" in problems({}, "ascend")[0]
    assert problems({"command": ["{chip}"]}, "ascend", chip="ascend910b") == []
    with pytest.raises(Fault) as caught:
        command_driver().run(command_case(config={"command": "true"}), [])
    assert caught.value.reason is Reason.BAD_CASE


def test_files_need_known_tensors() -> None:
    (problem,) = problems(GOOD, outputs=())
    assert says(problem, "backends.the_shapes_of_the")
    assert "output0" in problem
    config = {"command": {**GOOD, "inputs": {"input1": "y"}}}
    case = case_of(ADD, spec("float32", 2), outputs=(spec("float32", 2),), backend_config=config)
    assert says(read_config(case, "command")[1][0], "backends.names_input_but_the")


VALUES = {"input0": "/tmp/a b.bin", "dtype": "float16", "chip": "{dtype}"}


def test_tokens_are_names_in_braces() -> None:
    assert expand("--in={input0} {dtype}", VALUES) == "--in=/tmp/a b.bin float16"
    assert expand("{{dtype}} {{{dtype}}}", VALUES) == "{dtype} {float16}"
    assert expand("awk '{{print $1}}'", VALUES) == "awk '{print $1}'"
    assert expand("{chip}", VALUES) == "{dtype}"
    assert len(problems_of("{a} {dtype} {b}", VALUES)) == 2
    assert problems_of("{dtype} {{x}}", VALUES) == []


@given(st.text())
def test_any_text_survives_doubling_its_braces(text: str) -> None:
    assert expand(text.replace("{", "{{").replace("}", "}}"), {}) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{inptu0}", "unknown token {inptu0}; did you mean {input0}?"),
        ("awk '{print $1}'", "unknown token {print $1}"),
        ("{chip.__class__}", "unknown token {chip.__class__}"),
        ("{chip!r}", "unknown token {chip!r}"),
        ("{chip:>9}", "unknown token {chip:>9}"),
        ("{chip[0]}", "unknown token {chip[0]}"),
        ("{}", "unknown token {}"),
        ("{input0", "a '{' has no '}'"),
        ("input0}", "a '}' has no '{'"),
    ],
)
def test_what_is_no_token_is_a_problem(text: str, message: str) -> None:
    (problem,) = problems_of(text, VALUES)
    assert message in problem
    with pytest.raises((BadTemplate, KeyError)):
        expand(text, VALUES)
