"""Living with many cases through the API: what failed once more, resume, shards, products, included plans."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from texts import refusal, says

from optest.api import cases, run
from optest.api.checking import check
from optest.api.listing import explain
from optest.api.replaying import replay
from optest.api.report import Report
from optest.errors import NothingSelected, PlanError, Problem, UnknownName, UsageError
from optest.operators import operators
from optest.reporting.figures import slowest
from optest.spec import Reason
from optest.store import read_journal

MIXED = """
cases:
  - {op: add, shapes: {input0: 4x5}, name: good}
  - op: add
    name: bad
    product: {m: [2, 3]}
    shapes: {input0: [$m, 5]}
    expects_error: {type: ValueError}
  - {op: add, shapes: {input0: 7x5}, name: last, priority: 1}
"""
BAD = ["bad[m=2]", "bad[m=3]"]
RELU = "{op: relu, shapes: {input0: 4}}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "plan.yaml") -> str:
    Path(name).write_text(text)
    return name


def ids(outcome: Report) -> list[str]:
    return [result.id for result in outcome.results]


def notes(outcome: Report) -> str:
    info = read_journal(outcome.directory.journal_path).info
    assert info is not None
    return "\n".join(info.notes)


def case_ids(**options: Any) -> list[str]:
    return [case.id for case in cases(**options)]


def test_cases_run_in_order_of_priority() -> None:
    assert ids(run(plan=write(MIXED))) == ["last", "good", "bad[m=2]", "bad[m=3]"]


def test_a_repro_line_runs_its_combination_alone() -> None:
    outcome = run(plan=write(MIXED))
    wrong = outcome.results[3]
    again = run(plan=wrong.repro.split()[-1])
    assert [(result.id, result.key, result.status) for result in again.results] == [(wrong.id, wrong.key, wrong.status)]


def test_a_product_is_resumed() -> None:
    path = write(MIXED)
    assert len(run(plan=path, exitfirst=True).results) == 3
    assert sorted(ids(run(resume="latest"))) == ["bad[m=2]", "bad[m=3]", "good", "last"]
    write(MIXED.replace("m: [2, 3]", "m: [2, 4]"))
    with pytest.raises(UsageError, match=r"plan has changed(.|\n)*the selected cases or their settings"):
        run(resume="latest")


def test_resume_runs_past_the_first_failure() -> None:
    case = "{op: add, product: {m: [3, 4, 5]}, shapes: {input0: [$m]}, expects_error: {type: ValueError}}"
    assert len(run(plan=write(f"cases: [{case}]"), exitfirst=True).results) == 1
    assert len(run(resume="latest").results) == 3


def test_resume_refuses_a_changed_included_plan() -> None:
    write(f"cases: [{RELU}]", "inner.yaml")
    assert run(plan=write("include: inner.yaml")).exit_status == 0
    write(f"# changed\ncases: [{RELU}]", "inner.yaml")
    with refusal(UsageError, "api.included_plan_inner_yaml"):
        run(resume="latest")


def test_rerun_failed_uses_the_earlier_options() -> None:
    path = write(MIXED)
    first = run(plan=path, seed=3)
    again = run(rerun_failed="latest")
    assert ids(again) == BAD
    assert {result.seed for result in again.results} == {3}
    assert f"re-run of failures of run {first.directory.id} on numpy:cpu: 2 cases" in notes(again)
    assert ids(run(rerun_failed=first.directory.id, plan=path, keyword="m=2")) == ["bad[m=2]"]
    write(MIXED.replace("    expects_error: {type: ValueError}\n", ""))
    assert run(rerun_failed="latest", seed=4).exit_status == 0
    with refusal(NothingSelected, "api.nothing_went_wrong_in"):
        run(rerun_failed="latest")


def test_a_rerun_can_be_resumed() -> None:
    """It names the run that it is a rerun of, so that "latest" does not come to mean itself."""
    run(plan=write(MIXED))
    assert ids(run(rerun_failed="latest", exitfirst=True)) == ["bad[m=2]"]
    assert ids(run(resume="latest")) == BAD


def test_cases_that_never_finished_did_not_fail() -> None:
    first = run(plan=write(MIXED), exitfirst=True)
    again = run(rerun_failed="latest")
    assert ids(again) == ["bad[m=2]"]
    assert f"1 case of it did not finish: --resume {first.directory.id}" in notes(again)


def test_one_result_after_another_is_replayed() -> None:
    first = run(plan=write(MIXED))
    replay(["good"], "latest", {})
    again = replay(["bad[[]m=3]"], "latest", {})
    assert ids(again) == ["bad[m=3]"]
    assert f"of run {first.directory.id}, the latest that is no replay" in notes(again)
    assert ids(replay([], "latest", {})) == ["bad[m=3]"]
    with pytest.raises(UsageError, match=f"unknown result 'good'(.|\n)*at run {again.directory.id[:8]}"):
        replay(["good"], again.directory.id, {})
    with refusal(UsageError, "api.does_not_say_with"):
        run(resume=again.directory.id)


def test_replays_and_checks_are_not_the_latest_run() -> None:
    run(plan=write(MIXED))
    replay(["good"], "latest", {})
    assert ids(run(rerun_failed="latest")) == BAD
    checked = check({"backend": "numpy", "op": ("relu",), "tier": "smoke", "isolate": "none"})
    assert ids(run(rerun_failed="latest")) == BAD
    with refusal(UsageError, "api.is_replay_or_check"):
        run(rerun_failed=checked.directory.id)
    with refusal(UsageError, "api.go_on_with_it"):
        run(resume=checked.directory.id)


def test_every_output_has_its_rule_explained() -> None:
    asked = {"op": ("sort",), "dtype": "float32", "shape": ("input=4x5",)}
    (same,) = (line for line in explain(None, asked) if line.lstrip().startswith("rule"))
    assert "elements only move" in same
    write("cases: [{op: sort, shapes: {input: 4x5}, tolerance: {values: {rtol: 0.5}}}]")
    rules = [line.split() for line in explain(None, {"plan": "plan.yaml"}) if line.lstrip().startswith("rule")]
    assert [each[0] for each in rules] == ["rule.output0", "rule.output1"]
    assert ("rtol=0.5," in rules[0], "move:" in rules[1]) == (True, True)


def test_rerun_failed_selects_the_run_by_plan() -> None:
    path = write(MIXED)
    run(plan=path)
    run(plan=write(f"cases: [{RELU}]", "other.yaml"))
    with pytest.raises(NothingSelected, match="has no failures"):
        run(rerun_failed="latest")
    assert ids(run(rerun_failed="latest", plan=path)) == BAD
    assert ids(run(rerun_failed="latest", plan=path, seed=8)) == BAD


def test_rerun_failed_finds_renamed_cases_by_key() -> None:
    run(plan=write(MIXED))
    write(MIXED.replace("name: bad", "name: worse").replace("m: [2, 3]", "m: [2, 9]"))
    again = run(rerun_failed="latest")
    assert ids(again) == ["worse[m=2]"]
    assert says(notes(again), "api.case_that_is_not")


def test_nothing_to_run_again() -> None:
    with pytest.raises(UnknownName, match="unknown run 'latest'"):
        run(rerun_failed="latest")
    first = run(plan=write(MIXED))
    other = write(f"cases: [{RELU}]", "other.yaml")
    for which, said in (("latest", "api.no_run_under_optest"), (first.directory.id, "api.cases_that_went_wrong")):
        with refusal(UsageError, said):
            run(rerun_failed=which, plan=other)


def test_failed_first() -> None:
    path = write(MIXED)
    run(plan=path)
    again = run(failed_first="latest", plan=path)
    assert ids(again) == [*BAD, "last", "good"]
    assert says(notes(again), "api.first_what_went_wrong")
    with refusal(UsageError, "api.drop_it_or_failed"):
        run(failed_first="latest", rerun_failed="latest", plan=path)


def test_shards_of_one_plan_are_all_of_it() -> None:
    path = write(MIXED)
    parts = [case_ids(plan=path, shard=f"{index}/3") for index in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(case_ids(plan=path))
    with refusal(UsageError, "api.shard_is_but_should"):
        cases(plan=path, shard="4/3")


def test_priority_max() -> None:
    assert case_ids(plan=write(MIXED), priority_max=1) == ["last"]
    assert len(case_ids(plan="plan.yaml", priority_max=100)) == 4


def test_deadline_defaults_to_the_timeout_option() -> None:
    path = write(f"cases: [{RELU}, {{op: relu, shapes: {{input0: 5}}, timeout: 7}}]")
    assert [case.timeout_s for case in cases(plan=path)] == [300.0, 7.0]
    assert [case.timeout_s for case in cases(plan=path, timeout=5.0)] == [5.0, 5.0]


def test_untrusted_plan_includes_no_file_outside() -> None:
    Path("sub").mkdir()
    write("hunter2: [", "secret.yaml")
    with pytest.raises(UsageError) as raised:
        cases(plan=write("include: ../secret.yaml", "sub/plan.yaml"), untrusted=True)
    assert "--untrusted refuses" in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_slowest_cases_and_where_their_time_went() -> None:
    results = run(plan=write(MIXED)).results
    heading, *lines = slowest(results, 2)
    assert heading == "slowest 2 of 4 cases"
    assert len(lines) == 2
    assert all("ms" in line and "(" in line for line in lines)
    assert not list(slowest(results, 0))
    assert not list(slowest([], 3))


# The backend of a plan that names none

ONE = "{op: relu, shapes: {input0: 4}, backend_config: {command: {command: ['false']}}}"
OTHER = "{op: relu, shapes: {input0: 5}, backend_config: {ascend: {command: ['false']}}}"
BOTH = "{op: relu, shapes: {input0: 6}, backend_config: {command: {command: ['true']}, ascend: {command: ['true']}}}"


def test_the_one_configured_backend_runs() -> None:
    outcome = run(plan=write(f"cases: [{ONE}]"))
    assert [(result.target, result.reason) for result in outcome.results] == [("command", Reason.EXIT_CODE)]
    assert "command" in notes(outcome)
    found = cases(op=("relu",), shape=("input0=4",), attr=('backend_config.command.command=["true"]',))
    assert [case.backend.name for case in found] == ["command"]


@pytest.mark.parametrize("text", [f"cases: [{ONE}, {OTHER}]", f"cases: [{BOTH}]"])
def test_several_configured_backends_need_a_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"plan\.yaml:1"):
        run(plan=write(text))


@pytest.mark.parametrize("name", ["command", "ascend"])
def test_a_matrix_over_backends_runs_each_by_name(name: str) -> None:
    outcome = run(plan=write(f"cases: [{BOTH}]"), backend=name)
    assert [result.target for result in outcome.results] == [name]
    assert "not used" not in notes(outcome)


def test_unused_backend_options_are_noted() -> None:
    outcome = run(plan=write(f"{{backend: numpy, cases: [{ONE}, {BOTH}]}}"))
    assert says(notes(outcome), "api.backend_config_command_is")
    assert says(notes(outcome), "api.backend_config_ascend_is")


# Import paths that lead nowhere


@pytest.mark.parametrize("path", ["no_such_module:f", "optest.spec:no_such_name", "optest.spec:__name__", "raises:f"])
@pytest.mark.parametrize("key", ["reference", "generator"])
def test_wrong_import_path_prevents_the_run(path: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write("1 / 0", "raises.py")
    monkeypatch.syspath_prepend(".")
    plan = write(
        f'cases:\n- {{op: relu, shapes: {{input0: 4}}}}\n- {{op: relu, shapes: {{input0: 5}}, {key}: "{path}"}}'
    )
    with pytest.raises(PlanError) as raised:
        run(plan=plan)
    (problem,) = raised.value.problems
    assert (problem.line, problem.path) == (3, f"$.cases[1].{key}")
    with pytest.raises(PlanError):
        run(op=("relu",), shape=("input0=4",), **{key: path})


def test_untrusted_plan_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    write("from pathlib import Path; Path('imported').touch()", "touches.py")
    monkeypatch.syspath_prepend(".")
    with pytest.raises(PlanError):
        run(plan=write('cases: [{op: relu, shapes: {input0: 5}, reference: "touches:f"}]'), untrusted=True)
    assert not Path("imported").exists()


# What an untrusted plan may write and delete, with a command of the command line

COPY = ("backend_config.command.command=[cp, input/input0.bin, output/output0.bin]",)


def untrusted(options: str, top: str = "", attr: tuple[str, ...] = COPY) -> Report:
    """A run of a plan in the folder ``own``, beside which a file ``victim`` lies."""
    Path("own").mkdir(exist_ok=True)
    Path("victim").write_text("precious")
    config = f"backend_config: {{command: {{{options}}}}}"
    case = f"op: relu, dtypes: uint8, shapes: {{input0: 4}}, generator: ones, {config}"
    plan = write(f"{{backend: command, {top} cases: [{{{case}}}]}}", "own/plan.yaml")
    return run(plan=plan, untrusted=True, attr=attr)


def everything_outside() -> list[str]:
    return sorted(str(each) for each in Path().rglob("*") if not {"own", ".optest"} & set(each.parts))


def test_an_untrusted_plan_runs_in_its_own_folder() -> None:
    assert untrusted("golden: {dump: {output0: g.bin}}").exit_status == 0
    assert Path("own/g.bin.key").is_file()


@pytest.mark.parametrize("link", [None, "link", "input", "output"])
@pytest.mark.parametrize(
    ("options", "top"),
    [
        ("inputs: {input0: %s}", ""),
        ("outputs: {output0: %s}", ""),
        ("golden: {load: {output0: %s}}", ""),
        ("golden: {dump: {output0: %s}}", ""),
        ("workdir: ..", ""),
        ("", "base_dir: .., "),
    ],
)
def test_an_untrusted_plan_reaches_nothing_else(options: str, top: str, link: str | None, tmp_path: Path) -> None:
    Path("own").mkdir()
    if link is not None:
        Path("own", link).symlink_to("..")
    name = str(tmp_path / "victim") if link is None else f"{link}/victim"
    with pytest.raises(PlanError):
        untrusted(options % name if "%" in options else options, top)
    assert everything_outside() == ["victim"]
    assert Path("victim").read_text() == "precious"


def test_link_next_to_golden_file_is_not_followed() -> None:
    Path("own").mkdir()
    Path("own/g.bin.key").symlink_to("../victim")
    outcome = untrusted("golden: {dump: {output0: g.bin}}")
    assert outcome.exit_status == 1
    assert Path("victim").read_text() == "precious"


def test_link_created_during_the_run_is_not_followed() -> None:
    """The first case's command makes it; the second case's output lies behind it."""
    Path("own").mkdir()
    Path("victim").write_text("precious")
    plan = """
