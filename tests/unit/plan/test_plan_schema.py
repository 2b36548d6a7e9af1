"""The schema of a plan: each problem with file, line, path, value, expected value and nearest key."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from plan_kit import plan, write
from texts import refusal, says_exactly

from optest.errors import PlanError, nearest
from optest.plan import plan_schema, read_plan
from optest.plan.problems import all_at_once
from optest.plan.values import GeneratorChoice, Layout, ToleranceChoice
from optest.spec import ExpectedError, Fill, Skip, Status, Tolerance, Xfail, dtype


def problems(text: str) -> list[tuple[int, str, str, str]]:
    found = all_at_once(plan(text).problems)
    assert found
    assert all(problem.file == "plan.yaml" for problem in found)
    return [(each.line, each.path, each.message, each.hint) for each in found]


def problem(text: str) -> tuple[int, str, str, str]:
    found = problems(text)
    assert len(found) == 1, found
    return found[0]


def test_a_full_plan() -> None:
    document = plan(
        """\
        version: 1
        name: everything
        description: all keys
        backend: ascend
        chip: ascend910b
        seed: 7
        fail_fast: true
        report: {format: json, path: out.json, color: false}
        defaults:
          dtypes: float16
          tolerance: {rel: 1e-3}
          backend_config: {ascend: {workdir: x}}
          generator: {fill: uniform, low: 0, high: 1}
          timeout: 2.5
          retries: 1
          tags: [slow]
          seed: 3
          reference: a.b:c
          attributes: {alpha: 2}
        cases:
          - op: add
            name: first
            description: one
            tags: [x]
            dtypes: {input0: half, output0: fp32}
            shapes: {input0: [2, 3], input1: 2x3, out: {shape: 2X3, strides: [3, 1], offset: 4}}
            attributes: {alpha: null}
            generator: {input0: ones, input1: {fill: data, values: [1, 2]}}
            reference: m:f
            tolerance: {rtol: 1e-3, absolute: 0, mismatch_ratio: 1e-3}
            seed: 0
            timeout: 30
            retries: 0
            priority: 5
            skip: later
            xfail: {reason: bug, status: error}
            expects_error: {type: ValueError, match: size}
          - {op: relu, shapes: {input0: []}, generator: my.gen:Gen, skip: {reason: r}, xfail: known, dtypes: "f16, i8"}
        """
    )
    first, second = document.cases
    assert document.options() == {"backend": "ascend", "chip": "ascend910b", "seed": 7, "fail_fast": True}
    assert document.report == {"format": "json", "path": "out.json", "color": False}
    assert document.defaults["tolerance"] == ToleranceChoice(every=Tolerance(rtol=1e-3))
    uniform = Fill(kind="uniform", parameters={"low": 0, "high": 1})
    assert document.defaults["generator"] == GeneratorChoice(every=uniform)
    assert first["dtypes"] == {"input0": dtype("float16"), "output0": dtype("float32")}
    small = Layout((2, 3))
    assert first["shapes"] == {"input0": small, "input1": small, "out": Layout((2, 3), (3, 1), 4)}
    assert first["attributes"] == {"alpha": None}
    data = Fill(kind="data", parameters={"values": [1, 2]})
    assert first["generator"].by_tensor == {"input0": Fill(kind="ones"), "input1": data}
    assert first["tolerance"].every == Tolerance(rtol=1e-3, atol=0, mismatch_ratio=1e-3)
    assert first["xfail"] == Xfail(reason="bug", status=Status.ERROR)
    assert first["expects_error"] == ExpectedError(type="ValueError", match="size")
    assert (second["shapes"], second["generator"].path) == ({"input0": Layout(())}, "my.gen:Gen")
    assert (second["skip"], second["xfail"]) == (Skip(reason="r"), Xfail(reason="known"))
    assert second["dtypes"] == (dtype("float16"), dtype("int8"))
    assert document.where(("cases", 1)) == "plan.yaml:38"


NO_PATTERN = "pattern of expects_error is no regular expression: missing ), unterminated subpattern at position 0"


@pytest.mark.parametrize(
    ("line", "path", "message"),
    [
        ("name: 12", "name", "name is 12, expected text"),
        ("name: null", "name", "name is null, expected text"),
        ("name: ''", "name", "name is '', expected a word"),
        ("name: '  '", "name", "name is '  ', expected a word"),
        ('name: "a\\nb"', "name", "name is 'a\\nb', expected text without control characters"),
        ("tags: [a, true]", "tags[1]", "item 1 is true, expected text"),
        ("seed: 1.5", "seed", "seed is 1.5, expected an integer"),
        ("seed: true", "seed", "seed is true, expected an integer"),
        ("seed: -1", "seed", "seed is -1, expected at least 0"),
        ("seed: 18446744073709551616", "seed", "seed is 18446744073709551616, expected less than 1844674407"),
        ("timeout: 0", "timeout", "timeout is 0, expected more than 0"),
        ("timeout: 30s", "timeout", "timeout is '30s', expected a number"),
        ("timeout: .inf", "timeout", "timeout is inf, expected a finite number"),
        ("priority: -1", "priority", "priority is -1, expected at least 0"),
        ("priority: high", "priority", "priority is 'high', expected an integer"),
        ("retries: many", "retries", "retries is 'many', expected an integer"),
        ("dtypes: []", "dtypes", "dtypes is [], expected one dtype for all inputs or one for each"),
        ("dtypes: 16", "dtypes", "dtypes is 16, expected a dtype, a list of dtypes, or a mapping"),
        ("dtypes: [16]", "dtypes[0]", "dtype is 16, expected the name of a dtype such as float16"),
        ("dtypes: {input0: fp31}", "dtypes.input0", "unknown dtype 'fp31'"),
        ("shapes: {input0: [2.0]}", "shapes.input0[0]", "size 0 of the shape is 2.0, expected an integer of 0"),
        ("shapes: {input0: [true]}", "shapes.input0[0]", "size 0 of the shape is true, expected an integer"),
        ("shapes: {input0: 2by3}", "shapes.input0", "shape is '2by3', expected sizes such as 2x3x4"),
        ("shapes: {input0: 1.5}", "shapes.input0", "shape is 1.5, expected a list of sizes"),
        ("shapes: {input0: null}", "shapes.input0", "shape is null, expected a list of sizes"),
        ("shapes: {input0: {shape: 2x3, stride: 1}}", "shapes.input0.stride", "unknown key 'stride' of a shape"),
        ("shapes: {input0: {strides: [1]}}", "shapes.input0", "shape is {strides: [1]}, expected a mapping with"),
        ("shapes: {input0: {shape: [a]}}", "shapes.input0.shape[0]", "size 0 of the shape is 'a', expected"),
        ("shapes: {input0: {shape: {a: 1}}}", "shapes.input0.shape", "shape is {a: 1}, expected a list of sizes"),
        ("shapes: {input0: {shape: [2], strides: 1}}", "shapes.input0.strides", "strides is 1, expected a list"),
        ("shapes: {input0: {shape: [2], offset: -1}}", "shapes.input0.offset", "offset is -1, expected an int"),
        ("backend_config: {ascend: 3}", "backend_config.ascend", "ascend is 3, expected a mapping"),
        ("generator: {}", "generator", "generator is {}, expected a fill, package.module:name"),
        ("generator: 3", "generator", "generator is 3, expected a fill, package.module:name"),
        ("generator: {input0: 3}", "generator.input0", "fill is 3, expected the name of a fill or"),
        ("generator: {input0: a.b:c}", "generator.input0", "fill is 'a.b:c', expected the name of a fill"),
        ("generator: {fill: a.b:c}", "generator.fill", "fill is 'a.b:c', expected the name of a fill"),
        ("generator: {input0: {low: 3}}", "generator.input0", "fill is {low: 3}, expected the name of a fill or"),
        ("tolerance: {}", "tolerance", "tolerance is {}, expected a mapping with rtol"),
        ("tolerance: {rell: 3}", "tolerance.rell", "unknown key 'rell' of tolerance"),
        ("tolerance: {rtol: a}", "tolerance.rtol", "rtol is 'a', expected a number of 0 or more"),
        ("tolerance: {rtol: true}", "tolerance.rtol", "rtol is true, expected a number of 0 or more"),
        ("tolerance: {rtol: -1}", "tolerance.rtol", "rtol is -1, "),
        ("tolerance: {rtol: .nan}", "tolerance.rtol", "rtol is nan, "),
        ("tolerance: {rtol: 1, rel: 2}", "tolerance", "tolerance rtol is set twice, also as rel"),
        ("tolerance: {ratio: 1}", "tolerance.ratio", "mismatch_ratio is 1, "),
        ("skip: true", "skip", "reason of skip is true, expected a sentence with the reason"),
        ("skip: {why: x}", "skip.why", "unknown key 'why' of skip"),
        ("xfail: {status: failed}", "xfail.reason", "reason of xfail is null, expected a sentence"),
        ("xfail: {reason: a, status: passed}", "xfail.status", "status is 'passed', expected one of failed,"),
        ("xfail: {reason: a, status: [1]}", "xfail.status", "status is [1], expected one of failed,"),
        ("expects_error: ValueError", "expects_error", "expects_error is 'ValueError', expected a mapping"),
        ("expects_error: {typ: a}", "expects_error.typ", "unknown key 'typ' of expects_error"),
        ("expects_error: {pattern: '(a'}", "expects_error.pattern", NO_PATTERN),
        ("expects_error: {match: 3}", "expects_error.match", "match of expects_error is 3, expected a word"),
        ("reference: 3", "reference", "reference is 3, expected text"),
        ("op: yes", "op", "op is yes, and YAML 1.1 reads it as a boolean"),
    ],
)
def test_wrong_values_of_a_case(line: str, path: str, message: str) -> None:
    op = "" if line.startswith("op:") else "    op: add\n"
    text = f"cases:\n  - description: here\n{op}    {line}\n"
    found_line, found_path, found_message, _ = problem(text)
    assert (found_line, found_path) == (text.count("\n"), f"$.cases[0].{path}")
    assert found_message.startswith(message)


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("version: 2", "$.version", "version is 2, expected 1"),
        ("version: '1'", "$.version", "version is '1', expected 1"),
        ("version: true", "$.version", "version is true, expected 1"),
        ("fail_fast: 1", "$.fail_fast", "fail_fast is 1, expected true or false"),
        ("backend: [numpy]", "$.backend", "backend is ['numpy'], expected text"),
        ("report: {format: 7}", "$.report.format", "format is 7, expected text"),
        ("report: {file: x}", "$.report.file", "unknown key 'file' of report"),
        ("report: json", "$.report", "report is 'json', expected a mapping"),
        ("defaults: []", "$.defaults", "defaults is [], expected a mapping"),
        ("defaults: {op: add}", "$.defaults.op", "unknown key 'op' of defaults"),
        ("default: {seed: 3}", "$.default", "unknown key 'default' of the plan"),
    ],
)
def test_wrong_values_at_the_top(text: str, path: str, message: str) -> None:
    line, found_path, found_message, _ = problem(f"cases: []\n{text}\n")
    assert (line, found_path, found_message) == (2, path, message)


def test_only_traps_are_an_error_too() -> None:
    message = "the key name is set twice, first in line 1"
    assert problem("name: a\nname: b\ncases: []\n")[:3] == (2, "$.name", message)


def test_hundreds_of_problems_are_cut() -> None:
    text = "cases:\n" + "".join(f"  - {{op: add, sed{n}: 1}}\n" for n in range(500))
    found = problems(text)
    assert len(found) == 201
    assert found[-1][2] == "and 300 more problems"


def test_the_schema_says_what_the_model_says() -> None:
    schema = plan_schema()
    json.dumps(schema)
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["anyOf"] == [{"required": ["cases"]}, {"required": ["include"]}]
    case = schema["$defs"]["CaseEntry"]
    assert (schema["title"], case["required"]) == ("optest plan", ["op"])
    assert schema["additionalProperties"] is case["additionalProperties"] is False
    for definition in (schema, case, schema["$defs"]["Defaults"], schema["$defs"]["ReportOptions"]):
        for name, field in definition["properties"].items():
            assert field.get("description"), name
            assert field.get("title") or "$ref" in field or "allOf" in field, name


def test_the_schema_and_the_reader_agree_on_keys() -> None:
    for name in plan_schema()["$defs"]["CaseEntry"]["properties"]:
        wrong = name + "x"
        hint = problems(f"cases: [{{op: add, {wrong}: 1}}]")[0][3]
        near = nearest(wrong, plan_schema()["$defs"]["CaseEntry"]["properties"])
        assert says_exactly(hint, "plan.did_you_mean", near=near)


def test_reading_files(tmp_path: Path) -> None:
    path = write(tmp_path, "cases: [{op: add}]")
    document = read_plan(path)
    assert document.path == str(path)
    assert document.folder() == str(tmp_path)
    with refusal(PlanError, "plan.cannot_be_read_no"):
        read_plan(tmp_path / "none.yaml")
    with refusal(PlanError, "plan.is_folder_but_should"):
        read_plan(tmp_path)


def test_base_dir_is_relative_to_the_plan(tmp_path: Path) -> None:
    path = write(tmp_path, "base_dir: ../data\ncases: []")
    assert read_plan(path).folder() == str(tmp_path.parent / "data")
    path = write(tmp_path, "base_dir: /somewhere\ncases: []")
    assert read_plan(path).folder() == "/somewhere"
