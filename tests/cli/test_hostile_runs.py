"""Runs that something works against: what a backend does to the process, the run's folder or another run's journal."""

from __future__ import annotations

import fcntl
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from texts import says
from user_shell import Ended, Shell, driver_text, user_environment

Write = Callable[[str], Path]

PLUGIN = {"OPTEST_PLUGINS": "faulty_backend"}


def two(fault: str, second: str = "zeros") -> str:
    return f"""
backend: faulty
cases:
  - {{op: add, dtypes: float32, shapes: {{input0: 4x5, input1: 4x5}}, name: first,
     backend_config: {{faulty: {{fault: {fault}}}}}}}
  - {{op: add, dtypes: float32, shapes: {{input0: 6x5, input1: 6x5}}, name: second,
     backend_config: {{faulty: {{fault: {second}}}}}}}
"""


@pytest.mark.parametrize(
    ("fault", "second", "isolate", "told"),
    [
        *(("fork", "zeros", each, "1 passed, 1 failed") for each in ("worker", "case", "none")),
        ("exit 0", "none", "none", "1 passed, 1 crashed"),
        *(("exits 0 in the end", "zeros", each, "2 failed") for each in ("worker", "none")),
        *(("changes directory", "none", each, "1 passed, 1 failed") for each in ("worker", "none")),
        ("kills its guard", "none", "auto", "1 passed, 1 crashed"),
    ],
)
def test_hostile_backend_fails_only_its_cases(
    optest: Shell, plan: Write, tmp_path: Path, fault: str, second: str, isolate: str, told: str
) -> None:
    words = ("run", "--plan", plan(two(fault, second)), "--isolate", isolate, "--report-path", "report.json")
    out = optest(*words, env=PLUGIN).expect(1, out=told).out
    assert (out.count(told), "1 STATE" in out) == (1, fault == "changes directory")
    assert (tmp_path / "report.json").exists()


@pytest.mark.parametrize("isolate", ["worker", "none"])
def test_deleted_journal_fails_the_run(optest: Shell, plan: Write, isolate: str) -> None:
    ended = optest("run", "--plan", plan(two("removes the run", "none")), "--isolate", isolate, env=PLUGIN).expect(3)
    assert says(ended.err, "cli.deleted_while_the_run")


@pytest.mark.heavy
def test_locked_run_is_not_resumed(optest: Shell, plan: Write, tmp_path: Path) -> None:
    path = plan(two("none", "none"))
    assert optest("run", "--plan", path, env=PLUGIN).status == 0
    (folder,) = (tmp_path / ".optest" / "runs").glob("*-*")
    before = {each: each.stat().st_mtime_ns for each in folder.rglob("*") if each.is_file()}
    journal = os.open(folder / "journal.jsonl", os.O_RDWR)
    try:
        fcntl.flock(journal, fcntl.LOCK_EX)
        ended = optest("run", "--plan", path, "--resume", "latest", env=PLUGIN)
    finally:
        os.close(journal)
    assert ended.status == 2, ended.text
    assert "another process" in ended.err
    assert {each: each.stat().st_mtime_ns for each in folder.rglob("*") if each.is_file()} == before


RESUMED = """
backend: mine
cases:
  - {op: relu, dtypes: float32, shapes: {input0: 4x5}, name: first, reference: "truth:relu", generator: "source:draw"}
  - {op: relu, dtypes: float32, shapes: {input0: 6x5}, name: second}
"""
FILES = {
    "mine.py": driver_text("mine", "return [kernels.relu(inputs[0])]", "import kernels"),
    "kernels.py": "import parts.inside\n\n\ndef relu(x):\n    return x * (x > 0)\n",
    "parts/inside.py": "",
    "truth.py": "def relu(inputs, attributes):\n    return [inputs[0] * (inputs[0] > 0)]\n",
    "source.py": "def draw(case, rng):\n    return [rng.random(case.inputs[0].spec.shape, 'f4')], None\n",
}


