"""What an option is worth in a run: command line, environment, plan, configuration file, default, in this order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from optest.errors import UnknownName, UsageError, did_you_mean
from optest.guests import Option
from optest.settings.config_file import ConfigFile, config_file
from optest.settings.options import OPTIONS, split_values
from optest.settings.variables import HELD_DEVICES, environment

_OTHER_VARIABLES = ("OPTEST_LEASES", HELD_DEVICES)
_MAY_BE_EMPTY = ("keyword",)
"""``-k ''`` selects everything, as it does for pytest."""


class Origin(IntEnum):
    """Where a value came from; a later one wins."""

    DEFAULT = 0
    CONFIG = 1
    PLAN = 2
    ENVIRONMENT = 3
    COMMAND_LINE = 4

    @property
    def phrase(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Value:
    """A resolved option and where it came from; ``where`` names the variable, the file, or the place in the plan."""

    value: Any
    origin: Origin = Origin.DEFAULT
    where: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Every option with its value and origin; ``settings["jobs"]`` is the value."""

    values: Mapping[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def origin(self, name: str) -> Value:
        return self.values[name]

    def stated(self, name: str) -> bool:
        return self.values[name].origin is not Origin.DEFAULT


def resolve(
    command_line: Mapping[str, Any] | None = None,
    *,
    plan: Mapping[str, Any] | None = None,
    plan_name: str = "",
    variables: Mapping[str, str] | None = None,
    config: ConfigFile | None = None,
) -> Settings:
    """Merge command line, environment, plan, configuration file and defaults; None and () mean "not stated".

    Raises:
        UsageError: for a value of the wrong type in the environment or the file, an unknown ``OPTEST_`` variable, or
            text that is empty, as of a shell's variable that is not set: a default would stand for it, and nobody was
            told.
        UnknownName: for an unknown key of the file.
    """
    variables = environment() if variables is None else variables
    configured = _configured(config_file() if config is None else config)
    known = {option.env for option in OPTIONS} | set(_OTHER_VARIABLES)
    for name in variables:
        if name.startswith("OPTEST_") and name not in known:
            hint = did_you_mean(name, known, text="; did you mean {}?")
            raise UsageError(f"environment variable {name} is unknown{hint}")
    below = dict(configured)
    for option in OPTIONS:
        if option.plan and plan and plan.get(option.plan) is not None:
            below[option.name] = Value(plan[option.plan], Origin.PLAN, plan_name)
    return Settings(
        {
            option.name: _checked(option, _resolve_one(option, command_line or {}, variables, below))
            for option in OPTIONS
        }
    )


def plugin_modules() -> tuple[str, ...]:
    """The modules that ``OPTEST_PLUGINS``, else the configuration file, names, in order."""
    option = next(each for each in OPTIONS if each.name == "plugins")
    modules: tuple[str, ...] = _resolve_one(option, {}, environment(), _configured(config_file())).value
    return modules


def _configured(file: ConfigFile) -> dict[str, Value]:
    """What the configuration file says, by names of options; a relative path starts at the file's folder."""
    options = {option.name: option for option in OPTIONS}
    found = {}
    for key, stated in file.stated.items():
        option = options.get(key.replace("-", "_"))
        if option is None:
            raise UnknownName("option", key, options, where=file.path)
        where = f"{key} in {file.path}"
        if option.repeat != isinstance(stated, list) and not (option.repeat and isinstance(stated, str)):
            raise UsageError(f"{where} is {stated!r}, but should be {'a list' if option.repeat else 'one value'}")
        texts = [str(each) for each in (stated if isinstance(stated, list) else [stated])]
        texts = list(split_values(texts)) if option.splits else texts
        if option.completes in ("file", "folder"):
            paths = [os.path.normpath(os.path.join(file.folder, each)) for each in texts]
            texts = [
                path if os.path.exists(path) or "NAME" not in option.metavar else each
                for each, path in zip(texts, paths, strict=True)
            ]
        found[option.name] = Value(
            tuple(texts) if option.repeat else _parse(option, texts[0], where), Origin.CONFIG, where
        )
    return found


def _resolve_one(
    option: Option, command_line: Mapping[str, Any], variables: Mapping[str, str], below: Mapping[str, Value]
) -> Value:
    """``below`` is what plan and configuration file say."""
    stated = command_line.get(option.name)
    if stated not in (None, (), []) and not (option.type in ("bool", "count") and not stated):
        return Value(stated, Origin.COMMAND_LINE, option.flags[-1])
    text = variables.get(option.env)
    if text is not None:
        return Value(_parse(option, text, f"environment variable {option.env}"), Origin.ENVIRONMENT, option.env)
    return below.get(option.name) or Value(() if option.repeat else option.default)


def _checked(option: Option, value: Value) -> Value:
    stated = value.value if option.repeat else (value.value,)
    if "" in stated and option.name not in _MAY_BE_EMPTY:
        flag = f"--{option.name.replace('_', '-')}"
        flag = flag if flag in option.flags else option.flags[-1]
        raise UsageError(f"{flag} ({option.env}) is empty; state one, or leave it out")
    if option.minimum is not None and value.value is not None and value.value < option.minimum:
        where = value.where or option.flags[-1]
        raise UsageError(f"{where} is {value.value}, but should be {option.minimum} or more")
    return value


def _parse(option: Option, text: str, where: str) -> Any:
    if option.repeat:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    try:
        match option.type:
            case "int" | "count":
                return int(text)
            case "float":
                return float(text)
            case "bool":
                return _BOOLEANS[text.strip().lower()]
    except (ValueError, KeyError):
        word = {"int": "an integer", "count": "an integer", "float": "a number", "bool": "0 or 1"}[option.type]
        raise UsageError(f"{where} is {text!r}, but should be {word}") from None
    if option.choices and text not in option.choices:
        listed = ", ".join(option.choices)
        raise UsageError(f"{where} is {text!r}, but should be one of {listed}")
    return text


_BOOLEANS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
    "": False,
}
