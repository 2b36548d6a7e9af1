"""What an option is worth in a run: command line, environment, plan, default, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from optest.errors import UsageError, did_you_mean
from optest.settings.options import OPTIONS, Option
from optest.settings.variables import environment

__all__ = ["Origin", "Settings", "Value", "resolve"]

_OTHER_VARIABLES = ("OPTEST_PLUGINS", "OPTEST_LEASES")
_MAY_BE_EMPTY = ("keyword",)
"""``-k ''`` selects everything, as it does for pytest."""


class Origin(IntEnum):
    """Where a value came from; a later one wins."""

    DEFAULT = 0
    PLAN = 1
    ENVIRONMENT = 2
    COMMAND_LINE = 3

    @property
    def phrase(self) -> str:
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class Value:
    """A resolved option and where it came from; ``where`` names the variable or the place in the plan."""

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
) -> Settings:
    """Merge command line, environment, plan and defaults; None and () mean "not stated".

    Raises:
        UsageError: for a value of the wrong type in the environment, an unknown ``OPTEST_`` variable, or text that is
            empty, as of a shell's variable that is not set: a default would stand for it, and nobody was told.
    """
    variables = environment() if variables is None else variables
    known = {option.env for option in OPTIONS} | set(_OTHER_VARIABLES)
    for name in variables:
        if name.startswith("OPTEST_") and name not in known:
            hint = did_you_mean(name, known, text="; did you mean {}?")
            raise UsageError(f"environment variable {name} is unknown{hint}")
    return Settings(
        {
            option.name: _checked(option, _resolve_one(option, command_line or {}, plan or {}, plan_name, variables))
            for option in OPTIONS
        }
    )


def _resolve_one(
    option: Option,
    command_line: Mapping[str, Any],
    plan: Mapping[str, Any],
    plan_name: str,
    variables: Mapping[str, str],
) -> Value:
    stated = command_line.get(option.name)
    if stated not in (None, (), []) and not (option.type in ("bool", "count") and not stated):
        return Value(stated, Origin.COMMAND_LINE, option.flags[-1])
    text = variables.get(option.env)
    if text is not None:
        return Value(_parse(option, text), Origin.ENVIRONMENT, option.env)
    if option.plan and plan.get(option.plan) is not None:
        return Value(plan[option.plan], Origin.PLAN, plan_name)
    return Value(() if option.repeat else option.default)


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


def _parse(option: Option, text: str) -> Any:
    if option.repeat:
        return tuple(part for part in text.split(",") if part)
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
        raise UsageError(f"environment variable {option.env} is {text!r}, but should be {word}") from None
    if option.choices and text not in option.choices:
        listed = ", ".join(option.choices)
        raise UsageError(f"environment variable {option.env} is {text!r}, but should be one of {listed}")
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