@pytest.mark.parametrize(
    "edited",
    [
        "mine.py",
        None,
        *(pytest.param(each, marks=pytest.mark.heavy) for each in ("kernels.py", "truth.py", "source.py")),
        "parts/inside.py",
    ],
)
def test_resume_refuses_changed_code(optest: Shell, plan: Write, tmp_path: Path, edited: str | None) -> None:
    (tmp_path / "parts").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    path = plan(RESUMED)
    mine = {"OPTEST_PLUGINS": "mine", "PYTHONPATH": str(tmp_path)}
    assert optest("run", "--plan", path, env=mine).status == 0
    if edited is not None:
        (tmp_path / edited).write_text(FILES[edited] + "# another time\n")
    ended = optest("run", "--plan", path, "--resume", "latest", env=mine).expect(0 if edited is None else 2)
    if edited is not None:
        assert edited.removesuffix(".py").replace("/", ".") in ended.err
        assert "has changed" in ended.err


@pytest.mark.parametrize("start", [["-m", "optest"], [str(Path(sys.executable).with_name("optest"))]])
@pytest.mark.parametrize("isolate", ["worker", "none"])
def test_files_here_do_not_shadow_modules(process: Shell, tmp_path: Path, start: list[str], isolate: str) -> None:
    for name in ("json", "statistics", "numpy", "ml_dtypes", "runpy", "colorsys"):
        (tmp_path / f"{name}.py").write_text("import os\nopen('loaded', 'w').close()\nos._exit(9)\n")
    (tmp_path / "mine.py").write_text(driver_text("mine", "import colorsys\nreturn [np.maximum(inputs[0], 0)]"))
    words = ["run", "--op", "relu", "--shape", "input0=4", "--backend", "mine", "--isolate", isolate]
    ended = process(sys.executable, *start, *words, env=user_environment(OPTEST_PLUGINS="mine"))
    assert not (tmp_path / "loaded").exists()
    assert ended.status == 0, ended.err
    assert "1 passed" in ended.out


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_a_closed_stream_changes_nothing(process: Shell, tmp_path: Path, stream: int) -> None:
    words = ["-m", "optest", "run", "--op", "relu", "--shape", "input0=4", "--isolate", "worker"]
    ended = process("bash", "-c", f'exec "$@" {stream}>&-', "bash", sys.executable, *words)
    assert (ended.status, ended.err) == (0, "")
    (journal,) = (tmp_path / ".optest" / "runs").glob("*/journal.jsonl")
    assert b"passed" in journal.read_bytes()


