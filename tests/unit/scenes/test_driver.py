"""What the driver of scenes makes of a run: verdicts, checks of memory, dumps and profiles."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import numpy as np
import pytest
import toy_runtime
from texts import refusal, says, says_exactly

from optest.api.running import Report, run
from optest.errors import UsageError
from optest.reporting.failure_groups import failure_groups
from optest.scenes import cases
from optest.scenes.artifacts import flatten_perf_subdirs
from optest.spec import CheckState, Reason, Status
from optest.store import read_journal

_SCENE = """
import numpy as np
from optest.scenes import ArgDirection as D
from optest.scenes import Scalar, SceneTestCase, TaskArgsBuilder, Tensor, scene_test


def kernel(args, options, worker):
{kernel}


@scene_test(level={level}, runtime="toy", platforms=["cpusim"])
class TestToy(SceneTestCase):
    CALLABLE = {{"function": kernel{signature}}}
    CASES = [{{"name": "default", "params": {{"size": 64}}}}]
{attributes}

    def generate_args(self, params):
        return TaskArgsBuilder(
            Tensor("x", np.random.standard_normal(params["size"]).astype({dtype})),
            Tensor("y", np.zeros(params["size"], {dtype})),
            Scalar("factor", 2),
        )

    def compute_golden(self, args, params):
{golden}
"""
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
_RIGHT = "args.y[:] = args.x * args.factor"


def asked(
    folder: Path,
    kernel: str = _RIGHT,
    *,
    golden: str = _RIGHT,
    signature: str = "[D.IN, D.OUT]",
    attributes: str = "",
    dtype: str = "np.float32",
    level: int = 2,
    **options: Any,
) -> Report:
    text = _SCENE.format(
        kernel=indent(dedent(kernel), "    "),
        golden=indent(golden, "        "),
        signature=f', "signature": {signature}' if signature else "",
        attributes=indent(attributes, "    "),
        dtype=dtype,
        level=level,
    )
    file = folder / "test_toy.py"
    file.write_text(text)
    forget()
    return run({"source": [f"scene:{file}"], "isolate": "none", "quiet": 2, **options})


def forget() -> None:
    """Read files of scenes again, which are others now."""
    cases.tests_in.cache_clear()
    for name in ("test_toy", "test_other", "test_exit", "factory", "common"):
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is rewritten in the same second is read again
    return tmp_path


def test_a_right_kernel_passes(folder: Path) -> None:
    outcome = asked(folder)
    (result,) = outcome.results
    assert (result.id, result.status, outcome.exit_status) == ("TestToy[cpusim]::default", Status.PASSED, 0)
    states = {check.name: check.state for check in result.verdict.checks}
    assert states["guard zones"] is CheckState.DONE
    assert states["outputs written"] is CheckState.DONE


def test_race_shows_in_a_further_call(folder: Path) -> None:
    (result,) = asked(folder, "import os; args.y[:] = np.frombuffer(os.urandom(64), np.uint8)").results
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
        (f"{_RIGHT}; args.x[7] = 0", Reason.INPUT_MUTATED),
        (f"{_RIGHT}; np.lib.stride_tricks.as_strided(args.y, (65,), (4,))[64] = 1", Reason.OUT_OF_BOUNDS),
        (f"{_RIGHT}; np.lib.stride_tricks.as_strided(args.x, (65,), (4,))[64] = 1", Reason.OUT_OF_BOUNDS),
        ("raise RuntimeError('device is busy')", Reason.RAISED),
    ],
)
def test_wrong_kernels(folder: Path, kernel: str, reason: Reason) -> None:
    (result,) = asked(folder, kernel).results
    assert result.verdict.reason is reason
    assert says(result.repro, "scenes.optest_run_source_scene")


def test_the_output_is_named(folder: Path) -> None:
    (result,) = asked(folder, "args.y[:] = args.x").results
    assert [measure.output for measure in result.verdict.measures] == ["y"]


@pytest.mark.parametrize(
    ("golden", "text"),
    [
        ("pass", "a kernel that does nothing would pass"),
        ("args.y = args.x[:3]", "compute_golden set y to"),
        ("raise KeyError('size')", "compute_golden raised KeyError"),
    ],
)
def test_wrong_goldens(folder: Path, golden: str, text: str) -> None:
    (result,) = asked(folder, golden=golden).results
    assert result.verdict.reason is Reason.REFERENCE_FAILED
    assert text in result.verdict.message


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        ("[D.IN]", "the signature has 1 entries, but generate_args returns 2 tensors"),
        ("[D.IN, D.OUT, D.OUT, D.OUT]", "the signature has 4 entries"),
        ("[D.IN, D.IN]", "no output"),
    ],
)
def test_wrong_signatures(folder: Path, signature: str, text: str) -> None:
    (result,) = asked(folder, signature=signature).results
    assert result.verdict.reason is Reason.BAD_CASE
    assert text in result.verdict.message


def test_without_a_signature_every_tensor_is_compared(folder: Path) -> None:
    assert asked(folder, signature="").results[0].status is Status.PASSED
    (result,) = asked(folder, f"{_RIGHT}; args.x[7] = 0", signature="").results
    assert result.verdict.reason is Reason.VALUE


def test_a_stated_tolerance_decides(folder: Path) -> None:
    off = "args.y[:] = args.x * 2 * np.float32(1 + 3e-4)"
    assert asked(folder, off, attributes="RTOL = 1e-3\nATOL = 0.0").results[0].status is Status.PASSED
    assert asked(folder, off, attributes="RTOL = 1e-4\nATOL = 0.0").results[0].verdict.reason is Reason.VALUE


@pytest.mark.parametrize("attributes", ["RTOL = 1.0", "RTOL = 1e-3\nATOL = 100.0"])
@pytest.mark.parametrize("kernel", [_RIGHT, f"{_RIGHT}; args.y += 0.5 * args.y"])
def test_tolerance_that_accepts_zeros_is_suspect(folder: Path, attributes: str, kernel: str) -> None:
    outcome = asked(folder, kernel, attributes=attributes)
    (result,) = outcome.results
    assert (result.status, outcome.exit_status) == (Status.SUSPECT, 1)
    assert says(result.verdict.message, "scenes.the_tolerance_is_so")
    assert result.verdict.measures[0].rule.layer == "case"


def test_integers_are_exact_whatever_is_stated(folder: Path) -> None:
    (result,) = asked(folder, f"{_RIGHT}; args.y[3] += 1", dtype="np.int32", attributes="RTOL = ATOL = 5").results
    assert result.verdict.reason is Reason.VALUE


@pytest.mark.parametrize("where", ["option", "class"])
def test_skip_golden_is_unchecked(folder: Path, where: str) -> None:
    how = {"skip_golden": True} if where == "option" else {"attributes": "SKIP_GOLDEN = True"}
    outcome = asked(folder, "pass", golden="raise AssertionError", **how)
    assert [each.status for each in outcome.results] == [Status.UNCHECKED]
    assert outcome.exit_status == 0
    notes = [each for each in read_journal(outcome.directory.journal_path).info.notes if "golden" in each.lower()]
    said = "not compared, since the file sets SKIP_GOLDEN, and not passed: TestToy[cpusim]::default"
    assert notes == ([said] if where == "class" else [])


def test_outputs_are_reset_between_rounds(folder: Path) -> None:
    outcome = asked(folder, "args.y += args.x * args.factor", rounds=3)
    assert [each.status for each in outcome.results] == [Status.PASSED] * 3
    assert Path("toy.log").read_text().count("open") == 1


def test_arguments_are_the_same_in_every_run(folder: Path) -> None:
    keep = "np.save(f'seen{len(__import__(\"os\").listdir())}.npy', args.x)"
    asked(folder, f"{_RIGHT}; {keep}")
    asked(folder, f"{_RIGHT}; {keep}")
    one, other = (np.load(each) for each in sorted(folder.glob("seen*.npy")))
    assert (one == other).all()


def test_variables_are_set_while_it_runs(folder: Path) -> None:
    kernel = f"""
        import os
        assert os.environ["MODEL_DIR"] == os.path.join(os.getcwd(), "weights")
        assert os.environ["FAST"] == "1"
        {_RIGHT}
    """
    attributes = 'RUNTIME_ENV = {"MODEL_DIR": "weights", "FAST": "1"}'
    assert asked(folder, kernel, attributes=attributes).results[0].status is Status.PASSED


def test_profiles_of_the_first_round_alone(folder: Path) -> None:
    kernel = f"""
        from optest.scenes.runtimes import Span
        import os, pathlib
        if options.recording.profiles:
            options.recording.span(Span(name="task", device=0, row=1, began_s=2.0, ended_s=2.5))
            pathlib.Path(os.environ["TOY_PROFILES"], "own.json").write_text("1")
        {_RIGHT}
    """
    asked(folder, kernel, rounds=2, enable_profiling=True)
    (file,) = Path("outputs").glob("perf_swimlane_*_TestToy_default.json")
    event = json.loads(file.read_text())["traceEvents"][-1]
    assert (event["name"], event["ts"], event["dur"]) == ("task", 2e6, 5e5)
    assert sorted(each.name for each in Path("outputs").iterdir()) == ["own.json", file.name]
    (index,) = Path(".optest/runs").glob("*/outputs.json")
    assert {Path(each).name for each in json.loads(index.read_text())} == {"own.json", file.name}


def test_dumps_of_every_round(folder: Path) -> None:
    pytest.importorskip("safetensors")
    from safetensors.numpy import load_file

    kernel = f"""
        if options.recording.dumps:
            options.recording.tensor("task 0", "before", 0, args.x)
        {_RIGHT}
    """
    asked(folder, kernel, rounds=2, dump_tensor=True)
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


def test_profiles_of_two_cases_keep_both(folder: Path) -> None:
    """The runtime names its file after the second."""
    kernel = f"""
        import os, pathlib
        pathlib.Path(os.environ["TOY_PROFILES"], "perf_swimlane_1.json").write_text(str(args.x.size))
        {_RIGHT}
    """
    cases = 'CASES = [{"name": f"n{n}", "params": {"size": n}} for n in (3, 5)]'
    asked(folder, kernel, attributes=cases, enable_profiling=True)
    assert sorted(each.read_text() for each in Path("outputs").glob("*.json")) == ["3", "5"]


@pytest.mark.parametrize(
    ("golden", "has_note"), [("args.y[:] = 7", True), ("args.y[:] = 7; args.y[3] = 8", False), (_RIGHT, False)]
)
def test_an_output_of_one_value_is_noted(folder: Path, golden: str, has_note: bool) -> None:
    (result,) = asked(folder, golden, golden=golden).results
    assert result.status is Status.PASSED
    notes = [each.detail for each in result.verdict.checks if "is the same in" in each.detail]
    assert bool(notes) is has_note
    assert not notes or notes[0].endswith("in y")


def test_runtime_without_a_name_is_checked_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the one in docs/how-to/scene-runtime.md: its name is the one that it is registered under."""
    monkeypatch.delattr(toy_runtime.ToyRuntime, "name")
    (result,) = asked(folder).results
    checks = [(each.name, each.state) for each in result.verdict.checks if each.state is not CheckState.NOTE]
    names = ["guard zones", "inputs unchanged", "outputs written"]
    assert sorted(checks) == [(name, CheckState.DONE) for name in names]


