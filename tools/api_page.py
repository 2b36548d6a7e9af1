"""Print the page docs/api.md, built from signatures and docstrings: ``make docs``."""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import optest

_HEAD = """\
# Python API

<!-- Made by `make docs` from the docstrings; edit these, not this file. -->

`import optest` is all that is needed. Options have the names of the command line's, with `_` for `-`; one that may be
repeated there takes a list. `optest.cli.main(["run", "plan.yaml"])` runs a command line and returns its exit status.
[From pytest](how-to/pytest.md) shows the assertions at work, [a Python function](backends/function.md) `optest.check`
and `optest.kernel`. What raises is a subclass of `optest.errors.OptestError`, unless it is an `AssertionError`.
"""
_ROLE = re.compile(r":[a-z]+:`(?:~?[\w.]*\.)?(\w+)`")
_WIDTH = 100


def api_page() -> str:
    """Return the whole page, with a newline at its end."""
    before = ("testing.assert_right", "testing.assert_close", "check", "run", "cases", "bootstrap", "kernel")
    entries = {name: _entry(f"optest.{name}", attrgetter(name)(optest)) for name in (*before, "RunOptions")}
    numerics = _entry("optest.testing.Numerics", optest.testing.Numerics)
    return "\n".join([_HEAD, *entries.values(), _of_report(), numerics])


def _of_report() -> str:
    rows = ["| member | |", "|---|---|"]
    for name, member in vars(optest.Report).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
            call = "" if isinstance(member, property) else "()"
            what = _prose(member).partition("\nRaises:")[0]
            rows.append(f"| `{name}{call}` | {' '.join(what.split())} |")
    return "\n".join([f"## optest.Report\n\n{_prose(optest.Report)}", *rows]) + "\n"


def _entry(name: str, entity: Callable[..., Any]) -> str:
    return f"## {name}\n\n```python\n{_signature(name, entity)}\n```\n\n{_prose(entity)}"


def _signature(name: str, entity: Callable[..., Any]) -> str:
    found = inspect.signature(entity)
    parts = [_parameter(each) for each in found.parameters.values()]
    first = next((at for at, each in enumerate(found.parameters.values()) if each.kind is each.KEYWORD_ONLY), None)
    if first is not None:
        parts.insert(first, "*")
    ending = f" -> {found.return_annotation}" if isinstance(found.return_annotation, str) else ""
    lines = textwrap.wrap(f"{name}({', '.join(parts)}){ending}", _WIDTH, subsequent_indent="    ")
    return "\n".join(lines)


def _parameter(parameter: inspect.Parameter) -> str:
    """A default says what is taken; a parameter without one has its annotation."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return "*" * (1 + (parameter.kind is parameter.VAR_KEYWORD)) + parameter.name
    if parameter.default is parameter.empty:
        return f"{parameter.name}: {parameter.annotation}"
    return f"{parameter.name}={parameter.default!r}"


def _prose(entity: Any) -> str:
    """A docstring as Markdown; what it raises as a list."""
    text, _, raises = _ROLE.sub(r"`\1`", inspect.getdoc(entity) or "").replace("``", "`").partition("\nRaises:\n")
    text = text.strip() + "\n"
    if not raises:
        return text
    entries = [
        " ".join(each.split()).partition(": ") for each in re.split(r"\n(?=\S)", inspect.cleandoc(f"\n{raises}"))
    ]
    return text + "\nRaises:\n\n" + "".join(f"- `{name}`: {why}\n" for name, _, why in entries)


if __name__ == "__main__":
    sys.stdout.write(api_page())
