"""What guests declare: options in the one table, commands that exist, a part in every run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from texts import refusal

from optest.errors import UsageError
from optest.guests import Command, Option, guests, run_hooks
from optest.registry import load_object
from optest.settings import OPTIONS

COMMANDS = [command for guest in guests() for command in guest.commands]


def test_options_of_guests_are_in_the_table() -> None:
    names = [option.name for option in OPTIONS]
    assert len(names) == len(set(names))
    assert {"torch_device", "backward", "library", "mapping"} <= {o.name for guest in guests() for o in guest.options}
    assert {option.name for guest in guests() for option in guest.options} <= set(names)


def test_groups_of_options_stand_together() -> None:
    groups = [option.group for option in OPTIONS]
    starts = [each for place, each in enumerate(groups) if groups[place - 1 : place] != [each]]
    assert starts == list(dict.fromkeys(groups))


@pytest.mark.needs("onnx")
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_functions_of_commands_exist(command: Command) -> None:
    assert callable(load_object(command.function))


def test_hooks_say_nothing_of_an_empty_run() -> None:
    settings = {option.name: () if option.repeat else option.default for option in OPTIONS}
    for hooks in run_hooks():
        assert hooks.apply_options([], settings) == []
        assert list(hooks.closing_notes(settings, [])) == []


def test_declarations_are_light() -> None:
    heavy = {"numpy", "torch", "pydantic", "importlib.metadata"}
    code = f"import sys, optest.cli; print(sorted({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def _values(context: Any, **values: Any) -> int:
    context.append(values)
    return 3


def test_command_applies_defaults_and_minimums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optest.guests.load_object", lambda _: _values)
    size = Option(name="size", flags=("--size",), type="int", minimum=8, default=16)
    command = Command(name="shrink", function="x:y", short="", text="", options=(size,))
    told: Any = []
    assert command.call(told, {"what": "a", "size": None}) == 3
    assert told == [{"what": "a", "size": 16}]
    with refusal(UsageError, "api.size_is_but_should"):
        command.call(told, {"what": "a", "size": 7})