def test_a_runtime_that_copies_has_no_guard_zones(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy_runtime.ToyRuntime, "copies", True)
    (result,) = asked(folder).results
    checks = [(each.name, each.state) for each in result.verdict.checks]
    for name in ("guard zones", "inputs unchanged"):
        assert [state for each, state in checks if each == name] == [CheckState.NOT_POSSIBLE]


@pytest.mark.parametrize(
    "wrong", ["import nothing_here", "raise SystemExit", _HELPER.replace("__test__ = False", "CASES = []")]
)
def test_a_wrong_file_leaves_the_others(folder: Path, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked(folder)
    (folder / "test_helper.py").write_text(_HELPER)
    (folder / "test_wrong.py").write_text(f"{wrong}  # scene_test\n")
    outcome = run({"source": ["scene:."], "isolate": "none", "quiet": 2})
    assert [(each.id, each.status) for each in outcome.results] == [("TestToy[cpusim]::default", Status.PASSED)]
    assert outcome.exit_status == 2
    assert "test_wrong.py: " in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"test_wrong\.py: "):
        run({"source": ["scene:test_wrong.py"], "isolate": "none", "quiet": 2})


def test_tests_for_pytest_are_noted(folder: Path) -> None:
    asked(folder)
    file = folder / "test_toy.py"
    file.write_text(f"{file.read_text()}\n{_BY_HAND}")
    forget()
    outcome = run({"source": ["scene:test_toy.py"], "isolate": "none", "quiet": 2})
    note = read_journal(outcome.directory.journal_path).info.notes[0]
    assert says_exactly(note, "scenes.not_run_here_but")
    assert outcome.exit_status == 0


