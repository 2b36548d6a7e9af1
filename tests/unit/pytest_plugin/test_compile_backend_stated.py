"""An empty name does not switch compiling off, nor ask the CPU."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any

import pytest

from optest.pytest_plugin.options import add_options


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
    ("variable", "default"), [(None, "inductor"), ("", "inductor"), ("aot_eager", "aot_eager"), ("eager", "eager")]
)
def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch, variable: str | None, default: str) -> None:
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
