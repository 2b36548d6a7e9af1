"""Values of options in a run: command line, then environment, plan, configuration file, default."""

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

# Variables of optest that set no option.
_OTHER_VARIABLES = ("OPTEST_LEASES", HELD_DEVICES)
# ``-k ''`` selects everything, as it does for pytest.
_MAY_BE_EMPTY = ("keyword",)


class Origin(IntEnum):
    """Source of a value; a larger member overrides a smaller one."""

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
    """A resolved option with its source; ``where`` names the flag, the variable, the file, or the plan."""

    value: Any
    origin: Origin = Origin.DEFAULT
    where: str = ""


_BY_NAME = {option.name: option for option in OPTIONS}
_BY_VARIABLE = {option.env: option for option in OPTIONS}
_OF_PLANS = tuple(option for option in OPTIONS if option.plan)
_DEFAULTS = {option.name: Value(() if option.repeat else option.default) for option in OPTIONS}


@dataclass(frozen=True, slots=True)
class Settings:
    """Values and origins of all options; ``settings["jobs"]`` is the value."""

    values: Mapping[str, Value] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.values[name].value

    def origin(self, name: str) -> Value:
        return self.values[name]

    def is_set(self, name: str) -> bool:
        return self.values[name].origin is not Origin.DEFAULT


def resolve(
    command_line: Mapping[str, Any] | None = None,
    *,
    plan: Mapping[str, Any] | None = None,
    plan_name: str = "",
    variables: Mapping[str, str] | None = None,
    config: ConfigFile | None = None,
) -> Settings:
    """Merge command line, environment, plan, configuration file and defaults; None and () mean "not set".

    Raises:
        UsageError: for a value of the wrong type in the environment or the file, a number below the option's minimum,
            an unknown ``OPTEST_`` variable, or empty text.
        UnknownName: for an unknown key of the file.
    """
    variables = environment() if variables is None else variables
    explicit = _read_config(config_file() if config is None else config)
    for option in _OF_PLANS if plan else ():
        if plan and plan.get(option.plan) is not None:
            explicit[option.name] = Value(plan[option.plan], Origin.PLAN, plan_name)
    # A flag that is False or counted zero times was not typed.
    typed = {
        name: value
        for name, value in (command_line or {}).items()
        if name in _BY_NAME and value not in (None, (), []) and (value or _BY_NAME[name].type not in ("bool", "count"))
    }
    for name, text in variables.items():
        if not name.startswith("OPTEST_") or name in _OTHER_VARIABLES:
            continue
        if name not in _BY_VARIABLE:
            hint = did_you_mean(name, (*_BY_VARIABLE, *_OTHER_VARIABLES), text="; did you mean {}?")
            raise UsageError(f"environment variable {name} is unknown{hint}")
        option = _BY_VARIABLE[name]
        if option.name not in typed:
            explicit[option.name] = _of_variable(option, text)
    for name, value in typed.items():
        explicit[name] = Value(value, Origin.COMMAND_LINE, _BY_NAME[name].flags[-1])
    for name, resolved in explicit.items():
        _require_valid(_BY_NAME[name], resolved)
    return Settings({**_DEFAULTS, **explicit})


def plugin_modules() -> tuple[str, ...]:
    """Return the plug-in modules that ``OPTEST_PLUGINS`` names, or else the configuration file, in order."""
    option, text = _BY_NAME["plugins"], environment().get("OPTEST_PLUGINS")
    config = _read_config(config_file()) if text is None else {}
    value = config.get("plugins", _DEFAULTS["plugins"]) if text is None else _of_variable(option, text)
    modules: tuple[str, ...] = value.value
    return modules


def _of_variable(option: Option, text: str) -> Value:
    """Return the value of an option's environment variable; raise ``UsageError`` if it has the wrong type."""
    return Value(_parse(option, text, f"environment variable {option.env}"), Origin.ENVIRONMENT, option.env)


def _read_config(file: ConfigFile) -> dict[str, Value]:
    """Return the values of the configuration file by option name; resolve relative paths from the file's folder.

    Raises:
        UnknownName: for a key that is no option.
        UsageError: for a value of the wrong type, or a list for an option that takes one value and vice versa.
    """
    values = {}
    for key, raw in file.values.items():
        option = _BY_NAME.get(key.replace("-", "_"))
        if option is None:
            raise UnknownName("option", key, _BY_NAME, where=file.path)
        where = f"{key} in {file.path}"
        if option.repeat != isinstance(raw, list) and not (option.repeat and isinstance(raw, str)):
            raise UsageError(f"{where} is {raw!r}, expected {'a list' if option.repeat else 'one value'}")
        texts = [str(text) for text in (raw if isinstance(raw, list) else [raw])]
        texts = list(split_values(texts)) if option.splits else texts
        if option.completes in ("file", "folder"):
            paths = [os.path.normpath(os.path.join(file.folder, text)) for text in texts]
            # A metavar with NAME takes names, too: a text that is no existing path stays a name.
            texts = [
                path if os.path.exists(path) or "NAME" not in option.metavar else text
                for text, path in zip(texts, paths, strict=True)
            ]
        value = tuple(texts) if option.repeat else _parse(option, texts[0], where)
        values[option.name] = Value(value, Origin.CONFIG, where)
    return values


def _require_valid(option: Option, value: Value) -> None:
    """Raise ``UsageError`` if a value is empty text or below the option's minimum."""
    texts = value.value if option.repeat else (value.value,)
    # Empty text usually comes from an unset shell variable; the default would replace it silently.
    if "" in texts and option.name not in _MAY_BE_EMPTY:
        flag = f"--{option.name.replace('_', '-')}"
        flag = flag if flag in option.flags else option.flags[-1]
        raise UsageError(f"{flag} ({option.env}) is empty; set a value, or leave it out")
    if option.minimum is not None and value.value is not None and value.value < option.minimum:
        where = value.where or option.flags[-1]
        raise UsageError(f"{where} is {value.value}, expected {option.minimum} or more")


def _parse(option: Option, text: str, where: str) -> Any:
    """Convert text of the environment or the file to the option's type; a repeatable option gives a tuple.

    Raises:
        UsageError: naming ``where``, if the text has another type or is not among the choices.
    """
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
        raise UsageError(f"{where} is {text!r}, expected {word}") from None
    if option.choices and text not in option.choices:
        listed = ", ".join(option.choices)
        raise UsageError(f"{where} is {text!r}, expected one of {listed}")
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