backend: command
cases:
- {op: relu, shapes: {input0: 4}, name: first, backend_config: {command: {outputs: {output0: a.bin}}}}
- {op: relu, shapes: {input0: 5}, name: second, backend_config: {command: {outputs: {output0: later/victim}}}}
"""
    attr = ("backend_config.command.command=[ln, -s, .., later]",)
    outcome = run(plan=write(plan, "own/plan.yaml"), untrusted=True, attr=attr)
    assert [result.reason for result in outcome.results] == [Reason.MISSING_OUTPUT, Reason.BAD_CASE]
    assert Path("victim").read_text() == "precious"


def test_paths_of_the_command_line_are_trusted(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    assert untrusted("", attr=(*COPY, f"backend_config.command.workdir={kept}")).exit_status == 0
    assert (kept / "output/output0.bin").is_file()
    into = "backend_config.command.command=[cp, input/input0.bin, ../kept/o]"
    assert untrusted("", attr=(into, f"backend_config.command.outputs.output0={kept / 'o'}")).exit_status == 0


@pytest.mark.parametrize("key", ["headers", "library", "mapping"])
def test_an_untrusted_plan_says_nothing_about_c(key: str) -> None:
    text = f"{{backend: ffi, cases: [{{op: relu, shapes: {{input0: 4}}, backend_config: {{ffi: {{{key}: x}}}}}}]}}"
    with refusal(PlanError, "api.untrusted_refuses_what_the"):
        cases(plan=write(text), untrusted=True)


# The report that a plan asks for


@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize("path", ["victim.txt", "plan.yaml", "folder"])
def test_a_plans_report_overwrites_no_other_file(path: str, is_trusted: bool) -> None:
    Path("folder").mkdir()
    for victim in ("victim.txt", "folder/report.json"):
        write("precious", victim)
    plan = write(f"{{report: {{format: json, path: {path}}}, cases: [{RELU}]}}")
    before = Path(plan).read_text()
    with pytest.raises(UsageError):
        run(plan=plan, untrusted=not is_trusted)
    assert Path("victim.txt").read_text() == Path("folder/report.json").read_text() == "precious"
    assert Path(plan).read_text() == before


@pytest.mark.parametrize("form", ["json", "junit", "markdown", "github"])
def test_a_plans_report_overwrites_its_own(form: str) -> None:
    text = "{report: {format: %s, path: r.txt}, cases: [{op: relu, shapes: {input0: 4}, expects_error: {}}]}"
    for _ in range(2):
        assert run(plan=write(text % form), untrusted=True).exit_status == 1
        assert Path("r.txt").stat().st_size


def test_untrusted_report_follows_no_link() -> None:
    Path("own/folder").mkdir(parents=True)
    Path("own/folder/report.json").symlink_to("../../elsewhere.json")
    with pytest.raises(UsageError):
        run(plan=write(f"{{report: {{format: json, path: folder}}, cases: [{RELU}]}}", "own/plan.yaml"), untrusted=True)
    assert not Path("elsewhere.json").exists()


def test_what_is_known_of_an_included_file() -> None:
    write("cases: [{op: relu, name: a hangs, shapes: {input0: 4}}, {op: add, shapes: {input0: 4}}]", "a.yaml")
    write("cases: [{op: relu, name: b hangs, shapes: {input0: 5}}]", "b.yaml")
    hangs = 'version: 1\nexpected:\n  - {case: "* hangs", skip: true, why: issue 7}\n'
    known = write(hangs, "known.yaml")
    plan = write("include: [b.yaml, {file: a.yaml, expectations: known.yaml}]")
    outcome = run(plan=plan)
    assert [result.status.value for result in outcome.results] == ["passed", "skipped", "passed"]
    assert (outcome.exit_status, outcome.unused_expectations) == (0, ())
    outcome = run(plan=write("include: [b.yaml, a.yaml]"), expectations=(known,))
    assert [result.status.value for result in outcome.results] == ["skipped", "skipped", "passed"]
    write(f"{hangs}  - {{op: add, dtype: float32, reason: VALUE, why: was so}}\n", known)
    outcome = run(plan=plan, expectations=(known,))
    assert (outcome.exit_status, len(outcome.unused_expectations)) == (1, 1)
    assert run(plan=plan, expectations=(known,), keyword="add").exit_status == 0
    with pytest.raises(PlanError, match="nowhere"):
        run(plan=write("include: [{file: a.yaml, expectations: nowhere.yaml}]"))


def test_the_shapes_of_an_example_are_taken() -> None:
    def problems_of(**options: Any) -> list[Problem]:
        try:
            cases(**options)
        except PlanError as error:
            return [each for each in error.problems if each.path == "--shape"]
        return []

    with_example = []
    for name in operators.names():
        if shapes := re.findall(r"input\d+=\S+", "".join(each.hint for each in problems_of(op=(name,)))):
            with_example.append(name)
            assert not problems_of(op=(name,), shape=tuple(shapes)), name
    assert len(with_example) > 100
