"""What a first user runs into: help, plug-ins beside the plan, a plan without its flag, another backend for a plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from texts import says
from user_shell import Shell, driver_text

from optest.store import read_journal

Write = Callable[[str], Path]

SEEDS = """
backend: stub
chip: anything
seed: 7
cases:
  - {op: add, name: own, dtypes: float32, shapes: {input0: 4, input1: 4}, seed: 99}
  - {op: add, name: the plan's, dtypes: float32, shapes: {input0: 4, input1: 4}}
"""


def test_help_begins_with_what_to_run(optest: Shell) -> None:
    ended = optest("explain", "--help").expect(0)
    assert ended.out.index("What to run:") < ended.out.index("Other:")
    assert ended.out.index("Other:") < ended.out.index("Show this message and exit.")


def test_commands_are_listed_in_the_order_of_use(optest: Shell) -> None:
    lines = [line.split() for line in optest("--help").out.partition("Commands:")[2].splitlines() if line.strip()]
    names = [words[0] for words in lines][:17]
    assert names == [
        *("run", "check", "model", "list", "explain", "capture", "replay"),
        *("minimise", "report", "diff", "history", "runs", "schema", "ctest", "ffi", "doctor", "completion"),
    ]
    assert not any(words[-1].endswith("...") for words in lines)


def test_a_plan_without_its_flag(optest: Shell, plan: Write) -> None:
    plan(SEEDS)
    assert says(optest("check", "plan.yaml").err, "cli.did_you_mean_optest_run_plan")


def test_explain_shows_the_origin_of_values(optest: Shell, plan: Write) -> None:
    path = plan(SEEDS)

    def told(what: str, *arguments: object) -> list[str]:
        ended = optest("explain", *arguments, "--plan", path.name)
        return next(line.split() for line in ended.out.splitlines() if line.startswith(f"  {what} "))

    assert told("seed", "own")[1:] == ["99", "(plan.yaml:6)"]
    assert told("seed", "the plan's")[1:] == ["7", "(plan.yaml:4)"]
    assert told("seed", "own", "--seed", 3)[1:] == ["3", "(command", "line)"]
    assert told("backend", "own")[-1] == "(plan.yaml:2)"
    assert told("backend", "own", "--backend", "numpy")[-2:] == ["(command", "line)"]


def test_chip_of_plan_belongs_to_its_backend(optest: Shell, plan: Write) -> None:
    path = plan(SEEDS)
    optest("run", "--plan", path, "--backend", "numpy").expect(0, out="on numpy:cpu")
    refused = optest("run", "--plan", path, "--backend", "numpy", "--chip", "anything").expect(2)
    assert says(refused.err, "cli.unknown_chip_of_backend")


def test_wrong_chip_of_the_plan_is_refused(optest: Shell, plan: Write) -> None:
    path = plan(SEEDS.replace("stub", "ascend").replace("anything", "a100"))
    for backend in ("ascend", "npu"):
        optest("run", "--plan", path, "--backend", backend).expect(2, err="a100")


def test_replay_says_the_seed_of_its_case(optest: Shell, plan: Write) -> None:
    assert optest("run", "--plan", plan(SEEDS)).status == 0
    ended = optest("replay", "own").expect(0)
    assert "seed 99" in ended.out.splitlines()[0]


def test_a_run_is_resumed_by_its_name_alone(optest: Shell, plan: Write, tmp_path: Path) -> None:
    plan(SEEDS + "  - {op: add, name: last, dtypes: float32, shapes: {input0: 5, input1: 5}}\n")
    flags = ("--backend", "numpy", "--tolerance", "rtol=1e-3", "-k", "not last")
    assert optest("run", "--plan", "plan.yaml", *flags).status == 0
    journal = next((tmp_path / ".optest" / "runs").glob("*/journal.jsonl"))
    whole = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(whole[:2]))  # as after kill -9: the start and the first result
    assert says(optest("run", "--resume", "latest").expect(0).out, "cli.cases_of_plan_yaml")
    assert [result.id for result in read_journal(journal).results] == ["own", "the plan's"]
    assert [result.seed for result in read_journal(journal).results] == [99, 7]
    optest("run", "--resume", "latest", "-k", "last").expect(2, err="the selected cases")


def test_unknown_case_suggests_the_nearest(optest: Shell, plan: Write) -> None:
    cases = ", ".join(f"{{op: relu, name: case {n}, dtypes: int8, shapes: {{input0: {n}}}}}" for n in range(1, 31))
    plan(f"cases: [{cases}]")
    ended = optest("explain", "cose 17", "--plan", "plan.yaml").expect(2)
    assert says(ended.err, "cli.did_you_mean_case")
    assert "optest list cases" in ended.err
    assert "case 3," not in ended.err
    assert optest("run", "--plan", "plan.yaml", "-qq").status == 0
    replayed = optest("replay", "cose 17").expect(2)
    assert says(replayed.err, "cli.did_you_mean_case")
    assert "case 3," not in replayed.err


def test_a_backend_that_nobody_registered(optest: Shell, tmp_path: Path) -> None:
    unregistered, *_ = driver_text("zz", "return inputs").partition("backend_manager.register")
    (tmp_path / "forgot.py").write_text(unregistered)
    flags = ("run", "--op", "relu", "--dtype", "int8", "--shape", "input0=4", "--backend", "zz")
    assert says(optest(*flags).expect(2).err, "cli.optest_plugins_names_the")
    assert says(optest(*flags, env={"OPTEST_PLUGINS": "forgot"}).expect(2).err, "cli.optest_plugins_is_forgot")
    near = optest(*flags[:-1], "numpi")
    assert says(near.err, "cli.did_you_mean_numpy_2")
    assert "OPTEST_PLUGINS" not in near.err


def test_a_traceback_has_no_lines_that_only_underline(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(driver_text("mine", "return (np.add(*inputs), undefined_name)"))
    flags = "run --op add --dtype float32 --shape input0=4 --shape input1=4 --backend mine"
    ended = optest(*flags.split(), env={"OPTEST_PLUGINS": "mine"})
    assert "return (np.add(*inputs), undefined_name)" in ended.out
    assert "^" not in ended.out
