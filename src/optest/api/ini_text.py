"""Lines of a project's ini for pytest, written into its text: whatever else stands there stays, letter by letter.

Every change is held against what the file said before; a form that cannot be changed safely is refused.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from optest.errors import UsageError
from optest.registry import load_object

__all__ = ["PLUGIN", "CannotChange", "IniText", "ini_text", "lines_to_add"]

PLUGIN = "optest.pytest_plugin"
_SWITCH = f"-p {PLUGIN}"
_KEY = re.compile(r"(?P<key>addopts|optest_models)[ \t]*(?P<mark>[=:])[ \t]*")


class CannotChange(Exception):
    """Why a text is left as it is."""


@dataclass(frozen=True, slots=True)
class IniText:
    """A file with a section for pytest, or one to which it is added.

    ``section`` is the name in brackets. ``is_native`` stands for pytest's own TOML, where every value has its type.
    """

    text: str
    section: str
    is_toml: bool = False
    is_native: bool = False

    def options(self) -> Mapping[str, Any] | None:
        """What the section states, None if there is no such section.

        Raises:
            CannotChange: if the text cannot be read.
        """
        return _toml_options(self.text, self.section) if self.is_toml else _ini_options(self.text, self.section)

    def is_switched_on(self) -> bool:
        """Whether its ``addopts`` name the plug-in already."""
        return _names_plugin((self.options() or {}).get("addopts", ""))

    def with_lines(self, models: Sequence[str]) -> str:
        """The text with what is missing of the two lines.

        Raises:
            CannotChange: if that cannot be done safely.
        """
        before = self.options()
        wanted: dict[str, Any] = {}
        text = self.text
        if models and "optest_models" not in (before or {}):
            wanted["optest_models"] = models
        if not self.is_switched_on():
            wanted["addopts"] = None
        for key in wanted:
            text = self._with(text, key, models, before or {}, _has_section(text, self.section))
        self._require_same(text, before or {}, wanted)
        return text

    def _with(self, text: str, key: str, models: Sequence[str], before: Mapping[str, Any], has_section: bool) -> str:
        newline = "\r\n" if "\r\n" in text else "\n"
        line = _line(key, models, self.is_toml, self.is_native)
        if not has_section:
            gap = "" if not text else newline if text.endswith("\n") else 2 * newline
            return f"{text}{gap}[{self.section}]{newline}{line}{newline}"
        head = _header(self.section).search(text)
        assert head is not None
        if key not in before:
            end = text.find("\n", head.end())
            if end < 0:
                return f"{text}{newline}{line}{newline}"
            return f"{text[: end + 1]}{line}{newline}{text[end + 1 :]}"
        for found in re.finditer(rf"^{_KEY.pattern}", text[head.end() :], re.MULTILINE):
            if found["key"] == key:
                start = head.end() + found.end()
                return _prefixed_toml(text, start) if self.is_toml else _prefixed_ini(text, start)
        raise CannotChange(f"its {key} is written in a way that is not known here")

    def _require_same(self, text: str, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        """Read the new text as pytest will, and compare."""
        after = dict(IniText(text, self.section, self.is_toml, self.is_native).options() or {})
        expected = dict(before)
        if "addopts" in wanted and _words(after.pop("addopts", "")) != [
            *("-p", PLUGIN),
            *_words(expected.pop("addopts", "")),
        ]:
            raise CannotChange("its addopts cannot be added to")
        if "optest_models" in wanted and not after.pop("optest_models", None):
            raise CannotChange("optest_models cannot be added")
        if after != expected or _others(text, self) != _others(self.text, self):
            raise CannotChange("other values of it would change")


def ini_text(text: str, name: str) -> IniText:
    """The text of a file of this name, which is one of those that pytest looks for."""
    if name.endswith("pytest.toml"):
        return IniText(text, "pytest", is_toml=True, is_native=True)
    if name == "pyproject.toml":
        is_native = _has_section(text, "tool.pytest")
        section = "tool.pytest" if is_native else "tool.pytest.ini_options"
        return IniText(text, section, is_toml=True, is_native=is_native)
    return IniText(text, "tool:pytest" if name == "setup.cfg" else "pytest")


def lines_to_add(file: IniText, models: Sequence[str]) -> list[str]:
    """What a person would write by hand."""
    keys = ["addopts", *(["optest_models"] if models else [])]
    return [f"[{file.section}]", *(_line(key, models, file.is_toml, file.is_native) for key in keys)]


def _line(key: str, models: Sequence[str], is_toml: bool, is_native: bool) -> str:
    if key == "optest_models":
        return f"{key} = {json.dumps(list(models)) if is_toml else ' '.join(map(shlex.quote, models))}"
    if is_native:
        return f'{key} = ["-p", "{PLUGIN}"]'
    return f'{key} = "{_SWITCH}"' if is_toml else f"{key} = {_SWITCH}"


def _header(section: str) -> re.Pattern[str]:
    dotted = r"[ \t]*\.[ \t]*".join(map(re.escape, section.split(".")))
    return re.compile(rf"^[ \t]*\[[ \t]*{dotted}[ \t]*\]", re.MULTILINE)


def _has_section(text: str, section: str) -> bool:
    return _header(section).search(text) is not None


def _prefixed_ini(text: str, start: int) -> str:
    """Options go in front of those that are there; where these begin in the next line, into a line of their own."""
    line_end = text.find("\n", start)
    rest = text[start:] if line_end < 0 else text[start:line_end]
    following = "" if line_end < 0 else text[line_end + 1 :]
    indent = re.match(r"[ \t]+(?=\S)", following)
    if rest.strip() or indent is None:
        return f"{text[:start]}{_SWITCH}{' ' if rest.strip() else ''}{text[start:]}"
    newline = "\r\n" if rest.endswith("\r") else "\n"
    return f"{text[: line_end + 1]}{indent[0]}{_SWITCH}{newline}{following}"


def _prefixed_toml(text: str, start: int) -> str:
    value = text[start:]
    for quote in ('"""', "'''"):
        if value.startswith(quote):
            return f"{text[: start + 3]}{_SWITCH} {text[start + 3 :]}"
    if value[:1] in ('"', "'"):
        gap = "" if value[1:2] == value[0] else " "
        return f"{text[: start + 1]}{_SWITCH}{gap}{text[start + 1 :]}"
    if not value.startswith("["):
        raise CannotChange("its addopts is neither text nor a list")
    words = f'"-p", "{PLUGIN}"'
    in_lines = re.match(r"\[[^\S\n]*(\n[ \t]*)(?=[\"'\]])", value)
    if re.match(r"\[\s*\]", value):
        return f"{text[: start + 1]}{words}{text[start + 1 :]}"
    if in_lines:
        return f"{text[: start + in_lines.end()]}{words},{in_lines[1]}{text[start + in_lines.end() :]}"
    return f"{text[: start + 1]}{words}, {text[start + 1 :]}"