def test_each_file_names_its_tests_for_pytest(folder: Path) -> None:
    asked(folder)
    for name in ("test_helper.py", "test_other.py"):
        (folder / name).write_text(f"{_HELPER}\ndef test_of_{name[5:-3]}(): ...\n")
    outcome = run({"source": ["scene:."], "isolate": "none", "quiet": 2})
    note = read_journal(outcome.directory.journal_path).info.notes[0]
    assert note.endswith("test_of_helper (test_helper.py), test_of_other (test_other.py)")


def test_a_file_of_tests_for_pytest_only(folder: Path) -> None:
    (folder / "test_helper.py").write_text(f"{_HELPER}\ndef test_of_helper(): ...\n")
    with pytest.raises(UsageError, match=r"no scene is declared in .*; pytest runs test_of_helper \(test_helper\.py\)"):
        run({"source": ["scene:test_helper.py"], "isolate": "none", "quiet": 2})


def test_installed_packages_below_the_folder_stay(folder: Path) -> None:
    """An environment in the folder of the scenes: a package like torch cannot be imported twice."""
    (folder / "env").mkdir()
    (folder / "env" / "installed_here.py").write_text("LOADED = []\n")
    asked(folder)
    file = folder / "test_toy.py"
    file.write_text(f"import sys; sys.path.append('env'); import installed_here\n{file.read_text()}")
    forget()
    cases.tests_in(file)
    assert "installed_here" in sys.modules
    del sys.modules["installed_here"]
    sys.path.remove("env")


