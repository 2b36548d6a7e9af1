"""What a user names, and what is said if it is not there, cannot be called, or raises."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from texts import refusal

torch = pytest.importorskip("torch")
from optest.cli import cli  # noqa: E402
from optest.errors import NothingSelected, Unavailable, UsageError  # noqa: E402
from optest.torch.capture.running import capture_model  # noqa: E402
from optest.torch.capture.watching import Selection  # noqa: E402
from optest.torch.capture_command import capture  # noqa: E402

pytestmark = pytest.mark.torch

SCRIPT = """
import torch
from beside_it import FACTOR
LOADED = torch.ones(3) * 2
def forward():
    return LOADED * FACTOR
def needs(x, y=1):
    return x
def raises():
    return inner(torch.ones(2))
def inner(x):
    return x @ torch.ones(3)
def leaves():
    torch.ones(2).abs()
    raise SystemExit
def quiet():
    return 1
def draws():
    return torch.rand(2)
def fails():
    raise SystemExit(3)
NUMBER = 3
class Layer(torch.nn.Module):
    pass
class Model:
    def step(self):
        return LOADED.abs()
MODEL = Model()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = dict(sys.modules)
    (tmp_path / "a_script.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "beside_it.py").write_text("FACTOR = 1.5\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in sys.modules.keys() - before.keys():
        if name in ("a_script", "beside_it", "transformers"):
            del sys.modules[name]


def captured(what: str, **more: Any) -> Any:
    return capture_model(what, selection=Selection(), **more)


def ops(what: str) -> list[str]:
    return [case["op"] for case in captured(what).cases]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("a_script.py:forward", ["torch.mul"]),
        ("{folder}/a_script.py:MODEL.step", ["torch.abs"]),
        ("a_script:forward", ["torch.mul"]),
        ("a_script.py", ["torch.ones", "torch.mul"]),
        ("a_script.py:leaves", ["torch.ones", "torch.abs"]),
    ],
    ids=["function", "method", "module", "script", "ends-itself"],
)
def test_calls_of_what_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch, what: str, expected: list[str]) -> None:
    if what.startswith("a_script:"):
        monkeypatch.syspath_prepend(folder)
    path = list(sys.path)
    found = captured(what.format(folder=folder))
    assert [case["op"] for case in found.cases] == expected
    assert found.stem == "a_script"
    assert sys.path == path


