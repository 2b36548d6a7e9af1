"""What the driver of scenes makes of a run: verdicts, checks of memory, dumps and profiles."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_runtime
from scene_kit import RIGHT, scene_text
from texts import says, says_exactly

from optest.api.running import Report, run
from optest.errors import UsageError
from optest.reporting.failure_groups import failure_groups
from optest.scenes import cases
from optest.scenes.artifacts import flatten_perf_subdirs
from optest.spec import CheckState, Reason, Status
from optest.store import read_journal

_HELPER = """
from optest.scenes import SceneTestCase, scene_test

@scene_test(level=2, runtime="toy")
class _Helper(SceneTestCase):
    __test__ = False
"""
_BY_HAND = """
def test_by_hand(): ...

class TestMore:
    def test_more(self): ...

class TestOptions:
    size = 4

class TestLeftOut(TestMore):
    __test__ = False

def _test_helper(): ...
"""
_OFF = "args.y[:] = args.x * 2 * np.float32(1 + 3e-4)"
_RELU = "args.y[:] = np.maximum(args.x, 0)"
_POSITIVE = "np.copyto(args.y, args.x, where=args.x > 0)"


def run_scenes(source: str, **options: Any) -> Report:
    """Run scenes in this process, their files read anew."""
    cases.tests_in.cache_clear()
    for name in ("test_toy", "test_other", "factory", "common"):
        sys.modules.pop(name, None)
    return run({"source": [f"scene:{source}"], "isolate": "none", "quiet": 2, **options})


def run_toy(
    kernel: str = RIGHT,
    *,
    folder: str = "",
    golden: str = RIGHT,
    signature: str = "[D.IN, D.OUT]",
    attributes: str = "",
    dtype: str = "np.float32",
    edit: Callable[[str], str] = str,
    **options: Any,
) -> Report:
    """Write a scene of one case to ``folder``, change its text by ``edit`` and run it."""
    file = Path.cwd() / folder / "test_toy.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(edit(scene_text(kernel, golden, signature, attributes, dtype)))
    return run_scenes(str(file), **options)


def notes_of(report: Report) -> Sequence[str]:
    return read_journal(report.directory.journal_path).info.notes


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is rewritten in the same second is read again
    return tmp_path


def test_a_right_kernel_passes() -> None:
    outcome = run_toy()
    (result,) = outcome.results
    assert (result.id, result.status, outcome.exit_status) == ("TestToy[cpusim]::default", Status.PASSED, 0)


def test_race_shows_in_a_further_call() -> None:
    (result,) = run_toy("import os; args.y[:] = np.frombuffer(os.urandom(64), np.uint8)").results
    assert result.verdict.reason is Reason.VALUE
    (sentence,) = result.verdict.details["diagnosis"]
    assert says(sentence, "scenes.of_elements_of_differ")


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("args.y[:-1] = args.x[:-1] * args.factor", Reason.UNWRITTEN),
        ("args.y[:] = args.x * 2 * np.float32(1 + 3e-5)", Reason.VALUE),
        ("args.y[:] = np.nan", Reason.NAN),
        ("pass", Reason.UNWRITTEN),
        ("np.copyto(args.y, args.x * args.factor, where=args.x > 0)", Reason.UNWRITTEN),
        (f"{RIGHT}; args.x[7] = 0", Reason.INPUT_MUTATED),
        (f"{RIGHT}; np.lib.stride_tricks.as_strided(args.y, (65,), (4,))[64] = 1", Reason.OUT_OF_BOUNDS),
        (f"{RIGHT}; np.lib.stride_tricks.as_strided(args.x, (65,), (4,))[64] = 1", Reason.OUT_OF_BOUNDS),
        ("raise RuntimeError('device is busy')", Reason.RAISED),
    ],
)
def test_wrong_kernels(kernel: str, reason: Reason) -> None:
    (result,) = run_toy(kernel).results
    assert result.verdict.reason is reason
    assert says(result.repro, "scenes.optest_run_source_scene")
    assert reason is not Reason.VALUE or [measure.output for measure in result.verdict.measures] == ["y"]


@pytest.mark.parametrize(
    ("changes", "reason", "text"),
    [
        ({"golden": "pass"}, Reason.REFERENCE_FAILED, "a kernel that does nothing would pass"),
        ({"golden": "args.y = args.x[:3]"}, Reason.REFERENCE_FAILED, "compute_golden set y to"),
        ({"golden": "raise KeyError('size')"}, Reason.REFERENCE_FAILED, "compute_golden raised KeyError"),
        ({"golden": "args.y[:] = -args.y", "kernel": "pass"}, Reason.REFERENCE_FAILED, "leaves y as"),
        ({"golden": "args.y[:] = args.x * 0", "kernel": "pass"}, Reason.REFERENCE_FAILED, "leaves y as"),
        ({"signature": "[D.IN]"}, Reason.BAD_CASE, "has 1 entries, but generate_args returns 2 tensors"),
        ({"signature": "[D.IN, D.OUT, D.OUT, D.OUT]"}, Reason.BAD_CASE, "the signature has 4 entries"),
        ({"signature": "[D.IN, D.IN]"}, Reason.BAD_CASE, "no output"),
        ({"signature": ""}, None, ""),
        ({"signature": "", "kernel": f"{RIGHT}; args.x[7] = 0"}, Reason.VALUE, ""),
        ({"kernel": _OFF, "attributes": "RTOL = 1e-3\nATOL = 0.0"}, None, ""),
        ({"kernel": _OFF, "attributes": "RTOL = 1e-4\nATOL = 0.0"}, Reason.VALUE, ""),
        (
            {"kernel": f"{RIGHT}; args.y[3] += 1", "dtype": "np.int32", "attributes": "RTOL = ATOL = 5"},
            Reason.VALUE,
            "",
        ),
        ({"golden": _RELU, "kernel": _POSITIVE}, Reason.UNWRITTEN, "elements of output y were never written"),
        ({"golden": _RELU, "kernel": _POSITIVE, "signature": "[D.IN, D.INOUT]"}, None, ""),
        ({"golden": _RELU, "kernel": _RELU}, None, ""),
        ({"golden": _RELU, "kernel": "args.y[:] = 0; args.y += np.maximum(args.x, 0)"}, None, ""),
    ],
)
def test_declarations_decide_the_verdict(changes: dict[str, str], reason: Reason | None, text: str) -> None:
    (result,) = run_toy(**changes).results
    assert (result.verdict.reason, result.status is Status.PASSED) == (reason, reason is None)
    assert text in result.verdict.message


@pytest.mark.parametrize("attributes", ["RTOL = 1.0", "RTOL = 1e-3\nATOL = 100.0"])
@pytest.mark.parametrize("kernel", [RIGHT, f"{RIGHT}; args.y += 0.5 * args.y"])
def test_tolerance_that_accepts_zeros_is_suspect(attributes: str, kernel: str) -> None:
    outcome = run_toy(kernel, attributes=attributes)
    (result,) = outcome.results
    assert (result.status, outcome.exit_status) == (Status.SUSPECT, 1)
    assert says(result.verdict.message, "scenes.the_tolerance_is_so")
    assert result.verdict.measures[0].rule.layer == "case"


@pytest.mark.parametrize("where", ["option", "class"])
def test_skip_golden_is_unchecked(where: str) -> None:
    how = {"skip_golden": True} if where == "option" else {"attributes": "SKIP_GOLDEN = True"}
    outcome = run_toy("pass", golden="raise AssertionError", **how)
    assert [each.status for each in outcome.results] == [Status.UNCHECKED]
    assert outcome.exit_status == 0
    notes = [each for each in notes_of(outcome) if "golden" in each.lower()]
    said = "not compared, since the file sets SKIP_GOLDEN, and not passed: TestToy[cpusim]::default"
    assert notes == ([said] if where == "class" else [])


def test_outputs_are_reset_between_rounds() -> None:
    outcome = run_toy("args.y += args.x * args.factor", rounds=3)
    assert [each.status for each in outcome.results] == [Status.PASSED] * 3
    assert Path("toy.log").read_text().count("open") == 1


def test_arguments_are_the_same_in_every_run(folder: Path) -> None:
    keep = "np.save(f'seen{len(__import__(\"os\").listdir())}.npy', args.x)"
    run_toy(f"{RIGHT}; {keep}")
    run_toy(f"{RIGHT}; {keep}")
    one, other = (np.load(each) for each in sorted(folder.glob("seen*.npy")))
    assert (one == other).all()


def test_variables_are_set_while_it_runs() -> None:
    kernel = f"""
        import os
        assert os.environ["MODEL_DIR"] == os.path.join(os.getcwd(), "weights")
        assert os.environ["FAST"] == "1"
        {RIGHT}
    """
    attributes = 'RUNTIME_ENV = {"MODEL_DIR": "weights", "FAST": "1"}'
    assert run_toy(kernel, attributes=attributes).results[0].status is Status.PASSED


def test_profiles_of_the_first_round_alone() -> None:
    kernel = f"""
        from optest.scenes.runtimes import Span
        import os, pathlib
        if options.recording.profiles:
            options.recording.span(Span(name="task", device=0, row=1, began_s=2.0, ended_s=2.5))
            pathlib.Path(os.environ["TOY_PROFILES"], "own.json").write_text("1")
        {RIGHT}
    """
    run_toy(kernel, rounds=2, enable_profiling=True)
    (file,) = Path("outputs").glob("perf_swimlane_*_TestToy_default.json")
    event = json.loads(file.read_text())["traceEvents"][-1]
    assert (event["name"], event["ts"], event["dur"]) == ("task", 2e6, 5e5)
    assert sorted(each.name for each in Path("outputs").iterdir()) == ["own.json", file.name]
    (index,) = Path(".optest/runs").glob("*/outputs.json")
    assert {Path(each).name for each in json.loads(index.read_text())} == {"own.json", file.name}


def test_dumps_of_every_round() -> None:
    pytest.importorskip("safetensors")
    from safetensors.numpy import load_file

    kernel = f"""
        if options.recording.dumps:
            options.recording.tensor("task 0", "before", 0, args.x)
        {RIGHT}
    """
    run_toy(kernel, rounds=2, dump_tensor=True)
    files = list(Path("outputs").glob("tensor_dump_*.safetensors"))
    assert len(files) == 2
    assert load_file(files[0])["task 0/before/0"].shape == (64,)


def test_flatten_overwrites_nothing(folder: Path) -> None:
    for _ in range(2):
        for tag in ("gw0", "gw1"):
            place = folder / "outputs" / f"perf_{tag}"
            place.mkdir(parents=True)
            (place / "perf_swimlane_1.json").write_text(tag)
        flatten_perf_subdirs(folder / "outputs")
    names = sorted(each.name for each in (folder / "outputs").iterdir())
    assert names == [
        "perf_swimlane_1.json",
        "perf_swimlane_1__gw0.json",
        "perf_swimlane_1__gw1.json",
        "perf_swimlane_1__gw12.json",
    ]
    assert flatten_perf_subdirs(folder / "nothing") == []


def test_profiles_of_two_cases_keep_both() -> None:
    """The runtime names its file after the second."""
    kernel = f"""
        import os, pathlib
        pathlib.Path(os.environ["TOY_PROFILES"], "perf_swimlane_1.json").write_text(str(args.x.size))
        {RIGHT}
    """
    cases = 'CASES = [{"name": f"n{n}", "params": {"size": n}} for n in (3, 5)]'
    run_toy(kernel, attributes=cases, enable_profiling=True)
    assert sorted(each.read_text() for each in Path("outputs").glob("*.json")) == ["3", "5"]


@pytest.mark.parametrize(
    ("golden", "has_note"), [("args.y[:] = 7", True), ("args.y[:] = 7; args.y[3] = 8", False), (RIGHT, False)]
)
def test_an_output_of_one_value_is_noted(golden: str, has_note: bool) -> None:
    (result,) = run_toy(golden, golden=golden).results
    assert result.status is Status.PASSED
    notes = [each.detail for each in result.verdict.checks if "is the same in" in each.detail]
    assert bool(notes) is has_note
    assert not notes or notes[0].endswith("in y")


@pytest.mark.parametrize("has_name", [False, True])
@pytest.mark.parametrize("copies", [False, True])
def test_checks_are_those_of_the_runtime(monkeypatch: pytest.MonkeyPatch, has_name: bool, copies: bool) -> None:
    """One without a name is that of docs/how-to/scene-runtime.md; one that copies has no memory to guard."""
    monkeypatch.setattr(toy_runtime.ToyRuntime, "copies", copies)
    if not has_name:
        monkeypatch.delattr(toy_runtime.ToyRuntime, "name")
    (result,) = run_toy().results
    checks = [(each.name, each.state) for each in result.verdict.checks if each.state is not CheckState.NOTE]
    guarded = CheckState.NOT_POSSIBLE if copies else CheckState.DONE
    states = [("guard zones", guarded), ("inputs unchanged", guarded), ("outputs written", CheckState.DONE)]
    assert sorted(checks) == states


@pytest.mark.parametrize(
    "wrong", ["import nothing_here", "raise SystemExit", _HELPER.replace("__test__ = False", "CASES = []")]
)
def test_a_wrong_file_leaves_the_others(folder: Path, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_toy()
    (folder / "test_helper.py").write_text(_HELPER)
    (folder / "test_wrong.py").write_text(f"{wrong}  # scene_test\n")
    outcome = run_scenes(".")
    assert [(each.id, each.status) for each in outcome.results] == [("TestToy[cpusim]::default", Status.PASSED)]
    assert outcome.exit_status == 2
    assert "test_wrong.py: " in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"test_wrong\.py: "):
        run_scenes("test_wrong.py")


def test_tests_for_pytest_are_noted() -> None:
    outcome = run_toy(edit=lambda text: f"{text}\n{_BY_HAND}")
    assert says_exactly(notes_of(outcome)[0], "scenes.not_run_here_but")
    assert outcome.exit_status == 0


def test_each_file_names_its_tests_for_pytest(folder: Path) -> None:
    run_toy()
    for name in ("test_helper.py", "test_other.py"):
        (folder / name).write_text(f"{_HELPER}\ndef test_of_{name[5:-3]}(): ...\n")
    note = notes_of(run_scenes("."))[0]
    assert note.endswith("test_of_helper (test_helper.py), test_of_other (test_other.py)")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{_HELPER}\ndef test_of_other(): ...\n",
            r"no scene is declared in .*; pytest runs test_of_other \(test_other\.py\)",
        ),
        ("raise SystemExit(0)", r"test_other\.py: it cannot be imported"),
        ("import os; os._exit(0)", r"test_other\.py: it cannot be imported"),
        ("from factory import TestToy\n", r"is declared in .*factory\.py; declare it in test_other\.py"),
    ],
    ids=["only-pytest", "raises-exit", "exits", "declared-in-helper"],
)
def test_file_without_scene_is_an_error(folder: Path, text: str, message: str) -> None:
    run_toy()
    (folder / "test_toy.py").rename(folder / "factory.py")
    (folder / "test_other.py").write_text(text)
    with pytest.raises(UsageError, match=message):
        run_scenes("test_other.py")


def test_installed_packages_below_the_folder_stay(folder: Path) -> None:
    """An environment in the folder of the scenes: a package like torch cannot be imported twice."""
    (folder / "env").mkdir()
    (folder / "env" / "installed_here.py").write_text("LOADED = []\n")
    run_toy(edit=lambda text: f"import sys; sys.path.append('env'); import installed_here\n{text}")
    assert "installed_here" in sys.modules
    del sys.modules["installed_here"]
    sys.path.remove("env")


def test_wrong_values_of_two_files_are_two_blocks() -> None:
    for name, kernel in (("one", "args.y[:] = args.x"), ("two", f"{RIGHT}; args.y[3] += 1")):
        run_toy(kernel, folder=name)
    groups = failure_groups(run_scenes("one,two").results)
    assert [group.others for group in groups] == [(), ()]
    assert {group.first.where for group in groups} == {"one/test_toy.py", "two/test_toy.py"}


@pytest.mark.parametrize(
    ("folders", "source", "options"),
    [
        (("one", "two"), "one,two", {"case": ["TestToy::default"]}),
        (("one,two", "three"), "one,two/test_toy.py, three", {}),
    ],
    ids=["class-of-one-name", "comma-of-a-path"],
)
def test_two_files_have_ids_with_their_paths(folders: tuple[str, ...], source: str, options: dict[str, Any]) -> None:
    for name in folders:
        run_toy(folder=name)
    outcome = run_scenes(source, **options)
    assert [each.id for each in outcome.results] == [
        f"{each}/test_toy.py::TestToy[cpusim]::default" for each in folders
    ]
    assert outcome.exit_status == 0


def test_tensors_over_one_memory_are_refused() -> None:
    zeros = 'np.zeros(params["size"], np.float32)'
    drawn = 'np.random.standard_normal(params["size"]).astype(np.float32)'
    (result,) = run_toy(edit=lambda text: text.replace(zeros, "x").replace(drawn, f"x := {zeros}")).results
    assert says_exactly(result.verdict.message, "scenes.tensors_and_share_memory")


def test_parameters_are_a_copy() -> None:
    line = "        return TaskArgs"
    outcome = run_toy(edit=lambda text: text.replace(line, f"        params['size'] += 1\n{line}"), rounds=2)
    assert [each.verdict.measures[0].shape for each in outcome.results] == [(65,), (65,)]


def test_neighbours_of_the_own_folder(folder: Path) -> None:
    """Two folders have a module `common`, each with another golden."""
    for name, addend in (("one", 1), ("two", 100)):
        (folder / name).mkdir()
        (folder / name / "common.py").write_text(f"ADDEND = {addend}")
        golden = "args.y[:] = args.x + ADDEND"
        run_toy("args.y[:] = args.x + 1", folder=name, golden=golden, edit="from common import ADDEND\n{}".format)
    assert [each.status for each in run_scenes("one,two").results] == [Status.PASSED, Status.FAILED]


def test_resume_refuses_where_a_header_changed(folder: Path) -> None:
    (folder / "scale.h").write_text("1")
    run_toy()
    (folder / "scale.h").write_text("2")
    with pytest.raises(UsageError, match=r"scale\.h"):
        run_scenes("test_toy.py", resume="latest")


def test_a_file_of_any_name_that_is_named(folder: Path) -> None:
    run_toy()
    (folder / "test_toy.py").rename(folder / "vector_scene.py")
    assert [each.status for each in run_scenes("vector_scene.py").results] == [Status.PASSED]


@pytest.mark.parametrize("then", ["", "; raise RuntimeError('no such tile')"])
def test_source_edited_during_run_is_no_result(folder: Path, then: str) -> None:
    """What ran is not what the case's identity speaks of, so that neither a pass nor a failure is its result."""
    (folder / "add.inc").write_text("1")
    signature = '[D.IN, D.OUT], "source": "add.inc"'
    edit = "__import__('pathlib').Path('add.inc').write_text('2')"
    (result,) = run_toy(f"{RIGHT}; {edit}{then}", signature=signature).results
    assert result.verdict.reason is Reason.BAD_CASE
    assert says(result.verdict.message, "scenes.test_toy_py_or")
    (result,) = run_toy(signature=signature).results
    assert result.status is Status.PASSED