def test_wrong_values_of_two_files_are_two_blocks(folder: Path) -> None:
    kernels = {"one": "args.y[:] = args.x", "two": f"{_RIGHT}; args.y[3] += 1"}
    for name, kernel in kernels.items():
        (folder / name).mkdir()
        asked(folder / name, kernel)
    outcome = run({"source": ["scene:one,two"], "isolate": "none", "quiet": 2})
    groups = failure_groups(outcome.results)
    assert [group.others for group in groups] == [(), ()]
    assert {group.first.where for group in groups} == {"one/test_toy.py", "two/test_toy.py"}


def test_two_files_with_a_class_of_one_name(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir()
        asked(folder / name)
    outcome = run({"source": ["scene:one,two"], "isolate": "none", "quiet": 2, "case": ["TestToy::default"]})
    assert [each.id for each in outcome.results] == [
        f"{name}/test_toy.py::TestToy[cpusim]::default" for name in ("one", "two")
    ]
    assert outcome.exit_status == 0


@pytest.mark.parametrize(
    ("golden", "text"),
    [("args.y[:] = -args.y", "leaves y as"), ("args.y[:] = args.x * 0", "leaves y as")],
)
def test_zeros_of_either_sign_are_what_was_there(folder: Path, golden: str, text: str) -> None:
    (result,) = asked(folder, "pass", golden=golden).results
    assert text in result.verdict.message


def test_tensors_over_one_memory_are_refused(folder: Path) -> None:
    asked(folder)
    text = Path("test_toy.py").read_text()
    Path("test_toy.py").write_text(
        text.replace('Tensor("y", np.zeros(params["size"], np.float32))', 'Tensor("y", x)').replace(
            'Tensor("x", np.random.standard_normal(params["size"]).astype(np.float32))',
            'Tensor("x", x := np.zeros(params["size"], np.float32))',
        )
    )
    forget()
    (result,) = run({"source": ["scene:test_toy.py"], "isolate": "none", "quiet": 2}).results
    assert says_exactly(result.verdict.message, "scenes.tensors_and_share_memory")


def test_parameters_are_a_copy(folder: Path) -> None:
    asked(folder)
    text = Path("test_toy.py").read_text()
    Path("test_toy.py").write_text(
        text.replace("        return TaskArgs", "        params['size'] += 1\n        return TaskArgs")
    )
    forget()
    outcome = run({"source": ["scene:test_toy.py"], "isolate": "none", "quiet": 2, "rounds": 2})
    assert [each.verdict.measures[0].shape for each in outcome.results] == [(65,), (65,)]


@pytest.mark.parametrize("code", ["raise SystemExit(0)", "import os; os._exit(0)"])
def test_a_file_that_exits_is_no_success(folder: Path, code: str) -> None:
    (folder / "test_exit.py").write_text(code)
    with refusal(UsageError, "scenes.test_exit_py_it"):
        run({"source": ["scene:test_exit.py"], "isolate": "none", "quiet": 2})


def test_neighbours_of_the_own_folder(folder: Path) -> None:
    """Two folders have a module `common`, each with another golden."""
    for name, addend in (("one", 1), ("two", 100)):
        (folder / name).mkdir()
        asked(folder / name, "args.y[:] = args.x + 1", golden="args.y[:] = args.x + ADDEND")
        file = folder / name / "test_toy.py"
        file.write_text(f"from common import ADDEND\n{file.read_text()}")
        (folder / name / "common.py").write_text(f"ADDEND = {addend}")
    forget()
    outcome = run({"source": ["scene:one,two"], "isolate": "none", "quiet": 2})
    assert [each.status for each in outcome.results] == [Status.PASSED, Status.FAILED]


def test_scene_declared_in_helper_is_an_error(folder: Path) -> None:
    asked(folder)
    (folder / "test_toy.py").rename(folder / "factory.py")
    (folder / "test_other.py").write_text("from factory import TestToy\n")
    with pytest.raises(UsageError, match=r"is declared in .*factory\.py; declare it in test_other\.py"):
        run({"source": ["scene:test_other.py"], "isolate": "none", "quiet": 2})


def test_resume_refuses_where_a_header_changed(folder: Path) -> None:
    (folder / "scale.h").write_text("1")
    asked(folder)
    (folder / "scale.h").write_text("2")
    with pytest.raises(UsageError, match=r"scale\.h"):
        run({"source": ["scene:test_toy.py"], "isolate": "none", "quiet": 2, "resume": "latest"})


def test_zeros_that_a_kernel_leaves_are_not_written(folder: Path) -> None:
    """relu that writes positive elements alone, over zeros; one that writes the zeros, too, and one that adds to it."""
    golden = "args.y[:] = np.maximum(args.x, 0)"
    (result,) = asked(folder, "np.copyto(args.y, args.x, where=args.x > 0)", golden=golden).results
    assert result.verdict.reason is Reason.UNWRITTEN
    assert says(result.verdict.message, "scenes.elements_of_output_were")
    for kernel in (golden, "args.y[:] = 0; args.y += np.maximum(args.x, 0)"):
        assert asked(folder, kernel, golden=golden).results[0].status is Status.PASSED
    inout = "[D.IN, D.INOUT]"
    (result,) = asked(folder, "np.copyto(args.y, args.x, where=args.x > 0)", golden=golden, signature=inout).results
    assert result.status is Status.PASSED


def test_a_file_of_any_name_that_is_named(folder: Path) -> None:
    asked(folder)
    (folder / "test_toy.py").rename(folder / "vector_scene.py")
    outcome = run({"source": ["scene:vector_scene.py"], "isolate": "none", "quiet": 2})
    assert [each.status for each in outcome.results] == [Status.PASSED]


@pytest.mark.parametrize("then", ["", "; raise RuntimeError('no such tile')"])
def test_source_edited_during_run_is_no_result(folder: Path, then: str) -> None:
    """What ran is not what the case's identity speaks of, so that neither a pass nor a failure is its result."""
    (folder / "add.inc").write_text("1")
    signature = '[D.IN, D.OUT], "source": "add.inc"'
    edit = "__import__('pathlib').Path('add.inc').write_text('2')"
    (result,) = asked(folder, f"{_RIGHT}; {edit}{then}", signature=signature).results
    assert result.verdict.reason is Reason.BAD_CASE
    assert says(result.verdict.message, "scenes.test_toy_py_or")
    (result,) = asked(folder, signature=signature).results
    assert result.status is Status.PASSED


def test_a_comma_of_a_path_divides_nothing(folder: Path) -> None:
    for name in ("one,two", "three"):
        (folder / name).mkdir()
        asked(folder / name)
    outcome = run({"source": ["scene:one,two/test_toy.py, three"], "isolate": "none", "quiet": 2})
    assert [each.id.partition("::")[0] for each in outcome.results] == ["one,two/test_toy.py", "three/test_toy.py"]
    assert outcome.exit_status == 0