def test_a_script_has_no_arguments_of_optests(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``python model.py`` has none: its own parser would refuse them."""
    arguments = ["optest", "capture", "with_parser.py", "-o", "model.yaml"]
    monkeypatch.setattr(sys, "argv", arguments)
    (folder / "with_parser.py").write_text(
        "import argparse, sys, torch\nargparse.ArgumentParser().parse_args()\n"
        "torch.ones(len(sys.argv)) * 2\n\n\ndef forward():\n    torch.ones(len(sys.argv)).abs()\n"
    )
    assert ops("with_parser.py") == ["torch.ones", "torch.mul"]
    assert ops("with_parser.py:forward") == ["torch.ones", "torch.abs"]
    assert sys.argv is arguments


def test_model_may_change_directory(folder: Path) -> None:
    (folder / "goes.py").write_text("import os, torch\ndef f():\n    os.chdir('/')\n    torch.ones(2).abs()\n")
    before = list(sys.path)
    assert capture("goes.py:f", "m.yaml").capture.calls == 2
    assert (folder / "m.yaml").is_file()
    assert Path.cwd() == folder
    assert sys.path == before


def test_model_may_change_sys_path(folder: Path) -> None:
    (folder / "takes.py").write_text("import sys, torch\ndef f():\n    del sys.path[0]\n    torch.ones(2).abs()\n")
    assert ops("takes.py:f") == ["torch.ones", "torch.abs"]


def test_a_model_that_closes_standard_output(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "closes.py").write_text("import sys, torch\ndef f():\n    sys.stdout.close(); torch.ones(2).abs()\n")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with refusal(UsageError, "capture.closes_py_closed_standard"):
        captured("closes.py:f")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("a_script.py:forwrd", ["a_script.py has no forwrd; did you mean forward?"]),
        ("a_script.py:zzz", ["a_script.py has no zzz; it has forward, needs, raises"]),
        ("a_script.py:NUMBER", ["is int, expected a function that takes no arguments"]),
        ("a_script.py:needs", ["takes x, but capture calls it without arguments", "def captured(): return needs(...)"]),
        ("a_script.py:Layer", ["is a class: a call builds", "def captured(): return Layer(...)(torch.randn(...))"]),
        ("a_script.py:raises", ["a_script.py:raises raised RuntimeError: ", "at a_script.py:12, in inner: return x @",
                                "nothing was written; run it without optest first"]),
        ("a_script.py:fails", ["ended with status 3"]),
        ("a_scrip.py:forward", ["there is no file a_scrip.py; did you mean a_script.py?"]),
        ("nowhere/a_script.py", ["there is no file nowhere/a_script.py"]),
        ("a_script", ["'a_script' cannot be captured", "model.py:forward"]),
        ("no_such_module:forward", ["module 'no_such_module' does not exist"]),
        ("./", ["./ is a folder, expected a script; write ./model.py:forward"]),
        ("notes.txt", ["notes.txt is no Python file"]),
        ("broken.py", ["broken.py raised SyntaxError", "at broken.py:1: def f(:"]),
        ("base.py", ["base.py raised BaseException: x\n  at base.py:1"]),
        ("exit.py", ["exit.py raised GeneratorExit: x\n  at exit.py:1"]),
        ("lacks.py:f", ["lacks.py:f raised ModuleNotFoundError: No module named 'no_such_package'", "at lacks.py:1"]),
    ],
)  # fmt: skip
def test_error_names_line_and_remedy(folder: Path, what: str, said: list[str]) -> None:
    (folder / "notes.txt").write_text("x")
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "lacks.py").write_text("import no_such_package\n")
    (folder / "base.py").write_text("raise BaseException('x')\n")
    (folder / "exit.py").write_text("raise GeneratorExit('x')\n")
    with pytest.raises(UsageError) as raised:
        captured(what)
    for text in said:
        assert text in str(raised.value)
    assert "optest/torch/capture" not in str(raised.value)


def test_a_configuration_is_for_classes_of_transformers_alone(folder: Path) -> None:
    with refusal(UsageError, "capture.config_goes_with_hf"):
        captured("a_script.py:forward", config={"a": 1})


@pytest.mark.skipif("transformers" in sys.modules, reason="transformers is loaded")
def test_transformers_is_wanted_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with refusal(Unavailable, "capture.pip_install_transformers_or"):
        captured("hf:GPT2LMHeadModel")


@pytest.mark.parametrize(
    ("what", "output", "more", "said"),
    [
        ("raises", "there.yaml", {}, "there.yaml exists already and was not changed"),
        ("forward", "x.json", {}, "-o is x.json, expected a file that ends in .yaml"),
        ("forward", "no/x.yaml", {}, "-o is no/x.yaml, but there is no folder no"),
        ("forward", "folder.yaml", {}, "-o is folder.yaml, which is a folder"),
        ("raises", "x.yaml", {}, "nothing was written"),
        ("forward", "x.yaml", {"config": ["{}"]}, "--config is {}, expected KEY=VALUE or a JSON file"),
        ("forward", "x.yaml", {"config": ["a=1"]}, "--config applies only to hf:CLASS"),
        ("forward", "x.yaml", {"ops": ["nothing"]}, "not selected, as they match no pattern of --ops: 1 call"),
        ("quiet", "x.yaml", {}, "no torch call was made: does the function run the model?"),
        ("draws", "x.yaml", {}, "as they draw random numbers, so no result is the right one: 1 call of torch.rand"),
    ],
)
def test_what_keeps_a_file_from_being_written(
    folder: Path, what: str, output: str, more: dict[str, Any], said: str
) -> None:
    (folder / "there.yaml").write_text("mine")
    (folder / "folder.yaml").mkdir()
    before = sorted(folder.glob("*"))
    has_calls = what in ("raises", "forward") and "ops" not in more
    with pytest.raises(UsageError if has_calls else NothingSelected) as raised:
        capture(f"a_script.py:{what}", output, **more)
    assert said in str(raised.value)
    assert [each for each in sorted(folder.glob("*")) if each.name != "__pycache__"] == before
    assert (folder / "there.yaml").read_text() == "mine"


def test_force_overwrites_file_with_summary(folder: Path) -> None:
    (folder / "there.yaml").write_text("mine")
    written = capture("a_script.py:forward", "there.yaml", model="m", seed=3, force=True)
    assert (folder / "there.yaml").read_text().splitlines()[1:3] == ["model: m", "defaults: {dtype: float32, seed: 3}"]
    assert list(written.lines()) == [
        "there.yaml: 1 case of 1 call, 1 operator, model m",
        "next:",
        "  optest run --plan there.yaml",
        "  optest run --plan there.yaml --compile-backend inductor",
    ]


def test_torch_is_loaded_only_by_capture() -> None:
    asked = "import sys, optest.cli, optest.torch.capture_command; print(sorted(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=600, check=True)
    assert "'optest.torch.capture_command'" in ended.stdout
    assert "'torch'" not in ended.stdout


class Config:
    def __init__(self, vocab_size: int = 50, width: int = 4, head: int | None = None, **more: Any) -> None:
        self.vocab_size, self.width, self.head = vocab_size, width, head or width // 2
        vars(self).update(more)


class TinyModel(torch.nn.Module):  # type: ignore[misc]
    config_class = Config

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(config.vocab_size, config.width)

    def forward(self, input_ids: Any) -> Any:
        return self.table(input_ids).sum()


class PixelModel(TinyModel):
    main_input_name = "input_values"


def _kind(main: str, forward: Any, **stated: Any) -> type:
    """A class of models with that first input, and a configuration that states so much."""

    class Stated(Config):
        def __init__(self, **given: Any) -> None:
            super().__init__(**{**stated, **given})

    return type("AnyModel", (TinyModel,), {"config_class": Stated, "main_input_name": main, "forward": forward})


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of that name with two models: the real one is not wanted for a test of what is asked of it."""
    module = types.ModuleType("transformers")
    module.__version__ = "0"  # type: ignore[attr-defined]
    module.TinyModel, module.PixelModel = TinyModel, PixelModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)


