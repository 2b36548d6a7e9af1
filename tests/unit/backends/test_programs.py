"""Programs in `optest check`: which cases are theirs, what the tokens say, and what is wrong with a config."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from texts import refusal

from optest.api import check
from optest.api.checking import check_request
from optest.backends.command_config import case_tokens, why_outside
from optest.errors import NothingSelected, OptestError
from optest.spec import BAD_STATUSES, Reason, TestCase

PROGRAM = """\
import sys
import numpy as np

op, *words = sys.argv[1:]
if op == "neg":
    (-np.fromfile(words[0], np.float32)).tofile(words[1])
else:
    rows, columns, dim = map(int, words[2:])
    x = np.fromfile(words[0], np.float32).reshape(rows, columns)
    if x.size:
        x = np.exp(x - x.max(axis=dim, keepdims=True))
        x /= x.sum(axis=-1, keepdims=True)  # the dimension is forgotten
    x.tofile(words[1])
"""


def config(folder: Path, **operators: Any) -> str:
    python = [sys.executable, "kernels.py"]
    (folder / "kernels.py").write_text(PROGRAM)
    known = {
        "neg": {"command": [*python, "neg", "{input0}", "{output0}"], "promises": {"dtypes": "float32"}},
        "softmax": {
            "command": [*python, "softmax", "{input0}", "{output0}", "{shape0[0]}", "{shape0[1]}", "{attr:dim}"],
            "promises": {"dtypes": ["float32"], "ranks": [2]},
        },
    }
    chosen = operators or known
    stated = {name: {**known.get(name, {}), **(more or {})} for name, more in chosen.items()}
    (folder / "kernels.yaml").write_text(yaml.safe_dump({"command": {"operators": stated}}))
    return str(folder / "kernels.yaml")


def cases(file: str, **options: Any) -> list[TestCase]:
    return check_request({"backend": "command", "config": file, **options}).run.cases


def test_cases_unsuitable_for_command_are_skipped(tmp_path: Path) -> None:
    found = cases(config(tmp_path))
    inside = [case for case in found if why_outside(case, "command") is None]
    assert {case.descriptor.name for case in found} == {"neg", "softmax"}
    assert {case.inputs[0].spec.rank for case in inside if case.descriptor.name == "softmax"} == {2}
    assert {case.attributes["dim"] for case in inside if case.descriptor.name == "softmax"} >= {0, 1}
    assert all(case.inputs[0].spec.is_dense and case.expects_error is None for case in inside)
    reasons = " ".join(why_outside(case, "command") or "" for case in found)
    for words in ("it takes float32", "it takes no input of 1 dimensions", "it takes dense tensors"):
        assert words in reasons
    case = cases(config(tmp_path), op=("neg",))[0]
    section = {key: value for key, value in case.backend_config["command"].items() if key != "promises"}
    object.__setattr__(case, "backend_config", {"command": section})
    assert why_outside(case, "command") is None


def test_tokens_of_a_case_decide_whether_it_runs(tmp_path: Path) -> None:
    found = cases(config(tmp_path, softmax={"promises": {}}), op=("softmax",))
    vectors = [why_outside(case, "command") for case in found if case.inputs[0].spec.rank == 1]
    assert any("the command takes {shape0[1]}" in (each or "") for each in vectors)
    assert None not in vectors
    case = next(case for case in cases(config(tmp_path), op=("softmax",)) if case.inputs[0].spec.shape == (33, 5))
    tokens = case_tokens(case)
    assert {name: tokens[name] for name in ("shape0[0]", "shape0[1]", "numel0", "rank0", "attr:dim")} == {
        "shape0[0]": "33",
        "shape0[1]": "5",
        "numel0": "165",
        "rank0": "2",
        "attr:dim": str(case.attributes["dim"]),
    }


def test_an_attribute_without_a_token_has_its_default(tmp_path: Path) -> None:
    command = [sys.executable, "kernels.py", "softmax", "{input0}", "{output0}"]
    found = cases(config(tmp_path, softmax={"command": command}))
    inside = [case for case in found if why_outside(case, "command") is None]
    assert all(case.attributes.get("dim", -1) in (-1, len(case.inputs[0].spec.shape) - 1) for case in inside)
    assert any("takes no {attr:dim}" in (why_outside(case, "command") or "") for case in found)
    ignoring = {"dtypes": ["float32"], "ignores": ["dim"]}
    found = cases(config(tmp_path, softmax={"command": command, "promises": ignoring}))
    assert any(case.attributes.get("dim", -1) == 0 for case in found if why_outside(case, "command") is None)


@pytest.mark.slow
def test_wrong_program_fails_and_right_passes(tmp_path: Path) -> None:
    outcome = check(
        backend="command",
        config=config(tmp_path),
        keyword="set:ordinary or set:sizes",
        case=("neg/ordinary/*", "softmax/ordinary/*"),
        runs_dir=str(tmp_path / "runs"),
        quiet=3,
    )
    bad = {(each.operator, each.verdict.reason) for each in outcome.results if each.status in BAD_STATUSES}
    assert bad == {("softmax", Reason.VALUE)}
    assert outcome.exit_status == 1
    assert sum(each.operator == "neg" and each.status.value == "passed" for each in outcome.results) >= 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nag": {"command": ["x"]}}, "did you mean neg?"),
        (
            {"neg": {"promises": {"dtypes": ["float33"]}}},
            "kernels.yaml:11 $.command.operators.neg.promises.dtypes: promises.dtypes has 'float33'; did you mean",
        ),
        ({"neg": {"promises": {"refuses": "no"}}}, "expected true or false"),
        ({"neg": {"promises": {"rank": [2]}}}, "did you mean 'ranks'?"),
        ({"neg": {"promises": {"ranks": ["2"]}}}, "expected a list of int"),
        ({"neg": {"command": "run.sh"}}, "expected a list"),
        ({"neg": {"command": ["./neg", "{attr:dims}"]}}, "unknown token {attr:dims}"),
    ],
)
def test_a_wrong_config_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(OptestError) as caught:
        cases(config(tmp_path, **changes))
    assert said in str(caught.value)


def test_operator_missing_from_config_is_unsupported(tmp_path: Path) -> None:
    with refusal(NothingSelected, "backends.relu_is_not_in"):
        cases(config(tmp_path), op=("relu",))
    with pytest.raises(OptestError, match="--backend command --config kernels"):
        check_request({"backend": "command"})
    with refusal(OptestError, "backends.config_is_not_for"):
        check_request({"backend": "numpy", "config": config(tmp_path)})
    with pytest.raises(OptestError, match="not for ascend"):
        check_request({"backend": "ascend", "config": config(tmp_path)})


def test_optional_inputs_are_those_that_the_command_names(tmp_path: Path) -> None:
    """Whether as files or as tokens; a case without one that is named is a gap, and no error that ends the check."""
    command = ["bash", "run.sh", "{shape0}", "{attr:eps}", "{attr:normalized_shape}"]
    both = [{"tensor": "input0", "path": "x.bin"}, {"tensor": "weight", "path": "w.bin"}]

    def asked(**section: Any) -> set[tuple[str, ...]]:
        file = config(tmp_path, rms_norm={"command": command, "promises": {"dtypes": ["float32"]}, **section})
        found = [case for case in cases(file, op=("rms_norm",)) if why_outside(case, "command") is None]
        return {tuple(argument.name for argument in case.inputs) for case in found}

    assert asked(inputs=both) == {("input", "weight")}
    assert asked(inputs=both[:1]) == {("input",)}
    assert asked(command=[*command, "{input0}"]) == {("input",)}
    assert asked() == {("input",), ("input", "weight")}
