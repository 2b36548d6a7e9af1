"""An empty name does not switch compiling off, nor ask the CPU."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from optest.api.run_request import run_request
from optest.errors import OptionNotTaken, UsageError
from optest.pytest_plugin.nodes import _file_request
from optest.pytest_plugin.options import add_options, options_of_a_run, options_of_scenes


class Recording:
    """A parser that keeps what it is told of each option."""

    def __init__(self) -> None:
        self.options: dict[str, dict[str, Any]] = {}

    def getgroup(self, *_: str) -> Recording:
        return self

    def addoption(self, name: str, **of_it: Any) -> None:
        self.options[name] = of_it

    def addini(self, *_: Any, **__: Any) -> None:
        """Nothing is asked of it here."""


def option(name: str) -> dict[str, Any]:
    parser = Recording()
    asked: Any = parser
    add_options(asked)
    return parser.options[name]


@pytest.mark.parametrize(
    ("variable", "default"), [(None, None), ("", None), ("aot_eager", "aot_eager"), ("eager", "eager")]
)
def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch, variable: str | None, default: str | None) -> None:
    monkeypatch.delenv("TEST_COMPILE_BACKEND", raising=False)
    if variable is not None:
        monkeypatch.setenv("TEST_COMPILE_BACKEND", variable)
    assert option("--compile-backend")["default"] == default


@pytest.mark.parametrize("name", ["--compile-backend", "--torch-device"])
def test_an_empty_option_is_refused(name: str) -> None:
    stated = option(name)["type"]
    assert stated("cuda") == "cuda"
    with pytest.raises(ArgumentTypeError, match="it is empty"):
        stated("")


class Config:
    """As pytest has it when nothing is stated but ``compile_backend``."""

    def __init__(self, compile_backend: str | None = None, **options: Any) -> None:
        self._options = {"compile_backend": compile_backend, "dedupe": True, "expectations": [], **options}

    def getoption(self, name: str, default: Any = None) -> Any:
        return self._options.get(name, default)

    def getini(self, name: str) -> Any:
        return self._options.get(name, "" if name == "optest_compile_backend" else [])


@pytest.mark.parametrize(
    ("stated", "ini", "of_models", "of_plans"),
    [(None, "", None, None), (None, "inductor", "inductor", None), ("eager", "inductor", "eager", "eager")],
)
def test_only_model_cases_are_compiled_by_the_ini(
    stated: str | None, ini: str, of_models: str | None, of_plans: str | None
) -> None:
    config: Any = Config(stated, optest_compile_backend=ini)
    assert options_of_a_run(config, compiles=True).get("compile_backend") == of_models
    assert options_of_a_run(config).get("compile_backend") == of_plans


def test_scenes_keep_their_own_backend() -> None:
    config: Any = Config(optest_backend="one")
    assert options_of_a_run(config)["backend"] == "one"
    assert "backend" not in options_of_scenes(config)


def test_torch_options_are_dropped_for_other_backends(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("backend: numpy\ncases: [{op: relu, shapes: {input0: 4}}]\n")
    options = {"torch_device": "cpu"}
    with pytest.raises(OptionNotTaken):
        run_request({**options, "plan": str(plan)})
    assert len(_file_request(plan, options).cases) == 1
    with pytest.raises(UsageError):
        _file_request(plan, {**options, "case": ("no such case",), "jobs": 0})