def test_a_class_of_transformers_with_its_configuration(transformers: None) -> None:
    found = captured("hf:TinyModel", config={"width": 6})
    assert [case["op"] for case in found.cases] == ["torch.nn.functional.embedding", "torch.Tensor.sum"]
    assert found.cases[0]["inputs"][1]["tensor"]["shape"] == [50, 6]
    assert found.cases[0]["inputs"][0]["tensor"]["shape"] == [1, 16]
    assert found.stem == "TinyModel"


def test_what_follows_from_a_stated_key_follows(transformers: None) -> None:
    """Half of the width, as the configuration works it out, not half of the width that it has by default."""

    class Heads(TinyModel):
        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.head = torch.nn.Parameter(torch.rand(config.head))

        def forward(self, input_ids: Any) -> Any:
            return self.head.abs()

    sys.modules["transformers"].AnyModel = Heads  # type: ignore[attr-defined]
    found = captured("hf:AnyModel", config={"width": 12})
    assert found.cases[0]["inputs"][0]["tensor"]["shape"] == [6]


@pytest.mark.parametrize(
    ("main", "stated", "forward", "shapes"),
    [
        ("pixel_values", {"image_size": 32}, lambda self, pixel_values: pixel_values.abs(), [[1, 3, 32, 32]]),
        ("pixel_values", {"num_channels": 1}, lambda self, pixel_values: pixel_values.abs(), [[1, 1, 64, 64]]),
        ("input_values", {"conv_kernel": (10, 3)}, lambda self, input_values: input_values.abs(), [[1, 4000]]),
        ("input_features", {"num_mel_bins": 80, "max_source_positions": 30},
         lambda self, input_features: input_features.abs(), [[1, 80, 60]]),
        ("input_ids", {"is_encoder_decoder": True},
         lambda self, input_ids, decoder_input_ids: (input_ids.abs(), decoder_input_ids.neg()), [[1, 16], [1, 16]]),
        ("input_ids", {"vision_config": types.SimpleNamespace(image_size=[8, 16])},
         lambda self, input_ids, pixel_values: (input_ids.abs(), pixel_values.abs()), [[1, 16], [1, 3, 8, 16]]),
    ],
    ids=["pixels", "pixels-of-any-size", "sound", "spectrum", "encoder-decoder", "text-and-image"],
)  # fmt: skip
def test_inputs_are_built_for_forward(
    transformers: None, main: str, stated: dict[str, Any], forward: Any, shapes: list[list[int]]
) -> None:
    sys.modules["transformers"].AnyModel = _kind(main, forward, **stated)  # type: ignore[attr-defined]
    found = captured("hf:AnyModel")
    assert [case["inputs"][0]["tensor"]["shape"] for case in found.cases] == shapes


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("TinyModle", {}, "transformers has no model TinyModle; did you mean hf:TinyModel?"),
        ("TinyModel", {"widht": 1}, "Config has no widht; did you mean width?"),
        ("PixelModel", {}, "PixelModel needs the input input_values, which hf: cannot create"),
    ],
)
def test_what_a_class_does_not_have(transformers: None, name: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        captured(f"hf:{name}", config=config)


def test_a_model_without_memory_can_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """On torch's device meta a model of any size has shapes, which is what is wanted of it."""
    with torch.device("meta"):
        layer = torch.nn.Linear(16384, 65536)
        x = torch.empty(1, 4096, 16384)
    monkeypatch.setitem(sys.modules, "a_meta_model", types.ModuleType("a_meta_model"))
    sys.modules["a_meta_model"].forward = lambda: layer(x).view(1, 4096, 8, -1).to(device=x.device)  # type: ignore
    linear, view, moved = captured("a_meta_model:forward").cases
    assert linear["inputs"][1] == {"tensor": {"shape": [65536, 16384], "init": "randn"}}
    assert view["inputs"][0]["tensor"]["shape"] == [1, 4096, 65536]
    assert moved["kwmap"] == {"device": "cuda:0"}


def test_capture_without_torch_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("")
    without = (
        "import sys; sys.modules['torch'] = None; from optest.cli import main; "
        "sys.argv = ['optest', 'capture', 'model.py', '-o', 'y.yaml']; main()"
    )
    ended = subprocess.run([sys.executable, "-c", without], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 5
    assert "pip install torch" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_case_that_cannot_run_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "import torch\ndef call(): return torch.ones(4).masked_fill(torch.zeros(4, dtype=torch.bool), 2.0)"
    (tmp_path / "masked.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("optest.torch.capture.values._mask_fill", lambda *_, **__: ({"init": "zeros"}, ""))
    assert cli.main(["capture", "masked.py:call", "-o", "masked.yaml"], standalone_mode=False) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "will not run" in line]
    assert "masked::masked_fill.1" in line
    assert "False everywhere" in line


def test_unloadable_plugin_is_reported_before_model_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.py").write_text("raise SystemExit('it ran')")
    monkeypatch.setenv("OPTEST_PLUGINS", "no_such_plugin")
    with pytest.raises(UsageError, match="no_such_plugin"):
        capture(str(tmp_path / "model.py"), str(tmp_path / "m.yaml"))
    assert not (tmp_path / "m.yaml").exists()