def _words(stated: Any) -> list[str]:
    return list(map(str, stated)) if isinstance(stated, list) else shlex.split(str(stated), comments=False)


def _names_plugin(stated: Any) -> bool:
    words = _words(stated)
    return f"-p{PLUGIN}" in words or ("-p", PLUGIN) in pairwise(words)


def _toml_options(text: str, section: str) -> Mapping[str, Any] | None:
    found: Any = _toml(text)
    for key in section.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    if found is not None and not _has_section(text, section):
        raise CannotChange(f"[{section}] is not written as a section of its own")
    return found if isinstance(found, dict) else None


def _toml(text: str) -> Any:
    try:
        loads = load_object("tomllib:loads")
    except UsageError:
        try:
            loads = load_object("tomli:loads")  # what pytest itself reads TOML with before Python 3.11
        except UsageError:
            raise CannotChange("nothing reads TOML here") from None
    try:
        return loads(text)
    except ValueError as error:
        raise CannotChange(f"it is not TOML: {error}") from None


def _ini(text: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(empty_lines_in_values=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise CannotChange(f"it cannot be read: {str(error).splitlines()[0]}") from None
    return parser


def _ini_options(text: str, section: str) -> Mapping[str, Any] | None:
    parser = _ini(text)
    return dict(parser[section]) if parser.has_section(section) else None


def _others(text: str, file: IniText) -> Any:
    """Everything but the section of pytest."""
    if not file.is_toml:
        parser = _ini(text)
        return {name: dict(parser[name]) for name in parser.sections() if name != file.section}
    data = _toml(text)
    inner = data
    *above, last = file.section.split(".")
    for key in above:
        inner = inner.setdefault(key, {})
    inner.pop(last, None)
    return data