def test_a_removed_folder_is_no_verdict(process: Shell, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    words = ["-m", "optest", "run", "--op", "relu", "--shape", "input0=4"]
    ended = process("bash", "-c", 'cd gone && rmdir ../gone && exec "$@"', "bash", sys.executable, *words).expect(2)
    assert ended.err.startswith("optest: the working directory")


@pytest.mark.parametrize("words", [("list",), ("run", "--op", "relu", "--shape", "input0=4")])
def test_a_full_standard_output_is_reported(process: Shell, words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        streams = {"capture_output": False, "stdout": full, "stderr": subprocess.PIPE}
        ended = process(sys.executable, "-m", "optest", *words, **streams)
    assert ended.status == 3
    assert "No space left" in ended.err
    assert "Traceback" not in ended.err


ENDS_LATER = """
if os.path.exists("loaded"):
    os.write(2, b"KeyError: no such device\\n")
    {ending}
open("loaded", "w").close()
"""


@pytest.mark.parametrize("ending", ["os._exit(1)", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_unloadable_backend_ends_the_run(optest: Shell, tmp_path: Path, ending: str) -> None:
    text = driver_text("unloadable", "return [np.maximum(inputs[0], 0)]", ENDS_LATER.format(ending=ending))
    (tmp_path / "unloadable.py").write_text(text)
    env = {"OPTEST_PLUGINS": "unloadable", "PYTHONPATH": str(tmp_path)}
    ended = optest("check", "--backend", "unloadable", "--op", "relu", "-j", "2", env=env).expect(2)
    assert ended.err.count("KeyError: no such device") == 1
    assert "gdb" not in ended.text


# Code that is edited between two runs


@pytest.mark.parametrize("named", ["edited:relu", "edited.py:relu", "inside/edited.py:relu", "beside:relu"])
@pytest.mark.parametrize("isolation", ["none", "worker"])
def test_a_second_edit_within_one_second_is_run(optest: Shell, tmp_path: Path, named: str, isolation: str) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "__init__.py").touch()
    (tmp_path / "beside.py").write_text("from edited import relu\n")
    file = tmp_path / ("inside" if named.startswith("inside") else "") / "edited.py"
    for term, status in ((0, 0), (1, 1), (0, 0)):
        file.write_text("from . import __name__\n" * named.startswith("inside") + _EDITED.format(term=term))
        os.utime(file, (1e9, 1e9))
        optest(*_RUN, "--dtype", "float32", "--function", f"relu={named}", "--isolate", isolation).expect(status)


_EDITED = "import numpy as np\ndef relu(x):\n    return np.maximum(x, 0) + np.float32({term})\n"


# What foreign code writes into the configuration of the next run


_KERNEL = """
import os, signal
from pathlib import Path
import numpy as np
def unseen(path, text):
    before = os.stat(path)
    open(path, "a").write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

def relu(x):
    if not os.path.exists("done"):  # the case calls it more than once
        open("done", "w").close()
        {attack}
    return np.maximum(x, 0)
"""
_FILES = {
    "pyproject.toml": '[project]\nname = "kernels"\n[tool.optest]\nplugins = ["mine"]\nexpectations = ["known.yaml"]\n',
    "known.yaml": "version: 1\nexpected: []\n",
    "mine.py": driver_text("mine", "return [inputs[0] * (inputs[0] > 0)]", "import beside\nimport parts.inside"),
    "beside.py": "",
    "parts/inside.py": "",
}


def attacked(optest: Shell, folder: Path, attack: str, *options: str, env: dict[str, str] | None = None) -> Ended:
    """Run a kernel that does ``attack`` in a project with a configuration and a plug-in."""
    (folder / "parts").mkdir(exist_ok=True)
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    py_compile.compile(str(folder / "mine.py"))
    (folder / "done").unlink(missing_ok=True)
    (folder / "kernel.py").write_text(_KERNEL.format(attack=attack))
    return optest(*_RUN, "--function", "kernel:relu", *(options or ("--isolate", "none")), env=env)


_RUN = ("run", "--op", "relu", "--shape", "input0=4")


@pytest.mark.parametrize(
    ("attack", "file"),
    [
        ("open('optest.toml', 'w').write('plugins = []')", "optest.toml was created"),
        ("open('pyproject.toml', 'a').write('keyword = \"nothing\"')", "pyproject.toml was changed"),
        ("os.remove('pyproject.toml')", "pyproject.toml was removed"),
        ("open(next(Path('__pycache__').glob('mine.*.pyc')), 'ab').write(b'x')", ".pyc was changed"),
        ("open('mine.py', 'a').write('print(1)')", "mine.py was changed"),
        ("open('beside.py', 'a').write('print(1)')", "beside.py was changed"),
        ("open('parts/inside.py', 'a').write('print(1)')", "parts/inside.py was changed"),
        ("os.mkdir('mine'); open('mine/__init__.py', 'w').write('print(1)')", "mine/__init__.py was created"),
        ("os.mkdir('beside'); open('beside/__init__.py', 'w').write('print(1)')", "beside/__init__.py was created"),
        ("open('parts/__init__.py', 'w').write('print(1)')", "parts/__init__.py was created"),
        ("open('known.yaml', 'w').write('version: 1')", "known.yaml was changed"),
        ("unseen('mine.py', '#')", "mine.py was changed"),
        ("unseen('pyproject.toml', 'op = [1]')", "pyproject.toml was changed"),
    ],
)
def test_configuration_that_a_kernel_changed_is_refused(optest: Shell, tmp_path: Path, attack: str, file: str) -> None:
    ended = attacked(optest, tmp_path, attack)
    assert ended.status in (0, 2), ended.err  # this run, too, reads its configuration again
    assert file in ended.err, "it is named at once"
    for command in (_RUN, ("list", "operators"), ("check", "--op", "relu", "--set", "ordinary")):
        optest(*command).expect(2, err=(file, "--accept-config"))


@pytest.mark.parametrize("file", ["mine.py", "parts/inside.py", "beside/__init__.py"])
def test_plug_ins_in_a_folder_below_are_watched(optest: Shell, tmp_path: Path, file: str) -> None:
    (tmp_path / "optest.toml").write_text('plugins = ["below/mine.py"]')
    (tmp_path / "below/parts").mkdir(parents=True)
    for name in ("mine.py", "beside.py", "parts/inside.py"):
        (tmp_path / "below" / name).write_text(_FILES[name])
    write = f"os.makedirs('below/beside', exist_ok=True); open('below/{file}', 'a').write('print(1)')"
    (tmp_path / "kernel.py").write_text(_KERNEL.format(attack=write))
    assert f"below/{file} was" in optest(*_RUN, "--function", "kernel:relu", "--isolate", "none").err
    assert optest(*_RUN).status == 2


@pytest.mark.parametrize("options", [("--isolate", "worker"), ("--isolate", "case")])
def test_a_change_from_a_worker_is_accepted_once(optest: Shell, tmp_path: Path, options: tuple[str, ...]) -> None:
    write = "open('optest.toml', 'w').write('seed = 7')"
    assert "optest.toml was created" in attacked(optest, tmp_path, write, *options).err
    assert optest(*_RUN).status == 2
    optest(*_RUN, "--accept-config").expect(0, out="seed 7")
    assert optest(*_RUN).status == 0
    attacked(optest, tmp_path, write.replace("7", "8"), *options)
    assert optest(*_RUN).status == 2
    assert optest(*_RUN, env={"OPTEST_ACCEPT_CONFIG": "1"}).status == 0


_MODEL = """
import os, torch
class Model(torch.nn.Module):
    def forward(self, x):
        if not torch.compiler.is_exporting():
            open("optest.toml", "w").write("seed = 7")
        return x * 2
def make():
    return Model(), (torch.ones(3),)
"""


@pytest.mark.needs("torch onnx onnxruntime onnxscript safetensors")
@pytest.mark.parametrize("command", ["run", "bench", "validate"])
def test_a_change_by_a_model_is_refused(optest: Shell, tmp_path: Path, command: str) -> None:
    (tmp_path / "m.py").write_text(_MODEL)
    words = {"run": [], "bench": ["--no-baseline", "--bench-time", "0.01"], "validate": ["--backend", "torch"]}[command]
    ended = optest("model", command, "m.py:make", *words)
    assert ended.err.count("optest.toml was created") == 1, ended.text
    optest("model", "run", "m.py:make").expect(2, err="optest.toml was created")
    assert optest(*_RUN).status == 2


def test_change_before_a_killed_run_is_detected(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / ".optest").mkdir()
    attack = "open('optest.toml', 'w').write('plugins = []'); os.kill(os.getpid(), signal.SIGKILL)"
    assert attacked(optest, tmp_path, attack).status not in (0, 1)
    optest(*_RUN).expect(2, err="optest.toml was created")


@pytest.mark.parametrize(
    "attack",
    [
        "pass",
        "open('pyproject.toml', 'a').write('[tool.other]\\n')",
        "open('generated.py', 'w').write('x = 1')",
        "open('mine.py', 'a').write('')",
        "text = open('mine.py').read(); open('mine.py', 'w').write('broken('); open('mine.py', 'w').write(text)",
        "os.makedirs('other', exist_ok=True); open('other/optest.toml', 'w').write('seed = 1')",
    ],
)
def test_other_files_are_no_configuration(optest: Shell, tmp_path: Path, attack: str) -> None:
    assert attacked(optest, tmp_path, attack).err == ""
    assert optest(*_RUN).status == 0
    assert not list((tmp_path / ".optest").glob("*.json"))


def test_a_user_may_edit_between_runs(optest: Shell, tmp_path: Path) -> None:
    for edited in (*_FILES, "optest.toml"):
        assert attacked(optest, tmp_path, "pass").err == ""
        with (tmp_path / edited).open("a") as file:
            file.write("\n# edited\n")
        assert optest(*_RUN).status == 0, edited
        (tmp_path / "optest.toml").unlink(missing_ok=True)
    attacked(optest, tmp_path, "open('optest.toml', 'w').write('plugins = []')")
    assert optest(*_RUN).status == 2
    (tmp_path / "optest.toml").write_text("seed = 3\n")
    assert "seed 3" in optest(*_RUN).out, "the user has written another one"


def test_a_damaged_record_of_configuration_is_a_sentence(optest: Shell, tmp_path: Path) -> None:
    (tmp_path / ".optest").mkdir()
    for content in (
        "",
        "[]",
        "{}",
        '{"before": 3}',
        '{"before": {"a": ""}, "after": 3}',
        '{"before": {}, "after": {"b": ""}}',
    ):
        (tmp_path / ".optest/configuration-1.json").write_text(content)
        ended = optest(*_RUN)
        assert ended.status in (0, 2), ended.text
        assert "Traceback" not in ended.err
